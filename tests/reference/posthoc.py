"""The calibrators with plain loops, written from the papers' formulas; oracles, never fast.

Keys are those of references.bib. What the papers leave open (empty bins, shares of 0, separable data) follows the words
of the modules' docstrings, not their code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def softmax(row: Sequence[float] | Array) -> list[float]:
    top = max(row)
    exps = [math.exp(v - top) for v in row]
    return [e / math.fsum(exps) for e in exps]


def mean_nll(logits: Array, labels: Sequence[int]) -> float:
    """Guo2017: minus the mean log-probability of the label."""
    terms = []
    for row, y in zip(logits, labels, strict=True):
        top = max(row)
        terms.append(top + math.log(math.fsum(math.exp(v - top) for v in row)) - row[y])
    return math.fsum(terms) / len(terms)


def vector_objective(z: Array, y: Sequence[int], w: Array, b: Array, temperature: float, strength: float) -> float:
    """Guo2017, W diagonal; plus strength / N times the summed mean squares of what moves the tempered logits."""
    n, classes = z.shape
    u = np.array([[w[c] * z[i, c] + b[c] for c in range(classes)] for i in range(n)])
    moved = math.fsum((u[i, c] - z[i, c] / temperature) ** 2 for i in range(n) for c in range(classes)) / n
    return mean_nll(u, y) + strength / n * moved


def matrix_objective(
    z: Array, y: Sequence[int], w: Array, b: Array, off_diagonal: float, intercept: float,
    temperature: float, strength: float,
) -> float:  # fmt: skip
    """Kull2019: NLL + lambda mean of W_ij^2 off the diagonal + mu mean of b_i^2; plus the pull of the diagonal."""
    n, k = z.shape
    u = np.array([[math.fsum(w[i, j] * row[j] for j in range(k)) + b[i] for i in range(k)] for row in z])
    squares = [w[i, j] ** 2 for i in range(k) for j in range(k) if i != j]
    value = mean_nll(u, y) + off_diagonal * math.fsum(squares) / (k * (k - 1)) + intercept * math.fsum(b**2) / k
    for i in range(k):
        middle = math.fsum(z[:, i]) / n
        value += strength / n * math.fsum(((w[i, i] - 1 / temperature) * (v - middle)) ** 2 for v in z[:, i]) / n
    return value


def isotonic(p: Sequence[float], hit: Sequence[int]) -> dict[float, float]:
    """The best rising function at each p, by the max-min formula: the highest of lowest means of what lies around."""
    points = sorted(set(p))
    sums = [sum(h for q, h in zip(p, hit, strict=True) if q == x) for x in points]
    counts = [sum(q == x for q in p) for x in points]
    m = len(points)

    def mean(a: int, b: int) -> float:
        return sum(sums[a : b + 1]) / sum(counts[a : b + 1])

    return {x: max(min(mean(a, b) for b in range(i, m)) for a in range(i + 1)) for i, x in enumerate(points)}


def width_bin(p: float, bins: int) -> int:
    """The number of the bin (m / M, (m + 1) / M] that holds p; 0 is in the first."""
    for m in range(bins):
        if p <= (m + 1) / bins:
            return m
    return bins - 1


def width_shares(p: Sequence[float], hit: Sequence[int], bins: int) -> list[float]:
    """Zadrozny2001 with bins of equal width: the share of hits in each, the middle of an empty one."""
    shares = []
    for m in range(bins):
        inside = [h for q, h in zip(p, hit, strict=True) if width_bin(q, bins) == m]
        shares.append(sum(inside) / len(inside) if inside else (m + 0.5) / bins)
    return shares


def one_vs_rest(p: Sequence[float], shares: Sequence[float]) -> list[float]:
    """A row's probabilities from its classes' shares."""
    mixed = [s + 1e-6 * q for s, q in zip(shares, p, strict=True)]
    return [v / math.fsum(mixed) for v in mixed]


def top_label(p: Sequence[float], share: float) -> list[float]:
    """A row's probabilities from the share of its confidence, where the second class stays behind the first."""
    first = list(p).index(max(p))
    c = (share + 1e-6 * p[first]) / (1 + 1e-6)
    rest = math.fsum(q for k, q in enumerate(p) if k != first)
    return [c if k == first else (1 - c) * q / rest for k, q in enumerate(p)]


def ets(z: Array, temperature: float, w: Sequence[float]) -> Array:
    """Zhang2020: w1 softmax(z / t) + w2 softmax(z) + w3 / L."""
    rows = []
    for row in z:
        tempered, plain = softmax(row / temperature), softmax(row)
        rows.append([w[0] * a + w[1] * b + w[2] / len(row) for a, b in zip(tempered, plain, strict=True)])
    return np.array(rows)


def simplex(steps: int) -> list[tuple[float, float, float]]:
    """A grid of weights."""
    return [(i / steps, j / steps, (steps - i - j) / steps) for i in range(steps + 1) for j in range(steps + 1 - i)]
