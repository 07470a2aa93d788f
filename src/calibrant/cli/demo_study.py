"""``calibrant demo --study``: the methods of the papers over seeds, on embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calibrant.cli.compare import announced
from calibrant.cli.console import print_json, print_line, print_table, remark, say, show_progress
from calibrant.cli.lens import draw, look
from calibrant.cli.options import parse_losses

#: One confident prediction, and the losses whose targets for it are drawn.
LOSSES = "ls,flsd,mbls:margin=6,mdca,cpc,acls:margin=6"
LOGITS, LABEL = [8.0, 4.0, 1.0, 0.0], 0


def run_study(output: Path, data: str, quick: bool, seed: int, as_json: bool, quiet: bool) -> None:
    """Train six ways, audit, repair, abstain at 5% risk, export; ends with a table and a page to open."""
    from calibrant.experiments import compare, demo_study, demonstrate, short_name_legend, tables

    chosen: Any = data
    losses = parse_losses(LOSSES)
    with show_progress(quiet, lines=True) as progress, announced(quiet):
        try:
            comparison = compare(demo_study(chosen, seed, quick), output, progress=progress)
            draw(output / "lens.svg", losses, look(losses, LOGITS, LABEL), LOGITS, LABEL)
            demonstration = demonstrate(comparison, chosen, seed=seed, quick=quick, progress=progress)
        except KeyboardInterrupt:
            remark("interrupted; run the same command again to continue", quiet)
            raise
    if as_json:
        print_json(
            {
                "page": str(demonstration.page),
                "effects": list(demonstration.effects),
                "abstaining": list(demonstration.abstaining),
            }
        )
    elif not quiet:
        for name in ("methods", "repairs", "set-context"):
            if name in demonstration.tables:
                table = demonstration.tables[name]
                print_table(table.title, tables.heads(table), tables.text(table))
                for note in tables.notes(table):
                    say(note)
                print_line()
        for sentence in short_name_legend(chosen):
            say(sentence)
        print_line()
        rows = [(e["claim"], _effect_text(e), e["verdict"]) for e in demonstration.effects]
        print_table(
            "What the papers found, here", ("claim", "difference, 95% interval", "verdict"), rows, numbers=False
        )
        say("Every claim is judged by itself; the marks in the table above allow for their number.")
        if quick:
            say("Quick: too short to prove anything.")
        print_line()
        for sentence in demonstration.abstaining:
            say(sentence)
    for failure in comparison.failures:
        remark(f"{failure.method}, seed {failure.seed}, failed: {failure.error}", quiet)
    remark(f"open {demonstration.page}", quiet)


def _effect_text(effect: Any) -> str:
    scale, unit = (100, " pp") if effect["unit"] == "share" else (1, "")
    mean, half = effect["mean"] * scale, (effect["high"] - effect["low"]) / 2 * scale
    return f"{mean:+.2f} ± {half:.2f}{unit}" if unit else f"{mean:+.5f} ± {half:.5f}"
