"""Accuracy and mean confidence: overall, of right and wrong predictions, without the object, against its size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from calibrant.base.arrays import ArrayLike, Doubles
from calibrant.base.checks import Bools, check_correct, check_numbers, check_scores, check_within
from calibrant.metrics.tables import Groups, check_weight, measured, result


@measured
def accuracy(correct: ArrayLike | Groups, *, weight: ArrayLike | None = None) -> float:
    """The share of predictions that are right.

    Args:
        correct: ``[N]``, whether each prediction is right.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.

    Returns:
        A share between 0 and 1; higher is better.

    Example:
        >>> from calibrant.metrics import accuracy
        >>> accuracy([1, 1, 0, 1])
        0.75
    """
    if isinstance(correct, Groups):
        return result(1 - correct.errors.sum(-1) / correct.size)
    right = check_correct(correct).reshape(-1)
    weights = check_weight(weight, right.size)
    return result((np.count_nonzero(right) if weights is None else weights @ right) / right.size)


@measured
def mean_confidence(confidence: ArrayLike | Groups, *, weight: ArrayLike | None = None) -> float:
    """The mean confidence; above the accuracy it says too much, below it too little.

    Args:
        confidence: ``[N]``, between 0 and 1.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.

    Returns:
        The mean.

    Example:
        >>> from calibrant.metrics import mean_confidence
        >>> mean_confidence([0.5, 1.0])
        0.75

    Reference:
        ALS, Table 1 ("A.conf").
    """
    if isinstance(confidence, Groups):
        return result(confidence.sure.sum(-1) / confidence.size)
    values = check_numbers("confidence", confidence).values.reshape(-1)
    check_within("confidence", values, 0.0, 1.0)
    weights = check_weight(weight, values.size)
    return result(values.mean(dtype=np.float64) if weights is None else weights @ values / values.size)


@measured
def overconfidence(
    confidence: ArrayLike | Groups, correct: ArrayLike | None = None, *, weight: ArrayLike | None = None
) -> float:
    """The mean confidence of the wrong predictions.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.

    Returns:
        The mean, NaN if none is wrong; lower is better.

    Example:
        >>> from calibrant.metrics import overconfidence
        >>> overconfidence([0.9, 0.8, 0.6], [1, 0, 0])
        0.7

    Reference:
        [Mund2015]; ALS, Sec. 4.2.
    """
    if isinstance(confidence, Groups):
        return _ratio(confidence.sure_errors.sum(-1), confidence.errors.sum(-1))
    (values, _), right = check_scores(confidence, correct, name="confidence")
    return _mean(values.astype(np.float64), ~right, weight)


@measured
def underconfidence(
    confidence: ArrayLike | Groups, correct: ArrayLike | None = None, *, weight: ArrayLike | None = None
) -> float:
    """The mean of 1 - confidence over the right predictions.

    NaN if none is right; lower is better. Arguments are those of `overconfidence`.

    Example:
        >>> from calibrant.metrics import underconfidence
        >>> underconfidence([0.9, 0.8, 0.6], [1, 1, 0])
        0.15

    Reference:
        [Mund2015]; ALS, Sec. 4.2.
    """
    if isinstance(confidence, Groups):
        right = confidence.count - confidence.errors
        return _ratio(right.sum(-1) - (confidence.sure - confidence.sure_errors).sum(-1), right.sum(-1))
    (values, _), right = check_scores(confidence, correct, name="confidence")
    return _mean(1 - values.astype(np.float64), right, weight)


def _mean(values: Doubles, which: Bools, weight: ArrayLike | None) -> float:
    """The weighted mean of some of the values; NaN of none."""
    weights = check_weight(weight, len(values))
    count = np.count_nonzero(which) if weights is None else weights[which].sum()
    return _ratio(values[which].sum() if weights is None else weights[which] @ values[which], count)


def _ratio(total: Any, count: Any) -> float:
    with np.errstate(invalid="ignore", divide="ignore"):
        return result(np.divide(total, count, dtype=np.float64))


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


def context_reliance(confidence: ArrayLike, correct: ArrayLike, *, weight: ArrayLike | None = None) -> ContextReliance:
    """Accuracy, over- and underconfidence and mean confidence on context-only images.

    Args:
        confidence: ``[N]``, between 0 and 1, on images of `calibrant.data.context_only`.
        correct: ``[N]``, whether the answer is the class of the removed object.
        weight: ``[N]`` importance of each image, at least 0; None if all count alike.

    Example:
        >>> from calibrant.metrics import context_reliance
        >>> context_reliance([0.9, 0.2, 0.4], [False, True, False])._asdict()
        {'accuracy': 0.333, 'overconfidence': 0.65, 'underconfidence': 0.8, 'mean_confidence': 0.5}

    Reference:
        ALS, Table 1.
    """
    return ContextReliance(
        accuracy(correct, weight=weight),
        overconfidence(confidence, correct, weight=weight),
        underconfidence(confidence, correct, weight=weight),
        mean_confidence(confidence, weight=weight),
    )


def objectness_deviation(confidence: ArrayLike, objectness: ArrayLike, *, weight: ArrayLike | None = None) -> float:
    r"""Mean objectness deviation: :math:`\frac1N \sum_i |c_i - o_i|`.

    The objectness o of an image is the share of it that the object covers. The paper has 0.24 on ImageNet for a network
    trained with its soft labels and 0.42 for one trained with hard labels.

    Args:
        confidence: ``[N]``, the largest probability, between 0 and 1.
        objectness: ``[N]``, between 0 and 1.
        weight: ``[N]`` importance of each prediction, at least 0; None if all count alike.

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
    distance, weights = np.abs(c.astype(np.float64) - o).reshape(-1), check_weight(weight, c.size)
    return result(distance.mean() if weights is None else weights @ distance / c.size)
