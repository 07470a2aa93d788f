"""Risk against coverage, with controls to find a point: the figure, its first reading and the data for the script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibrant.report.charts import Series, risk_coverage, swatch
from calibrant.report.parts import Part
from calibrant.report.tables import framed
from calibrant.report.text import DASH, count, embedded, escape, finite, percent, plain, round_percent, span, threshold

#: The coverage the page opens with, and those of the table.
OPENING = 0.9
COVERAGES = (0.8, 0.9, 0.95, 1.0)
#: A point further from a coverage of the table than this is not shown in its place.
NEAR = 0.005


def explorer(series: Sequence[Series], level: float | None, unit: str) -> str:
    """The figure with its controls; hidden controls are for the script to show."""
    chosen = (0, nearest(series[0].curve["coverage"], OPENING))
    legend = "".join(f"<li>{swatch(s)}<span>{escape(s.label)}</span></li>" for s in series)
    shade = "the shade is the " + ("" if finite(level) is None else f"{round_percent(level)} ") + "interval"
    thinned = " The page keeps some points of each curve, and finds only those." * (not all(map(_is_whole, series)))
    caption = (
        f"Risk is the error rate among the answered {unit}; {shade} of the chosen curve. The first few {unit} may "
        f"lie above the axis and are cut off there.{thinned} These are measurements on these {unit}, not a guarantee "
        "for others."
    )
    return (
        f'<figure class="explorer" id="explorer"><ul class="legend curves">{legend}</ul><div class="stage"><div>'
        f"{risk_coverage('risk-chart', series, chosen, unit)}{_slider(series, chosen)}</div><div>"
        f"{_finder(series, chosen)}{_reading(series[chosen[0]], chosen[1])}"
        '<p class="status" id="rc-status" role="status"></p></div></div>'
        f"<figcaption>{caption}</figcaption></figure>"
        f"{_table(series)}"
        f'<script type="application/json" id="rc-data">{embedded(_data(series, chosen))}</script>'
    )


def _is_whole(series: Series) -> bool:
    """Whether the curve holds every threshold, so that a search of it is exact; not known counts as no."""
    return bool(series.curve.get("points_all"))


def nearest(values: Sequence[float], wanted: float) -> int:
    """The place of the value nearest to the wanted one, the first of several."""
    return min(range(len(values)), key=lambda i: abs(values[i] - wanted))


def _slider(series: Sequence[Series], chosen: tuple[int, int]) -> str:
    last = len(series[chosen[0]].curve["coverage"]) - 1
    return (
        '<div class="controls slide" hidden><label for="rc-slider">Move along the curve</label>'
        f'<input type="range" id="rc-slider" min="0" max="{last}" step="1" value="{chosen[1]}"></div>'
    )


def _finder(series: Sequence[Series], chosen: tuple[int, int]) -> str:
    options = "".join(
        f'<option value="{k}"{" selected" if k == chosen[0] else ""}>{escape(s.label)}</option>'
        for k, s in enumerate(series)
    )
    choice = f'<div class="field"><label for="rc-curve">Curve</label><select id="rc-curve">{options}</select></div>'
    return (
        f'<div class="controls fields" hidden>{choice if len(series) > 1 else ""}'
        '<div class="field half"><label for="rc-by">Find by</label><select id="rc-by">'
        '<option value="coverage" selected>coverage (%)</option><option value="threshold">threshold</option>'
        '<option value="risk">risk at most (%)</option></select></div>'
        '<div class="field half"><label for="rc-number">Value</label>'
        '<input type="number" id="rc-number" step="any" inputmode="decimal" aria-describedby="rc-status"></div></div>'
    )


def _reading(series: Series, at: int) -> str:
    """What holds at a point. audit.js writes the same texts when the point moves."""
    c = series.curve
    limit = finite(c["threshold"][at])
    items: list[tuple[str, str, str]] = [
        ("score", "Score", escape(series.label)),
        ("threshold", "Threshold, at least", threshold(limit)),
        ("coverage", "Coverage", percent(c["coverage"][at])),
        (
            "risk",
            "Risk",
            f"{percent(c['risk'][at])} {span(c['risk_low'][at], c['risk_high'][at], 'share', c['risk'][at])}",
        ),
        ("accepted", "Answered", count(c["accepted"][at])),
        ("errors", "Errors among them", count(c["errors"][at])),
    ]
    exact = f'<span class="note" data-o="exact">{DASH if limit is None else f"exactly {limit!r}"}</span>'
    made = "".join(
        f'<span class="item"><span class="k">{head}</span> <span class="v" data-o="{key}">{text}</span>'
        f"{exact if key == 'threshold' else ''}</span>"
        for key, head, text in items
    )
    # The slider speaks for itself and typing has a status line; a third voice would only repeat them.
    return f'<output class="reading" id="rc-out" for="rc-slider rc-number" aria-live="off">{made}</output>'


def _table(series: Sequence[Series]) -> str:
    """Risks at round coverages: a legend in numbers, for paper and for readers without a script."""
    heads = "".join(f'<th scope="col" class="num">{round_percent(c)}</th>' for c in COVERAGES)
    body = ""
    for s in series:
        given = _given(s)
        cells = "".join(
            f'<td class="num">{percent(given[c]) if c in given else _at(s.curve, c)}</td>' for c in COVERAGES
        )
        note = "" if given else '<span class="note">read off the curve</span>'
        named = f'<span class="clip" title="{escape(s.label)}">{escape(s.label)}</span>'
        body += f'<tr><th scope="row"><div class="named">{swatch(s)}<div>{named}{note}</div></div></th>{cells}</tr>'
    table = (
        '<table class="risks"><caption>Risk at some coverages</caption><thead><tr>'
        f'<th scope="col">Score</th>{heads}</tr>'
        f"</thead><tbody>{body}</tbody></table>"
    )
    return framed(table, "Risk at some coverages")


def _given(series: Series) -> dict[float, float | None]:
    """The risks that the document states among a file's metrics: those of its confidence."""
    if series.curve.get("score") != "msp":
        return {}
    metrics = {m["name"]: m["value"] for m in series.model.get("metrics") or ()}
    return {c: metrics[f"risk_at_coverage_{c:g}"] for c in COVERAGES if f"risk_at_coverage_{c:g}" in metrics}


def _at(curve: Part, coverage: float) -> str:
    """The risk at the first point that covers so much, as risk at coverage is defined; none if that is far off."""
    i = next((i for i, c in enumerate(curve["coverage"]) if c >= coverage - 1e-9), None)
    return DASH if i is None or curve["coverage"][i] - coverage > NEAR else percent(curve["risk"][i])


def _data(series: Sequence[Series], chosen: tuple[int, int]) -> dict[str, Any]:
    """The curves for the script. What it searches in is whole; limits have nine digits, more than are shown."""

    def shares(values: Sequence[float | None]) -> list[float | None]:
        return [None if finite(v) is None else float(f"{v:.9g}") for v in values]

    curves = [
        {
            "label": plain(s.label),
            "all": _is_whole(s),
            "coverage": [finite(v) for v in s.curve["coverage"]],
            "risk": [finite(v) for v in s.curve["risk"]],
            "low": shares(s.curve["risk_low"]),
            "high": shares(s.curve["risk_high"]),
            "threshold": [finite(v) for v in s.curve["threshold"]],
            "accepted": [int(v) for v in s.curve["accepted"]],
            "errors": [int(v) for v in s.curve["errors"]],
        }
        for s in series
    ]
    return {"chosen": list(chosen), "curves": curves}
