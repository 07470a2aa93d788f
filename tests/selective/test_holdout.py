"""Tests of holdout."""

from calibrant import Policy, Predictions
from calibrant.selective.holdout import draws
from tests.helpers.policies import drawn


def test_the_threshold_is_set_on_samples_that_the_choice_did_not_see():
    """Whatever the labels of the choice's third are, the threshold's samples count as they are."""
    z, y = drawn(1500)
    mine = draws(0, 0, 1500) < 1 / 3
    assert 400 < mine.sum() < 600
    found = Policy.fit(Predictions.from_logits(z, y), 0.1)
    assert found.evidence["for_choice"] == mine.sum()
    assert found.evidence["for_threshold"] == found.threshold.samples == (~mine).sum()
    labels, _, accept = found.decide(z[~mine])
    assert found.threshold.accepted == accept.sum()
    assert found.threshold.errors == (labels != y[~mine])[accept].sum()


def test_of_very_many_samples_a_part_chooses(monkeypatch):
    monkeypatch.setattr("calibrant.selective.holdout.MOST_ROWS", 1000)
    found = Policy.fit(Predictions.from_logits(*drawn(9000)), 0.1)
    assert found.evidence["for_choice"] <= 2000
    assert found.threshold.samples == (draws(0, 0, 9000) >= 1 / 3).sum()


def test_draws_do_not_depend_on_batches():
    whole = draws(3, 0, 200_000)
    assert (draws(3, 65_000, 1500) == whole[65_000:66_500]).all()
    assert (draws(4, 0, 10) != whole[:10]).all()


def test_ignored_samples_count_nowhere():
    z, y = drawn(3000)
    y = y.copy()
    y[::3] = -1
    found = Policy.fit(Predictions.from_logits(z, y, ignore_index=-1), 0.1)
    held = (draws(0, 0, 3000) >= 1 / 3) & (y != -1)
    assert found.threshold.samples == held.sum()
