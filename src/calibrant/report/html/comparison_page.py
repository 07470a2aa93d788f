"""A comparison of methods as one HTML file: which effects hold, the tables, then the pictures behind them.

It draws what the document says and computes nothing. The file stands alone, as the audit's does, and everything in it
can be read without a script; a method has one look on the whole page, and pointing at it fades the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from calibrant.report import html
from calibrant.report.document import RELIABILITY, Part, check_format, check_series
from calibrant.report.html import charts, svg, tables
from calibrant.report.html import comparison_charts as plots
from calibrant.report.html.comparison_charts import Look, scatter
from calibrant.report.html.explorer import COVERAGES, NEAR, nearest
from calibrant.report.html.tables import clipped
from calibrant.report.text import (
    DASH,
    count,
    difference,
    difference_span,
    escape,
    finite,
    name,
    percent,
    plain,
    quantity,
    round_percent,
    span,
    table_percent,
)

#: Diagrams up to this number stand in wide columns, more in narrow ones.
WIDE = 6
_NEEDED = {
    "tables": ("html",), "effects": ("claim", "mean"), "reliability": ("name", "bins"),
    "curves": ("name", "coverage", "risk"), "scatter": ("name", "points"),
    "ablation": ("name", "parameter", "metric", "points"), "training": ("name", "metric", "epochs", "mean"),
    "failures": ("run", "error"),
}  # fmt: skip
_VERDICTS = {"holds": ("good", "better"), "does not hold": ("poor", "worse"), "within noise": ("info", "unclear")}
#: By the level of a verdict: what stands beside its sign.
_SAYS = {"good": "Beyond chance", "info": "Tested", "unknown": "Not tested"}


def write_comparison(path: str | Path, document: Part) -> None:
    """Write a comparison of methods as one self-contained HTML file.

    The file needs no network and no other file; it links to those the document lists. Names are shown as they are,
    whatever they contain; the ``html`` of the tables is trusted. What the document does not hold has no section. The
    same document gives the same bytes.

    Args:
        path: where to write; the file appears whole or not at all.
        document: a ``calibrant.comparison`` document of version 1. An effect whose ``unit`` is ``"share"`` is shown in
            percentage points; ``unit`` of the document says what is counted, if not samples; ``level`` is that of the
            intervals; ``verdict`` has a ``level``, a ``headline`` and a ``text``, and may be missing. Parts with the
            same ``method`` have one colour.
            ``methods`` has the titles of the methods by their names, which the page explains.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "comparison.html")
        >>> document = {"format": "calibrant.comparison", "version": 1, "title": "CE and LS on digits"}
        >>> write_comparison(path, document | {"scatter": [{"name": "ls", "points": [[0.93, 0.04], [0.94, 0.03]]}]})
        >>> "Accuracy against ECE" in path.read_text(encoding="utf-8")
        True
    """
    content = _check_document(document)
    pictures = ("reliability", "curves", "scatter", "ablation", "training")
    parts = [part for key in pictures for part in content[key]]
    methods = {str(part["name"]): str(part["method"]) for part in parts if part.get("method")}
    look = plots.looks([str(part["name"]) for part in parts], methods)
    html.write_report(
        path,
        [section(content, look) for section in _SECTIONS],
        title=content.get("title") or "Methods compared",
        kind="Calibrant comparison",
        created=content.get("created"),
        top=_verdict(content) + _lead(content),
        skip="Skip to the results",
        style=html.asset("comparison.css") + _fading(),
        methods=content.get("methods") or {},
    )


def _check_document(document: Part) -> dict[str, Any]:
    """The document, checked, with every list in it and without what cannot be drawn."""
    check_format("a comparison", document, "calibrant.comparison")
    lists = {key: list(document.get(key) or ()) for key in (*_NEEDED, "lead", "facts", "files", "commands")}
    for key, needed in _NEEDED.items():
        for k, part in enumerate(lists[key]):
            if absent := [n for n in needed if n not in part]:
                raise ValueError(f"entry {k + 1} of {key!r} needs {', '.join(needed)}, and {absent[0]!r} is missing")
    for part in lists["reliability"]:
        check_series(_subject("reliability", part), part["bins"], RELIABILITY)
    for part in lists["curves"]:
        check_series(_subject("curve", part), part, ("coverage", "risk"))
    for part in lists["training"]:
        check_series(_subject("training", part), part, ("epochs", "mean", *(k for k in ("low", "high") if part.get(k))))
    for key, width in (("scatter", 2), ("ablation", 4)):
        for part in lists[key]:
            if odd := [p for p in part["points"] if len(p) != width]:
                raise ValueError(f"{_subject(key, part)} needs points of {width} numbers, got {len(odd[0])}")
    lists["curves"] = [c for c in lists["curves"] if plots.numbers_of(c["risk"])]
    lists["training"] = [t for t in lists["training"] if t["epochs"] and plots.numbers_of(t["mean"])]
    lists["scatter"] = [g for g in lists["scatter"] if plots.finite_points(g["points"])]
    lists["ablation"] = [a for a in lists["ablation"] if plots.finite_values(a)]
    return dict(document) | lists


def _subject(word: str, part: Part) -> str:
    return f"the comparison, {word} of {str(part['name'])[:80]!r},"


def _fading() -> str:
    """Style: where one points at a method, in a legend or a chart, the others fade and its shade is shown."""
    return "".join(
        f".focus:has(.s{k}:hover) .drawn:not(.s{k}){{opacity:.12}}"
        f".focus:has(.s{k}:hover) .shade:not(.s{k}){{opacity:0}}"
        f".focus:has(.s{k}:hover) .shade.s{k}{{opacity:.22}}"
        for k in range(plots.COLOURS)
    )


def _verdict(document: Part) -> str:
    verdict = document.get("verdict")
    if not verdict:
        return ""
    level = verdict["level"] if verdict["level"] in _SAYS else "unknown"
    return html.verdict_box(level, _SAYS[level], escape(verdict["headline"]), f"<p>{escape(verdict['text'])}</p>")


def _lead(document: Part) -> str:
    lead = "".join(f"<p>{escape(sentence)}</p>" for sentence in document["lead"])
    lead = (f'<div class="lead">{lead}</div>' if lead else "") + html.terms("facts", document["facts"])
    failed = len(document["failures"])
    if not failed:
        return lead
    words = f"{plots.counted(failed, 'run')} failed, and {'are' if failed != 1 else 'is'} missing here."
    return (
        f'{lead}<div class="own fair">{html.level_line("fair", "Incomplete")}'
        f'<p class="title"><a href="#failures">{words}</a></p></div>'
    )


def _tables(document: Part, look: Mapping[str, Look]) -> html.ReportSection | None:
    body = ""
    for k, part in enumerate(document["tables"]):
        title = str(part.get("title") or f"Table {k + 1}")
        note = f'<p class="lede">{escape(part["note"])}</p>' if part.get("note") else ""
        table = plain(part["html"])
        if not re.match(r"\s*<div[^>]*\bscroll\b", table):
            table = tables.framed(table, title)
        body += f'<div class="results"><h3>{escape(title)}</h3>{note}{table}</div>'
    return html.ReportSection("results", "Results", "Results", body)


def _effects(document: Part, look: Mapping[str, Look]) -> html.ReportSection | None:
    if not document["effects"]:
        return None
    level = finite(document.get("level"))
    lede = (
        '<p class="lede">Differences between runs of the same seed: a ring for each, the upright line for their mean, '
        f"the bar for {'the' if level is None else f'its {round_percent(level)}'} interval; the grey line is zero. "
        "Every row has a scale of its own.</p>"
    )
    top = tables.heads("Claim", "By seed") + tables.heads("Mean difference", numbers=True) + tables.heads("Verdict")
    body, caption = "".join(map(_effect, document["effects"])), "Effects and whether they hold"
    table = tables.table("effects stack", caption, top, body, label="Effects", unseen=True)
    return html.ReportSection("effects", "Which effects hold", "Effects", lede + table)


def _effect(effect: Part) -> str:
    unit = "share" if effect.get("unit") == "share" else "number"
    ends = difference_span(effect.get("low"), effect.get("high"), unit)
    mean = f'<span class="v">{difference(effect["mean"], unit)}</span> <span class="ci">{ends}</span>'
    verdict = str(effect.get("verdict") or "unknown")
    sign, kind = _VERDICTS.get(verdict, ("unknown", "unclear"))
    note = f'<span class="note">{escape(effect["note"])}</span>' if effect.get("note") else ""
    return (
        f'<tr><th scope="row">{escape(effect["claim"])}{note}</th><td class="shown">{plots.strip(effect, unit)}</td>'
        f"{tables.numeric('Mean difference', mean)}{tables.verdict_cell('Verdict', kind, sign, verdict)}</tr>"
    )


def _reliability(document: Part, look: Mapping[str, Look]) -> html.ReportSection | None:
    unit, figures = str(document.get("unit") or "samples"), ""
    for k, part in enumerate(document["reliability"]):
        sums = (("accuracy", "accuracy"), ("confidence", "mean confidence"), ("ece", "ECE"))
        numbers = " ".join(f"<span>{word} {table_percent(part[key])}</span>" for key, word in sums if key in part)
        figures += html.figure(
            charts.reliability(f"reliability-{k}", part["bins"], str(part["name"]), unit),
            f"{_label(part, look)}<p class='sums'>{numbers}</p>"
            f"{charts.reliability_numbers(part['bins'], name(part['name']), unit)}",
        )
    caption = (
        f'<div class="lede"><p>Each bar is the accuracy of the {escape(unit)} whose confidence falls in that bin, with '
        "its interval, over the runs of all seeds together. A model that keeps its word ends every bar on the "
        "diagonal. The numbers below a diagram are means over seeds, as in the tables.</p>"
        f"{charts.RELIABILITY_LEGEND}</div>"
    )
    density = " many" if len(document["reliability"]) > WIDE else ""
    body = f'{caption}<div class="multiples{density}">{figures}</div>'
    return html.ReportSection("reliability", "Confidence against accuracy", "Reliability", body) if figures else None


def _label(part: Part, look: Mapping[str, Look]) -> str:
    """A method's name below its own chart, after a dot of its colour."""
    return f'<h3 class="named">{svg.key(look[str(part["name"])].colour)}{clipped(part["name"])}</h3>'


