"""Risk against coverage, with controls to find a point: the figure, its first reading and the data for the script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibrant.metrics import COVERAGES as MEASURED_COVERAGES
from calibrant.report import html
from calibrant.report.document import Part, risk_top
from calibrant.report.html.svg import Plot, Point, coloured, short
from calibrant.report.html.tables import number_table
from calibrant.report.text import (
    DASH,
    count,
    embedded,
    escape,
    finite,
    isolated,
    percent,
    plain,
    round_percent,
    span,
    threshold,
)

#: The coverage the page opens with, and those of the table.
OPENING = 0.9
COVERAGES = (*MEASURED_COVERAGES, 1.0)
#: A point further from a coverage of the table than this is not shown in its place.
NEAR = 0.005
#: The number of line patterns in the page's style.
DASHES = 4


@dataclass(frozen=True)
class Series:
    """A curve on the shared axis: of which model, and how it looks."""

    model: Part
    curve: Part
    colour: int
    dash: int
    label: str

    @property
    def look(self) -> str:
        """The classes that give it its colour and line pattern."""
        return f"{coloured(self.colour)} d{self.dash % DASHES}"


def all_series(models: Sequence[Part]) -> list[Series]:
    """Every curve of every file: with several files the colour tells the file and the pattern the score."""
    is_several = len(models) > 1
    series = []
    for m, model in enumerate(models):
        for k, curve in enumerate(model.get("curves") or ()):
            label = str(curve.get("label") or curve.get("score"))
            label = f"{isolated(model['name'])}: {isolated(label)}" if is_several else isolated(label)
            series.append(Series(model, curve, m if is_several else k, k, label))
    return series


def _chart(ident: str, series: Sequence[Series], selection: tuple[int, int], unit: str) -> str:
    """All curves on one axis, the interval of the chosen one, and a marker that the page's script moves."""
    plot = Plot(640, 400, (0, 1), (0, risk_top([s.curve for s in series])), margin=(66, 16, 14, 50))
    plot.axes(f"coverage: share of {unit} answered", "risk: error rate of the answers", round_percent, round_percent)
    bands, lines = [], []
    for k, s in enumerate(series):
        on = " on" if k == selection[0] else ""
        points = _points(s.curve["coverage"], s.curve["risk"])
        low, high = (_points(s.curve["coverage"], s.curve[f"risk_{end}"]) for end in ("low", "high"))
        if low and high:
            shape = plot.path([*high, *reversed(low)]) + "Z"
            bands.append(f'<path class="band {s.look}{on}" data-k="{k}" d="{shape}"/>')
        lines.append(f'<path class="curve {s.look}{on}" data-k="{k}" d="{plot.path(points)}"/>')
    plot.add(plot.clipped(*bands, *lines))
    curve, point = series[selection[0]].curve, selection[1]
    x, y = plot.at_x(curve["coverage"][point]), plot.at_y(min(plot.y[1], finite(curve["risk"][point]) or 0.0))
    left, right, top, bottom = (short(v) for v in plot.margin)
    foot = short(plot.height - plot.margin[3])
    plot.add(
        f'<g class="marker" data-left="{left}" data-right="{right}" data-top="{top}" data-bottom="{bottom}" '
        f'data-most="{plot.y[1]:.9g}"><line class="guide" x1="{short(x)}" y1="{top}" x2="{short(x)}" y2="{foot}"/>'
        f'<circle cx="{short(x)}" cy="{short(y)}" r="6"/></g>'
    )
    text = (
        f"{len(series)} curve{'s' if len(series) > 1 else ''} of risk against coverage: the further down, the better. "
        "The table below holds the risks at some coverages."
    )
    return plot.render(ident, "Risk-coverage curves", text, "chart wide")


def explorer(series: Sequence[Series], level: float | None, unit: str) -> str:
    """The figure with its controls; hidden controls are for the script to show."""
    selection = (0, nearest(series[0].curve["coverage"], OPENING))
    lines = html.legend(f"{_swatch(s)}<span>{escape(s.label)}</span>" for s in series)
    shade = "the shade is the " + ("" if finite(level) is None else f"{round_percent(level)} ") + "interval"
    thinned = " The page keeps some points of each curve, and finds only those." * (not all(map(_is_complete, series)))
    caption = (
        f"Risk is the error rate among the answered {unit}; {shade} of the chosen curve. The first few {unit} may "
        f"lie above the axis and are cut off there.{thinned} These are measurements on these {unit}, not a guarantee "
        "for others."
    )
    return (
        f'<figure class="explorer" id="explorer">{lines}<div class="stage"><div>'
        f"{_chart('risk-chart', series, selection, unit)}{_slider(series, selection)}</div><div>"
        f"{_finder(series, selection)}{_reading(series[selection[0]], selection[1])}"
        '<p class="status" id="rc-status" role="status"></p></div></div>'
        f"<figcaption>{caption}</figcaption></figure>"
        f"{_table(series)}"
        f'<script type="application/json" id="rc-data">{embedded(_data(series, selection))}</script>'
    )


