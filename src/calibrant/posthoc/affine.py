"""What vector and matrix scaling share: sums over the logits, and L-BFGS over chunked gradients in float64.

The NLL of u = W z + b needs of the labels only two sums, the number of samples of each class and their summed logits,
and of the rest log-sum-exp and the probabilities: nothing is gathered, and nothing is kept but the gradient.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant.posthoc.stream import Stream
from calibrant.posthoc.temperature import TemperatureScaling

MOST_ITERATIONS = 300
MEMORY = 12  # steps that L-BFGS remembers
AIM, ENOUGH = 1e-7, 1e-6  # of the gradient, relative to its label part: where it stops, and what counts as converged

Doubles = npt.NDArray[np.float64]
Objective = Callable[[Doubles], tuple[float, Doubles]]
Solve = Callable[[Doubles], Doubles]


@dataclass(frozen=True)
class Moments:
    """What one pass finds, all float64 on the CPU.

    Attributes:
        rows: N.
        mean: of each logit, ``[C]``.
        spread: standard deviation of each logit, ``[C]``; 1 where a logit is constant.
        counts: samples of each class, ``[C]``.
        sums: summed logits of the samples of each class, ``[C, C]``, or their diagonal ``[C]``.
        sharpness: 1/T of the fitted temperature.
    """

    rows: int
    mean: Doubles
    spread: Doubles
    counts: Doubles
    sums: Doubles
    sharpness: float


class Minimum(NamedTuple):
    """Where an objective is least, the norm of its gradient there, relative, and whether that is small enough."""

    at: Doubles
    gradient: float
    converged: bool


def strength_of(name: str, value: object) -> float:
    """A parameter that is a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= float(value) < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    return float(value)


def moments(data: Stream, *, full: bool) -> Moments:
    """The temperature, then one pass for the sums; ``full`` for sums of all logits, else of the label's own."""
    temperature = TemperatureScaling()
    temperature._fit(data)
    classes, rows = data.num_classes, 0
    first, total, square, counts = np.zeros((4, classes))
    sums = np.zeros((classes, classes) if full else classes)
    for z, y in data:
        z = z.astype(np.float64, copy=False)
        if not rows:
            first = z.mean(0)  # squares are taken from here, so that a common offset cancels first
        off = z - first
        rows += len(y)
        total += off.sum(0)
        square += np.square(off).sum(0)
        counts += np.bincount(y, minlength=classes)
        if full:
            np.add.at(sums, y, z)
        else:
            sums += np.bincount(y, z[np.arange(len(y)), y], classes)
    spread = np.sqrt(np.maximum(square / rows - np.square(total / rows), 0.0))
    rounding = 1e-12 * (np.abs(first) + np.sqrt(square / rows))
    spread[spread <= rounding] = 1.0
    return Moments(rows, first + total / rows, spread, counts, sums, 1 / temperature.temperature_)


def probabilities(u: Doubles) -> tuple[float, Doubles, Doubles]:
    """The sum of log-sum-exp over the rows of u, and its probabilities as ``exps / total``; u is overwritten."""
    top = u.max(1, keepdims=True)
    u -= top
    exps = np.exp(u, out=u)
    total = exps.sum(1)
    return float(top.sum() + np.log(total).sum()), exps, total


def minimise(
    objective: Objective, start: Doubles, curvature: Callable[[Doubles], Solve], scale: float, *, renew: int
) -> Minimum:
    """L-BFGS on a convex objective.

    Args:
        objective: value and gradient.
        start: where to begin.
        curvature: an approximate inverse of the Hessian at a point, symmetric and positive definite.
        scale: what the gradient's norm is relative to.
        renew: after how many steps the curvature is asked for again.
    """
    x, best = start, (math.inf, start)
    solve: Solve = np.copy
    value, gradient = objective(x)
    steps: list[tuple[Doubles, Doubles, float]] = []
    idle = 0
    for iteration in range(MOST_ITERATIONS):
        norm = float(np.linalg.norm(gradient)) / scale
        idle = 0 if norm < 0.9 * best[0] else idle + 1
        best = min(best, (norm, x), key=lambda pair: pair[0])
        if norm <= AIM or (idle > 10 and best[0] <= ENOUGH) or idle > 60:
            break
        if iteration % renew == 0:
            solve = curvature(x)
        found = _search(objective, x, value, gradient, _direction(gradient, steps, solve))
        if found is None:
            if not steps:
                break
            steps = []  # what was remembered misleads: begin again from here
            continue
        following, value, after = found
        step, change = following - x, after - gradient
        bend = float(step @ change)
        if bend > 1e-14 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            steps = [*steps[1 - MEMORY :], (step, change, bend)]
        x, gradient = following, after
    return Minimum(best[1], best[0], best[0] <= ENOUGH)


def _direction(gradient: Doubles, steps: list[tuple[Doubles, Doubles, float]], solve: Solve) -> Doubles:
    """The two loops of L-BFGS."""
    q, shares = gradient.copy(), []
    for step, change, bend in reversed(steps):
        shares.append(float(step @ q) / bend)
        q -= shares[-1] * change
    q = solve(q)
    if steps:
        _, change, bend = steps[-1]
        q *= bend / max(float(change @ solve(change)), 1e-300)
    for (step, change, bend), share in zip(steps, reversed(shares), strict=True):
        q += (share - float(change @ q) / bend) * step
    return -q


def _search(
    objective: Objective, x: Doubles, value: float, gradient: Doubles, direction: Doubles
) -> tuple[Doubles, float, Doubles] | None:
    """A point along the direction that is lower, or flatter where rounding hides that; None if there is none."""
    slope = float(direction @ gradient)
    if not slope < 0:
        return None
    length, rounding = 1.0, 1e-14 * (abs(value) + 1)
    for _ in range(30):
        following = x + length * direction
        found, after = objective(following)
        ahead = float(direction @ after)
        lower = found <= value + 1e-4 * length * slope
        if lower or (found <= value + rounding and abs(ahead) <= 0.9 * abs(slope)):
            return following, found, after
        # The parabola through value, slope and the new value has its lowest point here.
        drop = found - value - length * slope
        middle = -slope * length * length / (2 * drop) if math.isfinite(drop) and drop > 0 else 0.0
        length = min(max(middle, 0.1 * length), 0.5 * length)
    return None
