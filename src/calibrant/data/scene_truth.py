"""The true error of a classifier of scenes, computed from their known posteriors instead of labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calibrant._validation import check_integer
from calibrant.data.drawing import Doubles


def true_error(predicted: ArrayLike, posterior: ArrayLike) -> Doubles:
    r"""The probability that each prediction is wrong, :math:`P_{error} = 1 - \bar\pi_{\hat y}`.

    Args:
        predicted: ``[N]``, the predicted classes.
        posterior: ``[N, K]``, P(y | x).

    Returns:
        ``[N]``, between 0 and 1.

    Example:
        >>> true_error([0, 1], [[0.75, 0.25], [0.75, 0.25]])
        array([0.25, 0.75])

    Reference:
        SC, Eq. 6.
    """
    classes, truth = np.asarray(predicted), np.asarray(posterior, dtype=np.float64)
    if truth.ndim != 2 or classes.shape != truth.shape[:1] or not len(truth):
        raise ValueError(f"true_error takes predicted [N] and posterior [N, K], got {classes.shape} and {truth.shape}")
    requirement = f"predicted must be classes from 0 to {truth.shape[1] - 1}"
    if classes.dtype.kind not in "iu":
        raise ValueError(f"{requirement}, got values of type {classes.dtype}")
    outside = (classes < 0) | (classes >= truth.shape[1])
    if outside.any():
        raise ValueError(f"{requirement}, got {classes[outside][0]}")
    if not (truth >= 0).all() or np.abs(truth.sum(axis=1) - 1).max() > 1e-6:
        raise ValueError("posterior must hold distributions, got a row that is negative, NaN or does not sum to 1")
    return np.clip(1 - truth[np.arange(len(truth)), classes], 0.0, 1.0)


def true_calibration_error(
    confidence: ArrayLike, predicted: ArrayLike, posterior: ArrayLike, *, bins: int = 15
) -> float:
    """ECE with the true probability of the predicted class instead of its correctness: free of label noise.

    Args:
        confidence: ``[N]``, between 0 and 1.
        predicted: ``[N]``, the predicted classes.
        posterior: ``[N, K]``, P(y | x).
        bins: number of equal-width bins ``(low, high]``, as in `calibrant.metrics.ece`.

    Returns:
        The mean over the samples of their bin's gap between confidence and truth.

    Example:
        >>> true_calibration_error([0.9, 0.7], [0, 0], [[1.0, 0.0], [0.6, 0.4]])  # gaps of 0.1 and 0.1
        0.1
    """
    accuracy = 1 - true_error(predicted, posterior)
    confidences = np.asarray(confidence, dtype=np.float64)
    if confidences.shape != accuracy.shape:
        raise ValueError(f"confidence must have shape {accuracy.shape} as predicted has, got {confidences.shape}")
    if not ((confidences >= 0) & (confidences <= 1)).all():
        raise ValueError("confidence must be between 0 and 1, got a value outside or NaN")
    edges = np.arange(1, check_integer("bins", bins, 1)) / bins
    bin_of = np.searchsorted(edges, confidences, side="left")
    gaps = np.bincount(bin_of, weights=confidences - accuracy, minlength=int(bins))
    return float(np.abs(gaps).sum() / len(confidences))
