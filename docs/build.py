"""Write the generated pages and build the site.

``docs/cli.md`` comes from ``--help``, ``docs/methods.md`` and ``docs/methods/`` from the method files and
``when.toml``.

Run ``./dev docs`` to write them and to build the site into ``docs/_build``, ``./dev docs --check`` to see whether they
are up to date.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from calibrant._files import written_aside
from calibrant.cli import app, demo
from calibrant.cli.common import parse_losses
from calibrant.cli.lens import draw, look
from calibrant.losses import Loss, Method, describe, names
from docs import method_pages, table2
from docs.rest import markdown, table

FOLDER = Path(__file__).parent
#: Columns of the help texts, whatever the terminal.
WIDTH = 100
NOTE = "<!-- Written by ./dev docs; edit {source} instead. -->"

METHODS = """\
# Training losses

Every loss is called as `loss(logits, target)`; the [guide](guide.md) says how to choose one and how to use it.
Keys such as [ACLS] stand in [references.bib](../references.bib). Each section below is the head of the method's own
file in `src/calibrant/losses/`, so the formula is the one beside the code. N is the number of samples, C or K the
number of classes, z the logits, p their softmax, y the label and yhat the predicted class. All losses also take
{common}.
"""

TABLE2 = """\
## Table 2 against autograd

ACLS Table 2 writes each method as a smoothing function f and an indicator C, some of them by approximation. Here they
are held against the gradient itself (`calibrant.lens`), for each loss that has them in closed form.

Data: {samples} samples of {classes} classes in float64, logits 4 times standard normal, seed {seed}. {right} labels are
the predicted class, the others are another class. Losses that rank samples have seen {epochs} epochs, with a random
count of right predictions for each sample. `./dev docs` computes and prints this table.

{table}

- closed form: the largest absolute difference of autograd and the exact f C (`lens_form`).
- Table 2: the largest and the mean absolute difference of autograd and f C as printed (`table2`); "where right" is the
  largest one over the samples whose prediction is the label.
- f C at the predicted class: its range by autograd, that is, by how much the label of that class is lowered.

LS and MbLS have no second form: for LS Table 2 is exact where the prediction is right, and f turns negative where it is
wrong; for MbLS it is exact with `variant=paper` and leaves out the predicted class with `variant=released`. For FLSD
Table 2 prints constants without values; the last column shows how far from constant f is.

What the printed forms leave out: for MDCA the signs of the batch; for CPC the sign of one term, and predictions that
are wrong; for CRL that a sample stands in several pairs; for ACLS the factor 2 of the square and, with `variant=paper`,
what flows through the maximum and the minimum (`gradient=eq12` is the printed form).
"""


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

    said = logging.StreamHandler()  # MkDocs leaves it to its own command to show warnings
    said.setLevel(logging.WARNING)
    logging.getLogger("mkdocs").addHandler(said)
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(str(FOLDER.parent / "mkdocs.yml"), site_dir=folder)
        config.plugins.on_startup(command="build", dirty=False)
        try:
            build(config)
        except Abort as error:
            sys.exit(f"docs: the site was not built: {error}")
        finally:
            config.plugins.on_shutdown()
            logging.getLogger("mkdocs").removeHandler(said)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)


def pages() -> dict[Path, str]:
    """The text of each generated page."""
    found = {FOLDER / "cli.md": cli_page(), FOLDER / "methods.md": methods_page()}
    found[FOLDER / "methods" / "index.md"] = method_pages.index_page()
    for method in method_pages.facts():
        section = _section(method).partition("\n\n")[2]  # without its heading
        found[FOLDER / "methods" / f"{method.name}.md"] = method_pages.method_page(method, section)
    return found


def out_of_date() -> list[Path]:
    """The generated pages that differ from what the code says now, or are missing."""
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
        inner = getattr(command, "commands", {})
        waiting = [([*words, name], each) for name, each in inner.items() if not each.hidden] + waiting


def methods_page() -> str:
    """One section per loss, in the order of the registry, and the comparison with ACLS Table 2."""
    logits, labels, _ = table2.data()
    comparison = TABLE2.format(
        samples=table2.SAMPLES,
        classes=table2.CLASSES,
        seed=table2.SEED,
        epochs=table2.EPOCHS,
        right=int((logits.argmax(1) == labels).sum()),
        table=table2.comparison(),
    )
    methods = [describe(name) for name in names()]
    *first, last = (f"`{name}`" for name in inspect.signature(Loss).parameters)
    head = METHODS.format(common=f"{', '.join(first)} and {last}")
    overview = table(["name", "class", "what it does"], [[f"`{m.name}`", _link(m), m.summary] for m in methods])
    note = NOTE.format(source="src/calibrant/losses")
    return "\n".join([note, "", head, overview, "", *(_section(m) for m in methods), comparison])


def _link(method: Method) -> str:
    return f"[{method.loss.__name__}](#{method.loss.__name__.lower()})"


def _section(method: Method) -> str:
    """A method's facts, its parameters, the head of its file and its example."""
    facts = [
        f"- in short: {method.summary}",
        f'- by name: `get("{method.name}")`',
        f"- source: [{method.paper}], {method.equation}",
        f"- cost: {method.cost}",
        f"- soft targets: {_yes(method.soft)}",
        f"- per sample: {_yes(method.per_sample)}",
    ]
    rows = [[f"`{name}`", f"`{default!r}`", method.hyper[name]] for name, default in method.defaults().items()]
    parameters = table(["parameter", "default", "direction"], rows) if rows else "No parameters of its own."
    module = inspect.getmodule(method.loss)
    parts = [
        f"## {method.loss.__name__}",
        "\n".join(facts),
        parameters,
        markdown((module and module.__doc__) or ""),
        f"```python\n{example(method.loss)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def example(loss: type[Loss]) -> str:
    """The code of the class docstring's last section, ``Example:``."""
    _, _, code = inspect.cleandoc(loss.__doc__ or "").partition("\nExample:\n")
    if not code:
        raise ValueError(f"{loss.__name__} has no example in its docstring")
    return inspect.cleandoc("\n" + code)


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


if __name__ == "__main__":
    sys.exit(main())
