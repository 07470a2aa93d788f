"""MkDocs hooks: the README and similar files as pages, pages of methods and packages, links, MathML.

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
    """Add the pages of the methods and of the packages to the navigation."""
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
    """Add the pages from outside of docs/, and the files there that pages link to."""
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
    targets: set[str] = set()

    def note(target: str) -> str:
        if not target.startswith("docs/") and target not in PAGES and (ROOT / target).is_file():
            targets.add(target)
        return target

    for file in files.documentation_pages():
        with_links(file.content_string, source_of(file), note)
    return sorted(targets)


def source_of(file: File) -> str:
    """The path of a page in the repository."""
    return _SOURCES.get(file.src_uri, f"docs/{file.src_uri}")


def with_links(text: str, source: str, lead: Callable[[str], str]) -> str:
    """The text with every relative link replaced, outside of code.

    Args:
        text: Markdown.
        source: its path in the repository; links are relative to it.
        lead: maps a path in the repository to one in the site.
    """
    folder = PurePosixPath(source).parent
    site_folder = (PurePosixPath(PAGES[source]) if source in PAGES else PurePosixPath(source)).parent

    def replace(match: re.Match[str]) -> str:
        if re.match(r"[a-z][a-z+.-]*:|/", match[2]):
            return match[0]
        target = lead(os.path.normpath(folder / match[2]))
        return match[1] + os.path.relpath(target, site_folder)

    pieces, end = [], 0
    for code in _FENCED.finditer(text):
        pieces += [_LINK.sub(replace, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, _LINK.sub(replace, text[end:])])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt links to the site, and lists to Python-Markdown."""

    def lead(target: str) -> str:
        if target in PAGES:
            return PAGES[target]
        inside = target.startswith("docs/") or not (ROOT / target).is_file()  # MkDocs reports missing files
        return target if inside else f"docs/files/{target}"

    return indented(with_links(markdown, source_of(page.file), lead))


def indented(text: str) -> str:
    """Indent the paragraphs and code of numbered items by four, as Python-Markdown needs; GitHub takes three."""
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
    """Convert formulas to MathML, which browsers draw by themselves."""
    return _FORMULA.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    return convert(html.unescape(match[2]), display="block" if match[1] == "div" else "inline")
