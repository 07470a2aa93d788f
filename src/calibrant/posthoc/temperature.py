r"""Temperature scaling [Guo2017, Sec. 4.2]: divide the logits by the one number that minimises the NLL.

With :math:`s = 1/T` the NLL is convex in s:

.. math:: f(s) = \frac1N \sum_n \Bigl( \log \sum_j e^{s z_{nj}} - s z_{n y_n} \Bigr), \qquad
          f'(s) = \frac1N \sum_n \bigl( \mathbb{E}_p[z_n] - z_{n y_n} \bigr), \qquad
          f''(s) = \frac1N \sum_n \mathrm{Var}_p[z_n]

f' rises from -A at s = 0 to B at infinity, with A the mean lead of the label's logit over the row's mean and B the mean
lead of the largest logit over the label's. Both are sums, known after one pass, and

.. math:: \varphi(\log s) = \log \frac{f'(s) + A}{B - f'(s)}

is nearly a straight line (its slope is 1 where s is small and about 2 where it is large), so that Newton's method on
:math:`\varphi = \log(A/B)` needs three to six passes, eight on odd data; a bracket keeps it safe. The first passes over
many float32 logits are in float32, the last ones always in float64.

Where there is no minimiser, this is the answer, and ``converged_`` is False:

====================================  =================================================================================
every label has the largest logit     T at which the mean confidence is about (N + 1) / (N + 2), Laplace's rule of
(B = 0): T would go to 0              succession; never above 1
labels lie no higher than the mean    1e6 times the widest spread of a row: the probabilities are as good as uniform
(A <= 0): T would go to infinity
logits constant in every row          1, and it is a minimiser as any other T is
====================================  =================================================================================

A fit on a single class, or with all predictions wrong, is like any other.

``objective="ece"`` minimises the ECE instead, which has many local minima: over a grid, by default of 200 temperatures,
evenly spaced in their logarithm from 0.05 to 20. The papers' own grids: LR (``grid="lr"``): 0.25, 0.5, 0.75, 1 to 2 by
0.1, 2.5, 3; MbLS (``grid="mbls"``): 0.1 to 10 by 0.1, as its Table 1 prints T. All of a grid takes one pass; of equally
good temperatures the one nearest to 1 is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from calibrant.base.arrays import Array
from calibrant.base.checks import MOST_BINS, Ints, check_choice, check_integer
from calibrant.metrics.kernel import find_largest, sum_products
from calibrant.posthoc.base import LEAST, Calibrator, Stream, read_numbers
from calibrant.posthoc.ops import Ops, V

FLAT = 1e6  # times the widest spread of a row: a temperature that makes the probabilities as good as uniform
STEEP = 1e20  # over the widest spread of a row: a 1/T at which the smallest gap that rounding leaves has no doubt
MOST_PASSES = 60  # of a bisection; Newton's method takes a few
GRIDS: dict[str, tuple[float, ...]] = {
    "lr": (0.25, 0.5, 0.75, *(round(1 + 0.1 * i, 1) for i in range(11)), 2.5, 3.0),
    "mbls": tuple(round(0.1 * i, 1) for i in range(1, 101)),
}
_FINE = tuple(float(t) for t in np.geomspace(0.05, 20.0, 200))


class TemperatureScaling(Calibrator):
    """One temperature for all logits, by exact minimisation of the NLL.

    Args:
        objective: what is minimised, ``"nll"`` or ``"ece"``.
        grid: temperatures to choose from: ``"lr"``, ``"mbls"`` or numbers; None for the exact minimiser of the NLL, and
            for 200 temperatures from 0.05 to 20 with the ECE.
        bins: of the ECE.

    Attributes:
        temperature_: the fitted T.
        gradient_: dNLL/dT at T.
        converged_: whether |dNLL/dT| < 1e-8 there; of a grid's choice nothing of the kind is asked.
        objective_: the value of the objective at T; None for the exact minimiser, which does not need it.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import TemperatureScaling
        >>> generator = torch.Generator().manual_seed(0)
        >>> honest = 2 * torch.randn(4000, 10, generator=generator)
        >>> labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
        >>> scaling = TemperatureScaling().fit(3 * honest, labels)
        >>> 2.8 < scaling.temperature_ < 3.2, abs(scaling.gradient_) < 1e-8, scaling.passes_ <= 8
        (True, True, True)
        >>> TemperatureScaling(grid="lr", objective="ece").fit(3 * honest, labels).temperature_
        3.0
    """

    name = "temperature"
    title = "Temperature scaling"
    learned = "temperature_"
    keeps_order = True

    temperature_: float
    gradient_: float
    converged_: bool
    objective_: float | None

    def __init__(
        self,
        objective: Literal["nll", "ece"] = "nll",
        *,
        grid: Literal["lr", "mbls"] | Sequence[float] | None = None,
        bins: int = 15,
    ) -> None:
        self.objective = objective
        self.grid = grid
        self.bins = bins

    def _fit(self, data: Stream) -> None:
        check_choice("objective", self.objective, ("nll", "ece"))
        grid = self._grid()
        if grid is None:
            self._minimise(data)
            data.temperature = self
        else:
            self._choose(data, grid)

    def _grid(self) -> tuple[float, ...] | None:
        if self.grid is None:
            return None if self.objective == "nll" else _FINE
        if isinstance(self.grid, str):
            if self.grid not in GRIDS:
                raise ValueError(f"grid must be 'lr', 'mbls' or temperatures, got {self.grid!r}")
            return GRIDS[self.grid]
        grid = tuple(float(t) for t in self.grid)
        if not grid or not all(0 < t < math.inf for t in grid):
            raise ValueError(f"grid must be temperatures above 0, got {self.grid!r}")
        return grid

    def _minimise(self, data: Stream) -> None:
        z, _ = data.sample(1000)
        # A pass in float32 costs half, which matters where there is much; small data are exact from the start.
        exact = z.dtype == np.float64 or z.size < 2**17
        s = 2 / _usual_spread(z)
        low, high, ends, settled = 0.0, math.inf, None, False
        for _ in range(MOST_PASSES):
            slope, curvature, ends = _derivatives(data, s, np.float64 if exact else np.float32, ends)
            self._set_temperature(s, slope)
            if ends.widest == 0:  # nothing to learn from rows of equal logits
                self.temperature_, self.converged_ = 1.0, True
                return
            if ends.above == 0 or ends.lead <= 0:
                self._fit_without_minimiser(data, ends, s)
                return
            if exact:  # near the root float32 may have the wrong sign, and what it shut out would stay out
                low, high = (s, high) if slope < 0 else (low, s)
            following = _newton(s, slope, curvature, ends, low, high)
            step = abs(following - s) / s
            small = abs(self.gradient_) < 1e-10 and step <= 1e-7
            if exact and (small or settled or step <= 1e-13):
                break
            settled = exact and step <= 1e-9  # the next one would be rounding
            # Once float32 has nothing more to say, float64 has.
            exact = exact or step <= 1e-3
            s = following
        self.converged_ = abs(self.gradient_) < 1e-8

    def _set_temperature(self, s: float, slope: float) -> None:
        self.temperature_, self.gradient_ = 1 / s, -slope * s * s
        self.converged_, self.objective_ = False, None

    def _fit_without_minimiser(self, data: Stream, ends: _Ends, s: float) -> None:
        if ends.above > 0:
            self._set_temperature(1 / (FLAT * ends.widest), -ends.lead)
            return
        target = math.log(ends.rows + 2)  # -log of the doubt that the rule of succession leaves
        points: list[tuple[float, float]] = []
        # Where logits tie, some doubt remains however large s is; beyond this no other gap of float64 leaves any.
        most = math.log(min(STEEP / ends.widest, 1e300))
        # The doubt falls about as 1 / s once s is large.
        for guess in (1.0, max(2.0, s * ends.rows / 8), *[math.nan] * 4):
            s = math.exp(min(_secant(points, target), most)) if math.isnan(guess) else guess
            doubt = _doubt(data, s)
            points.append((math.log(s), -math.log(doubt) if doubt > 0 else math.inf))
            if abs(points[-1][1] - target) < 1e-3 or (s == 1.0 and points[-1][1] >= target):
                break
        self._set_temperature(s, _derivatives(data, s).slope)

    def _choose(self, data: Stream, grid: tuple[float, ...]) -> None:
        values = _nlls(data, grid) if self.objective == "nll" else _eces(data, grid, self.bins)
        best = min(values)
        equal = [t for t, value in zip(grid, values, strict=True) if value <= best + 1e-12 * abs(best)]
        temperature = min(equal, key=lambda t: (abs(math.log(t)), t))
        self._set_temperature(1 / temperature, _derivatives(data, 1 / temperature).slope)
        self.temperature_, self.objective_ = temperature, best
        self.converged_ = abs(self.gradient_) < 1e-8

    def apply(self, ops: Ops[V], z: V) -> V:
        """Logits over T."""
        return ops.div(z, ops.constant(self.temperature_))

    def _state(self) -> dict[str, Any]:
        return {"temperature": self.temperature_}

    def _restore(self, state: Mapping[str, Any], num_classes: int) -> None:
        self.temperature_ = float(read_numbers(state, "temperature", (), low=LEAST))


def fit_temperature(data: Stream) -> TemperatureScaling:
    """Temperature scaling of the data, fitted once however many calibrators begin with it."""
    if data.temperature is None:
        data.temperature = TemperatureScaling().fit(data)
    scaling: TemperatureScaling = data.temperature
    return scaling


class _Ends(NamedTuple):
    """What does not depend on s: A and B of the module's docstring, the number of rows, the widest spread of a row."""

    lead: float
    above: float
    rows: int
    widest: float


