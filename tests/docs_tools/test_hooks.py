"""The site is built in strict mode, and every link, anchor, picture and formula of the built pages is in its place."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from calibrant.losses import describe, names
from docs_tools import api_pages, build, hooks
from tests.docs_tools.test_build import ROOT, blocks

#: One worker builds the site, once.
pytestmark = [pytest.mark.xdist_group("site"), pytest.mark.slow]


class Seen(HTMLParser):
    """What a page has and where it leads, read without the site builder."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.counts: dict[str, int] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name == "href" and value and tag == "a":
                self.links.append(value)
            elif name in ("href", "src") and value:  # scripts, styles, pictures
                self.loads.append(value)


def in_a_process(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Seen]:
    folder = tmp_path_factory.mktemp("site") / "built"
    # In a process of its own: the builder brings deprecations of its parts along, and they are not ours.
    done = in_a_process(f"from pathlib import Path; from docs_tools.build import site; site(Path({str(folder)!r}))")
    assert done.returncode == 0, done.stderr
    pages = {path: Seen(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 30
    return pages


def relative(target: str) -> bool:
    return not re.match(r"[a-z][a-z+.-]*:|//", target)


def test_links_and_anchors_lead_somewhere(site: dict[Path, Seen]) -> None:
    broken, checked = [], 0
    for page, seen in site.items():
        for target in filter(relative, [*seen.links, *seen.loads]):
            parts = urlsplit(target)
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not file.is_file() or (
                parts.fragment and file in site and unquote(parts.fragment) not in site[file].ids
            ):
                broken.append(f"{page.name}: {target}")
            checked += 1
    assert broken == []
    assert checked > 1000


def test_pages_load_nothing_from_elsewhere(site: dict[Path, Seen]) -> None:
    assert {target for seen in site.values() for target in seen.loads if not relative(target)} == set()


def test_every_markdown_page_is_in_the_site(site: dict[Path, Seen]) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    written |= {Path("index"), Path("changes"), Path("contributing"), Path("api/index")}
    written |= {Path(f"api/{name}") for name in api_pages.PACKAGES}
    root = next(path for path in site if path.name == "start.html").parent
    assert {page.relative_to(root).with_name(page.stem) for page in site} == {
        w for w in written if "_build" not in w.parts
    }


def test_formulas_are_mathml(site: dict[Path, Seen]) -> None:
    by_name = {page.name: seen for page, seen in site.items()}
    total = 0
    for name in names():
        source = (ROOT / f"docs/methods/{name}.md").read_text(encoding="utf-8")
        written = re.sub(r"^```.*?^```|`[^`\n]*`", "", source, flags=re.DOTALL | re.MULTILINE)
        formulas = re.findall(r"\$\$.+?\$\$|\$[^$\n]+\$", written, re.DOTALL)
        assert by_name[f"{name}.html"].counts.get("math", 0) == len(formulas), name
        total += len(formulas)
    assert total > 20


def test_the_api_reference_has_every_public_name(site: dict[Path, Seen]) -> None:
    by_name = {page.stem if page.suffix == ".html" else page.name: seen for page, seen in site.items()}
    for package in api_pages.PACKAGES:
        names_of = re.findall(r"^::: (.+)$", api_pages.api_page(package), re.MULTILINE)
        assert names_of
        assert set(names_of) <= by_name[package].ids


def test_markdown_is_read_as_on_github(site: dict[Path, Seen]) -> None:
    """Python-Markdown takes a list without a blank line before it, or fences it does not know, for text."""
    for page in site:
        text = page.read_text(encoding="utf-8")
        for paragraph in re.findall(r"<p>.*?</p>", text, re.DOTALL):
            prose = re.sub(r"<(code|math)\b.*?</\1>", "", paragraph, flags=re.DOTALL)
            assert not re.search(r"\n(?:- |\d+\. |\| )|```|\*\*|\$\$", prose), f"{page.name}: {paragraph[:200]}"


def test_links_are_rewritten_by_hand() -> None:
    text = "[a](docs/audit.md#x) [b](LICENSE)\n```md\n[c](docs/audit.md)\n```\n[d](https://e.org/docs/x.md)"
    expected = "[a](audit.md#x) [b](files/LICENSE)\n```md\n[c](docs/audit.md)\n```\n[d](https://e.org/docs/x.md)"
    lead = {"docs/audit.md": "docs/audit.md", "LICENSE": "docs/files/LICENSE"}
    assert hooks.with_links(text, "README.md", lead.__getitem__) == expected
    page = hooks.with_links("[m](../../references.bib)", "docs/methods/ls.md", lambda target: f"docs/files/{target}")
    assert page == "[m](../files/references.bib)"


def test_numbered_items_are_indented_by_hand() -> None:
    text = "1. one\n\n   more\n2. two\n   still\n\nafter\n   not"
    assert hooks.indented(text) == "1. one\n\n    more\n\n2. two\n    still\n\nafter\n   not"


def test_a_broken_link_stops_the_build_and_keeps_the_old_site(tmp_path: Path) -> None:
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("# Title\n", encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("# Page\n\n[gone](nowhere.md)\n", encoding="utf-8")
    (tmp_path / "docs/_build").mkdir()
    (tmp_path / "docs/_build/old.html").touch()
    config, _, _ = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")
    (tmp_path / "mkdocs.yml").write_text(config.replace("hooks: [docs_tools/hooks.py]\n", ""), encoding="utf-8")
    code = f"build.FOLDER = Path({str(tmp_path)!r}, 'docs'); build.site(build.FOLDER / '_build')"
    done = in_a_process(f"from pathlib import Path; from docs_tools import build; {code}")
    assert done.returncode == 1
    assert "'page.md' contains a link 'nowhere.md'" in done.stderr
    assert "docs: the site was not built: " in done.stderr
    assert [path.name for path in (tmp_path / "docs/_build").iterdir()] == ["old.html"]


# ---------------------------------------------------------------------- pages of the methods


def test_every_method_has_a_page_a_picture_and_words() -> None:
    folder = ROOT / "docs/methods"
    assert sorted(path.stem for path in folder.glob("*.md")) == sorted([*names(), "index", "table2"])
    assert sorted(path.stem for path in folder.glob("*.svg")) == sorted(names())
    assert all(describe(name).title and describe(name).use and describe(name).avoid for name in names())


def test_pages_of_methods_are_current() -> None:
    stale = [path.name for path in build.out_of_date() if path.parent.name == "methods"]
    assert stale == [], "run ./dev docs"


def test_words_agree_with_the_registry() -> None:
    """A page that says a method takes no soft labels is right, and none is forgotten."""
    says = {name for name in names() if "soft" in describe(name).avoid}
    assert says == {name for name in names() if not describe(name).soft}


# ---------------------------------------------------------------------- the worked example


def test_add_a_method_runs_as_one_program(tmp_path: Path) -> None:
    """In a process of its own, because it registers a method."""
    program = "\n".join(block.text for block in blocks(ROOT / "docs/add_method.md", "python"))
    assert program.count("assert") >= 6
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "1.0662" in done.stdout  # q' at the label: 1 - 2 p (e - sum p e), worked out by hand for logits 3, 1, 0
