r"""The threshold of a policy for pixels, found on images.

Pixels of an image are alike, so images are the draws: with A the share of an image's positions that are accepted and Y
the share that is accepted and wrong (of all positions, counted or not, a number known before any image is seen), the
risk over pixels is E[Y] / E[A], and it is above r exactly if the mean of :math:`X = r A - Y \in [r - 1, r]` is below 0.
Whoever bets on the contrary, with stakes that depend on earlier images alone, has the capital :math:`K_i = \prod_{j \le
i} (1 + \lambda_j X_j)`, which reaches :math:`1 / \delta` with probability :math:`\delta` at most if the risk is above r
[WaudbySmith2024]: an exact test, whatever happens inside an image.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from calibrant.base.checks import Bools, Ints
from calibrant.base.numbers import allowed, count
from calibrant.metrics import Doubles, Interval, normal_interval
from calibrant.promises.parts import ScoredSamples, ThresholdTarget
from calibrant.promises.thresholds import (
    LEVEL,
    STEPS,
    Threshold,
    abstaining_threshold,
    candidates_of,
    curve_of,
    menu_words,
    offers_from,
)

FINE_STEPS = 512  # candidates where none is tested
MOST_STAKE = 0.9  # of the stake at which the worst image would take everything


def can_show_risk(
    accepted: Doubles, errors: Doubles, target_risk: float, delta: float, fractions: tuple[float, ...] = (1.0,)
) -> Bools:
    """Whether a risk of at most ``target_risk`` is shown at level ``delta``, for each column.

    Args:
        accepted: ``[I, M]`` share of each image's pixels accepted by each of M thresholds.
        errors: ``[I, M]`` share accepted and wrong.
        target_risk: the risk.
        delta: the chance to be wrong about it.
        fractions: of the stake, between which the capital is divided: smaller ones where single losses are large.

    Example:
        >>> can_show_risk(np.ones((80, 1)), np.zeros((80, 1)), 0.05, 0.05).tolist()
        [True]
        >>> can_show_risk(np.ones((50, 1)), np.zeros((50, 1)), 0.05, 0.05).tolist()
        [False]
    """
    gain = target_risk * accepted - errors
    number = np.arange(len(gain))[:, None]
    # Mean and variance of the images before, with one imagined image that has a quarter of the target to win.
    guess, spread = target_risk / 4, target_risk / 4
    before = np.cumsum(gain, axis=0) - gain
    mean = (guess + before) / (number + 1)
    squares = np.cumsum(np.square(gain), axis=0) - np.square(gain)
    variance = np.maximum((spread**2 + squares) / (number + 1) - np.square(mean), spread**2 / (number + 1))
    stake = np.clip(mean / (variance + np.square(mean)), 0, MOST_STAKE / (1 - target_risk))
    capital = np.full_like(gain, -np.inf)
    for fraction in fractions:
        capital = np.logaddexp(capital, np.cumsum(np.log1p(fraction * stake * gain), axis=0) - math.log(len(fractions)))
    return capital.max(axis=0) >= math.log(1 / delta)


def fewest_images(target_risk: float, delta: float) -> int:
    """About how many images are needed if every pixel is accepted and right."""
    return math.ceil(math.log(1 / delta) / math.log1p(MOST_STAKE * target_risk / (1 - target_risk)))


class AnsweredImages(NamedTuple):
    """How many images are answered in every pixel that counts, in some, and in none."""

    whole: int = 0
    in_part: int = 0
    unanswered: int = 0

    @classmethod
    def of(cls, accepted: Ints, positions: Ints) -> AnsweredImages:
        """Of the accepted pixels and the pixels that count of each image; images without any are left out.

        Example:
            >>> AnsweredImages.of(np.array([4, 1, 0, 0]), np.array([4, 4, 4, 0]))
            AnsweredImages(whole=1, in_part=1, unanswered=1)
        """
        whole = int(((accepted == positions) & (positions > 0)).sum())
        unanswered = int(((accepted == 0) & (positions > 0)).sum())
        return cls(whole, int((positions > 0).sum()) - whole - unanswered, unanswered)

    def words(self) -> str:
        """The three counts in words."""
        whole = f"{count(self.whole)} of {count(sum(self))} answered whole"
        return f"images: {whole}, {count(self.in_part)} in part, {count(self.unanswered)} not at all"


def threshold_over_images(parts: Iterable[ScoredSamples], plan: ScoredSamples, target: ThresholdTarget) -> Threshold:
    """A threshold for pixels, found on images; only counts for each image and candidate are kept of the ``parts``."""
    is_tested = target.risk is not None and target.method != "empirical"
    candidates, _ = candidates_of(curve_of(plan.score, plan.correct), STEPS if is_tested else FINE_STEPS)
    counts, pixels, image_size = [], 0, 0
    for part in parts:
        counts.append(_count_by_image(candidates, part))
        pixels += len(part.score)
        image_size = image_size or part.image_size
    if not pixels:
        raise ValueError("no pixel that counts is left for the threshold: there are too few images")
    accepted, errors = (np.concatenate(column) for column in zip(*counts, strict=True))
    loosest = partial(_find_loosest, accepted, errors, pixels, image_size, candidates, plan)

    def coverage_at(risk: float) -> float:
        index, _ = loosest(replace(target, risk=risk))
        return float(accepted[:, index].sum()) / pixels if index >= 0 else 0.0

    at, method = loosest(target)
    confidence = None if method == "empirical" else target.confidence
    nothing = abstaining_threshold(method, target.risk, confidence)
    nothing = replace(nothing, samples=pixels, coverage=Interval(0.0, 0.0, 0.0))
    if at < 0:
        nothing = _explain_abstention(nothing, len(accepted))
        menu = offers_from(coverage_at, above=target.risk or 0.0)
        return replace(nothing, menu=menu, reason=f"{nothing.reason} {menu_words(menu, 'images', confidence)}")
    number, wrong = int(accepted[:, at].sum()), int(errors[:, at].sum())
    # Images with few positions that count weigh little, in the share and in its error alike.
    positions = accepted[:, -1] if np.isneginf(candidates[-1]) else accepted.max(1)
    error = math.sqrt(float(np.square(accepted[:, at] - number / pixels * positions).sum())) / pixels
    limit = target.risk if is_tested and target.risk is not None else math.nan
    return replace(
        nothing,
        value=float(candidates[at]),
        accepted=number,
        errors=wrong,
        coverage=normal_interval(number / pixels, error, confidence or LEVEL, 0.0, 1.0),
        risk=Interval(wrong / number if number else math.nan, math.nan, limit),
        reason=f"Accepts {number:,} of {pixels:,} pixels, {wrong:,} of them wrong; "
        f"{AnsweredImages.of(accepted[:, at], positions).words()}.",
    )


def _find_loosest(
    accepted: Ints,
    errors: Ints,
    pixels: int,
    image_size: int,
    candidates: Doubles,
    plan: ScoredSamples,
    target: ThresholdTarget,
) -> tuple[int, str]:
    """The index of the candidate that accepts most and meets the target, -1 if none does, and the method's name."""
    total = accepted.sum(0)
    if target.risk is None:  # the strictest that accepts so large a share; nothing is promised about the risk
        assert target.coverage is not None
        enough = np.flatnonzero(total >= target.coverage * pixels * (1 - 1e-12))
        return int(enough[0]) if len(enough) else len(total) - 1, "coverage over images"
    if target.method == "empirical":
        fits = np.flatnonzero((errors.sum(0) <= target.risk * total) & (total > 0))
        return int(fits[-1]) if len(fits) else -1, "empirical"
    # The most promising candidate by the plan's images comes first.
    planned, planned_errors = (counts / plan.image_size for counts in _count_by_image(candidates, plan))
    start = most_promising(planned, planned_errors, target.risk)
    shares, error_shares = accepted[:, start:] / image_size, errors[:, start:] / image_size
    holds = can_show_risk(shares, error_shares, target.risk, 1 - target.confidence)
    passed = len(holds) if holds.all() else int(np.argmin(holds))
    return start + passed - 1 if passed else -1, "fixed-sequence over images"


