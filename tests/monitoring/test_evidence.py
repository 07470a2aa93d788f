"""Evidence at any time: against direct sums and integrals, and by simulation."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import beta

from calibrant.monitoring.evidence import (
    EXCESS,
    EvidenceProcess,
    alternative_rates,
    confidence_sequence,
    rate_ratios,
    start_weight,
)

RATE = 0.1
BATCHES = [(3, 20), (0, 7), (9, 31), (2, 5)]  # errors, answers


def likelihood(theta, k, n):
    return theta**k * (1 - theta) ** (n - k)


def direct(batches, thetas):
    """The sum over starts and alternatives, written out."""
    total = 1 - sum(start_weight(j) for j in range(1, len(batches) + 1))
    for j in range(len(batches)):
        k, n = (sum(part[i] for part in batches[j:]) for i in (0, 1))
        ratios = [likelihood(theta, k, n) / likelihood(RATE, k, n) for theta in thetas]
        total += start_weight(j + 1) * sum(ratios) / len(ratios)
    return total


def test_the_recursion_is_the_sum_over_starts_and_alternatives():
    evidence = EvidenceProcess(len(EXCESS))
    for t, (k, n) in enumerate(BATCHES):
        evidence.update(rate_ratios(k, n, RATE))
        expected = direct(BATCHES[: t + 1], alternative_rates(RATE))
        assert float(evidence.log_value) == pytest.approx(math.log(expected), rel=1e-12)


def test_the_grid_of_alternatives_is_close_to_an_integral_over_them():
    """Over the logarithm of the excess of the log-odds, by quadrature."""
    k, n = 40, 250

    def integrand(log_excess):
        theta = 1 / (1 + math.exp(-(math.log(RATE / (1 - RATE)) + math.exp(log_excess))))
        return likelihood(theta, k, n) / likelihood(RATE, k, n)

    ends = math.log(EXCESS[0]), math.log(EXCESS[-1])
    integral = quad(integrand, *ends, limit=200)[0] / (ends[1] - ends[0])
    assert np.exp(rate_ratios(k, n, RATE)).mean() == pytest.approx(integral, rel=0.1)


def test_weights_of_all_starts_sum_to_one():
    assert sum(map(start_weight, range(1, 100_001))) == pytest.approx(1 - 1 / math.log2(100_002))


@pytest.mark.parametrize("rate", [RATE, 0.6 * RATE])
def test_false_alarms_are_as_rare_as_promised_at_every_time(rate):
    """Ville's bound, with looks after batches of ten: three standard errors above 5% would be 6.5%."""
    rng = np.random.default_rng(0)
    evidence, highest = EvidenceProcess(len(EXCESS), (2000,)), np.full(2000, -np.inf)
    for _ in range(300):
        evidence.update(rate_ratios(rng.binomial(10, rate, 2000), 10, RATE))
        highest = np.maximum(highest, evidence.log_value)
    share = (highest >= math.log(1 / 0.05)).mean()
    assert share <= 0.065
    assert share > 0 or rate < RATE  # else nothing was tested


def test_a_late_break_is_seen_soon():
    """After 200 good batches of 50, a rate of 1.5 times the promised one."""
    rng = np.random.default_rng(1)
    evidence = EvidenceProcess(len(EXCESS), (200,))
    for _ in range(200):
        evidence.update(rate_ratios(rng.binomial(50, 0.8 * RATE, 200), 50, RATE))
    delays = np.full(200, np.inf)
    for t in range(60):
        evidence.update(rate_ratios(rng.binomial(50, 1.5 * RATE, 200), 50, RATE))
        delays = np.where((evidence.log_value >= math.log(20)) & np.isinf(delays), t + 1, delays)
    assert np.median(delays) < 30
    assert np.isfinite(delays).mean() > 0.95


@pytest.mark.parametrize(("errors", "answers"), [(0, 12), (3, 40), (40, 40), (17, 900)])
def test_limits_are_where_the_mixture_reaches_the_level(errors, answers):
    """The mixture by quadrature."""
    density = beta(0.5, 0.5)

    def mixture(p):
        # theta = sin(t)^2 takes the poles of the density away.
        def integrand(t):
            s, c = math.sin(t) ** 2, math.cos(t) ** 2
            logs = math.log(max(s, 1e-300) / p), math.log(max(c, 1e-300) / (1 - p))
            return 2 * math.exp(errors * logs[0] + (answers - errors) * logs[1])

        peak = math.asin(math.sqrt(errors / answers))
        return quad(integrand, 0, math.pi / 2, points=[peak], limit=300)[0] / density

    limits = confidence_sequence(errors, answers, 0.05)
    for end in (limits.low, limits.high):
        if 0 < end < 1:
            assert mixture(end) == pytest.approx(20, rel=1e-4)
    assert limits.low <= limits.value <= limits.high
    assert (limits.low == 0) == (errors == 0)
    assert (limits.high == 1) == (errors == answers)


def test_limits_hold_at_all_times_together():
    rng = np.random.default_rng(2)
    broken = 0
    for _ in range(200):
        errors = np.cumsum(rng.random(300) < 0.2)
        limits = [confidence_sequence(int(errors[n - 1]), n, 0.1) for n in range(1, 301, 10)]
        broken += any(not part.low <= 0.2 <= part.high for part in limits)
    assert broken <= 20 + 3 * math.sqrt(200 * 0.1 * 0.9)


def test_extreme_counts_have_limits():
    assert confidence_sequence(0, 0, 0.05).low == 0
    for errors, answers in ((1, 2**53), (2**53 - 1, 2**53), (2**52, 2**53)):
        limits = confidence_sequence(errors, answers, 0.05)
        assert 0 <= limits.low <= limits.value <= limits.high <= 1
