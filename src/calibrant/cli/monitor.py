"""``calibrant monitor``: a watch on the promise of a deployed policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrant.base.files import check_output
from calibrant.base.numbers import count, percent, span_words
from calibrant.cli.console import print_json, print_table, remark, say, show_progress
from calibrant.cli.options import (
    Address,
    ClassNames,
    Column,
    Engine,
    Json,
    Positive,
    Quiet,
    Repeats,
    Split,
    columns_of,
    open_for_policy,
    parse_opening,
    pass_engine,
    share_option,
)

if TYPE_CHECKING:
    from calibrant.base.progress import Progress
    from calibrant.monitoring import Monitor
    from calibrant.policy import Policy
    from calibrant.predictions import Predictions

#: Exit code of an alarm.
ALARM = 1


def monitor_command(
    policy: Annotated[Path, typer.Argument(help="A policy that calibrant fit wrote.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PREDICTIONS",
            help="Batches in the order in which they came: files as calibrant apply takes them, with or without "
            "labels; none to look at a state again.",
        ),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="The state of the watch, a .json file: made if it is not there, and added to.")
    ] = None,
    merge: Annotated[
        list[Path] | None, typer.Option(help="The state of another machine's watch, to be added (repeat for more).")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Labels that came later, .csv or .parquet with columns id and label, of samples of any batch that the "
            "state has seen with ids."
        ),
    ] = None,
    labels_only: Annotated[
        bool, typer.Option("--labels-only", help="The batches are rows that were seen before, now with labels.")
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of a batch, instead of its file name (repeat for more); without ids, one name means one batch."
        ),
    ] = None,
    acknowledge: Annotated[
        str | None, typer.Option(help="Record what was done about the current alarms; their tests start anew.")
    ] = None,
    by_group: Annotated[str | None, typer.Option(help="Watch the error rate in each group of this column too.")] = None,
    alpha: Annotated[float | None, share_option("The chance that the watch ever raises a false alarm (0.05).")] = None,
    alarm_on: Annotated[
        str, typer.Option(help="What exits with 1: any alarm, or only an alarm of the promise (any or promise).")
    ] = "any",
    corrected: Annotated[
        Path | None,
        typer.Option(help="Write the calibrated probabilities of the one batch, corrected for its estimated priors."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A page with the time line, .html.")] = None,
    split: Split = None,
    repeats: Repeats = None,
    column: Column = None,
    class_names: ClassNames = None,
    positive: Positive = None,
    engine: Engine = "local",
    address: Address = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Watch a deployed policy: whether its promise is kept, and whether new samples are like those of the fit.

    Look as often as you like: the evidence is valid at every time, and a sample counts once, by its id. Exits with 0,
    with 1 after an alarm that is not acknowledged, with 2 for bad input.
    """
    batches = files or []
    names = name or [Path(file).name for file in batches]
    _check(batches, names, state, merge or [], alarm_on, corrected)
    if output is not None and output.suffix.lower() != ".html":
        raise ValueError(f"--output {output}: a page is written as .html, got {output.suffix!r}")
    sources = [policy, labels, *batches, *(merge or [])]
    for path, others in ((state, []), (corrected, [state]), (output, [state, corrected])):
        if path is not None:
            check_output(path, inputs=[*sources, *others])
    from calibrant.monitoring import read_labels
    from calibrant.policy import Policy

    fitted = Policy.load(policy)
    late = None if labels is None else read_labels(labels, fitted.num_classes, fitted.class_names)
    watching = _begin(fitted, state, by_group, alpha)
    if acknowledge is not None:
        _change(watching, state, partial(watching.acknowledge, acknowledge))
    with pass_engine(engine, address) as reader, show_progress(quiet) as progress:
        for file, batch_name in zip(batches, names, strict=True):
            opening = parse_opening(columns_of(file, batches, column), class_names, positive, False, None, split)
            groups = sorted({name for name in (watching.state.by_group, fitted.group) if name is not None})
            predictions = open_for_policy(fitted, file, groups=groups or None, unlabelled=True, **opening)

            def take_in(predictions: Predictions = predictions, batch_name: str = batch_name) -> None:
                counts = watching.count(predictions, labels=late, repeats=repeats, progress=progress, engine=reader)
                watching.add(counts, batch_name, labels_only=labels_only)

            try:
                _change(watching, state, take_in)
            except ValueError as error:
                is_named = str(error).startswith(file)  # by the reader, which knows the row
                raise ValueError(str(error) if is_named else f"{file}: {error}") from None
            if corrected is not None:
                _write_corrected(watching, predictions, corrected, progress, quiet)
    for path in merge or []:
        _change(watching, state, partial(watching.merge, path))
    if late is not None and labels is not None:
        _change(watching, state, partial(_add_labels, watching, late, labels))
    _report(watching, output, as_json, quiet)
    is_changed = bool(batches or merge or labels or acknowledge)
    for output_path in (state if is_changed else None, corrected, output):
        if output_path is not None:
            remark(f"wrote {output_path}", quiet)
    if any(alarm_on == "any" or test.name == "promise" for test in watching.watch.alarms):
        raise typer.Exit(ALARM)


