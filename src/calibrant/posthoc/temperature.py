r"""Temperature scaling [Guo2017, Sec. 4.2]: divide the logits by the one number that minimises the NLL.

With :math:`s = 1/T` the NLL is convex in s:

.. math:: f(s) = \frac1N \sum_n \Bigl( \log \sum_j e^{s z_{nj}} - s z_{n y_n} \Bigr), \qquad
          f'(s) = \frac1N \sum_n \bigl( \mathbb{E}_p[z_n] - z_{n y_n} \bigr), \qquad
          f''(s) = \frac1N \sum_n \mathrm{Var}_p[z_n]

f' rises from -A at s = 0 to B at infinity, with A the mean lead of the label's logit over the row's mean and B the mean
lead of the largest logit over the label's. Both are sums, known after one pass, and

.. math:: \varphi(\log s) = \log \frac{f'(s) + A}{B - f'(s)}

is nearly a straight line (its slope is 1 where s is small and about 2 where it is large), so that Halley's method on
:math:`\varphi = \log(A/B)`, with the third derivative from the same pass, needs two to four passes, eight on odd data;
a bracket keeps it safe. With many rows it begins at the root of some of them. The first passes over many float32 logits
are in float32, the last one is always in float64: T is where its derivatives have the root, at most 1e-5 away.

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
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from calibrant.base.arrays import Array, Doubles, sum_along, sum_products
from calibrant.base.checks import MOST_BINS, Bools, Ints, check_choice, check_integer
from calibrant.metrics.kernel import find_largest
from calibrant.posthoc.base import LEAST, Calibrator, Stream, read_numbers
from calibrant.posthoc.ops import Ops, V

FLAT = 1e6  # times the widest spread of a row: a temperature that makes the probabilities as good as uniform
STEEP = 1e20  # over the widest spread of a row: a 1/T at which the smallest gap that rounding leaves has no doubt
LARGE = 1e18  # an s beyond which logits need float64 and a bound
SAMPLE = 2048  # rows, or up to twice as many, that the search begins with where there are 16 times as many
ROUGH = 0.05  # the step, relative to s, after which a root is a start for more rows, or for float64
NEAR = 1e-5  # the step, relative to s, that needs no pass to see where it led
MOST_PASSES = 60  # of a bisection; Halley's method takes a few
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
        gradient_: dNLL/dT at T, from the derivatives of the last pass.
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
        many = data.rows >= 16 * SAMPLE
        z, y = data.sample(SAMPLE if many else 1000)
        s = 2 / _usual_spread(z[:: max(1, len(z) // 1000)])
        # Passes in float32 cost less, which matters where there is much; small data are exact from the start.
        exact = z.dtype == np.float64 or data.rows * data.num_classes < 2**17 or s > LARGE
        if many:
            s = _find_root(Stream(z, y), s, exact=exact, aim=ROUGH).s
        root = _find_root(data, s, exact=exact)
        self._set_temperature(root.s, root.slope)
        if root.ends.widest == 0:  # nothing to learn from rows of equal logits
            self.temperature_, self.converged_ = 1.0, True
        elif not root.ends.has_minimiser:
            self._fit_without_minimiser(data, root.ends, s)
        else:
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
            doubt = data.total(partial(_sum_doubts, s=s))[0] / ends.rows
            points.append((math.log(s), -math.log(doubt) if doubt > 0 else math.inf))
            if abs(points[-1][1] - target) < 1e-3 or (s == 1.0 and points[-1][1] >= target):
                break
        self._set_temperature(s, _derivatives(data, s).slope / s)

    def _choose(self, data: Stream, grid: tuple[float, ...]) -> None:
        if self.objective == "nll":
            values, rows = data.total(partial(_sum_nlls, grid=grid))
        else:
            bins = check_integer("bins", self.bins, 1, MOST_BINS)
            gaps, rows = data.total(partial(_sum_gaps, grid=grid, bins=bins))
            values = np.abs(gaps).sum(1)
        best = values.min() / rows
        equal = [t for t, value in zip(grid, values / rows, strict=True) if value <= best + 1e-12 * abs(best)]
        temperature = min(equal, key=lambda t: (abs(math.log(t)), t))
        self._set_temperature(1 / temperature, _derivatives(data, 1 / temperature).slope * temperature)
        self.temperature_, self.objective_ = temperature, float(best)
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

    @property
    def has_minimiser(self) -> bool:
        return self.above > 0 and self.lead > 0 and self.widest > 0


class _Derivatives(NamedTuple):
    """s f', s^2 f'' and s^3 f''': of s z, they are of the size of 1 whatever that of z."""

    slope: float
    curvature: float
    third: float
    ends: _Ends


class _Root(NamedTuple):
    """Where f' is 0, and f' there; where there is no minimiser, the s of the first pass."""

    s: float
    slope: float
    ends: _Ends


def _find_root(data: Stream, s: float, *, exact: bool, aim: float = 0.0) -> _Root:
    """The root of f' from s on, in float64 at last; or, in the type it begins with, to within a step of ``aim``."""
    low, high, ends, settled = 0.0, math.inf, None, False
    for _ in range(MOST_PASSES):
        derivatives = _derivatives(data, s, np.float64 if exact else np.float32, ends)
        slope, curvature, third, ends = derivatives
        root = _Root(s, slope / s, ends)
        if not ends.has_minimiser:
            break
        if exact:  # near the root float32 may have the wrong sign, and what it shut out would stay out
            low, high = (s, high) if slope < 0 else (low, s)
        following = _step(s, derivatives, low, high)
        share = (following - s) / s
        if exact and abs(share) <= NEAR:
            root = _Root(following, (slope + share * (curvature + share / 2 * third)) / s, ends)
            small = abs(root.slope) * root.s**2 < 1e-10
            if small or settled or abs(share) <= 1e-13:
                break
        elif abs(share) <= aim:
            return _Root(following, 0.0, ends)
        settled = exact and abs(share) <= 1e-9  # the next one would be rounding
        # Once float32 has nothing more to say than the next step, float64 has.
        exact = exact or (abs(share) <= ROUGH and not aim)
        s = following
    return root


