"""The audit as one HTML file: verdict first, then the reasons, then every number.

It draws what the document says and computes nothing. The file stands alone: style, script and data are in it, and its
own policy forbids the browser to fetch anything. Without a script everything can still be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from calibrant.report import html
from calibrant.report.document import Part, audited_models, unit_of
from calibrant.report.html import audit_tables, charts, explorer
from calibrant.report.html.svg import bar_legend, coloured, key
from calibrant.report.html.tables import clipped
from calibrant.report.text import DASH, count, escape, finite, magnitude, name, percent, round_percent

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
        >>> document = {"format": "calibrant.audit", "version": 1, "models": [{"name": "test.npz"}]}
        >>> write_audit(path, document | {"verdict": {"level": "unknown", "headline": "Nothing was measured."}})
        >>> "Nothing was measured." in path.read_text(encoding="utf-8")
        True
    """
    models = audited_models(document)
    html.write_report(
        path,
        [section(document, models) for section in _SECTIONS],
        title=document.get("title") or "Can this model's confidence be trusted?",
        kind="Calibrant audit",
        created=document.get("created"),
        top=_verdict(document, models),
        skip="Skip to the findings",
    )


def _section(ident: str, heading: str, short: str, body: str, lede: str = "") -> html.ReportSection | None:
    """A section, if it has a body; the lede is HTML above it."""
    return html.ReportSection(ident, heading, short, lede + body) if body else None


def _level(part: Part) -> str:
    """The level of a verdict or a finding."""
    level = part.get("level")
    return level if isinstance(level, str) and level in _LEVELS else "unknown"


def _verdict(document: Part, models: Sequence[Part]) -> str:
    verdict, is_several, first_name = document["verdict"], len(models) > 1, str(models[0]["name"])
    headline = str(verdict.get("headline") or "No verdict.")
    text = "".join(f"<p><strong>{escape(warning)}</strong></p>" for warning in document.get("warnings") or ())
    text += f"<p>{escape(verdict['text'])}</p>" if verdict.get("text") else ""
    # Of several files the verdict is the first one's, and says so; the others' stand among the findings.
    is_unnamed = is_several and first_name not in headline
    whose = f'<span class="whose">{_key(0)}{clipped(first_name)}</span>' if is_unnamed else ""
    level = _level(verdict)
    files = "".join(_file(model, _key(k) if is_several else "") for k, model in enumerate(models))
    return html.verdict_box(level, _LEVELS[level], escape(headline), text, whose) + f'<ul class="files">{files}</ul>'


def _key(k: int) -> str:
    """A dot in the colour of a file."""
    return key(coloured(k))


def _file(model: Part, dot: str) -> str:
    """What a file holds, in one line, and the notes about reading it."""
    unit = unit_of(model)
    numbers = ((model.get("samples"), unit.removesuffix("s"), unit), (model.get("classes"), "class", "classes"))
    facts = [f"{count(n)} {singular if n == 1 else plural}" for n, singular, plural in numbers if n is not None]
    facts += [escape(model["holds"])] if model.get("holds") else []
    items = "".join(f"<li>{escape(note)}</li>" for note in model.get("notes") or ())
    notes = f'<ul class="notes">{items}</ul>' if items else ""
    summary = f'<span class="facts">{" · ".join(facts)}</span>' if facts else ""
    return f'<li>{dot}<span class="file">{name(model["name"])}</span> {summary}{notes}</li>'


def _heading(models: Sequence[Part], k: int) -> str:
    """The heading of a file's share of a section, where there are several."""
    if len(models) == 1:
        return ""
    return f'<h3 class="named">{_key(k)}{clipped(models[k]["name"])}</h3>'


def _by_file(models: Sequence[Part], show: Callable[[int, Part], str]) -> str:
    """What ``show`` gives for each file, below the file's heading; files without anything are left out."""
    parts = [show(k, model) for k, model in enumerate(models)]
    return "".join(_heading(models, k) + part for k, part in enumerate(parts) if part)


