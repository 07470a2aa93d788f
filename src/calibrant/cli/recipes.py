"""``calibrant recipes``: the recipes that come with Calibrant, to train by or to copy and change."""

from __future__ import annotations

from typing import Annotated

import typer

from calibrant.cli.console import print_json, print_table, remark
from calibrant.cli.options import Json, Quiet


def recipes_command(
    name: Annotated[str | None, typer.Argument(help="The recipe to print, for example small/scenes.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the recipes that come with Calibrant, or print one.

    calibrant recipes NAME > mine.toml makes a copy to change.
    """
    from calibrant.base.files import parse_toml
    from calibrant.recipes import RecipeSummary, find, summaries

    if name is not None:
        text = find(name).read_text(encoding="utf-8")
        if as_json:
            print_json(parse_toml(text, "a recipe"))
        elif not quiet:
            print(text, end="")
        return
    rows = summaries()
    if as_json:
        print_json([row._asdict() for row in rows])
    elif not quiet:
        print_table("Recipes", RecipeSummary._fields, rows, numbers=False)
    remark("calibrant train NAME trains with a recipe; calibrant recipes NAME prints it", quiet)
