r"""A guarantee where samples come in images: pixels of an image are alike, so images are the draws.

With A the share of an image's pixels that are accepted and Y the share that is accepted and wrong (of the largest
number of pixels an image has), the risk over pixels is E[Y] / E[A], and it is above r exactly if the mean of
:math:`X = r A - Y \in [r - 1, r]` is negative. Whoever bets on the contrary, with stakes that depend on earlier images
alone, has the capital :math:`K_i = \prod_{j \le i} (1 + \lambda_j X_j)`, which reaches :math:`1 / \delta` with
probability :math:`\delta` at most if the risk is above r [WaudbySmith2024]: an exact test, whatever happens inside an
image.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from calibrant.metrics.intervals import Interval, normal_interval
from calibrant.selective.planning import Scored, candidates_of
from calibrant.selective.threshold import Method, Threshold, abstaining, threshold_for_risk

Doubles = npt.NDArray[np.float64]

METHOD = "fixed-sequence over images"
MOST_STAKE = 0.9  # of the stake at which the worst image would take everything


def shows(accepted: Doubles, errors: Doubles, target_risk: float, delta: float) -> npt.NDArray[np.bool_]:
    """Whether a risk of at most ``target_risk`` is shown at level ``delta``, for each column.

    Args:
        accepted: ``[I, M]`` share of each image's pixels accepted by each of M thresholds.
        errors: ``[I, M]`` share accepted and wrong.
        target_risk: the risk.
        delta: the chance to be wrong about it.

    Example:
        >>> import numpy as np
        >>> from calibrant.selective.images import shows
        >>> shows(np.ones((80, 1)), np.zeros((80, 1)), 0.05, 0.05).tolist()
        [True]
        >>> shows(np.ones((50, 1)), np.zeros((50, 1)), 0.05, 0.05).tolist()
        [False]
    """
    gain = target_risk * accepted - errors
    count = np.arange(len(gain))[:, None]
    # Mean and variance of the images before, with one imagined image that has a quarter of the target to win.
    guess, spread = target_risk / 4, target_risk / 4
    before = np.cumsum(gain, axis=0) - gain
    mean = (guess + before) / (count + 1)
    squares = np.cumsum(np.square(gain), axis=0) - np.square(gain)
    variance = np.maximum((spread**2 + squares) / (count + 1) - np.square(mean), spread**2 / (count + 1))
    stake = np.clip(mean / (variance + np.square(mean)), 0, MOST_STAKE / (1 - target_risk))
    capital = np.cumsum(np.log1p(stake * gain), axis=0)
    reached: npt.NDArray[np.bool_] = capital.max(axis=0) >= math.log(1 / delta)
    return reached


def fewest_images(target_risk: float, delta: float) -> int:
    """About how many images are needed if every pixel is accepted and right."""
    return math.ceil(math.log(1 / delta) / math.log1p(MOST_STAKE * target_risk / (1 - target_risk)))


def threshold_over_images(
    scored: Scored, plan: Scored | None, risk: float, confidence: float, method: Method
) -> Threshold:
    """A threshold for pixels, guaranteed over images; ``plan`` says where to test, and in which order."""
    if method == "empirical":
        return limits_over_images(threshold_for_risk(scored.score, scored.correct, risk, method="empirical"), scored)
    delta, least, images = 1 - confidence, fewest_images(risk, 1 - confidence), len(np.unique(_numbers(scored)))
    reason = (
        f"Abstain always: {images:,} images cannot show a risk of at most {risk:.2%}; "
        f"even without a wrong pixel about {least:,} images are needed."
    )
    nothing = replace(
        abstaining(METHOD, risk, confidence), samples=len(scored.score), coverage=Interval(0.0, 0.0, 0.0),
        reason=reason, needed=max(least, images + 1),
    )  # fmt: skip
    if plan is None:
        return nothing
    candidates, _, _ = candidates_of(plan)
    order = candidates[int(np.argmax(_margin(plan, candidates, risk))) :]
    holds = shows(*_shares(scored, order), risk, delta)
    passed = len(holds) if holds.all() else int(np.argmin(holds))
    if not passed:
        return nothing
    value = float(order[passed - 1])
    held = scored.score >= value
    number, wrong = int(held.sum()), int((~scored.correct[held]).sum())
    found = replace(
        nothing, value=value, accepted=number, errors=wrong, risk=Interval(wrong / number, math.nan, risk), needed=None,
        reason=f"Accepts {number:,} of {len(held):,} pixels, {wrong:,} of them wrong.",
    )  # fmt: skip
    return limits_over_images(found, scored)


def limits_over_images(found: Threshold, scored: Scored) -> Threshold:
    """Limits of the coverage over images; of the risk only what was shown."""
    number = _numbers(scored)
    share = np.bincount(number, scored.score >= found.value) / np.bincount(number)
    error = float(share.std()) / math.sqrt(len(share))
    covered = found.accepted / found.samples
    coverage = normal_interval(covered, error, found.confidence or 0.95, 0.0, 1.0)
    shown = found.risk.high if found.method == METHOD else math.nan
    return replace(found, coverage=coverage, risk=Interval(found.risk.value, math.nan, shown))


def _numbers(scored: Scored) -> npt.NDArray[np.int64]:
    """The images' numbers from 0 on."""
    assert scored.images is not None
    return np.unique(scored.images, return_inverse=True)[1].astype(np.int64)


def _shares(scored: Scored, thresholds: Doubles) -> tuple[Doubles, Doubles]:
    """Shares accepted and wrongly accepted, ``[images, thresholds]``, of the largest image's number of pixels."""
    number = _numbers(scored)
    # The first of the thresholds, which fall, that accepts a pixel; what it accepts, all later ones do.
    place = np.searchsorted(-thresholds, -scored.score, side="left")
    size = (int(number.max()) + 1, len(thresholds) + 1)
    code = number * size[1] + place
    accepted = np.bincount(code, minlength=size[0] * size[1]).reshape(size)
    errors = np.bincount(code, ~scored.correct, minlength=size[0] * size[1]).reshape(size)
    most = np.bincount(number).max()
    return np.cumsum(accepted, axis=1)[:, :-1] / most, np.cumsum(errors, axis=1)[:, :-1] / most


def _margin(plan: Scored, candidates: Doubles, risk: float) -> Doubles:
    """How far below the target each candidate seems to be, in units of the spread over images."""
    accepted, errors = _shares(plan, candidates)
    gain = risk * accepted - errors
    return gain.mean(0) / (gain.std(0) + 1e-3 * risk)
