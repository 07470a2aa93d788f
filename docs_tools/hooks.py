"""MkDocs hooks: the README and its like as pages, pages of methods and packages, links that work here, MathML.

Pages are written for GitHub, where a link leads to a file of the repository. In the site, links to the files of `PAGES`
lead to their pages, and other files that are linked to are copied below ``files/``.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from calibrant.losses import describe, names
from docs_tools.api_pages import api_pages, index_page

ROOT = Path(__file__).parents[1]
#: Files of the repository that are pages of the site, and where.
PAGES = {"README.md": "docs/index.md", "CHANGELOG.md": "docs/changes.md", "CONTRIBUTING.md": "docs/contributing.md"}
_SOURCES = {PurePosixPath(page).name: source for source, page in PAGES.items()}
_FENCED = re.compile(r"^([ \t]*)(```+)[^\n]*\n.*?^\1\2[ \t]*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(\]\(<?|\b(?:src|href)=\")([^)\s>\"#]+)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Enter the pages of the methods and of the packages into the navigation."""
    pages = {
        "Methods": [{describe(name).title: f"methods/{name}.md"} for name in names()],
        "API reference": [{page.removeprefix("api/").removesuffix(".md"): page} for page in api_pages()],
    }
    for section in config.nav or []:
        for title, entries in section.items() if isinstance(section, dict) else ():
            if title in pages:
                entries[1:1] = pages[title]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, and what any page links to outside of docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, PurePosixPath(page).name, content=text))
    for path, text in {"api/index.md": index_page(), **api_pages()}.items():
        files.append(File.generated(config, path, content=text))
    for path in outside(files):
        files.append(File.generated(config, f"files/{path}", abs_src_path=str(ROOT / path)))
    return files


def outside(files: Files) -> list[str]:
    """The files outside of docs/ that pages link to, by their path in the repository."""
    found: set[str] = set()

    def note(target: str) -> str:
        if not target.startswith("docs/") and target not in PAGES and (ROOT / target).is_file():
            found.add(target)
        return target

    for file in files.documentation_pages():
        with_links(file.content_string, source_of(file), note)
    return sorted(found)


def source_of(file: File) -> str:
    """Where a page lies in the repository."""
    return _SOURCES.get(file.src_uri, f"docs/{file.src_uri}")


def with_links(text: str, source: str, lead: Callable[[str], str]) -> str:
    """The text with every relative link replaced, outside of code.

    Args:
        text: Markdown.
        source: where it lies in the repository; links are relative to it.
        lead: from the path of the file in the repository to the path in the site.
    """
    folder = PurePosixPath(source).parent
    place = (PurePosixPath(PAGES[source]) if source in PAGES else PurePosixPath(source)).parent

    def replace(found: re.Match[str]) -> str:
        if re.match(r"[a-z][a-z+.-]*:|/", found[2]):
            return found[0]
        target = lead(os.path.normpath(folder / found[2]))
        return found[1] + os.path.relpath(target, place)

    pieces, end = [], 0
    for code in _FENCED.finditer(text):
        pieces += [_LINK.sub(replace, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, _LINK.sub(replace, text[end:])])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site has them; lists as Python-Markdown reads them."""

    def lead(target: str) -> str:
        if target in PAGES:
            return PAGES[target]
        inside = target.startswith("docs/") or not (ROOT / target).is_file()  # what is missing is for MkDocs to report
        return target if inside else f"docs/files/{target}"

    return indented(with_links(markdown, source_of(page.file), lead))


def indented(text: str) -> str:
    """Numbered items with their paragraphs and code indented by four, as Python-Markdown needs; GitHub takes three."""
    lines, inside, blank = [], False, False
    for line in text.split("\n"):
        item = bool(re.match(r"\d+\. ", line))
        if item and inside and blank:
            lines.append("")  # after an item of several paragraphs the next one would be taken for more of it
        inside = item or (inside and (not line.strip() or line.startswith("   ")))
        blank = inside and not item and (blank or not line.strip())
        lines.append(f" {line}" if inside and line.startswith("   ") else line)
    return "\n".join(lines)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas as MathML, which browsers draw by themselves."""
    return _FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    return convert(html.unescape(found[2]), display="block" if found[1] == "div" else "inline")
