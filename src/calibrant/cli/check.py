"""``calibrant check``: a gate for continuous integration, with an exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.base.files import check_output, parse_toml, read_regular
from calibrant.cli.console import print_json, print_line, remark, show_progress
from calibrant.cli.options import (
    Address,
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
    columns_of,
    open_for_policy,
    parse_opening,
    pass_engine,
    share_option,
)

#: Exit codes of a requirement that fails, and of one that cannot be told.
FAILED, UNKNOWN = 1, 3
#: Where requirements are looked for when none are given.
PROJECT = Path("pyproject.toml")
_LARGEST_FILE = 2**20
_MARKS = {"pass": "+", "fail": "x", "unknown": "?"}


def check_command(
    file: Annotated[str, typer.Argument(help="Labelled predictions, as calibrant audit takes them.")],
    require: Annotated[
        list[str] | None,
        typer.Option(
            help="A requirement (repeat for more): 'ece <= 0.03', 'accuracy >= 90%', 'risk@0.8 <= 0.05', "
            "'coverage@0.05 >= 0.6', 'policy.risk <= 5%', 'ece no worse', 'accuracy no worse by 1%'."
        ),
    ] = None,
    requirements: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with require = [...], at its top or under [tool.calibrant]; pyproject.toml of this "
            "folder if nothing is required on the command line."
        ),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="A policy from calibrant fit, for policy.risk and policy.coverage.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Predictions of another model on the same samples, for 'no worse'.")
    ] = None,
    by_group: Annotated[
        str | None, typer.Option(help="Judge every requirement in each group of this column too.")
    ] = None,
    unknown: Annotated[str | None, typer.Option(help="What an undecided requirement counts as: pass or fail.")] = None,
    split: Split = None,
    repeats: Repeats = None,
    column: Column = None,
    class_names: ClassNames = None,
    positive: Positive = None,
    segmentation: Segmentation = False,
    ignore_index: IgnoreIndex = None,
    level: Annotated[float, share_option("Confidence level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    engine: Engine = "local",
    address: Address = None,
    junit: Annotated[Path | None, typer.Option(help="Write the outcome as JUnit's XML too.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check a model against requirements such as 'ece <= 0.03': each passes, fails or is undecided, by its interval.

    Exits with 0 if all pass, 1 if one fails, 3 if one is undecided, 2 for bad input. In GitHub Actions,
    requirements that do not pass are annotated.
    """
    if unknown not in (None, "pass", "fail"):
        raise ValueError(f"--unknown takes pass or fail, got {unknown[:40]!r}")
    if junit is not None:
        check_output(junit, inputs=[file, baseline, policy, requirements or PROJECT])
    texts = _requirements(require or [], requirements, quiet)
    from calibrant.auditing import check
    from calibrant.base.files import json_value
    from calibrant.policy import Policy

    inputs = [file, *([] if baseline is None else [baseline])]

    def open_predictions(path: str, fitted: Any) -> Any:
        columns = columns_of(path, inputs, column)
        opening = parse_opening(columns, class_names, positive, segmentation, ignore_index, split)
        groups = {by_group, None if fitted is None else fitted.group} - {None}
        return open_for_policy(fitted, path, groups=sorted(groups) or None, **opening)

    fitted = None if policy is None else Policy.load(policy)
    with pass_engine(engine, address) as reader, show_progress(quiet) as progress:
        outcome = check(
            open_predictions(file, fitted), *texts, policy=fitted,
            baseline=None if baseline is None else open_predictions(baseline, None),
            groups=by_group, level=level, seed=seed, progress=progress, engine=reader,
            repeats=repeats,  # type: ignore[arg-type]  # checked there
        )  # fmt: skip
    document = json_value(outcome.document)
    if junit is not None:
        from calibrant.report import write_junit

        write_junit(junit, f"calibrant check {file}", document["requirements"], unknown=unknown or "fail")
    if as_json:
        print_json(document)
    elif not quiet:
        for note in outcome.notes:
            print_line(f"! {note}")
        for judgement in outcome.requirements:
            print_line(f"{_MARKS[judgement.status]} {judgement.text}")
    if os.environ.get("GITHUB_ACTIONS") == "true" and not as_json:
        from calibrant.report import workflow_lines

        for line in workflow_lines(document["requirements"], document["notes"]):
            print_line(line)
    passed = outcome.passed if outcome.passed is not None else {None: None, "pass": True, "fail": False}[unknown]
    if passed is not True:
        raise typer.Exit(FAILED if passed is False else UNKNOWN)


def _requirements(texts: list[str], file: Path | None, quiet: bool) -> list[str]:
    """The requirements of the command line and of a file, or else of the project's file."""
    if file is None and not texts:
        if not PROJECT.is_file() or not (texts_in_file := _read_requirements(PROJECT)):
            raise ValueError(
                "nothing is required: give --require 'ece <= 0.03', --requirements FILE, or require = [...] under "
                "[tool.calibrant] in pyproject.toml"
            )
        remark(f"requirements of {PROJECT}", quiet)
        return texts_in_file
    texts_in_file = [] if file is None else _read_requirements(file)
    if file is not None and not texts_in_file:
        raise ValueError(f"{file}: no require = [...], neither at its top nor under [tool.calibrant]")
    return [*texts, *texts_in_file]


def _read_requirements(file: Path) -> list[str]:
    """The requirements of a TOML file."""
    try:
        tables = parse_toml(read_regular(file, _LARGEST_FILE), "a file of requirements")
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    tool = tables.get("tool", {})
    requirements = tables.get("require", tool.get("calibrant", {}).get("require") if isinstance(tool, dict) else None)
    if requirements is None:
        return []
    if not isinstance(requirements, list) or not all(isinstance(text, str) for text in requirements):
        raise ValueError(f"{file}: require must be a list of texts such as 'ece <= 0.03'")
    return requirements
