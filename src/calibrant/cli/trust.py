"""Consent to run code that a recipe or a run folder names: by ``--trust-code``, or by a yes in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.cli.common import invocation
from calibrant.cli.console import one_line

TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Import and run the model's code also if it is neither Calibrant's, torchvision's nor timm's.",
    ),
]


def trusts_models(models: Iterable[Any], trust_code: bool) -> bool:
    """Whether the code that building some models would run is trusted; asks where somebody can answer.

    Args:
        models: Each the ``model`` of a `calibrant.training.Recipe`.
        trust_code: Whether ``--trust-code`` was given, which is the answer where there is nothing to ask.
    """
    from calibrant.models import foreign_code

    codes = {model.name: foreign_code(model.name, model.options) for model in models}
    questions = [(name, code) for name, code in codes.items() if code is not None]
    if trust_code or not questions or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return trust_code
    for name, code in questions:
        print(f"calibrant: building the model {one_line(name)} {one_line(code)}", file=sys.stderr)
        print("calibrant: do you trust that code, and may it run? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return False
    if sys.argv[1:] == invocation:  # processes that are started with the same command are not to ask again
        sys.argv.append("--trust-code")
    return True


def trusts_run(folder: str | Path, trust_code: bool) -> bool:
    """As `trusts_models`, for the model that a run folder names."""
    from calibrant.training import RunFolder

    return trusts_models([RunFolder(folder).recipe().model], trust_code)
