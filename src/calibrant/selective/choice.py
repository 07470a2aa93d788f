"""Which calibrator and which score: by cross-fitting, and only what helps beyond chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Array, row_slices
from calibrant._validation import check_finite
from calibrant.metrics import Judged, aurc, paired_differences, top_label_blocks
from calibrant.posthoc import (
    FLOOR,
    FOLDS,
    WIDE,
    Calibrator,
    EnsembleTemperatureScaling,
    IsotonicCalibration,
    LogitNorm,
    NumpyOps,
    TemperatureScaling,
    VectorScaling,
    crossfit,
    crossfit_ranks,
    folds_of,
    ranks_by_fold,
)
from calibrant.selective.formula import NORMALISED, Score
from calibrant.selective.scores import FORMULAS
from calibrant.selective.split import Kept

LEVEL = 0.95  # of "beyond chance", shared by all that are tried
ROWS_PER_CLASS = 10  # below which a parameter per class is not tried

#: The calibrators to choose from, simple ones first: a later one must beat the best so far.
TO_TRY: dict[str, Callable[[], Calibrator]] = {
    "temperature": TemperatureScaling,
    "ensemble": EnsembleTemperatureScaling,
    "isotonic": lambda: IsotonicCalibration(mode="top-label"),
    "vector": VectorScaling,
}

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tried:
    """One candidate of the choice: its value, what it had to beat, and the change against that, with limits."""

    name: str
    value: float
    against: str | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    chosen: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Chosen:
    """The choice, and all that was tried: calibrators by NLL, scores by AURC."""

    calibrator: Calibrator | None
    score: Score
    calibrators: list[Tried]
    scores: list[Tried]


def choose(kept: Kept, takes: str, calibrator: str, score: str, seed: int) -> Chosen:
    """Choose on these rows; ``"auto"`` leaves the choice open, a name closes it."""
    z = kept.values if takes == "logits" else np.log(np.maximum(kept.values.astype(np.float64), FLOOR))
    z = z.astype(np.float64) if check_finite(z) > WIDE else z
    y, folds = kept.labels, folds_of(kept.unit)
    if len(np.unique(folds)) < FOLDS:
        number = len(np.unique(kept.unit))
        raise ValueError(
            f"a choice is made by {FOLDS}-fold cross-fitting, and {number} of the samples are too few for it"
        )
    crossed, name, calibrators = _calibrated(z, y, kept.unit, folds, calibrator)
    fitted = None if name is None else TO_TRY[name]().fit(z, y)
    order = z if fitted is None or fitted.keeps_order else crossed
    correct = order.argmax(1) == y
    found, scores = _scored(z, crossed if fitted is not None else None, takes, correct, folds, score, seed)
    return Chosen(fitted, found, calibrators, scores)


def _calibrated(
    z: Array, y: Array, unit: npt.NDArray[np.int64], folds: npt.NDArray[np.int64], asked: str
) -> tuple[Array, str | None, list[Tried]]:
    """Cross-fitted logits of the chosen calibrator, its name, and how all did."""
    if asked not in ("auto", "none", *TO_TRY):
        raise ValueError(f"calibrator must be one of auto, none, {', '.join(TO_TRY)}, got {asked!r}")
    best, chosen = _nll(z, y), None
    crossed, tried = z, [Tried("none", float(best.mean()))]
    names = [] if asked == "none" else list(TO_TRY) if asked == "auto" else [asked]
    for name in names:
        if asked == "auto" and name == "vector" and len(y) < ROWS_PER_CLASS * z.shape[1]:
            continue
        transformed = crossfit(TO_TRY[name], z, y, folds).logits
        losses = _nll(transformed, y)
        change, low, high = _difference(losses - best, unit, 1 - (1 - LEVEL) / len(TO_TRY))
        tried.append(Tried(name, float(losses.mean()), chosen or "none", change, low, high))
        if high < 0 or asked != "auto":
            best, chosen, crossed = losses, name, transformed
    said = chosen or "none"
    return crossed, chosen, [Tried(**{**vars(one), "chosen": one.name == said}) for one in tried]


def _nll(z: Array, y: Array) -> Doubles:
    return np.concatenate([top.nll for top in top_label_blocks(z, y, kind="logits")])


def _difference(change: Doubles, unit: npt.NDArray[np.int64], level: float) -> tuple[float, float, float]:
    """The mean change with limits; rows of one unit count as one draw."""
    _, number = np.unique(unit, return_inverse=True)
    mean = float(change.mean())
    sums = np.bincount(number, change - mean)
    error = math.sqrt(float(np.square(sums).sum())) / len(change) if len(sums) > 1 else math.inf
    reach = NormalDist().inv_cdf(0.5 + level / 2) * error
    return mean, mean - reach, mean + reach


def _scored(
    z: Array,
    calibrated: Array | None,
    takes: str,
    correct: npt.NDArray[np.bool_],
    folds: npt.NDArray[np.int64],
    asked: str,
    seed: int,
) -> tuple[Score, list[Tried]]:
    """The score with the least AURC among those that beat plain MSP beyond chance."""
    if asked not in ("auto", *FORMULAS, NORMALISED):
        raise ValueError(f"score must be one of auto, {', '.join((*FORMULAS, NORMALISED))}, got {asked!r}")
    plain = _values(Score(), z, z)
    if asked in FORMULAS:
        value = aurc(_values(Score(asked), z, z), correct)
        return Score(asked), [Tried(asked, value, chosen=True)]
    norm, normalised = _normalised(z, plain, correct, folds)
    if asked == NORMALISED:
        score = Score(NORMALISED, p=norm.p_ or min(norm.aurc_, key=lambda p: norm.aurc_[p] if p else math.inf))
        return score, [Tried(str(score), aurc(normalised, correct), chosen=True)]
    # Of probabilities the energy is 0, and what is left of it rounding.
    names = [name for name in FORMULAS if name != "msp" and (takes == "logits" or name != "energy")]
    candidates: dict[Score, Doubles] = {Score(name): _values(Score(name), z, z) for name in names}
    if calibrated is not None:
        candidates[Score(of="calibrated")] = _values(Score(of="calibrated"), z, calibrated)
    if norm.p_ is not None:
        candidates[Score(NORMALISED, p=norm.p_)] = normalised
    return _beyond_chance(plain, candidates, correct, folds, seed)


def _beyond_chance(
    plain: Doubles, candidates: Mapping[Score, Doubles], correct: npt.NDArray[np.bool_], folds: Any, seed: int
) -> tuple[Score, list[Tried]]:
    before_ranks = ranks_by_fold(plain, folds)
    before = aurc(before_ranks, correct)
    tried, best, least = [Tried(str(Score()), before)], Score(), before
    some_wrong = 0 < int(correct.sum()) < len(correct)
    for score, values in candidates.items():
        after_ranks = ranks_by_fold(values, folds)
        value = aurc(after_ranks, correct)
        change = low = high = None
        if some_wrong:
            first = Judged(plain, correct, score=before_ranks)
            second = Judged(plain, correct, score=after_ranks)
            level = 1 - (1 - LEVEL) / len(candidates)
            found = paired_differences(first, second, level=level, seed=seed)["aurc"]
            change, low, high = found.value, found.low, found.high
        tried.append(Tried(str(score), value, str(Score()), change, low, high))
        if high is not None and high < 0 and value < least:
            best, least = score, value
    return best, [Tried(**{**vars(one), "chosen": one.name == str(best)}) for one in tried]


def _values(score: Score, z: Array, calibrated: Array) -> Doubles:
    parts = [
        score.apply(NumpyOps(), z[rows].astype(np.float64), calibrated[rows].astype(np.float64))
        for rows in row_slices(len(z), z.shape[1])
    ]
    return np.concatenate(parts)[:, 0]


def _normalised(
    z: Array, plain: Doubles, correct: npt.NDArray[np.bool_], folds: npt.NDArray[np.int64]
) -> tuple[LogitNorm, Doubles]:
    """The p of all rows, and cross-fitted scores."""
    scores = LogitNorm().scores(z)
    crossed = crossfit_ranks(plain, scores, correct, folds).normalised
    return LogitNorm().choose(plain, scores, correct), crossed
