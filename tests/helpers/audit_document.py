"""Audit documents for the tests of the report: synthetic numbers that hang together as those of a real audit do."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

Document = dict[str, Any]

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "\"quoted\" 'and' & <b>bold</b>",
    "javascript:alert(4)",
    "]]><!-- -->",
    "emoji 🦜👩‍👩‍👧 ✓",
    "\u202ertl override\u202c שלום مرحبا",
    "x" * 500,
    "line\nbreak\tand tab",
    "{{template}} ${expression} %s",
    " ",
]


def typed(words: str) -> str:
    """The text with the signs of a keyboard: tests are read and searched more easily so."""
    return words.translate({0x2212: "-", 0x2013: "none", 0xD7: "x", 0xA0: " "})


def spread(value: float, count: float) -> tuple[float, float]:
    """A normal interval of a share, cut at 0 and 1."""
    half = float(1.96 * np.sqrt(max(value * (1 - value), 1e-4) / max(count, 1)))
    return max(0.0, value - half), min(1.0, value + half)


class Sample:
    """Confidences, largest logits and whether they were right, of a model that is too sure by ``heat``."""

    def __init__(self, seed: int, samples: int, classes: int, heat: float) -> None:
        rng = np.random.default_rng(seed)
        self.truth = rng.integers(0, classes, samples)
        skill = rng.gamma(3.0, 1.3, samples) + rng.normal(0, 0.4, classes)[self.truth]
        honest = 1 / (1 + (classes - 1) ** 0.5 * np.exp(-skill))
        self.right = rng.random(samples) < honest ** (1 + 0.35 * (heat - 1))
        odds = np.log(honest / (1 - honest)) * heat + rng.normal(0, 0.25, samples)
        odds += rng.normal(0, 0.6, classes)[self.truth]
        self.confidence = np.clip(1 / (1 + np.exp(-odds)), 1 / classes, 1 - 1e-9)
        self.max_logit = 6 + 2.2 * np.sqrt(np.maximum(odds, 0)) + rng.normal(0, 1.3, samples) + 1.6 * self.right
        self.entropy_score = self.confidence**1.1 - 0.02 * rng.random(samples)
        self.site = rng.integers(0, 3, samples)
        self.rng = rng

    def row(self, name: Any, mask: np.ndarray) -> Document:
        """Class and group rows."""
        count = int(mask.sum())
        accuracy, confidence = float(self.right[mask].mean()), float(self.confidence[mask].mean())
        low, high = spread(accuracy, count)
        gap = confidence - accuracy
        return {
            "name": name, "count": count, "accuracy": accuracy, "confidence": confidence, "gap": gap,
            "gap_low": confidence - high, "gap_high": confidence - low, "ece": abs(gap) + 0.01,
            "classwise_ece": abs(gap) / 7, "flag": bool(confidence - high > 0.06),
        }  # fmt: skip


def reliability(s: Sample, bins: int = 15) -> Document:
    edges = np.linspace(0, 1, bins + 1)
    part: Document = {key: [] for key in ("low", "high", "count", "confidence", "accuracy", "accuracy_low")}
    part["accuracy_high"] = []
    for low, high in pairwise(edges):
        inside = (s.confidence > low) & (s.confidence <= high)
        count = int(inside.sum())
        accuracy = float(s.right[inside].mean()) if count else None
        ends = spread(accuracy, count) if accuracy is not None else (None, None)
        values = (low, high, count, float(s.confidence[inside].mean()) if count else None, accuracy, *ends)
        for key, value in zip(
            ("low", "high", "count", "confidence", "accuracy", "accuracy_low", "accuracy_high"), values, strict=True
        ):
            part[key].append(float(value) if isinstance(value, np.floating) else value)
    return part


def histogram(s: Sample, bins: int = 40) -> Document:
    edges = np.linspace(0, 1, bins + 1)
    return {
        "edges": edges.tolist(),
        "right": np.histogram(s.confidence[s.right], edges)[0].tolist(),
        "wrong": np.histogram(s.confidence[~s.right], edges)[0].tolist(),
    }


def curve(s: Sample, name: str, label: str, score: np.ndarray, points: int = 600) -> Document:
    """A curve, thinned if the file is longer than ``points``, with the points of round coverages and risks."""
    order = np.argsort(-score, kind="stable")
    errors = np.cumsum(~s.right[order])
    ranks = np.arange(1, len(score) + 1)
    exact = [int(np.ceil(share * len(score))) for share in (0.8, 0.9, 0.95)]
    exact += [int(fits.max()) for r in (0.01, 0.02, 0.05, 0.1) if (fits := ranks[errors / ranks <= r]).size]
    at = np.unique(np.concatenate([np.linspace(1, len(score), min(points, len(score))).astype(int), exact]))
    risk = errors[at - 1] / at
    ends = [spread(r, n) for r, n in zip(risk, at, strict=True)]
    return {
        "score": name, "label": label, "coverage": (at / len(score)).tolist(), "risk": risk.tolist(),
        "risk_low": [e[0] for e in ends], "risk_high": [e[1] for e in ends],
        "threshold": score[order][at - 1].tolist(), "accepted": at.tolist(), "errors": errors[at - 1].tolist(),
        "points_all": len(at) == len(score),
    }  # fmt: skip


def logits(s: Sample, bins: int = 12) -> Document:
    edges = np.linspace(0, 1, bins + 1)
    part: Document = {"msp": ((edges[:-1] + edges[1:]) / 2).tolist()}
    for word, mask in (("right", s.right), ("wrong", ~s.right)):
        inside = [mask & (s.confidence > a) & (s.confidence <= b) for a, b in pairwise(edges)]
        part[f"{word}_count"] = [int(i.sum()) for i in inside]
        part[f"{word}_mean"] = [float(s.max_logit[i].mean()) if i.any() else None for i in inside]
        part[f"{word}_spread"] = [float(s.max_logit[i].std()) if i.any() else None for i in inside]
    chosen = s.rng.permutation(len(s.right))[:2000]
    part["points"] = {
        "msp": s.confidence[chosen].tolist(),
        "max_logit": s.max_logit[chosen].tolist(),
        "right": s.right[chosen].tolist(),
    }
    return part


#: name, label, unit, better, group, help, value as a share of (accuracy, gap, confidence), its relative half-width
METRICS = [
    ("accuracy", "Accuracy", "share", "high", "Accuracy", "Share of right predictions.", lambda a, g: a),
    ("top5", "Top-5 accuracy", "share", "high", "Accuracy", "The label is among the five likeliest classes.",
     lambda a, g: 1 - (1 - a) / 6),
    ("nll", "NLL", "number", "low", "Accuracy", "Mean negative log-likelihood, in nats.", lambda a, g: 2 * (1 - a) + g),
    ("brier", "Brier score", "number", "low", "Accuracy", "Squared error summed over the classes, 0 to 2.",
     lambda a, g: 1.4 * (1 - a)),
    ("mean_confidence", "Mean confidence", "share", "none", "Calibration", "What it claims on average.",
     lambda a, g: a + g),
    ("gap", "Confidence minus accuracy", "share", "none", "Calibration", "Above 0: overconfident.", lambda a, g: g),
    ("ece_15", "ECE (15 bins)", "share", "low", "Calibration", "Mean gap of confidence and accuracy, equal-width bins.",
     lambda a, g: abs(g) + 0.0012),
    ("aece_15", "AECE (15 bins)", "share", "low", "Calibration", "The same with bins of equal counts.",
     lambda a, g: abs(g) + 0.0009),
    ("smooth_ece", "Smooth ECE", "share", "low", "Calibration", "Without bins: a kernel whose width chooses itself.",
     lambda a, g: abs(g) * 0.98),
    ("mce_15", "MCE (15 bins)", "share", "low", "Calibration", "The largest gap over the bins.",
     lambda a, g: abs(g) * 3.1),
    ("overconfidence", "Confidence when wrong", "share", "low", "Calibration", "Mean confidence of wrong predictions.",
     lambda a, g: 0.6 + g),
    ("underconfidence", "Doubt when right", "share", "low", "Calibration", "Mean of 1 - confidence of right ones.",
     lambda a, g: 0.05 - g / 4),
    ("classwise_ece", "Class-wise ECE", "share", "low", "Calibration", "Every class's own ECE, averaged.",
     lambda a, g: abs(g) / 8),
    ("aurc", "AURC", "share", "low", "Selective", "Mean risk over all coverages.", lambda a, g: (1 - a) / 4),
    ("e_aurc", "Excess AURC", "share", "low", "Selective", "AURC above that of the best ordering.",
     lambda a, g: (1 - a) / 9),
    ("augrc", "AUGRC", "share", "low", "Selective", "The same with the generalised risk.", lambda a, g: (1 - a) / 6),
    ("coverage_at_risk_0.05", "Coverage at 5% risk", "share", "high", "Selective", "Largest share it may answer.",
     lambda a, g: 0.72),
    ("coverage_at_risk_0.01", "Coverage at 1% risk", "share", "high", "Selective", "Largest share it may answer.",
     lambda a, g: 0.31),
    ("risk_at_coverage_0.8", "Risk at 80% coverage", "share", "low", "Selective",
     "Error rate of the most confident 80%.", lambda a, g: (1 - a) / 2.4),
    ("risk_at_coverage_0.9", "Risk at 90% coverage", "share", "low", "Selective",
     "Error rate of the most confident 90%.", lambda a, g: (1 - a) / 1.7),
    ("risk_at_coverage_0.95", "Risk at 95% coverage", "share", "low", "Selective",
     "Error rate of the most confident 95%.", lambda a, g: (1 - a) / 1.3),
]  # fmt: skip


def model(name: str, *, seed: int = 0, samples: int = 10_000, classes: int = 10, heat: float = 2.0) -> Document:
    """One file of a document."""
    s = Sample(seed, samples, classes, heat)
    accuracy, confidence = float(s.right.mean()), float(s.confidence.mean())
    metrics = []
    for key, label, unit, better, group, words, formula in METRICS:
        value = float(formula(accuracy, confidence - accuracy))
        half = (1 - value if better == "high" else abs(value)) * 0.06 * (10_000 / samples) ** 0.5 + 1e-5
        high = min(value + half * 1.1, 1.0) if unit == "share" else value + half * 1.1
        metrics.append({
            "name": key, "label": label, "unit": unit, "better": better, "value": value, "low": value - half,
            "high": high, "bound": 1e-7 if group == "Selective" else 0.0, "group": group, "help": words,
        })  # fmt: skip
    names = ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "lorry"]
    names += [f"class {k:04d}" for k in range(len(names), classes)]
    wrong = np.flatnonzero(~s.right)
    worst = wrong[np.argsort(-s.confidence[wrong], kind="stable")][:50]
    ece = abs(confidence - accuracy) + 0.0012
    return {
        "name": name, "samples": samples, "classes": classes, "holds": "logits", "kind": "classification",
        "unit": "samples",
        "verdict": {"level": "poor" if confidence > accuracy else "fair", "text": "One more sentence.",
                    "headline": f"It claims {confidence:.1%} and is right {accuracy:.1%} of the time."},
        "notes": [f"{samples // 800} rows without a label were left out."],
        "metrics": metrics,
        "findings": [
            {"level": "poor", "title": "Overconfident above 0.8",
             "text": "Where it claims to be nearly sure it is wrong more often than it says; most samples lie there.",
             "evidence": f"mean confidence {confidence:.1%}, accuracy {accuracy:.1%}, {samples} samples"},
            {"level": "fair", "title": "Some classes are worse than the whole",
             "text": "Three classes are overconfident by more than five points even at the near end of their interval.",
             "evidence": "cat, dog, bird: see the table by class"},
            {"level": "good", "title": "Its order of confidence is useful",
             "text": "Leaving the least sure fifth to somebody else more than halves the errors.",
             "evidence": "risk at 80% coverage against risk at full coverage"},
            {"level": "info", "title": "Labels were taken as they are",
             "text": "Wrong labels count as errors.", "evidence": ""},
        ],
        "reliability": reliability(s),
        "histogram": histogram(s),
        "curves": [
            curve(s, "msp", "confidence (MSP)", s.confidence),
            curve(s, "max_logit", "largest logit", s.max_logit),
            curve(s, "entropy", "negative entropy", s.entropy_score),
        ],
        "logits": logits(s),
        "classes_table": [s.row(names[k], s.truth == k) for k in range(classes) if (s.truth == k).any()],
        "groups": [
            {"column": "site",
             "rows": [{**s.row(site, s.site == k), "classwise_ece": None}
                      for k, site in enumerate(("north", "south", "east"))]},
        ],
        "errors": [
            {"id": f"img_{i:05d}.png" if seed % 2 == 0 else int(i), "label": names[s.truth[i]],
             "predicted": names[(s.truth[i] + 1 + int(i) % 3) % len(names)], "confidence": float(s.confidence[i])}
            for i in worst
        ],
        "fixes": [
            {"repair": "Temperature scaling", "name": "ece_15", "fitted": "T = 1.52, 5-fold cross-validation",
             "metric": "ECE (15 bins)",
             "better": "low", "unit": "share", "before": ece, "after": 0.0119, "difference": 0.0119 - ece,
             "low": 0.008 - ece, "high": 0.016 - ece},
            {"repair": "Temperature scaling", "name": "nll", "fitted": "T = 1.52, 5-fold cross-validation",
             "metric": "NLL",
             "unit": "number", "better": "low", "before": 0.4581, "after": 0.3942, "difference": -0.0639,
             "low": -0.0702, "high": -0.0571},
            {"repair": "Histogram binning", "name": "ece_15", "fitted": "15 bins, 5-fold cross-validation",
             "metric": "ECE (15 bins)",
             "better": "low", "unit": "share", "before": ece, "after": 0.0142, "difference": 0.0142 - ece,
             "low": 0.009 - ece, "high": 0.019 - ece},
            {"repair": "Histogram binning", "name": "aurc", "fitted": "15 bins, 5-fold cross-validation",
             "metric": "AURC",
             "unit": "share", "better": "low", "before": 0.0391, "after": 0.0402, "difference": 0.0011,
             "low": -0.0004, "high": 0.0026},
        ],
    }  # fmt: skip


def document(*models: Document) -> Document:
    """A document of one file, or of the given ones."""
    models = models or (model("test.npz"),)
    values = {m["name"]: m["value"] for m in models[0]["metrics"]}
    headline = "Not enough is known."
    if values:
        claims, right = values["mean_confidence"], values["accuracy"]
        headline = f"Overconfident: it claims {claims:.1%} and is right {right:.1%} of the time."
    return {
        "format": "calibrant.audit", "version": 1, "calibrant": "0.1.0", "created": "2026-11-15",
        "title": "Can this model's confidence be trusted?",
        "level": 0.95, "replicates": 1000, "seed": 0,
        "reproduce": "calibrant audit test.npz --val val.npz -o report.html",
        "verdict": {
            "level": "poor", "headline": headline,
            "text": "Do not read its confidence as a probability as it stands. Temperature scaling mends most of it.",
        },
        "conventions": [
            ["ECE", "Equal-width bins (lo, hi], 15 of them; gap of mean confidence and accuracy, weighted by counts."],
            ["AECE", "Bins of equal counts; every sample is used; ties share their mean correctness."],
            ["AURC", "Mean over i of the error rate of the i most confident samples; ties take their expected order."],
            ["Class-wise ECE", "For each class the ECE of its probability; mean over classes."],
            ["By class", "Among the predictions of that class."],
            ["Intervals", "Percentile bootstrap over samples; paired where two files hold the same samples."],
        ],
        "models": list(models),
        "comparisons": [],
    }  # fmt: skip


def three_files() -> Document:
    """Three files and two comparisons."""
    made = document(
        model("resnet50-ce.npz", seed=1, heat=2.2),
        model("resnet50-acls.npz", seed=3, heat=1.05),
        model("vit-b16.npz", seed=5, samples=2_500, heat=0.7),
    )
    made["comparisons"] = [
        {"first": "resnet50-ce.npz", "second": other, "rows": [
            {"name": "ece_15", "label": "ECE (15 bins)", "unit": "share", "better": "low", "first": 0.0812,
             "second": 0.0503, "difference": -0.0309, "low": -0.035, "high": -0.025},
            {"name": "accuracy", "label": "Accuracy", "unit": "share", "better": "high", "first": 0.8501,
             "second": 0.8463, "difference": -0.0038, "low": -0.0091, "high": 0.0012},
            {"name": "nll", "label": "NLL", "unit": "number", "better": "low", "first": 0.4581, "second": 0.5012,
             "difference": 0.0431, "low": 0.0312, "high": 0.0549},
        ]} for other in ("resnet50-acls.npz", "vit-b16.npz")
    ]  # fmt: skip
    return made


def many_classes(classes: int = 1000) -> Document:
    """One file of a thousand classes."""
    return document(model("imagenet.npz", seed=2, samples=20_000, classes=classes, heat=1.2))


def two_files() -> Document:
    """Two files with long names and a comparison."""
    made = three_files()
    names = ["cifar100-resnet50-crossentropy-seed0.npz", "cifar100-resnet50-acls-seed0.npz"]
    made["models"] = made["models"][:2]
    made["comparisons"] = made["comparisons"][:1]
    for m, name in zip(made["models"], names, strict=True):
        m["name"] = name
    made["comparisons"][0].update(first=names[0], second=names[1])
    return made


def confidence_only() -> Document:
    """A short file of confidences: no classes and no labels, and every point of its curve."""
    one = model("conf.csv", seed=4, samples=400)
    one.update(classes=None, holds="confidence", logits=None, classes_table=[], fixes=[], curves=one["curves"][:1])
    gone = ("classwise_ece", "nll", "brier", "top5")
    one["metrics"] = [m for m in one["metrics"] if m["name"] not in gone]
    for row in one["errors"]:
        row["label"] = row["predicted"] = None
    return document(one)


def segmentation() -> Document:
    """Pixels with places, a metric without an interval that says why, long class names and no flags."""
    one = model("city.npz", seed=6, samples=4_000)
    one.update(kind="segmentation", unit="pixels")
    for k, row in enumerate(one["errors"]):
        row["place"] = f"row {k}, column {3 * k + 1}"
    for k, row in enumerate(one["classes_table"]):
        row["flag"] = False
        row["name"] = f"{row['name']} " + "a name that goes on and on, " * 12 if k % 3 == 0 else row["name"]
    nll = next(m for m in one["metrics"] if m["name"] == "nll")
    nll.update(value=None, low=None, high=None, note="infinite: 3 labels have probability 0")
    return document(one)


def hostile() -> Document:
    """Two files whose names, classes and ids are as bad as names can be, in every text of the document."""
    models = [model(HOSTILE[0], seed=7, samples=900), model(HOSTILE[8], seed=8, samples=700)]
    for m in models:
        for k, row in enumerate(m["classes_table"]):
            row["name"] = HOSTILE[k % len(HOSTILE)]
        for k, row in enumerate(m["errors"]):
            row["id"], row["label"] = HOSTILE[k % len(HOSTILE)], HOSTILE[(k + 1) % len(HOSTILE)]
            row["predicted"] = HOSTILE[(k + 2) % len(HOSTILE)]
        for k, row in enumerate(m["groups"][0]["rows"]):
            row["name"] = HOSTILE[k]
        m["groups"][0]["column"] = HOSTILE[2]
        m["notes"], m["holds"] = list(HOSTILE), HOSTILE[3]
        m["metrics"][0].update(label=HOSTILE[1], help=HOSTILE[2], group=HOSTILE[3])
        m["findings"][0].update(title=HOSTILE[1], text=HOSTILE[2], evidence=HOSTILE[3])
        m["fixes"][0].update(repair=HOSTILE[1], fitted=HOSTILE[2], metric=HOSTILE[3])
        for k, c in enumerate(m["curves"]):
            c["label"], c["score"] = HOSTILE[k + 1], HOSTILE[k + 2]
    made = document(*models)
    made["title"], made["reproduce"] = HOSTILE[1], "calibrant audit '" + HOSTILE[0] + "' -o " + HOSTILE[8]
    made["verdict"].update(headline=HOSTILE[0], text=" ".join(HOSTILE))
    made["conventions"] = [[text, text] for text in HOSTILE]
    made["comparisons"] = [
        {"first": models[0]["name"], "second": models[1]["name"], "rows": [
            {"label": HOSTILE[2], "unit": "share", "better": "low", "first": 0.1, "second": 0.2, "difference": 0.1,
             "low": 0.05, "high": 0.15}]}
    ]  # fmt: skip
    return made


def minimal() -> Document:
    """One file, one bin, one point, and nothing known."""
    made = document({
        "name": "tiny.csv", "samples": 1, "classes": None, "holds": "confidence", "kind": "classification",
        "notes": [], "findings": [], "logits": None, "classes_table": [], "groups": [], "errors": [], "fixes": [],
        "metrics": [
            {"name": "accuracy", "label": "Accuracy", "unit": "share", "better": "high", "value": 1.0, "low": None,
             "high": None, "bound": 0.0, "group": "Accuracy", "help": "Share of right predictions."},
            {"name": "mean_confidence", "label": "Mean confidence", "unit": "share", "better": "none",
             "value": float("nan"), "low": None, "high": None, "bound": 0.0, "group": "Calibration", "help": ""},
            {"name": "nll", "label": "NLL", "unit": "number", "better": "low", "value": None, "low": None,
             "high": None, "bound": None, "group": "Accuracy", "help": ""},
        ],
        "reliability": {"low": [0.0], "high": [1.0], "count": [0], "confidence": [None], "accuracy": [None],
                        "accuracy_low": [None], "accuracy_high": [None]},
        "histogram": {"edges": [0.0, 1.0], "right": [0], "wrong": [0]},
        "curves": [{"score": "msp", "label": "confidence (MSP)", "coverage": [1.0], "risk": [0.0], "risk_low": [None],
                    "risk_high": [None], "threshold": [0.75], "accepted": [1], "errors": [0]}],
    })  # fmt: skip
    made.update(conventions=[], reproduce=None, level=None, replicates=None, seed=None)
    made["verdict"] = {"level": "unknown", "headline": "One sample says nothing.", "text": ""}
    return made
