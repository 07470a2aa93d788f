"""EM for new priors, against values worked by hand and a stream whose priors are known."""

import math

import numpy as np
import pytest

from calibrant.monitoring.label_shift import correct, estimate_label_shift, reference_priors

HALF = np.array([0.5, 0.5])


def test_two_kinds_of_rows_by_hand():
    """7 rows say (0.8, 0.2), 3 the reverse: 7 log(0.4 + 1.2 q) + 3 log(1.6 - 1.2 q) is largest at q = 10/12."""
    rows = np.array([[0.8, 0.2]] * 7 + [[0.2, 0.8]] * 3)
    shift = estimate_label_shift(rows, HALF)
    assert shift.priors[0] == pytest.approx(10 / 12, abs=1e-4)
    gain = 0.7 * math.log(0.4 + 1.2 * 10 / 12) + 0.3 * math.log(1.6 - 1.2 * 10 / 12)
    assert shift.gain == pytest.approx(gain, abs=1e-6)
    # Twice the gain of all ten rows, of a chi squared with one degree of freedom.
    assert shift.p_value == pytest.approx(math.erfc(math.sqrt(10 * gain)), rel=1e-4)


def test_corrected_probabilities_by_hand():
    """Odds of 4 to 1, times 3 for the priors."""
    assert correct(np.array([[0.8, 0.2]]), HALF, np.array([0.75, 0.25])).tolist() == [
        [pytest.approx(12 / 13), pytest.approx(1 / 13)]
    ]


def test_known_priors_are_recovered_and_the_correction_helps():
    rng = np.random.default_rng(0)
    priors = np.array([0.7, 0.2, 0.1])
    labels = rng.choice(3, 4000, p=priors)
    x = rng.standard_normal((4000, 3)) + 1.5 * np.eye(3)[labels]
    probabilities = np.exp(1.5 * x)  # the posterior under equal priors
    probabilities /= probabilities.sum(1, keepdims=True)
    shift = estimate_label_shift(probabilities, np.full(3, 1 / 3), labels)
    np.testing.assert_allclose(shift.priors, priors, atol=0.03)
    assert shift.p_value < 1e-6
    assert shift.nll_after < shift.nll_before - 0.05


def test_nothing_is_seen_where_nothing_has_changed():
    """The posterior under its own priors; p is then uniform."""
    rng = np.random.default_rng(3)
    logits = 2 * rng.standard_normal((3000, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    shift = estimate_label_shift(probabilities, probabilities.mean(0), np.full(3000, -1))
    assert shift.gain < 1e-6
    assert math.isnan(shift.nll_before)


def test_a_class_that_never_came_has_a_prior():
    assert reference_priors(np.array([9, 0])).tolist() == [0.95, 0.05]
