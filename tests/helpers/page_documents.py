"""Documents of every kind of page but the audit's, written by hand, and names of any kind in all of their texts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from calibrant.metrics import reliability, risk_coverage_curve
from calibrant.report import Cell, ContactSheet, PrintedNumber, render_comparison_table
from tests.helpers.audit_document import HOSTILE

Document = dict[str, Any]
METHODS = ["ce", "ls", "focal", "flsd", "ecp", "mmce", "mdca", "cpc", "mbls", "crl", "acls", "lr", "als", "mixup"]


# ---------------------------------------------------------------------- comparisons


def bins_of(confidence: Any, correct: Any) -> Document:
    """The series of a reliability diagram."""
    table = reliability(confidence, correct)
    shares = [[None if n == 0 else float(v) for n, v in zip(table.count, column, strict=True)]
              for column in (table.confidence, table.accuracy)]  # fmt: skip
    low, high = ([None if v is None else min(max(v + d, 0.0), 1.0) for v in shares[1]] for d in (-0.05, 0.05))
    return {"low": table.low.tolist(), "high": table.high.tolist(), "count": table.count.tolist(),
            "confidence": shares[0], "accuracy": shares[1], "accuracy_low": low, "accuracy_high": high}  # fmt: skip


def comparison(methods: list[str] = METHODS, seeds: int = 5) -> Document:
    """A comparison whose numbers hang together about as those of a real one do."""
    rng = np.random.default_rng(7)
    made: Document = {
        "format": "calibrant.comparison", "version": 1, "title": "Fourteen losses on scenes",
        "lead": ["Smoothing the labels makes the model less sure of itself.", "Five seeds, tuned for ECE."],
        "facts": [["Data", "scenes"], ["Model", "small CNN"], ["Runs", 70]],
        "tables": [{"title": "Test set", "note": "Mean over 5 seeds.", "html": results_table(methods)}],
        "effects": [
            {"claim": "LS has a lower ECE than CE", "values": [-0.021, -0.034, -0.027], "mean": -0.0273, "low": -0.043,
             "high": -0.0112, "verdict": "holds", "unit": "share"},
            {"claim": "Focal has a lower NLL than CE", "values": [0.2, 0.31, 0.27], "mean": 0.26, "low": 0.12,
             "high": 0.4, "verdict": "does not hold"},
            {"claim": "MbLS is more accurate than LS", "values": [0.004, -0.006, 0.003], "mean": 0.0003, "low": -0.013,
             "high": 0.0136, "verdict": "within noise", "unit": "share"},
        ],
        "reliability": [], "curves": [], "scatter": [], "ablation": [], "training": [],
        "failures": [{"run": "0123456789abcdef", "name": "crl", "seed": 3, "error": "the loss is not a number"}],
        "files": [["All numbers", "results.csv"], ["Runs", "runs/a b#1.html"]],
        "commands": ["calibrant compare recipe.toml --seeds 5 -o results/scenes", "calibrant compare --help"],
    }  # fmt: skip
    for k, method in enumerate(methods):
        sure = rng.beta(4, 1.2, 400 + k)
        right = rng.random(400 + k) < sure ** (1 + 0.15 * k)
        accuracy, confidence = float(right.mean()), float(sure.mean())
        made["reliability"].append({"name": method, "accuracy": accuracy, "confidence": confidence,
                                    "ece": abs(accuracy - confidence), "bins": bins_of(sure, right)})  # fmt: skip
        risk = risk_coverage_curve(sure, right)
        made["curves"].append({"name": method, "coverage": risk.coverage.tolist(), "risk": risk.risk.tolist()})
        points = [[accuracy + x / 150, abs(accuracy - confidence) + y / 300] for x, y in rng.random((seeds, 2))]
        made["scatter"].append({"name": method, "points": points})
        epochs = list(range(1, 21))
        for metric, top in (("val_accuracy", accuracy), ("val_nll", 1.9)):
            mean = [top * (1 - 0.6 * math.exp(-e / (4 + k / 3))) for e in epochs]
            made["training"].append({"name": method, "metric": metric, "epochs": epochs, "mean": mean,
                                     "low": [m - 0.02 for m in mean], "high": [m + 0.03 for m in mean]})  # fmt: skip
    margins = [[m, 0.03 + 0.002 * (m - 6) ** 2 / 10, 0.004, 5] for m in (0, 2, 4, 6, 8, 10)]
    alphas = [[a, 0.9 + a / 20, 0.002, 3] for a in (0.001, 0.01, 0.05, 0.1, 0.4)]
    made["ablation"] = [
        {"name": methods[-1], "parameter": "margin", "metric": "ece", "points": margins},
        {"name": methods[1], "parameter": "alpha", "metric": "accuracy", "points": alphas},
        {"name": methods[0], "parameter": "kind", "metric": "nll", "points": [["a", 0.31, None, 1], ["b", 0.3, 0, 1]]},
    ]
    return made


def results_table(methods: list[str]) -> str:
    """A fragment as `calibrant.experiments.tables.html` makes them: in a box that scrolls, without a caption."""
    heads = ("Accuracy ↑", "ECE ↓", "NLL ↓", "AURC ↓")
    rows = [
        [
            m, "ece", PrintedNumber(f"93.{k:02} ± 0.12", is_best=True),
            PrintedNumber(f"3.{k:02} ± 0.20", "(3 runs)", is_second=True), PrintedNumber(f"0.2{k:03}"),
            PrintedNumber(""),
        ]
        for k, m in enumerate(methods)
    ]  # fmt: skip
    columns = [("Method", False), ("Tuned for", False), *((head, True) for head in heads)]
    return render_comparison_table("Test set", columns, rows)


def hostile_comparison() -> Document:
    made = comparison(HOSTILE)
    words = HOSTILE[0]
    made |= {"title": words, "lead": HOSTILE, "facts": [[w, w] for w in HOSTILE], "commands": [words]}
    made["tables"] = [{"title": words, "note": words, "html": "<table><caption>x</caption></table>"}]
    for part in made["effects"]:
        part |= {"claim": words, "verdict": words}
    for part in made["ablation"]:
        part |= {"parameter": words, "metric": words}
    for part in made["training"]:
        part["metric"] = words + part["metric"]
    made["failures"] = [{"run": w, "name": w, "seed": w, "error": w} for w in HOSTILE]
    made["files"] = [[w, w] for w in [*HOSTILE, "https://x.test/", "//x.test/a", "/etc/hosts", "\\\\x\\y"]]
    return made


def minimal_comparison() -> Document:
    return {"format": "calibrant.comparison", "version": 1, "title": "Nothing yet"}


# ---------------------------------------------------------------------- the demonstration

RELIABILITY = {
    "low": [0.0, 0.5], "high": [0.5, 1.0], "count": [0, 10], "confidence": [None, 0.9], "accuracy": [None, 0.7],
    "accuracy_low": [None, 0.4], "accuracy_high": [None, 0.9],
}  # fmt: skip
DOT = "iVBORw0KGgo="


def card(name):
    words = {"value": f"{name} value", "aside": f"{name} aside", "text": f"{name} text", "caption": f"{name} caption"}
    return words | {"reliability": RELIABILITY}


def _shown(**changes):
    return {"png": DOT, "label": "cat", "truth": "<dog>", "right": False, "confidence": 0.876} | changes


def demonstration():
    return {name: card(name) for name in ("before", "repaired", "deployed")} | {
        "title": "One network", "created": "2026-01-01", "level": "good", "outcome": "The policy keeps its promise",
        "headline": "It claims 90% & is right 70%.", "lead": "Promised.",
        "commands": ("calibrant fit a", "calibrant apply b"),
        "answered": [_shown(label="tree", truth="tree", right=True)], "declined": [_shown()],
        "facts": [("Seed", 3)], "files": [("The audit", "audit.html")], "reproduce": "calibrant demo --seed 3",
    }  # fmt: skip


# ---------------------------------------------------------------------- data sets


def issue(what, times, *where):
    return {"what": what, "times": times, "where": list(where)}


def _split_facts(counts, **changes):
    boxes = {
        "number": 5, "crowds": 1, "without_area": 0, "images_by_number": {"0": 1, "2": 2, "14": 1},
        "images_with_several": 2, "images_with_several_classes": 1, "by_class": dict.fromkeys(counts, 2),
        "edges": [0.0, 0.5, 1.0], "area_histogram": [4, 1], "objectness_histogram": [3, 1], "mean_objectness": 0.25,
    }  # fmt: skip
    sizes = {"width_min": 40, "height_min": 30, "width_max": 400, "height_max": 300}
    made = {"samples": sum(counts.values()), "class_counts": counts, "boxes": boxes, "pixels": {}, "sizes": sizes}
    return made | {"skipped": [], "odd": []} | changes


def data_set(name="cup", **changes):
    odd = issue("grayscale image", 12, *(f"{name}{k}" for k in range(12)))
    splits = {
        "train": _split_facts({name: 7, "spoon": 3}, odd=[odd], skipped=[issue("inverted box", 1, "a.jpg")]),
        "val": _split_facts({name: 2, "spoon": 0}, odd=[odd]),
    }
    return {
        "level": "fair", "headline": "12 samples", "text": "Few.", "layout": "voc", "root": f"/{name}", "name": name,
        "samples": 12, "splits": splits, "across_splits": [issue("identical samples", 1, "a = b")],
        "calibrant": "0.1.0", "created": "2026-01-01", "reproduce": f"calibrant data inspect {name}",
    } | changes  # fmt: skip


def sheet(name="cup"):
    small, large = np.zeros((4, 6, 3), np.uint8), np.zeros((90, 120, 3), np.uint8)
    boxes = np.array([[1.0, 1.0, 3.0, 3.0]])
    cells = [Cell(small, f"{name}\nobjectness 0.5", boxes, [name], (0.0, 0.0, 4.0, 4.0)), Cell(large, "spoon")]
    return ContactSheet(cells, "2 samples.", {name: (1.0, 0.0, 0.5)})


# ---------------------------------------------------------------------- activation maps

NETWORKS = ("hard", "with label smoothing")


def _said(name, right, inside):
    classes = [("cat", 0.7), ("dog", 0.2), ("owl", 0.1)]
    top = [{"class": k, "confidence": p, "right": right and k == "cat"} for k, p in classes]
    return {"name": name, "top": top, "inside": inside}


def activations(**changes):
    interval = {"value": 0.4213, "low": 0.391, "high": 0.452}
    rows = [
        {"id": "images/0001.jpg", "label": "cat", "context": context,
         "methods": [_said(name, not context, float("nan") if context else 0.5) for name in NETWORKS]}
        for context in (False, True)
    ]  # fmt: skip
    return {
        "format": "calibrant.cam", "version": 1, "set": "test", "explained": "predicted", "level": 0.95,
        "has_boxes": True, "measured": 500, "area": 0.3, "rows": rows,
        "methods": [
            {"name": name, "model": "resnet50", "layer": "layer4", "images": 499, "inside": interval}
            for name in NETWORKS
        ],
        "differences": [
            {"first": NETWORKS[0], "second": NETWORKS[1], "images": 498, "value": 0.0158, "low": 0.0086, "high": 0.0224}
        ],
        "created": "2026-01-01", "calibrant": "0.1.0", "reproduce": "calibrant cam runs/hard runs/ls -o cam.html",
    } | changes  # fmt: skip


def pictures():
    pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    return [[Cell(pixels, "", np.array([[2.0, 3.0, 12.0, 20.0]])) for _ in range(3)] for _ in range(2)]


# ---------------------------------------------------------------------- watches


def arrival(batch, errors, answers, low, high):
    return {"batch": batch, "errors": errors, "answers": answers, "value": errors / answers, "low": low, "high": high}


def watch_test(name, evidence, since=None, group=""):
    return {
        "name": name, "group": group, "alpha": 0.025, "log10_limit": 1.6, "log10_evidence": evidence,
        "batches": [f"week{k}.parquet" for k in range(1, len(evidence) + 1)], "alarm_since": since,
    }  # fmt: skip


def batch_row(name, risk=0.05, **changes):
    return {
        "name": name, "added": "2026-01-01", "samples": 1200, "accepted": 700, "coverage": 0.58, "implied_risk": 0.041,
        "answers_labelled": 300, "errors": 15, "risk": risk, "labels_only": False,
    } | changes  # fmt: skip


def watch():
    promise = watch_test("promise", [-0.4, 0.3, 14.5], "week3.parquet")
    risk = {
        "group": "", "answers": 900, "errors": 63, "value": 0.07, "low": 0.05, "high": 0.095, "test": promise,
        "arrivals": [arrival("week1.parquet", 15, 300, 0.02, 0.1), arrival("week2.parquet", 30, 600, 0.03, 0.08),
                     arrival("<week3>", 63, 900, 0.05, 0.095)],
    }  # fmt: skip
    north = risk | {"group": "north & <east>", "test": watch_test("promise", [0.1], "week1.parquet", "north & <east>")}
    changes = [watch_test(name, [-0.1, -0.3, 0.9]) for name in ("coverage", "score", "confidence", "predicted")]
    interval = {"value": 0.04, "low": 0.01, "high": 0.06}
    return {
        "created": "2026-01-01", "calibrant": "0.1.0", "policy": "Answers 58.00% of samples.", "status": "alarm",
        "headline": "The promise is broken", "promised_risk": 0.05, "alpha": 0.05, "by_group": "site",
        "alarms": [{"name": "promise", "group": "", "since": "week3.parquet", "text": "More than 5% are wrong."}],
        "sentences": ["3 batches, 3,600 samples; at most 5% of such watches ever raise a false alarm."],
        "risk": risk, "groups": [north, north | {"group": "south", "test": None}], "tests": [promise, *changes],
        "coverage": {"value": 0.58, "low": 0.56, "high": 0.6},
        "reference_coverage": {"value": 0.6, "low": 0.57, "high": 0.63}, "implied_risk": 0.041,
        "reference_implied_risk": 0.039,
        "total_variation": dict.fromkeys(("score", "confidence", "predicted"), interval),
        "label_shift": {
            "batch": "week3.parquet", "samples": 1200, "gain": 0.0312, "p_value": 0.001, "total_variation": 0.1,
            "nll_before": 0.61, "nll_after": 0.58, "offered": True, "text": "The shares seem to have changed.",
            "classes": [{"name": "recreational vehicle", "before": 0.2, "after": 0.3}],
        },
        "batches": [batch_row("week1.parquet"), batch_row("week2.parquet"), batch_row("<week3>", None)],
        "untested": ["Nothing is untested."], "assumptions": ["Samples are independent."],
    }  # fmt: skip
