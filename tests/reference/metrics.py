"""Every metric with plain loops and exact arithmetic, written from its definition alone; an oracle, never fast.

Numbers become fractions.Fraction (each float exactly) wherever only +, -, * and / occur, so that sums are exact and
only what is returned is rounded; logarithms and exponentials go through mpmath with 50 digits. Keys (ALS, ACLS, SC)
are those of references.bib. Arguments are lists, NumPy arrays or tensors; confidence and score of any shape.
test_metrics.py checks these functions against values worked by hand.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import mpmath  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
DIGITS = 50
NARROW = {"float32": (24, -126), "float16": (11, -14), "bfloat16": (8, -126)}  # significand bits, lowest exponent


# ---- input -----------------------------------------------------------------------------------------------------------
def _plain(values: Any) -> tuple[npt.NDArray[Any], str]:
    """A NumPy array with the same numbers (float64 for floats), and the name of the type they came in."""
    if hasattr(values, "detach"):  # a tensor; NumPy knows no bfloat16
        name = str(values.dtype).removeprefix("torch.")
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy(), name
    array = np.asarray(values)
    return (array.astype(np.float64) if array.dtype.kind == "f" else array), str(array.dtype)


def _fractions(values: Any) -> list[Fraction]:
    flat = [Fraction(float(v)) for v in _plain(values)[0].ravel()]  # Fraction itself refuses NaN and infinity
    if not flat:
        raise ValueError("values must be at least one")
    return flat


def _pair(values: Any, correct: Any, *, confidence: bool) -> tuple[list[Fraction], list[int]]:
    exact, right = _fractions(values), _fractions(correct)
    if len(exact) != len(right) or any(c not in (0, 1) for c in right):
        raise ValueError("correct must hold one 0 or 1 for every value")
    if confidence and any(not 0 <= c <= 1 for c in exact):
        raise ValueError("confidence must lie in [0, 1]")
    return exact, [int(c) for c in right]


def _one_of(name: str, value: str, *allowed: str) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}, got {value!r}")


def _mean(values: Sequence[Fraction] | Sequence[int]) -> Fraction:
    return sum((Fraction(v) for v in values), Fraction(0)) / len(values)


# ---- calibration -----------------------------------------------------------------------------------------------------
def accuracy(correct: Any) -> float:
    return float(_mean(_fractions(correct)))


def mean_confidence(confidence: Any) -> float:
    return float(_mean(_fractions(confidence)))


def round_to(value: Fraction, dtype: str) -> Fraction:
    """The nearest number of a narrower float type, half to even; values in [0, 1] only, other types unchanged."""
    if dtype not in NARROW or value == 0:
        return value
    (bits, lowest), exponent = NARROW[dtype], 0
    while Fraction(2) ** exponent > value:
        exponent -= 1
    spacing = Fraction(2) ** (max(exponent, lowest) - (bits - 1))
    return round(value / spacing) * spacing  # round() of a Fraction is half to even


def bin_edges(bins: int, dtype: str = "float64") -> list[Fraction]:
    """k/bins rounded to float64, then to the type the confidences came in."""
    return [round_to(Fraction(float(Fraction(k, bins))), dtype) for k in range(bins + 1)]


class Bin(NamedTuple):
    low: Fraction
    high: Fraction
    members: list[int]
    said: Fraction  # what ECE compares the accuracy with


def standard_bins(confidence: Any, correct: Any, bins: int) -> list[Bin]:
    """ACLS S2.1: equal widths, (low, high]; a confidence of 0 is in the first bin. Says: its mean confidence."""
    exact, _ = _pair(confidence, correct, confidence=True)
    edges, out = bin_edges(bins, _plain(confidence)[1]), []
    for low, high in itertools.pairwise(edges):
        members = [i for i, c in enumerate(exact) if low < c <= high or c == low == 0]
        out.append(Bin(low, high, members, _mean([exact[i] for i in members]) if members else Fraction(0)))
    return out


def pycalib_bins(confidence: Any, correct: Any, bins: int, classes: int) -> list[Bin]:
    """The package of Wenger et al. (2020), expected_calibration_error: numpy.histogram on [1/K, 1] and fixed points.

    Edges and points are numpy's own linspace in float64; a confidence below 1/K counts in the first bin.
    """
    exact, _ = _pair(confidence, correct, confidence=True)
    edges = [Fraction(float(e)) for e in np.linspace(1 / classes, 1, bins + 1)]
    points = [Fraction(float(p)) for p in np.linspace(1 / classes + 1 / (2 * bins), 1 - 1 / (2 * bins), bins)]
    out = []
    for j in range(bins):
        first, last = j == 0, j == bins - 1
        reached = [i for i, c in enumerate(exact) if edges[j] <= c or first]
        members = [i for i in reached if exact[i] < edges[j + 1] or last]
        out.append(Bin(edges[j], edges[j + 1], members, points[j]))
    return out


def gaps(confidence: Any, correct: Any, bins: int, convention: str, classes: int | None) -> list[tuple[int, Fraction]]:
    """(n_b, |what the bin says - its accuracy|) of every bin that is not empty."""
    _one_of("convention", convention, "standard", "pycalib")
    _, right = _pair(confidence, correct, confidence=True)
    if convention == "standard":
        filled = standard_bins(confidence, correct, bins)
    elif classes is None:
        raise ValueError('convention="pycalib" needs classes')
    else:
        filled = pycalib_bins(confidence, correct, bins, classes)
    return [(len(b.members), abs(b.said - _mean([right[i] for i in b.members]))) for b in filled if b.members]


def ece(
    confidence: Any, correct: Any, *, bins: int = 15, convention: str = "standard", classes: int | None = None
) -> float:
    """ACLS Eq. 23: sum over bins of n_b/N |what the bin says - its accuracy|."""
    total, n = Fraction(0), len(_fractions(confidence))
    for count, gap in gaps(confidence, correct, bins, convention, classes):
        total += Fraction(count, n) * gap
    return float(total)


def mce(
    confidence: Any, correct: Any, *, bins: int = 15, convention: str = "standard", classes: int | None = None
) -> float:
    """ALS 4.2: the largest gap of a bin that is not empty."""
    return float(max(gap for _, gap in gaps(confidence, correct, bins, convention, classes)))


@dataclass(frozen=True)
class Reliability:
    low: Array
    high: Array
    count: npt.NDArray[np.int64]
    confidence: Array
    accuracy: Array


def reliability(confidence: Any, correct: Any, *, bins: int = 15) -> Reliability:
    filled, right = standard_bins(confidence, correct, bins), _fractions(correct)
    said = [float(b.said) if b.members else math.nan for b in filled]
    hits = [float(_mean([right[i] for i in b.members])) if b.members else math.nan for b in filled]
    low, high = np.array([float(b.low) for b in filled]), np.array([float(b.high) for b in filled])
    return Reliability(low, high, np.array([len(b.members) for b in filled]), np.array(said), np.array(hits))


def aece(confidence: Any, correct: Any, *, bins: int = 15, convention: str = "standard") -> float:
    """ACLS S2.1: bins of equal counts. standard: every sample once. released: the papers' interpolated edges."""
    _one_of("convention", convention, "standard", "released")
    exact, right = _pair(confidence, correct, confidence=True)
    n = len(exact)
    runs: list[list[tuple[Fraction, Fraction]]] = []
    if convention == "standard":
        members: dict[Fraction, list[int]] = {}
        for c, r in zip(exact, right, strict=True):
            members.setdefault(c, []).append(r)
        # Every member of a tie carries the tie's mean correctness, so any sort gives the same list.
        carried = {c: _mean(tied) for c, tied in members.items()}
        ascending, start = [(c, carried[c]) for c in sorted(exact)], 0
        for b in range(bins):
            size = n // bins + (1 if b < n % bins else 0)
            runs.append(ascending[start : start + size])
            start += size
    else:
        ordered = np.array([float(c) for c in sorted(exact)])
        edges = [Fraction(float(e)) for e in np.interp(np.linspace(0, n, bins + 1), np.arange(n), ordered)]
        for low, high in itertools.pairwise(edges):
            runs.append([(exact[i], Fraction(right[i])) for i in range(n) if low < exact[i] <= high])
    total = Fraction(0)
    for run in runs:
        if run:
            total += Fraction(len(run), n) * abs(_mean([c for c, _ in run]) - _mean([a for _, a in run]))
    return float(total)


