r"""Matrix scaling [Guo2017, Sec. 4.2] with off-diagonal and intercept regularisation, ODIR [Kull2019].

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

The problem is convex; the fit starts from W = I/T, b = 0, where every penalty is 0, so that its NLL on the fitting data
is never above temperature scaling's. L-BFGS does it, preconditioned by a Kronecker product: the Hessian is the mean of
:math:`(\mathrm{diag}\,p - p p^\top) \otimes x x^\top`, and stands for the product of the two means.
"""

from __future__ import annotations

import numpy as np

from calibrant.base.arrays import Doubles
from calibrant.base.checks import check_number
from calibrant.posthoc.affine import Affine, Problem, Solve, compute_moments, exponentials
from calibrant.posthoc.base import Stream
from calibrant.posthoc.ops import Ops, V

_FLAT = 1e-4  # of the typical curvature: the least that is assumed


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

    def _problem(self, data: Stream) -> Problem:
        return _MatrixProblem(data, *(check_number(name, value, 0.0) for name, value in self.get_params().items()))

    def apply(self, ops: Ops[V], z: V) -> V:
        """W z + b."""
        return ops.add(ops.matmul(z, np.ascontiguousarray(self.weight_.T)), ops.constant(self.bias_))


class _MatrixProblem:
    """The objective in u = V z / T + b, with the numbers (V, b) of a row ``[C, C + 1]`` in one vector."""

    def __init__(self, data: Stream, off_diagonal: float, intercept: float, strength: float) -> None:
        self.data, self.moments = data, compute_moments(data, full=True)
        facts = self.moments
        self.classes = classes = len(facts.mean)
        self.eye = np.eye(classes)
        # Penalties of each entry of W, and of each bias.
        self.on_weight = off_diagonal / (classes * (classes - 1)) * (1 - self.eye)
        self.on_weight += np.diag(strength / facts.rows * np.square(facts.spread))
        self.on_bias = intercept / classes
        self.start = np.pad(self.eye, ((0, 0), (0, 1))).reshape(-1)
        self.labels = self._standard(facts.sums, facts.counts) / facts.rows
        self.scale = float(np.linalg.norm(self.labels))

    def raw(self, x: Doubles) -> tuple[Doubles, Doubles]:
        """The matrix and the biases of the logits themselves."""
        rows = x.reshape(self.classes, self.classes + 1)
        return self.moments.sharpness * rows[:, :-1], rows[:, -1].copy()

    def _standard(self, by_weight: Doubles, by_bias: Doubles) -> Doubles:
        """The gradient by x of the gradients by W and b."""
        return np.concatenate([self.moments.sharpness * by_weight, by_bias[:, None]], 1).reshape(-1)

    def objective(self, x: Doubles) -> tuple[float, Doubles]:
        """Value and gradient, in one pass."""
        weight, bias = self.raw(x)
        by_weight, by_bias = np.zeros_like(weight), np.zeros_like(bias)
        value = 0.0
        for z, _ in self.data:
            z = z.astype(np.float64, copy=False)
            logs, exps, total = exponentials(z @ weight.T + bias)
            value += logs
            p = exps / total[:, None]
            by_bias += p.sum(0)
            by_weight += p.T @ z
        off = weight - self.moments.sharpness * self.eye
        pull = self.on_weight * off
        penalty = float((pull * off).sum()) + self.on_bias * float(bias @ bias)
        gradient = self._standard(by_weight, by_bias) / self.moments.rows - self.labels
        gradient += self._standard(2 * pull, 2 * self.on_bias * bias)
        return value / self.moments.rows - float(x @ self.labels) + penalty, gradient

    def curvature(self, x: Doubles) -> Solve:
        """The inverse of the Kronecker product, its diagonal corrected for the penalties."""
        weight, bias = self.raw(x)
        classes, sharp = self.classes, self.moments.sharpness
        outer = np.zeros((classes, classes))
        inner = np.zeros((classes + 1, classes + 1))
        doubt = 0.0
        for z, _ in self.data:
            z = z.astype(np.float64, copy=False)
            _, exps, total = exponentials(z @ weight.T + bias)
            p = exps / total[:, None]
            # A row counts in the second factor by what it adds to the first one's trace.
            unsure = np.maximum(1 - np.square(p).sum(1), 1e-12)
            extended = np.pad(sharp * z, ((0, 0), (0, 1)), constant_values=1.0)
            outer += np.diag(p.sum(0)) - p.T @ p
            inner += (extended * unsure[:, None]).T @ extended
            doubt += float(unsure.sum())
        outer, inner = outer / self.moments.rows, inner / doubt
        penalty = np.pad(2 * sharp**2 * self.on_weight, ((0, 0), (0, 1)), constant_values=2 * self.on_bias)
        plain = outer.diagonal()[:, None] * inner.diagonal() + 1e-12
        # What stands for the penalty in directions that the data do not bend; too large is slow, too small leaps.
        typical = float(plain.mean())
        base = max(min(float(penalty.max()), typical), _FLAT * typical)
        excess = np.sqrt((plain + base) / (plain + np.maximum(penalty, base)))
        (rise, left), (tilt, right) = np.linalg.eigh(outer), np.linalg.eigh(inner)
        bends = np.maximum(rise, 0)[:, None] * np.maximum(tilt, 0) + base

        def solve(g: Doubles) -> Doubles:
            turned = left.T @ (excess * g.reshape(classes, classes + 1)) @ right
            return (excess * (left @ (turned / bends) @ right.T)).reshape(-1)

        return solve
