"""The audit of one set of predictions as a plain document: numbers, tables, curves and findings, ready to be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.auditing.collect import Collected, WorstError
from calibrant.auditing.diagnosis import Evidence, diagnose, verdict
from calibrant.auditing.fixes import FEWEST, Fix, fixes, logits_of
from calibrant.auditing.tables import Row
from calibrant.metrics import (
    COVERAGES,
    RISKS,
    Approximate,
    Interval,
    RiskCoverage,
    Summary,
    bootstrap_interval,
    ece_by_chance,
    intervals,
    normal_interval,
    risk_coverage_curve,
    wilson,
    z_value,
)
from calibrant.metrics import describe as describe_metric
from calibrant.posthoc import LogitNorm

POINTS = 1000  # of a curve
SHOWN = 1500  # points of the scatter of logits
WINDOWS = 20

#: What an audit shows, in this order.
SHOWN_METRICS = (
    "accuracy", "nll", "brier", "ece_15", "ece_10", "ece_100", "aece", "mce", "classwise_ece", "smooth_ece",
    "mean_confidence", "overconfidence", "underconfidence", "aurc", "e_aurc", "augrc",
    *(f"coverage_at_risk_{risk:g}" for risk in RISKS), *(f"risk_at_coverage_{coverage:g}" for coverage in COVERAGES),
)  # fmt: skip

CONVENTIONS = [
    ["Intervals", "Wilson's for accuracy and risk at a coverage, and by its limits for coverage at risk; NLL and Brier "
     "score by their standard error; the others by bootstrap over the cells of the sketch. For calibration errors, "
     "which noise inflates, wide enough to take that bias off, and down to 0 where a perfectly calibrated model would "
     "show as much by chance. Images are drawn where samples are pixels."],
    ["ECE", "Equal-width bins (lo, hi]; gap of mean confidence and accuracy, weighted by the bin's share."],
    ["AECE", "Bins of equal counts, every sample used; tied confidences share their correctness."],
    ["MCE", "Largest gap over non-empty bins of equal width, however few samples they hold: its interval tells its "
     "spread, hardly its truth."],
    ["Class-wise ECE", "For each class the ECE of its probability over all samples; mean over classes."],
    ["Smooth ECE", "Gaussian kernel reflected at 0 and 1, as wide as the result (Blasiok and Nakkiran)."],
    ["Over-/underconfidence", "Mean confidence of wrong predictions; mean of 1 - confidence of right ones."],
    ["AURC", "Mean over i of the error rate of the i surest predictions; ties in expected order. E-AURC: minus that of "
     "the best order. AUGRC: with the share of all samples that are accepted and wrong."],
    ["Coverage at risk", "Largest coverage whose error rate is at most the target, 0 if none; ties are not split."],
    ["By class", "Among predictions of that class, because a calibrated model is right as often as it claims whatever "
     "it predicts; not among samples of that class, where it need not be."],
]  # fmt: skip


@dataclass(frozen=True)
class Described:
    """The document of one model, and its numbers with intervals by name."""

    document: dict[str, Any]
    numbers: dict[str, Interval]


def describe(
    name: str, found: Collected, val: Collected | None, *, level: float, replicates: int, seed: int
) -> Described:
    """Everything about one model."""
    summary = found.summary()
    independent = found.kind == "classification"
    values, numbers, classwise = _numbers(found, summary, level, replicates, seed)
    names = [str(found.class_name(k)) for k in range(found.num_classes or 0)]
    by_class = [] if found.by_class is None else found.by_class.rows(names, level=level, compare=independent)
    by_group = {
        column: part.rows(levels.names(), level=level, compare=independent)
        for column, (levels, part) in found.groups.items()
    }
    plain = {key: float(value) for key, value in values.items()}
    gained = fixes(found, val, plain, level=level, replicates=replicates, seed=seed)
    logits, logit_gap = _logits(found, level)
    whole, bins = found.whole.rows(["all"])[0], summary.reliability(15)
    evidence = Evidence(
        found=found,
        numbers=numbers,
        reliability=bins,
        gap=normal_interval(whole.gap, whole.error, level, -1.0, 1.0),
        chance=float(ece_by_chance(bins, seed=seed).mean()),
        by_class=by_class,
        by_group=by_group,
        fixes=gained,
        logit_gap=logit_gap,
        confidence_level=level,
    )
    document = {
        "name": name,
        "samples": found.samples,
        "unit": "samples" if independent else "pixels",
        "classes": found.num_classes,
        "holds": found.holds,
        "kind": found.kind,
        "verdict": dict(zip(("level", "headline", "text"), verdict(evidence), strict=True)),
        "notes": _notes(found, gained),
        "metrics": [_metric(key, values[key], numbers[key], found) for key in SHOWN_METRICS if key in values],
        "findings": [asdict(finding) for finding in diagnose(evidence)],
        "reliability": reliability_series(summary, level),
        "histogram": _histogram(summary),
        "curves": [_curve_of_sketch(summary, level), *_other_curves(found, val, level)],
        "logits": logits,
        "classes_table": _rows(by_class, level, dict(zip(names, classwise, strict=True)) if len(classwise) else {}),
        "groups": [{"column": column, "rows": _rows(rows, level, {})} for column, rows in by_group.items()],
        "errors": [_error(error, found) for error in found.worst],
        "fixes": [_fix(fix) for fix in gained],
    }
    return Described(document, numbers)


def _numbers(
    found: Collected, summary: Summary, level: float, replicates: int, seed: int
) -> tuple[dict[str, Approximate], dict[str, Interval], npt.NDArray[np.float64]]:
    """Values and intervals of every metric, and class-wise ECE by class."""
    values = dict(summary.metrics())
    if found.clusters is None:
        numbers = intervals(summary, level=level, replicates=replicates, seed=seed)
    else:
        numbers = found.clusters.intervals(summary, level=level, replicates=replicates, seed=seed)
    if found.classwise is None:
        return values, numbers, np.empty(0)
    classwise = found.classwise.by_class()
    mean = float(classwise.mean())
    values["classwise_ece"] = Approximate(mean)
    numbers["classwise_ece"] = Interval(mean, math.nan, math.nan)
    if found.clusters is None and math.isfinite(numbers["ece"].low):
        drawn, null = found.classwise.replicates(np.random.default_rng(seed), min(200, replicates))
        numbers["classwise_ece"] = bootstrap_interval("classwise_ece", mean, drawn, level, null=null)
    return values, numbers, classwise


def _error(error: WorstError, found: Collected) -> dict[str, Any]:
    row = {
        "id": error.id,
        "label": found.class_name(error.label),
        "predicted": found.class_name(error.predicted),
        "confidence": error.confidence,
    }
    return row if error.place is None else row | {"place": f"row {error.place[0]}, column {error.place[1]}"}


def compare(
    first: str,
    second: str,
    change: Mapping[str, Interval],
    numbers: tuple[Mapping[str, Interval], Mapping[str, Interval]],
) -> dict[str, Any]:
    """Paired differences between two models as a document, beside each model's own numbers."""
    rows = []
    for key, label in (("accuracy", "accuracy"), ("nll", "nll"), ("brier", "brier"), ("ece", "ece_15"),
                       ("mean_confidence", "mean_confidence"), ("aurc", "aurc"), ("augrc", "augrc")):  # fmt: skip
        if key in change:
            one, metric = change[key], describe_metric(label)
            rows.append(
                {
                    "name": label,
                    "label": metric.label,
                    "unit": metric.unit,
                    "better": metric.better,
                    "first": numbers[0][key].value,
                    "second": numbers[1][key].value,
                    "difference": one.value,
                    "low": one.low,
                    "high": one.high,
                }
            )
    return {"first": first, "second": second, "rows": rows}