def overconfidence(confidence: Any, correct: Any) -> float:
    """ALS 4.2: E[confidence | wrong]; NaN if nothing is wrong."""
    exact, right = _pair(confidence, correct, confidence=True)
    wrong = [c for c, r in zip(exact, right, strict=True) if r == 0]
    return float(_mean(wrong)) if wrong else math.nan


def underconfidence(confidence: Any, correct: Any) -> float:
    """ALS 4.2: E[1 - confidence | right]; NaN if nothing is right."""
    exact, right = _pair(confidence, correct, confidence=True)
    doubts = [1 - c for c, r in zip(exact, right, strict=True) if r == 1]
    return float(_mean(doubts)) if doubts else math.nan


def objectness_deviation(confidence: Any, objectness: Any) -> float:
    """ALS 4.2: "the mean of the absolute difference between maximum confidence and objectness"."""
    pairs = zip(_fractions(confidence), _fractions(objectness), strict=True)
    return float(_mean([abs(c - o) for c, o in pairs]))


# ---- smooth ECE ------------------------------------------------------------------------------------------------------
def _images(c: float, width: float) -> list[float]:
    """2k + c and 2k - c for every k whose Gaussian reaches [0, 1]; beyond ten widths it is below 1e-22 of its peak."""
    reach = math.ceil(5 * width) + 1
    return [2 * k + sign * c for k in range(-reach, reach + 1) for sign in (1, -1)]