def _check(
    batches: list[str], names: list[str], state: Path | None, merge: list[Path], alarm_on: str, corrected: Path | None
) -> None:
    """Refuse invalid options before anything is read."""
    if alarm_on not in ("any", "promise"):
        raise ValueError(f"--alarm-on takes any or promise, got {alarm_on[:40]!r}")
    if not batches and not merge and (state is None or not state.exists()):
        raise ValueError("nothing to watch: give predictions, or --state FILE of a watch that was begun")
    if state is not None and state.suffix.lower() != ".json":
        raise ValueError(f"--state {state}: the state of a watch is a .json file, got {state.suffix!r}")
    if len(names) != len(batches):
        raise ValueError(f"--name must be given once for every batch, got {len(names)} for {len(batches)}")
    if corrected is not None and len(batches) != 1:
        raise ValueError(f"--corrected is for one batch, got {len(batches)}")


def _begin(policy: Policy, state: Path | None, by_group: str | None, alpha: float | None) -> Monitor:
    """The watch of an existing state, or a new one."""
    from calibrant.monitoring import Monitor

    if state is not None and state.exists():
        return Monitor.load(policy, state, by_group=by_group, alpha=alpha)
    return Monitor(policy, by_group=by_group, **({} if alpha is None else {"alpha": alpha}))


def _change(watching: Monitor, path: Path | None, change: Callable[[], object]) -> None:
    """Change a watch and write its state; what another process added to the file meanwhile stays in it."""
    from calibrant.monitoring import Monitor, lock_folder

    if path is None:
        change()
        return
    with lock_folder(path):
        if path.exists():
            watching.state = Monitor.load(watching.policy, path).state
        change()
        watching.save(path)


def _add_labels(watching: Monitor, late: dict[str, int], path: Path) -> None:
    """Labels that came later, at least one of which is of a sample of this watch."""
    if not watching.add_labels(late):
        example = next(iter(late))
        raise ValueError(
            f"{path}: none of its {count(len(late))} ids, such as {example[:60]!r}, belongs to a sample of this "
            "watch: write ids as in the batches, or add the missing batches first"
        )


def _write_corrected(watching: Monitor, predictions: Predictions, path: Path, progress: Progress, quiet: bool) -> None:
    """The calibrated probabilities of a batch, as they would be with its estimated priors."""
    from calibrant.monitoring import Monitor, correct_predictions

    counts = Monitor(watching.policy, by_group=watching.state.by_group).count(predictions, progress=progress)
    if counts.shift is None:
        raise ValueError("--corrected needs the priors at the fit, and the policy has none: fit it again")
    correct_predictions(watching.policy, predictions, counts.shift, progress=progress).save(path)
    shift = watching.document["label_shift"]
    if shift is None or not shift["offered"]:
        remark("the correction is not advised: nothing shows that the shares of the classes alone have changed", quiet)


def _report(watching: Monitor, output: Path | None, as_json: bool, quiet: bool) -> None:
    """The watch on standard output and as a page."""
    document = watching.document
    for text in watching.remarks:
        remark(text, quiet and text not in watching.skipped)
    if output is not None:
        from calibrant.report import write_watch

        write_watch(output, document)
    if as_json:
        print_json(document)
    elif not quiet:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    for alarm in document["alarms"]:
        say(f"ALARM: {alarm['text']}")
    for advice in dict.fromkeys(alarm["next"] for alarm in document["alarms"]):
        say(f"Next: {advice}")
    if not document["alarms"]:
        say(f"{document['headline']}.")
    for sentence in [*document["sentences"], *document["untested"]]:
        say(sentence)
    if document["label_shift"] is not None:
        say(document["label_shift"]["text"])
    rows = [
        [row["name"], count(row["samples"]), percent(row["coverage"]), percent(row["implied_risk"]),
         count(row["answers_labelled"]), percent(row["risk"])]
        for row in document["batches"][-20:]
    ]  # fmt: skip
    head = ["", "samples", "answered", "implied wrong", "labelled answers", "wrong"]
    print_table("\nBatches" + (", the last 20" if len(document["batches"]) > 20 else ""), head, rows)
    if document["groups"]:
        parts = [
            [part["group"], count(part["answers"]), percent(part["value"]),
             span_words(part["low"], part["high"], "share", part["value"]), _since(part["test"])]
            for part in document["groups"]
        ]  # fmt: skip
        print_table(f"\nBy {document['by_group']}", ["", "labelled answers", "wrong", "at all times", "alarm"], parts)


def _since(test: dict[str, Any] | None) -> str:
    return "" if test is None or test["alarm_since"] is None else f"since {test['alarm_since']}"
