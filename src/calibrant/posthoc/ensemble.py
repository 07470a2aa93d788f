r"""Ensemble temperature scaling, ETS [Zhang2020]: a mixture of three predictions.

.. math:: q = w_1 \, \mathrm{softmax}(z / T) + w_2 \, \mathrm{softmax}(z) + w_3 / K, \qquad w \ge 0, \; \sum_i w_i = 1

=============  ==============================================
paper letter   variable
=============  ==============================================
t              ``temperature_``
w              ``weights_``
L              K, the number of classes
=============  ==============================================

T is that of temperature scaling, and stays. The weights then minimise the NLL (default) or the mean squared error to
one-hot labels, ``objective="mse"``; the paper's code offers both. Departure: T minimises the NLL either way.

Both problems are convex. Of the NLL each sample needs two numbers, its label's probability under each of the first two
parts: a pass keeps ``[N, 2]``. The MSE is a quadratic, whose nine sums a pass adds up. Newton's method on the simplex,
each quadratic solved exactly by trying all seven faces, gives the minimiser. It starts at w = (1, 0, 0), so that
its objective on the fitting data is never above temperature scaling's.

All parts rank the classes alike, and so does q; only w = (0, 0, 1) would not. Instead of that, w is (1, 0, 0) if T went
to infinity, where the first part says the same, as always for the NLL; else the first part keeps a weight of 1e-6.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from calibrant.base.arrays import Array, Doubles, sum_along
from calibrant.base.checks import Ints, check_choice
from calibrant.posthoc.base import LEAST, Calibrator, Stream, read_numbers
from calibrant.posthoc.ops import NumpyOps, Ops, V, log_softmax, softmax
from calibrant.posthoc.temperature import fit_temperature, relative

_FACES = [list(face) for size in (1, 2, 3) for face in itertools.combinations(range(3), size)]
_LEAST = 1e-6
_PARTS = ("tempered", "plain", "uniform")  # what the weights are called in a file
_MOST = 50  # Newton steps; ten do


class EnsembleTemperatureScaling(Calibrator):
    """Temperature scaling, mixed with the uncalibrated prediction and the uniform one.

    Args:
        objective: what the weights minimise, ``"nll"`` or ``"mse"``.

    Attributes:
        temperature_: T.
        weights_: weights of the tempered, the uncalibrated and the uniform prediction, ``[3]``.
        gap_: how much the objective could at most be lowered by other weights.
        converged_: whether that is at most 1e-9.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import EnsembleTemperatureScaling
        >>> generator = torch.Generator().manual_seed(0)
        >>> honest = 2 * torch.randn(4000, 10, generator=generator)
        >>> labels = torch.multinomial(honest.softmax(1), 1, generator=generator).squeeze(1)
        >>> labels[:800] = torch.randint(10, (800,), generator=generator)  # a fifth of the labels is noise
        >>> scaling = EnsembleTemperatureScaling().fit(3 * honest, labels)
        >>> bool(0.05 < scaling.weights_[2] < 0.25), scaling.converged_
        (True, True)
    """

    name = "ensemble"
    title = "Ensemble temperature scaling"
    learned = "weights_"
    keeps_order = True

    temperature_: float
    weights_: Doubles
    gap_: float
    converged_: bool

    def __init__(self, objective: Literal["nll", "mse"] = "nll") -> None:
        self.objective = objective

    def _fit(self, data: Stream) -> None:
        minimise = (
            _minimise_nll if check_choice("objective", self.objective, ("nll", "mse")) == "nll" else _minimise_mse
        )
        temperature = fit_temperature(data)
        self.temperature_ = temperature.temperature_
        self.weights_, self.gap_ = minimise(data, self.temperature_)
        if self.weights_[2] > 1 - _LEAST:
            tempered = _LEAST if temperature.converged_ else 1.0  # without a minimiser the first part is uniform too
            self.weights_ = np.array([tempered, 0.0, 1 - tempered])
        self.converged_ = self.gap_ <= 1e-9

    def apply(self, ops: Ops[V], z: V) -> V:
        """The mixture's logarithm, 0 for the predicted class."""
        parts = []
        tempered = ops.div(z, ops.constant(self.temperature_))
        for weight, logits in zip(self.weights_[:2], (tempered, z), strict=True):
            if weight > 0:
                parts.append(ops.add(log_softmax(ops, logits), ops.constant(math.log(weight))))
        if self.weights_[2] > 0:
            uniform = math.log(self.weights_[2] / self.n_classes_)
            parts.append(ops.add(ops.mul(z, ops.constant(0.0)), ops.constant(uniform)))
        top = parts[0]
        for part in parts[1:]:
            top = ops.maximum(top, part)
        mixed = ops.exp(ops.sub(parts[0], top))
        for part in parts[1:]:
            mixed = ops.add(mixed, ops.exp(ops.sub(part, top)))
        logs = ops.add(ops.log(mixed), top)
        # Relative to the largest, where float32 is finest: near-uniform rows keep their order.
        return ops.sub(logs, ops.largest(logs))

    def _state(self) -> dict[str, Any]:
        return {"temperature": self.temperature_, **dict(zip(_PARTS, self.weights_.tolist(), strict=True))}

    def _restore(self, state: Mapping[str, Any], num_classes: int) -> None:
        temperature = float(read_numbers(state, "temperature", (), low=LEAST))
        weights = np.array([float(read_numbers(state, part, ())) for part in _PARTS])
        if weights.min() < 0 or abs(weights.sum() - 1) > 1e-9 or weights[2] == 1:
            raise ValueError(f"{', '.join(_PARTS)} must be at least 0 with sum 1, and the last below 1")
        self.temperature_, self.weights_ = temperature, weights


