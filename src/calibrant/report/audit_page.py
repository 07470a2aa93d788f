"""The audit as one HTML file: verdict first, then the reasons, then every number.

It draws what the document says and computes nothing. The file stands alone: style, script and data are in it, and its
own policy forbids the browser to fetch anything. Without a script everything can still be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from calibrant.report import charts, tables
from calibrant.report.explorer import explorer
from calibrant.report.parts import Part, checked, unit_of
from calibrant.report.sheet import Section, write_sheet
from calibrant.report.svg import icon
from calibrant.report.text import DASH, count, escape, finite, magnitude, name, round_percent

_LEVELS = {"good": "Good", "fair": "Fair", "poor": "Poor", "unknown": "Unknown", "info": "Note"}


def write_audit(path: str | Path, document: Part) -> None:
    """Write an audit as one self-contained HTML file.

    The file needs no network and no other file. Names in the document (of files, classes, samples) are shown as they
    are, whatever they contain. The same document gives the same bytes.

    Args:
        path: where to write; the file appears whole or not at all.
        document: an audit document, as ``Audit.to_json()`` gives it.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp(), "report.html")
        >>> write_audit(
        ...     path,
        ...     {
        ...         "format": "calibrant.audit",
        ...         "version": 1,
        ...         "verdict": {"level": "unknown", "headline": "Nothing was measured."},
        ...         "models": [{"name": "test.npz"}],
        ...     },
        ... )
        >>> "Nothing was measured." in path.read_text(encoding="utf-8")
        True
    """
    models = checked(document)
    write_sheet(
        path,
        [section for make in _SECTIONS for section in [make(document, models)] if section is not None],
        title=document.get("title") or "Can this model's confidence be trusted?",
        kind="Calibrant audit",
        created=document.get("created"),
        top=_verdict(document, models),
        skip="Skip to the findings",
    )


def _level(word: object) -> str:
    return word if isinstance(word, str) and word in _LEVELS else "unknown"


def _judged(level: str) -> str:
    """A level as a sign and its word."""
    return f"{icon(level)}<span>{_LEVELS[level]}</span>"


def _verdict(document: Part, models: Sequence[Part]) -> str:
    verdict = document["verdict"]
    level = _level(verdict.get("level"))
    text = f"<p>{escape(verdict['text'])}</p>" if verdict.get("text") else ""
    several = len(models) > 1
    headline, first = str(verdict.get("headline") or "No verdict."), str(models[0]["name"])
    # Of several files the verdict is the first one's, and says so; the others' stand among the findings.
    unnamed = several and first not in headline
    whose = f'<span class="whose">{charts.key(0)}{tables.clipped(first)}</span>' if unnamed else ""
    files = "".join(_file(m, charts.key(k) if several else "") for k, m in enumerate(models))
    return (
        f'<section class="verdict {level}" aria-labelledby="verdict-h"><p class="level">{_judged(level)}{whose}</p>'
        f'<h2 id="verdict-h">{escape(headline)}</h2>{text}</section>'
        f'<ul class="files">{files}</ul>'
    )


def _file(model: Part, key: str) -> str:
    """What a file holds, in one line, and what there is to say about reading it."""
    things = unit_of(model)
    numbers = ((model.get("samples"), things.removesuffix("s"), things), (model.get("classes"), "class", "classes"))
    facts = [f"{count(n)} {one if n == 1 else many}" for n, one, many in numbers if n is not None]
    facts += [escape(model["holds"])] if model.get("holds") else []
    notes = "".join(f"<li>{escape(note)}</li>" for note in model.get("notes") or ())
    listed = f'<ul class="notes">{notes}</ul>' if notes else ""
    facts_text = f'<span class="facts">{" · ".join(facts)}</span>' if facts else ""
    return f'<li>{key}<span class="file">{name(model["name"])}</span> {facts_text}{listed}</li>'


def _of_file(models: Sequence[Part], k: int) -> str:
    """The heading of a file's share of a section, where there are several."""
    if len(models) == 1:
        return ""
    return f'<h3 class="named">{charts.key(k)}{tables.clipped(models[k]["name"])}</h3>'


def _findings(document: Part, models: Sequence[Part]) -> Section | None:
    body = ""
    for k, model in enumerate(models):
        own = _own_verdict(model) if len(models) > 1 else ""
        items = "".join(_finding(f) for f in model.get("findings") or ())
        listed = f'<ul class="findings">{items}</ul>' if items else ""
        body += _of_file(models, k) + own + listed if own or listed else ""
    return Section("findings", "What stands out", "Findings", body or '<p class="lede">Nothing stands out.</p>')


def _own_verdict(model: Part) -> str:
    """A file's verdict in a line, among several."""
    verdict = model.get("verdict") or {}
    if not verdict.get("headline"):
        return ""
    level = _level(verdict.get("level"))
    return (
        f'<div class="own {level}"><p class="level">{_judged(level)}</p><p class="title">{escape(verdict["headline"])}'
        f"</p></div>"
    )


