r"""Logit normalisation [Cattelan2024; SC Eq. 17]: rank by the largest logit over the p-norm of the logits.

.. math:: s = \max_k v_k / \|v\|_p

Softmax does not see a common offset, but a p-norm does: by default the logits are centred first, v = z - mean(z).
``centre=False`` takes them as they are, as SC prints it (with :math:`|v_k|^p`, which an odd p needs). Where a score is
chosen for the user, both readings are tried, and the one with the lower AURC is taken (`best_norm`).

p is chosen from 1 to 10 by AURC on held-out data; when no p beats the softmax's own confidence (MSP), that is used and
``fell_back_`` says so. All powers are tried in one pass over the logits. The scores and the confidence behind that
choice have the logits' precision, those that `score` gives are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from calibrant.base.arrays import Array, Doubles, as_kind_of, in_threads, sum_along, sum_products
from calibrant.base.checks import Bools, Ints, as_logits, check_integer
from calibrant.metrics import aurc
from calibrant.metrics.kernel import find_largest
from calibrant.posthoc.base import Parameters, Stream, logits_of, map_rows
from calibrant.posthoc.ops import NumpyOps, Ops, V, softmax
from calibrant.predictions import FLOOR, Predictions

READINGS = (True, False)  # of centre
THREADED = 8192  # rows, from which on areas are computed side by side: of fewer, handing over costs more
_TINY = float(np.finfo(np.float64).tiny)


class LogitNorm(Parameters):
    """A score for selective classification that undoes what label smoothing does to the ranking.

    Args:
        powers: values of p to choose from.
        centre: whether to subtract each row's mean first.

    Attributes:
        p_: the chosen p, None after falling back.
        fell_back_: whether no p beat the MSP.
        aurc_: AURC on the data it was fitted on, of every p, and of the MSP under None.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import LogitNorm
        >>> z = torch.tensor([[4.0, 0.0, 0.0], [3.0, 1.0, 0.0], [9.0, 5.1, 5.1]])
        >>> norm = LogitNorm().fit(z, torch.tensor([0, 0, 1]))
        >>> norm.score(z).shape
        torch.Size([3])
    """

    #: What a reader knows it by.
    title = "Logit normalisation"

    p_: int | None
    fell_back_: bool
    floor_: float = FLOOR
    aurc_: dict[int | None, float]

    def __init__(self, powers: Sequence[int] = tuple(range(1, 11)), *, centre: bool = True) -> None:
        self.powers = powers
        self.centre = centre

    def fit(self, logits: Any, labels: Any = None, *, ignore_index: int | None = None) -> Self:
        """Choose p by AURC on held-out data, in the forms that `Calibrator.fit` takes; returns self."""
        data = Stream(logits, labels, ignore_index=ignore_index)
        self.floor_ = data.floor
        confidence, correct, (scores,) = _read([self], data)
        return self.choose(confidence, scores, correct)

    def choose(self, plain: Doubles, scores: Mapping[int, Doubles], correct: Bools) -> Self:
        """Choose p from the scores of every p and the plain softmax's, all ``[N]``; returns self."""
        work = in_threads if len(correct) >= THREADED else map
        areas = work(lambda score: aurc(score, correct), [plain, *scores.values()])
        self.aurc_ = dict(zip([None, *scores], areas, strict=True))
        best = min(scores, key=lambda p: self.aurc_[p])
        # A difference within rounding is none: with two classes, say, the score is the same for every row.
        is_constant = bool(np.ptp(scores[best]) < 1e-6 * float(np.abs(scores[best]).max()) + 1e-9)
        self.fell_back_ = is_constant or self.aurc_[best] >= self.aurc_[None] - 1e-9
        self.p_ = None if self.fell_back_ else best
        return self

    def score(self, logits: Any) -> Any:
        """The score of each row ``[N]``, or of each position ``[N, ...]``, float64, higher for more confident."""
        self._check_fitted("p_")
        if self.p_ is None:
            return score_rows(logits, lambda z: softmax(NumpyOps(), z).max(1), self.floor_)
        p, centre = self.p_, self.centre
        return score_rows(logits, lambda z: normalised_max_logit_formula(NumpyOps(), z, p, centre=centre), self.floor_)

    def scores(self, logits: Any) -> dict[int, Array]:
        """The score of each row for every p, ``[N]`` float64, all in one pass."""
        powers = self._powers()
        parts = list(map_rows(lambda z: self._scores(z, _relative(z), powers), as_logits(logits)))
        return {p: np.concatenate([part[p] for part in parts]) for p in powers}

    def _powers(self) -> Sequence[int]:
        if not len(self.powers):
            raise ValueError(f"powers must be whole numbers from 1 on, got {self.powers!r}")
        return [check_integer("powers", p, 1) for p in self.powers]

    def _scores(self, z: Array, relative: _Relative, powers: Sequence[int]) -> dict[int, Array]:
        """The scores of rows ``[n, C]`` for several p; sums of v^p are those of two powers of about half of p."""
        x, axis, top = relative.x, relative.axis, relative.top
        v = z if axis == 1 else np.ascontiguousarray(z.T)
        if self.centre:
            # Of float32 from the distances to the largest, which have no offset: a mean in float64 takes three times
            # as long.
            mean = v.mean(axis) if v.dtype == np.float64 else top + sum_along(x, axis) / z.shape[1]
            mean = mean.astype(v.dtype)
            v, top = v - np.expand_dims(mean, axis), top - mean
        v, top = np.abs(v), top.astype(v.dtype)
        size, tiny = v.max(axis), np.finfo(v.dtype).tiny
        # Relative to the largest, so that no power overflows or vanishes.
        v /= np.expand_dims(np.maximum(size, tiny), axis)
        lower, upper, scores = np.ones_like(v), v, {}
        for p in range(1, max(powers) + 1):
            if p in powers:
                total = sum_along(v, axis) if p == 1 else sum_products(lower, upper, axis)
                norm = size * total.astype(np.float64) ** (1 / p)
                # A row of equal logits has no direction: its score is the lowest, 0.
                scores[p] = np.where(norm > 0, top / np.maximum(norm, tiny), 0.0)
            lower, upper = upper, upper if p % 2 else upper * v
        return scores