def _legend(parts: Sequence[Part], look: Mapping[str, Look], kind: str) -> str:
    items = "".join(
        f'<li class="{look[n].colour}">{plots.swatch(look[n], kind)}{clipped(n)}</li>'
        for n in dict.fromkeys(str(part["name"]) for part in parts)
    )
    return f'<ul class="legend curves">{items}</ul>'


def _numbers(caption: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    return tables.figure_numbers(escape(caption), heads, rows, label=caption)


def _curves(document: Part, look: Mapping[str, Look]) -> html.ReportSection | None:
    curves, unit = document["curves"], str(document.get("unit") or "samples")
    if not curves:
        return None
    lede = (
        '<p class="lede">If a model answers only where it is sure enough, how often is it wrong? The lower line is the '
        "better one; each is of the runs of all seeds together. Point at a method to see it alone.</p>"
    )
    rows = [(name(c["name"]), [percent(_risk_at(c, share)) for share in COVERAGES]) for c in curves]
    numbers = _numbers("Risk at some coverages", ("Method", *map(round_percent, COVERAGES)), rows)
    cut = f"Lines that leave the frame do so for the first few {escape(unit)}." if plots.is_cut_off(curves) else ""
    chart = html.figure(plots.risk_coverage("risk-chart", curves, look, unit), cut + numbers)
    body = f'{lede}<div class="focus single">{_legend(curves, look, "line")}{chart}</div>'
    return html.ReportSection("risk", "Answer less, err less", "Risk and coverage", body)


def _risk_at(curve: Part, coverage: float) -> float | None:
    """The risk at the point nearest to a coverage, if it is near."""
    at = nearest(curve["coverage"], coverage)
    return finite(curve["risk"][at]) if abs(curve["coverage"][at] - coverage) <= NEAR else None


def _scatter(document: Part, look: Mapping[str, Look]) -> html.ReportSection | None:
    groups = document["scatter"]
    if not groups:
        return None
    rows = [
        (name(group["name"]), [table_percent(x), table_percent(y)])
        for group in groups
        for x, y in plots.finite_points(group["points"])
    ]
    numbers = _numbers("Accuracy and ECE of every run", ("Method", "Accuracy", "ECE"), rows)
    body = (
        '<p class="lede">One mark per run. A method that buys its calibration with accuracy lies lower and further '
        f'left.</p><div class="focus single">{_legend(groups, look, "mark")}'
        f"{html.figure(scatter('scatter-chart', groups, look), numbers)}</div>"
    )
    return html.ReportSection("scatter", "Accuracy against ECE", "Accuracy and ECE", body)


def _ablation(document: Part, look: Mapping[str, Look]) -> html.ReportSection | None:
    figures = ""
    for k, part in enumerate(document["ablation"]):
        metric, parameter = str(part["metric"]), str(part["parameter"])
        unit = plots.unit_of(metric)
        rows = [
            (escape(value), [quantity(mean, unit), quantity(std, unit) if std else DASH, count(runs)])
            for value, mean, std, runs in plots.finite_values(part)
        ]
        heads = (parameter, plots.label_of(metric), "Standard deviation", "Runs")
        figures += html.figure(
            plots.ablation(f"ablation-{k}", part, look[str(part["name"])]),
            f"{_label(part, look)}<p>{escape(plots.label_of(metric))} by {name(parameter)}</p>"
            f"{_numbers(f'{plots.label_of(metric)} by {parameter}', heads, rows)}",
        )
    sentences = []
    if any(std for part in document["ablation"] for _, _, std, _ in plots.finite_values(part)):
        sentences.append("Means over runs, with one standard deviation to either side where there are several.")
    if any(str(part["metric"]).startswith("val_") for part in document["ablation"]):
        sentences.append(
            "Numbers are of the held-out data, by which settings are chosen; the tables have those of the test data."
        )
    lede = f'<p class="lede">{" ".join(sentences)}</p>' if sentences else ""
    body = f'{lede}<div class="multiples">{figures}</div>'
    return html.ReportSection("ablation", "How much a setting matters", "Ablation", body) if figures else None


def _training(document: Part, look: Mapping[str, Look]) -> html.ReportSection | None:
    by_metric: dict[str, list[Part]] = {}
    for part in document["training"]:
        by_metric.setdefault(str(part["metric"]), []).append(part)
    if not by_metric:
        return None
    figures = ""
    for k, (metric, series) in enumerate(by_metric.items()):
        rows = [(name(s["name"]), _at_the_end(s, plots.unit_of(metric))) for s in series]
        numbers = _numbers(f"{plots.label_of(metric)} at the end", ("Method", "Epoch", "Mean", "Range"), rows)
        caption = f"{escape(plots.label_of(metric))} by epoch{numbers}"
        figures += html.figure(plots.training(f"training-{k}", metric, series, look), caption)
    crowd = max(map(len, by_metric.values())) > plots.CROWD
    shaded = "the one you point at has a shade from" if crowd else "the shades go from"
    lede = f'<p class="lede">Lines are means over runs; {shaded} the lower to the upper limit.</p>'
    body = (
        f'{lede}<div class="focus{" crowd" * crowd}">{_legend(document["training"], look, "line")}'
        f'<div class="{"columns" if len(by_metric) > 1 else "single"}">{figures}</div></div>'
    )
    return html.ReportSection("training", "How training went", "Training", body)


def _at_the_end(series: Part, unit: str) -> list[str]:
    """Epoch, mean and range of the last entry."""
    mean = series["mean"][-1]
    low, high = (series[k][-1] if series.get(k) else None for k in ("low", "high"))
    return [count(series["epochs"][-1]), quantity(mean, unit), span(low, high, unit, mean) or DASH]


def _failures(document: Part, look: Mapping[str, Look]) -> html.ReportSection | None:
    if not document["failures"]:
        return None
    rows = "".join(
        f'<tr><th scope="row">{clipped(f.get("name") or DASH)}</th>'
        f"<td{tables.labelled('Seed')}>{DASH if f.get('seed') is None else escape(f['seed'])}</td>"
        f"<td{tables.labelled('Run')}><code>{escape(f['run'])}</code></td>"
        f'<td class="why">{escape(f["error"])}</td></tr>'
        for f in document["failures"]
    )
    top = tables.heads("Method", "Seed", "Run", "Error")
    table = tables.table("errors stack", "Runs that failed", top, rows, unseen=True)
    lede = (
        '<p class="lede">These runs are not counted above. Running the command again retries those that were stopped '
        "from outside; with <code>--retry-failed</code>, the others, too.</p>"
    )
    return html.ReportSection("failures", "Runs that failed", "Failures", lede + table)


def _files(document: Part, look: Mapping[str, Look]) -> html.ReportSection | None:
    items = "".join(f"<li>{_linked(str(label), str(path))}</li>" for label, path in document["files"])
    return html.ReportSection("files", "Files", "Files", f'<ul class="paths">{items}</ul>' if items else "")


def _linked(label: str, path: str) -> str:
    """A link to a file beside the page; what does not lie beside it is named only."""
    if path.startswith(("/", "\\")) or not path:
        return f"{name(label)}<code>{escape(path)}</code>"
    # "./" and quoting: a path is never taken for another scheme's address, nor its # or ? for more than a name.
    target = "./" + quote(path, safe="/", errors="replace")
    return f'<a href="{escape(target)}">{name(label)}</a><code>{escape(path)}</code>'


def _commands(document: Part, look: Mapping[str, Look]) -> html.ReportSection | None:
    commands = "\n".join(str(command) for command in document["commands"])
    return html.reproduction(commands)


_SECTIONS = (
    _effects, _tables, _reliability, _curves, _scatter, _ablation, _training, _failures, _files, _commands,
)  # fmt: skip
