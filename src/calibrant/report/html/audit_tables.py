"""The tables of an audit: its numbers, comparisons, repairs and policy, classes, groups and errors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from calibrant.report.document import Part
from calibrant.report.html.svg import bar_legend, coloured, interval_bar, key, reach
from calibrant.report.html.tables import (
    SHOWN,
    SortedCell,
    changed_value,
    clipped,
    heads,
    labelled,
    number_table,
    numeric,
    sortable,
    table,
    valued,
    verdict_cell,
)
from calibrant.report.text import DASH, allowed, count, escape, finite, name, percent, quantity, round_percent

#: How to read the bars of differences.
DIFFERENCE_LEGEND = bar_legend("all differences of the table that are in the same unit")

_DIRECTION = {"low": "↓ lower is better", "high": "↑ higher is better"}
#: By the way an interval of differences points: icon and words.
_CHANGES = {"better": ("good", "better"), "worse": ("poor", "worse"), "unclear": ("info", "no clear change")}


def metrics(models: Sequence[Part], level: float | None) -> str:
    """Every metric with its interval: groups of rows, one column per file."""
    by_file = [{m["name"]: m for m in model.get("metrics") or ()} for model in models]
    order: dict[str, Part] = {}
    for values in by_file:
        order |= {key: metric for key, metric in values.items() if key not in order}
    # Groups in the order they first come up, so that a group is never opened twice.
    groups: dict[str, list[Part]] = {}
    for metric in order.values():
        groups.setdefault(str(metric.get("group") or "Other"), []).append(metric)
    body = ""
    for group, rows in groups.items():
        head = f'<tr class="group"><th scope="rowgroup" colspan="{1 + len(models)}">{escape(group)}</th></tr>'
        body += f"<tbody>{head}{''.join(_metric_row(m, by_file, models) for m in rows)}</tbody>"
    caption = "Numbers" if finite(level) is None else f"Numbers with {round_percent(level)} intervals"
    if len(models) == 1:
        kind, files = "metrics single", ["Value and interval"]
    else:
        models_html = (f"{key(coloured(k))}{clipped(m['name'])}" for k, m in enumerate(models))
        kind, files = "metrics stack", [f'<div class="named">{file}</div>' for file in models_html]
    legend = bar_legend("the largest value or limit of the row")
    return legend + table(kind, caption, heads("Measure", *files), body, unseen=True)


def _metric_row(metric: Part, by_file: Sequence[dict[str, Part]], models: Sequence[Part]) -> str:
    values = [file.get(metric["name"]) for file in by_file]
    across = reach([m.get(end) for m in values if m for end in ("value", "low", "high")])
    cells = "".join(_metric_cell(m, across, k, models[k]["name"]) for k, m in enumerate(values))
    notes = (_DIRECTION.get(str(metric.get("better")), ""), escape(metric.get("help") or ""))
    note = " · ".join(filter(None, notes))
    return f'<tr><th scope="row">{escape(metric["label"])}<span class="note">{note}</span></th>{cells}</tr>'


def _metric_cell(metric: Part | None, across: tuple[float, float], colour: int, file: Any) -> str:
    start = f'<td class="num of {coloured(colour)}"{labelled(file)}>'
    if metric is None:
        return f"{start}{DASH}</td>"
    value, low, high, unit = metric["value"], metric.get("low"), metric.get("high"), metric["unit"]
    bound = finite(metric.get("bound")) or 0.0
    notes = [metric["note"]] if metric.get("note") else []
    # Below this the bound is smaller than the digits shown.
    notes += [f"at most {quantity(bound, unit)} off the exact value"] if bound >= 1e-5 else []
    noted = "".join(f'<span class="note">{escape(note)}</span>' for note in notes)
    return f"{start}{valued(value, low, high, unit)}{interval_bar(value, low, high, across, colour)}{noted}</td>"


def comparison(part: Part) -> str:
    """Two files on the same samples: the second against the first."""
    rows, across, files = part["rows"], _reaches(part["rows"]), ("first", "second")
    body = "".join(
        f'<tr><th scope="row">{escape(r["label"])}</th>'
        + "".join(numeric(part[k], quantity(r[k], r["unit"])) for k in files)
        + f"{_change_cells(r, r['first'], r['second'], across[str(r['unit'])])}</tr>"
        for r in rows
    )
    top = heads("Measure", *(clipped(part[k]) for k in files), "Difference", "The second is")
    caption = f"{name(part['second'])} against {name(part['first'])}"
    return table("spans stack", caption, top, body, label=f"{part['second']} against {part['first']}")


def fixes(rows: Sequence[Part], caption: str) -> str:
    """What each repair would change; a repair's rows stand together."""
    across, body = _reaches(rows), ""
    # Without "repair" the name is the repair's, as in older documents; with it, the measure's.
    for (fix, fitted), group in groupby(rows, key=lambda r: (str(r.get("repair", r["name"])), r.get("fitted") or "")):
        members, note = list(group), f'<span class="note">{escape(fitted)}</span>'
        for k, row in enumerate(members):
            head = "" if k else f'<th scope="row" rowspan="{len(members)}">{escape(fix)}{note}</th>'
            unit, before, after = row["unit"], row["before"], row["after"]
            body += (
                f'<tr class="{"next" if k else "first"}">{head}<td class="measure">{escape(row["metric"])}</td>'
                f"{numeric('Before', quantity(before, unit))}{numeric('After', quantity(after, unit))}"
                f"{_change_cells(row, before, after, across[str(unit)])}</tr>"
            )
    top = heads("Fix", "Measure", "Before", "After", "Difference", "Change")
    return table("spans stack", escape(caption), top, body, label=caption, unseen=True)


