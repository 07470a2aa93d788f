"""Tests of holdout."""

import pytest

from calibrant import Policy, Predictions
from calibrant.selective.split import draws
from tests.helpers.policies import drawn


def test_the_threshold_is_set_on_samples_that_the_choice_did_not_see():
    """Whatever the labels of the choice's fifth are, the threshold's samples count as they are."""
    z, y = drawn(1500)
    mine = draws(0, 0, 1500) < 0.2
    assert 250 < mine.sum() < 350
    found = Policy.fit(Predictions.from_logits(z, y), 0.1)
    assert found.evidence["for_choice"] == mine.sum()
    assert found.evidence["for_threshold"] == found.threshold.samples == (~mine).sum()
    labels, _, accept = found.decide(z[~mine])
    assert found.threshold.accepted == accept.sum()
    assert found.threshold.errors == (labels != y[~mine])[accept].sum()


def test_of_very_many_samples_a_part_chooses(monkeypatch):
    monkeypatch.setattr("calibrant.selective.policy.holdout.MOST_ROWS", 1000)
    found = Policy.fit(Predictions.from_logits(*drawn(9000)), 0.1)
    assert found.evidence["for_choice"] <= 2000
    assert found.threshold.samples == (draws(0, 0, 9000) >= 0.2).sum()


@pytest.mark.parametrize(("samples", "share"), [(1000, 0.1), (160, 1 / 8), (140, 0.0)])
def test_where_nothing_is_chosen_a_part_plans(samples, share):
    policy = Policy.fit(Predictions.from_logits(*drawn(samples)), 0.2, calibrator="none", score="margin")
    assert policy.evidence["for_choice"] == (draws(0, 0, samples) < share).sum()
    assert policy.threshold.samples == samples - policy.evidence["for_choice"]


def test_ignored_samples_count_nowhere():
    z, y = drawn(3000)
    y = y.copy()
    y[::3] = -1
    found = Policy.fit(Predictions.from_logits(z, y, ignore_index=-1), 0.1)
    held = (draws(0, 0, 3000) >= 0.2) & (y != -1)
    assert found.threshold.samples == held.sum()