def _metric(name: str, value: Approximate, limits: Interval, found: Collected) -> dict[str, Any]:
    metric = describe_metric(name)
    note = None
    if name == "nll" and found.impossible:
        note = f"infinite: {found.impossible:,} samples give their label probability 0 (saved with too few digits?)"
    return {
        "name": name,
        "label": metric.label,
        "unit": metric.unit,
        "better": metric.better,
        "value": float(value),
        "low": limits.low,
        "high": limits.high,
        "bound": value.bound,
        "note": note,
        "group": metric.family,
        "help": metric.description,
    }


def _fix(fix: Fix) -> dict[str, Any]:
    metric = describe_metric(fix.metric)
    return {
        "repair": fix.name,
        "name": fix.metric,
        "fitted": fix.fitted,
        "metric": metric.label,
        "unit": metric.unit,
        "better": metric.better,
        "before": fix.before,
        "after": fix.before + fix.change.value,
        "difference": fix.change.value,
        "low": fix.change.low,
        "high": fix.change.high,
    }


def _rows(rows: Sequence[Row], level: float, classwise: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {
            "name": row.name,
            "count": row.count,
            "accuracy": row.accuracy,
            "confidence": row.confidence,
            "gap": row.gap,
            "gap_low": max(-1.0, row.gap - z_value(level) * row.error),
            "gap_high": min(1.0, row.gap + z_value(level) * row.error),
            "ece": row.ece,
            "classwise_ece": classwise.get(row.name),
            "flag": row.flag,
        }
        for row in rows
    ]


