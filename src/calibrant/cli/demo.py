"""``calibrant demo``: one network audited, repaired and deployed, or the papers' methods over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.base.numbers import difference, difference_span
from calibrant.cli.console import (
    acknowledge_interrupts,
    continuable,
    print_json,
    print_line,
    print_results,
    print_table,
    remark,
    say,
    show_progress,
)
from calibrant.cli.lens import draw, look
from calibrant.cli.options import Json, Quiet, parse_losses

#: The seeds after it must be valid too.
LARGEST_FIRST_SEED = 2**63 - 100
#: One confident prediction, and the losses whose targets for it the study draws.
LOSSES = "ls,flsd,mbls:margin=6,mdca,cpc,acls:margin=6"
LOGITS, LABEL = [8.0, 4.0, 1.0, 0.0], 0


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the run, the files and the page.")] = Path(
        "calibrant-demo"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Less data: half the time.")] = False,
    study: Annotated[
        bool, typer.Option("--study", help="Compare the papers' methods over seeds instead; several minutes.")
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of data and network; with --study the first seed.", min=0, max=LARGEST_FIRST_SEED)
    ] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train one overconfident network, repair it, let it abstain with a promise, export it.

    Takes less than two minutes and ends with a page to open. After an interruption, the same command continues.
    """
    if study:
        _run_study(output, quick, seed, as_json, quiet)
        return
    from calibrant.experiments import run_demo

    with show_progress(quiet, lines=True) as progress, continuable(quiet):
        result = run_demo(output, seed=seed, quick=quick, progress=progress)
    document = result.document
    if as_json:
        print_json({"page": str(result.page), **{name: document[name] for name in ("headline", "outcome", "story")}})
    elif not quiet:
        for key in ("before", "repaired", "deployed"):
            say(f"{key.capitalize()}: {document[key]['value']} {document[key]['aside']}. {document[key]['text']}")
        print_line()
        say("The same commands work on files of your own:")
        print_line(f"  cd {output}")
        for command in document["commands"]:
            print_line(f"  {command}")
    remark(f"open {result.page}", quiet)


def _run_study(output: Path, quick: bool, seed: int, as_json: bool, quiet: bool) -> None:
    """Train six ways over seeds and judge the papers' claims; ends with tables and a page to open."""
    from calibrant.experiments import compare, plan_demo_study, read_check, write_demo_study

    losses = parse_losses(LOSSES)
    with show_progress(quiet, lines=True) as progress, continuable(quiet), acknowledge_interrupts(quiet):
        comparison = compare(plan_demo_study(seed, quick), output, progress=progress)
        draw(output / "lens.svg", losses, look(losses, LOGITS, LABEL), LOGITS, LABEL)
        outcome = write_demo_study(comparison, seed=seed, quick=quick)
    if as_json:
        print_json({"page": str(outcome.page), "effects": list(outcome.effects), "check": read_check()})
    elif not quiet:
        _print_study(outcome, quick)
    for failure in comparison.failures:
        remark(f"{failure.method}, seed {failure.seed}, failed: {failure.error}", quiet)
    remark(f"open {outcome.page}", quiet)


def _print_study(outcome: Any, quick: bool) -> None:
    """The claims, then the tables."""
    from calibrant.experiments import STUDY_LEGEND, read_check, summarise_check

    check = read_check()
    rows = [(e["claim"], _effect_text(e), e["verdict"], _check_text(e, check)) for e in outcome.effects]
    heads = ("claim", "difference, 95% interval", "verdict", "checked")
    print_table("What the papers found, here", heads, rows, numbers=False)
    say("Quick: too little to prove anything." if quick else summarise_check(check))
    for effect in outcome.effects:
        if effect["verdict"] != "holds" and effect["why"] and not quick:
            say(f"{effect['claim']}: {effect['verdict']}. {effect['why']}")
    print_line()
    names = ("methods", "repairs", "set-mixed", "set-context")
    print_results(outcome.tables[name] for name in names if name in outcome.tables)
    for sentence in STUDY_LEGEND:
        say(sentence)


def _check_text(effect: Mapping[str, Any], check: Mapping[str, Any]) -> str:
    entry = check["claims"].get(effect["name"])
    return "-" if entry is None else f"{entry['held']} of {check['sets']}"


def _effect_text(effect: Mapping[str, Any]) -> str:
    unit = effect["unit"]
    return f"{difference(effect['mean'], unit)} {difference_span(effect['low'], effect['high'], unit)}".rstrip()
