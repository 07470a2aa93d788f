"""The page of a table or figure of a paper: what it is, the figure, the tables, notes, files, how to make it again."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant.report.html.layout import ReportSection, asset, command_box, write_report
from calibrant.report.text import escape


@dataclass(frozen=True)
class PaperPart:
    """A figure (a file of SVG) or a table (HTML) of the page, with its heading and a text below."""

    heading: str
    text: str = ""
    figure: Path | None = None
    table: str = ""

    def html(self) -> str:
        """The body of its section."""
        words = f'<p class="note">{escape(self.text)}</p>' if self.text else ""
        if self.figure is None:
            return f"{self.table}{words}"
        data = base64.b64encode(self.figure.read_bytes()).decode()
        return f'<img class="figure" alt="{escape(self.heading)}" src="data:image/svg+xml;base64,{data}">{words}'


def write_paper_page(
    path: Path,
    *,
    title: str,
    lead: str,
    parts: Sequence[PaperPart],
    notes: Sequence[str],
    files: Sequence[str],
    command: str,
    methods: Mapping[str, str] | None = None,
) -> None:
    """Write the page of a table or figure; the file appears whole or not at all.

    ``methods`` are titles by name; those that the page names are marked and explained.
    """
    sections = [
        ReportSection(f"part-{k}", part.heading, part.heading, part.html()) for k, part in enumerate(parts, start=1)
    ]
    remarks = "".join(f"<li>{escape(note)}</li>" for note in notes)
    links = "".join(f'<li><a href="{escape(name)}">{escape(name)}</a></li>' for name in files)
    write_report(
        path,
        [
            *sections,
            ReportSection("notes", "Notes", "Notes", f"<ul>{remarks}</ul>") if remarks else None,
            ReportSection("files", "Files", "Files", f'<ul class="files">{links}</ul>') if links else None,
            ReportSection("again", "How to reproduce", "Reproduce", command_box(command)),
        ],
        title=title,
        kind="Calibrant",
        created=None,
        top=f'<div class="lead"><p>{escape(lead)}</p></div>',
        skip="Skip to the table or figure",
        style=asset("comparison.css") + asset("paper.css"),
        methods=methods,
    )
