"""Which calibrator and which score: by cross-fitting, and only what helps by more than its standard error.

A test that something helps would be the wrong judge: on few samples it keeps a poor model as it is, though a repair is
far more likely to help than to harm. So the bar is one standard error, as in [Breiman1984]; docs/evidence.md has
what either costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from calibrant._arrays import Array, row_slices
from calibrant._validation import Bools, Ints, check_finite
from calibrant._validation import choice as check_choice
from calibrant.metrics import AurcChanges, Doubles, Judged, aurc, ece, paired_differences, top_label_blocks
from calibrant.posthoc import (
    FOLDS,
    WIDE,
    Calibrator,
    EnsembleTemperatureScaling,
    IsotonicCalibration,
    NumpyOps,
    TemperatureScaling,
    VectorScaling,
    best_norm,
    crossfit_all,
    crossfit_ranks,
    folds_of,
    ranks_by_fold,
    scores_by_reading,
)
from calibrant.predictions import FLOOR, log_probabilities
from calibrant.selective.policy.holdout import ForChoice
from calibrant.selective.scores import FORMULAS, NORMALISED, Score

LEVEL = 2 * NormalDist().cdf(1.0) - 1  # of limits one standard error to either side
ROWS_PER_CLASS = 10  # below which a parameter per class is not tried

#: The calibrators to choose from, simple ones first: a later one must beat the best so far by its standard error.
CALIBRATORS_TRIED: dict[str, Callable[[], Calibrator]] = {
    "temperature": TemperatureScaling,
    "ensemble": EnsembleTemperatureScaling,
    "isotonic": lambda: IsotonicCalibration(mode="top-label"),
    "vector": VectorScaling,
}


@dataclass(frozen=True)
class Candidate:
    """A calibrator or score that was tried: its value, what it had to beat, and the change to that.

    Its limits are a standard error to either side. Of a calibrator, the ECE of what it makes of samples that it was not
    fitted on as well.
    """

    name: str
    value: float
    against: str | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    chosen: bool = False
    ece: float | None = None


@dataclass(frozen=True)
class Selection:
    """The choice, and all that was tried: calibrators by NLL, scores by AURC."""

    calibrator: Calibrator | None
    score: Score
    calibrators: tuple[Candidate, ...] = ()
    scores: tuple[Candidate, ...] = ()
    judged: Mapping[str, Judged] = field(default_factory=dict)

    def better_calibrated(self) -> dict[str, Any] | None:
        """The calibrator that was not chosen and has the lowest ECE, if it is below the chosen one's beyond chance."""
        errors = {candidate.name: candidate.ece or 0.0 for candidate in self.calibrators}
        chosen = next((candidate.name for candidate in self.calibrators if candidate.chosen), "none")
        best = min((name for name in errors if name != "none"), key=lambda name: errors[name], default=chosen)
        if best == chosen or chosen not in self.judged:
            return None
        change = paired_differences(self.judged[chosen], self.judged[best], ranked=False)["ece"]
        return {"name": best, "ece": errors[best], "chosen_ece": errors[chosen]} if change.high < 0 else None

    def evidence(self) -> dict[str, list[dict[str, Any]]]:
        """What was tried, for JSON."""
        scores = [asdict(candidate) for candidate in self.scores]
        for row in scores:
            del row["ece"]
        return {"calibrators": [asdict(candidate) for candidate in self.calibrators], "scores": scores}


def select(
    samples: ForChoice,
    takes: str,
    calibrator: str = "auto",
    score: str = "auto",
    seed: int = 0,
    *,
    quick: bool = False,
    floor: float = FLOOR,
    centre: bool | None = None,
) -> Selection:
    """Choose on these samples; ``"auto"`` leaves the choice open, a name closes it; ``floor`` is of probabilities.

    ``centre`` leaves one reading of the normalised largest logit to choose from, of centred logits or of others.

    With ``quick`` scores that rank no better have no limits, which changes no choice: an audit asks for it.
    """
    values, y, unit = samples.rows.values, samples.rows.labels, samples.rows.unit
    z = values if takes == "logits" else log_probabilities(values, floor)
    z = z.astype(np.float64) if check_finite(z) > WIDE else z
    folds = folds_of(unit)
    if len(np.unique(folds)) < FOLDS:
        raise ValueError(f"{samples.samples} samples are too few to choose by {FOLDS}-fold cross-fitting")
    crossfitted, name, calibrators, judged = _select_calibrator(z, y, unit, folds, calibrator)
    fitted = None if name is None else CALIBRATORS_TRIED[name]().fit(z, y)
    ranked = z if fitted is None or fitted.keeps_order else crossfitted
    correct = ranked.argmax(1) == y
    calibrated = None if fitted is None else crossfitted
    best, scores = _select_score(z, calibrated, takes, correct, folds, score, seed, quick=quick, centre=centre)
    return Selection(fitted, best, calibrators, scores, judged)


