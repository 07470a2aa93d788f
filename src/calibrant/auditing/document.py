"""The audit of one set of predictions as plain values: numbers, tables, curves and findings, ready to be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.auditing.classes import check_classes, describe_classes
from calibrant.auditing.collect import Collected, WorstError
from calibrant.auditing.findings import Evidence, list_findings, verdict
from calibrant.auditing.repairs import (
    FEWEST_TO_FIT,
    Repair,
    ScoreCurve,
    choose_as_fit,
    curves_of_other_scores,
    judge_repairs,
    logit_windows,
)
from calibrant.base.checks import Ints
from calibrant.base.numbers import count
from calibrant.metrics import (
    COMPARED,
    COVERAGES,
    RISKS,
    SHOWN,
    Approximate,
    Doubles,
    Interval,
    RiskCoverage,
    Summary,
    bootstrap_interval,
    describe,
    ece_by_chance,
    intervals,
    wilson,
)
from calibrant.policy import Selection
from calibrant.predictions import UNITS

POINTS = 1000  # of a curve

CONVENTIONS = [
    ["Intervals", "Wilson's interval for accuracy and risk at a coverage, and from its limits that of coverage at "
     "risk; the standard error for NLL and Brier score; the bootstrap over the cells of the sketch for the others. "
     "Noise inflates calibration errors, so their intervals also cover that bias, and reach down to 0 where a "
     "perfectly calibrated model would show as much by chance. Whole images are resampled where samples are pixels, "
     "and whole sequences where they are tokens."],
    ["ECE", "Equal-width bins (lo, hi]; gap of mean confidence and accuracy, weighted by the bin's share."],
    ["AECE", "Bins of equal counts, every sample used; tied confidences share their correctness."],
    ["MCE", "Largest gap over non-empty bins of equal width, however few samples they hold: its interval shows how "
     "much it varies, and hardly how well the model is calibrated."],
    ["Class-wise ECE", "For each class the ECE of its probability over all samples; mean over classes."],
    ["Smooth ECE", "Gaussian kernel reflected at 0 and 1, as wide as the result (Blasiok and Nakkiran)."],
    ["Over-/underconfidence", "Mean confidence of wrong predictions; mean of 1 - confidence of right ones."],
    ["Objectness deviation", "Mean distance of the confidence from the share of the image that the object covers."],
    ["Mean IoU", "For each class, the pixels both labelled and predicted as that class, divided by those that are "
     "either, over all images; mean over the classes that occur. Accuracy is that of pixels."],
    ["AURC", "Mean over i of the error rate of the i most confident predictions; ties in expected order. "
     "E-AURC: minus that of the best order. AUGRC: with the share of all samples that are accepted and wrong."],
    ["Coverage at risk", "Largest coverage whose error rate is at most the target, 0 if none; ties are not split."],
    ["Misplaced probability", "A lower limit for the share of a class's probability that is given to the wrong "
     "samples: in each of 15 bins of that probability, the distance from its mean to the exact limits of the observed "
     "frequency, at a level divided by the number of bins and classes."],
    ["Majority class", "Always answering the most frequent class; compared with the model by McNemar's exact test."],
    ["By class", "Among predictions of a class, because a calibrated model is right as often as it claims, whichever "
     "class it predicts; not among the samples of a class, where that need not hold."],
]  # fmt: skip


def describe_model(
    name: str,
    collected: Collected,
    val: Collected | None,
    *,
    level: float,
    replicates: int,
    seed: int,
    centre: bool | None = None,
) -> tuple[dict[str, Any], dict[str, Interval]]:
    """The whole document of one model, and its numbers by name; ``centre`` selects a reading of logit normalisation."""
    summary = collected.summary()
    independent = collected.kind == "classification"
    values, numbers, classwise = numbers_of(collected, summary, level, replicates, seed)
    names = collected.classes
    comparing: dict[str, Any] = {"level": level, "compare": independent}
    by_class = [] if collected.by_class is None else collected.by_class.rows(names, classwise=classwise, **comparing)
    by_group = {column: part.rows(levels.names(), **comparing) for column, (levels, part) in collected.groups.items()}
    plain = {key: float(value) for key, value in values.items()}
    choice = choose_as_fit(collected if val is None else val, centre)
    sampling = {"level": level, "replicates": replicates, "seed": seed}
    repairs = judge_repairs(collected, val, choice, plain, centre=centre, **sampling)
    logits, logit_gap = logit_windows(collected, level)
    overall, bins = collected.overall.rows(["all"], level=level)[0], summary.reliability(15)
    by_confidence = ScoreCurve("msp", "confidence (MSP)", summary.risk_coverage_curve(), round(summary.effective))
    classes = check_classes(collected, level)
    evidence = Evidence(
        collected=collected,
        samples=round(summary.effective),
        classes=classes,
        numbers=numbers,
        reliability=bins,
        gap=Interval(overall.gap, overall.gap_low, overall.gap_high),
        chance=float(ece_by_chance(bins, seed=seed).mean()),
        by_class=by_class,
        by_group=by_group,
        repairs=repairs,
        choice=choice,
        logit_gap=logit_gap,
        confidence_level=level,
    )
    document = {
        "name": name,
        "samples": collected.samples,
        "unit": UNITS[collected.kind][1],
        "classes": collected.num_classes or len(names) or None,
        "holds": collected.holds,
        "kind": collected.kind,
        "verdict": dict(zip(("level", "headline", "text"), verdict(evidence), strict=True)),
        "notes": _notes(collected, repairs),
        "metrics": [_metric(key, values[key], numbers[key], collected) for key in SHOWN if key in values],
        "findings": [asdict(finding) for finding in list_findings(evidence)],
        **describe_classes(collected, classes, numbers, level),
        "reliability": reliability_series(summary, level),
        "histogram": _histogram(summary),
        "objects": None if collected.object_sizes is None else collected.object_sizes.series(),
        "curves": [_curve(*curve, level) for curve in (by_confidence, *curves_of_other_scores(collected, val, centre))],
        "logits": logits,
        "classes_table": [asdict(row) for row in by_class],
        "groups": [{"column": column, "rows": [asdict(row) for row in rows]} for column, rows in by_group.items()],
        "errors": [_error(error, collected) for error in collected.worst],
        "errors_in_all": collected.errors,
        "fixes": [_repair(repair) for repair in repairs],
        "choice": None if choice is None else _choice(choice),
    }
    return document, numbers


def numbers_of(
    collected: Collected, summary: Summary, level: float, replicates: int, seed: int
) -> tuple[dict[str, Approximate], dict[str, Interval], Doubles | None]:
    """Values and intervals of every metric, and class-wise ECE by class, if that is known."""
    values = dict(summary.metrics())
    additional: dict[str, Interval] = {}
    if collected.object_sizes is not None:
        additional["objectness_deviation"] = collected.object_sizes.deviation(level)
        values["objectness_deviation"] = Approximate(additional["objectness_deviation"].value)
    if collected.clusters is None:
        numbers = intervals(summary, level=level, replicates=replicates, seed=seed)
    else:
        numbers = collected.clusters.intervals(summary, level=level, replicates=replicates, seed=seed)
        if collected.impossible:  # it is not known which images they are in
            numbers["nll"] = Interval(float(values["nll"]), math.nan, math.nan)
    if collected.overlaps is not None:
        additional["mean_iou"] = collected.overlaps.mean_iou(level=level, replicates=replicates, seed=seed)
        values["mean_iou"] = Approximate(additional["mean_iou"].value)
    numbers |= additional
    if collected.classwise is None:
        return values, numbers, None
    classwise = collected.classwise.by_class()
    mean = float(classwise.mean())
    values["classwise_ece"] = Approximate(mean)
    numbers["classwise_ece"] = Interval(mean, math.nan, math.nan)
    if collected.clusters is None and math.isfinite(numbers["ece"].low):
        resampled, null = collected.classwise.replicates(np.random.default_rng(seed), min(200, replicates))
        numbers["classwise_ece"] = bootstrap_interval("classwise_ece", mean, resampled, level, null=null)
    return values, numbers, classwise


def _error(error: WorstError, collected: Collected) -> dict[str, Any]:
    row = {
        "id": error.id,
        "label": collected.class_name(error.label),
        "predicted": collected.class_name(error.predicted),
        "confidence": error.confidence,
    }
    if error.position is None:
        return row
    names = ("token",) if len(error.position) == 1 else ("row", "column")
    return row | {"place": ", ".join(f"{name} {i}" for name, i in zip(names, error.position, strict=True))}


def _facts(name: str) -> dict[str, Any]:
    metric = describe(name)
    return {"label": metric.label, "unit": metric.unit, "better": metric.better}


def describe_comparison(
    first: str,
    second: str,
    change: Mapping[str, Interval],
    numbers: tuple[Mapping[str, Interval], Mapping[str, Interval]],
) -> dict[str, Any]:
    """Paired differences between two models as a document, beside each model's own numbers."""
    rows = [
        {
            "name": (name := "ece_15" if key == "ece" else key),
            **_facts(name),
            "first": numbers[0][key].value,
            "second": numbers[1][key].value,
            "difference": change[key].value,
            "low": change[key].low,
            "high": change[key].high,
        }
        for key in COMPARED
        if key in change
    ]
    return {"first": first, "second": second, "rows": rows}


