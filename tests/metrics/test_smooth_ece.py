"""Smooth ECE against its direct evaluation, in limit cases and by hand."""

import math

import numpy as np
import pytest

from calibrant import metrics as M
from calibrant.metrics import group_by_score
from tests.helpers.metric_data import CASES, judged
from tests.reference import metrics as R


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "few", "ties", "one tie", "ends", "one wrong", "all right", "image"])
def test_smooth_ece_against_direct_evaluation(name):
    data = CASES[name]
    for width in (0.004, 0.03, 0.2, 3.0):
        assert M.smooth_ece(*data, bandwidth=width) == pytest.approx(R.smooth_ece_at(*data, width), abs=1e-5)
    value = M.smooth_ece(*data)
    assert M.smooth_ece(*data, bandwidth=max(value, 1e-4)) == pytest.approx(value, abs=1e-5)
    assert R.smooth_ece_at(*data, value) == pytest.approx(value, abs=1e-5)


@pytest.mark.slow
def test_smooth_ece_of_calibrated_predictions_against_direct_evaluation():
    confidence, _ = judged(8, 90)
    correct = np.random.default_rng(9).random(90) < confidence
    for width in (0.002, 0.02):
        direct = R.smooth_ece_at(confidence, correct, width)
        assert M.smooth_ece(confidence, correct, bandwidth=width) == pytest.approx(direct, abs=1e-5)
    value = M.smooth_ece(confidence, correct)
    assert R.smooth_ece_at(confidence, correct, value) == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("gap", [0.3, 1e-2, 1e-3, 1e-4, 1e-5, 1e-9, 0.0])
def test_smooth_ece_of_residuals_at_one_place_is_their_mean(gap):
    """Smoothing keeps the integral of residuals of one sign: every prediction right with confidence 1 - gap."""
    assert M.smooth_ece(np.full(9, 1 - gap), np.ones(9)) == pytest.approx(gap, abs=1e-7)


@pytest.mark.slow
def test_smooth_ece_between_its_limits():
    confidence, correct = np.array([0.2, 0.8, 0.8]), np.array([1, 0, 0])
    narrow, wide = (0.8 + 1.6) / 3, abs(0.8 - 1.6) / 3  # every place on its own; all of them together
    assert M.smooth_ece(confidence, correct, bandwidth=0.001) == pytest.approx(narrow, abs=1e-5)
    assert M.smooth_ece(confidence, correct, bandwidth=100) == pytest.approx(wide, abs=1e-9)
    values = [M.smooth_ece(confidence, correct, bandwidth=w) for w in (1e-4, 0.01, 0.1, 0.2, 0.4, 0.8)]
    assert values == sorted(values, reverse=True)


def test_smooth_ece_of_two_neighbours_by_hand():
    """Residuals +r and -r at distance d: the integral of |K(t) - K(t - d)| is 2 (2 Phi(d / 2s) - 1)."""
    distance, width = 0.01, 0.05
    confidence, correct = np.array([0.5, 0.5 + distance]), np.array([1, 0])
    middle = 2 * math.erf(distance / (2 * width) / math.sqrt(2))
    # The second residual is a little larger than the first, which adds the difference once.
    assert M.smooth_ece(confidence, correct, bandwidth=width) == pytest.approx(0.5 * middle / 2, abs=distance / 2)
    assert M.smooth_ece(confidence, correct, bandwidth=width) == pytest.approx(
        R.smooth_ece_at(confidence, correct, width), abs=1e-6
    )


def test_smooth_ece_of_residual_sums():
    confidence, correct = CASES["ties"]
    assert M.smooth_ece(group_by_score(confidence, correct)) == pytest.approx(
        M.smooth_ece(confidence, correct), abs=1e-6
    )
