"""The page of a watch: the verdict, the promise over time, what has changed without labels, and every batch.

It draws the document of a `Monitor` and computes nothing. The charts come last.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from calibrant.base.numbers import significant
from calibrant.report import html
from calibrant.report.document import Part
from calibrant.report.html.svg import Plot, Point, coloured, key, line, short, title
from calibrant.report.html.tables import SortedCell, clipped, number_table, sortable, verdict_cell
from calibrant.report.text import DASH, allowed, count, escape, finite, number, percent, round_percent, span, typeset

TESTS = {
    "promise": "The promise",
    "coverage": "Share answered",
    "score": "Score",
    "confidence": "Confidence",
    "predicted": "Predicted class",
}
SIZE = (400, 300)
MARGIN = (60, 20, 12, 62)  # room for the names of batches below
#: Looks that a chart draws one by one, and characters of a batch's name at its axis.
MOST_LOOKS, MOST_CHARACTERS = 300, 16
#: log10 of the largest and the smallest evidence that is drawn as it is.
HIGHEST, LOWEST = 12.0, -3.0


def write_watch(path: str | Path, document: Part) -> None:
    """Write the page of a watch; it draws the document of `Monitor`."""
    sections = (_summary, _promise, _groups, _changes, _label_shift, _batches, _assumptions)
    html.write_report(
        path, [section(document) for section in sections], title="Is the promise kept?", kind="Calibrant watch",
        created=document["created"], top=_headline(document), skip="Skip to the summary", style=html.asset("watch.css"),
    )  # fmt: skip


def _level(document: Part) -> str:
    if any(alarm["name"] == "promise" for alarm in document["alarms"]):
        return "poor"
    return "fair" if document["alarms"] else "good"


def _headline(document: Part) -> str:
    level = _level(document)
    word = {"poor": "Alarm: the promise", "fair": "Alarm: a change", "good": "No alarm"}[level]
    alarms = document["alarms"]
    lines = [alarm["text"] for alarm in alarms] or [document["policy"]]
    lines += [f"Next: {advice}" for advice in dict.fromkeys(alarm["next"] for alarm in alarms if alarm.get("next"))]
    text = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return html.verdict_box(level, word, escape(document["headline"]), text)


def _summary(document: Part) -> html.ReportSection:
    risk, coverage = document["risk"], document["coverage"]
    promised = document["promised_risk"]
    broken = _level(document) == "poor"
    breaking = next((alarm["breaking"] for alarm in document["alarms"] if alarm.get("breaking")), None)
    items = [] if breaking is None else [html.card(
        "Wrong in the batches of the alarm", percent(breaking["value"]),
        f"{count(breaking['errors'])} of {count(breaking['answers'])} answers of {escape(_span(breaking['batches']))}.",
        level="poor",
    )]  # fmt: skip
    items += [
        html.card(
            "Wrong answers" if breaking is None else "Wrong of all answers",
            percent(risk["value"]), _risk_text(document),
            interval=span(risk["low"], risk["high"], "share", risk["value"]) if risk["answers"] else "",
            level="poor" if broken else "good" if risk["answers"] and promised is not None else "info",
        ),
        html.card(
            "Answered", percent(coverage["value"]),
            f"{percent(document['reference_coverage']['value'])} at the fit.", level="info",
        ),
        html.card(
            "Wrong as confidence implies", percent(document["implied_risk"]),
            f"{percent(document['reference_implied_risk'])} at the fit; right only if confidence is still calibrated.",
            level="info",
        ),
    ]  # fmt: skip
    notes = [
        f"Acknowledged on {item['date']}, after {count(item['batches'])} batches: {item['text']}."
        for item in document.get("acknowledged", [])
    ]
    texts = [document["sentences"][0], *notes, *document["untested"]]
    sentences = "".join(f"<p>{escape(text)}</p>" for text in texts)
    body = f'{html.cards(*items)}<div class="lede">{sentences}</div>'
    return html.ReportSection("summary", "Summary", "Summary", body)


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _risk_text(document: Part) -> str:
    answers, promised = document["risk"]["answers"], document["promised_risk"]
    if not answers:
        return f"No answer has a label {'since the acknowledgement' if document['risk']['arrivals'] else 'yet'}."
    promise = "" if promised is None else f" At most {allowed(promised)} is promised."
    return f"Of {count(answers)} answers with labels; the limits hold at all times together.{promise}"


def _promise(document: Part) -> html.ReportSection | None:
    risk = document["risk"]
    if not risk["arrivals"]:
        return None
    caption = "<p>Wrong answers so far, with limits that hold at all times, and of each batch (dots).</p>"
    figures = [html.figure(draw_rates("rate", risk["arrivals"], document["promised_risk"]), caption)]
    if risk["test"] is not None:
        figures.append(html.figure(
            draw_evidence("promise-evidence", [risk["test"]]),
            "<p>Evidence that more are wrong than promised, as odds to 1. Above the line there is an alarm, until "
            "it is acknowledged.</p>",
        ))  # fmt: skip
    lede = (
        '<p class="lede">Labels count in the order in which they came. Evidence is a likelihood ratio that starts anew '
        "with every batch, so that a late break is seen. If the promise is kept, the evidence ever crosses the line "
        "with at most the probability stated above.</p>"
    )
    return html.ReportSection("promise", "The promise over time", "Promise", lede + html.columns(*figures))


def _groups(document: Part) -> html.ReportSection | None:
    if not document["groups"]:
        return None
    rows = []
    for part in document["groups"]:
        limits = span(part["low"], part["high"], "share", part["value"])
        cells = [count(part["answers"]), percent(part["value"]), limits]
        rows.append((clipped(part["group"]), cells, _alarm(part["test"])))
    words = (document["by_group"], "Labelled answers", "Wrong", "At all times")
    listing = number_table("tiles counts", "Answers by group", words, rows, last="Alarm", unseen=True)
    lede = (
        '<p class="lede">Each is held to the promise; they share the chance of a false alarm, those that came '
        "first having more of it.</p>"
    )
    return html.ReportSection("groups", f"By {document['by_group']}"[:60], "Groups", lede + listing)


def _alarm(test: Part | None) -> str:
    """The cell that says since when a test has been raising an alarm."""
    since = test["alarm_since"] if test else None
    return verdict_cell("Alarm", "worse" if since else "", "poor" if since else "", f"since {since}")


def _changes(document: Part) -> html.ReportSection | None:
    tests = [test for test in document["tests"] if test["name"] != "promise" and test["batches"]]
    if not tests:
        return None
    batches = [row for row in document["batches"] if not row["labels_only"]]
    figures = [html.figure(draw_coverage("coverage", batches, document["reference_coverage"]["value"]),
                       "<p>Share answered in each batch; the line is that of the fit.</p>")]  # fmt: skip
    figures.append(html.figure(
        draw_evidence("change-evidence", tests),
        "<p>Evidence of a change since the fit, as odds to 1. Above the line there is an alarm, until it is "
        "acknowledged.</p>",
    ))  # fmt: skip
    tested = html.legend(f"{key(coloured(k))}{TESTS[test['name']]}" for k, test in enumerate(tests))
    lede = (
        '<p class="lede">This needs no labels: a change means that samples are not like those of the fit, which may or '
        "may not break the promise.</p>"
    )
    body = f"{lede}{tested}{html.columns(*figures)}{_sizes(document, tests)}"
    return html.ReportSection("changes", "What has changed", "Changes", body)


def _sizes(document: Part, tests: Sequence[Part]) -> str:
    rows = []
    for test in tests:
        size = document["total_variation"].get(test["name"])
        if test["name"] == "coverage":
            coverage = next(row["coverage"] for row in reversed(document["batches"]) if not row["labels_only"])
            size = {"value": abs(coverage - document["reference_coverage"]["value"])}
        ends = span(size.get("low"), size.get("high"), "share", size["value"]) if size else ""
        cells = [percent(size["value"]) if size else DASH, ends or DASH]
        rows.append((TESTS[test["name"]], cells, _alarm(test)))
    caption = "Size: the largest change of any event's share (total variation), the last batch against the fit."
    words = ("What", "Size of the change", "Interval")
    return number_table("tiles counts", escape(caption), words, rows, last="Alarm")


def _label_shift(document: Part) -> html.ReportSection | None:
    shift = document["label_shift"]
    if shift is None:
        return None
    rows = [(clipped(row["name"]), (percent(row["before"]), percent(row["after"]))) for row in shift["classes"]]
    advice = (
        "Corrected probabilities can be written with --corrected FILE; nothing is corrected by itself."
        if shift["offered"]
        else "No correction is offered."
    )
    facts = [
        ("Batch", shift["batch"]), ("Samples", count(shift["samples"])),
        ("Gain per sample", f"{number(shift['gain'])} nats"), ("Advice", advice),
    ]  # fmt: skip
    lede = f'<p class="lede">{escape(shift["text"])}</p>'
    words = ("Class", "At the fit", "Estimated now")
    listing = number_table("tiles counts", "Shares of classes", words, rows, unseen=True)
    return html.ReportSection("labels", "Shares of the classes", "Classes", lede + html.terms("facts", facts) + listing)


def _batches(document: Part) -> html.ReportSection:
    columns_ = [("Batch", "text"), *((word, "num") for word in
                ("Samples", "Answered", "Implied wrong", "Labelled answers", "Wrong"))]  # fmt: skip
    rows = []
    for row in document["batches"]:
        values = ("samples", "coverage", "implied_risk", "answers_labelled", "risk")
        texts = [count(row[name]) if name in ("samples", "answers_labelled") else percent(row[name]) for name in values]
        cells = [SortedCell(text, row[name]) for text, name in zip(texts, values, strict=True)]
        rows.append(([SortedCell(clipped(row["name"])), *cells], False))
    listing = sortable("batches-table", "", columns_, rows, noun=("batch", "batches"))
    return html.ReportSection("batches", "Every batch", "Batches", listing)


def _assumptions(document: Part) -> html.ReportSection:
    items = "".join(f"<li>{escape(text)}</li>" for text in document["assumptions"])
    facts = [("False alarms, ever", f"at most {round_percent(document['alpha'])}"), ("Policy", document["policy"]),
             ("Calibrant", document["calibrant"]), ("Date", document["created"])]  # fmt: skip
    body = f"<ul>{items}</ul>{html.terms('facts', facts)}"
    return html.ReportSection("assumptions", "What this rests on", "Assumptions", body)


def draw_rates(ident: str, arrivals: Sequence[Part], promised: float | None) -> str:
    """The error rate so far with its limits, the rate of each arrival as a dot, and the promised one as a line."""
    rates = [part["errors"] / part["answers"] for part in arrivals]
    ends = [value for part in arrivals[len(arrivals) // 4 :] for value in (part["low"], part["high"])]
    top = max([*rates, *ends, promised or 0.0, 0.01])
    plot = _plot(len(arrivals), (0.0, min(1.0, 1.1 * top)))
    _axes(plot, "labels that came", "wrong answers", round_percent, [part["batch"] for part in arrivals])
    band = [(k + 1.0, part["high"]) for k, part in enumerate(arrivals)]
    band += [(k + 1.0, part["low"]) for k, part in reversed(list(enumerate(arrivals)))]
    mean = [(k + 1.0, part["value"]) for k, part in enumerate(arrivals)]
    marks = [f'<path class="limits" d="{plot.path(band)}Z"/>', f'<path class="course s0" d="{plot.path(mean)}"/>']
    if promised is not None:
        marks.append(_horizontal(plot, promised))
    for k in drawn_looks(len(arrivals)):
        part, rate = arrivals[k], rates[k]
        tip = f"{part['batch']}: {percent(rate)} of {count(part['answers'])} answers wrong"
        marks.append(_dot(plot, (k + 1.0, rate), tip, "s1"))
    plot.add(plot.clipped(*marks))
    latest = arrivals[-1]
    text = (
        f"After {len(arrivals)} arrivals of labels {percent(latest['value'])} of answers are wrong, with limits from "
        f"{percent(latest['low'])} to {percent(latest['high'])}"
        + ("." if promised is None else f"; at most {allowed(promised)} is promised.")
    )
    return plot.render(ident, "Wrong answers over time", text)


def draw_coverage(ident: str, batches: Sequence[Part], fitted: float | None) -> str:
    """The share answered in each batch, and that of the fit as a line."""
    points = [(k + 1.0, row["coverage"]) for k, row in enumerate(batches) if row["coverage"] is not None]
    plot = _plot(len(batches), (0.0, 1.0))
    _axes(plot, "batch", "answered", round_percent, [row["name"] for row in batches])
    marks = [f'<path class="course s0" d="{plot.path(points)}"/>'] if points else []
    if finite(fitted) is not None and fitted is not None:
        marks.append(_horizontal(plot, fitted))
    drawn = set(drawn_looks(len(batches)))
    marks += [
        _dot(plot, (x, y), f"{batches[int(x) - 1]['name']}: {percent(y)} answered", "s0")
        for x, y in points if int(x) - 1 in drawn
    ]  # fmt: skip
    plot.add(plot.clipped(*marks))
    text = f"The share answered in {len(batches)} batches; {percent(fitted)} at the fit."
    return plot.render(ident, "Share answered over time", text)


def draw_evidence(ident: str, tests: Sequence[Part]) -> str:
    """The evidence of some tests after every batch, on a logarithmic scale, and where their alarm begins."""
    values = [value for test in tests for value in test["log10_evidence"]]
    limit = max(test["log10_limit"] for test in tests)
    top = min(HIGHEST, max([limit + 0.5, *values]))
    low = max(LOWEST, min([-1.0, *values]))
    plot = _plot(max(len(test["batches"]) for test in tests), (low, top + 0.1))
    longest = max(tests, key=lambda test: len(test["batches"]))
    _axes(plot, "batch", "evidence", _odds, longest["batches"])
    marks = [_horizontal(plot, limit)]
    for k, test in enumerate(tests):
        points = [(i + 1.0, min(HIGHEST, value)) for i, value in enumerate(test["log10_evidence"])]
        marks.append(f'<path class="course {coloured(k)}" d="{plot.path(points)}"/>')
        alarm = test["batches"].index(test["alarm_since"]) if test["alarm_since"] in test["batches"] else None
        for look in drawn_looks(len(points), alarm):
            tip = f"{TESTS[test['name']]}, {test['batches'][look]}: {significant(10 ** points[look][1])} to 1"
            marks.append(_dot(plot, points[look], tip, coloured(k)))
    plot.add(plot.clipped(*marks))
    over = [TESTS[test["name"]] for test in tests if test["alarm_since"] is not None]
    text = f"The alarm begins at {significant(10**limit)} to 1. " + (
        f"It was reached by: {', '.join(over)}." if over else "Nothing has reached it."
    )
    return plot.render(ident, "Evidence over time", text)


def _plot(batches: int, y: Point) -> Plot:
    return Plot(*SIZE, (0.5, max(batches, 2) + 0.5), y, MARGIN)


def _axes(plot: Plot, x_label: str, y_label: str, y_text: Callable[[float], str], names: Sequence[str]) -> None:
    """Axes with the names of some batches, at equal distances, as many as there is room for."""
    shown = [name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 1]}…" for name in tell_apart(names)]
    room = (plot.width - plot.margin[0] - plot.margin[1]) / (7.2 * max(map(len, shown), default=1) + 14)
    step = math.ceil(len(shown) / max(1, int(room))) or 1
    ticks = [(k + 1.0, shown[k]) for k in range(0, len(shown), step)]
    plot.axes(x_label, y_label, _whole, y_text, x_ticks=ticks)


def tell_apart(names: Sequence[str]) -> list[str]:
    """Names without the words that all of them begin and end with.

    Example:
        >>> tell_apart(["site-a_week07.parquet", "site-a_week12.parquet"])
        ['week07', 'week12']
    """
    words = [re.findall(r"[^\W_]+|[\W_]", name) for name in names]
    start, end = (
        next((k for k, column in enumerate(zip(*parts, strict=False)) if len(set(column)) > 1), 0)
        for parts in (words, [part[::-1] for part in words])
    )
    return ["".join(part[start : len(part) - end]) or name for part, name in zip(words, names, strict=True)]


def drawn_looks(number: int, alarm: int | None = None) -> list[int]:
    """The looks that a chart has dots for: all of a few, else some at equal distances, the last, and an alarm's."""
    step = math.ceil(number / MOST_LOOKS) if number else 1
    return sorted({*range(0, number, step), *([number - 1] if number else []), *([] if alarm is None else [alarm])})


def _horizontal(plot: Plot, value: float) -> str:
    return line("promised", plot.at_x(plot.x[0]), plot.at_y(value), plot.at_x(plot.x[1]), plot.at_y(value))


def _dot(plot: Plot, point: Point, tip: str, kind: str) -> str:
    x, y = short(plot.at_x(point[0])), short(plot.at_y(point[1]))
    return f'<circle class="looked {kind}" cx="{x}" cy="{y}" r="3">{title(tip)}</circle>'


def _whole(value: float) -> str:
    return count(value) if value == math.floor(value) and value >= 1 else ""


def _odds(log10: float) -> str:
    """A power of ten; nothing between them."""
    if abs(log10 - round(log10)) > 1e-9:
        return ""
    power = round(log10)
    if power > 4:
        return typeset(f"1e{power}").rpartition("\u00a0")[2]
    return count(10**power) if power >= 0 else f"1/{count(10**-power)}"