def _notes(found: Collected, gained: Sequence[Fix]) -> list[str]:
    notes = list(found.remarks)
    if found.kind == "segmentation":
        notes.append(
            f"{found.rows:,} images, {found.samples:,} pixels that count, pooled over all images. Pixels of an image "
            "are alike, so intervals draw images; where that is not done, none is given."
        )
    elif found.samples < found.rows:
        notes.append(f"{found.rows - found.samples:,} of {found.rows:,} samples are ignored.")
    if gained and found.samples > found.logits.size:
        notes.append(
            f"Changes by repairs, and curves of other scores, are measured on {found.logits.size:,} "
            f"{_unit_word(found)} drawn at random."
        )
    if found.holds == "confidence":
        notes.append("Only confidences are known: no NLL, Brier score, classes or repairs.")
    elif not gained:
        why = f"fewer than {FEWEST} samples" if found.samples < FEWEST else "all or none of the predictions are right"
        notes.append(f"No repair was tried: {why}.")
    return notes


def _unit_word(found: Collected) -> str:
    return "samples" if found.kind == "classification" else "pixels"


def reliability_series(summary: Summary, level: float) -> dict[str, Any]:
    """Fifteen bins of a reliability diagram, with Wilson's intervals of their accuracies."""
    bins = summary.reliability(15)
    right = np.rint(np.nan_to_num(bins.accuracy) * bins.count)
    low, high = wilson(right, bins.count, level)
    return {
        "low": bins.low, "high": bins.high, "count": bins.count, "confidence": bins.confidence,
        "accuracy": bins.accuracy, "accuracy_low": low, "accuracy_high": high,
    }  # fmt: skip


def _histogram(summary: Summary, bins: int = 50) -> dict[str, Any]:
    counts = summary.base_counts.reshape(bins, -1, 2).sum(1)
    return {"edges": np.arange(bins + 1) / bins, "right": counts[:, 0], "wrong": counts[:, 1]}


def _curve_of_sketch(summary: Summary, level: float) -> dict[str, Any]:
    return _curve("msp", "confidence (MSP)", summary.risk_coverage_curve(), summary.samples, level)


def _other_curves(found: Collected, val: Collected | None, level: float) -> list[dict[str, Any]]:
    """Curves of other scores of the kept logits; logit normalisation on rows that its p was not chosen on."""
    if found.holds == "confidence" or found.samples < FEWEST:
        return []
    z, y = logits_of(found)
    correct = z.argmax(1) == y
    curves = []
    if found.holds == "logits":
        curve = risk_coverage_curve(z.max(1), correct)
        curves.append(_curve("max_logit", "max logit", curve, len(y), level))
    if val is None:
        norm = LogitNorm().fit(z[::2], y[::2])
        z, correct, where = z[1::2], correct[1::2], "p chosen on one half of the kept samples, drawn on the other"
    else:
        norm, where = LogitNorm().fit(*logits_of(val)), "p chosen on the validation data"
    if norm.p_ is not None:
        curve = risk_coverage_curve(norm.score(z), correct)
        title = f"normalised max logit (p = {norm.p_}; {where})"
        curves.append(_curve("logit_norm", title, curve, len(correct), level))
    return curves