def _read(norms: Sequence[LogitNorm], data: Stream) -> tuple[Doubles, Bools, list[dict[int, Doubles]]]:
    """Confidence and correctness of each row, and the scores for every p of each of the norms, in one pass."""
    powers = [norm._powers() for norm in norms]

    def work(z: Array, y: Ints) -> tuple[Doubles, Bools, list[dict[int, Array]]]:
        relative = _relative(z)
        exps = np.exp(relative.x)
        exps.reshape(-1)[relative.position] = 0  # which is 1, and would hide from rounding how little the others are
        confidence = 1 / (1 + sum_along(exps, relative.axis).astype(np.float64, copy=False))
        scores = [norm._scores(z, relative, tried) for norm, tried in zip(norms, powers, strict=True)]
        return confidence, relative.predicted == y, scores

    confidence, correct, scores = zip(*data.map(work), strict=True)
    by_power = [
        {p: np.concatenate([part[p] for part in parts]).astype(np.float64) for p in tried}
        for tried, parts in zip(powers, zip(*scores, strict=True), strict=True)
    ]
    return np.concatenate(confidence), np.concatenate(correct), by_power


class _Relative(NamedTuple):
    """Logits relative to the largest of their row, their axis of classes; the largest, its class and flat positions."""

    x: Array
    axis: int
    top: Doubles
    predicted: Ints
    position: Ints


def _relative(z: Array) -> _Relative:
    x, axis, predicted, top, position = find_largest(z, "logits")
    x -= np.expand_dims(top.astype(x.dtype, copy=False), axis)
    return _Relative(x, axis, top, predicted, position(predicted))


def fit_best_norm(
    logits: Any, labels: Any = None, *, ignore_index: int | None = None, centre: bool | None = None
) -> LogitNorm:
    """Fit both readings, centred and not, in one pass over held-out data, and return the better; see `best_norm`.

    ``centre`` leaves one reading to choose p for.
    """
    readings = _readings(centre)
    norms = [LogitNorm(centre=reading) for reading in readings]
    data = Stream(logits, labels, ignore_index=ignore_index)
    confidence, correct, scores = _read(norms, data)
    best = best_norm(confidence, dict(zip(readings, scores, strict=True)), correct)
    best.floor_ = data.floor
    return best


def scores_by_reading(logits: Any, centre: bool | None = None) -> dict[bool, dict[int, Array]]:
    """The scores of each row for every p: of centred logits under True, of logits as they are under False.

    ``centre`` asks for one of the two.
    """
    return {reading: LogitNorm(centre=reading).scores(logits) for reading in _readings(centre)}


def _readings(centre: bool | None) -> tuple[bool, ...]:
    return READINGS if centre is None else (centre,)


def best_norm(plain: Doubles, scores: Mapping[bool, Mapping[int, Doubles]], correct: Bools) -> LogitNorm:
    """Choose p and the reading by AURC, from what `scores_by_reading` gives; where they tie, centred logits."""
    norms = [LogitNorm(centre=centre).choose(plain, by_power, correct) for centre, by_power in scores.items()]
    return min(norms, key=lambda norm: norm.aurc_[norm.p_] - 1e-9 * norm.centre)  # a difference within rounding is none


def score_rows(logits: Any, score: Callable[[Array], Array], floor: float = FLOOR) -> Any:
    """A score of rows ``[n, C]`` float64 as ``[N]`` or ``[N, ...]``; a tensor for a tensor, else NumPy.

    ``floor`` is that of probabilities, where predictions hold these.
    """
    if isinstance(logits, Predictions):
        return np.concatenate([score_rows(logits_of(batch, floor), score) for batch in logits.batches()])
    z = as_logits(logits)
    scores = np.concatenate(list(map_rows(score, z))).reshape(len(z), *z.shape[2:])
    return as_kind_of(logits, scores, keep_precision=True)


def msp_formula(ops: Ops[V], z: V) -> V:
    """The largest softmax probability of each row."""
    return ops.div(ops.constant(1.0), ops.total(ops.exp(ops.sub(z, ops.largest(z)))))


def normalised_max_logit_formula(ops: Ops[V], z: V, p: int, *, centre: bool = True) -> V:
    """The largest logit of each row over the p-norm of its logits."""
    v = ops.sub(z, ops.mean(z)) if centre else z
    tiny = ops.constant(_TINY)
    absolute = ops.absolute(v)
    size = ops.largest(absolute)
    share = ops.div(absolute, ops.maximum(size, tiny))
    power = share
    for _ in range(p - 1):
        power = ops.mul(power, share)
    norm = ops.mul(size, ops.power(ops.total(power), ops.constant(1 / p)))
    return ops.div(ops.largest(v), ops.maximum(norm, tiny))
