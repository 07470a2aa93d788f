"""The page of a watch: the verdict, the promise over time, what has changed without labels, and every batch.

It draws the document of a `Monitor` and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from calibrant.report.document import Part
from calibrant.report.html import watch_charts as charts
from calibrant.report.html.charts import coloured, key
from calibrant.report.html.layout import ReportSection, asset, card, cards, columns, terms, write_report
from calibrant.report.html.sorted_tables import SortedCell, sortable
from calibrant.report.html.svg import icon
from calibrant.report.html.tables import clipped, heads, numeric, table, verdict_cell
from calibrant.report.text import DASH, allowed, count, escape, number, percent, round_percent, span

TESTS = {
    "promise": "The promise",
    "coverage": "Share answered",
    "score": "Score",
    "confidence": "Confidence",
    "predicted": "Predicted class",
}


def write_watch(path: str | Path, document: Part) -> None:
    """Write the page of a watch; it draws the document of `Monitor`."""
    sections = (_summary, _promise, _groups, _changes, _label_shift, _batches, _assumptions)
    write_report(
        path, [section(document) for section in sections], title="Is the promise kept?", kind="Calibrant watch",
        created=document["created"], top=_headline(document), skip="Skip to the summary", style=asset("watch.css"),
    )  # fmt: skip


def _level(document: Part) -> str:
    if any(alarm["name"] == "promise" for alarm in document["alarms"]):
        return "poor"
    return "fair" if document["alarms"] else "good"


def _headline(document: Part) -> str:
    level = _level(document)
    word = {"poor": "Alarm: the promise", "fair": "Alarm: a change", "good": "No alarm"}[level]
    lines = [alarm["text"] for alarm in document["alarms"]] or [document["policy"]]
    return (
        f'<section class="verdict {level}" aria-labelledby="verdict-h">'
        f'<p class="level">{icon(level)}<span>{word}</span></p>'
        f'<h2 id="verdict-h">{escape(document["headline"])}</h2>'
        f"{''.join(f'<p>{escape(text)}</p>' for text in lines)}</section>"
    )


def _summary(document: Part) -> ReportSection:
    risk, coverage = document["risk"], document["coverage"]
    promised = document["promised_risk"]
    broken = _level(document) == "poor"
    items = [
        card(
            "Wrong answers", percent(risk["value"]), _risk_text(document),
            interval=span(risk["low"], risk["high"], "share", risk["value"]) if risk["answers"] else "",
            level="poor" if broken else "good" if risk["answers"] and promised is not None else "info",
        ),
        card(
            "Answered", percent(coverage["value"]),
            f"{percent(document['reference_coverage']['value'])} at the fit.", level="info",
        ),
        card(
            "Wrong as confidence implies", percent(document["implied_risk"]),
            f"{percent(document['reference_implied_risk'])} at the fit; right only if confidence is still calibrated.",
            level="info",
        ),
    ]  # fmt: skip
    sentences = "".join(f"<p>{escape(text)}</p>" for text in [document["sentences"][0], *document["untested"]])
    return ReportSection("summary", "Summary", "Summary", cards(*items) + f'<div class="lede">{sentences}</div>')


def _risk_text(document: Part) -> str:
    answers, promised = document["risk"]["answers"], document["promised_risk"]
    if not answers:
        return "No answer has a label yet."
    promise = "" if promised is None else f" At most {allowed(promised)} is promised."
    return f"Of {count(answers)} answers with labels; the limits hold at all times together.{promise}"


def _promise(document: Part) -> ReportSection | None:
    risk = document["risk"]
    if not risk["arrivals"]:
        return None
    caption = "Wrong answers so far, with limits that hold at all times, and of each batch (dots)."
    figures = [_figure(charts.rates("rate", risk["arrivals"], document["promised_risk"]), caption)]
    if risk["test"] is not None:
        figures.append(_figure(
            charts.evidence("promise-evidence", [risk["test"]], TESTS),
            "Evidence that more are wrong than promised, as odds to 1. Above the line there is an alarm.",
        ))  # fmt: skip
    lede = (
        '<p class="lede">Labels count in the order in which they came. Evidence is a likelihood ratio that starts anew '
        "with every batch, so that a late break is seen; the line is crossed by chance, ever, at most as often as "
        "stated.</p>"
    )
    return ReportSection("promise", "The promise over time", "Promise", lede + columns(*figures))


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption><p>{escape(caption)}</p></figcaption></figure>"


def _groups(document: Part) -> ReportSection | None:
    if not document["groups"]:
        return None
    titles, body = ("Labelled answers", "Wrong", "At all times"), ""
    for part in document["groups"]:
        since = part["test"]["alarm_since"] if part["test"] else None
        cells = [
            count(part["answers"]),
            percent(part["value"]),
            span(part["low"], part["high"], "share", part["value"]),
        ]
        verdict = verdict_cell("Alarm", "worse" if since else "", "poor" if since else "", f"since {since}")
        row = "".join(map(numeric, titles, cells))
        body += f'<tr><th scope="row">{clipped(part["group"])}</th>{row}{verdict}</tr>'
    top = heads(escape(document["by_group"])) + heads(*titles, numbers=True) + heads("Alarm")
    listing = table("tiles counts", "Answers by group", top, body, unseen=True)
    lede = (
        '<p class="lede">Each is held to the promise; they share the chance of a false alarm, those that came '
        "first having more of it.</p>"
    )
    return ReportSection("groups", f"By {document['by_group']}"[:60], "Groups", lede + listing)


def _changes(document: Part) -> ReportSection | None:
    tests = [test for test in document["tests"] if test["name"] != "promise" and test["batches"]]
    if not tests:
        return None
    batches = [row for row in document["batches"] if not row["labels_only"]]
    figures = [_figure(charts.coverage("coverage", batches, document["reference_coverage"]["value"]),
                       "Share answered in each batch; the line is that of the fit.")]  # fmt: skip
    figures.append(_figure(
        charts.evidence("change-evidence", tests, TESTS),
        "Evidence of a change since the fit, as odds to 1. Above the line there is an alarm.",
    ))  # fmt: skip
    legend = "".join(f"<li>{key(coloured(k))}{TESTS[test['name']]}</li>" for k, test in enumerate(tests))
    lede = (
        '<p class="lede">What needs no labels: a change says that samples are not like those of the fit, which may or '
        "may not break the promise.</p>"
    )
    body = f'{lede}<ul class="legend curves">{legend}</ul>{columns(*figures)}{_sizes(document, tests)}'
    return ReportSection("changes", "What has changed", "Changes", body)


def _sizes(document: Part, tests: Sequence[Part]) -> str:
    titles, body = ("Size of the change", "Interval"), ""
    for test in tests:
        size = document["total_variation"].get(test["name"])
        if test["name"] == "coverage":
            last = next(row["coverage"] for row in reversed(document["batches"]) if not row["labels_only"])
            size = {"value": abs(last - document["reference_coverage"]["value"])}
        ends = span(size.get("low"), size.get("high"), "share", size["value"]) if size else ""
        cells = [percent(size["value"]) if size else DASH, ends or DASH]
        since = test["alarm_since"]
        verdict = verdict_cell("Alarm", "worse" if since else "", "poor" if since else "", f"since {since}")
        row = "".join(map(numeric, titles, cells))
        body += f'<tr><th scope="row">{TESTS[test["name"]]}</th>{row}{verdict}</tr>'
    top = heads("What") + heads(*titles, numbers=True) + heads("Alarm")
    caption = "Size: the largest change of any event's share (total variation), the last batch against the fit."
    return table("tiles counts", escape(caption), top, body)


def _label_shift(document: Part) -> ReportSection | None:
    shift = document["label_shift"]
    if shift is None:
        return None
    titles = ("At the fit", "Estimated now")
    body = "".join(
        f'<tr><th scope="row">{clipped(row["name"])}</th>'
        f"{''.join(map(numeric, titles, (percent(row['before']), percent(row['after']))))}</tr>"
        for row in shift["classes"]
    )
    advice = (
        "Corrected probabilities can be written with --corrected FILE; nothing is corrected by itself."
        if shift["offered"]
        else "No correction is offered."
    )
    facts = [
        ("Batch", shift["batch"]), ("Samples", count(shift["samples"])),
        ("Gain per sample", f"{number(shift['gain'])} nats"), ("Advice", advice),
    ]  # fmt: skip
    lede = f'<p class="lede">{escape(shift["text"])} This assumes that the classes look as they did.</p>'
    listing = table(
        "tiles counts", "Shares of classes", heads("Class") + heads(*titles, numbers=True), body, unseen=True
    )
    return ReportSection("labels", "Shares of the classes", "Classes", lede + terms("facts", facts) + listing)


def _batches(document: Part) -> ReportSection:
    columns_ = [("Batch", "text"), *((word, "num") for word in
                ("Samples", "Answered", "Implied wrong", "Labelled answers", "Wrong"))]  # fmt: skip
    rows = []
    for row in document["batches"]:
        values = ("samples", "coverage", "implied_risk", "answers_labelled", "risk")
        texts = [count(row[name]) if name in ("samples", "answers_labelled") else percent(row[name]) for name in values]
        cells = [SortedCell(text, row[name]) for text, name in zip(texts, values, strict=True)]
        rows.append(([SortedCell(clipped(row["name"])), *cells], False))
    listing = sortable("batches", "", columns_, rows, noun=("batch", "batches"))
    return ReportSection("batches", "Every batch", "Batches", listing)


def _assumptions(document: Part) -> ReportSection:
    items = "".join(f"<li>{escape(text)}</li>" for text in document["assumptions"])
    facts = [("False alarms, ever", f"at most {round_percent(document['alpha'])}"), ("Policy", document["policy"]),
             ("Calibrant", document["calibrant"]), ("Date", document["created"])]  # fmt: skip
    return ReportSection("assumptions", "What this rests on", "Assumptions", f"<ul>{items}</ul>{terms('facts', facts)}")
