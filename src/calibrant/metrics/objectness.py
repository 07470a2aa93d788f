"""Confidence against the size of the object: ALS trains confidences that follow it."""

from __future__ import annotations

import numpy as np

from calibrant._arrays import ArrayLike
from calibrant._validation import real, within


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
    c, o = real("confidence", confidence).values, real("objectness", objectness).values
    if o.shape != c.shape:
        raise ValueError(f"objectness must have the shape of confidence {list(c.shape)}, got {list(o.shape)}")
    within("confidence", c, 0.0, 1.0)
    within("objectness", o, 0.0, 1.0)
    return float(np.abs(c.astype(np.float64) - o).mean())