class _Derivatives(NamedTuple):
    slope: float
    curvature: float
    ends: _Ends


def _derivatives(data: Stream, s: float, dtype: Any = np.float64, ends: _Ends | None = None) -> _Derivatives:
    """f' and f'' at s, in one pass, which also finds the ends if they are not known."""
    sums, widest, rows = np.zeros(4), 0.0, 0
    for part, spread, count in data.map(lambda z, y: _sum_derivatives(z, y, s, dtype, first=ends is None)):
        sums += part
        widest = max(widest, spread)
        rows += count
    slope, curvature, lead, above = (float(total) / rows for total in sums)
    return _Derivatives(slope, curvature, ends or _Ends(lead, above, rows, widest))


def _sum_derivatives(z: Array, y: Ints, s: float, dtype: Any, *, first: bool) -> tuple[Array, float, int]:
    """Sums over rows ``[n, C]``, the widest spread of a row, and n.

    The sums are of the slope and of the curvature, and, which the first pass alone needs, of the label's lead over the
    mean and of its lag behind the largest.
    """
    z, axis, _, top, position = find_largest(z, "logits")
    at_label = z.reshape(-1)[position(y)].astype(np.float64) - top
    shifted = np.subtract(z, np.expand_dims(top.astype(z.dtype), axis), dtype=np.result_type(dtype, z.dtype))
    lead = float((at_label - shifted.mean(axis, dtype=np.float64)).sum()) if first else 0.0
    widest = -float(shifted.min()) if first else 0.0
    exps = shifted * shifted.dtype.type(s)
    np.exp(exps, out=exps)
    total = exps.sum(axis).astype(np.float64)
    exps *= shifted
    mean = exps.sum(axis) / total
    variance = np.maximum(sum_products(exps, shifted, axis) / total - np.square(mean), 0.0)
    sums = np.array([(mean - at_label).sum(), variance.sum(), lead, -at_label.sum()])
    return sums, widest, len(y)


