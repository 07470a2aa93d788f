"""``calibrant demo``: all of it on embedded data, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.options import Json, Quiet

#: So that those after it are seeds too.
LARGEST_SEED = 2**63 - 100


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for runs, tables, pages and the model.")
    ] = Path("calibrant-demo"),
    data: Annotated[str, typer.Option(help="scenes or digits, both embedded.")] = "scenes",
    quick: Annotated[bool, typer.Option("--quick", help="One minute instead of several; proves nothing.")] = False,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0, max=LARGEST_SEED)] = 0,
    study: Annotated[bool, typer.Option("--study", help="Compare the papers' methods over seeds.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train six ways, audit, repair, abstain at 5% risk, export; ends with a table and a page to open.

    After an interruption, the same command continues; finished runs are not computed again.
    """
    from calibrant.cli.demo_study import run_study

    run_study(output, data, quick, seed, as_json, quiet)
