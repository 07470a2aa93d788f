"""The tables of the pages. Words and numbers are those of the document; the reader's browser does the sorting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from calibrant.report.document import RELIABILITY, Part
from calibrant.report.html.charts import bar_legend, coloured, interval_bar, key, reach
from calibrant.report.html.svg import icon
from calibrant.report.text import (
    DASH,
    allowed,
    count,
    difference,
    difference_span,
    escape,
    finite,
    name,
    percent,
    quantity,
    round_percent,
    span,
)

#: Rows shown at first; the rest is one button away.
SHOWN = 30

#: How to read the bars of differences.
DIFFERENCE_LEGEND = bar_legend("all differences of the table that are in the same unit")

_DIRECTION = {"low": "↓ lower is better", "high": "↑ higher is better"}
#: By the way an interval of differences points: icon and words.
_CHANGES = {"better": ("good", "better"), "worse": ("poor", "worse"), "unclear": ("info", "no clear change")}


def framed(table: str, label: str) -> str:
    """A table in a box of its own that scrolls when it is too wide; the keyboard can reach the box."""
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">{table}</div>'


def table(
    kind: str, caption: str, top: str, body: str, *, label: str | None = None, unseen: bool = False, ident: str = ""
) -> str:
    """A framed table of HTML parts; the label is plain text, and an unseen caption is read aloud only.

    On narrow screens the rows of a ``stack`` and of ``tiles`` become blocks, whose cells are `labelled`: one below the
    other in a stack, side by side as tiles.
    """
    attributes = (f' id="{ident}"' if ident else "") + (f' class="{kind}"' if kind else "")
    hidden = ' class="unseen"' if unseen else ""
    bodies = body if body.startswith("<tbody") else f"<tbody>{body}</tbody>"
    return framed(
        f"<table{attributes}><caption{hidden}>{caption}</caption><thead><tr>{top}</tr></thead>{bodies}</table>",
        caption if label is None else label,
    )


def heads(*words: str, numbers: bool = False) -> str:
    """Heads of columns; the words are HTML."""
    kind = ' class="num"' if numbers else ""
    return "".join(f'<th scope="col"{kind}>{word}</th>' for word in words)


def clipped(text: Any) -> str:
    """A name that may be long: cut to a few lines, complete when it is pointed at or clicked."""
    return f'<span class="clip" title="{escape(text)}">{name(text)}</span>'


def labelled(label: Any) -> str:
    """The attribute that names a cell where the screen is too narrow for columns and cells are stacked."""
    return f' data-label="{escape(label)}"'


def numeric(label: Any, text: str) -> str:
    """A cell of a number, named for narrow screens."""
    return f'<td class="num"{labelled(label)}>{text}</td>'


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


def valued(value: Any, low: Any, high: Any, unit: str) -> str:
    """A value with its interval, in the unit."""
    return with_interval(quantity(value, unit), span(low, high, unit, value))


def changed_value(value: Any, low: Any, high: Any, unit: str, of: Sequence[Any]) -> str:
    """A difference of the values in ``of``, which lend it their decimals."""
    return with_interval(difference(value, unit, of), difference_span(low, high, unit, of))


def with_interval(value: str, ends: str) -> str:
    """A value and its interval, if it has one."""
    interval = f' <span class="ci">{ends}</span>' if ends else ""
    return f'<span class="v">{value}</span>{interval}'


def _change(low: Any, high: Any, better: str) -> str:
    """Which way an interval of differences points; "" where neither way is better."""
    low, high = finite(low), finite(high)
    if better not in ("low", "high"):
        return ""
    if low is None or high is None or low <= 0 <= high:
        return "unclear"
    return "better" if (high < 0) == (better == "low") else "worse"


def _change_cells(row: Part, before: Any, after: Any, across: tuple[float, float]) -> str:
    """The difference of a row and which way it points."""
    value, low, high = row["difference"], row.get("low"), row.get("high")
    change = changed_value(value, low, high, row["unit"], (before, after)) + interval_bar(value, low, high, across)
    word = _change(low, high, str(row.get("better")))
    return numeric("Difference", change) + verdict_cell("Change", word, *_CHANGES.get(word, ("", "")))


def verdict_cell(label: str, kind: str, sign: str, words: str) -> str:
    """A cell with an icon and its words; a dash where there is no icon."""
    says = f"{icon(sign)}<span>{escape(words)}</span>" if sign else DASH
    return f'<td class="change {kind}"{labelled(label)}><span class="says">{says}</span></td>'


def _reaches(rows: Sequence[Part]) -> dict[str, tuple[float, float]]:
    """One range of differences per unit: bars in the same unit can be compared."""
    units = {str(r["unit"]) for r in rows}
    return {u: reach([r.get(k) for r in rows if r["unit"] == u for k in ("difference", "low", "high")]) for u in units}


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


def _values(caption: str, head: str, rows: Sequence[Part]) -> str:
    """Rows of a label with a note, and a value with its interval; the caption is HTML."""
    body = "".join(
        f'<tr><th scope="row">{escape(r["label"])}<span class="note">{escape(r.get("note") or "")}</span></th>'
        f'<td class="num">{valued(r["value"], r.get("low"), r.get("high"), r["unit"])}</td></tr>'
        for r in rows
    )
    return table("metrics single", caption, heads(head, "Value and interval"), body, unseen=True)


def outcome(part: Part) -> str:
    """What a policy did: shares answered and wrong, and the same by group."""
    answers = _values("Answers of the policy", "Share", part["rows"])
    if part.get("groups"):
        titles = ("Samples", "Answered", "Wrong answers", "Promised at most")
        body = ""
        for g in part["groups"]:
            errors = valued(g["wrong"], g.get("low"), g.get("high"), "share")
            texts = (count(g["samples"]), percent(g["answered"]), errors, allowed(g.get("promised")))
            note = f'<span class="note">{escape(g.get("note") or "")}</span>'
            body += f'<tr><th scope="row">{clipped(g["name"])}{note}</th>{"".join(map(numeric, titles, texts))}</tr>'
        column = escape(part.get("column") or "Group")
        top, label = heads(column) + heads(*titles, numbers=True), f"Answers of the policy by {column}"
        answers += table("stack outcome", f"By {column}", top, body, label=label)
    if part.get("menu"):
        body = "".join(
            f'<tr><th scope="row">at most {round_percent(offer["risk"])} wrong</th>'
            f"{numeric('Would answer', percent(offer['coverage']))}</tr>"
            for offer in part["menu"]
        )
        top = heads("Promise") + heads("Would answer", numbers=True)
        answers += table("metrics single", "What could be promised (estimates)", top, body)
    return f'<div class="outcome">{answers}</div>'


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


def positive(part: Part) -> str:
    """What is known of P(positive): shares and scores with intervals."""
    return _values(escape(f"P({part['name']})"), "Measure", part["metrics"])


def reliability_numbers(
    part: Part, caption: str, unit: str, words: tuple[str, str] = ("Mean confidence", "Accuracy")
) -> str:
    """The numbers behind a reliability diagram; the caption is HTML."""
    rows = (
        (f"({percent(lo)}, {percent(hi)}]", (count(n), percent(c), valued(a, a0, a1, "share")))
        for lo, hi, n, c, a, a0, a1 in zip(*(part[k] for k in RELIABILITY), strict=True)
    )
    return figure_numbers(caption, ("Bin", unit.capitalize(), *words), rows)


def histogram_numbers(part: Part, caption: str, unit: str) -> str:
    """The numbers behind a histogram; the caption is HTML."""
    rows = (
        (f"{percent(lo)} to {percent(hi)}", (count(r), count(w)))
        for lo, hi, r, w in zip(part["edges"], part["edges"][1:], part["right"], part["wrong"], strict=False)
    )
    return figure_numbers(caption, ("Confidence", f"Right {unit}", f"Wrong {unit}"), rows)


def object_numbers(part: Part, caption: str, unit: str) -> str:
    """The numbers behind confidence against object size; the caption is HTML."""
    keys = ("low", "high", "count", "confidence", "accuracy")
    rows = (
        (f"{percent(lo)} to {percent(hi)}", (count(n), percent(c), percent(a)))
        for lo, hi, n, c, a in zip(*(part[key] for key in keys), strict=True)
    )
    return figure_numbers(caption, ("Object size", unit.capitalize(), "Mean confidence", "Accuracy"), rows)


def figure_numbers(
    caption: str,
    words: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str]]],
    label: str = "The numbers of this figure",
) -> str:
    """The numbers behind a figure, folded away: a row is its name and its cells, all of them HTML."""
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(map(numeric, words[1:], cells))}</tr>' for first, cells in rows
    )
    first, *rest = map(escape, words)
    numbers = table("tiles", caption, heads(first) + heads(*rest, numbers=True), body, label=label)
    return f"<details><summary>The numbers of this figure</summary>{numbers}</details>"


def prediction_sets(part: Part) -> str:
    """Prediction sets: sizes and coverage, and the latter by class."""
    sets = _values("Prediction sets", "Measure", part["rows"])
    if part.get("classes"):
        titles = ("Samples", "Sets with the true class")
        rows = sorted(part["classes"], key=lambda row: (row["high"], row["name"]))[:SHOWN]
        body = ""
        for row in rows:
            texts = (count(row["samples"]), valued(row["value"], row.get("low"), row.get("high"), "share"))
            body += f'<tr><th scope="row">{clipped(row["name"])}</th>{"".join(map(numeric, titles, texts))}</tr>'
        extent = "" if len(rows) == len(part["classes"]) else f", the {len(rows)} lowest of {len(part['classes'])}"
        sets += table("stack outcome", f"By class{extent}", heads("Class") + heads(*titles, numbers=True), body)
    return f'<div class="outcome">{sets}</div>'


class PrintedNumber(NamedTuple):
    """A number as text, with its spread after "±"; a remark behind it; and its place among those of its column."""

    number: str
    remark: str = ""
    is_best: bool = False
    is_second: bool = False


def render_comparison_table(
    title: str, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str | PrintedNumber]]
) -> str:
    """A table as a fragment of a page, in a box that scrolls, without title and note.

    Args:
        title: For readers of the page who do not see it.
        columns: The text over every column, and whether it is one of numbers.
        rows: Words and numbers; the first of a row is its name.
    """
    top = "".join(heads(escape(text), numbers=is_number) for text, is_number in columns)
    body = "".join(
        f'<tr><th scope="row">{name(first)}</th>'
        + "".join(_cell(cell, head) for cell, (head, _) in zip(cells, columns[1:], strict=True))
        + "</tr>"
        for first, *cells in rows
    )
    listing = f'<table class="comparison tiles"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    return framed(listing, title)


def _cell(cell: str | PrintedNumber, head: str) -> str:
    if isinstance(cell, str):
        return f"<td{labelled(head)}>{escape(cell)}</td>"
    mean, _, spread = cell.number.partition(" ± ")
    css = " best" if cell.is_best else " second" if cell.is_second else ""
    tag = "strong" if cell.is_best else "u" if cell.is_second else ""
    text = f'<span class="v">{escape(mean)}</span>' if mean else ""
    text += f' <span class="ci">± {escape(spread)}</span>' if spread else ""
    text = f"<{tag}>{text}</{tag}>" if tag else text
    remark = f' <span class="remark">{escape(cell.remark)}</span>' if cell.remark else ""
    return f'<td class="num{css}"{labelled(head)}>{text}{remark}</td>'
