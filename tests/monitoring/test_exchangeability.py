"""Ranks among earlier samples: uniform while nothing changes, whatever the bins; and the size of a change."""

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from calibrant.monitoring.evidence import EvidenceProcess
from calibrant.monitoring.exchangeability import (
    BETS,
    CELLS,
    LOG_BETS,
    MOST_RANKED,
    generator,
    rank_cells,
    total_variation,
)


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
        cells, grown = rank_cells(np.array([10, 10]), np.array([size, size]), generator("a", "score"))
        assert cells.sum() == MOST_RANKED == grown.sum() - 20


def test_the_same_names_give_the_same_numbers():
    assert generator("a", "b").random() == generator("a", "b").random()
    assert generator("a", "b").random() != generator("ab", "").random()


def test_total_variation_and_its_limits():
    same = total_variation(np.array([500, 500]), np.array([490, 510]))
    assert same.value == pytest.approx(0.01)
    assert same.low == 0.0
    apart = total_variation(np.array([5000, 5000]), np.array([8000, 2000]))
    assert apart.value == pytest.approx(0.3)
    assert 0.28 < apart.low < 0.3 < apart.high < 0.32