def _newton(s: float, slope: float, curvature: float, ends: _Ends, low: float, high: float) -> float:
    """The next s: Newton's step on phi, or, where that leaves the bracket, the middle of its logarithm."""
    above_start, below_end = slope + ends.lead, ends.above - slope
    following = math.nan
    if above_start > 0 and below_end > 0 and curvature > 0:
        rise = s * curvature * (1 / above_start + 1 / below_end)
        step = (math.log(above_start / below_end) - math.log(ends.lead / ends.above)) / rise
        following = s * math.exp(-step) if abs(step) < 50 else math.nan
        if abs(step) <= 1e-9:  # at the root, where rounding decides the signs that make the bracket
            return following
    if low < following < high:
        return following
    if low == 0 or high == math.inf:
        return s * 16 if slope < 0 else s / 16
    return math.sqrt(low * high)


def _usual_spread(z: Array) -> float:
    """The standard deviation of a row's logits as most rows have it; 1 where all are constant."""
    spread = z.astype(np.float64).std(1)
    spread = np.sort(spread[spread > 0])
    return float(spread[(len(spread) - 1) // 2]) if len(spread) else 1.0


def _secant(points: list[tuple[float, float]], target: float) -> float:
    """Where a line through the last two points reaches the target, between the points around it if there are any."""
    (x0, y0), (x1, y1) = points[-2:]
    low = max((x for x, y in points if y < target), default=-math.inf)
    high = min((x for x, y in points if y >= target), default=math.inf)
    slope = (y1 - y0) / (x1 - x0) if len(points) > 2 and math.isfinite(y0 + y1) and x0 != x1 else 1.0
    x = x1 + (target - y1) / slope if slope > 0 else math.nan
    if low < x < high:
        return x
    return (low + high) / 2 if math.isfinite(high) else low + 4


def _shifted(data: Stream) -> Iterator[tuple[Array, Array]]:
    """Logits relative to the largest of their row, float64, and labels."""
    for z, y in data:
        yield z.astype(np.float64) - z.max(1, keepdims=True), y


def _doubt(data: Stream, s: float) -> float:
    """The mean of 1 - confidence at s."""
    doubt, rows = 0.0, 0
    for shifted, y in _shifted(data):
        odds = np.exp(s * shifted).sum(1) - 1  # of the other classes against the largest
        doubt += float((odds / (1 + odds)).sum())
        rows += len(y)
    return doubt / rows


def _nlls(data: Stream, grid: tuple[float, ...]) -> list[float]:
    """The NLL at every temperature, in one pass."""
    sums, rows = np.zeros(len(grid)), 0
    for shifted, y in _shifted(data):
        at_label = shifted[np.arange(len(y)), y]
        sums += [(np.log(np.exp(shifted / t).sum(1)) - at_label / t).sum() for t in grid]
        rows += len(y)
    return (sums / rows).tolist()


def _eces(data: Stream, grid: tuple[float, ...], bins: int) -> list[float]:
    """The ECE at every temperature, in one pass: gaps of equal-width bins (lo, hi] add up."""
    bins = check_integer("bins", bins, 1, MOST_BINS)
    gaps, rows = np.zeros((len(grid), bins)), 0
    for shifted, y in _shifted(data):
        correct = shifted.argmax(1) == y
        for gap, t in zip(gaps, grid, strict=True):
            confidence = 1 / np.exp(shifted / t).sum(1)
            cell = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
            gap += np.bincount(cell, confidence - correct, bins)
        rows += len(y)
    return (np.abs(gaps).sum(1) / rows).tolist()
