"""Tables of prediction sets: their sizes, and how often they hold the true class, in all and by class."""

from __future__ import annotations

from calibrant.report.document import Part
from calibrant.report.html.tables import SHOWN, clipped, heads, numeric, table, valued, valued_rows
from calibrant.report.text import count


def prediction_sets(part: Part) -> str:
    """Prediction sets: sizes and coverage, and the latter by class."""
    top, body = heads("Measure", "Value and interval"), valued_rows(part["rows"])
    sets = table("metrics single", "Prediction sets", top, body, unseen=True)
    if part.get("classes"):
        titles = ("Samples", "Sets with the true class")
        rows = sorted(part["classes"], key=lambda row: (row["high"], row["name"]))[:SHOWN]
        body = ""
        for row in rows:
            texts = (count(row["samples"]), valued(row["value"], row.get("low"), row.get("high"), "share"))
            body += f'<tr><th scope="row">{clipped(row["name"])}</th>{"".join(map(numeric, titles, texts))}</tr>'
        few = "" if len(rows) == len(part["classes"]) else f", the {len(rows)} lowest of {len(part['classes'])}"
        sets += table("stack outcome", f"By class{few}", heads("Class") + heads(*titles, numbers=True), body)
    return f'<div class="outcome">{sets}</div>'
