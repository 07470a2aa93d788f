"""True errors of scenes: by hand, and against the ECE where the truth is certain."""

import numpy as np
import pytest

from calibrant.data.scene_truth import true_calibration_error, true_error
from calibrant.metrics import ece


def test_true_error_is_one_minus_the_true_probability():
    posterior = np.array([[0.1, 0.9, 0.0], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5]])
    assert true_error([1, 1, 2], posterior) == pytest.approx([0.1, 1.0, 0.5])


def test_true_calibration_error_by_hand():
    # One bin of two: confidence 0.7, truth (0.5 + 0.7) / 2; one of one: 0.95 against 1.
    posterior = [[0.5, 0.5], [0.7, 0.3], [1.0, 0.0]]
    assert true_calibration_error([0.7, 0.7, 0.95], [0, 0, 0], posterior) == pytest.approx((2 * 0.1 + 0.05) / 3)
    assert true_calibration_error([0.7, 0.7, 0.95], [0, 0, 0], posterior, bins=1) == pytest.approx(0.15 / 3)


def test_with_certain_posteriors_the_true_error_is_ece():
    rng = np.random.default_rng(8)
    labels, predicted, confidence = rng.integers(0, 5, 700), rng.integers(0, 5, 700), rng.random(700)
    confidence[:16] = np.arange(16) / 15  # on the edges
    truth = np.eye(5)[labels]
    for bins in (1, 7, 15):
        ours = true_calibration_error(confidence, predicted, truth, bins=bins)
        assert ours == pytest.approx(ece(confidence, predicted == labels, bins=bins))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([0, 1], [[0.5, 0.5]]), r"predicted \[N\] and posterior \[N, K\]"),
        (([2], [[0.5, 0.5]]), "classes from 0 to 1, got 2"),
        (([0.5], [[0.5, 0.5]]), "got values of type float64"),
        (([0], [[0.5, 0.6]]), "posterior must hold distributions"),
        (([0], [[np.nan, 0.5]]), "posterior must hold distributions"),
    ],
)
def test_truths_refuse_what_does_not_fit(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        true_error(*arguments)
    with pytest.raises(ValueError, match=sentence):
        true_calibration_error([0.5] * len(arguments[0]), *arguments)


@pytest.mark.parametrize(
    ("confidence", "bins", "sentence"),
    [([0.5, 0.5], 15, "confidence must have shape"), ([1.5], 15, "between 0 and 1"), ([0.5], 0, "bins must be")],
)
def test_true_calibration_error_refuses_confidences_and_bins(confidence, bins, sentence):
    with pytest.raises(ValueError, match=sentence):
        true_calibration_error(confidence, [0], [[0.5, 0.5]], bins=bins)
