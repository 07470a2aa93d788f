"""``calibrant audit``: can this model's confidence be trusted?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.auditing import Audit, CommandWords, audit
from calibrant.base.numbers import ABSENT, count, difference, difference_span, percent, quantity, round_percent, span
from calibrant.cli.console import print_json, print_line, print_table, remark, say, show_progress
from calibrant.cli.options import (
    Address,
    Centre,
    ClassNames,
    Column,
    Engine,
    FailOn,
    IgnoreIndex,
    Json,
    Positive,
    Quiet,
    Repeats,
    Segmentation,
    Split,
    check_fail_on,
    check_kind,
    columns_of,
    command_line,
    open_for_policy,
    parse_opening,
    pass_engine,
    reading_words,
    share_option,
)
from calibrant.metrics import check_level
from calibrant.policy import Policy
from calibrant.predictions import Predictions, Remote, is_remote


def audit_command(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Predictions: .npz, .npy, .parquet, .safetensors or .csv, a folder of shards or a quoted glob "
            "(also s3://bucket/*.parquet); several are compared on the same samples."
        ),
    ],
    val: Annotated[str | None, typer.Option(help="Held-out predictions of the first model, to fit repairs on.")] = None,
    split: Split = None,
    val_split: Annotated[
        str | None, typer.Option(help="Like --split, but for --val, which may then be the audited file.")
    ] = None,
    repeats: Repeats = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Column to break the numbers down by (repeat for more).")
    ] = None,
    column: Column = None,
    class_names: ClassNames = None,
    positive: Positive = None,
    segmentation: Segmentation = False,
    ignore_index: IgnoreIndex = None,
    policy: Annotated[
        Path | None, typer.Option(help="A policy from calibrant fit: check its guarantee on these samples.")
    ] = None,
    centre: Centre = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Report to write (report.html if not given), or 'none'.")
    ] = None,
    level: Annotated[float, share_option("Confidence level of the intervals.")] = 0.95,
    replicates: Annotated[int, typer.Option(help="Number of bootstrap replicates.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    engine: Engine = "local",
    address: Address = None,
    fail_on: FailOn = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell whether a model's confidence can be trusted, with an interval on every number, and write a report.

    Reads logits, probabilities or confidences with their labels; files may be far larger than memory.
    """
    report = None if str(output) == "none" else output or Path("report.html")
    if report is not None:
        check_kind(report, "a report", ".html", ".htm", inputs=[*files, val, policy])
    check_level(level, replicates, seed)
    check_fail_on(fail_on, policy is not None)
    if val_split is not None and val is None:
        raise ValueError(f"--val-split {val_split}: give --val, which may be the audited file")
    if val is not None and val in files and (split is None or val_split in (None, split)):
        raise ValueError(f"--val {val}: repairs must be fitted on other data than they are judged on")
    fitted = None if policy is None else Policy.load(policy)
    if fitted is not None and fitted.kind == "segmentation":
        ignored = fitted.evidence.get("ignore_index")
        segmentation = True
        ignore_index = ignored if ignore_index is None and isinstance(ignored, int) else ignore_index
    inputs = [*files, *([] if val is None or val in files else [val])]
    reading = reading_words(columns_of(files[0], inputs, column), class_names, positive, segmentation, ignore_index)

    selecting = [[] if name is None else ["--split", name] for name in (split, val_split)]
    repeating = [] if repeats is None else ["--repeats", repeats]

    def options_for(file: str, split: str | None) -> dict[str, Any]:
        columns = columns_of(file, inputs, column)
        return parse_opening(columns, class_names, positive, segmentation, ignore_index, split)

    if fitted is not None and fitted.group is not None and fitted.group not in (group or []):
        group = [*(group or []), fitted.group]
    names, models = _names(files), dict[str, Predictions]()
    for name, path in names.items():
        # The policy is judged on the first model alone.
        models[name] = open_for_policy(
            None if models else fitted, path, groups=group or None, **options_for(path, split)
        )
    held_out = None if val is None else open_for_policy(fitted, val, **options_for(val, val_split))
    with pass_engine(engine, address) as reader, show_progress(quiet) as progress:
        result = audit(
            models,
            val=held_out,
            groups=group,
            repeats=repeats,  # type: ignore[arg-type]  # checked there
            level=level,
            replicates=replicates,
            seed=seed,
            reproduce=command_line(),
            commands=CommandWords(
                names, val, None if policy is None else str(policy), reading,
                selecting=selecting[0], selecting_val=selecting[1], repeats=repeating,
            ),
            policy=fitted,
            centre=centre,
            engine=reader,
            progress=progress,
        )  # fmt: skip
    replaces = report is not None and output is None and report.exists()
    if report is not None:
        result.to_html(report)
    if as_json:
        print_json(result.document)
    elif not quiet:
        print_audit(result)
    if report is not None:
        remark(f"wrote {report}{', in place of an earlier one (-o FILE keeps both)' * replaces}", quiet)
    promise = result.document["policy"] or {}
    is_broken = "no" in (promise.get("kept"), (promise.get("sets") or {}).get("hold"))
    is_poor = fail_on == "poor" and result.models[0]["verdict"]["level"] == "poor"
    if fail_on is not None and (is_broken or is_poor):
        raise typer.Exit(1)


