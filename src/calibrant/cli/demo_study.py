"""``calibrant demo --study``: the methods of the papers over seeds, on embedded data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrant._numbers import difference, difference_span
from calibrant.cli.compare import announced
from calibrant.cli.console import print_json, print_line, print_results, print_table, remark, say, show_progress
from calibrant.cli.lens import draw, look
from calibrant.cli.options import parse_losses

#: One confident prediction, and the losses whose targets for it are drawn.
LOSSES = "ls,flsd,mbls:margin=6,mdca,cpc,acls:margin=6"
LOGITS, LABEL = [8.0, 4.0, 1.0, 0.0], 0


def run_study(output: Path, quick: bool, seed: int, as_json: bool, quiet: bool) -> None:
    """Train six ways over seeds and judge the papers' claims; ends with tables and a page to open."""
    from calibrant.experiments import compare, plan_demo_study, read_check, write_demo_study

    losses = parse_losses(LOSSES)
    with show_progress(quiet, lines=True) as progress, announced(quiet):
        try:
            comparison = compare(plan_demo_study(seed, quick), output, progress=progress)
            draw(output / "lens.svg", losses, look(losses, LOGITS, LABEL), LOGITS, LABEL)
            outcome = write_demo_study(comparison, seed=seed, quick=quick)
        except KeyboardInterrupt:
            remark("interrupted; run the same command again to continue", quiet)
            raise
    if as_json:
        print_json({"page": str(outcome.page), "effects": list(outcome.effects), "check": read_check()})
    elif not quiet:
        _print(outcome, quick)
    for failure in comparison.failures:
        remark(f"{failure.method}, seed {failure.seed}, failed: {failure.error}", quiet)
    remark(f"open {outcome.page}", quiet)


def _print(outcome: Any, quick: bool) -> None:
    """The claims, then the tables."""
    from calibrant.experiments import STUDY_LEGEND, read_check, summarise_check

    check = read_check()
    rows = [(e["claim"], _effect_text(e), e["verdict"], _checked(e, check)) for e in outcome.effects]
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


def _checked(effect: Mapping[str, Any], check: Mapping[str, Any]) -> str:
    entry = check["claims"].get(effect["name"])
    return "-" if entry is None else f"{entry['held']} of {check['sets']}"


def _effect_text(effect: Mapping[str, Any]) -> str:
    unit = effect["unit"]
    return f"{difference(effect['mean'], unit)} {difference_span(effect['low'], effect['high'], unit)}".rstrip()