def _finding(finding: Part) -> str:
    level = _level(finding.get("level"))
    evidence = f'<p class="evidence">{escape(finding["evidence"])}</p>' if finding.get("evidence") else ""
    return (
        f'<li class="{level}"><p class="level">{_judged(level)}</p>'
        f'<p class="title">{escape(finding["title"])}</p><p>{escape(finding.get("text") or "")}</p>{evidence}</li>'
    )


def _policy(document: Part, models: Sequence[Part]) -> Section | None:
    found = document.get("policy")
    if not found:
        return None
    body = f'<ul class="findings">{_finding(found)}</ul>' + tables.outcome(found)
    return Section("policy", "What the policy does here", "Policy", body)


def _fixes(document: Part, models: Sequence[Part]) -> Section | None:
    body = ""
    for k, model in enumerate(models):
        if rows := model.get("fixes"):
            body += _of_file(models, k) + tables.fixes(rows, "Before and after each fix")
    lede = (
        '<p class="lede">Each fix is measured on samples it was not fitted on; the interval is that of the difference '
        "(pp: percentage points).</p>" + tables.difference_legend()
    )
    return Section("fixes", "What a fix would gain", "Fixes", lede + body) if body else None


def _metrics(document: Part, models: Sequence[Part]) -> Section | None:
    if not any(model.get("metrics") for model in models):
        return None
    level, replicates = finite(document.get("level")), document.get("replicates")
    lede = ""
    if level is not None:
        drawn = f" from {count(replicates)} replicates" if replicates else ""
        lede = f"In brackets the {round_percent(level)} interval{drawn}. "
    bounds = [finite(m.get("bound")) or 0.0 for model in models for m in model.get("metrics") or ()]
    if 0 < max(bounds) < 1e-5:
        lede += f"Every value lies within {magnitude(max(bounds))} of its exact definition."
    lede = f'<p class="lede">{lede}</p>' if lede else ""
    return Section("numbers", "Numbers with intervals", "Numbers", lede + tables.metrics(models, level))


def _comparisons(document: Part, models: Sequence[Part]) -> Section | None:
    found = document.get("comparisons") or ()
    lede = (
        '<p class="lede">Both files on the same samples: the interval of the difference is narrower than two intervals '
        "side by side suggest. Differences of shares are in percentage points (pp).</p>"
    )
    body = lede + tables.difference_legend() + "".join(tables.comparison(part) for part in found)
    return Section("comparisons", "Paired comparisons", "Comparisons", body) if found else None


def _figures(
    models: Sequence[Part],
    key: str,
    draw: Callable[[str, Part, str, str], str],
    caption: str,
    numbers: Callable[[Part, str, str], str],
) -> str:
    """One figure per file, side by side, with what explains them once: beside a single one, above several."""
    several, made = len(models) > 1, ""
    for k, model in enumerate(models):
        if part := model.get(key):
            unit = unit_of(model)
            words = _of_file(models, k) or caption
            made += (
                f"<figure>{draw(f'{key}-{k}', part, str(model['name']), unit)}"
                f"<figcaption>{words}{numbers(part, name(model['name']), unit)}</figcaption></figure>"
            )
    above = f'<div class="lede">{caption}</div>' if several else ""
    return f'{above}<div class="{"multiples" if several else "one"}">{made}</div>' if made else ""


def _units(models: Sequence[Part]) -> str:
    """A word for what all the files count."""
    found = {unit_of(model) for model in models}
    return found.pop() if len(found) == 1 else "predictions"


def _reliability(document: Part, models: Sequence[Part]) -> Section | None:
    caption = (
        f"<p>Each bar is the accuracy of the {_units(models)} whose confidence falls in that bin, with its interval. "
        "A model that keeps its word ends every bar on the diagonal.</p>"
        '<ul class="legend"><li><span class="box bar"></span>accuracy</li>'
        '<li><span class="box over"></span>claimed but not reached: overconfident</li>'
        '<li><span class="box under"></span>reached but not claimed: underconfident</li></ul>'
    )
    body = _figures(models, "reliability", charts.reliability, caption, tables.reliability_numbers)
    return Section("reliability", "Confidence against accuracy", "Reliability", body) if body else None


def _histogram(document: Part, models: Sequence[Part]) -> Section | None:
    caption = (
        "<p>How often it claims which confidence, and how many of those predictions are right.</p>"
        '<ul class="legend"><li><span class="box wrong"></span>wrong</li>'
        '<li><span class="box right"></span>right</li></ul>'
    )
    body = _figures(models, "histogram", charts.histogram, caption, tables.histogram_numbers)
    return Section("histogram", "How sure it is, right and wrong", "Histogram", body) if body else None


def _risk(document: Part, models: Sequence[Part]) -> Section | None:
    series = [s for s in charts.all_series(models) if len(s.curve["coverage"])]
    if not series:
        return None
    msp = " MSP is the confidence: the maximum softmax probability." if any("MSP" in s.label for s in series) else ""
    lede = (
        '<p class="lede">If it answers only where its score is high enough, how often is it wrong? Choose a point by '
        f"the slider, on the curve, or by typing a coverage, a threshold or the risk you can bear.{msp}</p>"
    )
    shown = explorer(series, document.get("level"), _units(models))
    return Section("risk", "Answer less, err less", "Risk and coverage", lede + shown)