def print_audit(result: Audit) -> None:
    """Verdicts and findings, then numbers with intervals, on standard output."""
    models = result.models
    for warning in result.document["warnings"]:
        say(f"Warning: {warning}")
        print_line()
    if len(models) > 1 or result.document.get("policy"):
        say(result.verdict)
        print_line()
    if result.document.get("policy"):
        _print_promise(result.document["policy"])
    for model in models:
        say(f"{model['name']}: {model['verdict']['headline']}" if len(models) > 1 else model["verdict"]["headline"])
        say(model["verdict"]["text"])
        for finding in model["findings"]:
            say(f"- {finding['title']}. {finding['text']}", indent=2)
            say(finding["evidence"], indent=4)
        for note in model["notes"]:
            say(f"- Note: {note}", indent=2)
        if model.get("positive"):
            _print_positive(model["positive"])
        for table in model["groups"]:
            _print_group(table)
        print_line()
    labels = {metric["name"]: metric["label"] for model in models for metric in model["metrics"]}
    by_model = [{metric["name"]: metric for metric in model["metrics"]} for model in models]
    level = round_percent(result.document["level"])
    if len(models) == 1:
        rows = [[label, *_cells(by_model[0].get(name))] for name, label in labels.items()]
        print_table(f"{count(models[0]['samples'])} {models[0]['unit']}", ["", "value", f"{level} interval"], rows)
    else:
        rows = [[label, *(_cells(part.get(name))[0] for part in by_model)] for name, label in labels.items()]
        print_table("Numbers (intervals are in the report)", ["", *(model["name"] for model in models)], rows)
    for comparison in result.document["comparisons"]:
        rows = [
            [row["label"], quantity(row["first"], row["unit"]), quantity(row["second"], row["unit"]), *_change(row)]
            for row in comparison["rows"]
        ]
        head = ["", comparison["first"], comparison["second"], "difference", f"{level} interval"]
        print_table("\nOn the same samples (pp: percentage points)", head, rows)
    print_line()
    say(f"Next: {result.document['next']['text']}")
    if result.document["next"]["command"]:
        print_line(f"  {result.document['next']['command']}")


def _print_positive(part: dict[str, Any]) -> None:
    rows = [[row["label"], *_cells(row)] for row in part["metrics"]]
    print_table(f"\nP({part['name']}), {part['why']}", ["", "value", "interval"], rows)
    series, lines = part["reliability"], []
    for low, high, samples, claimed, *happened in zip(*series.values(), strict=True):
        if samples:
            cells = {"value": happened[0], "low": happened[1], "high": happened[2], "unit": "share"}
            lines.append([f"{percent(low)} to {percent(high)}", count(samples), percent(claimed), *_cells(cells)])
    head = ["P", "samples", "mean P", "happened", "interval"]
    print_table(f"\nHow often {part['name']} happens, by its probability P", head, lines)


def _print_promise(part: dict[str, Any]) -> None:
    say(f"Policy: {part['title']}.")
    say(part["text"], indent=2)
    say(part["evidence"], indent=2)
    if part["groups"]:
        rows = []
        for row in part["groups"]:
            shares = (percent(row[key]) for key in ("answered", "wrong"))
            rows.append([row["name"], count(row["samples"]), *shares, row["note"]])
        print_table(f"\nBy {part['column']}", ["", "samples", "answered", "wrong answers", ""], rows)
    if part["sets"]:
        say(f"Sets: {part['sets']['title']}.")
        say(part["sets"]["text"], indent=2)
        say(part["sets"]["evidence"], indent=2)
    print_line()


def _print_group(table: dict[str, Any], most: int = 12) -> None:
    rows = sorted(table["rows"], key=lambda row: (not row["flag"], -abs(row["gap"])))
    lines = []
    for row in rows[:most]:
        shares = (row["accuracy"], row["confidence"])
        gap = difference(row["gap"], "share", shares), difference_span(row["gap_low"], row["gap_high"], "share", shares)
        lines.append([row["name"] + " *" * bool(row["flag"]), count(row["count"]), *map(percent, shares), *gap])
    omitted = f" ({len(rows) - most} more in the report)" if len(rows) > most else ""
    head = ["", "count", "accuracy", "confidence", "gap", "interval"]
    print_table(f"\nBy {table['column']}{omitted}; * worse than the rest beyond chance", head, lines)


def _names(files: list[str]) -> dict[str, str]:
    """Files by a short name each: the last part of the path, or the whole path where that is not unique."""
    if len(set(files)) < len(files):
        raise ValueError(f"the same file is given twice: {next(f for f in files if files.count(f) > 1)}")
    short = [(Remote(file) if is_remote(file) else Path(file)).name or file for file in files]
    return {name if short.count(name) == 1 else file: file for name, file in zip(short, files, strict=True)}


def _cells(metric: dict[str, Any] | None) -> tuple[str, str]:
    """Value and interval."""
    if metric is None or metric["value"] is None:
        return ABSENT, (metric or {}).get("note") or ""
    value, unit = metric["value"], metric["unit"]
    return quantity(value, unit), span(metric["low"], metric["high"], unit, value)


def _change(row: dict[str, Any]) -> tuple[str, str]:
    """Difference and interval, in percentage points for shares."""
    unit, values = row["unit"], (row["first"], row["second"])
    return difference(row["difference"], unit, values), difference_span(row["low"], row["high"], unit, values)
