r"""Label shift: new priors of the classes by EM, and probabilities corrected for them [Saerens2002, Eq. 2.4 and 2.9].

If only the shares of the classes have changed, from :math:`\pi` to :math:`\pi'`, and the probabilities p(k|x) were
calibrated, those of now are proportional to :math:`p(k|x) \pi'_k / \pi_k`. EM finds the :math:`\pi'` that maximise the
likelihood of the inputs, relative to the old priors :math:`\sum_x \log \sum_k p(k|x) \pi'_k / \pi_k`:

.. math:: p'(k|x) = \frac{p(k|x) \pi'_k/\pi_k}{\sum_l p(l|x) \pi'_l/\pi_l}, \qquad
          \pi'_k \leftarrow \frac1n \sum_x p'(k|x)

It is offered, never applied by itself: where the classes themselves look different (concept drift), it makes
probabilities worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc

from calibrant._validation import Ints
from calibrant.metrics import Doubles

MOST_STEPS = 1000
TOLERANCE = 1e-9  # of the log-likelihood per sample
FLOOR = 1e-12


@dataclass(frozen=True)
class LabelShift:
    """New priors, and how much better they explain the samples.

    Attributes:
        priors: ``[C]``.
        before: ``[C]`` the priors at the fit.
        samples: how many they were estimated on.
        gain: of the log-likelihood per sample, in nats.
        p_value: of the likelihood-ratio test of "the priors are the same", for one look; compare it with a level
            once, not at every batch.
        nll_before: mean negative log-likelihood of the labels that are known, NaN without any.
        nll_after: the same with corrected probabilities.
    """

    priors: Doubles
    before: Doubles
    samples: int
    gain: float
    p_value: float
    nll_before: float = math.nan
    nll_after: float = math.nan


def reference_priors(labels: Ints) -> Doubles:
    """The shares of the classes at the fit, none of them 0."""
    counts = np.asarray(labels, dtype=np.float64) + 0.5
    return counts / counts.sum()


def correct(probabilities: Doubles, before: Doubles, priors: Doubles) -> Doubles:
    """Probabilities ``[N, C]`` as they would be with other priors."""
    weighted = np.maximum(probabilities, FLOOR) * (priors / before)
    return weighted / weighted.sum(1, keepdims=True)


def estimate_label_shift(probabilities: Doubles, before: Doubles, labels: Ints | None = None) -> LabelShift:
    """The priors that explain the samples best.

    Args:
        probabilities: ``[N, C]``, calibrated.
        before: ``[C]`` the priors at the fit.
        labels: ``[N]``, -1 where unknown; they judge the correction, and do not enter it.

    Example:
        >>> sure = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> estimate_label_shift(sure, np.array([0.5, 0.5])).priors.round(3).tolist()
        [0.75, 0.25]
    """
    p = np.maximum(probabilities, FLOOR)
    priors, previous = before.copy(), 0.0
    for step in range(MOST_STEPS):
        weighted = p * (priors / before)
        sums = weighted.sum(1, keepdims=True)
        value = float(np.log(sums).mean())
        if step and value - previous < TOLERANCE:
            break
        priors, previous = (weighted / sums).mean(0), value
    gain = max(0.0, float(np.log((p * (priors / before)).sum(1)).mean()))
    degrees = len(before) - 1
    p_value = float(gammaincc(degrees / 2, gain * len(p)))  # of chi squared, twice the gain of all samples
    shift = LabelShift(priors, before, len(p), gain, p_value)
    if labels is None or not (labels >= 0).any():
        return shift
    rows = np.flatnonzero(labels >= 0)
    truth = labels[rows]
    nll = [-float(np.log(q[rows, truth]).mean()) for q in (p, correct(p, before, priors))]
    return LabelShift(priors, before, len(p), gain, p_value, *nll)
