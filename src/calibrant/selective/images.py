r"""A guarantee where samples come in images: pixels of an image are alike, so images are the draws.

With A the share of an image's positions that are accepted and Y the share that is accepted and wrong (of all
positions, counted or not, a number known before any image is seen), the risk over pixels is E[Y] / E[A], and it is
above r exactly if the mean of :math:`X = r A - Y \in [r - 1, r]` is negative. Whoever bets on the contrary, with stakes
that depend on earlier images alone, has the capital :math:`K_i = \prod_{j \le i} (1 + \lambda_j X_j)`, which reaches
:math:`1 / \delta` with probability :math:`\delta` at most if the risk is above r [WaudbySmith2024]: an exact test,
whatever happens inside an image.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from calibrant.metrics import Interval, normal_interval
from calibrant.selective.planning import Scored
from calibrant.selective.threshold import Method, Threshold, abstaining

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

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


class ImageCounts:
    """How many positions of each image each of some thresholds accepts, and how many of those are wrong.

    Args:
        thresholds: ``[M]``, falling.
        places: how many positions an image has, whether they count or not: the most that it could have accepted,
            known before any image is seen.
    """

    def __init__(self, thresholds: Doubles, places: int) -> None:
        self.thresholds, self.places, self.pixels = thresholds, places, 0
        self._parts: list[tuple[Ints, Ints]] = []

    def add(self, score: Doubles, correct: npt.NDArray[np.bool_], number: Ints, images: int) -> None:
        """Count positions of ``images`` images, with ``number`` from 0 on."""
        # The first of the thresholds that accepts a pixel; what it accepts, all later ones do.
        place = np.searchsorted(-self.thresholds, -score, side="left")
        size = (images, len(self.thresholds) + 1)
        code = number * size[1] + place
        parts = (np.bincount(code, weights, size[0] * size[1]).reshape(size) for weights in (None, ~correct))
        accepted, errors = (np.cumsum(part, axis=1)[:, :-1].astype(np.int64) for part in parts)
        self._parts.append((accepted, errors))
        self.pixels += len(score)

    @classmethod
    def of(cls, scored: Scored, thresholds: Doubles) -> ImageCounts:
        """The counts of positions at hand."""
        assert scored.images is not None
        _, number = np.unique(scored.images, return_inverse=True)
        made = cls(thresholds, scored.places)
        made.add(scored.score, scored.correct, number.astype(np.int64), int(number.max()) + 1)
        return made

    def totals(self) -> tuple[Ints, Ints]:
        """Accepted and wrongly accepted, ``[images, M]``."""
        accepted, errors = zip(*self._parts, strict=True)
        return np.concatenate(accepted), np.concatenate(errors)

    def shares(self) -> tuple[Doubles, Doubles]:
        """The same as shares of an image's positions."""
        accepted, errors = self.totals()
        return accepted / self.places, errors / self.places


def first_test(plan: Scored, candidates: Doubles, risk: float) -> int:
    """The most promising candidate: how far below the target it seems to be, in units of the spread over images."""
    accepted, errors = ImageCounts.of(plan, candidates).shares()
    gain = risk * accepted - errors
    return int(np.argmax(gain.mean(0) / (gain.std(0) + 1e-3 * risk)))


def threshold_over_images(counts: ImageCounts, first: int, risk: float, confidence: float, method: Method) -> Threshold:
    """The loosest threshold for pixels that can be shown over images, tested from the ``first`` on."""
    accepted, errors = counts.totals()
    if method == "empirical":
        total = accepted.sum(0)
        fits = np.flatnonzero((errors.sum(0) <= risk * total) & (total > 0))
        return _found(counts, int(fits[-1]) if len(fits) else -1, risk, None)
    shares, wrong = counts.shares()
    holds = shows(shares[:, first:], wrong[:, first:], risk, 1 - confidence)
    passed = len(holds) if holds.all() else int(np.argmin(holds))
    return _found(counts, first + passed - 1 if passed else -1, risk, confidence)


def coverage_over_images(counts: ImageCounts, coverage: float, confidence: float) -> Threshold:
    """The strictest threshold that accepts so large a share of the pixels; nothing is promised about the risk."""
    total = counts.totals()[0].sum(0)
    enough = np.flatnonzero(total >= coverage * counts.pixels * (1 - 1e-12))
    at = int(enough[0]) if len(enough) else len(total) - 1
    return replace(_found(counts, at, None, confidence), method="coverage over images")


def _found(counts: ImageCounts, at: int, risk: float | None, confidence: float | None) -> Threshold:
    accepted, errors = counts.totals()
    images = len(accepted)
    method = "empirical" if confidence is None else METHOD
    nothing = replace(abstaining(method, risk, confidence), samples=counts.pixels, coverage=Interval(0.0, 0.0, 0.0))
    if at < 0:
        assert risk is not None
        if confidence is None:
            return replace(nothing, reason=f"Abstain always: no threshold has an error rate of {risk:.2%} or less.")
        least = fewest_images(risk, 1 - confidence)
        more = f"even without a wrong pixel about {least:,} images are needed" if images < least else "more may"
        reason = f"Abstain always: {images:,} images cannot show a risk of at most {risk:.2%}; {more}."
        return replace(nothing, reason=reason, needed=least if images < least else None)
    number, wrong = int(accepted[:, at].sum()), int(errors[:, at].sum())
    # Images with few positions that count weigh little, in the share and in its error alike.
    covered = number / counts.pixels
    positions = accepted[:, -1] if np.isneginf(counts.thresholds[-1]) else accepted.max(1)
    error = math.sqrt(float(np.square(accepted[:, at] - covered * positions).sum())) / counts.pixels
    coverage = normal_interval(covered, error, confidence or 0.95, 0.0, 1.0)
    shown = math.nan if risk is None or confidence is None else risk
    return replace(
        nothing, value=float(counts.thresholds[at]), accepted=number, errors=wrong, coverage=coverage, needed=None,
        risk=Interval(wrong / number if number else math.nan, math.nan, shown),
        reason=f"Accepts {number:,} of {counts.pixels:,} pixels, {wrong:,} of them wrong.",
    )  # fmt: skip
