"""A comparison of methods as one HTML file: the tables, which effects hold, then the pictures behind them.

It draws what the document says and computes nothing. The file stands alone, as the audit's does, and everything in it
can be read without a script; a method has one look on the whole page, and pointing at it fades the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from calibrant.report import charts, tables
from calibrant.report import compare_charts as drawn
from calibrant.report.compare_charts import Look
from calibrant.report.explorer import COVERAGES, NEAR, nearest
from calibrant.report.parts import RELIABILITY, Part, fitting
from calibrant.report.sheet import Section, asset, write_sheet
from calibrant.report.svg import icon
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


def write_comparison(path: str | Path, document: Part) -> None:
    """Write a comparison of methods as one self-contained HTML file.

    The file needs no network and no other file; it links to those the document lists. Names are shown as they are,
    whatever they contain; the ``html`` of the tables is trusted. What the document does not hold has no section. The
    same document gives the same bytes.

    Args:
        path: where to write; the file appears whole or not at all.
        document: a ``calibrant.comparison`` document of version 1. An effect whose ``unit`` is ``"share"`` is shown in
            percentage points; ``unit`` of the document says what is counted, if not samples; ``level`` is that of the
            intervals. Parts with the same ``method`` have one colour.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "comparison.html")
        >>> write_comparison(
        ...     path,
        ...     {
        ...         "format": "calibrant.comparison",
        ...         "version": 1,
        ...         "title": "CE and LS on digits",
        ...         "scatter": [{"name": "ls", "points": [[0.93, 0.04], [0.94, 0.03]]}],
        ...     },
        ... )
        >>> "Accuracy against ECE" in path.read_text(encoding="utf-8")
        True
    """
    whole = _checked(document)
    drawn_parts = ("reliability", "curves", "scatter", "ablation", "training")
    parts = [part for key in drawn_parts for part in whole[key]]
    methods = {str(part["name"]): str(part["method"]) for part in parts if part.get("method")}
    look = drawn.looks([str(part["name"]) for part in parts], methods)
    write_sheet(
        path,
        [section for make in _SECTIONS for section in [make(whole, look)] if section is not None],
        title=whole.get("title") or "Methods compared",
        kind="Calibrant comparison",
        created=whole.get("created"),
        top=_lead(whole),
        skip="Skip to the results",
        style=asset("compare.css") + _fading(),
    )


def _checked(document: Part) -> dict[str, Any]:
    """The document with every list in place, after a look at whether it is one."""
    kind, version = document.get("format"), document.get("version")
    if kind != "calibrant.comparison" or version != 1:
        raise ValueError(
            f"a comparison is written of a calibrant.comparison document of version 1, got {kind!r}, {version!r}"
        )
    whole = {key: list(document.get(key) or ()) for key in (*_NEEDED, "lead", "facts", "files", "commands")}
    for key, needed in _NEEDED.items():
        for k, part in enumerate(whole[key]):
            if missing := [n for n in needed if n not in part]:
                raise ValueError(f"entry {k + 1} of {key!r} needs {', '.join(needed)}, and {missing[0]!r} is missing")
    for part in whole["reliability"]:
        fitting(_where("reliability", part), part["bins"], RELIABILITY)
    for part in whole["curves"]:
        fitting(_where("curve", part), part, ("coverage", "risk"))
    for part in whole["training"]:
        fitting(_where("training", part), part, ("epochs", "mean", *(k for k in ("low", "high") if part.get(k))))
    for key, width in (("scatter", 2), ("ablation", 4)):
        for part in whole[key]:
            if odd := [p for p in part["points"] if len(p) != width]:
                raise ValueError(f"{_where(key, part)} needs points of {width} numbers, got {len(odd[0])}")
    # What cannot be drawn at all is no part of the page.
    whole["curves"] = [c for c in whole["curves"] if drawn.numbers_of(c["risk"])]
    whole["training"] = [t for t in whole["training"] if t["epochs"] and drawn.numbers_of(t["mean"])]
    whole["scatter"] = [g for g in whole["scatter"] if drawn.known_points(g)]
    whole["ablation"] = [a for a in whole["ablation"] if drawn.known_values(a)]
    return dict(document) | whole


def _where(word: str, part: Part) -> str:
    return f"the comparison, {word} of {str(part['name'])[:80]!r},"


def _fading() -> str:
    """Style: where one points at a method, in a legend or a chart, the others fade and its shade is shown."""
    return "".join(
        f".focus:has(.s{k}:hover) .drawn:not(.s{k}){{opacity:.12}}"
        f".focus:has(.s{k}:hover) .shade:not(.s{k}){{opacity:0}}"
        f".focus:has(.s{k}:hover) .shade.s{k}{{opacity:.22}}"
        for k in range(drawn.COLOURS)
    )


def _lead(document: Part) -> str:
    lead = "".join(f"<p>{escape(sentence)}</p>" for sentence in document["lead"])
    facts = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(value)}</dd></div>" for term, value in document["facts"])
    failed = len(document["failures"])
    words = f"{count(failed)} run{'s' * (failed != 1)} failed, and {'are' if failed != 1 else 'is'} missing here."
    return (
        (f'<div class="lead">{lead}</div>' if lead else "")
        + (f'<dl class="facts">{facts}</dl>' if facts else "")
        + (
            f'<div class="own fair"><p class="level">{icon("fair")}<span>Incomplete</span></p>'
            f'<p class="title"><a href="#failures">{words}</a></p></div>'
            if failed
            else ""
        )
    )


def _tables(document: Part, look: Mapping[str, Look]) -> Section | None:
    body = ""
    for k, part in enumerate(document["tables"]):
        title = str(part.get("title") or f"Table {k + 1}")
        note = f'<p class="lede">{escape(part["note"])}</p>' if part.get("note") else ""
        table = plain(part["html"])
        shown = table if re.match(r"\s*<div[^>]*\bscroll\b", table) else tables.framed(table, title)
        body += f'<div class="results"><h3>{escape(title)}</h3>{note}{shown}</div>'
    return Section("results", "Results", "Results", body) if body else None


def _effects(document: Part, look: Mapping[str, Look]) -> Section | None:
    if not document["effects"]:
        return None
    level = finite(document.get("level"))
    lede = (
        '<p class="lede">Differences between runs of the same seed: a ring for each, the upright line for their mean, '
        f"the bar for {'the' if level is None else f'its {round_percent(level)}'} interval; the grey line is zero. "
        "Every row has a scale of its own.</p>"
    )
    heads = (("Claim", ""), ("By seed", ""), ("Mean difference", ' class="num"'), ("Verdict", ""))
    top = "".join(f'<th scope="col"{kind}>{head}</th>' for head, kind in heads)
    body = "".join(map(_effect, document["effects"]))
    table = (
        f'<table class="effects stack"><caption class="unseen">Effects and whether they hold</caption><thead><tr>{top}'
        f"</tr></thead><tbody>{body}</tbody></table>"
    )
    return Section("effects", "Which effects hold", "Effects", lede + tables.framed(table, "Effects"))


def _effect(effect: Part) -> str:
    unit = "share" if effect.get("unit") == "share" else "number"
    values = [effect["mean"], *(effect.get("values") or ())]
    ends = difference_span(effect.get("low"), effect.get("high"), unit, values)
    verdict = str(effect.get("verdict") or "unknown")
    sign, kind = _VERDICTS.get(verdict, ("unknown", "unclear"))
    return (
        f'<tr><th scope="row">{escape(effect["claim"])}</th><td class="shown">{drawn.strip(effect, unit)}</td>'
        f'<td class="num"{tables.labelled("Mean difference")}><span class="v">'
        f'{difference(effect["mean"], unit, values)}</span> <span class="ci">{ends}</span></td>'
        f'<td class="change {kind}"{tables.labelled("Verdict")}><span class="says">{icon(sign)}'
        f"<span>{escape(verdict)}</span></span></td></tr>"
    )


def _reliability(document: Part, look: Mapping[str, Look]) -> Section | None:
    unit, made = str(document.get("unit") or "samples"), ""
    for k, part in enumerate(document["reliability"]):
        sums = (("accuracy", "accuracy"), ("confidence", "mean confidence"), ("ece", "ECE"))
        shown = " ".join(f"<span>{word} {percent(part[key])}</span>" for key, word in sums if key in part)
        made += (
            f"<figure>{charts.reliability(f'reliability-{k}', part['bins'], str(part['name']), unit)}"
            f"<figcaption>{_named(part, look)}<p class='sums'>{shown}</p>"
            f"{tables.reliability_numbers(part['bins'], name(part['name']), unit)}</figcaption></figure>"
        )
    caption = (
        f'<div class="lede"><p>Each bar is the accuracy of the {escape(unit)} whose confidence falls in that bin, with '
        "its interval, over the runs of all seeds together. A model that keeps its word ends every bar on the "
        "diagonal. The numbers below a diagram are means over seeds, as in the tables.</p>"
        '<ul class="legend"><li><span class="box bar"></span>accuracy</li>'
        '<li><span class="box over"></span>claimed but not reached: overconfident</li>'
        '<li><span class="box under"></span>reached but not claimed: underconfident</li></ul></div>'
    )
    many = " many" if len(document["reliability"]) > WIDE else ""
    body = f'{caption}<div class="multiples{many}">{made}</div>'
    return Section("reliability", "Confidence against accuracy", "Reliability", body) if made else None


def _named(part: Part, look: Mapping[str, Look]) -> str:
    """A method's name below its own chart, after a dot of its colour."""
    key = f'<span class="key {look[str(part["name"])].colour}"></span>'
    return f'<h3 class="named">{key}{tables.clipped(part["name"])}</h3>'


