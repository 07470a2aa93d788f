r"""The threshold of a promise about recall, a cost or an expected risk, and what the samples had that it was set on.

**Recall.** With n samples of the class, let c be the most that may be missed: the largest number with
:math:`P(\mathrm{Bin}(n, 1 - \rho) \le c) \le \delta`. The threshold lies at the (c + 1)-th lowest probability of the
class among these samples. The share of the class below the (c + 1)-th of n draws is above :math:`1 - \rho` exactly if c
draws or fewer lie below that quantile, which has this probability: one order statistic, and nothing to search.

**Expected risk.** Conformal risk control [Angelopoulos2022]: the loosest threshold with at most
:math:`\lfloor \alpha (n + 1) \rfloor - 1` answered errors among n samples, so that the next sample is answered wrongly
with probability :math:`\alpha` at most, on average over the n.

**Cost.** Bets, as in `calibrant.selective.thresholds.costs`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from calibrant._numbers import allowed, count
from calibrant._validation import Bools
from calibrant.metrics import Doubles
from calibrant.selective.bounds import allowed_errors, coverage_interval, fewest, risk_interval
from calibrant.selective.promise import LossTally, Promise
from calibrant.selective.thresholds.costs import CostSamples, loosest_by_cost
from calibrant.selective.thresholds.risk import Threshold, abstaining
from calibrant.selective.thresholds.samples import ScoredSamples, ThresholdTarget
from calibrant.selective.thresholds.search import curve_of

_INTO_GAP = 2.0**-10  # how far below the lowest accepted score of the class the threshold lies, as a share of the gap
_ROUNDING = 1e-12  # relative: scores that differ by less are tied


def threshold_of_promise(
    scored: ScoredSamples, plan: ScoredSamples | None, promise: Promise, target: ThresholdTarget
) -> tuple[Threshold, Promise]:
    """The threshold of a promise that has one for all samples, and the promise with what was seen."""
    reason, needed = "", None
    if promise.of == "recall":
        of_class = scored.labels == promise.label
        value = recall_threshold(scored.score[of_class], promise.shares[0][1], 1 - target.confidence)
        least = fewest(promise.mean_loss or 0.5, 1 - target.confidence)
        reason = (
            f"Abstain always: {count(int(of_class.sum()))} samples of the class cannot show a recall of "
            f"{allowed(promise.shares[0][1])}; {count(least)} or more of the class are needed."
        )
        needed = least if of_class.sum() < least else None
    elif promise.of == "cost":
        value = _cost_threshold(scored, plan, promise, 1 - target.confidence)
        mean = f"{promise.target:g}"
        reason = f"Abstain always: {count(len(scored.score))} samples cannot show a mean cost of at most {mean}."
    else:
        assert promise.target is not None
        value = expected_risk_threshold(scored.score, scored.correct, promise.target)
        needed = math.ceil(1 / promise.target - 1e-9) - 1
        reason = f"Abstain always: an expected risk of {allowed(promise.target)} needs {count(needed)} samples or more."
    accept = scored.score >= value
    answers = np.full_like(scored.predicted, promise.label) if promise.of == "recall" else scored.predicted
    rows, losses = promise.losses(scored.labels, answers, accept)
    tally = LossTally(int(rows.sum()), float(losses[rows].sum()))
    errors = int((accept & (answers != scored.labels)).sum())
    return _described(value, promise, target, accept, errors, reason, needed), replace(promise, tally=tally)


def recall_threshold(score: Doubles, share: float, delta: float) -> float:
    """The highest threshold that ``share`` of a class reaches, with probability 1 - delta; of its samples' scores.

    Infinite where the samples are too few.

    Example:
        >>> import numpy as np
        >>> from calibrant.selective.thresholds.mean_loss import recall_threshold
        >>> 0.1 < recall_threshold(np.arange(1, 94) / 93, 0.95, 0.05) * 93 < 2  # of 93 samples one may be missed
        True
    """
    misses = int(allowed_errors(len(score), round(1 - share, 12), delta)) if len(score) else -1
    if misses < 0:
        return math.inf
    rising = np.sort(score)
    at = rising[misses]
    below = rising[rising < at - _ROUNDING * abs(at)]  # what ties with it is accepted too
    return float(at - (at - below[-1]) * _INTO_GAP) if len(below) else -math.inf


def expected_risk_threshold(score: Doubles, correct: Bools, target: float) -> float:
    """The loosest threshold of conformal risk control for the loss "answered, and wrong"; infinite if none will do.

    Example:
        >>> import numpy as np
        >>> from calibrant.selective.thresholds.mean_loss import expected_risk_threshold
        >>> score, correct = np.arange(19.0, 0, -1), np.ones(19, dtype=bool)
        >>> correct[[9, 14]] = False
        >>> 10 < expected_risk_threshold(score, correct, 0.05) < 11  # no error may be answered
        True
    """
    allowed_wrong = math.floor(target * (len(score) + 1) * (1 + 1e-12)) - 1
    curve = curve_of(score, correct)
    fits = np.flatnonzero((curve.errors <= allowed_wrong) & (curve.accepted > 0))
    return float(curve.threshold[fits[-1]]) if len(fits) else math.inf


def _cost_threshold(scored: ScoredSamples, plan: ScoredSamples | None, promise: Promise, delta: float) -> float:
    if plan is None:
        raise ValueError(f"{len(scored.score)} samples are too few: some plan the tests of the cost, others are tested")
    costs = promise.cost_matrix
    planned, tested = (CostSamples(part.score, costs[part.labels, part.predicted]) for part in (plan, scored))
    assert promise.target is not None
    lowest = -math.inf if promise.abstain_cost is None else -promise.abstain_cost
    return loosest_by_cost(planned, tested, promise.target, promise.highest, delta, lowest)


def _described(
    value: float, promise: Promise, target: ThresholdTarget, accept: Bools, errors: int, reason: str, needed: int | None
) -> Threshold:
    """The threshold with counts; limits are at the confidence, and not what the promise is about."""
    samples, accepted, delta = len(accept), int(accept.sum()), 1 - target.confidence
    nothing = replace(
        abstaining(promise.of, None, target.confidence),
        samples=samples,
        coverage=coverage_interval(accepted, samples, target.confidence),
    )
    if value == math.inf:
        return replace(nothing, reason=reason, needed=needed)
    return replace(
        nothing,
        value=value,
        accepted=accepted,
        errors=errors,
        risk=risk_interval(errors, accepted, delta / 2, delta / 2),
        reason=f"Accepts {count(accepted)} of {count(samples)} samples, {count(errors)} of them wrong.",
    )
