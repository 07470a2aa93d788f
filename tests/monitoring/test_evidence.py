"""Tests that may be looked at after every batch: they keep their level, and find changes."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import beta
from scipy.stats import chisquare

from calibrant.monitoring.evidence import (
    BETS,
    CELLS,
    EXCESS,
    LOG_BETS,
    MOST_RANKED,
    EvidenceProcess,
    alternative_rates,
    confidence_sequence,
    rank_cells,
    rate_ratios,
    seeded_generator,
    start_weight,
    total_variation,
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


@pytest.mark.slow
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


def test_every_bet_is_a_density():
    assert (BETS > 0).all()
    np.testing.assert_allclose(BETS.mean(1), 1.0)


def slow_ranks(pool, samples, ties):
    """The formula, sample by sample."""
    earlier = [b for b, n in enumerate(pool) for _ in range(n)]
    ranks = []
    for x, u in zip(samples, ties, strict=True):
        below, equal = sum(e < x for e in earlier), sum(e == x for e in earlier)
        ranks.append((below + u * (equal + 1)) / (len(earlier) + 1))
        earlier.append(x)
    return ranks


def test_ranks_are_those_of_the_formula():
    pool, counts = np.array([3, 0, 5]), np.array([2, 1, 3])
    cells, grown = rank_cells(pool, counts, np.random.default_rng(4))
    same = np.random.default_rng(4)
    samples = same.permutation(np.repeat(np.arange(3), counts))
    expected = slow_ranks(pool.tolist(), samples.tolist(), same.random(6).tolist())
    assert cells.tolist() == np.histogram(expected, bins=CELLS, range=(0, 1))[0].tolist()
    assert grown.tolist() == [5, 1, 8]


@pytest.fixture(scope="module")
def unchanged():
    """400 watches of ten batches of 30, after a fit of only 40 samples in unequal bins."""
    rng = np.random.default_rng(0)
    shares = np.array([0.5, 0.05, 0.25, 0.2])
    cells, highest = np.zeros(CELLS), []
    for _ in range(400):
        pool, evidence, peak = rng.multinomial(40, shares), EvidenceProcess(len(LOG_BETS)), -math.inf
        for _ in range(10):
            own, pool = rank_cells(pool, rng.multinomial(30, shares), rng)
            evidence.update(LOG_BETS @ own)
            peak = max(peak, float(evidence.log_value))
            cells += own
        highest.append(peak)
    return cells, np.array(highest)


def test_ranks_are_uniform_while_nothing_changes(unchanged):
    assert chisquare(unchanged[0]).pvalue > 0.001


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_false_alarms_are_as_rare_as_promised_although_the_fit_was_small(unchanged, alpha):
    share = (unchanged[1] >= math.log(1 / alpha)).mean()
    assert share <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / 400)


@pytest.mark.parametrize("after", [[0.37, 0.13, 0.25, 0.25], [0.1, 0.3, 0.3, 0.3]])
def test_a_change_is_seen(after):
    rng = np.random.default_rng(1)
    pool, evidence = rng.multinomial(1000, [0.25] * 4), EvidenceProcess(len(LOG_BETS))
    for _ in range(3):
        own, pool = rank_cells(pool, rng.multinomial(500, [0.25] * 4), rng)
        evidence.update(LOG_BETS @ own)
    assert evidence.log_value < math.log(20)
    for _ in range(3):
        own, pool = rank_cells(pool, rng.multinomial(500, after), rng)
        evidence.update(LOG_BETS @ own)
    assert evidence.log_value > math.log(160)


def test_of_a_large_batch_a_part_is_ranked():
    for size in (10**6, 2 * 10**9):
        cells, grown = rank_cells(np.array([10, 10]), np.array([size, size]), seeded_generator("a", "score"))
        assert cells.sum() == MOST_RANKED == grown.sum() - 20


def test_the_same_names_give_the_same_numbers():
    assert seeded_generator("a", "b").random() == seeded_generator("a", "b").random()
    assert seeded_generator("a", "b").random() != seeded_generator("ab", "").random()


def test_total_variation_and_its_limits():
    same = total_variation(np.array([500, 500]), np.array([490, 510]))
    assert same.value == pytest.approx(0.01)
    assert same.low == 0.0
    apart = total_variation(np.array([5000, 5000]), np.array([8000, 2000]))
    assert apart.value == pytest.approx(0.3)
    assert 0.28 < apart.low < 0.3 < apart.high < 0.32