def _change_cells(row: Part, before: Any, after: Any, across: tuple[float, float]) -> str:
    """The difference of a row and which way it points."""
    value, low, high = row["difference"], row.get("low"), row.get("high")
    change = changed_value(value, low, high, row["unit"], (before, after)) + interval_bar(value, low, high, across)
    word = _change(low, high, str(row.get("better")))
    return numeric("Difference", change) + verdict_cell("Change", word, *_CHANGES.get(word, ("", "")))


def _change(low: Any, high: Any, better: str) -> str:
    """Which way an interval of differences points; "" where neither way is better."""
    low, high = finite(low), finite(high)
    if better not in ("low", "high"):
        return ""
    if low is None or high is None or low <= 0 <= high:
        return "unclear"
    return "better" if (high < 0) == (better == "low") else "worse"


def _reaches(rows: Sequence[Part]) -> dict[str, tuple[float, float]]:
    """One range of differences per unit: bars in the same unit can be compared."""
    units = {str(r["unit"]) for r in rows}
    return {u: reach([r.get(k) for r in rows if r["unit"] == u for k in ("difference", "low", "high")]) for u in units}


def outcome(part: Part) -> str:
    """What a policy did: shares answered and wrong, and the same by group."""
    answers = _values("Answers of the policy", "Share", part["rows"])
    if part.get("groups"):
        column = part.get("column") or "Group"
        rows = []
        for g in part["groups"]:
            note = f'<span class="note">{escape(g.get("note") or "")}</span>'
            errors = valued(g["wrong"], g.get("low"), g.get("high"), "share")
            cells = (count(g["samples"]), percent(g["answered"]), errors, allowed(g.get("promised")))
            rows.append((clipped(g["name"]) + note, cells))
        words = (column, "Samples", "Answered", "Wrong answers", "Promised at most")
        label = f"Answers of the policy by {escape(column)}"
        answers += number_table("stack outcome", f"By {escape(column)}", words, rows, label=label)
    if part.get("menu"):
        goals = [
            escape(offer.get("promise") or f"at most {round_percent(offer['risk'])} wrong") for offer in part["menu"]
        ]
        menu = [(goal, [percent(offer["coverage"])]) for goal, offer in zip(goals, part["menu"], strict=True)]
        caption = "What could be promised (estimates)"
        answers += number_table("metrics single", caption, ("Promise", "Would answer"), menu)
    return f'<div class="outcome">{answers}</div>'


def positive(part: Part) -> str:
    """What is known of P(positive): shares and scores with intervals."""
    return _values(escape(f"P({part['name']})"), "Measure", part["metrics"])


def prediction_sets(part: Part) -> str:
    """Prediction sets: sizes and coverage, and the latter by class."""
    sets = _values("Prediction sets", "Measure", part["rows"])
    if part.get("classes"):
        lowest = sorted(part["classes"], key=lambda row: (row["high"], row["name"]))[:SHOWN]
        rows = [
            (clipped(r["name"]), (count(r["samples"]), valued(r["value"], r.get("low"), r.get("high"), "share")))
            for r in lowest
        ]
        extent = "" if len(rows) == len(part["classes"]) else f", the {len(rows)} lowest of {len(part['classes'])}"
        words = ("Class", "Samples", "Sets with the true class")
        sets += number_table("stack outcome", f"By class{extent}", words, rows)
    return f'<div class="outcome">{sets}</div>'


