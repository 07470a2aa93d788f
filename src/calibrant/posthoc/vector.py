r"""Vector scaling [Guo2017, Sec. 4.2]: each logit has a weight and an offset of its own.

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

The problem is convex; the fit starts from the temperature, so that its NLL on the fitting data is never above
temperature scaling's. L-BFGS does the rest, with the Hessian (class by class where there are many) computed again every
few steps. Unlike in a softmax, a common offset of a row has an effect: the logits are taken as they come.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from calibrant.base.arrays import Doubles
from calibrant.base.checks import check_number
from calibrant.posthoc.affine import Affine, Problem, Solve, compute_moments, exponentials
from calibrant.posthoc.base import Stream
from calibrant.posthoc.ops import Ops, V

_PAIRED = 256  # classes up to which the Hessian is taken as a whole, and beyond which class by class
_HESSIAN = 8e9  # rows x classes^2 that it may take; then only some rows are used


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

    def _problem(self, data: Stream) -> Problem:
        return _VectorProblem(data, check_number("strength", self.strength, 0.0))

    def apply(self, ops: Ops[V], z: V) -> V:
        """W z + b."""
        return ops.add(ops.mul(z, ops.constant(self.weight_)), ops.constant(self.bias_))


class _VectorProblem:
    """The objective in u = v (z - mean) / spread + a, x = (v, a): there the pull is a plain square of x - start."""

    def __init__(self, data: Stream, strength: float) -> None:
        self.data, self.moments = data, compute_moments(data, full=False)
        facts = self.moments
        self.pull = strength / facts.rows
        sharp = facts.sharpness
        self.start = np.concatenate([sharp * facts.spread, sharp * facts.mean])
        self.labels = self._standard(facts.sums, facts.counts) / facts.rows
        self.scale = float(np.linalg.norm(self.labels))

    def raw(self, x: Doubles) -> tuple[Doubles, Doubles]:
        """The weights and biases of the logits themselves."""
        v, a = np.split(x, 2)
        weight = v / self.moments.spread
        return weight, a - weight * self.moments.mean

    def _standard(self, by_weight: Doubles, by_bias: Doubles) -> Doubles:
        """The gradient by x of the gradients by w and b."""
        return np.concatenate([(by_weight - self.moments.mean * by_bias) / self.moments.spread, by_bias])

    def objective(self, x: Doubles) -> tuple[float, Doubles]:
        """Value and gradient, in one pass."""
        weight, bias = self.raw(x)
        by_weight, by_bias = np.zeros((2, len(weight)))
        value = 0.0
        for z, _ in self.data:
            z = z.astype(np.float64, copy=False)
            logs, exps, total = exponentials(z * weight + bias)
            value += logs
            share = 1 / total
            by_bias += share @ exps
            exps *= z
            by_weight += share @ exps
        rows, off = self.moments.rows, x - self.start
        nll = value / rows - float(x @ self.labels)
        gradient = self._standard(by_weight, by_bias) / rows - self.labels + 2 * self.pull * off
        return nll + self.pull * float(off @ off), gradient

    def curvature(self, x: Doubles) -> Solve:
        """The inverse of the Hessian: all of it for up to `_PAIRED` classes, from rows spread over all chunks."""
        weight, bias = self.raw(x)
        classes = len(bias)
        paired = classes <= _PAIRED
        step = max(1, round(self.moments.rows * classes * (classes if paired else 4) / _HESSIAN))
        pairs = np.zeros((2 * classes, 2 * classes)) if paired else None
        blocks = np.zeros((3, classes))
        rows = 0
        for z, _ in self.data:
            z = z[::step].astype(np.float64)
            _, exps, total = exponentials(z * weight + bias)
            p = exps / total[:, None]
            standard = (z - self.moments.mean) / self.moments.spread
            if pairs is not None:
                stacked = np.concatenate([p * standard, p], 1)
                pairs += stacked.T @ stacked
            else:
                p = p * (1 - p)
            for block in (blocks[2], blocks[1], blocks[0]):  # sums of p, p x and p x^2
                block += p.sum(0)
                p = p * standard
            rows += len(z)
        blocks /= rows
        blocks[[0, 2]] += 2 * self.pull + 1e-9 * blocks.max() + 1e-12
        if pairs is None:
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
