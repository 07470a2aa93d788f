"""``calibrant audit``: can this model's confidence be trusted?"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.audit import Audit, audit
from calibrant.cli.common import Json, Quiet, print_table, progress, remark
from calibrant.predictions import Predictions


def audit_command(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Predictions: .npz, .npy, .parquet, .safetensors or .csv, a folder of shards or a quoted glob; "
            "several are compared on the same samples.",
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
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="What a column of yours holds, as labels=truth or probabilities=cat,dog,bird or logits='z_*' "
            "(repeat for more).",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Report to write (report.html if not given), or 'none'."),
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates behind them.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell whether a model's confidence can be trusted, with an interval on every number, and write a report.

    Reads logits, probabilities or confidences with their labels; files may be far larger than memory.
    """
    columns = _columns(column or [])
    named = {name: _open(path, columns, group) for name, path in _names(files).items()}
    held_out = None if val is None else _open(val, columns, None)
    report = None if str(output) == "none" else output or Path("report.html")
    found = audit(
        named,
        val=held_out,
        groups=group,
        level=level,
        replicates=replicates,
        seed=seed,
        reproduce=_command(files, val, group, column, report, level, replicates, seed),
        progress=lambda batches, name: _progress(batches, named.get(name, held_out), name, quiet),
    )
    if report is not None:
        found.to_html(report)
    if as_json:
        print(found.to_json())
    elif not quiet:
        print_audit(found)
    if report is not None:
        remark(f"wrote {report}", quiet)


def print_audit(found: Audit) -> None:
    """Verdict, numbers with intervals and findings on standard output."""
    print(found.verdict)
    print(found.document["verdict"]["text"])
    models = found.models
    labels = {one["name"]: one["label"] for model in models for one in model["metrics"]}
    by_model = [{one["name"]: one for one in model["metrics"]} for model in models]
    rows = [[label, *(_cell(part.get(name)) for part in by_model)] for name, label in labels.items()]
    samples = ", ".join(f"{model['name']}: {model['samples']} samples" for model in models)
    level = found.document["level"]
    print_table(f"\n{samples}; {level:.0%} intervals", ["", *(model["name"] for model in models)], rows)
    for comparison in found.document["comparisons"]:
        rows = [
            [row["label"], _value(row["first"], row["unit"]), _value(row["second"], row["unit"]), _change(row)]
            for row in comparison["rows"]
        ]
        head = ["", comparison["first"], comparison["second"], "difference"]
        print_table("\nOn the same samples", head, rows)
    for model in models:
        print(f"\n{model['name']}")
        for note in model["notes"]:
            print(f"  note: {note}")
        for finding in model["findings"]:
            print(f"  {finding['title']}. {finding['text']}")
            print(f"    {finding['evidence']}")


def _names(files: list[str]) -> dict[str, str]:
    """Files by a short name each: the last part of the path, or the whole path where that is not unique."""
    if len(set(files)) < len(files):
        raise ValueError(f"the same file is given twice: {next(f for f in files if files.count(f) > 1)}")
    short = [Path(file).name or file for file in files]
    return {name if short.count(name) == 1 else file: file for name, file in zip(short, files, strict=True)}


def _columns(given: list[str]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for item in given:
        ours, equals, theirs = item.partition("=")
        if not equals or not theirs:
            raise ValueError(f"--column takes ours=yours, for example labels=truth, got {item!r}")
        if ours in columns:
            raise ValueError(f"--column {ours}=... is given twice")
        columns[ours] = theirs.split(",") if "," in theirs else theirs
    return columns


def _open(path: str, columns: dict[str, Any], group: list[str] | None) -> Predictions:
    return Predictions.open(path, columns=columns or None, groups=group or None)


def _progress(
    batches: Iterable[Predictions], whole: Predictions | None, name: str, quiet: bool
) -> Iterator[Predictions]:
    total = 0 if whole is None else len(whole)
    return progress(batches, total, f"reading {name}", quiet, size=len)


def _cell(one: dict[str, Any] | None) -> str:
    if one is None or one["value"] is None:
        return "-"
    if one["low"] is None:
        return _value(one["value"], one["unit"])
    low, high = _value(one["low"], one["unit"]), _value(one["high"], one["unit"])
    return f"{_value(one['value'], one['unit'])}  [{low}, {high}]"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.2f}%" if unit == "share" else f"{value:.4f}"


def _change(row: dict[str, Any]) -> str:
    scale, form = (100, "+.2f") if row["unit"] == "share" else (1, "+.4f")
    value, low, high = (format(scale * row[key], form) for key in ("difference", "low", "high"))
    return f"{value}  [{low}, {high}]"


def _command(
    files: list[str],
    val: str | None,
    group: list[str] | None,
    column: list[str] | None,
    report: Path | None,
    level: float,
    replicates: int,
    seed: int,
) -> str:
    """The command line that makes this report."""
    words = ["calibrant", "audit", *files]
    words += ["--val", val] if val is not None else []
    for name in group or []:
        words += ["--group", name]
    for item in column or []:
        words += ["--column", item]
    for name, value, default in (("--level", level, 0.95), ("--replicates", replicates, 1000), ("--seed", seed, 0)):
        words += [name, json.dumps(value)] if value != default else []
    words += ["-o", str(report)] if report is not None else []
    return shlex.join(words)