def _metric(name: str, value: Approximate, limits: Interval, collected: Collected) -> dict[str, Any]:
    metric = describe(name)
    facts = _facts(name)
    if name == "brier" and collected.num_classes == 2:
        facts["label"] += " (both classes)"  # beside that of P, which is half of it
    return {
        "name": name,
        **facts,
        "value": float(value),
        "low": limits.low,
        "high": limits.high,
        "bound": value.bound,
        "note": collected.nll_note if name == "nll" else None,
        "group": metric.family,
        "help": metric.description,
    }


def _repair(repair: Repair) -> dict[str, Any]:
    facts = _facts(repair.metric)
    return {
        "repair": repair.name,
        "name": repair.metric,
        "fitted": repair.fitted,
        "metric": facts.pop("label"),
        **facts,
        "before": repair.before,
        "after": repair.after,
        "difference": repair.change.value,
        "low": repair.change.low,
        "high": repair.change.high,
    }


def _choice(choice: Selection) -> dict[str, Any]:
    """What `calibrant fit` would choose, and the results of all its candidates."""
    calibrator = "none" if choice.calibrator is None else choice.calibrator.name
    return {"calibrator": calibrator, "score": str(choice.score), **choice.evidence()}


def _notes(collected: Collected, repairs: Sequence[Repair]) -> list[str]:
    notes = list(collected.remarks)
    wholes, units = UNITS[collected.kind]
    summary = collected.summary()
    if summary.is_weighted:
        notes.append(
            f"All numbers are weighted. The {count(summary.samples)} {units} are as certain as "
            f"{count(round(summary.effective))} of equal weight, which is what findings, intervals and tests go by; "
            "answers and labels are counted in them. The bins of confidence hold sums of weights of mean 1; lists of "
            f"errors and tables by predicted class, group and object size count the {units} themselves. Repairs are "
            "fitted and chosen without the weights, and judged with them; the largest logit at equal confidence is "
            "compared without them."
        )
    if collected.kind != "classification":
        notes.append(
            f"{count(collected.rows)} {wholes}, {count(collected.samples)} {units} that count, pooled over all "
            f"{wholes}. {units.capitalize()} of one {wholes[:-1]} are alike, so intervals resample {wholes}; numbers "
            "for which that is not done have no interval."
        )
    if collected.ignored:
        total = collected.samples + collected.ignored
        notes.append(
            f"{count(collected.ignored)} of {count(total)} {units} are ignored: their label is "
            f"{collected.ignore_index}."
        )
    if repairs and collected.samples > collected.logits.size:
        notes.append(
            f"Changes by repairs, and curves of other scores, are measured on {count(collected.logits.size)} "
            f"{units} drawn at random."
        )
    if collected.holds == "confidence":
        unavailable = "NLL, Brier score" if collected.class_levels else "NLL, Brier score, classes"
        notes.append(f"Only confidences are known: no {unavailable} or repairs.")
    elif not repairs:
        is_small = collected.samples < FEWEST_TO_FIT
        why = f"fewer than {FEWEST_TO_FIT} samples" if is_small else "all or none of the predictions are right"
        notes.append(f"No repair was tried: {why}.")
    return notes


