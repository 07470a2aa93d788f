r"""Scores and quantiles of prediction sets: how strange a class would be as the label of a sample.

A set holds the classes whose score is at most a quantile of the scores that the true labels of other samples had (split
conformal prediction, [Vovk2005; Papadopoulos2002]). With probabilities :math:`p` that fall in the order
:math:`\pi_1, \pi_2, \dots` and :math:`r(y)` the position of class :math:`y` in it, the scores are

=====================  ================================================================================================
``lac``                :math:`-p_y` [Sadinle2019]; the constant of the usual :math:`1 - p_y` is left out, so that small
                       probabilities keep their digits
``aps``                :math:`\sum_{i \le r(y)} p_{\pi_i}` [Romano2020]: the probability down to the class, with its own
``raps``               that of ``aps`` plus :math:`\lambda \max(0, r(y) - k)` [Angelopoulos2021b, Eq. 4]
``class-conditional``  that of ``lac``, with a quantile for each class [Vovk2005, Section 4.5; Sadinle2019]
=====================  ================================================================================================

The letters of the papers: :math:`\lambda` is ``penalty``, :math:`k` is ``free_ranks``, :math:`u` is ``draw``. With a
draw :math:`u`, uniform in 0..1, ``aps`` and ``raps`` count only :math:`u\,p_y` of the class itself. Classes of equal
probability keep the order of their columns. Departure from the papers: a class is a member where its score is at most
the quantile, so that sets can be empty; the class that crosses the quantile is not added.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeVar

import numpy as np

from calibrant._validation import Ints
from calibrant.metrics import Doubles
from calibrant.posthoc import NumpyOps, Ops

V = TypeVar("V")

METHODS = ("lac", "aps", "raps", "class-conditional")
RANKED = ("aps", "raps")  # methods whose scores need the order of the classes
ROUNDING = 1e-12  # of a quantile: engines that sum in another order meet it all the same


def set_scores(
    ops: Ops[V], method: str, probabilities: V, penalty: float = 0.0, free_ranks: int = 0, draw: V | None = None
) -> V:
    """The score of every class, ``[n, C]``; high where the class would be strange.

    Args:
        ops: what computes or draws.
        method: of `METHODS`.
        probabilities: ``[n, C]`` float64.
        penalty: for each position after ``free_ranks``, of ``raps``.
        free_ranks: how many positions are without a penalty.
        draw: ``[n, 1]`` uniform random numbers, where ``aps`` and ``raps`` are randomised.
    """
    if method not in RANKED:
        return ops.sub(ops.constant(0.0), probabilities)
    position, scores = ops.falling_totals(probabilities)
    if draw is not None:
        scores = ops.sub(scores, ops.mul(ops.sub(ops.constant(1.0), draw), probabilities))
    if method == "raps":
        beyond = ops.maximum(ops.sub(position, ops.constant(float(free_ranks))), ops.constant(0.0))
        scores = ops.add(scores, ops.mul(ops.constant(penalty), beyond))
    return scores


def conformal_rank(samples: int, level: float) -> int:
    r"""The number :math:`\lceil (n + 1) (1 - \alpha) \rceil` of the score, in rising order, that is the quantile.

    The level is taken as the decimal fraction it is written as: 100 times 0.07 is 7, not a little more.

    Example:
        >>> from calibrant.selective.sets.conformal import conformal_rank
        >>> conformal_rank(19, 0.95), conformal_rank(18, 0.95), conformal_rank(99, 0.07)
        (19, 19, 7)
    """
    return math.ceil((samples + 1) * Fraction(repr(float(level))))


def conformal_quantile(scores: Doubles, level: float) -> float:
    """The finite-sample quantile of scores; infinite where they are too few for the level.

    Example:
        >>> import numpy as np
        >>> from calibrant.selective.sets.conformal import conformal_quantile
        >>> scores = np.arange(19.0)
        >>> conformal_quantile(scores, 0.9), conformal_quantile(scores, 0.95), conformal_quantile(scores, 0.96)
        (17.0, 18.0, inf)
    """
    rank = conformal_rank(len(scores), level)
    return math.inf if rank > len(scores) else float(np.partition(scores, rank - 1)[rank - 1])


def fewest_samples(level: float) -> int:
    """How many samples a finite quantile needs.

    Example:
        >>> from calibrant.selective.sets.conformal import fewest_samples
        >>> fewest_samples(0.95), fewest_samples(0.99)
        (19, 99)
    """
    share = Fraction(repr(float(level)))
    return math.ceil(share / (1 - share))


PENALTIES = (0.001, 0.01, 0.1, 0.2, 0.5)  # tried for RAPS, as in the code of [Angelopoulos2021b]
FREE_RANKS = (1, 2, 5, 10, 20, 50)  # tried as well


def choose_penalty(
    probabilities: Doubles,
    labels: Ints,
    level: float,
    penalty: float | None = None,
    free_ranks: int | None = None,
    draw: Doubles | None = None,
) -> tuple[float, int]:
    """Penalty and free ranks of RAPS by the smallest mean size of sets, on samples that set no quantile.

    Among the free ranks is that of [Angelopoulos2021b], within which the true class lies at the level; larger ones are
    not tried.

    Args:
        probabilities: ``[n, C]``.
        labels: ``[n]``.
        level: of the sets.
        penalty: where it is given and not to be chosen.
        free_ranks: likewise.
        draw: ``[n, 1]``, where sets are randomised.
    """
    ops, rows = NumpyOps(), np.arange(len(labels))
    position, _ = ops.falling_totals(probabilities)
    plain = set_scores(ops, "aps", probabilities, draw=draw)
    within = min(conformal_quantile(position[rows, labels], level), float(probabilities.shape[1]))
    ranks = {int(within), *(rank for rank in FREE_RANKS if rank < within)} if free_ranks is None else {free_ranks}
    sizes = {}
    for candidate in PENALTIES if penalty is None else (penalty,):
        for rank in sorted(ranks):
            scores = plain + candidate * np.maximum(position - rank, 0.0)
            sizes[candidate, rank] = int((scores <= conformal_quantile(scores[rows, labels], level)).sum())
    return min(sizes, key=lambda pair: sizes[pair])
