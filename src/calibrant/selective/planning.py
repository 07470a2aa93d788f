"""What the samples of the choice say about the tests to come: where, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrant.selective.bounds import binomial_tail
from calibrant.selective.threshold import STEPS, Method, curve_of, steps_of_sgr

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scored:
    """What the threshold needs of its samples, a row each.

    Attributes:
        score: ``[n]``.
        correct: ``[n]`` bool.
        groups: ``[n]`` text, or None.
        images: ``[n]`` number of the image, or None.
    """

    score: Doubles
    correct: npt.NDArray[np.bool_]
    groups: npt.NDArray[np.str_] | None = None
    images: npt.NDArray[np.int64] | None = None


def planned(plan: Scored, samples: int, risk: float, delta: float) -> tuple[Doubles, Method]:
    """Candidates in the order to test them, and which of the two methods promises more coverage.

    Candidates lie midway between scores at evenly spaced ranks. The test that is most likely to hold comes first, and
    from there on ever more is accepted.
    """
    candidates, accepted, errors = candidates_of(plan)
    scale = samples / len(plan.score)
    # Half an error more than seen: a short run without any must not look like certainty.
    tail = binomial_tail((errors + 0.5) * scale, np.maximum(accepted * scale, (errors + 0.5) * scale), risk)
    start = int(np.argmin(tail))
    holds = tail[start:] <= delta
    reached = start + (len(holds) if holds.all() else int(np.argmin(holds)))
    by_sgr = np.flatnonzero(tail <= delta / steps_of_sgr(samples))
    better: Method = "sgr" if len(by_sgr) and int(by_sgr[-1]) >= reached else "fixed-sequence"
    return candidates[start:], better


def candidates_of(plan: Scored) -> tuple[Doubles, Doubles, Doubles]:
    """Thresholds from strict to loose, the last of which accepts everything, with what they accept of the plan's."""
    curve = curve_of(plan.score, plan.correct)
    ranks = np.linspace(len(plan.score) / STEPS, len(plan.score), STEPS).round().astype(np.int64)
    at = np.unique(curve.at_rank(ranks))
    at = at[at > 0]
    if at[-1] < len(curve.accepted) - 1:
        at = np.append(at, len(curve.accepted) - 1)
    below = np.append(curve.lowest[1:], -np.inf)[at]
    middle = np.where(np.isinf(below), -np.inf, (curve.lowest[at] + below) / 2)
    return middle, curve.accepted[at].astype(np.float64), curve.errors[at].astype(np.float64)
