"""Accuracy and mean confidence: overall, of right and wrong predictions, without the object, against its size."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from calibrant._arrays import ArrayLike
from calibrant._validation import check_correct, check_numbers, check_scores, check_within


def accuracy(correct: ArrayLike) -> float:
    """The share of predictions that are right.

    Args:
        correct: ``[N]``, whether each prediction is right.

    Returns:
        A share between 0 and 1; higher is better.

    Example:
        >>> from calibrant.metrics import accuracy
        >>> accuracy([1, 1, 0, 1])
        0.75
    """
    correct = check_correct(correct)
    return int(np.count_nonzero(correct)) / correct.size


def mean_confidence(confidence: ArrayLike) -> float:
    """The mean confidence; above the accuracy it says too much, below it too little.

    Args:
        confidence: ``[N]``, between 0 and 1.

    Returns:
        The mean.

    Example:
        >>> from calibrant.metrics import mean_confidence
        >>> mean_confidence([0.5, 1.0])
        0.75

    Reference:
        ALS, Table 1 ("A.conf").
    """
    values = check_numbers("confidence", confidence).values
    check_within("confidence", values, 0.0, 1.0)
    return float(values.mean(dtype=np.float64))


def overconfidence(confidence: ArrayLike, correct: ArrayLike) -> float:
    """The mean confidence of the wrong predictions.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.

    Returns:
        The mean, NaN if none is wrong; lower is better.

    Example:
        >>> from calibrant.metrics import overconfidence
        >>> overconfidence([0.9, 0.8, 0.6], [1, 0, 0])
        0.7

    Reference:
        [Mund2015]; ALS, Sec. 4.2.
    """
    (values, _), correct = check_scores(confidence, correct, name="confidence")
    of_errors = values[~correct]
    return float(of_errors.mean(dtype=np.float64)) if len(of_errors) else math.nan


def underconfidence(confidence: ArrayLike, correct: ArrayLike) -> float:
    """The mean of 1 - confidence over the right predictions.

    NaN if none is right; lower is better. Arguments are those of `overconfidence`.

    Example:
        >>> from calibrant.metrics import underconfidence
        >>> underconfidence([0.9, 0.8, 0.6], [1, 1, 0])
        0.15

    Reference:
        [Mund2015]; ALS, Sec. 4.2.
    """
    (values, _), correct = check_scores(confidence, correct, name="confidence")
    of_correct = values[correct]
    return float((1.0 - of_correct.astype(np.float64)).mean()) if len(of_correct) else math.nan


class ContextReliance(NamedTuple):
    """One row of ALS Table 1. With no object in sight, low confidence and accuracy near chance are right.

    Attributes:
        accuracy: Share of images whose removed object was guessed ("ACC").
        overconfidence: Mean confidence of wrong answers ("O.conf").
        underconfidence: Mean of 1 - confidence of right ones ("U.conf"); high is good here.
        mean_confidence: "A.conf".
    """

    accuracy: float
    overconfidence: float
    underconfidence: float
    mean_confidence: float


def context_reliance(confidence: ArrayLike, correct: ArrayLike) -> ContextReliance:
    """Accuracy, over- and underconfidence and mean confidence on context-only images.

    Args:
        confidence: ``[N]``, between 0 and 1, on images of `calibrant.data.context_only`.
        correct: ``[N]``, whether the answer is the class of the removed object.

    Example:
        >>> from calibrant.metrics import context_reliance
        >>> context_reliance([0.9, 0.2, 0.4], [False, True, False])._asdict()
        {'accuracy': 0.333, 'overconfidence': 0.65, 'underconfidence': 0.8, 'mean_confidence': 0.5}

    Reference:
        ALS, Table 1.
    """
    return ContextReliance(
        accuracy(correct),
        overconfidence(confidence, correct),
        underconfidence(confidence, correct),
        mean_confidence(confidence),
    )


def objectness_deviation(confidence: ArrayLike, objectness: ArrayLike) -> float:
    r"""Mean objectness deviation: :math:`\frac1N \sum_i |c_i - o_i|`.

    The objectness o of an image is the share of it that the object covers. The paper has 0.24 on ImageNet for a network
    trained with its soft labels and 0.42 for one trained with hard labels.

    Args:
        confidence: ``[N]``, the largest probability, between 0 and 1.
        objectness: ``[N]``, between 0 and 1.

    Returns:
        The mean, between 0 and 1; lower is closer to the size of the object.

    Example:
        >>> from calibrant.metrics import objectness_deviation
        >>> objectness_deviation([0.9, 0.5], [0.4, 0.6])
        0.3

    Reference:
        ALS, Sec. 4.2.
    """
    c, o = check_numbers("confidence", confidence).values, check_numbers("objectness", objectness).values
    if o.shape != c.shape:
        raise ValueError(f"objectness must have the shape of confidence {list(c.shape)}, got {list(o.shape)}")
    check_within("confidence", c, 0.0, 1.0)
    check_within("objectness", o, 0.0, 1.0)
    return float(np.abs(c.astype(np.float64) - o).mean())
