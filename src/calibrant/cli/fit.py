"""``calibrant fit``: a policy that answers or abstains, with a risk that holds."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.base.checks import listing
from calibrant.base.files import parse_json, read_regular
from calibrant.base.numbers import allowed, count, difference, number, percent, round_percent, span_words
from calibrant.cli.console import print_class_coverage, print_json, print_table, remark, say, show_progress
from calibrant.cli.options import (
    Address,
    Centre,
    ClassNames,
    Column,
    Engine,
    IgnoreIndex,
    Json,
    Positive,
    Quiet,
    Repeats,
    Segmentation,
    Split,
    check_kind,
    open_for_policy,
    parse_opening,
    pass_engine,
    share_option,
)
from calibrant.policy import Policy
from calibrant.promises import Promise, Threshold

LARGEST_COSTS = 2**26  # bytes of a file


def fit_command(
    files: Annotated[
        str,
        typer.Argument(
            metavar="PREDICTIONS",
            help="Held-out predictions: .npz, .npy, .parquet, .safetensors or .csv, a folder or a quoted glob.",
        ),
    ],
    target_risk: Annotated[
        float | None, share_option("Allowed share of wrong answers, such as 5% or 0.05 (the default).")
    ] = None,
    confidence: Annotated[float, share_option("Confidence level of the guaranteed risk.")] = 0.95,
    target_coverage: Annotated[float | None, share_option("Instead of a risk: share of samples to answer.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Policy to write.")] = Path("policy.json"),
    method: Annotated[
        str, typer.Option(help="How the threshold is found: best, fixed-sequence, sgr or empirical.")
    ] = "best",
    calibrator: Annotated[str, typer.Option(help="auto, none, temperature, ensemble, isotonic or vector.")] = "auto",
    score: Annotated[
        str, typer.Option(help="auto, msp, max_logit, margin, negative_entropy, energy or normalised_max_logit.")
    ] = "auto",
    centre: Centre = None,
    group: Annotated[str | None, typer.Option(help="Fit a separate threshold for each value of this column.")] = None,
    by_class: Annotated[
        bool, typer.Option("--by-class", help="Promise the risk for the answers of every predicted class, all at once.")
    ] = False,
    promise: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of a risk: 'precision[CLASS] >= SHARE' (repeat for more classes), 'recall[CLASS] >= SHARE', "
            "'expected-risk <= SHARE', or with --costs 'cost <= NUMBER'."
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="Instead of a risk: a .csv or .json of what answers cost, a row per label, in order."),
    ] = None,
    target_cost: Annotated[float | None, typer.Option(help="With --costs: allowed mean cost of answers.")] = None,
    abstain_cost: Annotated[
        float | None,
        typer.Option(help="With --costs: the cost of abstaining; no answer that is expected to cost more is given."),
    ] = None,
    sets: Annotated[
        float | None, share_option("Also give prediction sets that contain the true class this often, such as 95%.")
    ] = None,
    set_method: Annotated[
        str, typer.Option(help="How the sets are made: lac, aps, raps or class-conditional.")
    ] = "lac",
    set_penalty: Annotated[float | None, typer.Option(help="Penalty of RAPS (chosen if not given).")] = None,
    set_free_ranks: Annotated[
        int | None, typer.Option(help="Classes that RAPS has without a penalty (chosen if not given).")
    ] = None,
    set_randomised: Annotated[bool, typer.Option("--set-randomised", help="Randomise APS or RAPS, by --seed.")] = False,
    split: Split = None,
    repeats: Repeats = None,
    column: Column = None,
    class_names: ClassNames = None,
    positive: Positive = None,
    segmentation: Segmentation = False,
    ignore_index: IgnoreIndex = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    engine: Engine = "local",
    address: Address = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Repair a model and decide when it may answer: fit a calibrator, a score and a threshold on held-out predictions.

    A fifth of the samples chooses calibrator and score, the others set the threshold, so that with the given confidence
    the share of wrong answers stays below the target on new samples of the same kind.
    """
    check_kind(output, "a policy", ".json", inputs=[files, costs])
    opening = parse_opening(column, class_names, positive, segmentation, ignore_index, split)
    predictions = open_for_policy(None, files, groups=None if group is None else [group], **opening)
    for text in predictions.remarks:
        remark(text, quiet)
    with pass_engine(engine, address) as reader, show_progress(quiet) as progress:
        policy = Policy.fit(
            predictions,
            promise or None,
            confidence,
            target_risk=target_risk,
            target_coverage=target_coverage,
            method=method,  # type: ignore[arg-type]  # checked there
            calibrator=calibrator,
            score=score,
            centre=centre,
            by=group,
            by_class=by_class,
            costs=None if costs is None else read_costs(costs, predictions.class_names),
            target_cost=target_cost,
            abstain_cost=abstain_cost,
            sets=sets,
            set_method=set_method,
            set_penalty=set_penalty,
            set_free_ranks=set_free_ranks,
            set_randomised=set_randomised,
            repeats=repeats,  # type: ignore[arg-type]  # checked there
            seed=seed,
            progress=progress,
            engine=reader,
        )
    policy.save(output)
    if as_json:
        print_json(policy.document)
    elif not quiet:
        print_policy(policy)
    if repeats is not None and (left_out := len(predictions) - policy.evidence["samples"]):
        remark(f"{count(left_out)} of {count(len(predictions))} rows repeat an id and were left out", quiet)
    remark(f"wrote {output}", quiet)


