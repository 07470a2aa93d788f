"""``calibrant demo``: one network on embedded data, audited, repaired and deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrant.cli.console import print_json, print_line, remark, say, show_progress
from calibrant.cli.options import Json, Quiet

#: So that those after it are seeds too.
LARGEST_SEED = 2**63 - 100


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the run, the files and the page.")] = Path(
        "calibrant-demo"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Less data: half the time.")] = False,
    study: Annotated[
        bool, typer.Option("--study", help="Compare the papers' methods over seeds instead; several minutes.")
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Of data and network; with --study the first.", min=0, max=LARGEST_SEED)
    ] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train one network that claims too much, repair it, let it abstain with a promise, export it.

    Takes less than two minutes and ends with a page to open. After an interruption, the same command continues.
    """
    if study:
        from calibrant.cli.demo_study import run_study

        run_study(output, quick, seed, as_json, quiet)
        return
    from calibrant.experiments import run_demo

    with show_progress(quiet, lines=True) as progress:
        try:
            result = run_demo(output, seed=seed, quick=quick, progress=progress)
        except KeyboardInterrupt:
            remark("interrupted; run the same command again to continue", quiet)
            raise
    document = result.document
    if as_json:
        print_json({"page": str(result.page), **{name: document[name] for name in ("headline", "outcome", "story")}})
    elif not quiet:
        for key in ("before", "repaired", "deployed"):
            say(f"{key.capitalize()}: {document[key]['value']} {document[key]['aside']}. {document[key]['text']}")
        print_line()
        say("The same with files of your own (these run here, too):")
        print_line(f"  cd {output}")
        for command in document["commands"]:
            print_line(f"  {command}")
    remark(f"open {result.page}", quiet)
