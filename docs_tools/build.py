"""Write the generated pages and build the site.

``docs/cli.md`` comes from ``--help``, ``docs/methods/`` from the files of the losses, ``docs/papers.md`` from the
registry of the papers' tables and figures.

Run ``./dev docs`` to write them and to build the site into ``docs/_build``, ``./dev docs --check`` to see whether they
are up to date.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from calibrant.base.files import written_aside
from calibrant.cli import app, demo
from calibrant.cli.lens import draw, look
from calibrant.cli.options import parse_losses
from calibrant.losses import describe, names
from docs_tools import method_pages, paper_pages, table2

FOLDER = Path(__file__).parents[1] / "docs"
#: Columns of the help texts, whatever the terminal.
WIDTH = 100
NOTE = "<!-- Written by ./dev docs; edit {source} instead. -->"


def main(arguments: list[str] | None = None) -> int:
    """Write the pages and build the site, or with ``--check`` only compare the pages.

    Args:
        arguments: as on the command line; None takes those of the process.

    Returns:
        0, or 1 if a page is out of date or the site has a broken link.
    """
    parser = argparse.ArgumentParser(prog="./dev docs", description="Write the generated pages and build the site.")
    parser.add_argument("--check", action="store_true", help="write nothing; name the pages that are out of date")
    parser.add_argument("--pages", action="store_true", help="write the pages, do not build the site")
    chosen = parser.parse_args(arguments)
    if chosen.check:
        stale = out_of_date()
        for path in stale:
            print(f"{path.relative_to(FOLDER.parent)} is out of date: run ./dev docs", file=sys.stderr)
        return 1 if stale else 0
    for path, text in pages().items():
        with written_aside(path) as aside:
            aside.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(FOLDER.parent)}")
    losses = parse_losses(demo.LOSSES)
    picture = FOLDER / "lens.svg"  # the README's: what the demonstration draws
    draw(picture, losses, look(losses, demo.LOGITS, demo.LABEL), demo.LOGITS, demo.LABEL)
    for name in names():
        method_pages.draw(name, FOLDER / "methods" / f"{name}.svg")
    print(f"wrote {picture.relative_to(FOLDER.parent)} and the pictures of {len(names())} methods")
    print(f"\nTable 2 against autograd, seed {table2.SEED}\n\n{table2.comparison()}\n")
    if not chosen.pages:
        site(FOLDER / "_build")
        print("wrote docs/_build: open docs/_build/index.html; to search it: python -m http.server -d docs/_build")
    return 0


def site(target: Path) -> None:
    """Build the site from ``mkdocs.yml``; a broken link or anchor is an error, and then what was there stays.

    Args:
        target: folder of the site; it is replaced.
    """
    from mkdocs.commands.build import build  # here, because `--check` needs no site builder
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    handler = logging.StreamHandler()  # only MkDocs' own command shows its warnings
    handler.setLevel(logging.WARNING)
    logging.getLogger("mkdocs").addHandler(handler)
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(str(FOLDER.parent / "mkdocs.yml"), site_dir=folder)
        config.plugins.on_startup(command="build", dirty=False)
        try:
            build(config)
        except Abort as error:
            sys.exit(f"docs: the site was not built: {error}")
        finally:
            config.plugins.on_shutdown()
            logging.getLogger("mkdocs").removeHandler(handler)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)


def pages() -> dict[Path, str]:
    """The text of each generated page."""
    texts = {"cli": cli_page(), "methods/index": method_pages.index_page(), "methods/table2": table2.page()}
    texts["papers"] = f"{NOTE.format(source='docs_tools/paper_pages.py')}\n\n{paper_pages.papers_page()}"
    texts |= {f"methods/{name}": method_pages.method_page(describe(name)) for name in names()}
    return {FOLDER / f"{name}.md": text for name, text in texts.items()}


def out_of_date() -> list[Path]:
    """The generated pages that are missing or differ from what would be written now."""
    return [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def cli_page() -> str:
    """The reference of the command line, one section per command."""
    head = f"{NOTE.format(source='src/calibrant/cli')}\n\n# Command line\n"
    return "\n".join([head, *(f"## {' '.join(words)}\n\n```text\n{text}\n```\n" for words, text in _helps())])


def _helps() -> Iterator[tuple[list[str], str]]:
    """Each command's words and its ``--help``, groups before what they hold."""
    waiting: list[tuple[list[str], Any]] = [([], typer.main.get_command(app))]
    while waiting:
        words, command = waiting.pop(0)
        result = CliRunner().invoke(app, [*words, "--help"], prog_name="calibrant", terminal_width=WIDTH)
        if result.exit_code:
            raise RuntimeError(f"calibrant {' '.join(words)} --help failed: {result.output}")
        yield ["calibrant", *words], "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())
        # By name, as commands are loaded when they are used.
        context = typer.Context(command)
        inner = getattr(command, "list_commands", lambda _: [])(context)
        parts = {name: command.get_command(context, name) for name in inner}
        waiting = [([*words, name], part) for name, part in parts.items() if not part.hidden] + waiting


if __name__ == "__main__":
    sys.exit(main())
