"""Every training loss in NumPy float64 with plain loops, written from the papers alone.

Each loss is ``name(logits [N, K], labels [N], **hyper) -> {"fidelity": [N], "regulariser": [N]}``, and the loss with
reduction "mean" is mean(fidelity) + mean(regulariser). A regulariser that belongs to the whole batch (MMCE, MDCA)
stands in every entry. Letters: z logits, p softmax, y label, yhat = first argmax, K classes, N samples.

Keys are those of references.bib; "ACLS S" is the supplement of ACLS. The head of each method's file in
src/calibrant/losses says what variant="paper" and variant="released" mean.

Where a source holds a quantity constant in the gradient, the value alone cannot show it. ``acls`` and ``mbls``
therefore take ``frozen``, the logits [N, K] at which those constants are evaluated: gradient(acls, z, y, frozen=z) is
the gradient with the stop-gradient, gradient(acls, z, y) the one without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.integer[Any]]
Terms = dict[str, Array]


class Check(NamedTuple):
    """Parameters under which a loss is held against its reference, and what is known about it there.

    Attributes:
        name: of the loss, as in `calibrant.losses.get`.
        reference: its function below.
        parameters: of the loss and of the reference alike.
        frozen: the reference's gradient needs the stop-gradient.
        shift_invariant: a number added to all logits changes nothing.
        ranks: the loss knows how often each sample was right, and the reference takes it as ``correctness``.
        calibrates: the loss knows earlier predictions, and the reference takes their ``confidence`` and ``correct``.
        adapts: the loss remembers a target for each sample, and the reference takes them as ``running``.
        halved: the gradient of the regulariser is half the derivative of its value.
        state: buffers of the loss that it has learned, by name; the reference takes them as parameters.
    """

    name: str
    reference: Callable[..., Terms]
    parameters: dict[str, Any]
    frozen: bool = False
    shift_invariant: bool = True
    ranks: bool = False
    calibrates: bool = False
    adapts: bool = False
    halved: bool = False
    state: Mapping[str, list[float]] = MappingProxyType({})


#: Every loss under several parameters; the properties of tests/properties/test_losses.py run over them.
CHECKS: list[Check] = []


def checks(name: str, *parameters: dict[str, Any], **facts: Any) -> Callable[[Callable[..., Terms]], Any]:
    """Decorator of a reference: the loss it belongs to and the parameters to check it with."""

    def enter(reference: Callable[..., Terms]) -> Callable[..., Terms]:
        CHECKS.extend(Check(name, reference, each, **facts) for each in parameters)
        return reference

    return enter


VARIANTS = ("released", "paper")


# ---- building blocks -------------------------------------------------------------------------------------------------


def logsumexp(values: npt.ArrayLike) -> float:
    """log sum exp, shifted by the maximum so that no exponential overflows."""
    values = np.asarray(values, dtype=np.float64)
    top = float(values.max())
    return top + math.log(math.fsum(math.exp(float(v) - top) for v in values))


def log_softmax(logits: npt.ArrayLike) -> Array:
    """ACLS Eq. 2, in logs: log p_j = z_j - log sum_k exp z_k."""
    z = _as_logits(logits)
    out = np.empty_like(z)
    for i in range(z.shape[0]):
        top = float(z[i].max())
        log_total = math.log(math.fsum(math.exp(float(v) - top) for v in z[i]))
        for j in range(z.shape[1]):
            out[i, j] = (z[i, j] - top) - log_total  # two small numbers, where z_j - logsumexp subtracts two large ones
    return out


def softmax(logits: npt.ArrayLike) -> Array:
    """ACLS Eq. 2: p_j = exp z_j / sum_k exp z_k."""
    return np.exp(log_softmax(logits))


def log_one_minus_p(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """log(1 - p_y) as logsumexp over the other classes minus logsumexp over all; exact for p_y near 1."""
    z, y = _as_logits(logits), _as_labels(labels)
    out = np.empty(z.shape[0])
    for i in range(z.shape[0]):
        shifted = z[i] - z[i].max()
        others = [shifted[k] for k in range(z.shape[1]) if k != y[i]]
        out[i] = logsumexp(others) - logsumexp(shifted)
    return out


def first_argmax(row: Array) -> int:
    """The predicted class yhat; the first one when several logits tie."""
    best = 0
    for k in range(len(row)):
        if row[k] > row[best]:
            best = k
    return best


def entropy(logits: npt.ArrayLike) -> Array:
    """H(p) = -sum_k p_k log p_k, in nats."""
    logp = log_softmax(logits)
    out = np.zeros(logp.shape[0])
    for i in range(logp.shape[0]):
        for k in range(logp.shape[1]):
            out[i] -= math.exp(logp[i, k]) * logp[i, k]
    return out


def _as_logits(logits: npt.ArrayLike) -> Array:
    z = np.asarray(logits, dtype=np.float64)
    if z.ndim != 2 or z.shape[0] < 1 or z.shape[1] < 2:
        raise ValueError(f"logits must have shape [N >= 1, K >= 2], got {list(z.shape)}")
    return z


def _as_labels(labels: npt.ArrayLike) -> Labels:
    y = np.asarray(labels)
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(f"labels must be integers of shape [N], got {y.dtype} of shape {list(y.shape)}")
    return y


def _one_of(name: str, value: str, *allowed: str) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}, got {value!r}")


def _terms(fidelity: Array, regulariser: Array | None = None) -> Terms:
    return {"fidelity": fidelity, "regulariser": np.zeros_like(fidelity) if regulariser is None else regulariser}


def _relu(x: float) -> float:
    return max(x, 0.0)


def _minus_log_sigmoid(x: float) -> float:
    return max(-x, 0.0) + math.log1p(math.exp(-abs(x)))


# ---- cross-entropy and soft targets ----------------------------------------------------------------------------------


@checks("ce", {})
@checks("soft", {})
def cross_entropy(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Terms:
    """ACLS Eq. 1, ALS Eq. 3: -log p_y."""
    logp, y = log_softmax(logits), _as_labels(labels)
    fidelity = np.empty(len(y))
    for i in range(len(y)):
        fidelity[i] = -logp[i, y[i]]
    return _terms(fidelity)


@checks("ls", {"alpha": 0.1, "spread": "all"}, {"alpha": 0.1, "spread": "others"})
def label_smoothing(
    logits: npt.ArrayLike, labels: npt.ArrayLike, *, alpha: float | npt.ArrayLike = 0.05, spread: str = "all"
) -> Terms:
    """SC Eq. 7, ACLS Eq. 4 (spread="all": alpha/K on every class); ALS Eq. 4-5 ("others": alpha/(K-1) on k != y).

    fidelity = (1-alpha) (-log p_y); regulariser = the rest, the spread mass times -log p_k. alpha is a number or [N].
    """
    _one_of("spread", spread, "all", "others")
    logp, y = log_softmax(logits), _as_labels(labels)
    n_samples, n_classes = logp.shape
    a = np.broadcast_to(np.asarray(alpha, dtype=np.float64), (n_samples,))
    fidelity, regulariser = np.zeros(n_samples), np.zeros(n_samples)
    for i in range(n_samples):
        fidelity[i] = -(1.0 - a[i]) * logp[i, y[i]]
        for k in range(n_classes):
            if spread == "all":
                regulariser[i] -= a[i] / n_classes * logp[i, k]
            elif k != y[i]:
                regulariser[i] -= a[i] / (n_classes - 1) * logp[i, k]
    return _terms(fidelity, regulariser)


# ---- proper scores ---------------------------------------------------------------------------------------------------


@checks("brier", *({"scale": scale} for scale in ("sum", "half", "mean")))
def brier(logits: npt.ArrayLike, labels: npt.ArrayLike, *, scale: str = "sum") -> Terms:
    """[Brier1950] Eq. 2 for one sample: sum_k (p_k - 1[k = y])^2, divided by 1, 2 or K; all in fidelity."""
    _one_of("scale", scale, "sum", "half", "mean")
    p, y = softmax(logits), _as_labels(labels)
    n_samples, n_classes = p.shape
    fidelity = np.zeros(n_samples)
    for i in range(n_samples):
        for k in range(n_classes):
            fidelity[i] += (p[i, k] - (1.0 if k == y[i] else 0.0)) ** 2
        fidelity[i] /= {"sum": 1, "half": 2, "mean": n_classes}[scale]
    return _terms(fidelity)


# ---- focal family ----------------------------------------------------------------------------------------------------


def _focal_with(logits: npt.ArrayLike, labels: npt.ArrayLike, gamma: Array) -> Terms:
    ce, log_rest = cross_entropy(logits, labels)["fidelity"], log_one_minus_p(logits, labels)
    fidelity = np.empty_like(ce)
    for i in range(len(ce)):
        fidelity[i] = math.exp(gamma[i] * log_rest[i]) * ce[i]
    return _terms(fidelity)


@checks("focal", *({"gamma": gamma} for gamma in (0.0, 0.5, 1.0, 3.0)))
def focal(logits: npt.ArrayLike, labels: npt.ArrayLike, *, gamma: float = 3.0) -> Terms:
    """[Lin2017] (ACLS ref. [18]): -(1 - p_y)^gamma log p_y, all in fidelity."""
    return _focal_with(logits, labels, np.full(len(_as_labels(labels)), float(gamma)))


@checks("flsd", *({"variant": variant} for variant in VARIANTS))
def flsd(logits: npt.ArrayLike, labels: npt.ArrayLike, *, gamma: float = 3.0, variant: str = "released") -> Terms:
    """ACLS S Eq. 1, and the released code: focal with gamma by confidence.

    paper: from p_yhat, 5 below 0.2, else 3 (the argument gamma plays no part).
    released: from p_y, 5 below 0.2, 3 below 0.5, ``gamma`` from 0.5 on.
    """
    _one_of("variant", variant, "paper", "released")
    p, y = softmax(logits), _as_labels(labels)
    gammas = np.empty(len(y))
    for i in range(len(y)):
        if variant == "paper":
            gammas[i] = 5.0 if p[i].max() < 0.2 else 3.0
        elif p[i, y[i]] < 0.2:
            gammas[i] = 5.0
        elif p[i, y[i]] < 0.5:
            gammas[i] = 3.0
        else:
            gammas[i] = gamma
    return _focal_with(logits, labels, gammas)


@checks("dual_focal", *({"gamma": gamma} for gamma in (0.0, 0.5, 5.0)))
def dual_focal(logits: npt.ArrayLike, labels: npt.ArrayLike, *, gamma: float = 5.0) -> Terms:
    """[Tao2023] Eq. 4: -(1 - p_y + p_j)^gamma log p_y, p_j the largest of the p_k < p_y, 0 if there is none."""
    p, y = softmax(logits), _as_labels(labels)
    ce, log_rest = cross_entropy(logits, labels)["fidelity"], log_one_minus_p(logits, labels)
    fidelity = np.empty(len(y))
    for i in range(len(y)):
        competitor = max((float(v) for v in p[i] if v < p[i, y[i]]), default=0.0)
        fidelity[i] = (math.exp(log_rest[i]) + competitor) ** gamma * ce[i]
    return _terms(fidelity)


#: Four bins of AdaFocal: edges in the middle of where labels' probabilities lie, and gammas of either sign.
BINS = {"edges": [0.01, 0.2, 0.55, 0.9, 1.0], "gammas": [1.7, -0.6, 3.0, -2.0]}


@checks("adafocal", *({"bins": 4, "variant": variant} for variant in VARIANTS), state=BINS)
@checks("adafocal", {"gamma": 2.0, "variant": "released"}, {"gamma": -0.5, "variant": "released"})
def adafocal(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    gamma: float = 1.0,
    bins: int = 15,
    variant: str = "released",
    edges: npt.ArrayLike | None = None,
    gammas: npt.ArrayLike | None = None,
) -> Terms:
    """[Ghosh2022]: -(1 - p_y)^gamma log p_y; -(1 + p_y)^|gamma| log p_y if gamma < 0; gamma of the bin of p_y."""
    _one_of("variant", variant, "paper", "released")
    p, y = softmax(logits), _as_labels(labels)
    ce, log_rest = cross_entropy(logits, labels)["fidelity"], log_one_minus_p(logits, labels)
    limits = [b / bins for b in range(bins + 1)] if edges is None else [float(v) for v in np.asarray(edges)]
    exponents = [gamma] * bins if gammas is None else [float(v) for v in np.asarray(gammas)]
    fidelity = np.empty(len(y))
    for i in range(len(y)):
        g = exponents[bin_of(float(p[i, y[i]]), limits)]
        fidelity[i] = ce[i] * (math.exp(g * log_rest[i]) if g >= 0 else (1 + p[i, y[i]]) ** -g)
    return _terms(fidelity)


def bin_of(p: float, edges: list[float]) -> int:
    """The bin of a probability, looked up one by one: the first and the last bin have no end of their own."""
    last = len(edges) - 2
    for b in range(last + 1):
        if (b == 0 and p < edges[1]) or (b == last and p >= edges[b]) or edges[b] <= p < edges[b + 1]:
            return b
    raise ValueError(f"{p} is in no bin of {edges}")


def equal_counts(confidence: npt.ArrayLike, correct: npt.ArrayLike, bins: int, variant: str) -> tuple[Array, Array]:
    """[Ghosh2022]: edges of bins with equal counts, and mean confidence minus accuracy of each, 0 if it is empty.

    The edges interpolate the sorted confidences, at the positions 0, N/bins, ..., N. A bin is (lo, hi]; "paper" puts
    the smallest confidence into the first, "released" into none.
    """
    r, c = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    edges = np.interp(np.linspace(0, len(r), bins + 1), np.arange(len(r)), np.sort(r))
    gaps = np.zeros(bins)
    for b in range(bins):
        inside = (r > edges[b]) & (r <= edges[b + 1])
        if b == 0 and variant == "paper":
            inside |= r == edges[0]
        if inside.any():
            gaps[b] = r[inside].mean() - c[inside].mean()
    return edges, gaps


# ---- entropy and batch calibration -----------------------------------------------------------------------------------


@checks("ecp", *({"strength": 0.3, "variant": variant} for variant in (*VARIANTS, "lr")))
def confidence_penalty(
    logits: npt.ArrayLike, labels: npt.ArrayLike, *, strength: float = 0.1, variant: str = "paper"
) -> Terms:
    """ACLS ref. [29]: CE - strength H(p); released: CE - strength H(p)/K; LR Eq. 2: CE + strength H(p)."""
    _one_of("variant", variant, "paper", "released", "lr")
    n_classes = _as_logits(logits).shape[1]
    divisor = {"paper": 1, "released": n_classes, "lr": -1}[variant]
    return _terms(cross_entropy(logits, labels)["fidelity"], -strength * entropy(logits) / divisor)


@checks("mmce", *({"strength": 0.8, "weighted": w, "variant": v} for v in VARIANTS for w in (True, False)))
def mmce(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    strength: float = 1.0,
    kernel_width: float = 0.4,
    weighted: bool = True,
    variant: str = "released",
) -> Terms:
    """ACLS ref. [16]: kernel calibration error with k = exp(-|r_i - r_j| / kernel_width), r = max p.

    The sums run over all ordered pairs, i = j included; m correct and n wrong samples. In exact arithmetic every
    squared value but the released weighted one is >= 0; there the 1e-5 can push it below -1e-10, where the formula
    has no value and 0 is returned.
    """
    _one_of("variant", variant, "paper", "released")
    z, p, y = _as_logits(logits), softmax(logits), _as_labels(labels)
    n_samples = len(y)
    r = [float(p[i].max()) for i in range(n_samples)]
    c = [1.0 if first_argmax(z[i]) == y[i] else 0.0 for i in range(n_samples)]

    def kernel(i: int, j: int) -> float:
        return math.exp(-abs(r[i] - r[j]) / kernel_width)

    if not weighted:
        total = 0.0
        for i in range(n_samples):
            for j in range(n_samples):
                total += (c[i] - r[i]) * (c[j] - r[j]) * kernel(i, j)
        squared = total / n_samples**2
        value = squared if variant == "released" else math.sqrt(_relu(squared))
    else:
        correct = [i for i in range(n_samples) if c[i] == 1.0]
        wrong = [i for i in range(n_samples) if c[i] == 0.0]
        m, n = len(correct), len(wrong)
        sum_cc = sum_ii = sum_ci = 0.0
        for i in correct:
            for j in correct:
                sum_cc += (1.0 - r[i]) * (1.0 - r[j]) * kernel(i, j)
        for i in wrong:
            for j in wrong:
                sum_ii += r[i] * r[j] * kernel(i, j)
        for i in correct:
            for j in wrong:
                sum_ci += (1.0 - r[i]) * r[j] * kernel(i, j)
        mean_cc = sum_cc / m**2 if m else 0.0
        mean_ii = sum_ii / n**2 if n else 0.0
        mean_ci = sum_ci / (m * n) if m and n else 0.0
        if variant == "paper":
            value = math.sqrt(_relu(mean_cc + mean_ii - 2.0 * mean_ci))
        elif m == 0 or n == 0:
            value = 0.0
        else:
            squared = mean_cc / (m**2 + 1e-5) + mean_ii / (n**2 + 1e-5) - 2.0 * mean_ci / (m * n + 1e-5)
            value = math.sqrt(_relu(squared + 1e-10))
    return _terms(cross_entropy(logits, labels)["fidelity"], np.full(n_samples, strength * value))


@checks("mdca", *({"strength": 0.8, "base": b, "variant": v} for v in VARIANTS for b in ("ce", "focal", "ls")))
def mdca(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    strength: float = 1.0,
    base: str = "ce",
    gamma: float = 3.0,
    alpha: float = 0.05,
    variant: str = "released",
) -> Terms:
    """ACLS S Eq. 9: strength sum_k |mean_n p_nk - mean_n q_nk|, q one-hot for every base; released: mean over k.

    base "ce", "focal" (gamma) or "ls" (alpha, spread "all") is the fidelity, in full.
    """
    _one_of("variant", variant, "paper", "released")
    _one_of("base", base, "ce", "focal", "ls")
    p, y = softmax(logits), _as_labels(labels)
    n_samples, n_classes = p.shape
    total = 0.0
    for k in range(n_classes):
        mean_p = mean_q = 0.0
        for i in range(n_samples):
            mean_p += p[i, k] / n_samples
            mean_q += (1.0 if y[i] == k else 0.0) / n_samples
        total += abs(mean_p - mean_q)
    value = total if variant == "paper" else total / n_classes
    if base == "ce":
        terms = cross_entropy(logits, labels)
    elif base == "focal":
        terms = focal(logits, labels, gamma=gamma)
    else:
        terms = label_smoothing(logits, labels, alpha=alpha)
    return _terms(terms["fidelity"] + terms["regulariser"], np.full(n_samples, strength * value))


@checks("soft_ece", *({"strength": 0.8, "bins": 6, "reading": r} for r in ("binned", "labels", "esd")))
@checks("soft_ece", {"temperature": 0.2, "reading": "binned"}, {"temperature": 0.2, "reading": "esd"})
def soft_ece(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    strength: float = 1.0,
    bins: int = 15,
    temperature: float = 0.01,
    reading: str = "binned",
) -> Terms:
    """[Karandikar2021] Eq. 11 ("binned"), its released Eq. 12 ("labels"), and SB-ECE as in the code of [Yoon2023]."""
    _one_of("reading", reading, "binned", "labels", "esd")
    z, p, y = _as_logits(logits), softmax(logits), _as_labels(labels)
    n_samples, n_classes = z.shape
    r = [float(p[i].max()) for i in range(n_samples)]
    c = [1.0 if first_argmax(z[i]) == y[i] else 0.0 for i in range(n_samples)]
    low = 1.0 / n_classes if reading == "labels" else 0.0
    edges = np.linspace(low, 1.0, bins + 1)
    centres = [0.5 * (edges[b] + edges[b + 1]) for b in range(bins)]
    g = np.empty((n_samples, bins))
    for i in range(n_samples):
        weights = [-((r[i] - centre) ** 2) / temperature for centre in centres]
        for b in range(bins):
            g[i, b] = math.exp(weights[b] - logsumexp(weights))
            if reading == "labels":
                g[i, b] = (1 - 1e-5) * g[i, b] + 1e-5 / bins
    total = 0.0
    for b in range(bins):
        mass = math.fsum(g[:, b])
        if reading == "binned":
            confidence = math.fsum(g[i, b] * r[i] for i in range(n_samples)) / max(mass, 1e-5)
            accuracy = math.fsum(g[i, b] * c[i] for i in range(n_samples)) / max(mass, 1e-5)
            total += mass / n_samples * (confidence - accuracy) ** 2
        elif mass > 0:
            accuracy = math.fsum(g[i, b] * c[i] for i in range(n_samples)) / mass
            total += math.fsum(g[i, b] * (accuracy - r[i]) ** 2 for i in range(n_samples)) / n_samples
    value = total if reading == "labels" else math.sqrt(total)
    return _terms(cross_entropy(logits, labels)["fidelity"], np.full(n_samples, strength * value))


@checks("esd", {"strength": 5.0})
def esd(logits: npt.ArrayLike, labels: npt.ArrayLike, *, strength: float = 1.0) -> Terms:
    """[Yoon2023]: mean over i of gbar_i^2 - S_i^2/(N-1), over j != i of g_ij = (c_j - r_j) 1[r_j <= r_i]; N >= 3."""
    z, p, y = _as_logits(logits), softmax(logits), _as_labels(labels)
    n_samples = len(y)
    r = [float(p[i].max()) for i in range(n_samples)]
    c = [1.0 if first_argmax(z[i]) == y[i] else 0.0 for i in range(n_samples)]
    total = 0.0
    for i in range(n_samples):
        g = [c[j] - r[j] if r[j] <= r[i] else 0.0 for j in range(n_samples) if j != i]
        mean = math.fsum(g) / len(g)
        variance = math.fsum((value - mean) ** 2 for value in g) / (len(g) - 1)
        total += mean**2 - variance / len(g)
    return _terms(cross_entropy(logits, labels)["fidelity"], np.full(n_samples, strength * total / n_samples))


# ---- pairs of classes ------------------------------------------------------------------------------------------------


@checks("cpc", *({"lambda1": 0.2, "lambda2": 0.7, "variant": variant} for variant in VARIANTS))
def cpc(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    lambda1: float = 0.1,
    lambda2: float = 1.0,
    variant: str = "released",
) -> Terms:
    """ACLS S Eq. 2-4: CE + lambda1 L_1v1 + lambda2 L_BE, with log(p_a / (p_a + p_b)) = log sigmoid(z_a - z_b).

    released: L_1v1 / (K-1); L_BE = half the sum over all ordered (k, l), k = l too, over (K-1)(K-2); 0 when K = 2.
    """
    _one_of("variant", variant, "paper", "released")
    z, y = _as_logits(logits), _as_labels(labels)
    n_samples, n_classes = z.shape
    regulariser = np.zeros(n_samples)
    for i in range(n_samples):
        others = [k for k in range(n_classes) if k != y[i]]
        one_v_one = exclusion = 0.0
        for k in others:
            one_v_one += _minus_log_sigmoid(z[i, y[i]] - z[i, k])
        if variant == "paper":
            for k in others:
                for m in others:
                    if k < m:
                        exclusion += _minus_log_sigmoid(z[i, k] - z[i, m]) + _minus_log_sigmoid(z[i, m] - z[i, k])
        else:
            one_v_one /= n_classes - 1
            if n_classes > 2:
                for k in others:
                    for m in others:
                        exclusion += 0.5 * _minus_log_sigmoid(z[i, k] - z[i, m])
                exclusion /= (n_classes - 1) * (n_classes - 2)
        regulariser[i] = lambda1 * one_v_one + lambda2 * exclusion
    return _terms(cross_entropy(logits, labels)["fidelity"], regulariser)


# ---- logit margins ---------------------------------------------------------------------------------------------------


@checks("mbls", {"margin": 4.0, "strength": 0.3, "variant": "released"})
@checks("mbls", {"margin": 4.0, "strength": 0.3, "variant": "paper"}, frozen=True)
def mbls(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    margin: float = 10.0,
    strength: float = 0.1,
    variant: str = "released",
    frozen: npt.ArrayLike | None = None,
) -> Terms:
    """ACLS S Eq. 14: strength sum_k relu(z_yhat - z_k - M); released: mean over k.

    frozen: logits that give z_yhat for k != yhat, as ACLS S Eq. 15 does for "paper" (no gradient at yhat).
    """
    _one_of("variant", variant, "paper", "released")
    z = _as_logits(logits)
    constants = z if frozen is None else _as_logits(frozen)
    n_samples, n_classes = z.shape
    regulariser = np.zeros(n_samples)
    for i in range(n_samples):
        yhat = first_argmax(z[i])
        for k in range(n_classes):
            distance = 0.0 if k == yhat else float(constants[i].max() - z[i, k])
            regulariser[i] += _relu(distance - margin)
        regulariser[i] *= strength if variant == "paper" else strength / n_classes
    return _terms(cross_entropy(logits, labels)["fidelity"], regulariser)


#: What a loss of five classes has learned: one class in order, one far beyond its margin, the others between.
LEARNED = {"multipliers": [1e-6, 0.4, 2.5, 1.1, 0.05], "penalties": [1.0, 1.2, 1.44, 1.0, 1.2]}


@checks("calsalm", *({"margin": 4.0, "variant": variant} for variant in VARIANTS), state=LEARNED)
@checks("calsalm", {"margin": 4.0, "lambda_min": 0.3, "rho": 2.0, "variant": "released"})
def cals(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    margin: float = 10.0,
    lambda_min: float = 1e-6,
    rho: float = 1.0,
    variant: str = "released",
    multipliers: npt.ArrayLike | None = None,
    penalties: npt.ArrayLike | None = None,
) -> Terms:
    """[Liu2023]: CE + sum_k P(h_k, rho_k, lambda_k), h_k = (z_yhat - z_k)/m - 1; released: mean over k."""
    _one_of("variant", variant, "paper", "released")
    z = _as_logits(logits)
    n_samples, n_classes = z.shape
    lambdas = [lambda_min] * n_classes if multipliers is None else [float(v) for v in np.asarray(multipliers)]
    rhos = [rho] * n_classes if penalties is None else [float(v) for v in np.asarray(penalties)]
    regulariser = np.zeros(n_samples)
    for i in range(n_samples):
        for k in range(n_classes):
            h = (float(z[i].max()) - float(z[i, k])) / margin - 1.0
            regulariser[i] += augmented(h, rhos[k], lambdas[k])[0]
        regulariser[i] /= 1 if variant == "paper" else n_classes
    return _terms(cross_entropy(logits, labels)["fidelity"], regulariser)


def augmented(h: float, rho: float, multiplier: float) -> tuple[float, float]:
    """The penalty of [Liu2023] (Powell, Hestenes, Rockafellar) and its derivative by h, case by case."""
    if multiplier + rho * h >= 0:
        return multiplier * h + rho * h * h / 2, multiplier + rho * h
    return -(multiplier**2) / (2 * rho), 0.0


def _acls(variant: str) -> list[dict[str, Any]]:
    """ACLS and its ablations."""
    return [
        {"margin": 4.0, "variant": variant, "smoothing": smoothing, "indicator": indicator}
        for smoothing in ("adaptive", "constant")
        for indicator in ("margin", "none")
    ]


@checks("acls", *_acls("released"), frozen=True, shift_invariant=False)
@checks("acls", *_acls("paper"))
@checks("acls", {"margin": 4.0, "variant": "paper", "gradient": "eq12"}, frozen=True, halved=True)
def acls(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    margin: float = 10.0,
    lambda1: float = 0.1,
    lambda2: float = 0.01,
    variant: str = "released",
    smoothing: str = "adaptive",
    indicator: str = "margin",
    gradient: str = "eq13",
    frozen: npt.ArrayLike | None = None,
) -> Terms:
    """ACLS Eq. 13 summed over j; released code: (no min, every tied maximum counts as it, mean over K-1 others).

    Ablations (ACLS Table 5): each penalty of x is relu(x)^2; smoothing="constant" takes relu(x), the integral of a
    constant f; indicator="none" takes x in place of relu(x). The value is the same for either gradient.
    frozen: logits that give the constants. released: the maximum in the terms of the others. paper: that maximum and
    min_k, as in Eq. 12; the adaptive gradient of the regulariser is then twice Eq. 12.
    """
    _one_of("variant", variant, "paper", "released")
    _one_of("smoothing", smoothing, "adaptive", "constant")
    _one_of("indicator", indicator, "margin", "none")

    def penalty(x: float) -> float:
        x = _relu(x) if indicator == "margin" else x
        return x * x if smoothing == "adaptive" else x

    z = _as_logits(logits)
    constants = z if frozen is None else _as_logits(frozen)
    n_samples, n_classes = z.shape
    regulariser = np.zeros(n_samples)
    for i in range(n_samples):
        top, constant_top, constant_min = float(z[i].max()), float(constants[i].max()), float(constants[i].min())
        yhat = first_argmax(z[i])
        for j in range(n_classes):
            if variant == "paper":
                if j == yhat:
                    regulariser[i] += lambda1 * penalty(z[i, j] - constant_min - margin)
                else:
                    regulariser[i] += lambda2 * penalty(constant_top - z[i, j] - margin)
            elif z[i, j] == top:
                regulariser[i] += lambda1 * penalty(top - margin)
            else:
                regulariser[i] += lambda2 / (n_classes - 1) * penalty(constant_top - z[i, j] - margin)
    return _terms(cross_entropy(logits, labels)["fidelity"], regulariser)


# ---- ranking ---------------------------------------------------------------------------------------------------------


@checks("crl", *({"score": s, "variant": v} for v in VARIANTS for s in ("msp", "entropy", "margin")), ranks=True)
def crl(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    correctness: npt.ArrayLike,
    strength: float = 1.0,
    score: str = "msp",
    variant: str = "released",
) -> Terms:
    """ACLS S Eq. 18: strength sum_m max(0, -sgn(c_n - c_m)(kappa_n - kappa_m)); released: next neighbour, with margin.

    correctness c [N], already normalised to [0, 1]. kappa: "msp" max p; "entropy" -H(p)/log K; "margin" p_1st - p_2nd.
    released: pairs (i, i+1 mod N), relu(-s (kappa_i - kappa_j) + |c_i - c_j|), 0 where s = 0.
    """
    _one_of("variant", variant, "paper", "released")
    _one_of("score", score, "msp", "entropy", "margin")
    p, c = softmax(logits), np.asarray(correctness, dtype=np.float64)
    n_samples, n_classes = p.shape
    if c.shape != (n_samples,):
        raise ValueError(f"correctness must have shape [{n_samples}], got {list(c.shape)}")
    h = entropy(logits)
    kappa = np.empty(n_samples)
    for i in range(n_samples):
        descending = sorted((float(v) for v in p[i]), reverse=True)
        if score == "msp":
            kappa[i] = descending[0]
        elif score == "entropy":
            kappa[i] = -h[i] / math.log(n_classes)
        else:
            kappa[i] = descending[0] - descending[1]
    regulariser = np.zeros(n_samples)
    for i in range(n_samples):
        for j in range(n_samples) if variant == "paper" else [(i + 1) % n_samples]:
            s = float(np.sign(c[i] - c[j]))
            if s != 0.0:
                wanted = 0.0 if variant == "paper" else abs(float(c[i] - c[j]))
                regulariser[i] += strength * _relu(-s * float(kappa[i] - kappa[j]) + wanted)
    return _terms(cross_entropy(logits, labels)["fidelity"], regulariser)


# ---- empirical probabilities -----------------------------------------------------------------------------------------


def empirical_probability(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    form: str = "bin",
    bins: int = 15,
    bandwidth: float = 0.1,
    window: int = 500,
) -> Array:
    """How often samples of similar confidence were right, for each sample [N].

    bin: sorted by confidence, sample number floor(b N / bins) up to the next such number form bin b. kernel: Gaussian
    weights over the ``window`` samples before and after it in that order, and itself.
    """
    _one_of("form", form, "bin", "kernel")
    r, c = [float(v) for v in np.asarray(confidence)], [float(v) for v in np.asarray(correct)]
    order = sorted(range(len(r)), key=lambda n: (r[n], n))
    out = np.empty(len(r))
    if form == "bin":
        for b in range(bins):
            members = order[b * len(r) // bins : (b + 1) * len(r) // bins]
            for n in members:
                out[n] = math.fsum(c[m] for m in members) / len(members)
        return out
    for place, n in enumerate(order):
        near = order[max(0, place - window) : place + window + 1]
        weights = [math.exp(-((r[n] - r[m]) ** 2) / (2 * bandwidth**2)) for m in near]
        out[n] = math.fsum(w * c[m] for w, m in zip(weights, near, strict=True)) / math.fsum(weights)
    return out


@checks("cape", {"bins": 3}, {"bins": 20}, {"strength": 0.6, "bins": 2}, calibrates=True)
@checks("cape", {"form": "kernel", "bandwidth": 0.2}, calibrates=True)
@checks("cape", {"form": "kernel", "window": 2, "strength": 0.3}, calibrates=True)
def cape(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    strength: float = 1.0,
    **estimate: Any,
) -> Terms:
    """Liu2022, an epoch that calibrates: (1 - s) CE + s [-t log r - (1 - t) log(1 - r)], r the largest probability.

    t is the empirical probability of sample n from the ``confidence`` [N] and ``correct`` [N] of earlier predictions.
    """
    z, t = _as_logits(logits), empirical_probability(confidence, correct, **estimate)
    predicted = np.array([first_argmax(row) for row in z])
    log_p, log_rest = log_softmax(z), log_one_minus_p(z, predicted)
    regulariser = np.empty(len(z))
    for n in range(len(z)):
        regulariser[n] = -strength * (t[n] * log_p[n, predicted[n]] + (1 - t[n]) * log_rest[n])
    return _terms((1 - strength) * cross_entropy(logits, labels)["fidelity"], regulariser)


# ---- credal targets --------------------------------------------------------------------------------------------------


@checks("lr", {"alpha": 0.1}, {"alpha": 0.4}, {"alpha": 0.0})
def label_relaxation(logits: npt.ArrayLike, labels: npt.ArrayLike, *, alpha: float = 0.1) -> Terms:
    """LR Eq. 3, 5, 6: 0 if sum_{k != y} p_k <= alpha, else KL(projected || p), class by class; all in fidelity.

    projected: 1 - alpha on y, alpha p_k / (1 - p_y) on k != y; 0 log 0 = 0, so alpha = 0 is exactly cross-entropy.
    """
    logp, y = log_softmax(logits), _as_labels(labels)
    log_rest = log_one_minus_p(logits, labels)
    n_samples, n_classes = logp.shape
    fidelity = np.zeros(n_samples)
    for i in range(n_samples):
        if alpha > 0.0 and log_rest[i] <= math.log(alpha):
            continue
        for k in range(n_classes):
            if k == y[i] and alpha < 1.0:
                log_projected = math.log1p(-alpha)
            elif k != y[i] and alpha > 0.0:
                log_projected = math.log(alpha) + logp[i, k] - log_rest[i]
            else:
                continue
            fidelity[i] += math.exp(log_projected) * (log_projected - logp[i, k])
    return _terms(fidelity)


# ---- abstaining ------------------------------------------------------------------------------------------------------


@checks("deep_gamblers", *({"payoff": 2.5, "variant": variant} for variant in VARIANTS))
@checks("deep_gamblers", {"pretraining": 1, "variant": "released"})
def deep_gamblers(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    payoff: float = 2.2,
    pretraining: int = 0,
    variant: str = "released",
) -> Terms:
    """[Ziyin2019], K + 1 logits: -log(p_y + p_last / o); "paper": -log(o p_y + p_last); in the first epoch of these.

    With pretraining: cross-entropy of the first K logits.
    """
    _one_of("variant", variant, "paper", "released")
    z, y = _as_logits(logits), _as_labels(labels)
    if pretraining:
        return cross_entropy(z[:, :-1], labels)
    logp, fidelity = log_softmax(z), np.empty(len(y))
    for i in range(len(y)):
        bet, reserved = float(logp[i, y[i]]), float(logp[i, -1])
        if variant == "paper":
            fidelity[i] = -logsumexp([bet + math.log(payoff), reserved])
        else:
            fidelity[i] = -logsumexp([bet, reserved - math.log(payoff)])
    return _terms(fidelity)


#: Running targets of seven samples over five classes, exact in single precision; a negative one was never recorded.
RUNNING = [
    [0.75, 0.0625, 0.0625, 0.0625, 0.0625],
    [0.125, 0.5, 0.125, 0.125, 0.125],
    [-1.0, -1.0, -1.0, -1.0, -1.0],
    [0.0, 0.25, 0.25, 0.0, 0.5],
    [0.25, 0.0, 0.125, 0.125, 0.5],
    [0.0625, 0.0625, 0.0625, 0.75, 0.0625],
    [0.5, 0.0, 0.5, 0.0, 0.0],
]


@checks("sat", {"start": 0}, {"start": 0, "momentum": 0.25}, {"start": 0, "selective": True}, adapts=True, frozen=True)
@checks("sat", {"start": 1}, {"start": 1, "selective": True})
def self_adaptive(
    logits: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    running: npt.ArrayLike | None = None,
    momentum: float = 0.9,
    start: int = 60,
    selective: bool = False,
    frozen: npt.ArrayLike | None = None,
) -> Terms:
    """[Huang2020] Algorithm 1: t <- m t + (1 - m) p, then CE to t with weights max_k t_k; selective: over K + 1 logits.

    running [N, >= K] is t before, which begins as the one-hot label; the targets' p are of the ``frozen`` logits.
    """
    z, y = _as_logits(logits), _as_labels(labels)
    n_classes = z.shape[1] - int(selective)
    if start > 0:
        return cross_entropy(z[:, :n_classes], labels)
    p = softmax((z if frozen is None else _as_logits(frozen))[:, :n_classes])
    logp, before = log_softmax(z), np.asarray(running)
    targets = np.empty((len(y), n_classes))
    for i in range(len(y)):
        known = before[i, 0] >= 0
        for k in range(n_classes):
            old = before[i, k] if known else (1.0 if k == y[i] else 0.0)
            targets[i, k] = momentum * old + (1 - momentum) * p[i, k]
    weights = [float(row.max()) for row in targets]
    fidelity = np.empty(len(y))
    for i in range(len(y)):
        if selective:
            fidelity[i] = -targets[i, y[i]] * logp[i, y[i]] - (1 - targets[i, y[i]]) * logp[i, -1]
        else:
            weight = weights[i] * len(y) / math.fsum(weights)
            fidelity[i] = -weight * math.fsum(targets[i, k] * logp[i, k] for k in range(n_classes))
    return _terms(fidelity)


# ---- gradients -------------------------------------------------------------------------------------------------------


def gradient(
    fn: Callable[..., Terms], logits: npt.ArrayLike, labels: npt.ArrayLike, h: float = 1e-6, **hyper: Any
) -> Array:
    """Central differences of sum(fidelity + regulariser) = N times the mean loss, by logit [N, K]; not for kinks."""
    z = _as_logits(logits)
    grad = np.empty_like(z)
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            above, below = z.copy(), z.copy()
            above[i, j] += h
            below[i, j] -= h
            up, down = fn(above, labels, **hyper), fn(below, labels, **hyper)
            # Differences first: samples that do not move cancel exactly and leave no rounding behind.
            changes = [up[name] - down[name] for name in ("fidelity", "regulariser")]
            grad[i, j] = math.fsum(np.concatenate(changes)) / (above[i, j] - below[i, j])
    return grad
