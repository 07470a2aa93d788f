"""``calibrant methods``: the losses, where they come from and what their parameters do."""

from __future__ import annotations

from typing import Annotated

import typer

from calibrant.cli.console import print_json, print_table
from calibrant.cli.options import Json, Quiet


def methods(
    name: Annotated[str | None, typer.Argument(help="One method, shown with its parameters.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the training losses, or show one with its parameters and what raising each of them does."""
    from calibrant.losses import describe, names  # here, because it imports PyTorch

    descriptions = [describe(n) for n in (names() if name is None else (name,))]
    if as_json:
        print_json(
            [
                {
                    "name": m.name,
                    "class": m.loss.__name__,
                    "paper": m.paper,
                    "equation": m.equation,
                    "summary": m.summary,
                    "soft_targets": m.soft,
                    "per_sample": m.per_sample,
                    "cost": m.cost,
                    "parameters": {p: {"default": d, "direction": m.hyper[p]} for p, d in m.defaults().items()},
                }
                for m in descriptions
            ]
        )
    elif quiet:
        return
    elif name is None:
        rows = [[m.name, m.loss.__name__, m.summary, m.paper, m.equation, m.cost] for m in descriptions]
        print_table(
            "Training losses", ["name", "class", "what it does", "paper", "equation", "cost"], rows, numbers=False
        )
    else:
        method = descriptions[0]
        rows = [[p, repr(d), method.hyper[p]] for p, d in method.defaults().items()]
        print_table(
            f"{method.loss.__name__}: {method.summary}", ["parameter", "default", "direction"], rows, numbers=False
        )