def _curve(name: str, title: str, curve: RiskCoverage, samples: int, level: float) -> dict[str, Any]:
    """A curve thinned to points evenly spread over the coverage, those of the risks and coverages of the table kept."""
    coverage, risk = curve.coverage, curve.risk
    wanted = np.searchsorted(coverage, np.concatenate([np.linspace(0, 1, POINTS), np.array(COVERAGES) - 1e-12]))
    fitting = [np.flatnonzero(risk <= target)[-1:] for target in RISKS]
    at = np.unique(np.minimum(np.concatenate([wanted, *fitting]), len(coverage) - 1))
    accepted = np.rint(coverage[at] * samples)
    errors = np.rint(risk[at] * accepted)
    low, high = wilson(errors, accepted, level)
    return {
        "score": name, "label": title, "points_all": len(at) == len(coverage), "coverage": coverage[at],
        "risk": risk[at], "risk_low": low, "risk_high": high, "threshold": curve.threshold[at],
        "accepted": accepted.astype(np.int64), "errors": errors.astype(np.int64),
    }  # fmt: skip


def _logits(found: Collected, level: float) -> tuple[dict[str, Any] | None, Interval | None]:
    """Max logit against confidence for right and wrong predictions, and how far they differ at equal confidence."""
    if found.holds != "logits" or found.samples < FEWEST:
        return None, None
    confidence, correct, _, _, top = found.judged.columns()
    top = top.astype(np.float64)
    if not np.isfinite(top.std()) or top.std() == 0:
        return None, None
    edges = np.unique(np.quantile(confidence, np.linspace(0, 1, WINDOWS + 1)))
    window = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, max(0, len(edges) - 2))
    size = max(1, len(edges) - 1)
    table: dict[str, Any] = {
        "msp": np.bincount(window, confidence, size) / np.maximum(np.bincount(window, None, size), 1)
    }
    for side, which in (("right", correct), ("wrong", ~correct)):
        n = np.bincount(window[which], minlength=size)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(window[which], top[which], size) / n
            spread = np.sqrt(np.bincount(window[which], (top[which] - mean[window[which]]) ** 2, size) / n)
        table |= {f"{side}_mean": mean, f"{side}_spread": spread, f"{side}_count": n}
    shown = np.unique(np.linspace(0, len(confidence) - 1, SHOWN).astype(np.int64))
    table["points"] = {"msp": confidence[shown], "max_logit": top[shown], "right": correct[shown]}
    return table, _gap_at_equal_confidence(confidence, correct, top, window, size, level)


def _gap_at_equal_confidence(
    confidence: npt.NDArray[np.float64],
    correct: npt.NDArray[np.bool_],
    top: npt.NDArray[np.float64],
    window: npt.NDArray[np.int64],
    size: int,
    level: float,
) -> Interval:
    """Mean difference of the max logit, wrong minus right, over windows with enough of both, in standard deviations.

    Inside a window right predictions are still a little surer than wrong ones, and surer ones have larger logits; so
    what a straight line on the log-odds explains is taken off first.
    """
    sure = np.clip(confidence, 1e-12, 1 - 1e-12)
    odds = np.log(sure) - np.log1p(-sure)
    number = np.maximum(np.bincount(window, minlength=size), 1)
    x, rest = (v - (np.bincount(window, v, size) / number)[window] for v in (odds, top))
    slope = np.bincount(window, x * rest, size) / np.maximum(np.bincount(window, x * x, size), 1e-30)
    rest = rest - slope[window] * x
    right, wrong = (np.bincount(window[side], minlength=size) for side in (correct, ~correct))
    enough = (right >= 10) & (wrong >= 10)
    if not enough.any():
        return Interval(math.nan, math.nan, math.nan)
    of_wrong = np.bincount(window[~correct], rest[~correct], size)[enough] / wrong[enough]
    of_right = np.bincount(window[correct], rest[correct], size)[enough] / right[enough]
    spread = np.sqrt(np.maximum(np.bincount(window, rest**2, size) / number, 1e-30))[enough]
    variance = 1 / right[enough] + 1 / wrong[enough]
    weight = (1 / variance) / (1 / variance).sum()
    error = float(np.sqrt((weight**2 * variance).sum()))
    return normal_interval(float((weight * (of_wrong - of_right) / spread).sum()), error, level, -math.inf, math.inf)
