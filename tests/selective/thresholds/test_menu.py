"""Menus against a scan of every risk, and their words."""

import numpy as np
import pytest

from calibrant.selective import threshold_for_risk
from calibrant.selective.thresholds.menu import OFFERS, RISKS, Offer, menu_words, offers_from


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
    assert (RISKS[0], RISKS[-1]) == (0.001, 0.5)


def test_nothing_to_offer():
    assert offers_from(lambda risk: 0.0) == ()
    assert menu_words((), "samples", 0.95) == "On those samples no risk up to 50% can be promised."


def test_the_words_of_a_menu():
    menu = (Offer(0.051, 0.31), Offer(0.06, 0.66), Offer(0.12, 1.0))
    assert menu_words(menu, "samples", 0.95) == (
        "The lowest risk that could be promised on those samples is about 5.1%, which answers 31.00%; 6% answers "
        "66.00%, 12% answers all. These are estimates: a risk chosen after seeing them holds with less than 95% "
        "confidence, so fit again on fresh samples with the risk you choose."
    )
    assert menu_words(menu[:1], "images", None) == (
        "The lowest risk that is met on those images is about 5.1%, which answers 31.00%. These are estimates."
    )


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