def _logits(document: Part, models: Sequence[Part]) -> Section | None:
    caption = (
        "<p>Softmax hides the size of the logits: the same confidence can come from large and from small ones. Where "
        "right and wrong predictions part by height, the largest logit tells what confidence does not. Lines are "
        "means, shades one spread to either side.</p>"
        '<ul class="legend"><li><span class="box right"></span>right</li>'
        '<li><span class="box wrong"></span>wrong</li></ul>'
    )
    body = _figures(models, "logits", charts.logit_scatter, caption, lambda *_: "")
    return Section("logits", "Largest logit against confidence", "Logits", body) if body else None


def _gap_lede(tables_of: Sequence[Sequence[Part]], right: str) -> str:
    flagged = any(row.get("flag") for rows in tables_of for row in rows)
    marked = " Marked rows were flagged by the audit." if flagged else ""
    words = (
        f"Gap is confidence minus {right} in percentage points (pp), with its interval; above 0 is overconfident."
        f"{marked}"
    )
    return f'<p class="lede">{words}</p>{charts.bar_legend("all gaps and limits of the table")}'


def _classes(document: Part, models: Sequence[Part]) -> Section | None:
    body = ""
    for k, model in enumerate(models):
        if rows := model.get("classes_table"):
            body += _of_file(models, k) + tables.population(
                f"classes-{k}", "", rows,
                noun=("class", "classes"), head="Predicted class", unit=unit_of(model), right="Right",
            )  # fmt: skip
    lede = _gap_lede([model.get("classes_table") or () for model in models], "the share that is right")
    return Section("classes", "By predicted class", "Predicted classes", lede + body) if body else None


def _groups(document: Part, models: Sequence[Part]) -> Section | None:
    body, seen = "", []
    for k, model in enumerate(models):
        found = [g for g in model.get("groups") or () if g.get("rows")]
        body += _of_file(models, k) if found else ""
        for j, group in enumerate(found):
            seen.append(group["rows"])
            body += tables.population(
                f"groups-{k}-{j}", f"By {name(group['column'])}", group["rows"],
                noun=("group", "groups"), head=str(group["column"]), unit=unit_of(model), right="Accuracy",
            )  # fmt: skip
    return Section("groups", "By group", "Groups", _gap_lede(seen, "accuracy") + body) if body else None


def _errors(document: Part, models: Sequence[Part]) -> Section | None:
    body = ""
    for k, model in enumerate(models):
        if rows := model.get("errors"):
            head = "Image" if unit_of(model) == "pixels" else "Sample"
            table = tables.errors(f"errors-{k}", "Wrong predictions, the surest first", rows, head)
            body += _of_file(models, k) + table
    lede = '<p class="lede">Look at these first: wrong labels, hard samples, or what the model has not learnt.</p>'
    return Section("errors", "Most confident errors", "Errors", lede + body) if body else None


def _method(document: Part, models: Sequence[Part]) -> Section | None:
    pairs = [(term, text) for term, text in document.get("conventions") or () if _applies(str(term), models)]
    listed = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(text)}</dd></div>" for term, text in pairs)
    return Section("method", "Method and conventions", "Method", f'<dl class="terms">{listed}</dl>') if listed else None


def _applies(term: str, models: Sequence[Part]) -> bool:
    """Whether a convention speaks of something on this page."""
    if term in ("By class", "By predicted class"):
        return any(model.get("classes_table") for model in models)
    if term == "Class-wise ECE":
        return any(m["name"] == "classwise_ece" for model in models for m in model.get("metrics") or ())
    return True


def _reproduce(document: Part, models: Sequence[Part]) -> Section | None:
    command, level = document.get("reproduce"), finite(document.get("level"))
    shown = (
        '<div class="command"><pre id="command" tabindex="0"><code>' + escape(command) + "</code></pre>"
        '<button type="button" class="copy" hidden>Copy</button></div>'
        if command
        else ""
    )
    facts = [
        ("Calibrant", document.get("calibrant")),
        ("Date", document.get("created")),
        ("Seed", document.get("seed")),
        ("Level of the intervals", None if level is None else round_percent(level)),
        ("Replicates", None if document.get("replicates") is None else count(document["replicates"])),
        ("Document", f"{document['format']}, version {document['version']}"),
    ]
    listed = "".join(f"<div><dt>{t}</dt><dd>{DASH if v is None else escape(v)}</dd></div>" for t, v in facts)
    return Section("reproduce", "How to reproduce", "Reproduce", f'{shown}<dl class="facts">{listed}</dl>')


_SECTIONS = (
    _policy, _findings, _fixes, _metrics, _comparisons, _reliability, _histogram, _risk, _logits, _classes, _groups,
    _errors, _method, _reproduce,
)  # fmt: skip