def print_policy(policy: Policy) -> None:
    """Print what the policy does and promises, and the data that it was fitted on."""
    say(policy.summary)
    if policy.kind == "segmentation" and not policy.abstains:
        say(policy.threshold.reason)
    for line in filter(
        None,
        (
            policy.price_summary,
            policy.majority_summary,
            policy.method_summary,
            policy.calibration_summary,
            policy.calibration_warning,
        ),
    ):
        say(line)
    evidence = policy.evidence
    unit = "images" if policy.kind == "segmentation" else "samples"
    samples, for_choice, for_threshold = (evidence[name] for name in ("samples", "for_choice", "for_threshold"))
    if for_choice:
        nouns = [f"the {name}" for name in ("calibrator", "score") if len(evidence[f"{name}s"]) > 1]
        purpose = f"to choose {' and '.join(nouns)}" if nouns else "to plan the tests"
        rest = "all of them" if for_threshold == samples else f"the other {count(for_threshold)}"
        say(f"Of the {count(samples)} {unit}, {count(for_choice)} were used {purpose}, {rest} to set the threshold.")
    else:
        say(f"All {count(samples)} {unit} were used to set the threshold; nothing was chosen on them.")
    if policy.part_column is not None:
        level = next(iter(policy.parts.values())).confidence
        head = ["", "samples", "answers", "", "wrong", "at once"]
        if policy.classes is None:
            head[-1] = "" if level is None else f"with {round_percent(level)} confidence"
        rows = [_threshold_row(name, threshold, policy.promise) for name, threshold in policy.parts.items()]
        print_table(f"\nBy {policy.part_column}", head, rows)
    print_sets(policy)
    for title, metric, rows in (
        ("\nCalibrators tried (cross-fitted)", "NLL", evidence["calibrators"]),
        ("\nScores tried (cross-fitted)", "AURC", evidence["scores"]),
    ):
        if len(rows) > 1:
            head = ["", metric, *["ECE"] * (metric == "NLL"), "change", "against", "by its standard error", "chosen"]
            print_table(title, head, [_row(row) for row in rows])


def print_sets(policy: Policy) -> None:
    """Print what the prediction sets promise, and their sizes on the samples of the quantile."""
    if policy.sets is None:
        return
    for line in policy.sets.sentences(policy.class_names):
        say(line)
    if policy.sets.counts is not None:
        say("On the samples of the quantile:")
        for sentence in policy.sets.counts.sentences(policy.class_names):
            say(sentence)
        if warning := policy.sets.counts.compare_with_constant(policy.sets, policy.class_names):
            say(warning)
        print_class_coverage(policy.sets.counts, policy.class_names)


