"""The parts of ./dev bench evidence about whole files: a published number, and fourteen networks on ImageNet.

Every network saw the same 50,000 images, so that a bootstrap replicate draws images, and all networks are judged on the
same ones: a difference of two networks is that of their replicates, and what makes an image hard for both cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from benchmarks._evidence_files import NETWORKS, Network, TopLabels, read_logits, read_top_labels
from calibrant.base.arrays import Doubles
from calibrant.metrics import (
    Interval,
    Judged,
    accuracy,
    aurc,
    coverage_at_risk,
    e_aurc,
    ece,
    nll,
    paired_differences,
    risk_coverage_curve,
    top_label,
)

#: markus93/NN_calibration prints these for DenseNet-40 on the test set of CIFAR-10. Its ECE has 15 bins; its NLL is
#: scikit-learn's log_loss of that time, which raised probabilities to at least 1e-15.
PUBLISHED = {"ece": 0.055002704373, "nll_raised": 0.42820705658}
AGREEMENT = {"ece": 1e-8, "nll_raised": 1e-7}
LEAST_PROBABILITY = 1e-15
MEASURES: dict[str, Callable[[TopLabels], float]] = {
    "accuracy": lambda top: accuracy(top.correct),
    "ece": lambda top: ece(top.confidence, top.correct),
    "aurc": lambda top: aurc(top.confidence, top.correct),
    "e_aurc": lambda top: e_aurc(top.confidence, top.correct),
    "coverage_5": lambda top: coverage_at_risk(top.confidence, top.correct, 0.05),
    "coverage_1": lambda top: coverage_at_risk(top.confidence, top.correct, 0.01),
}
PAIRED = ("accuracy", "aurc", "e_aurc", "coverage_5", "coverage_1")
EQUAL_ACCURACY = 0.01  # difference up to which two networks count as equally accurate
REPLICATES = 1000
POINTS = 120  # of a curve that is drawn


def measure_published(data: Path) -> dict[str, Any]:
    """DenseNet-40's numbers as computed here, beside the published ones; the NLL also without raised probabilities."""
    logits, labels = read_logits(data, "densenet40_c10/test")
    confidence, _, correct = top_label(logits, labels)
    raised = np.log(np.maximum(softmax(logits.astype(np.float64), axis=1), LEAST_PROBABILITY))
    values = {"ece": ece(confidence, correct), "nll_raised": nll(raised, labels)}
    rows = {name: {"published": PUBLISHED[name], "value": value} for name, value in values.items()}
    return {"rows": rows, "nll": nll(logits, labels)}


def measure_networks(data: Path, replicates: int, seed: int) -> dict[str, Any]:
    """Every network's numbers with intervals, its curve, and the pairs of about equal accuracy."""
    tops = {network.file: read_top_labels(data, network) for network in NETWORKS}
    values = {file: {name: measure(top) for name, measure in MEASURES.items()} for file, top in tops.items()}
    draws = _replicates(tops, replicates, seed)
    rows = {}
    for network in NETWORKS:
        own = values[network.file]
        limits = {name: asdict(_interval(own[name], draws[network.file][name])) for name in PAIRED}
        rows[network.file] = {"values": own, "intervals": limits, "curve": _thin_curve(tops[network.file])}
    pairs = []
    for first, second in comparable(values):
        a, b = draws[first.file], draws[second.file]
        change = {
            name: asdict(_interval(values[second.file][name] - values[first.file][name], b[name] - a[name]))
            for name in PAIRED
        }
        judged = [Judged(*tops[network.file]) for network in (first, second)]
        change["ece"] = asdict(paired_differences(*judged, seed=seed, ranked=False)["ece"])
        pairs.append({"without": first.file, "smoothed": second.file, "change": change})
    return {"replicates": replicates, "seed": seed, "images": len(tops[NETWORKS[0].file].correct)} | {
        "rows": rows,
        "pairs": pairs,
    }


def comparable(values: Mapping[str, Mapping[str, float]]) -> list[tuple[Network, Network]]:
    """Networks without smoothing, each beside those with or likely with it whose accuracy is about the same."""
    return [
        (first, second)
        for second in NETWORKS
        for first in NETWORKS
        if first.smoothing == "without"
        and second.smoothing in ("with", "likely")
        and abs(values[first.file]["accuracy"] - values[second.file]["accuracy"]) <= EQUAL_ACCURACY
    ]


def _interval(value: float, changes: Doubles, level: float = 0.95) -> Interval:
    """Percentiles of the replicates, whose first is of the images as they are, about the exact value."""
    low, high = np.quantile(value + changes[1:] - changes[0], [0.5 - level / 2, 0.5 + level / 2])
    return Interval(value, float(low), float(high))


def _replicates(tops: Mapping[str, TopLabels], replicates: int, seed: int) -> dict[str, dict[str, Doubles]]:
    """The paired metrics of every network on each draw of images, the first being all images once."""
    rng = np.random.default_rng(seed)
    orders = {file: np.argsort(-top.confidence, kind="stable") for file, top in tops.items()}
    wrong = {file: (~top.correct)[orders[file]] for file, top in tops.items()}
    images = len(next(iter(wrong.values())))
    parts: dict[str, list[dict[str, float]]] = {file: [] for file in tops}
    for number in range(replicates + 1):
        weight = np.bincount(rng.integers(0, images, images), minlength=images) if number else np.ones(images, int)
        for file, order in orders.items():
            parts[file].append(_drawn_metrics(weight[order], wrong[file]))
    return {file: {name: np.array([row[name] for row in rows]) for name in PAIRED} for file, rows in parts.items()}


def _drawn_metrics(weight: np.ndarray[Any, Any], wrong: np.ndarray[Any, Any]) -> dict[str, float]:
    """The metrics of a draw: ``weight`` counts how often each image, the surest first, was drawn."""
    accepted = np.cumsum(weight)
    errors = np.cumsum(weight * wrong)
    risk = errors / np.maximum(accepted, 1)
    total = int(accepted[-1])
    rate, area = float(risk[-1]), float(weight @ risk) / total
    best = rate + (1 - rate) * float(np.log1p(-rate))
    reached = {f"coverage_{percent}": _last(risk <= percent / 100, accepted) / total for percent in (1, 5)}
    return {"accuracy": 1 - rate, "aurc": area, "e_aurc": area - best, **reached}


def _last(fits: np.ndarray[Any, Any], accepted: np.ndarray[Any, Any]) -> float:
    last = len(fits) - 1 - int(fits[::-1].argmax())
    return float(accepted[last]) if fits[last] else 0.0


def _thin_curve(top: TopLabels) -> dict[str, list[float]]:
    """Some points of the risk-coverage curve, enough to draw it."""
    curve = risk_coverage_curve(top.confidence, top.correct)
    at = np.unique(np.searchsorted(curve.coverage, np.linspace(0.002, 1, POINTS)).clip(max=len(curve.coverage) - 1))
    return {"coverage": np.round(curve.coverage[at], 5).tolist(), "risk": np.round(curve.risk[at], 5).tolist()}


def group_means(rows: Mapping[str, Any], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """The mean of metrics over the networks of which the same is known."""
    groups: dict[str, list[str]] = {}
    for network in NETWORKS:
        groups.setdefault(network.smoothing, []).append(network.file)
    return {
        group: {name: float(np.mean([rows[file]["values"][name] for file in files])) for name in names}
        for group, files in groups.items()
    }