def _explain_abstention(nothing: Threshold, images: int) -> Threshold:
    """The same with a reason, and with how many images would be needed."""
    risk = nothing.target_risk or 0.5
    if nothing.confidence is None:
        return replace(nothing, reason=f"Always abstains: no threshold has an error rate of {allowed(risk)} or less.")
    least = fewest_images(risk, 1 - nothing.confidence)
    remedy = f"even without a wrong pixel about {least:,} images are needed" if images < least else "more images may"
    reason = f"Always abstains: {images:,} images cannot show a risk of at most {allowed(risk)}; {remedy}."
    return replace(nothing, reason=reason, needed=least if images < least else None)


def _count_by_image(thresholds: Doubles, scored: ScoredSamples) -> tuple[Ints, Ints]:
    """How many positions of each image falling thresholds accept, and how many of those are wrong, ``[images, M]``."""
    # The first of the thresholds that accepts a pixel; what it accepts, all later ones do.
    first = np.searchsorted(-thresholds, -scored.score, side="left")
    shape = (scored.num_images, len(thresholds) + 1)
    code = scored.images * shape[1] + first
    parts = (np.bincount(code, weights, shape[0] * shape[1]).reshape(shape) for weights in (None, ~scored.correct))
    accepted, errors = (np.cumsum(part, axis=1)[:, :-1].astype(np.int64) for part in parts)
    return accepted, errors


def most_promising(accepted: Doubles, errors: Doubles, risk: float) -> int:
    """The column that seems farthest below the target, in units of its spread; arguments as of `can_show_risk`."""
    gain = risk * accepted - errors
    return int(np.argmax(gain.mean(0) / (gain.std(0) + 1e-3 * risk)))