def _threshold_row(name: str, threshold: Threshold, promise: Promise) -> list[str]:
    samples = count(threshold.samples)
    if threshold.abstains:
        needs = [] if threshold.needed is None else [f"{count(threshold.needed)} samples"]
        needs += [f"a promise of {promise.terms().show(offer.risk)}" for offer in threshold.menu[:1]]
        return [name, samples, "never answers", "", "", f"needs {' or '.join(needs)}" if needs else ""]
    risk = threshold.risk
    limit = "" if threshold.confidence is None or math.isnan(risk.high) else f"at most {allowed(risk.high)}"
    coverage = threshold.coverage
    limits = span_words(coverage.low, coverage.high, "share", coverage.value)
    return [name, samples, percent(coverage.value), f"({limits})", percent(risk.value), limit]


def _row(candidate: dict[str, Any]) -> list[str]:
    change, low, high = candidate["change"], candidate["low"], candidate["high"]
    mark = "yes" if candidate["chosen"] else ""
    values = [number(candidate["value"]), *([percent(candidate["ece"])] if candidate.get("ece") is not None else [])]
    if change is None:
        return [candidate["name"], *values, "", "", "", mark]
    is_tested = high is not None and low is not None and math.isfinite(high)
    beyond = "better" if is_tested and high < 0 else "worse" if is_tested and low > 0 else "no"
    return [candidate["name"], *values, difference(change, "number"), candidate["against"] or "", beyond, mark]


def read_costs(path: Path, class_names: Sequence[str] | None) -> list[list[float]]:
    """The costs by label and answer, in the order of the classes.

    A CSV file may name the answers in its first row and the labels in its first column; then it names all of them, and
    they may be in any order. JSON is a list of rows.
    """
    if path.suffix.lower() not in (".csv", ".json"):
        raise ValueError(f"--costs {path}: a cost matrix is read from .csv or .json, got {path.suffix!r}")
    try:
        text = read_regular(path, LARGEST_COSTS).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"--costs {path}: the file is not text in UTF-8") from None
    try:
        is_json = path.suffix.lower() == ".json"
        rows = parse_json(text, "a cost matrix") if is_json else _order_by_names(text, class_names)
        return _cost_rows(rows)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"--costs {path}: {error}") from None


def _order_by_names(text: str, class_names: Sequence[str] | None) -> list[list[str]]:
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if any(map(str.strip, row))]
    if not rows or _is_number(rows[0][-1]):
        return rows
    answers, labels = rows[0][1:], [row[0] for row in rows[1:]]
    names = list(class_names or map(str, range(len(answers))))
    for position, heads in (("answers in the first row", answers), ("labels in the first column", labels)):
        if sorted(heads) != sorted(names):
            raise ValueError(f"the {position} must be the classes {listing(names)}, each once")
    cells = {row[0]: dict(zip(answers, row[1:], strict=False)) for row in rows[1:]}
    return [[cells[label].get(answer, "") for answer in names] for label in names]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cost_rows(rows: Any) -> list[list[float]]:
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise ValueError("a cost matrix must be a list of rows of numbers")
    if len({len(row) for row in rows}) > 1:
        raise ValueError("all rows of a cost matrix must have the same length")
    for row in rows:
        for cell in row:
            if isinstance(cell, bool) or not isinstance(cell, int | float | str) or not _is_number(str(cell)):
                raise ValueError(f"a cost must be a number, got {str(cell)[:40]!r}")
    try:
        return [[float(cell) for cell in row] for row in rows]
    except OverflowError:  # a whole number beyond every float
        raise ValueError("a cost must fit in 64 bits, got a number with hundreds of digits") from None
