"""A network judged by people: CIFAR-10H's votes, instead of one label, as the truth of CIFAR-10's test images.

Some fifty people named each image, and what they say is a distribution h over the classes. A prediction is right with
the probability h(predicted), so that accuracy, ECE and AURC are means of that probability, and the NLL is the
cross-entropy of h and the network's probabilities. With h = 1 for one class they are the metrics of every other table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.data import read
from calibrant.experiments.evaluation import Number
from calibrant.posthoc import fit_best_norm
from calibrant.predictions import Predictions

#: The set that the numbers are of.
SET = "people"
BINS = 15

Floats = NDArray[np.float64]


def read_votes(data: Path) -> Mapping[str, Floats]:
    """What people say of each test image, by its id."""
    votes = read(data / "cifar10h", layout="cifar-10h", images=data / "cifar-10")
    assert votes.soft is not None
    return dict(zip(votes.ids, np.asarray(votes.soft, np.float64), strict=True))


def numbers_by(votes: Mapping[str, Floats], folder: Path) -> Iterator[Number]:
    """The numbers of a finished run; ranking by normalised logits is chosen on its validation data."""
    test, val = (Predictions.open(folder / f"{name}.npz") for name in ("test", "val"))
    assert test.ids is not None
    truth = np.stack([votes[str(name)] for name in test.ids])
    logits = np.asarray(test.logits, np.float64)
    log_probabilities = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    predicted = logits.argmax(axis=1)
    confidence = np.exp(log_probabilities.max(axis=1))
    agreement = truth[np.arange(len(truth)), predicted]
    norm = fit_best_norm(np.asarray(val.logits), np.asarray(val.labels))
    yield Number(SET, "none", math.nan, "accuracy", float(agreement.mean()))
    yield Number(SET, "none", math.nan, "nll", float(-(truth * log_probabilities).sum(axis=1).mean()))
    yield Number(SET, "none", math.nan, "ece", calibration_gap(confidence, agreement))
    yield Number(SET, "none", math.nan, "aurc", area(confidence, agreement))
    yield Number(SET, "logit-norm", math.nan, "aurc", area(np.asarray(norm.score(logits)), agreement))


def calibration_gap(confidence: Floats, agreement: Floats) -> float:
    """ECE over bins (lo, hi] of equal width, for predictions that are right with a probability."""
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.bincount(bins, confidence - agreement, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def area(score: Floats, agreement: Floats) -> float:
    """AURC, for predictions that are right with a probability; equal scores share their mean risk."""
    _, group = np.unique(-score, return_inverse=True)
    mean_risk = np.bincount(group, 1.0 - agreement) / np.bincount(group)
    risks = mean_risk[np.sort(group)]
    return float((np.cumsum(risks) / np.arange(1, len(risks) + 1)).mean())