def _is_complete(series: Series) -> bool:
    """Whether the curve holds every threshold, so that a search of it is exact; not known counts as no."""
    return bool(series.curve.get("points_all"))


def nearest(values: Sequence[float], target: float) -> int:
    """The index of the value nearest to the target, the first of several."""
    return min(range(len(values)), key=lambda i: abs(values[i] - target))


def _slider(series: Sequence[Series], selection: tuple[int, int]) -> str:
    end = len(series[selection[0]].curve["coverage"]) - 1
    return (
        '<div class="controls slide" hidden><label for="rc-slider">Move along the curve</label>'
        f'<input type="range" id="rc-slider" min="0" max="{end}" step="1" value="{selection[1]}"></div>'
    )


def _finder(series: Sequence[Series], selection: tuple[int, int]) -> str:
    options = "".join(
        f'<option value="{k}"{" selected" if k == selection[0] else ""}>{escape(s.label)}</option>'
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
    """What holds at a point. report.js writes the same texts when the point moves."""
    c = series.curve
    limit = finite(c["threshold"][at])
    interval = span(c["risk_low"][at], c["risk_high"][at], "share", c["risk"][at])
    items = [
        ("score", "Score", escape(series.label)),
        ("threshold", "Threshold, at least", threshold(limit)),
        ("coverage", "Coverage", percent(c["coverage"][at])),
        ("risk", "Risk", f"{percent(c['risk'][at])} {interval}"),
        ("accepted", "Answered", count(c["accepted"][at])),
        ("errors", "Errors among them", count(c["errors"][at])),
    ]
    exact = f'<span class="note" data-o="exact">{DASH if limit is None else f"exactly {limit!r}"}</span>'
    readings = "".join(
        f'<span class="item"><span class="k">{head}</span> <span class="v" data-o="{key}">{text}</span>'
        f"{exact if key == 'threshold' else ''}</span>"
        for key, head, text in items
    )
    # The slider speaks for itself and typing has a status line; a third voice would only repeat them.
    return f'<output class="reading" id="rc-out" for="rc-slider rc-number" aria-live="off">{readings}</output>'


def _table(series: Sequence[Series]) -> str:
    """Risks at round coverages: a legend in numbers, for paper and for readers without a script."""
    rows = []
    for s in series:
        stated = _stated_risks(s)
        cells = [percent(stated[c]) if c in stated else _risk_at(s.curve, c) for c in COVERAGES]
        note = "" if stated else '<span class="note">read off the curve</span>'
        label = f'<span class="clip" title="{escape(s.label)}">{escape(s.label)}</span>'
        rows.append((f'<div class="named">{_swatch(s)}<div>{label}{note}</div></div>', cells))
    words = ("Score", *map(round_percent, COVERAGES))
    return number_table("risks tiles", "Risk at some coverages", words, rows)


def _stated_risks(series: Series) -> dict[float, float | None]:
    """The risks that the document states among a file's metrics: those of its confidence."""
    if series.curve.get("score") != "msp":
        return {}
    metrics = {m["name"]: m["value"] for m in series.model.get("metrics") or ()}
    return {c: metrics[f"risk_at_coverage_{c:g}"] for c in COVERAGES if f"risk_at_coverage_{c:g}" in metrics}


def _risk_at(curve: Part, coverage: float) -> str:
    """The risk at the first point that covers so much, as risk at coverage is defined; none if that is far off."""
    i = next((i for i, c in enumerate(curve["coverage"]) if c >= coverage - 1e-9), None)
    return DASH if i is None or curve["coverage"][i] - coverage > NEAR else percent(curve["risk"][i])


def _data(series: Sequence[Series], selection: tuple[int, int]) -> dict[str, Any]:
    """The curves for the script. What it searches in is exact; limits have nine digits, more than are shown."""

    def shares(values: Sequence[float | None]) -> list[float | None]:
        return [None if finite(v) is None else float(f"{v:.9g}") for v in values]

    curves = [
        {
            "label": plain(s.label),
            "all": _is_complete(s),
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
    return {"chosen": list(selection), "curves": curves}


def _points(xs: Sequence[float], ys: Sequence[float | None]) -> list[Point]:
    return [(x, float(y)) for x, y in zip(xs, ys, strict=True) if y is not None and finite(y) is not None]


def _swatch(series: Series) -> str:
    """The look of a curve, for legends."""
    stroke = f'<path class="curve {series.look}" d="M1 5H27"/>'
    return f'<svg class="swatch" viewBox="0 0 28 10" aria-hidden="true">{stroke}</svg>'