def reliability_series(summary: Summary, level: float) -> dict[str, Any]:
    """Fifteen bins of a reliability diagram, with Wilson's intervals of their accuracies."""
    bins = summary.reliability(15)
    correct = np.nan_to_num(bins.accuracy) * bins.effective
    low, high = wilson(correct if summary.is_weighted else np.rint(correct), bins.effective, level)
    return {
        "low": bins.low, "high": bins.high, "count": whole(bins.count), "confidence": bins.confidence,
        "accuracy": bins.accuracy, "accuracy_low": low, "accuracy_high": high,
    }  # fmt: skip


def _histogram(summary: Summary, bins: int = 50) -> dict[str, Any]:
    count, errors = (part[::-1].reshape(bins, -1).sum(1) for part in (summary.bins.count, summary.bins.errors))
    return {"edges": np.arange(bins + 1) / bins, "right": whole(count - errors), "wrong": whole(errors)}


def whole(counts: npt.NDArray[Any]) -> Ints:
    """Counts, or sums of weights rounded to counts."""
    return np.rint(counts).astype(np.int64)


def _curve(name: str, title: str, curve: RiskCoverage, samples: int, level: float) -> dict[str, Any]:
    """A curve thinned to evenly spread coverages, with the points at the table's risks and coverages."""
    coverage, risk = curve.coverage, curve.risk
    indices = np.searchsorted(coverage, np.concatenate([np.linspace(0, 1, POINTS), np.array(COVERAGES) - 1e-12]))
    last_within = [np.flatnonzero(risk <= target)[-1:] for target in RISKS]
    points = np.unique(np.minimum(np.concatenate([indices, *last_within]), len(coverage) - 1))
    accepted = np.rint(coverage[points] * samples)
    errors = np.rint(risk[points] * accepted)
    low, high = wilson(errors, accepted, level)
    return {
        "score": name, "label": title, "points_all": len(points) == len(coverage), "coverage": coverage[points],
        "risk": risk[points], "risk_low": low, "risk_high": high, "threshold": curve.threshold[points],
        "accepted": accepted.astype(np.int64), "errors": errors.astype(np.int64),
    }  # fmt: skip