def _legend(parts: Sequence[Part], look: Mapping[str, Look], kind: str) -> str:
    items = "".join(
        f'<li class="{look[n].colour}">{drawn.swatch(look[n], kind)}{tables.clipped(n)}</li>'
        for n in dict.fromkeys(str(part["name"]) for part in parts)
    )
    return f'<ul class="legend curves">{items}</ul>'


def _numbers(caption: str, heads: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The numbers behind a figure, folded away: words of HTML, the first of a row its name."""
    top = "".join(f'<th scope="col"{" class=num" if k else ""}>{escape(h)}</th>' for k, h in enumerate(heads))
    body = "".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f'<td class="num">{cell}</td>' for cell in cells) + "</tr>"
        for first, cells in rows
    )
    table = f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f"<details><summary>The numbers of this figure</summary>{tables.framed(table, caption)}</details>"


def _curves(document: Part, look: Mapping[str, Look]) -> Section | None:
    curves, unit = document["curves"], str(document.get("unit") or "samples")
    if not curves:
        return None
    lede = (
        '<p class="lede">If a model answers only where it is sure enough, how often is it wrong? The lower line is the '
        "better one; each is of the runs of all seeds together. Point at a method to see it alone.</p>"
    )
    rows = [(name(c["name"]), [percent(_risk_at(c, share)) for share in COVERAGES]) for c in curves]
    numbers = _numbers("Risk at some coverages", ("Method", *map(round_percent, COVERAGES)), rows)
    cut = f"Lines that leave the frame do so for the first few {escape(unit)}." if drawn.cut_off(curves) else ""
    body = (
        f'{lede}<div class="focus single">{_legend(curves, look, "line")}<figure>'
        f"{drawn.risk_coverage('risk-chart', curves, look, unit)}<figcaption>{cut}{numbers}</figcaption></figure></div>"
    )
    return Section("risk", "Answer less, err less", "Risk and coverage", body)


def _risk_at(curve: Part, coverage: float) -> float | None:
    """The risk at the point nearest to a coverage, if it is near."""
    at = nearest(curve["coverage"], coverage)
    return finite(curve["risk"][at]) if abs(curve["coverage"][at] - coverage) <= NEAR else None


def _scatter(document: Part, look: Mapping[str, Look]) -> Section | None:
    groups = document["scatter"]
    if not groups:
        return None
    rows = [(name(g["name"]), [percent(x), percent(y)]) for g in groups for x, y in drawn.known_points(g)]
    numbers = _numbers("Accuracy and ECE of every run", ("Method", "Accuracy", "ECE"), rows)
    body = (
        '<p class="lede">One mark per run. A method that buys its calibration with accuracy lies lower and further '
        f'left.</p><div class="focus single">{_legend(groups, look, "mark")}<figure>'
        f"{drawn.scatter('scatter-chart', groups, look)}<figcaption>{numbers}</figcaption></figure></div>"
    )
    return Section("scatter", "Accuracy against ECE", "Accuracy and ECE", body)


def _ablation(document: Part, look: Mapping[str, Look]) -> Section | None:
    made = ""
    for k, part in enumerate(document["ablation"]):
        metric, parameter = str(part["metric"]), str(part["parameter"])
        unit = drawn.unit_of(metric)
        rows = [
            (escape(value), [quantity(mean, unit), quantity(std, unit) if std else DASH, count(runs)])
            for value, mean, std, runs in drawn.known_values(part)
        ]
        heads = (parameter, drawn.label_of(metric), "Standard deviation", "Runs")
        made += (
            f"<figure>{drawn.ablation(f'ablation-{k}', part, look[str(part['name'])])}<figcaption>{_named(part, look)}"
            f"<p>{escape(drawn.label_of(metric))} by {name(parameter)}</p>"
            f"{_numbers(f'{drawn.label_of(metric)} by {parameter}', heads, rows)}</figcaption></figure>"
        )
    several = any(std for part in document["ablation"] for _, _, std, _ in drawn.known_values(part))
    held_out = any(str(part["metric"]).startswith("val_") for part in document["ablation"])
    lede = (
        ("Means over runs, with one standard deviation to either side where there are several. " if several else "")
        + ("Numbers are of the held-out data, by which settings are chosen; the tables have those of the test data.")
        * held_out
    ).strip()
    body = f'{f"""<p class="lede">{lede}</p>""" if lede else ""}<div class="multiples">{made}</div>'
    return Section("ablation", "How much a setting matters", "Ablation", body) if made else None


def _training(document: Part, look: Mapping[str, Look]) -> Section | None:
    by_metric: dict[str, list[Part]] = {}
    for part in document["training"]:
        by_metric.setdefault(str(part["metric"]), []).append(part)
    if not by_metric:
        return None
    made = ""
    for k, (metric, series) in enumerate(by_metric.items()):
        rows = [(name(s["name"]), _at_the_end(s, drawn.unit_of(metric))) for s in series]
        numbers = _numbers(f"{drawn.label_of(metric)} at the end", ("Method", "Epoch", "Mean", "Range"), rows)
        made += (
            f"<figure>{drawn.training(f'training-{k}', metric, series, look)}<figcaption>"
            f"{escape(drawn.label_of(metric))} by epoch{numbers}</figcaption></figure>"
        )
    crowd = max(map(len, by_metric.values())) > drawn.CROWD
    shaded = "the one you point at has a shade from" if crowd else "the shades go from"
    lede = f'<p class="lede">Lines are means over runs; {shaded} the lower to the upper limit.</p>'
    body = (
        f'{lede}<div class="focus{" crowd" * crowd}">{_legend(document["training"], look, "line")}'
        f'<div class="{"pairs" if len(by_metric) > 1 else "single"}">{made}</div></div>'
    )
    return Section("training", "How training went", "Training", body)


def _at_the_end(series: Part, unit: str) -> list[str]:
    """Epoch, mean and range of the last entry."""
    mean = series["mean"][-1]
    low, high = (series[k][-1] if series.get(k) else None for k in ("low", "high"))
    return [count(series["epochs"][-1]), quantity(mean, unit), span(low, high, unit, mean) or DASH]


def _failures(document: Part, look: Mapping[str, Look]) -> Section | None:
    if not document["failures"]:
        return None
    rows = "".join(
        f'<tr><th scope="row">{tables.clipped(f.get("name") or DASH)}</th>'
        f"<td{tables.labelled('Seed')}>{DASH if f.get('seed') is None else escape(f['seed'])}</td>"
        f"<td{tables.labelled('Run')}><code>{escape(f['run'])}</code></td>"
        f'<td class="why">{escape(f["error"])}</td></tr>'
        for f in document["failures"]
    )
    top = "".join(f'<th scope="col">{head}</th>' for head in ("Method", "Seed", "Run", "Error"))
    table = (
        f'<table class="errors stack"><caption class="unseen">Runs that failed</caption><thead><tr>{top}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
    lede = (
        '<p class="lede">These runs count nowhere above. Running the command again tries those once more that were '
        "stopped from outside; <code>--retry-failed</code> the others too.</p>"
    )
    return Section("failures", "Runs that failed", "Failures", lede + tables.framed(table, "Runs that failed"))


def _files(document: Part, look: Mapping[str, Look]) -> Section | None:
    items = "".join(f"<li>{_linked(str(label), str(path))}</li>" for label, path in document["files"])
    return Section("files", "Files", "Files", f'<ul class="paths">{items}</ul>') if items else None


def _linked(label: str, path: str) -> str:
    """A link to a file beside the page; what does not lie beside it is named only."""
    shown = f"{name(label)}<code>{escape(path)}</code>"
    if path.startswith(("/", "\\")) or not path:
        return shown
    # "./" and quoting: a path is never taken for another scheme's address, nor its # or ? for more than a name.
    target = "./" + quote(path, safe="/", errors="replace")
    return f'<a href="{escape(target)}">{name(label)}</a><code>{escape(path)}</code>'


def _commands(document: Part, look: Mapping[str, Look]) -> Section | None:
    commands = "\n".join(str(command) for command in document["commands"])
    body = (
        f'<div class="command"><pre id="command" tabindex="0"><code>{escape(commands)}</code></pre>'
        '<button type="button" class="copy" hidden>Copy</button></div>'
    )
    return Section("reproduce", "How to reproduce", "Reproduce", body) if commands else None


_SECTIONS = (
    _tables, _effects, _reliability, _curves, _scatter, _ablation, _training, _failures, _files, _commands,
)  # fmt: skip