def _findings(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    def show(_: int, model: Part) -> str:
        verdict = _own_verdict(model.get("verdict") or {}) if len(models) > 1 else ""
        items = "".join(map(_finding, model.get("findings") or ()))
        return verdict + (f'<ul class="findings">{items}</ul>' if items else "")

    body = _by_file(models, show) or '<p class="lede">Nothing stands out.</p>'
    return _section("findings", "What stands out", "Findings", body)


def _own_verdict(verdict: Part) -> str:
    """The verdict on one of several files, in a line."""
    if not verdict.get("headline"):
        return ""
    level = _level(verdict)
    line = html.level_line(level, _LEVELS[level])
    return f'<div class="own {level}">{line}<p class="title">{escape(verdict["headline"])}</p></div>'


def _finding(finding: Part) -> str:
    level = _level(finding)
    evidence = f'<p class="evidence">{escape(finding["evidence"])}</p>' if finding.get("evidence") else ""
    return (
        f'<li class="{level}">{html.level_line(level, _LEVELS[level])}'
        f'<p class="title">{escape(finding["title"])}</p><p>{escape(finding.get("text") or "")}</p>{evidence}</li>'
    )


def _policy(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    policy = document.get("policy")
    body = f'<ul class="findings">{_finding(policy)}</ul>{audit_tables.outcome(policy)}' if policy else ""
    if policy and (sets := policy.get("sets")):
        body += f'<h3>Prediction sets</h3><ul class="findings">{_finding(sets)}</ul>'
        body += audit_tables.prediction_sets(sets)
    return _section("policy", "What the policy does here", "Policy", body)


def _fixes(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    def show(_: int, model: Part) -> str:
        return audit_tables.fixes(model["fixes"], "Before and after each fix") if model.get("fixes") else ""

    lede = (
        '<p class="lede">Each fix is measured on samples it was not fitted on; the interval is that of the difference '
        "(pp: percentage points).</p>" + audit_tables.DIFFERENCE_LEGEND
    )
    return _section("fixes", "What a fix would gain", "Fixes", _by_file(models, show), lede)


def _next(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    step = document.get("next") or {}
    lede = f'<p class="lede">{escape(step["text"])}</p>' if step.get("text") else ""
    return _section(
        "next", "What to do next", "Next", lede + (html.command_box(step["command"]) if step.get("command") else "")
    )


def _metrics(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    if not any(model.get("metrics") for model in models):
        return None
    level, replicates = finite(document.get("level")), document.get("replicates")
    lede = ""
    if level is not None:
        origin = f" from {count(replicates)} replicates" if replicates else ""
        lede = f"In brackets the {round_percent(level)} interval{origin}. "
    bounds = [finite(m.get("bound")) or 0.0 for model in models for m in model.get("metrics") or ()]
    if 0 < max(bounds) < 1e-5:
        lede += f"Every value lies within {magnitude(max(bounds))} of its exact definition."
    lede = f'<p class="lede">{lede}</p>' if lede else ""
    return _section("numbers", "Numbers with intervals", "Numbers", audit_tables.metrics(models, level), lede)


def _comparisons(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    lede = (
        '<p class="lede">Both files on the same samples: the interval of the difference is narrower than two intervals '
        "side by side suggest. Differences of shares are in percentage points (pp).</p>"
    )
    body = "".join(map(audit_tables.comparison, document.get("comparisons") or ()))
    return _section("comparisons", "Paired comparisons", "Comparisons", body, lede + audit_tables.DIFFERENCE_LEGEND)


def _figures(
    models: Sequence[Part],
    series: str,
    draw: Callable[[str, Part, str, str], str],
    caption: str,
    numbers: Callable[[Part, str, str], str],
) -> str:
    """One figure per file, side by side, with what explains them once: beside a single one, above several."""
    is_several, figures = len(models) > 1, ""
    for k, model in enumerate(models):
        if part := model.get(series):
            unit = unit_of(model)
            words = (_heading(models, k) or caption) + numbers(part, name(model["name"]), unit)
            figures += html.figure(draw(f"{series}-{k}", part, str(model["name"]), unit), words)
    above = f'<div class="lede">{caption}</div>' if is_several else ""
    return f'{above}<div class="{"multiples" if is_several else "one"}">{figures}</div>' if figures else ""


def _units(models: Sequence[Part]) -> str:
    """A word for what all the files count."""
    units = {unit_of(model) for model in models}
    return units.pop() if len(units) == 1 else "predictions"


def _reliability(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    caption = (
        f"<p>Each bar is the accuracy of the {_units(models)} whose confidence falls in that bin, with its interval. "
        f"A model that keeps its word ends every bar on the diagonal.</p>{charts.RELIABILITY_LEGEND}"
    )
    body = _figures(models, "reliability", charts.reliability, caption, charts.reliability_numbers)
    return _section("reliability", "Confidence against accuracy", "Reliability", body)


def _positive(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    def show(k: int, model: Part) -> str:
        if not (part := model.get("positive")):
            return ""
        title, unit = f"P({part['name']})", unit_of(model)
        chart = charts.reliability(
            f"positive-{k}", part["reliability"], model["name"], unit, (title, "share"), log=True
        )
        numbers = charts.reliability_numbers(part["reliability"], escape(title), unit, (f"Mean {title}", "Happened"))
        why = f"{escape(part['name'])} is {escape(part['why'])}. "
        caption = (
            f"<p>{why}Each bar is how often it happens where the model gives it that probability, with its interval; "
            "counts are on a logarithmic scale, so that rare claims are seen.</p>"
        )
        return f'<div class="one">{html.figure(chart, caption + numbers)}</div>{audit_tables.positive(part)}'

    names = {str(part["name"]) for model in models if (part := model.get("positive"))}
    title = f"The probability of {names.pop()}" if len(names) == 1 else "The probability of the positive class"
    return _section("positive", title, "P(positive)", _by_file(models, show), _constant(models))


def _constant(models: Sequence[Part]) -> str:
    """The error of always answering the majority class, of the first file."""
    majority = models[0].get("majority")
    if not majority:
        return ""
    constant = f"Always answering {name(majority['name'])} is wrong {percent(majority['error']['value'])} of the time"
    return f'<p class="lede">{constant}, the model {percent(majority["model_error"])}.</p>'


def _boxes(*words: str) -> str:
    """A legend whose colours are named by their words."""
    return '<ul class="legend">' + "".join(f'<li><span class="box {w}"></span>{w}</li>' for w in words) + "</ul>"


def _histogram(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    caption = "<p>How often it claims which confidence, and how many of those predictions are right.</p>"
    caption += _boxes("wrong", "right")
    body = _figures(models, "histogram", charts.histogram, caption, charts.histogram_numbers)
    return _section("histogram", "How sure it is, right and wrong", "Histogram", body)


def _objects(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    caption = (
        "<p>Dots are the mean confidence of images whose object covers that share of the image, bars how many of them "
        "are right. Adaptive label smoothing trains towards the diagonal: as sure as the object is large.</p>"
    )
    body = _figures(models, "objects", charts.object_sizes, caption, charts.object_numbers)
    return _section("objects", "Confidence against object size", "Object size", body)


def _risk(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    series = [s for s in explorer.all_series(models) if len(s.curve["coverage"])]
    if not series:
        return None
    msp = " MSP is the confidence: the maximum softmax probability." if any("MSP" in s.label for s in series) else ""
    lede = (
        '<p class="lede">If it answers only where its score is high enough, how often is it wrong? Choose a point by '
        f"the slider, on the curve, or by typing a coverage, a threshold or the risk you can bear.{msp}</p>"
    )
    body = explorer.explorer(series, document.get("level"), _units(models))
    return _section("risk", "Answer less, err less", "Risk and coverage", body, lede)


def _logits(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    caption = (
        "<p>Softmax hides the size of the logits: the same confidence can come from large and from small ones. Where "
        "right and wrong predictions lie at different heights, the largest logit tells what the confidence does not. "
        "Lines are means, shades one standard deviation to either side.</p>"
    )
    caption += _boxes("right", "wrong")
    body = _figures(models, "logits", charts.logit_scatter, caption, lambda *_: "")
    return _section("logits", "Largest logit against confidence", "Logits", body)


def _gap_lede(rows: Sequence[Part], words: str) -> str:
    marked = " Marked rows were flagged by the audit." if any(row.get("flag") for row in rows) else ""
    text = f"Gap is confidence minus {words} in percentage points (pp), with its interval; above 0 is overconfident."
    return f'<p class="lede">{text}{marked}</p>{bar_legend("all gaps and limits of the table")}'


def _classes(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    def show(k: int, model: Part) -> str:
        if not (rows := model.get("classes_table")):
            return ""
        by_label = audit_tables.by_label(f"labels-{k}", model["labels_table"]) if model.get("labels_table") else ""
        by_prediction = audit_tables.population(
            f"classes-{k}", "", rows, noun=("class", "classes"), head="Predicted class", unit=unit_of(model),
            right="Right",
        )  # fmt: skip
        return by_prediction + by_label

    rows = [row for model in models for row in model.get("classes_table") or ()]
    lede = _gap_lede(rows, "the share that is right")
    return _section("classes", "By predicted class", "Predicted classes", _by_file(models, show), lede)


def _groups(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    def show(k: int, model: Part) -> str:
        return "".join(
            audit_tables.population(
                f"groups-{k}-{j}", f"By {name(group['column'])}", group["rows"],
                noun=("group", "groups"), head=str(group["column"]), unit=unit_of(model), right="Accuracy",
            )
            for j, group in enumerate(g for g in model.get("groups") or () if g.get("rows"))
        )  # fmt: skip

    rows = [row for model in models for group in model.get("groups") or () for row in group.get("rows") or ()]
    return _section("groups", "By group", "Groups", _by_file(models, show), _gap_lede(rows, "accuracy"))


def _errors(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    def show(k: int, model: Part) -> str:
        head = {"pixels": "Image", "tokens": "Sequence"}.get(unit_of(model), "Sample")
        rows = model.get("errors")
        return audit_tables.errors(f"errors-{k}", rows, head, model.get("errors_in_all")) if rows else ""

    lede = '<p class="lede">Look at these first: wrong labels, hard samples, or what the model has not learnt.</p>'
    return _section("errors", "Most confident errors", "Errors", _by_file(models, show), lede)


def _method(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    pairs = [(term, text) for term, text in document.get("conventions") or () if _applies(str(term), models)]
    return _section("method", "Method and conventions", "Method", html.terms("terms", pairs))


def _applies(term: str, models: Sequence[Part]) -> bool:
    """Whether a convention is about something on this page."""
    if term in ("By class", "By predicted class"):
        return any(model.get("classes_table") for model in models)
    optional = {"Class-wise ECE": "classwise_ece", "Objectness deviation": "objectness_deviation"}
    if term in optional:
        return any(m["name"] == optional[term] for model in models for m in model.get("metrics") or ())
    return True


def _reproduce(document: Part, models: Sequence[Part]) -> html.ReportSection | None:
    command, level = document.get("reproduce"), finite(document.get("level"))
    facts = [
        ("Calibrant", document.get("calibrant")),
        ("Date", document.get("created")),
        ("Seed", document.get("seed")),
        ("Level of the intervals", None if level is None else round_percent(level)),
        ("Replicates", None if document.get("replicates") is None else count(document["replicates"])),
        ("Document", f"{document['format']}, version {document['version']}"),
    ]
    return html.reproduction(command, [(term, DASH if value is None else value) for term, value in facts])


_SECTIONS = (
    _policy, _findings, _positive, _fixes, _next, _metrics, _comparisons, _reliability, _histogram, _objects, _risk,
    _logits,
    _classes, _groups, _errors, _method, _reproduce,
)  # fmt: skip
