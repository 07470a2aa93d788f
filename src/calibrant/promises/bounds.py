r"""Exact binomial bounds: what a number of errors among accepted samples says about the risk behind it.

With k errors among n accepted samples, drawn independently, the hypothesis "the risk is above r" has the p-value
:math:`P(\mathrm{Bin}(n, r) \le k)`. The largest risk that this does not reject at level :math:`\delta` is the limit of
[ClopperPearson1934], and the same number is the bound :math:`B^*` that [Geifman2017, Lemma 3.1] builds SGR on.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, betaincinv, betaln, gammaln

from calibrant.base.checks import Bools, Ints, check_number
from calibrant.metrics import NEAREST, Doubles, Interval, wilson

UNKNOWN = Interval(math.nan, math.nan, math.nan)


def check_open_share(name: str, value: float) -> float:
    """A number above 0 and below 1, by a little more than rounding."""
    value = check_number(name, value, 0.0, 1.0)
    if not 0 < value < 1:
        raise ValueError(f"{name} must be a number above 0 and below 1, got {value!r}")
    if not NEAREST <= value <= 1 - NEAREST:
        raise ValueError(f"{name} must be a number at least {NEAREST:g} above 0 and below 1, got {value!r}")
    return value


def binomial_tail(errors: npt.ArrayLike, accepted: npt.ArrayLike, risk: float) -> Doubles:
    """P(Bin(accepted, risk) <= errors), the p-value of "the risk is above ``risk``"; 1 where nothing was accepted.

    The counts need not be whole.

    Example:
        >>> binomial_tail([0, 1, 10], [10, 10, 10], 0.5).tolist()  # 1/1024, 11/1024, 1
        [0.0009765625, 0.0107421875, 1.0]
    """
    k, n = np.asarray(errors, dtype=np.float64), np.asarray(accepted, dtype=np.float64)
    inside = k < n
    return np.where(inside, betainc(np.where(inside, n - k, 1.0), k + 1, 1 - risk), 1.0)


def coverage_p_value(covered: int, samples: int, rank: int, calibration: int) -> float:
    """The probability that so few sets or fewer hold the true class, if new samples are like those of the quantile.

    The coverage of a fit has the distribution Beta(k, n + 1 - k), so that the count is beta-binomial [Vovk2012]; scores
    that tie make it larger.

    Example:
        >>> round(coverage_p_value(0, 1, 19, 19), 4), coverage_p_value(1, 1, 19, 19)  # 1 / 20
        (0.05, 1.0)
    """
    if covered >= samples:
        return 1.0
    a, b, k = rank, calibration + 1 - rank, np.arange(covered + 1.0)
    logs = gammaln(samples + 1) - gammaln(k + 1) - gammaln(samples - k + 1)
    logs += betaln(k + a, samples - k + b) - betaln(a, b)
    return min(1.0, float(np.exp(logs).sum()))


def mean_tail(total: float, samples: int, mean: float) -> float:
    r"""A p-value of "the mean is above ``mean``", of independent numbers in [0, 1] by their sum: Hoeffding and Bentkus.

    The smaller of :math:`e^{-n\, \mathrm{KL}}` and :math:`e\, P(\mathrm{Bin}(n, \text{mean}) \le \lceil
    \text{total} \rceil)` [Angelopoulos2021].

    Example:
        >>> round(mean_tail(0.0, 10, 0.5), 6), mean_tail(6.0, 10, 0.5)  # 1/1024, no evidence
        (0.000977, 1.0)
    """
    if not samples or total >= mean * samples:
        return 1.0
    share = total / samples
    divergence = (1 - share) * math.log((1 - share) / (1 - mean))
    divergence += share * math.log(share / mean) if share > 0 else 0.0
    bentkus = math.e * float(binomial_tail(math.ceil(total - 1e-9), samples, mean))
    return min(1.0, math.exp(-samples * divergence), bentkus)


def upper_limit(errors: int, accepted: int, delta: float) -> float:
    """The risk that lies above the true one with probability 1 - delta at least; 1 where nothing was accepted.

    Example:
        >>> round(upper_limit(0, 59, 0.05), 4)  # 1 - 0.05 ** (1 / 59)
        0.0495
    """
    return 1.0 if errors >= accepted else float(betaincinv(errors + 1, accepted - errors, 1 - delta))


def lower_limit(errors: int, accepted: int, delta: float) -> float:
    """The risk that lies below the true one with probability 1 - delta at least."""
    return 0.0 if errors <= 0 else float(betaincinv(errors, accepted - errors + 1, delta))


def risk_interval(errors: int, accepted: int, below: float, above: float) -> Interval:
    """The error rate, with exact limits that fail with probability ``below`` and ``above``; unknown without samples."""
    if not accepted:
        return UNKNOWN
    return Interval(errors / accepted, lower_limit(errors, accepted, below), upper_limit(errors, accepted, above))


def bounded_mean_interval(total: float, samples: int, below: float, above: float) -> Interval:
    """The mean of numbers in [0, 1], with limits by `mean_tail` that fail with probability ``below`` and ``above``."""
    if not samples:
        return UNKNOWN

    def upper(sum_: float, delta: float) -> float:
        low, high = sum_ / samples, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if mean_tail(sum_, samples, middle) <= delta else (middle, high)
        return high

    return Interval(total / samples, 1 - upper(samples - total, below), upper(total, above))


def coverage_interval(accepted: int, samples: int, level: float) -> Interval:
    """The share of samples that is accepted, with Wilson's limits; unknown without samples."""
    if not samples:
        return UNKNOWN
    low, high = wilson(accepted, samples, level)
    return Interval(accepted / samples, float(low), float(high))


