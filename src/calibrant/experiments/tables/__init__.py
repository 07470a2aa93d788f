"""Tables as the papers print them: means over seeds, average ranks, and a paper's numbers beside ours.

Means are over final runs. A label may be more than a method's name: ``"ls + temperature"`` uses that repair in every
column, ``"ls, tuned for ece"`` one tuning target, ``"acls, lambda1=0.1"`` one setting.
"""

from calibrant.experiments.tables.cells import Column, Line, Table, TableCell, retitle
from calibrant.experiments.tables.formats import csv, heads, html, latex, markdown, notes, text
from calibrant.experiments.tables.pairs import Paired, Point, differences, paired, sensitivity
from calibrant.experiments.tables.summaries import average_ranks, expected, summary

__all__ = [
    "Column", "Line", "Paired", "Point", "Table", "TableCell", "average_ranks", "csv", "differences", "expected",
    "heads", "html", "latex", "markdown", "notes", "paired", "retitle", "sensitivity", "summary", "text",
]  # fmt: skip
