"""How much a classifier reads from context: its answers where every object was removed [ALS, Table 1]."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import ArrayLike

from calibrant.metrics.calibration import accuracy, mean_confidence, overconfidence, underconfidence


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