def _minimise_nll(data: Stream, temperature: float) -> tuple[Doubles, float]:
    """Weights with the least NLL, and the gap."""

    def share(z: Array, y: Ints) -> Doubles:
        x, axis, at_label, _ = relative(z, y)
        return np.stack([np.exp(at_label / t) / sum_along(np.exp(x / t), axis) for t in (temperature, 1.0)], 1)

    parts = np.concatenate(list(data.map(share)))
    parts = np.concatenate([parts, np.full((len(parts), 1), 1 / data.num_classes)], 1)
    w = np.array([1.0, 0.0, 0.0])
    if not (parts @ w).all():  # a label's probability rounds to 0: its logarithm needs a little of the uniform
        w = np.array([0.9, 0.0, 0.1])
    gap = math.inf
    for _ in range(_MOST):
        ratios = parts / (parts @ w)[:, None]
        slope = -ratios.mean(0)
        gap = float(max(-slope) - 1)  # convexity: no other weights lower the NLL by more
        # As ratios @ w is 1 everywhere, the quadratic model of the NLL is |ratios @ w' - 2|^2 / 2N, up to a constant.
        basis, factor = np.linalg.qr(ratios)
        step = _solve_on_simplex(factor, 2 * basis.sum(0)) - w
        if gap <= 1e-13 or abs(step).max() < 1e-15:
            break
        length, before = 1.0, np.log(parts @ w).mean()
        while length > 1e-10:
            mixed = parts @ (w + length * step)
            if mixed.min() > 0 and np.log(mixed).mean() >= before - 1e-4 * length * float(slope @ step):
                break
            length /= 2
        else:
            break
        w = w + length * step
    return _tidy(w), max(gap, 0.0)


def _minimise_mse(data: Stream, temperature: float) -> tuple[Doubles, float]:
    """Weights with the least squared error, and the gap."""

    def work(z: Array, y: Ints) -> tuple[Doubles, Doubles, int]:
        z = z.astype(np.float64, copy=False)
        parts = [softmax(NumpyOps(), z / temperature), softmax(NumpyOps(), z), np.full(z.shape, 1 / data.num_classes)]
        stack = np.stack(parts)
        return np.tensordot(stack, stack, ((1, 2), (1, 2))), stack[:, np.arange(len(y)), y].sum(1), len(y)

    squares, hits, rows = data.total(work, threaded=False)
    squares, hits = squares / rows, hits / rows
    sizes, turned = np.linalg.eigh(squares)
    sizes = np.maximum(sizes, 1e-15 * sizes[-1])
    w = _tidy(_solve_on_simplex(np.sqrt(sizes)[:, None] * turned.T, turned.T @ hits / np.sqrt(sizes)))
    slope = 2 * (squares @ w - hits)
    return w, float(slope @ w - slope.min())


def _solve_on_simplex(factor: Doubles, target: Doubles) -> Doubles:
    """The w of the simplex with the least |factor @ w - target|: the best of all faces."""
    best, lowest = np.array([1.0, 0.0, 0.0]), math.inf
    for first, *others in _FACES:
        origin = factor[:, first]
        spans = factor[:, others] - origin[:, None]
        shares = np.linalg.lstsq(spans, target - origin, rcond=1e-14)[0] if others else np.zeros(0)
        w = np.zeros(3)
        w[others], w[first] = shares, 1 - shares.sum()
        value = float(np.square(factor @ w - target).sum())
        if w.min() >= 0 and value < lowest:
            best, lowest = w, value
    return best


def _tidy(w: Doubles) -> Doubles:
    """Weights of rounding's size are 0."""
    w = np.where(w < 1e-12, 0.0, w)
    return w / w.sum()