@functools.lru_cache(maxsize=4096)
def fewest(risk: float, delta: float, errors: int = 0) -> int:
    """How many samples must be accepted for ``errors`` among them to show a risk of at most ``risk`` at level delta.

    Example:
        >>> fewest(0.05, 0.05), fewest(0.05, 0.05, errors=1)
        (59, 93)
    """
    if errors == 0:
        return max(1, math.ceil(math.log(delta) / math.log1p(-risk) - 1e-9)) if 0 < risk < 1 else 1
    return bisect_left(range(2**62), True, key=lambda number: bool(binomial_tail(errors, number, risk) <= delta))


def allowed_errors(accepted: npt.ArrayLike, risk: float, delta: float) -> Ints:
    """The most errors among ``accepted`` samples that still show the risk at level delta; -1 where none would.

    Example:
        >>> allowed_errors([58, 59, 92, 93], 0.05, 0.05).tolist()
        [-1, 0, 0, 1]
    """
    number = np.asarray(accepted, dtype=np.int64)
    low, high = np.full_like(number, -1), number  # as many errors as samples never do
    return _bisect(low, high, lambda errors: (errors >= 0) & (binomial_tail(errors, number, risk) <= delta))[0]


def fewest_with(errors: Ints, enough: Ints, risk: float, delta: float) -> Ints:
    """`fewest` for many numbers of errors at once, given accepted samples that are ``enough`` for each."""
    low = np.maximum(errors, 0)  # all of them would be wrong
    return _bisect(low, enough, lambda number: ~(binomial_tail(errors, number, risk) <= delta))[1]


def _bisect(low: Ints, high: Ints, is_low: Callable[[Ints], Bools]) -> tuple[Ints, Ints]:
    """The last numbers from ``low`` on that are low, and the first that are not, of many searches at once."""
    while ((high - low) > 1).any():
        middle = (low + high) // 2
        inside = is_low(middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low, high


def fewest_at_rates(rate: Doubles, coverage: Doubles, risk: float, delta: float) -> int:
    """The fewest samples of which a share ``coverage``, wrong at ``rate``, shows the risk; the best of several."""

    def is_shown(number: Doubles) -> Bools:
        return binomial_tail(np.ceil(rate * number), number, risk) <= delta

    high = np.full_like(rate, 2.0)
    while not (fits := is_shown(high)).all():
        high = np.where(fits, high, 2 * high)
    low = np.maximum(1.0, high / 2)
    while (high - low > np.maximum(1.0, 1e-3 * high)).any():
        middle = np.floor((low + high) / 2)
        fits = is_shown(middle)
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return math.ceil(float((high / coverage).min()))