def smoothed_residual(t: Array, confidence: Any, correct: Any, width: float) -> Array:
    """1/N sum_i K_s(t, c_i) (correct_i - c_i) at the points t, K_s the Gaussian reflected at 0 and 1."""
    exact, right = _pair(confidence, correct, confidence=True)
    out = np.zeros_like(t)
    for c, r in zip(exact, right, strict=True):
        for image in _images(float(c), width):
            peak = float(r - c) / (len(exact) * width * math.sqrt(2 * math.pi))
            out += peak * np.exp(-0.5 * ((t - image) / width) ** 2)
    return out


def smooth_ece_at(confidence: Any, correct: Any, bandwidth: float, *, points: int = 20001) -> float:
    """smECE_s by the trapezoid rule for the absolute value; the grid has at least 200 steps per width."""
    points = max(points, math.ceil(200 / bandwidth) + 1)
    heights = np.abs(smoothed_residual(np.linspace(0.0, 1.0, points), confidence, correct, bandwidth))
    return (math.fsum(heights) - 0.5 * float(heights[0] + heights[-1])) / (points - 1)


def smooth_ece(
    confidence: Any, correct: Any, *, bandwidth: float | None = None, points: int = 20001, tolerance: float = 1e-8
) -> float:
    """Blasiok and Nakkiran (2024): smECE_s at the width given, or the s with smECE_s = s, by bisection."""
    if bandwidth is not None:
        return smooth_ece_at(confidence, correct, bandwidth, points=points)
    exact, right = _pair(confidence, correct, confidence=True)
    atoms: dict[Fraction, Fraction] = {}
    for c, r in zip(exact, right, strict=True):
        atoms[c] = atoms.get(c, Fraction(0)) + (r - c)
    # smECE_s never exceeds its limit at s = 0, where each distinct confidence stands alone.
    low, high = 0.0, float(sum((abs(a) for a in atoms.values()), Fraction(0)) / len(exact))
    while high - low > tolerance:
        middle = 0.5 * (low + high)
        if smooth_ece_at(confidence, correct, middle, points=points) > middle:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


# ---- selective classification ----------------------------------------------------------------------------------------
def _ties(score: Any, correct: Any) -> list[list[int]]:
    """The errors (0 or 1) at each distinct score, in row order, the highest score first; -0.0 equals 0.0."""
    exact, right = _pair(score, correct, confidence=False)
    groups: dict[Fraction, list[int]] = {}
    for s, r in zip(exact, right, strict=True):
        groups.setdefault(s, []).append(1 - r)
    return [groups[s] for s in sorted(groups, reverse=True)]


@cache
def expected_errors(size: int, errors: int, *, literally: bool) -> list[Fraction]:
    """Mean of the errors among the first 1..size of a tie: over every ordering of its members, or j e/n."""
    if not literally:
        return [Fraction(j * errors, size) for j in range(1, size + 1)]
    totals, orderings = [0] * size, 0
    for ordering in itertools.permutations([1] * errors + [0] * (size - errors)):
        orderings += 1
        for j in range(size):
            totals[j] += sum(ordering[: j + 1])
    return [Fraction(t, orderings) for t in totals]