def _values(caption: str, head: str, rows: Sequence[Part]) -> str:
    """Rows of a label with a note, and a value with its interval; the caption is HTML."""
    body = "".join(
        f'<tr><th scope="row">{escape(r["label"])}<span class="note">{escape(r.get("note") or "")}</span></th>'
        f'<td class="num">{valued(r["value"], r.get("low"), r.get("high"), r["unit"])}</td></tr>'
        for r in rows
    )
    return table("metrics single", caption, heads(head, "Value and interval"), body, unseen=True)


def population(
    ident: str, caption: str, rows: Sequence[Part], *, noun: tuple[str, str], head: str, unit: str, right: str
) -> str:
    """Classes or groups: flagged ones first, then those whose gap is most surely not 0; ``right`` heads accuracies."""
    shares = {"accuracy": right, "confidence": "Confidence", "ece": "ECE"}
    if any(finite(r.get("classwise_ece")) is not None for r in rows):
        shares["classwise_ece"] = "Class-wise ECE"
    across = reach([r.get(k) for r in rows for k in ("gap", "gap_low", "gap_high")])
    entries = []
    for r in sorted(rows, key=_order):
        gap = r.get("gap"), r.get("gap_low"), r.get("gap_high")
        change = changed_value(*gap, "share", (r.get("accuracy"), r.get("confidence"))) + interval_bar(*gap, across)
        cells = [SortedCell(clipped(r["name"])), SortedCell(change, finite(gap[0]))]
        cells.append(SortedCell(count(r.get("count")), finite(r.get("count"))))
        cells += [SortedCell(percent(r.get(k)), finite(r.get(k))) for k in shares]
        entries.append((cells, bool(r.get("flag"))))
    start = "Flagged first, then those" if any(flag for _, flag in entries) else "Those first"
    order = f"{start} whose gap is most surely not 0: by the limit of its interval nearest 0."
    # The gap comes first: on a phone the rest may have to be scrolled to.
    columns = [(head, "text"), *((word, "num") for word in ("Gap", unit.capitalize(), *shares.values()))]
    return sortable(ident, f"{caption}{'. ' if caption else ''}{order}", columns, entries, noun=noun)


def _order(row: Part) -> tuple[bool, bool, float]:
    """Flagged rows first, then by the limit of the gap nearest 0, which is below 0 where 0 is inside."""
    low, high = finite(row.get("gap_low")), finite(row.get("gap_high"))
    if low is None or high is None:
        return not row.get("flag"), True, -abs(finite(row.get("gap")) or 0.0)
    return not row.get("flag"), False, -max(low, -high)


def errors(ident: str, rows: Sequence[Part], head: str, total: int | None) -> str:
    """Wrong predictions, the most confident first as they come; what no row knows has no column.

    ``total`` is how many there are in all, which documents of earlier releases do not say.
    """
    caption = "Wrong predictions, the most confident first"
    if total is not None:
        listed = f"The {count(len(rows))} most confident of {count(total)} errors"
        caption = f"{listed if len(rows) < total else f'All errors, {count(total)}'}: the most confident first"
    optional = (("place", "Place"), ("label", "Label"), ("predicted", "Predicted"))
    filled = [(k, title) for k, title in optional if any(r.get(k) is not None for r in rows)]
    columns = [(head, "text"), *((title, "text") for _, title in filled), ("Confidence", "num")]
    entries = []
    for r in rows:
        texts = (DASH if r.get(k) is None else clipped(r[k]) for k, _ in filled)
        confidence = SortedCell(percent(r.get("confidence")), finite(r.get("confidence")))
        entries.append(([SortedCell(clipped(r["id"])), *map(SortedCell, texts), confidence], False))
    return sortable(ident, caption, columns, entries, noun=("error", "errors"), shown=15, searchable=False, total=total)


def by_label(ident: str, rows: Sequence[Part]) -> str:
    """Every class with what it is said to be and what it is: precision and recall with their intervals."""
    columns = [("Class", "text"), *((w, "num") for w in ("Samples", "Precision", "Recall", "Mean P", "Happens"))]
    entries = []
    for r in rows:
        cells = [SortedCell(clipped(r["name"])), SortedCell(count(r["labels"]), finite(r["labels"]))]
        for share in (r["precision"], r["recall"]):
            text = valued(share["value"], share["low"], share["high"], "share")
            cells.append(SortedCell(text, finite(share["value"])))
        cells += [SortedCell(percent(share), finite(share)) for share in (r["claimed"], r["happened"])]
        entries.append((cells, bool(r.get("flag"))))
    return sortable(ident, "The rarest class first.", columns, entries, noun=("class", "classes"))
