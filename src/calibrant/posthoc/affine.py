r"""Vector and matrix scaling: weights and biases of the logits, by exact minimisation of a convex objective.

**Vector scaling** [Guo2017, Sec. 4.2]: each logit has a weight and an offset of its own.

.. math:: u_c = w_c z_c + b_c, \qquad \min_{w, b} \; \frac1N \sum_n -\log \mathrm{softmax}(u_n)_{y_n}
          + \frac{\alpha}{N} \sum_c \frac1N \sum_n \bigl( u_{nc} - z_{nc} / T \bigr)^2

=============  ==============================================
paper letter   variable
=============  ==============================================
W (diagonal)   ``weight_``
b              ``bias_``
=============  ==============================================

Departure: the second term. The NLL alone has no minimiser when a class is missing or the classes are separable; this
pulls the new logits, in mean square over the data, towards those of temperature scaling. It is that of a normal prior:
with :math:`\alpha` = ``strength`` = 0.1 a class's logit moves by :math:`\sqrt 5 \approx 2.2` (one standard deviation)
before the data are asked, and a few dozen samples of a class outweigh it. ``strength=0`` is the paper's.

**Matrix scaling** [Guo2017, Sec. 4.2] with off-diagonal and intercept regularisation, ODIR [Kull2019].

.. math:: u = W z + b, \qquad \min_{W, b} \; \frac1N \sum_n -\log \mathrm{softmax}(u_n)_{y_n}
          + \frac{\lambda}{K(K-1)} \sum_{i \neq j} W_{ij}^2 + \frac{\mu}{K} \sum_i b_i^2

=============  ==============================================
paper letter   variable
=============  ==============================================
lambda         ``off_diagonal``
mu             ``intercept``
W, b           ``weight_``, ``bias_``
=============  ==============================================

Values: the paper's code tries :math:`\lambda = \{1, 1/4, 1/2\} 10^k` and :math:`\mu = 10^k`, k from -5 (10 classes) or
-2 (100 classes) to 6, by five-fold cross-validation. What others quote from its authors as chosen for networks on
CIFAR-100 is :math:`\lambda` from 0.25 to 2.5 and mostly :math:`\mu = 0.01`; the defaults, 0.5 and 0.01, are those of
ResNet-110. On CIFAR-10 it was mostly 0.1 to 0.5 and 1e-5. With few samples per class, choose a larger :math:`\lambda`:
the matrix has K^2 numbers.

Departure: nothing in the paper holds the diagonal when the classes are separable. It is pulled towards 1/T of
temperature scaling by ``strength`` / N times the mean square of :math:`(W_{ii} - 1/T)(z_i - \bar z_i)`, summed over
i, as in vector scaling. ``strength=0`` is the paper's.

Both problems are convex, and the fits start from temperature scaling, where every penalty is 0: the NLL on the fitting
data is never above its. L-BFGS does the rest, in float64, with a curvature that is computed again every few steps: of
vector scaling it is the Hessian (class by class where there are many); of matrix scaling a Kronecker product, for the
Hessian is the mean of :math:`(\mathrm{diag}\,p - p p^\top) \otimes x x^\top`, and stands for the product of the two
means. The NLL needs of the labels only the number of samples of each class and their summed logits: nothing is
gathered, and nothing is kept but the gradient. Unlike in a softmax, a common offset of a row has an effect: the logits
are taken as they come.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from calibrant.base.arrays import Array, Doubles
from calibrant.base.checks import Ints, check_number
from calibrant.posthoc.base import Calibrator, Stream, read_numbers
from calibrant.posthoc.ops import Ops, V
from calibrant.posthoc.temperature import fit_temperature

MOST_ITERATIONS = 300
MEMORY = 12  # steps that L-BFGS remembers
AIM, ENOUGH = 1e-7, 1e-6  # of the gradient, relative to its label part: where it stops, and what counts as converged
_PAIRED = 256  # classes up to which the Hessian is taken as a whole, and beyond which class by class
_HESSIAN = 8e9  # rows x classes^2 that it may take; then only some rows are used
_FLAT = 1e-4  # of the typical curvature: the least that is assumed

Solve = Callable[[Doubles], Doubles]


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
    def _problem(self, data: Stream) -> _Problem: ...

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


class VectorScaling(Affine):
    """A weight and a bias for each class, by exact minimisation of the NLL.

    Args:
        strength: pull towards temperature scaling, in samples; 0 for none.

    Attributes:
        weight_: w, ``[C]``.
        bias_: b, ``[C]``.
        gradient_: norm of the objective's gradient, relative to that of its label part.
        converged_: whether that is at most 1e-6.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import VectorScaling
        >>> generator = torch.Generator().manual_seed(0)
        >>> honest = 2 * torch.randn(4000, 3, generator=generator)
        >>> labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
        >>> off = torch.tensor([1.0, 2.0, 4.0]) * honest + torch.tensor([0.0, 0.0, 4.0])
        >>> scaling = VectorScaling().fit(off, labels)
        >>> (scaling.weight_ * [1, 2, 4]).round(1), scaling.converged_
        (array([1., 1., 1.]), True)
    """

    name = "vector"
    title = "Vector scaling"
    weight_dims = 1
    renew = 8

    def __init__(self, strength: float = 0.1) -> None:
        self.strength = strength

    def _problem(self, data: Stream) -> _Problem:
        return _VectorProblem(data, check_number("strength", self.strength, 0.0))

    def apply(self, ops: Ops[V], z: V) -> V:
        """W z + b."""
        return ops.add(ops.mul(z, ops.constant(self.weight_)), ops.constant(self.bias_))


class MatrixScaling(Affine):
    """A matrix and a bias for the logits, by exact minimisation of the NLL with ODIR.

    Args:
        off_diagonal: penalty on the mean square of the entries off the diagonal.
        intercept: penalty on the mean square of the biases.
        strength: pull of the diagonal towards temperature scaling, in samples; 0 for none.

    Attributes:
        weight_: W, ``[C, C]``; row i gives the new logit i.
        bias_: b, ``[C]``.
        gradient_: norm of the objective's gradient, relative to that of its label part.
        converged_: whether that is at most 1e-6.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import MatrixScaling
        >>> generator = torch.Generator().manual_seed(0)
        >>> honest = 2 * torch.randn(4000, 3, generator=generator)
        >>> labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
        >>> mixed = honest + 0.5 * honest.roll(1, 1)
        >>> scaling = MatrixScaling(off_diagonal=0.01).fit(mixed, labels)
        >>> calibrated = torch.as_tensor(scaling.transform(mixed)).softmax(1)
        >>> bool((calibrated - honest.softmax(1)).abs().mean() < 0.02), scaling.converged_
        (True, True)
    """

    name = "matrix"
    title = "Matrix scaling"
    weight_dims = 2
    renew = 12

    def __init__(self, off_diagonal: float = 0.5, intercept: float = 0.01, *, strength: float = 0.1) -> None:
        self.off_diagonal = off_diagonal
        self.intercept = intercept
        self.strength = strength

    def _problem(self, data: Stream) -> _Problem:
        return _MatrixProblem(data, *(check_number(name, value, 0.0) for name, value in self.get_params().items()))

    def apply(self, ops: Ops[V], z: V) -> V:
        """W z + b."""
        return ops.add(ops.matmul(z, np.ascontiguousarray(self.weight_.T)), ops.constant(self.bias_))


class _Problem(ABC):
    """A convex objective of a vector x, which stands for the weights and biases in numbers of like size.

    Logits and probabilities are ``[C, n]`` here: there every operation runs along the rows.
    """

    start: Doubles

    def __init__(self, data: Stream, *, full: bool) -> None:
        self.data, self.classes, self.threaded = data, data.num_classes, not full
        self.sharpness = 1 / fit_temperature(data).temperature_
        # Squares are taken from here, so that a common offset cancels.
        centre: Doubles = data.sample(1000)[0].mean(0, dtype=np.float64)
        moments = data.total(partial(_sum_moments, centre=centre, full=full), threaded=not full)
        self.rows, total, square, counts, sums = moments
        self.mean = centre + total / self.rows  # of each logit, [C]
        square = np.maximum(square / self.rows - np.square(total / self.rows), 0.0)
        self.spread = np.sqrt(square)  # standard deviation of each logit, [C]; 1 where it is constant
        self.spread[self.spread <= 1e-12 * np.abs(self.mean)] = 1.0
        self.labels = self.standard(sums, counts) / self.rows
        self.scale = float(np.linalg.norm(self.labels))  # what the gradient's norm is relative to

    @abstractmethod
    def raw(self, x: Doubles) -> tuple[Doubles, Doubles]:
        """The weights and biases of the logits themselves."""

    @abstractmethod
    def standard(self, by_weight: Doubles, by_bias: Doubles) -> Doubles:
        """The gradient by x of the gradients by weights and biases."""

    @abstractmethod
    def scaled(self, z: Doubles, weight: Doubles) -> Doubles:
        """W z."""

    @abstractmethod
    def by_weight(self, exps: Doubles, share: Doubles, z: Doubles) -> Doubles:
        """The sum over rows of p z, or of p z^T, with p = exps * share."""

    @abstractmethod
    def penalty(self, x: Doubles) -> tuple[float, Doubles]:
        """What is added to the NLL, and its gradient."""

    @abstractmethod
    def curvature(self, x: Doubles) -> Solve:
        """An approximate inverse of the Hessian at x, symmetric and positive definite."""

    def objective(self, x: Doubles) -> tuple[float, Doubles]:
        """Value and gradient, in one pass."""
        weight, bias = self.raw(x)

        def work(z: Array, _: Ints) -> tuple[float, Doubles, Doubles]:
            z = _by_class(z)
            logs, exps, share = self.exponentials(z, weight, bias)
            by_bias = np.einsum("ij,j->i", exps, share)
            return logs, self.by_weight(exps, share, z), by_bias

        logs, by_weight, by_bias = self.data.total(work, threaded=self.threaded)
        penalty, pull = self.penalty(x)
        gradient = self.standard(by_weight, by_bias) / self.rows - self.labels + pull
        return logs / self.rows - float(x @ self.labels) + penalty, gradient

    def exponentials(self, z: Doubles, weight: Doubles, bias: Doubles) -> tuple[float, Doubles, Doubles]:
        """The sum of log-sum-exp over the rows, and the probabilities as exponentials times a share for each row."""
        u = self.scaled(z, weight)
        u += bias[:, None]
        top = u.max(0)
        u -= top
        exps = np.exp(u, out=u)
        total = exps.sum(0)
        return float((top + np.log(total)).sum()), exps, 1 / total


def _by_class(z: Array) -> Doubles:
    return np.ascontiguousarray(z.T, np.float64)


def _sum_moments(z: Array, y: Ints, *, centre: Doubles, full: bool) -> tuple[int, Doubles, Doubles, Array, Doubles]:
    """Rows; sums and squares of each logit from the centre; samples of each class; their summed logits.

    The last are of all logits, ``[C, C]``, if ``full``, else of the class's own, ``[C]``.
    """
    z = _by_class(z)
    classes, rows = z.shape
    counts = np.bincount(y, minlength=classes)
    sums: Any = np.eye(classes)[:, y] @ z.T if full else np.bincount(y, z[y, np.arange(rows)], classes)
    z -= centre[:, None]
    return rows, z.sum(1), np.square(z).sum(1), counts, sums


class _VectorProblem(_Problem):
    """The objective in u = v (z - mean) / spread + a, x = (v, a): there the pull is a plain square of x - start."""

    def __init__(self, data: Stream, strength: float) -> None:
        super().__init__(data, full=False)
        self.pull = strength / self.rows
        self.start = self.sharpness * np.concatenate([self.spread, self.mean])

    def raw(self, x: Doubles) -> tuple[Doubles, Doubles]:
        v, a = np.split(x, 2)
        weight = v / self.spread
        return weight, a - weight * self.mean

    def standard(self, by_weight: Doubles, by_bias: Doubles) -> Doubles:
        return np.concatenate([(by_weight - self.mean * by_bias) / self.spread, by_bias])

    def scaled(self, z: Doubles, weight: Doubles) -> Doubles:
        return z * weight[:, None]

    def by_weight(self, exps: Doubles, share: Doubles, z: Doubles) -> Doubles:
        exps *= z
        return np.einsum("ij,j->i", exps, share)

    def penalty(self, x: Doubles) -> tuple[float, Doubles]:
        off = x - self.start
        return self.pull * float(off @ off), 2 * self.pull * off

    def curvature(self, x: Doubles) -> Solve:
        """The inverse of the Hessian: all of it for up to `_PAIRED` classes, from rows spread over all of them."""
        weight, bias = self.raw(x)
        classes, paired = self.classes, self.classes <= _PAIRED
        step = max(1, round(self.rows * classes * (classes if paired else 4) / _HESSIAN))

        def work(z: Array, _: Ints) -> tuple[int, Doubles, Doubles]:
            z = _by_class(z[::step])
            p, share = self.exponentials(z, weight, bias)[1:]
            p *= share
            x = (z - self.mean[:, None]) / self.spread[:, None]
            stacked = np.concatenate([p * x, p]) if paired else np.zeros((0, 0))
            q = p if paired else p * (1 - p)
            # Sums of p x^2, p x and p, to which the sums of pairs belong; class by class, of p (1 - p) instead.
            return z.shape[1], np.array([(q * x * x).sum(1), (q * x).sum(1), q.sum(1)]), stacked @ stacked.T

        rows, blocks, pairs = self.data.total(work, threaded=not paired)
        blocks = blocks / rows
        blocks[[0, 2]] += 2 * self.pull + 1e-9 * blocks.max() + 1e-12
        if not paired:
            return partial(_solve_blocks, blocks)
        hessian = pairs / -rows
        cells = hessian.reshape(2, classes, 2, classes)
        diagonal = np.arange(classes)
        cells[:, diagonal, :, diagonal] += np.moveaxis(blocks[[0, 1, 1, 2]].reshape(2, 2, classes), 2, 0)
        try:
            # Inverted once for many steps; scipy.linalg would solve instead, but takes a fifth of a second to import.
            root = np.linalg.inv(np.linalg.cholesky(hessian))
        except np.linalg.LinAlgError:  # logits of very different sizes: class by class there is nothing to factor
            return partial(_solve_blocks, blocks)
        return lambda g: root.T @ (root @ g)


def _solve_blocks(blocks: Doubles, gradient: Doubles) -> Doubles:
    """Divide by the 2 x 2 matrices of each class."""
    v, a = np.split(gradient, 2)
    square, mixed, plain = blocks
    share = 1 / (square * plain - np.square(mixed))
    return np.concatenate([share * (plain * v - mixed * a), share * (square * a - mixed * v)])


class _MatrixProblem(_Problem):
    """The objective in u = V z / T + b, with the numbers (V, b) of a row ``[C, C + 1]`` in one vector."""

    def __init__(self, data: Stream, off_diagonal: float, intercept: float, strength: float) -> None:
        super().__init__(data, full=True)
        classes, self.eye = self.classes, np.eye(self.classes)
        # Penalties of each entry of W, and of each bias.
        self.on_weight = off_diagonal / (classes * (classes - 1)) * (1 - self.eye)
        self.on_weight += np.diag(strength / self.rows * np.square(self.spread))
        self.on_bias = intercept / classes
        self.start = np.pad(self.eye, ((0, 0), (0, 1))).reshape(-1)

    def raw(self, x: Doubles) -> tuple[Doubles, Doubles]:
        rows = x.reshape(self.classes, self.classes + 1)
        return self.sharpness * rows[:, :-1], rows[:, -1].copy()

    def standard(self, by_weight: Doubles, by_bias: Doubles) -> Doubles:
        return np.concatenate([self.sharpness * by_weight, by_bias[:, None]], 1).reshape(-1)

    def scaled(self, z: Doubles, weight: Doubles) -> Doubles:
        return weight @ z

    def by_weight(self, exps: Doubles, share: Doubles, z: Doubles) -> Doubles:
        exps *= share
        return exps @ z.T

    def penalty(self, x: Doubles) -> tuple[float, Doubles]:
        weight, bias = self.raw(x)
        off = weight - self.sharpness * self.eye
        pull = self.on_weight * off
        return float((pull * off).sum()) + self.on_bias * float(bias @ bias), self.standard(
            2 * pull, 2 * self.on_bias * bias
        )

    def curvature(self, x: Doubles) -> Solve:
        """The inverse of the Kronecker product, its diagonal corrected for the penalties."""
        weight, bias = self.raw(x)

        def work(z: Array, _: Ints) -> tuple[Doubles, Doubles, float]:
            z = _by_class(z)
            p, share = self.exponentials(z, weight, bias)[1:]
            p *= share
            # A row counts in the second factor by what it adds to the first one's trace.
            unsure = np.maximum(1 - np.square(p).sum(0), 1e-12)
            extended = np.pad(self.sharpness * z, ((0, 1), (0, 0)), constant_values=1.0)
            return np.diag(p.sum(1)) - p @ p.T, (extended * unsure) @ extended.T, float(unsure.sum())

        outer, inner, doubt = self.data.total(work, threaded=False)
        outer, inner = outer / self.rows, inner / doubt
        penalty = np.pad(2 * self.sharpness**2 * self.on_weight, ((0, 0), (0, 1)), constant_values=2 * self.on_bias)
        plain = outer.diagonal()[:, None] * inner.diagonal() + 1e-12
        # What stands for the penalty in directions that the data do not bend; too large is slow, too small leaps.
        typical = float(plain.mean())
        base = max(min(float(penalty.max()), typical), _FLAT * typical)
        excess = np.sqrt((plain + base) / (plain + np.maximum(penalty, base)))
        (rise, left), (tilt, right) = np.linalg.eigh(outer), np.linalg.eigh(inner)
        bends = np.maximum(rise, 0)[:, None] * np.maximum(tilt, 0) + base

        def solve(g: Doubles) -> Doubles:
            turned = left.T @ (excess * g.reshape(outer.shape[0], -1)) @ right
            return (excess * (left @ (turned / bends) @ right.T)).reshape(-1)

        return solve


class Minimum(NamedTuple):
    """Where an objective is least, and the norm of its gradient there, relative."""

    x: Doubles
    gradient: float


def minimise(problem: _Problem, *, renew: int) -> Minimum:
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
        point = _search(problem, x, value, gradient, _direction(gradient, steps, solve))
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
    problem: _Problem, x: Doubles, value: float, gradient: Doubles, direction: Doubles
) -> tuple[Doubles, float, Doubles] | None:
    """A point along the direction that is lower, or flatter where rounding hides that; None if there is none."""
    slope = float(direction @ gradient)
    if not slope < 0:
        return None
    length, rounding = 1.0, 1e-14 * (abs(value) + 1)
    for _ in range(30):
        following = x + length * direction
        height, after = problem.objective(following)
        lower = height <= value + 1e-4 * length * slope
        if lower or (height <= value + rounding and abs(float(direction @ after)) <= 0.9 * abs(slope)):
            return following, height, after
        # The parabola through value, slope and the new value has its lowest point here.
        drop = height - value - length * slope
        middle = -slope * length * length / (2 * drop) if math.isfinite(drop) and drop > 0 else 0.0
        length = min(max(middle, 0.1 * length), 0.5 * length)
    return None