def risks(score: Any, correct: Any, ties: str, *, generalised: bool = False) -> list[Fraction]:
    """r_i = E_i/i for i = 1..N, E_i the errors among the i most confident (SC Eq. 12); generalised: E_i/N."""
    _one_of("ties", ties, "expected", "optimistic", "pessimistic", "together", "order")
    groups = _ties(score, correct)
    n = sum(len(errors) for errors in groups)
    out: list[Fraction] = []
    before = 0  # errors with a higher score
    for errors in groups:
        size, wrong, done = len(errors), sum(errors), len(out)
        row = {"optimistic": sorted(errors), "pessimistic": sorted(errors, reverse=True)}.get(ties, errors)
        inside = [Fraction(e) for e in itertools.accumulate(row)]
        if ties == "expected":
            inside = expected_errors(size, wrong, literally=size <= 6)
        for j in range(1, size + 1):
            if ties == "together":
                out.append(Fraction(before + wrong, n if generalised else done + size))
            else:
                out.append((before + inside[j - 1]) / (n if generalised else done + j))
        before += wrong
    return out


def area(heights: Sequence[Fraction], convention: str) -> float:
    """The area under r_1..r_N; each term is rounded once and fsum adds them exactly."""
    _one_of("convention", convention, "mean", "trapezoid", "trapezoid-first")
    if convention == "mean":
        return math.fsum(float(h) for h in heights) / len(heights)
    if convention == "trapezoid-first" and len(heights) == 1:
        return float(heights[0])
    # Over the N steps from (0, 0), or the N-1 from i = 1: there (1/N) / (1 - 1/N) = 1/(N-1) is the weight of a step.
    steps = list(itertools.pairwise([Fraction(0), *heights] if convention == "trapezoid" else heights))
    return math.fsum(float((a + b) / 2) for a, b in steps) / len(steps)


@dataclass(frozen=True)
class RiskCoverage:
    coverage: Array
    risk: Array
    threshold: Array


def risk_coverage_curve(score: Any, correct: Any) -> RiskCoverage:
    """SC Eq. 10-12: for each distinct score as threshold, highest first, what score >= threshold accepts."""
    exact, right = _pair(score, correct, confidence=False)
    coverage, risk, threshold = [], [], []
    for level in sorted(set(exact), reverse=True):
        accepted = [r for s, r in zip(exact, right, strict=True) if s >= level]
        coverage.append(float(Fraction(len(accepted), len(exact))))
        risk.append(float(Fraction(accepted.count(0), len(accepted))))
        threshold.append(float(level))
    return RiskCoverage(np.array(coverage), np.array(risk), np.array(threshold))


def aurc(score: Any, correct: Any, *, convention: str = "mean", ties: str = "expected") -> float:
    return area(risks(score, correct, ties), convention)


def augrc(score: Any, correct: Any, *, convention: str = "mean", ties: str = "expected") -> float:
    """Traub et al. (2024): E_i/N in place of r_i."""
    return area(risks(score, correct, ties, generalised=True), convention)


def e_aurc(
    score: Any, correct: Any, *, convention: str = "mean", ties: str = "expected", optimum: str = "exact"
) -> float:
    """AURC minus that of the best ordering: every right sample before every wrong one, or Geifman et al.'s limit."""
    _one_of("optimum", optimum, "exact", "asymptotic")
    right = _pair(score, correct, confidence=False)[1]
    if optimum == "exact":
        best = aurc([1.0 if r else 0.0 for r in right], right, convention=convention, ties="optimistic")
    else:
        r = Fraction(right.count(0), len(right))
        best = 1.0 if r == 1 else float(r + (1 - r) * Fraction(math.log1p(-float(r))))
    return aurc(score, correct, convention=convention, ties=ties) - best


def coverage_at_risk(score: Any, correct: Any, risk: float, *, ties: str = "together") -> float:
    """The largest i/N with r_i <= risk, 0 if none; r_i in float64, so that 3 errors in 10 meet a risk of 0.3."""
    heights = risks(score, correct, ties)
    largest = max((i for i, r in enumerate(heights, start=1) if float(r) <= risk), default=0)
    return float(Fraction(largest, len(heights)))


def risk_at_coverage(score: Any, correct: Any, coverage: float, *, ties: str = "expected") -> float:
    """r_i at the smallest i with i/N >= coverage, i/N rounded to float64, so that 0.9 of 10 is 9."""
    heights = risks(score, correct, ties)
    i = min(i for i in range(1, len(heights) + 1) if float(Fraction(i, len(heights))) >= coverage)
    return float(heights[i - 1])


def auroc(score: Any, correct: Any) -> float:
    """The share of pairs of a right and a wrong prediction in which the right one has the higher score; ties half."""
    exact, right = _pair(score, correct, confidence=False)
    good, bad = ([s for s, r in zip(exact, right, strict=True) if r == side] for side in (1, 0))
    if not good or not bad:
        return math.nan
    wins = [Fraction(1) if g > b else Fraction(1, 2) if g == b else Fraction(0) for g in good for b in bad]
    return float(_mean(wins))


