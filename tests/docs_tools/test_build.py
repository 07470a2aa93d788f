"""The documentation says what the code does: generated pages are current, citations and links resolve, examples run."""

from __future__ import annotations

import doctest
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from calibrant.cli import COMMANDS, app
from calibrant.losses import describe, names
from docs_tools import build, method_pages, rest

ROOT = Path(__file__).parents[2]
PAGES = [path for path in (ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")) if path.exists()]
PAGES += sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
FENCED = re.compile(r"^(?P<fence>```+)(?P<kind>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path, *kinds: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [Block(page, text.count("\n", 0, m.start("text")) + 1, m["kind"], m["text"]) for m in FENCED.finditer(text)]
    return [block for block in found if block.kind.split()[:1] in [[kind] for kind in kinds]]


# ---------------------------------------------------------------------- generated pages


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cli.md", "methods/index.md", "methods/table2.md"])
def test_generated_page_is_current(name: str) -> None:
    path = ROOT / "docs" / name
    current = path.exists() and path.read_text(encoding="utf-8") == build.pages()[path]
    assert current, f"docs/{name} does not say what the code says: run ./dev docs"


def test_generated_pages_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = build.cli_page()
    assert all(f"\n## calibrant {name}\n" in wide for name in COMMANDS)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert build.cli_page() == wide


@pytest.mark.slow
def test_check_names_the_page_that_drifted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "docs"
    monkeypatch.setattr(build, "FOLDER", folder)
    monkeypatch.setattr(build.method_pages, "draw", lambda name, path: path.write_text(name, encoding="utf-8"))
    assert build.main(["--pages"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["cli.md", "lens.svg", "methods", "papers.md"]
    drawn = {path.stem for path in (folder / "methods").iterdir() if path.suffix == ".svg"}
    assert drawn == set(names())
    assert build.main(["--check"]) == 0
    (folder / "cli.md").write_text("old", encoding="utf-8")
    capsys.readouterr()
    assert build.main(["--check"]) == 1
    assert "docs/cli.md" in capsys.readouterr().err
    assert (folder / "cli.md").read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize("name", names())
def test_no_rest_is_left_on_a_methods_page(name: str) -> None:
    page = method_pages.method_page(describe(name))
    assert ":math:" not in page
    assert ".. math::" not in page
    assert not re.search(r"(?<!`)``(?!`)", page)
    assert not re.search(r"^=+ ", page, re.MULTILINE)


def test_rest_to_markdown_by_hand() -> None:
    source = """Focal, ``gamma=3`` [Lin2017].

    .. math:: L = a
              + \\{b\\} .

    ======  ==========  ===========
            ``paper``   released
    ======  ==========  ===========
    sum     :math:`|c|`  a|b
            more
    mean                none
    ======  ==========  ===========
    """
    assert rest.markdown(source).splitlines() == [
        "Focal, `gamma=3` [Lin2017].",
        "",
        "$$",
        r"L = a + \lbrace b\rbrace .",
        "$$",
        "",
        "|  | `paper` | released |",
        "| --- | --- | --- |",
        r"| sum | $\vert c\vert$ more | a\|b |",
        "| mean |  | none |",
    ]


def test_guide_agrees_with_the_registry() -> None:
    guide = " ".join((ROOT / "docs/losses.md").read_text(encoding="utf-8").split())
    methods = [describe(name) for name in names()]
    (choosing,) = re.findall(r"## Choosing a loss (.*?) ## ", guide)
    assert set(re.findall(r"`(\w+)`", choosing)) - {"calibrant"} <= {m.name for m in methods}
    (printed,) = re.findall(r'`"released"`, except for `(\w+)`, where it is `"paper"`', guide)
    assert {m.name for m in methods if m.defaults().get("variant") == "paper"} == {printed}


# ---------------------------------------------------------------------- citations


def bibliography() -> list[str]:
    return re.findall(r"^@\w+\{([^,\s]+),", (ROOT / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)


def test_bibliography_has_every_paper_once() -> None:
    text = (ROOT / "references.bib").read_text(encoding="utf-8")
    titles = [re.sub(r"\W+", "", title).lower() for title in re.findall(r"^\s*title\s*=\s*(.+)$", text, re.MULTILINE)]
    assert len(bibliography()) == len(titles) > 0
    assert len(set(map(str.lower, bibliography()))) == len(titles)
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("name", names())
def test_registered_paper_is_in_the_bibliography(name: str) -> None:
    method = describe(name)
    assert method.paper in bibliography(), f"add {method.paper} to references.bib"
    source = method.equation.split()[0]  # "Eq. 1" of the paper itself, or "SC Eq. 7" of another
    assert source in ("Eq.", "Sec.", *bibliography())


def keys_in(path: Path) -> set[str]:
    """Everything in square brackets that begins with a name and a year, anywhere in a file."""
    return set(re.findall(r"(?<!\w)\[([A-Z][A-Za-z]+(?:19|20)\d\d)\b", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("folder", ["src", "docs", "docs_tools"])
def test_keys_with_a_year_are_in_the_bibliography(folder: str) -> None:
    files = [path for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    found = {key: path.name for path in files for key in keys_in(path)}
    assert found or folder == "docs_tools"
    assert {key: name for key, name in found.items() if key not in bibliography()} == {}


# ---------------------------------------------------------------------- links and examples


def links(page: Path) -> list[str]:
    """Targets of links and images, in Markdown and in HTML, outside of code and formulas."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$", "", text, flags=re.DOTALL)
    found = re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)", text)
    found += re.findall(r"^\[[^\]]+\]:\s*(\S+)", text, re.MULTILINE)
    return found + re.findall(r"\b(?:src|href)=[\"']([^\"']+)[\"']", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_to_files(page: Path) -> None:
    targets = [link.partition("#")[0] for link in links(page) if not re.match(r"[a-z][a-z+.-]*:|//|#", link)]
    assert [target for target in targets if not (page.parent / target).exists()] == []


TOLD = [ROOT / "README.md"]
TOLD += [ROOT / "docs" / f"{name}.md" for name in ("start", "your_model", "audit", "metrics", "repair")]
TOLD += [ROOT / "docs" / f"{name}.md" for name in ("your_training", "train", "losses", "compare", "cluster")]


@pytest.mark.slow
@pytest.mark.parametrize("block", [b for page in TOLD for b in blocks(page, "python", "py", "pycon")], ids=str)
def test_python_block_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    if block.text.lstrip().startswith(">>>"):
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        test = doctest.DocTestParser().get_doctest(block.text, namespace, str(block), str(block.page), block.line)
        assert doctest.DocTestRunner(optionflags=flags).run(test).failed == 0
    else:
        exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), namespace)


@pytest.mark.slow
def test_the_data_guide_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its blocks go on where the last one ended."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    page = blocks(ROOT / "docs/data.md", "python")
    assert len(page) > 5
    for block in page:
        exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), namespace)


def commands(block: Block) -> list[list[str]]:
    """The arguments of each call of ``calibrant`` in a block of shell, also by way of ``./dev`` and in pipes."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if any(line.lstrip().startswith("$ ") for line in lines):  # a session: what has no prompt is output
        lines = [line.lstrip()[2:] for line in lines if line.lstrip().startswith("$ ")]
    calls = [call for line in lines if "calibrant" in line or "./dev" in line for call in simple_commands(line)]
    found = []
    for words in calls:
        if words[:2] == ["./dev", "run"]:
            words = words[2:]
        elif words[:2] == ["./dev", "demo"]:
            words = ["calibrant", *words[1:]]
        if words and words[0].split("/")[-1] == "calibrant":
            found.append(words[1:])
    return found


def simple_commands(line: str) -> list[list[str]]:
    """The words of each command of a line of shell, without redirections and leading assignments."""
    lexer = shlex.shlex(re.sub(r"\s\d?>{1,2}\s*\S+", "", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("();<>|&"):
            found.append([])
        elif found[-1] or not re.match(r"\w+=", word):
            found[-1].append(word)
    return found


def parse(arguments: list[str]) -> None:
    """Parse a command line as far as the command's own arguments, without running it."""
    command: Any = typer.main.get_command(app)
    context = None
    while hasattr(command, "commands"):
        if not arguments or arguments == ["--help"]:
            return
        context = command.context_class(command, info_name="calibrant", parent=context)
        _, command, arguments = command.resolve_command(context, arguments)
    if "--help" not in arguments:
        command.make_context(command.name, list(arguments), parent=context)


SHELL = [(b, line) for page in TOLD for b in blocks(page, "sh", "bash", "shell", "console") for line in commands(b)]


@pytest.mark.parametrize(("block", "arguments"), SHELL, ids=[f"{b}-{' '.join(a)}" for b, a in SHELL])
def test_command_line_parses(block: Block, arguments: list[str]) -> None:
    parse(arguments)