def _derivatives(data: Stream, s: float, dtype: Any = np.float64, ends: _Ends | None = None) -> _Derivatives:
    """The derivatives at s, in one pass, which also finds the ends if they are not known."""
    sums, widest, rows = np.zeros(5), 0.0, 0
    for part, spread, count in data.map(partial(_sum_derivatives, s=s, dtype=dtype, first=ends is None)):
        sums += part
        widest = max(widest, spread)
        rows += count
    slope, curvature, third, lead, above = (float(total) / rows for total in sums)
    return _Derivatives(slope, curvature, third, ends or _Ends(lead, above, rows, widest))


def _sum_derivatives(z: Array, y: Ints, *, s: float, dtype: Any, first: bool) -> tuple[Array, float, int]:
    """Sums over rows ``[n, C]``, the widest spread of a row, and n.

    The sums are of the three derivatives, and, which the first pass alone needs, of the label's lead over the mean and
    of its lag behind the largest.
    """
    x, axis, at_label, _ = relative(z, y, dtype)
    lead = float((at_label - sum_along(x, axis) / z.shape[1]).sum()) if first else 0.0
    widest = -float(x.min()) if first else 0.0
    if s > LARGE:  # s x might be infinite; from here on the probability is 0
        np.maximum(x, -1e3 / s, out=x)
    x *= x.dtype.type(s)
    exps = np.exp(x)
    total = sum_along(exps, axis).astype(np.float64, copy=False)
    exps *= x
    mean = sum_along(exps, axis) / total
    exps *= x
    square = sum_along(exps, axis) / total
    cube = sum_products(exps, x, axis) / total
    variance = np.maximum(square - mean * mean, 0.0)
    third = cube - mean * (3 * square - 2 * mean * mean)
    sums = np.array([(mean - s * at_label).sum(), variance.sum(), third.sum(), lead, -at_label.sum()])
    return sums, widest, len(y)


def _step(s: float, derivatives: _Derivatives, low: float, high: float) -> float:
    """The next s: Halley's step on phi, or, where that leaves the bracket, the middle of its logarithm."""
    slope, curvature, third, ends = derivatives
    above_start, below_end = slope + s * ends.lead, s * ends.above - slope
    following = math.nan
    if above_start > 0 and below_end > 0 and curvature > 0:
        rise = curvature * (1 / above_start + 1 / below_end)
        bend = (curvature + third) * rise / curvature + curvature**2 * (below_end**-2 - above_start**-2)
        step = (math.log(above_start / below_end) - math.log(ends.lead / ends.above)) / rise
        share = step * bend / (2 * rise)
        step /= 1 - share if abs(share) < 0.5 else 1.0  # Newton's where phi bends much
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


def relative(z: Array, y: Ints, dtype: Any = np.float64) -> tuple[Array, int, Doubles, Bools]:
    """Logits relative to the largest of their row, their axis of classes, the label's, and whether it is predicted."""
    x, axis, predicted, top, position = find_largest(z, "logits", np.result_type(dtype, z.dtype))
    at_label = x.reshape(-1)[position(y)].astype(np.float64) - top
    x -= np.expand_dims(top.astype(x.dtype, copy=False), axis)
    return x, axis, at_label, predicted == y


def _sum_doubts(z: Array, y: Ints, *, s: float) -> tuple[float]:
    """The sum of 1 - confidence at s."""
    x, axis, _, _ = relative(z, y)
    odds = sum_along(np.exp(s * x), axis) - 1  # of the other classes against the largest
    return (float((odds / (1 + odds)).sum()),)


def _sum_nlls(z: Array, y: Ints, *, grid: tuple[float, ...]) -> tuple[Doubles, int]:
    """The sum of the NLL at every temperature, and the number of rows."""
    x, axis, at_label, _ = relative(z, y)
    return np.array([(np.log(sum_along(np.exp(x / t), axis)) - at_label / t).sum() for t in grid]), len(y)


def _sum_gaps(z: Array, y: Ints, *, grid: tuple[float, ...], bins: int) -> tuple[Doubles, int]:
    """The sum of confidence - correctness in the ECE's bins (lo, hi] at every temperature, and the number of rows."""
    x, axis, _, correct = relative(z, y)
    gaps = np.empty((len(grid), bins))
    for gap, t in zip(gaps, grid, strict=True):
        confidence = 1 / sum_along(np.exp(x / t), axis)
        cell = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
        gap[:] = np.bincount(cell, confidence - correct, bins)
    return gaps, len(y)