def fpr_at_tpr(score: Any, correct: Any, tpr: float = 0.95) -> float:
    """The least share of wrong predictions at or above a threshold that a share tpr of the right ones reaches."""
    exact, right = _pair(score, correct, confidence=False)
    good, bad = ([s for s, r in zip(exact, right, strict=True) if r == side] for side in (1, 0))
    if not good or not bad:
        return math.nan
    reached = [level for level in set(exact) if float(Fraction(sum(g >= level for g in good), len(good))) >= tpr]
    return min(float(Fraction(sum(b >= level for b in bad), len(bad))) for level in reached)


def aupr_errors(score: Any, correct: Any) -> float:
    """Average precision of errors by a low score: of each error, the share of errors among all with no higher score."""
    exact, right = _pair(score, correct, confidence=False)
    wrong = [s for s, r in zip(exact, right, strict=True) if not r]
    if not wrong:
        return math.nan
    shares = [Fraction(sum(w <= level for w in wrong), sum(s <= level for s in exact)) for level in wrong]
    return float(_mean(shares))


# ---- proper scores ---------------------------------------------------------------------------------------------------
def rows_of(logits: Any, labels: Any = None, ignore_index: int | None = None) -> tuple[list[list[float]], list[int]]:
    """The positions of [N, C, ...] as rows of C numbers, in row-major order, and their labels; without ignored ones."""
    z = _plain(logits)[0]
    y = np.zeros((z.shape[0], *z.shape[2:]), dtype=np.int64) if labels is None else _plain(labels)[0]
    if z.ndim < 2 or y.shape != (z.shape[0], *z.shape[2:]):
        raise ValueError(f"logits {list(z.shape)} and labels {list(y.shape)} do not fit")
    rows, out = [], []
    for index in np.ndindex(*y.shape):
        label = int(y[index])
        if ignore_index is None or label != ignore_index:
            if not 0 <= label < z.shape[1]:
                raise ValueError(f"label {label} is not a class of {z.shape[1]}")
            rows.append([float(z[(index[0], k, *index[1:])]) for k in range(z.shape[1])])
            out.append(label)
    return rows, out


def _probabilities(row: list[float], kind: str) -> list[Any]:
    """p_k = 1 / sum_j exp(z_j - z_k); 50 digits and mpmath's unbounded exponent need no shift."""
    _one_of("kind", kind, "logits", "probabilities")
    if kind == "probabilities":
        return [mpmath.mpf(p) for p in row]
    return [1 / mpmath.fsum(mpmath.exp(mpmath.mpf(z) - mpmath.mpf(top)) for z in row) for top in row]


def nll(logits: Any, labels: Any, *, kind: str = "logits", ignore_index: int | None = None) -> float:
    """Mean of -log p_y = log(1 + sum_{k != y} exp(z_k - z_y)); log1p, so that a p_y near 1 keeps its digits."""
    _one_of("kind", kind, "logits", "probabilities")
    rows, y = rows_of(logits, labels, ignore_index)
    with mpmath.workdps(DIGITS):
        total = mpmath.mpf(0)
        for row, label in zip(rows, y, strict=True):
            if kind == "logits":
                others = [mpmath.mpf(row[k]) - mpmath.mpf(row[label]) for k in range(len(row)) if k != label]
                total += mpmath.log1p(mpmath.fsum(mpmath.exp(d) for d in others))
            elif row[label] == 0:
                return math.inf
            else:
                total -= mpmath.log(mpmath.mpf(row[label]))
        return float(total / len(rows))


def brier(
    logits: Any, labels: Any, *, scale: str = "sum", kind: str = "logits", ignore_index: int | None = None
) -> float:
    """Mean of sum_k (p_k - 1[k = y])^2; "half" of it, or its "mean" over the classes."""
    rows, y = rows_of(logits, labels, ignore_index)
    divisor = {"sum": 1, "half": 2, "mean": len(rows[0])}[scale]
    with mpmath.workdps(DIGITS):
        total = mpmath.mpf(0)
        for row, label in zip(rows, y, strict=True):
            for k, p in enumerate(_probabilities(row, kind)):
                total += (p - (1 if k == label else 0)) ** 2
        return float(total / (divisor * len(rows)))


