"""``calibrant audit``: can this model's confidence be trusted?"""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant._files import check_output
from calibrant.auditing import Audit, audit
from calibrant.cli.common import (
    ClassNames,
    Column,
    IgnoreIndex,
    Json,
    Quiet,
    Segmentation,
    how_to_open,
    invocation,
    open_for_policy,
)
from calibrant.cli.console import print_json, print_line, print_table, remark, say, show_progress
from calibrant.metrics import check_level
from calibrant.predictions import Predictions, Remote, is_remote
from calibrant.selective import Policy


def audit_command(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Predictions: .npz, .npy, .parquet, .safetensors or .csv, a folder of shards or a quoted glob "
            "(also s3://bucket/*.parquet); several are compared on the same samples.",
            show_default=False,
        ),
    ],
    val: Annotated[
        str | None, typer.Option(help="Held-out predictions of the first model, to fit repairs on.", show_default=False)
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Column to break the numbers down by (repeat for more).", show_default=False),
    ] = None,
    column: Column = None,
    class_names: ClassNames = None,
    segmentation: Segmentation = False,
    ignore_index: IgnoreIndex = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="A policy of calibrant fit: does it keep its promise on these samples?", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Report to write (report.html if not given), or 'none'.")
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates behind them.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster, auto for example; none starts one here.", show_default=False)
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell whether a model's confidence can be trusted, with an interval on every number, and write a report.

    Reads logits, probabilities or confidences with their labels; files may be far larger than memory.
    """
    report = None if str(output) == "none" else output or Path("report.html")
    if report is not None and report.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--output {report}: a report is written as .html, got {report.suffix!r}")
    if report is not None:
        check_output(report)
    check_level(level, replicates, seed)
    if val is not None and val in files:
        raise ValueError(f"--val {val}: repairs must be fitted on other data than they are judged on")
    collecting = _collecting(engine, address)
    fitted = None if policy is None else Policy.load(policy)
    if fitted is not None and fitted.kind == "segmentation":
        known = fitted.evidence.get("ignore_index")
        segmentation, ignore_index = True, known if ignore_index is None and isinstance(known, int) else ignore_index
    opening = how_to_open(column, class_names, segmentation, ignore_index)
    if fitted is not None and fitted.group is not None and fitted.group not in (group or []):
        group = [*(group or []), fitted.group]
    named: dict[str, Predictions] = {}
    for name, path in _names(files).items():
        # The policy is judged on the first model alone.
        named[name] = open_for_policy(None if named else fitted, path, groups=group or None, **opening)
    held_out = None if val is None else open_for_policy(fitted, val, **opening)
    with show_progress(quiet) as progress:
        found = audit(
            named,
            val=held_out,
            groups=group,
            level=level,
            replicates=replicates,
            seed=seed,
            reproduce=shlex.join(["calibrant", *invocation]),
            policy=fitted,
            collecting=collecting,
            progress=progress,
        )
    if report is not None:
        found.to_html(report)
    if as_json:
        print_json(found.document)
    elif not quiet:
        print_audit(found)
    if report is not None:
        remark(f"wrote {report}", quiet)


def _collecting(engine: str, address: str | None) -> Any:
    """What goes through the files; None is this process."""
    if engine == "ray":
        from calibrant.auditing import collect_on_ray  # here, because Ray is an extra

        return partial(collect_on_ray, address=address)
    if engine != "local":
        raise ValueError(f"unknown engine {engine!r}; known are local and ray.")
    if address is not None:
        raise ValueError("an address is for the engine ray; the engine local reads in this process.")
    return None


def print_audit(found: Audit) -> None:
    """Verdicts and findings, then numbers with intervals, on standard output."""
    models = found.models
    if found.document.get("policy"):
        _print_promise(found.document["policy"])
    for model in models:
        say(f"{model['name']}: {model['verdict']['headline']}" if len(models) > 1 else found.verdict)
        say(model["verdict"]["text"])
        for finding in model["findings"]:
            say(f"- {finding['title']}. {finding['text']}", indent=2)
            say(finding["evidence"], indent=4)
        for note in model["notes"]:
            say(f"- Note: {note}", indent=2)
        for table in model["groups"]:
            _print_group(table)
        print_line()
    labels = {one["name"]: one["label"] for model in models for one in model["metrics"]}
    by_model = [{one["name"]: one for one in model["metrics"]} for model in models]
    level = format(found.document["level"], ".0%")
    if len(models) == 1:
        rows = [[label, *_cells(by_model[0].get(name))] for name, label in labels.items()]
        print_table(f"{models[0]['samples']:,} {models[0]['unit']}", ["", "value", f"{level} interval"], rows)
    else:
        rows = [[label, *(_cells(part.get(name))[0] for part in by_model)] for name, label in labels.items()]
        print_table("Numbers (intervals are in the report)", ["", *(model["name"] for model in models)], rows)
    for comparison in found.document["comparisons"]:
        rows = [
            [row["label"], _value(row["first"], row["unit"]), _value(row["second"], row["unit"]), *_change(row)]
            for row in comparison["rows"]
        ]
        head = ["", comparison["first"], comparison["second"], "difference", f"{level} interval"]
        print_table("\nOn the same samples (pp: percentage points)", head, rows)


def _print_promise(part: dict[str, Any]) -> None:
    say(f"Policy: {part['title']}.")
    say(part["text"], indent=2)
    say(part["evidence"], indent=2)
    if part["groups"]:
        rows = [
            [
                row["name"],
                f"{row['samples']:,}",
                _value(row["answered"], "share"),
                _value(row["wrong"], "share"),
                row["note"],
            ]
            for row in part["groups"]
        ]
        print_table(f"\nBy {part['column']}", ["", "samples", "answered", "wrong answers", ""], rows)
    print_line()


def _print_group(table: dict[str, Any], most: int = 12) -> None:
    rows = sorted(table["rows"], key=lambda row: (not row["flag"], -abs(row["gap"])))
    shown = [
        [
            row["name"] + (" *" if row["flag"] else ""),
            f"{row['count']:,}",
            _value(row["accuracy"], "share"),
            _value(row["confidence"], "share"),
            f"{100 * row['gap']:+.2f} pp",
            f"[{100 * row['gap_low']:+.2f}, {100 * row['gap_high']:+.2f}]",
        ]
        for row in rows[:most]
    ]
    rest = f" ({len(rows) - most} more in the report)" if len(rows) > most else ""
    head = ["", "count", "accuracy", "confidence", "gap", "interval"]
    print_table(f"\nBy {table['column']}{rest}; * worse than the rest beyond chance", head, shown)


def _names(files: list[str]) -> dict[str, str]:
    """Files by a short name each: the last part of the path, or the whole path where that is not unique."""
    if len(set(files)) < len(files):
        raise ValueError(f"the same file is given twice: {next(f for f in files if files.count(f) > 1)}")
    short = [(Remote(file) if is_remote(file) else Path(file)).name or file for file in files]
    return {name if short.count(name) == 1 else file: file for name, file in zip(short, files, strict=True)}


def _cells(one: dict[str, Any] | None) -> tuple[str, str]:
    """Value and interval."""
    if one is None:
        return "-", ""
    if one["value"] is None:
        return "-", one.get("note") or ""
    value = _value(one["value"], one["unit"])
    if one["low"] is None:
        return value, ""
    return value, f"[{_value(one['low'], one['unit'])}, {_value(one['high'], one['unit'])}]"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.2f}%" if unit == "share" else f"{value:.4f}"


def _change(row: dict[str, Any]) -> tuple[str, str]:
    """Difference and interval, in percentage points for shares."""
    scale, form, unit = (100, "+.2f", " pp") if row["unit"] == "share" else (1, "+.4f", "")
    texts = ["-" if row[key] is None else format(scale * row[key], form) for key in ("difference", "low", "high")]
    return texts[0] + unit, "" if row["low"] is None else f"[{texts[1]}, {texts[2]}]"
