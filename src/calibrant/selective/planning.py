"""What the samples of the choice say about the tests to come: where, and in which order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrant.selective.bounds import binomial_tail
from calibrant.selective.threshold import STEPS, Method, Threshold, curve_of, steps_of_sgr, threshold_for_risk

Doubles = npt.NDArray[np.float64]

FEWEST_TO_PLAN = 50  # rows, below which the order of the tests is not planned on them
FEWEST_ACCEPTED = 10  # of these rows, for a candidate


@dataclass(frozen=True, eq=False)
class Scored:
    """What the threshold needs of its samples, a row each.

    Attributes:
        score: ``[n]``.
        correct: ``[n]`` bool.
        groups: ``[n]`` text, or None.
        images: ``[n]`` number of the image, from 0 on, or None.
        places: how many positions an image has, whether they count or not.
    """

    score: Doubles
    correct: npt.NDArray[np.bool_]
    groups: npt.NDArray[np.str_] | None = None
    images: npt.NDArray[np.int64] | None = None
    places: int = 1


def planned(plan: Scored, samples: int, risk: float, delta: float) -> tuple[Doubles, Method]:
    """Candidates in the order to test them, and which of the two methods promises more coverage.

    Candidates lie midway between scores. A sequence that fails at its first test promises nothing at all, and where the
    most promising test is of nearly all samples, that rests on the few errors that these rows happen to have. So the
    first is the strictest whose test looks likely to hold, among those that accept half as much as the most promising
    or more; from there on ever more is accepted.
    """
    candidates, accepted, errors = candidates_of(plan)
    scale = samples / len(plan.score)
    # Half an error more than seen: a short run without any must not look like certainty.
    tail = binomial_tail((errors + 0.5) * scale, np.maximum(accepted * scale, (errors + 0.5) * scale), risk)
    start = int(np.argmin(tail))
    likely = np.flatnonzero((tail <= delta / 2) & (accepted >= accepted[start] / 2))
    start = int(likely[0]) if len(likely) else start
    holds = tail[start:] <= delta
    reached = start + (len(holds) if holds.all() else int(np.argmin(holds)))
    by_sgr = np.flatnonzero(tail <= delta / steps_of_sgr(samples))
    better: Method = "sgr" if len(by_sgr) and int(by_sgr[-1]) >= reached else "fixed-sequence"
    return candidates[start:], better


def threshold_planned(scored: Scored, plan: Scored | None, risk: float, confidence: float, method: Method) -> Threshold:
    """A threshold for one set of independent samples; the plan's, which are others, say in which order to test."""
    candidates = None
    if plan is not None and len(plan.score) >= FEWEST_TO_PLAN and method in ("best", "fixed-sequence"):
        candidates, better = planned(plan, len(scored.score), risk, 1 - confidence)
        method = better if method == "best" else method
    elif method == "best":
        method = "fixed-sequence"
    return threshold_for_risk(
        scored.score, scored.correct, risk, confidence=confidence, method=method,
        candidates=candidates if method == "fixed-sequence" else None,
    )  # fmt: skip


def candidates_of(plan: Scored, steps: int = STEPS) -> tuple[Doubles, Doubles, Doubles]:
    """Thresholds from strict to loose, the last of which accepts everything, with what they accept of the plan's."""
    curve = curve_of(plan.score, plan.correct)
    size = len(plan.score)
    # Evenly over all, and ever closer towards the top, where a strict target may be met by a small share alone.
    ranks = np.concatenate([np.linspace(size / steps, size, steps), size / steps * 2.0 ** -np.arange(0.5, 8, 0.5)])
    at = curve.at_rank(ranks[ranks >= FEWEST_ACCEPTED].round().astype(np.int64))
    at = np.unique(np.append(at[at > 0], curve.sets))
    below = np.append(curve.lowest[1:], -np.inf)[at]
    middle = np.where(np.isinf(below), -np.inf, (curve.lowest[at] + below) / 2)
    return middle, curve.accepted[at].astype(np.float64), curve.errors[at].astype(np.float64)
