"""Cross-fitting: every row is repaired by what was fitted on other rows; audit, fit and compare share this module.

Samples are dealt to five folds by turns, in their order; the pixels of an image stay together. What is fitted without a
fold is applied to it. Scores of different folds need not be on one scale (their p may differ), so they are
compared as ranks inside each fold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from calibrant.base.arrays import Array, Doubles
from calibrant.base.checks import Bools, Ints
from calibrant.posthoc.base import Calibrator, Stream
from calibrant.posthoc.logit_norm import LogitNorm, best_norm

FOLDS = 5

C = TypeVar("C", bound=Calibrator)


class Repaired(NamedTuple, Generic[C]):
    """Logits repaired by calibrators that have not seen them, and these calibrators, one for each fold."""

    logits: Array
    fitted: list[C]


class Ranked(NamedTuple):
    """Two scores as ranks inside each fold, and the norm that was chosen without it."""

    plain: Doubles
    normalised: Doubles
    norms: list[LogitNorm]


def assign_folds(unit: Ints) -> Ints:
    """The fold of each row, of rows that belong to numbered samples or images."""
    _, number = np.unique(unit, return_inverse=True)
    return number.astype(np.int64) % FOLDS


def crossfit(make: Callable[[], C], z: Array, y: Array, folds: Ints) -> Repaired[C]:
    """Fit a calibrator without each fold of logits ``[n, C]`` and labels ``[n]``, and transform the fold with it."""
    return crossfit_all({"": make}, z, y, folds)[""]


def crossfit_all(makes: Mapping[str, Callable[[], C]], z: Array, y: Array, folds: Ints) -> dict[str, Repaired[C]]:
    """The same of several calibrators by name, fold by fold, so that they share the temperature they begin with."""
    repaired: dict[str, Repaired[C]] = {name: Repaired(np.empty_like(z), []) for name in makes}
    for k in np.unique(folds):
        inside = folds == k
        fold, training = z[inside], Stream(z[~inside], y[~inside])
        for name, make in makes.items():
            calibrator = make().fit(training)
            repaired[name].logits[inside] = calibrator.transform(fold)
            repaired[name].fitted.append(calibrator)
    return repaired


def crossfit_ranks(plain: Doubles, scores: Mapping[bool, Mapping[int, Doubles]], correct: Bools, folds: Ints) -> Ranked:
    """Choose p and the reading of the normalised logits without each fold, and rank the fold with them.

    Args:
        plain: the MSP of each row.
        scores: the normalised max logit of each row, by reading and p, as `scores_by_reading` gives it.
        correct: of each row.
        folds: of each row.
    """
    before, after, norms = np.empty(len(correct)), np.empty(len(correct)), []
    for k in np.unique(folds):
        inside = folds == k
        training = {centre: {p: score[~inside] for p, score in by_power.items()} for centre, by_power in scores.items()}
        norm = best_norm(plain[~inside], training, correct[~inside])
        norms.append(norm)
        before[inside] = rank_shares(plain[inside])
        after[inside] = before[inside] if norm.p_ is None else rank_shares(scores[norm.centre][norm.p_][inside])
    return Ranked(before, after, norms)


def ranks_by_fold(score: Doubles, folds: Ints) -> Doubles:
    """Ranks inside each fold."""
    ranks = np.empty(len(score))
    for k in np.unique(folds):
        ranks[folds == k] = rank_shares(score[folds == k])
    return ranks


def rank_shares(score: Doubles) -> Doubles:
    """The share of scores that are no larger; tied scores share it."""
    return np.searchsorted(np.sort(score), score, side="right") / len(score)
