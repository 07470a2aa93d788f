"""Thresholds: bounds against SciPy's binomial, hand-worked cases, ties, what is said when nothing can be promised,
and what is offered instead."""

import math
import re

import numpy as np
import pytest
from scipy.stats import beta

from calibrant.metrics import coverage_at_risk
from calibrant.promises import threshold_for_coverage, threshold_for_risk, thresholds_by_group
from calibrant.promises.thresholds import OFFERS, RISKS, Offer, menu_words, offers_from
from tests.helpers.errors import facts

METHODS = ("best", "fixed-sequence", "sgr", "empirical")


def drawn(n, seed=0, scale=0.4):
    rng = np.random.default_rng(seed)
    score = rng.random(n)
    return score, rng.random(n) >= scale * (1 - score) ** 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("values", [None, 7, 2])
def test_what_it_accepts_is_what_it_says(method, values):
    score, correct = drawn(3000)
    score = score if values is None else np.floor(values * score) / values
    found = threshold_for_risk(score, correct, 0.1, confidence=0.9, method=method)
    accepted = score >= found.value
    assert found.accepted == accepted.sum() > 0
    assert found.errors == (~correct[accepted]).sum()
    assert found.coverage.value == accepted.mean()
    assert found.samples == 3000
    if method != "empirical":
        assert found.risk.value < found.risk.high <= 0.1
        assert found.confidence == 0.9
    else:
        assert found.accepted / 3000 == coverage_at_risk(score, correct, 0.1)
        assert found.confidence is None


def test_best_is_the_fixed_sequence():
    score, correct = drawn(2000, 3)
    best, sequence, sgr = (
        threshold_for_risk(score, correct, 0.08, method=method) for method in ("best", "fixed-sequence", "sgr")
    )
    assert best == sequence
    assert best.accepted > sgr.accepted


@pytest.mark.parametrize("method", ["fixed-sequence", "sgr", "best"])
def test_more_confidence_never_covers_more(method):
    score, correct = drawn(4000, 5)
    covered = [
        threshold_for_risk(score, correct, 0.1, confidence=c, method=method).accepted for c in (0.5, 0.9, 0.99, 0.9999)
    ]
    assert covered == sorted(covered, reverse=True)


@pytest.mark.parametrize("method", METHODS)
def test_one_score_for_all(method):
    """Ties cannot be split: all or nothing."""
    good, bad = np.arange(300) < 295, np.arange(300) < 200
    assert threshold_for_risk(np.ones(300), good, 0.1, method=method).accepted == 300
    assert threshold_for_risk(np.ones(300), bad, 0.1, method=method).abstains


def test_abstaining_says_how_many_samples_are_needed():
    few = threshold_for_risk(np.arange(30.0), np.ones(30, dtype=bool), 0.05)
    assert few.abstains
    assert few.needed >= 59
    assert "59" in few.reason  # 0.95^58 > 0.05 >= 0.95^59
    assert math.isnan(few.risk.value)
    never = threshold_for_risk(np.arange(4000.0), np.arange(4000) % 2 == 0, 0.05)
    assert never.abstains
    assert never.needed is None
    missed = threshold_for_risk([0.1, 0.2], [0, 0], 0.3, method="empirical")
    assert missed.abstains
    assert "100.00%" in missed.reason


