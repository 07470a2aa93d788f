"""The values that all others are compared with: each definition in a few lines of NumPy, in float64, as slow as it is.

Nothing of Calibrant is used here. Ties take their expected order: each prediction of a tie counts with the tie's mean
error. Smooth ECE is summed from its cosine series over the samples themselves, without a grid.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

BINS = 15
RISK = 0.05
CHUNK = 1 << 20  # numbers at a time


def of_logits(logits: Floats, labels: Ints) -> dict[str, float]:
    """Every metric of logits ``[N, C]``."""
    size, classes = logits.shape
    confidence, correct = np.empty(size), np.empty(size, np.bool_)
    nll = brier = 0.0
    gaps = np.zeros(classes * BINS)
    inner, column = np.arange(1, BINS) / BINS, np.arange(classes) * BINS
    step = max(1, CHUNK // classes)
    for start in range(0, size, step):
        z, y = logits[start : start + step].astype(np.float64), labels[start : start + step]
        rows = np.arange(len(z))
        z -= z.max(axis=1, keepdims=True)
        p = np.exp(z)
        total = p.sum(axis=1)
        p /= total[:, None]
        predicted = z.argmax(axis=1)
        confidence[start : start + step] = p[rows, predicted]
        correct[start : start + step] = predicted == y
        nll += float((np.log(total) - z[rows, y]).sum())
        cell = np.searchsorted(inner, p, side="left") + column
        gaps += np.bincount(cell.ravel(), weights=p.ravel(), minlength=len(gaps))
        gaps -= np.bincount(cell[rows, y], minlength=len(gaps))
        p[rows, y] -= 1
        brier += float(np.square(p, out=p).sum())
    values = {"nll": nll / size, "brier": brier / size, "classwise_ece": float(np.abs(gaps).sum()) / size / classes}
    return values | of_pairs(confidence, correct)


def of_pairs(confidence: Floats, correct: Bools) -> dict[str, float]:
    """Every metric of confidences ``[N]`` and whether each prediction is right ``[N]``."""
    values = binned(confidence, correct)
    order = np.argsort(-confidence, kind="stable")
    score, wrong = confidence[order], ~correct[order]
    del order
    start = np.flatnonzero(np.concatenate([[True], score[1:] != score[:-1]]))
    count = np.diff(start, append=len(score))
    errors = np.add.reduceat(wrong.astype(np.float64), start)
    values |= ranked(count, errors)
    tied = np.repeat(errors / count, count)[::-1]
    gap = np.abs([part.sum() for part in np.array_split(score[::-1].astype(np.float64) - (1 - tied), BINS)])
    return values | {"aece": float(gap.sum()) / len(score), "smooth_ece": smooth(confidence, correct)}


def binned(confidence: Floats, correct: Bools) -> dict[str, float]:
    """ECE and MCE: bins (low, high], their edges rounded as the confidences are."""
    edges = (np.arange(1, BINS) / BINS).astype(confidence.dtype)
    place = np.searchsorted(edges, confidence, side="left")
    count = np.bincount(place, minlength=BINS)
    gap = np.abs(np.bincount(place, weights=confidence - correct.astype(np.float64), minlength=BINS))
    held = count > 0
    return {"ece": float(gap.sum()) / len(confidence), "mce": float((gap[held] / count[held]).max())}


def ranked(count: Ints, errors: Floats) -> dict[str, float]:
    """The metrics of the risk-coverage curve, from ties, highest score first."""
    size, wrong = int(count.sum()), int(errors.sum())
    n = np.arange(1, size + 1)
    total = np.cumsum(np.repeat(errors / count, count))
    risk = total / n
    best = np.maximum(n - (size - wrong), 0) / n
    ends = np.cumsum(count)
    whole = ends[np.cumsum(errors) / ends <= RISK]
    return {
        "aurc": float(risk.mean()),
        "aurc_trapezoid": float((risk.sum() - risk[0] / 2 - risk[-1] / 2) / (size - 1)),
        "e_aurc": float(risk.mean() - best.mean()),
        "augrc": float(total.mean()) / size,
        "coverage_at_risk": float(whole[-1]) / size if len(whole) else 0.0,
    }


def smooth(confidence: Floats, correct: Bools, points: int = 1 << 15) -> float:
    """Smooth ECE: the width s of the kernel at which the integral of the smoothed residuals equals s."""
    terms = 64
    while True:
        series = cosines(confidence, correct, terms)
        place = np.arange(points + 1) / points
        table = np.cos(np.pi * np.outer(np.arange(terms), place))
        low, high = 0.0, 1.0
        for _ in range(50):
            width = (low + high) / 2
            value = np.abs((series * np.exp(-0.5 * (math.pi * width * np.arange(terms)) ** 2)) @ table)
            integral = float(value.sum() - 0.5 * (value[0] + value[-1])) / points
            low, high = (width, high) if integral > width else (low, width)
        if width * terms > 2.8 or terms >= 1024:  # the terms left out are below 1e-16 of the first
            return width
        terms *= 2


def cosines(confidence: Floats, correct: Bools, terms: int) -> Floats:
    """Coefficients of the residuals' cosine series on [0, 1], by the recurrence of cos(k x)."""
    sums = np.zeros(terms)
    for start in range(0, len(confidence), CHUNK):
        c = confidence[start : start + CHUNK].astype(np.float64)
        residual = correct[start : start + CHUNK] - c
        twice = 2 * np.cos(np.pi * c)
        before, now = twice / 2, np.ones_like(c)  # cos(-x) and cos(0)
        for k in range(terms):
            sums[k] += residual @ now
            before, now = now, twice * now - before
    return np.where(np.arange(terms) == 0, 1.0, 2.0) * sums / len(confidence)