def _select_calibrator(
    z: Array, y: Ints, unit: Ints, folds: Ints, asked: str
) -> tuple[Array, str | None, tuple[Candidate, ...], dict[str, Judged]]:
    """Cross-fitted logits of the chosen calibrator, its name, how all did, and the rows as each judges them."""
    check_choice("calibrator", asked, ("auto", "none", *CALIBRATORS_TRIED))
    judged, chosen = {"none": judge_rows(z, y)}, "none"
    best = _losses(judged["none"])
    crossfitted, candidates = z, [Candidate("none", float(best.mean()), ece=_ece(judged["none"]))]
    few = len(y) < ROWS_PER_CLASS * z.shape[1]
    names = [name for name in CALIBRATORS_TRIED if not (few and name == "vector")] if asked == "auto" else [asked]
    tried = {} if asked == "none" else {name: CALIBRATORS_TRIED[name] for name in names}
    for name, repaired in crossfit_all(tried, z, y, folds).items():
        transformed = repaired.logits
        judged[name] = judge_rows(transformed, y)
        losses = _losses(judged[name])
        change, low, high = _difference(losses - best, unit)
        row = Candidate(name, float(losses.mean()), chosen, change, low, high, ece=_ece(judged[name]))
        candidates.append(row)
        if high < 0 or asked != "auto":
            best, chosen, crossfitted = losses, name, transformed
    return crossfitted, None if chosen == "none" else chosen, _marked(candidates, chosen), judged


def _marked(candidates: list[Candidate], chosen: str) -> tuple[Candidate, ...]:
    return tuple(replace(candidate, chosen=candidate.name == chosen) for candidate in candidates)


def judge_rows(z: Array, y: Array) -> Judged:
    """Confidence, correctness, NLL and Brier score of each row of logits ``[n, C]``."""
    tops = list(top_label_blocks(z, y, kind="logits"))
    names = ("confidence", "correct", "nll", "brier")
    return Judged(**{name: np.concatenate([getattr(top, name) for top in tops]) for name in names})


def _losses(judged: Judged) -> Doubles:
    assert judged.nll is not None
    return judged.nll


def _ece(judged: Judged) -> float:
    return ece(judged.confidence, judged.correct)


def _difference(change: Doubles, unit: Ints) -> tuple[float, float, float]:
    """The mean change, and a standard error to either side; rows of one unit count as one draw."""
    _, number = np.unique(unit, return_inverse=True)
    mean = float(change.mean())
    sums = np.bincount(number, change - mean)
    error = math.sqrt(float(np.square(sums).sum())) / len(change) if len(sums) > 1 else math.inf
    return mean, mean - error, mean + error


def _select_score(
    z: Array,
    calibrated: Array | None,
    takes: str,
    correct: Bools,
    folds: Ints,
    asked: str,
    seed: int,
    *,
    quick: bool,
    centre: bool | None,
) -> tuple[Score, tuple[Candidate, ...]]:
    """The score with the least AURC among those that beat plain MSP by more than a standard error."""
    check_choice("score", asked, ("auto", *FORMULAS, NORMALISED))
    if asked in FORMULAS:
        value = aurc(_values(Score(asked), z, z), correct)
        return Score(asked), (Candidate(asked, value, chosen=True),)
    plain, readings = _values(Score(), z, z), scores_by_reading(z, centre)
    normalised = crossfit_ranks(plain, readings, correct, folds).normalised
    norm = best_norm(plain, readings, correct)
    if asked == NORMALISED:
        p = norm.p_ or min(norm.aurc_, key=lambda p: norm.aurc_[p] if p else math.inf)
        score = Score(NORMALISED, p=p, centre=norm.centre)
        return score, (Candidate(str(score), aurc(normalised, correct), chosen=True),)
    # Of probabilities the energy is 0, and what is left of it rounding.
    names = [name for name in FORMULAS if name != "msp" and (takes == "logits" or name != "energy")]
    candidates: dict[Score, Doubles] = {Score(name): _values(Score(name), z, z) for name in names}
    if calibrated is not None:
        candidates[Score(of="calibrated")] = _values(Score(of="calibrated"), z, calibrated)
    if norm.p_ is not None:
        candidates[Score(NORMALISED, p=norm.p_, centre=norm.centre)] = normalised
    return _best_beyond_error(plain, candidates, correct, folds, seed, quick=quick)


def _best_beyond_error(
    plain: Doubles, scores: Mapping[Score, Doubles], correct: Bools, folds: Ints, seed: int, *, quick: bool
) -> tuple[Score, tuple[Candidate, ...]]:
    before = ranks_by_fold(plain, folds)
    best, least = Score(), aurc(before, correct)
    candidates = [Candidate(str(best), least)]
    some_wrong, changes = 0 < int(correct.sum()) < len(correct), None
    for score, values in scores.items():
        after = ranks_by_fold(values, folds)
        candidate = Candidate(str(score), aurc(after, correct), str(Score()))
        if some_wrong and not (quick and candidate.value >= least):
            changes = changes or AurcChanges(Judged(plain, correct, score=before), level=LEVEL, seed=seed)
            change = changes.to(after)
            candidate = replace(candidate, change=change.value, low=change.low, high=change.high)
            if change.high < 0 and candidate.value < least:
                best, least = score, candidate.value
        candidates.append(candidate)
    return best, _marked(candidates, str(best))


def _values(score: Score, z: Array, calibrated: Array) -> Doubles:
    parts = [
        score.apply(NumpyOps(), z[rows].astype(np.float64), calibrated[rows].astype(np.float64))
        for rows in row_slices(len(z), z.shape[1])
    ]
    return np.concatenate(parts)[:, 0]