@pytest.mark.slow
def test_needed_is_about_right():
    """Twice the needed samples, drawn alike, nearly always give a threshold; half of them hardly ever do."""
    rng = np.random.default_rng(1)

    def one(n):
        return threshold_for_risk(rng.random(n), rng.random(n) < 0.97, 0.05, method="fixed-sequence")

    told = [found.needed for found in (one(150) for _ in range(60)) if found.needed is not None]
    needed = int(np.median(told))
    assert np.mean([one(2 * needed).abstains for _ in range(60)]) < 0.35
    assert np.mean([one(needed // 5).abstains for _ in range(60)]) > 0.6


def test_coverage():
    score, correct = drawn(1000, 2)
    found = threshold_for_coverage(score, correct, 0.3)
    assert found.accepted == 300
    assert found.risk.value <= found.risk.high == pytest.approx(beta.ppf(0.95, found.errors + 1, 300 - found.errors))
    assert threshold_for_coverage(np.repeat([1.0, 0.0], 5), [1] * 10, 0.3).accepted == 5  # a whole tie more
    assert threshold_for_coverage(score, correct, 1).value == -math.inf


def test_groups_share_the_chance_to_fail():
    score, correct = drawn(4000, 8)
    site = np.where(np.arange(4000) % 3 == 0, "a", "b")
    found = thresholds_by_group(score, correct, site, 0.1, confidence=0.9)
    alone = threshold_for_risk(score[site == "a"], correct[site == "a"], 0.1, confidence=0.95)
    assert found["a"] == alone
    assert set(found) == {"a", "b"}
    with pytest.raises(ValueError, match="groups must have the shape"):
        thresholds_by_group(score, correct, site[:-1], 0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_risk": 0}, "target_risk"), ({"target_risk": 1.0}, "target_risk"), ({"confidence": 1}, "confidence"),
        ({"confidence": 0.0}, "confidence"), ({"method": "magic"}, "method"), ({"score": [0.1, np.nan]}, "score"),
        ({"correct": [1]}, "correct"), ({"score": [], "correct": []}, "score"), ({"candidates": []}, "candidates"),
        ({"candidates": [np.nan]}, "candidates"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(change, message):
    given = {"score": [0.1, 0.2], "correct": [1, 0], "target_risk": 0.1} | change
    with pytest.raises(ValueError, match=message):
        threshold_for_risk(**given)


@pytest.mark.parametrize("lowest", [0.0012, 0.055, 0.31])
def test_the_lowest_and_the_full_are_those_of_a_scan(lowest):
    def coverage_at(risk):
        return min(1.0, max(0.0, (risk - lowest) / 0.1))

    menu = offers_from(coverage_at, above=0.001)
    assert menu[0].risk == next(risk for risk in RISKS if coverage_at(risk) > 0)
    assert menu[-1].risk == next(risk for risk in RISKS if coverage_at(risk) >= 1 - 1e-12)
    assert 2 <= len(menu) <= OFFERS
    assert all(offer.coverage == coverage_at(offer.risk) for offer in menu)


def test_risks_have_two_digits_and_rise():
    assert list(RISKS) == sorted(set(RISKS))
    assert all(float(f"{risk:.2g}") == risk for risk in RISKS)
    assert (RISKS[0], RISKS[-1]) == (0.001, 0.99)


def test_no_offer_is_above_a_half_unless_more_was_allowed_nor_answers_less_than_a_lower_risk():
    assert offers_from(lambda risk: 0.0) == ()
    assert offers_from(lambda risk: float(risk > 0.6)) == ()
    assert offers_from(lambda risk: float(risk > 0.6), above=0.55)[0].risk == 0.61
    lucky = offers_from(lambda risk: 0.7 if risk > 0.45 else 0.4 if 0.2 < risk < 0.3 else 0.5 * (risk > 0.1))
    assert [offer.coverage for offer in lucky] == [0.5, 0.7]


def test_the_words_of_a_menu():
    menu = (Offer(0.051, 0.31), Offer(0.06, 0.66), Offer(0.12, 1.0))
    text = menu_words(menu, "samples", 0.95)
    assert re.search(facts("samples", "5.1%", "31.00%", "6%", "66.00%", "12%", "all", "95%"), text)
    text = menu_words(menu[:1], "images", None)
    assert re.search(facts("images", "5.1%", "31.00%"), text)
    assert "confidence" not in text


@pytest.mark.parametrize("method", ["best", "fixed-sequence", "sgr", "empirical"])
def test_a_threshold_that_abstains_offers_what_the_same_search_finds(method):
    rng = np.random.default_rng(0)
    score = rng.random(900)
    correct = rng.random(900) >= 0.08 + 0.3 * (1 - score)
    threshold = threshold_for_risk(score, correct, 0.01, method=method)
    if method == "empirical" and not threshold.abstains:  # a first sample that is right is enough
        correct[score.argmax()] = False
        threshold = threshold_for_risk(score, correct, 0.01, method=method)
    assert threshold.abstains
    assert threshold.menu
    for risk, coverage in threshold.menu:
        again = threshold_for_risk(score, correct, risk, method=method)
        assert again.coverage.value == coverage > 0
        assert again.menu == ()
