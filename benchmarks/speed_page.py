"""Write docs/speed.md from the numbers of the last runs: ``./dev bench speed_page``.

A part stays as it is in the page where its benchmark has not been run here, or was run on small data or without peers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks._speed_data import data_part
from benchmarks._speed_metrics import machine, metrics_part, streaming_part
from benchmarks._speed_posthoc import posthoc_part
from benchmarks._speed_training import startup_part, sweep_part, training_part
from calibrant.base.files import written_aside

RESULTS, PAGE = Path("benchmarks/results"), Path("docs/speed.md")

TOP = """\
<!-- Written by ./dev bench speed_page from the last runs of ./dev bench losses, metrics, streaming, posthoc, data,
     training, sweep and startup; edit benchmarks/speed_page.py instead. -->
# Speed and memory

In the tables, "by" stands for "divided by": "time by plain" is a time divided by that of plain.
"""

LOSSES = """\
## Losses

The time of a forward and a backward pass, divided by that of `F.cross_entropy` in the same run: 1 is as fast as torch's
own cross-entropy. Each number is the median over {rounds} interleaved rounds of the ratio within the round.
**eager** is divided by eager `F.cross_entropy`, **compiled** (`torch.compile`, no graph breaks) by compiled
`F.cross_entropy`; **memory** and **compiled memory** are the peak of extra bytes, both divided by that of eager
`F.cross_entropy`. Numbers in bold exceed a target. For the methods that are linear in the number of classes, the
targets are 4 in eager mode, 2 compiled and 2 in memory; for `ls`, torch's own label smoothing; for `mmce` 10 and for
`cpc` 300, at [1024, 200]. At [128, 10] a call takes tens of microseconds, most of them spent in Python, and there is no
target.

Run on: {machine}.
The logits are random, that of the label is raised, so that margins are active and some predictions are wrong.
Repeat with `./dev bench losses`, which compiles the defaults; `--compile-all` compiles every variant. Other machines
give other ratios.
"""


def main() -> None:
    parts = [TOP]
    for name, write in PARTS.items():
        file = RESULTS / f"{name}.json"
        results = json.loads(file.read_text()) if file.exists() else None
        if lack := what_it_lacks(results):
            print(f"{file} {lack}: the part about {name} stays as it is")
            parts.append(present(name))
        else:
            parts.append(write(results))
    with written_aside(PAGE) as aside:
        aside.write_text("\n".join(filter(None, parts)), encoding="utf-8")
    print(f"wrote {PAGE}")


def what_it_lacks(results: dict[str, Any] | None) -> str:
    """Why the page would lose something by these results; nothing if it would not."""
    if results is None:
        return "is not there"
    settings = results.get("settings", {})
    if settings.get("quick"):
        return "is of a smoke run"
    return "" if settings.get("peers", True) else "is of a run without peers"


def present(name: str) -> str:
    """A part as the page has it now, or nothing."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    head = f"## {name.capitalize()}\n"
    _, found, rest = page.partition(f"\n{head}")
    return head + rest.partition("\n## ")[0] if found else ""


def losses_part(results: dict[str, Any]) -> str:
    """Everything about the losses."""
    parts = [LOSSES.format(rounds=results["settings"]["rounds"], machine=machine(results["environment"]))]
    parts += [section(shape) for shape in results["shapes"]]
    parts.append(f"In all: {'; '.join(f'{k}: {v}' for k, v in results['summary'].items())}.\n")
    return "\n".join(parts)


def section(shape: dict[str, Any]) -> str:
    """The table of one shape."""
    lines = [
        f"### {shape['shape']}",
        "",
        "| loss | eager | compiled | memory | compiled memory |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in shape["rows"]:
        if row["verdict"].startswith("skipped"):
            lines.append(f"| {row['name']} | {row['verdict']} | | | |")
            continue
        over = row["verdict"].partition("over: ")[2]
        names = [part.rsplit(" ", 3)[0] for part in over.split(", ")]
        numbers = {name: ratio["median"] for name, ratio in row["times"].items()} | row["sizes"]
        cells = []
        for column, rivals in (
            ("eager", "torch LS"),
            ("compiled", "compiled torch LS"),
            ("memory", None),
            ("compiled memory", None),
        ):
            text = f"{numbers[column]:.3g}" if column in numbers else ""
            cells.append(f"**{text}**" if text and (column in names or rivals in names) else text)
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


PARTS = {
    "losses": losses_part,
    "metrics": metrics_part,
    "streaming": streaming_part,
    "posthoc": posthoc_part,
    "data": data_part,
    "training": training_part,
    "sweep": sweep_part,
    "startup": startup_part,
}

if __name__ == "__main__":
    main()