def top_label(logits: Any, labels: Any = None, *, kind: str = "logits") -> tuple[npt.NDArray[Any], ...]:
    """Confidence and predicted class [N, ...], and correct if labels are given; the first of tied maxima."""
    z = _plain(logits)[0]
    rows, y = rows_of(logits, labels)
    confidence, predicted = [], []
    with mpmath.workdps(DIGITS):
        for row in rows:
            best = row.index(max(row))
            predicted.append(best)
            confidence.append(float(_probabilities(row, kind)[best]))
    shape = (z.shape[0], *z.shape[2:])
    out = (np.array(confidence).reshape(shape), np.array(predicted).reshape(shape))
    return out if labels is None else (*out, out[1] == np.array(y).reshape(shape))


def classwise_ece(
    logits: Any, labels: Any, *, bins: int = 15, kind: str = "logits", average: str | None = "mean"
) -> float | Array:
    """The ECE of p_k against 1[y = k] for each class k, over all samples; their mean, or all of them."""
    rows, y = rows_of(logits, labels)
    with mpmath.workdps(DIGITS):
        columns: Any = np.array([[float(p) for p in _probabilities(row, kind)] for row in rows]).T
    if kind == "probabilities":  # as they came, because their type decides the edges
        given = logits if hasattr(logits, "detach") else np.asarray(logits)
        columns = [given[:, k] for k in range(len(rows[0]))]
    values = [ece(column, [int(label == k) for label in y], bins=bins) for k, column in enumerate(columns)]
    return math.fsum(values) / len(values) if average == "mean" else np.array(values)


# ---- segmentation ----------------------------------------------------------------------------------------------------
def mean_iou(
    predictions: Any, labels: Any, *, classes: int, ignore_index: int | None = 255, average: str | None = "mean"
) -> float | Array:
    """Per class |predicted and labelled| / |predicted or labelled| over all pixels that count; NaN if in neither."""
    given, y = _plain(predictions)[0], _plain(labels)[0]
    guesses = given.argmax(axis=1) if given.ndim == y.ndim + 1 else given  # argmax takes the first maximum
    both, either = [0] * classes, [0] * classes
    for guess, label in zip(guesses.ravel(), y.ravel(), strict=True):
        if label == ignore_index:
            continue
        for k in range(classes):
            both[k] += int(guess == k and label == k)
            either[k] += int(guess == k or label == k)
    ratios = [Fraction(both[k], either[k]) if either[k] else None for k in range(classes)]
    if average is None:
        return np.array([math.nan if r is None else float(r) for r in ratios])
    return float(_mean([r for r in ratios if r is not None]))


def pixels(
    logits: Any, labels: Any, *, ignore_index: int | None = 255, exclude_background: int | None = None
) -> tuple[Array, npt.NDArray[np.int64]]:
    """(logits [M, C], labels [M]) of the pixels that count, image by image, row by row; without the random draw."""
    z, y = _plain(logits)[0], _plain(labels)[0]
    rows, out = [], []
    for n, i, j in np.ndindex(*y.shape):
        if y[n, i, j] != ignore_index and y[n, i, j] != exclude_background:
            rows.append([float(z[n, k, i, j]) for k in range(z.shape[1])])
            out.append(int(y[n, i, j]))
    return np.array(rows).reshape(-1, z.shape[1]), np.array(out, dtype=np.int64)


# ---- what a sketch may say -------------------------------------------------------------------------------------------
def aurc_bounds(
    cells: Sequence[tuple[int, int]], *, convention: str = "mean", generalised: bool = False
) -> tuple[float, float]:
    """Smallest and largest AURC (AUGRC) over all orders inside cells of (right, wrong) counts, most confident first."""
    score = [-c for c, (right, wrong) in enumerate(cells) for _ in range(right + wrong)]
    correct = [bit for right, wrong in cells for bit in [1] * right + [0] * wrong]
    best = risks(score, correct, "optimistic", generalised=generalised)
    worst = risks(score, correct, "pessimistic", generalised=generalised)
    return area(best, convention), area(worst, convention)


def random_placements(rng: np.random.Generator, low: Any, high: Any, count: int = 100) -> Iterator[Array]:
    """``count`` arrays [N] with low_i <= value_i <= high_i: all low, all high, then corners and inner points."""
    bottom, top = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    for step in range(count):
        if step < 2:
            yield (bottom, top)[step].copy()
        elif step % 2 == 0:
            yield np.where(rng.random(bottom.shape) < rng.random(), top, bottom)
        else:
            # Rounding of the weighted sum may step over an end by one place; clip puts it back.
            yield np.clip(bottom + rng.random(bottom.shape) * (top - bottom), bottom, top)
