"""What vector and matrix scaling share: the fit of ``W z + b``, sums over the logits, and L-BFGS in float64.

The NLL of u = W z + b needs of the labels only two sums, the number of samples of each class and their summed logits,
and of the rest log-sum-exp and the probabilities: nothing is gathered, and nothing is kept but the gradient.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from calibrant.base.arrays import Doubles
from calibrant.posthoc.base import Calibrator, Stream, read_numbers
from calibrant.posthoc.temperature import fit_temperature

MOST_ITERATIONS = 300
MEMORY = 12  # steps that L-BFGS remembers
AIM, ENOUGH = 1e-7, 1e-6  # of the gradient, relative to its label part: where it stops, and what counts as converged

Objective = Callable[[Doubles], tuple[float, Doubles]]
Solve = Callable[[Doubles], Doubles]


class Problem(Protocol):
    """A convex objective in a vector x."""

    start: Doubles
    scale: float  #: what the gradient's norm is relative to

    def objective(self, x: Doubles) -> tuple[float, Doubles]:
        """Value and gradient, in one pass."""

    def curvature(self, x: Doubles) -> Solve:
        """An approximate inverse of the Hessian at x, symmetric and positive definite."""

    def raw(self, x: Doubles) -> tuple[Doubles, Doubles]:
        """The weights and biases of the logits themselves."""


class Affine(Calibrator):
    """A calibrator that learns weights and biases by exact minimisation of a convex objective."""

    learned = "weight_"
    weight_dims: ClassVar[int]
    renew: ClassVar[int]  #: steps with one curvature

    weight_: Doubles
    bias_: Doubles
    gradient_: float
    converged_: bool

    @abstractmethod
    def _problem(self, data: Stream) -> Problem: ...

    def _fit(self, data: Stream) -> None:
        problem = self._problem(data)
        minimum = minimise(problem, renew=self.renew)
        self.weight_, self.bias_ = problem.raw(minimum.x)
        self.gradient_, self.converged_ = minimum.gradient, minimum.gradient <= ENOUGH

    def _state(self) -> dict[str, Any]:
        return {"weight": self.weight_.tolist(), "bias": self.bias_.tolist()}

    def _restore(self, state: Mapping[str, Any], num_classes: int) -> None:
        weight = read_numbers(state, "weight", (num_classes,) * self.weight_dims)
        self.weight_, self.bias_ = weight, read_numbers(state, "bias", (num_classes,))


@dataclass(frozen=True)
class Moments:
    """What one pass sums up, all float64."""

    rows: int  # N
    mean: Doubles  # of each logit, ``[C]``
    spread: Doubles  # standard deviation of each logit, ``[C]``; 1 where a logit is constant
    counts: Doubles  # samples of each class, ``[C]``
    sums: Doubles  # summed logits of the samples of each class, ``[C, C]``, or their diagonal ``[C]``
    sharpness: float  # 1/T of the fitted temperature


def compute_moments(data: Stream, *, full: bool) -> Moments:
    """The temperature, then one pass for the sums; ``full`` for sums of all logits, else of the label's own."""
    temperature = fit_temperature(data).temperature_
    classes, rows = data.num_classes, 0
    centre, total, square, counts = np.zeros((4, classes))
    sums = np.zeros((classes, classes) if full else classes)
    for z, y in data:
        z = z.astype(np.float64, copy=False)
        if not rows:
            centre = z.mean(0)  # squares are taken from here, so that a common offset cancels
        off = z - centre
        rows += len(y)
        total += off.sum(0)
        square += np.square(off).sum(0)
        counts += np.bincount(y, minlength=classes)
        if full:
            np.add.at(sums, y, z)
        else:
            sums += np.bincount(y, z[np.arange(len(y)), y], classes)
    spread = np.sqrt(np.maximum(square / rows - np.square(total / rows), 0.0))
    rounding = 1e-12 * (np.abs(centre) + np.sqrt(square / rows))
    spread[spread <= rounding] = 1.0
    return Moments(rows, centre + total / rows, spread, counts, sums, 1 / temperature)


def exponentials(u: Doubles) -> tuple[float, Doubles, Doubles]:
    """The sum of log-sum-exp over the rows of u, and its probabilities as ``exps / total``; u is overwritten."""
    top = u.max(1, keepdims=True)
    u -= top
    exps = np.exp(u, out=u)
    total = exps.sum(1)
    return float(top.sum() + np.log(total).sum()), exps, total


class Minimum(NamedTuple):
    """Where an objective is least, and the norm of its gradient there, relative."""

    x: Doubles
    gradient: float


def minimise(problem: Problem, *, renew: int) -> Minimum:
    """L-BFGS; the curvature is computed again after every ``renew`` steps.

    SciPy's L-BFGS-B takes no curvature, and so two to four times as many passes: 68 against 19 for vector scaling of
    100 classes, 439 against 111 for matrix scaling.
    """
    x, best = problem.start, Minimum(problem.start, math.inf)
    solve: Solve = np.copy
    value, gradient = problem.objective(x)
    steps: list[tuple[Doubles, Doubles, float]] = []
    idle = 0
    for iteration in range(MOST_ITERATIONS):
        norm = float(np.linalg.norm(gradient)) / problem.scale
        idle = 0 if norm < 0.9 * best.gradient else idle + 1
        best = min(best, Minimum(x, norm), key=lambda minimum: minimum.gradient)
        if norm <= AIM or (idle > 10 and best.gradient <= ENOUGH) or idle > 60:
            break
        if iteration % renew == 0:
            solve = problem.curvature(x)
        point = _search(problem.objective, x, value, gradient, _direction(gradient, steps, solve))
        if point is None:
            if not steps:
                break
            steps = []  # what was remembered misleads: begin again from here
            continue
        following, value, after = point
        step, change = following - x, after - gradient
        bend = float(step @ change)
        if bend > 1e-14 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            steps = [*steps[1 - MEMORY :], (step, change, bend)]
        x, gradient = following, after
    return best


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
        height, after = objective(following)
        lower = height <= value + 1e-4 * length * slope
        if lower or (height <= value + rounding and abs(float(direction @ after)) <= 0.9 * abs(slope)):
            return following, height, after
        # The parabola through value, slope and the new value has its lowest point here.
        drop = height - value - length * slope
        middle = -slope * length * length / (2 * drop) if math.isfinite(drop) and drop > 0 else 0.0
        length = min(max(middle, 0.1 * length), 0.5 * length)
    return None
