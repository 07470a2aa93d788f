"""What a watch says, as plain values and sentences: what ``--json`` prints and the page draws."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np

from calibrant._files import json_value
from calibrant._numbers import allowed, count, fixed, number, p_words, percent, round_percent, span_words
from calibrant.monitoring.batch import reference_priors
from calibrant.monitoring.state import KnownLabels, ShiftEntry, WatchState
from calibrant.monitoring.watch import RateWatch, Watch, WatchTest
from calibrant.selective import Policy

#: What each test is about.
SUBJECTS = {
    "coverage": "the share of samples that is answered",
    "score": "the distribution of the score",
    "confidence": "the distribution of confidence",
    "predicted": "how often each class is predicted",
}
#: A change of priors below these is not worth a correction.
SMALLEST_SHIFT, LARGEST_P = 0.02, 0.01
#: Classes that are listed, those that change most.
MOST_CLASSES = 12

ASSUMPTIONS = (
    "Samples are independent of each other, and those of different machines are different samples.",
    "Answers whose labels are known are a random sample of all answers: labels that come for doubtful cases first "
    "would raise false alarms.",
    "The risk that confidence implies is right only if confidence is still calibrated (no concept drift); a loss of "
    "accuracy at the same confidence is seen in labels alone.",
)


def watch_document(policy: Policy, state: WatchState, watch: Watch) -> dict[str, Any]:
    """The whole watch."""
    from calibrant import __version__

    alarms = [
        {"name": test.name, "group": test.group, "since": test.since, "text": _alarm_text(test, watch, state, policy)}
        for test in watch.alarms
    ]
    reference = policy.evidence.get("reference")
    shift = _describe_shift(policy, state)
    document = {
        "format": "calibrant.monitor",
        "version": 1,
        "calibrant": __version__,
        "created": datetime.date.today().isoformat(),
        "status": "alarm" if alarms else "quiet",
        "headline": _headline(watch, state),
        "policy": policy.summary,
        "promised_risk": watch.promised,
        "cost": _mean_cost(policy, watch),
        "alpha": state.alpha,
        "by_group": state.by_group if policy.classes is None else policy.part_column,
        "alarms": alarms,
        "sentences": _sentences(policy, state, watch),
        "risk": _rate_entries(watch.overall, ""),
        "groups": [_rate_entries(part, name) for name, part in watch.groups.items()],
        "tests": [_test_entries(test) for test in watch.tests],
        "coverage": vars(watch.coverage),
        "reference_coverage": vars(watch.reference_coverage),
        "implied_risk": watch.implied,
        "reference_implied_risk": None if reference is None else reference["implied_risk"],
        "total_variation": {name: vars(size) for name, size in watch.sizes.items()},
        "label_shift": shift,
        "batches": _batch_entries(state),
        "untested": watch.untested,
        "assumptions": list(ASSUMPTIONS),
    }
    return json_value(document)


def _rate_entries(rate: RateWatch, group: str) -> dict[str, Any]:
    limits = rate.limits[-1] if rate.limits else None
    return {
        "group": group,
        "answers": rate.answers,
        "errors": rate.errors,
        "value": None if limits is None else limits.value,
        "low": None if limits is None else limits.low,
        "high": None if limits is None else limits.high,
        "test": None if rate.test is None else _test_entries(rate.test),
        "arrivals": [
            {"batch": batch, "errors": errors, "answers": answers, "low": limit.low, "high": limit.high,
             "value": limit.value}
            for (batch, errors, answers), limit in zip(rate.rates, rate.limits, strict=True)
        ],
    }  # fmt: skip


def _test_entries(test: WatchTest) -> dict[str, Any]:
    return {
        "name": test.name, "group": test.group, "alpha": test.alpha, "log10_limit": test.limit,
        "log10_evidence": test.evidence, "batches": test.batches, "alarm_since": test.since,
    }  # fmt: skip


def _batch_entries(state: WatchState) -> list[dict[str, Any]]:
    rows, labels = [], state.labels_by_batch()
    for batch in state.batches:
        labelled = labels.get(batch.fingerprint) or KnownLabels(answers=0, errors=0)
        rows.append({
            "name": batch.name, "added": batch.added, "samples": batch.samples, "accepted": batch.accepted,
            "coverage": batch.accepted / batch.samples if batch.samples else None,
            "implied_risk": batch.implied_errors / batch.accepted if batch.accepted else None,
            "answers_labelled": labelled.answers, "errors": labelled.errors,
            "risk": labelled.errors / labelled.answers if labelled.answers else None, "labels_only": batch.labels_only,
        })  # fmt: skip
    return rows


def _headline(watch: Watch, state: WatchState) -> str:
    if any(test.name == "promise" for test in watch.alarms):
        return "The promise is broken"
    if watch.alarms:
        return "The samples have changed since the policy was fitted"
    return "No alarm" if state.batches else "Nothing has been watched yet"


def _mean_cost(policy: Policy, watch: Watch) -> dict[str, float] | None:
    """What answers cost and may cost, on average; None where no cost is promised, or none is known."""
    rate, promise = watch.overall, policy.promise
    if not rate.by_cost or not rate.answers or promise.target is None:
        return None
    return {"mean": promise.highest * rate.cost / rate.answers, "promised": promise.target}


def _alarm_text(test: WatchTest, watch: Watch, state: WatchState, policy: Policy) -> str:
    cost = _mean_cost(policy, watch)
    odds = f"evidence of {_power(max(test.evidence))} to 1, alarm from {_power(test.limit)}"
    if test.name == "promise" and cost is not None:
        mean = f"{number(cost['mean'])} for {count(watch.overall.answers)}"
        promised = f"more than {cost['promised']:g} on average"
        return f"An answer costs {promised}: {mean}; seen at {test.since} ({odds})."
    if test.name == "promise":
        rate = watch.groups[test.group] if test.group else watch.overall
        scope = f" in {test.group}" if test.group else ""
        if test.group and not watch.by_class:
            scope = f" in {state.by_group} {test.group}"
        return (
            f"More than {allowed(rate.promised)} of answers are wrong{scope}: {percent(rate.errors / rate.answers)} "
            f"of {count(rate.answers)}; seen at {test.since} ({odds})."
        )
    return f"Something has changed: {SUBJECTS[test.name]}; seen at {test.since} ({odds})."


def _power(log10: float) -> str:
    return count(round(10**log10)) if log10 < 6 else f"10^{math.floor(log10)}"


def _sentences(policy: Policy, state: WatchState, watch: Watch) -> list[str]:
    samples = sum(batch.samples for batch in state.batches if not batch.labels_only)
    lines = [
        f"{count(len(state.batches))} batch{'es' * (len(state.batches) != 1)}, {count(samples)} samples; at most "
        f"{round_percent(state.alpha)} of such watches ever raise a false alarm, however often one looks."
    ]
    rate = watch.overall
    if rate.answers:
        limits = rate.limits[-1]
        promise = "" if watch.promised is None else f"; at most {allowed(watch.promised)} is promised"
        lines.append(
            f"{percent(limits.value)} of {count(rate.answers)} answers with labels are wrong "
            f"({span_words(limits.low, limits.high, 'share', limits.value)}, at all times){promise}."
        )
        if (cost := _mean_cost(policy, watch)) is not None:
            mean, promised = number(cost["mean"]), f"{cost['promised']:g}"
            lines.append(f"An answer costs {mean} on average; at most {promised} is promised.")
    else:
        lines.append("No answer has a label yet, so the promise itself cannot be tested.")
    if samples:
        fitted = watch.reference_coverage
        before = "" if math.isnan(fitted.value) else f", {percent(fitted.value)} at the fit"
        lines.append(f"{percent(watch.coverage.value)} of samples are answered{before}.")
    if not math.isnan(watch.implied):
        reference = (policy.evidence.get("reference") or {}).get("implied_risk")
        before = "" if reference is None else f" ({percent(reference)} at the fit)"
        lines.append(f"If confidence is still calibrated, {percent(watch.implied)} of answers are wrong{before}.")
    return lines


def _describe_shift(policy: Policy, state: WatchState) -> dict[str, Any] | None:
    """The priors of the last batch that EM was run on, and whether a correction is worth it."""
    reference = policy.evidence.get("reference")
    batch = next((b for b in reversed(state.batches) if b.shift is not None and not b.labels_only), None)
    if batch is None or batch.shift is None or reference is None or reference["labels"] is None:
        return None
    shift = batch.shift
    before, after = reference_priors(np.array(reference["labels"])), np.array(shift.priors)
    size = 0.5 * float(np.abs(after - before).sum())
    names = policy.class_names or [str(k) for k in range(policy.num_classes)]
    order = np.argsort(-np.abs(after - before), kind="stable")[:MOST_CLASSES]
    return {
        "batch": batch.name, "samples": shift.samples, "gain": shift.gain, "p_value": shift.p_value,
        "total_variation": size, "nll_before": shift.nll_before, "nll_after": shift.nll_after,
        "offered": _is_offered(shift, size), "text": _shift_text(shift, size),
        "classes": [{"name": names[k], "before": float(before[k]), "after": float(after[k])} for k in order],
    }  # fmt: skip


def _is_offered(shift: ShiftEntry, size: float) -> bool:
    helps = shift.nll_before is None or shift.nll_after is None or shift.nll_after < shift.nll_before
    return shift.p_value < LARGEST_P and size >= SMALLEST_SHIFT and helps


def _shift_text(shift: ShiftEntry, size: float) -> str:
    gain = f"other priors explain the samples better by {fixed(shift.gain, 4)} nats each ({p_words(shift.p_value)})"
    effect = ""
    if shift.nll_before is not None and shift.nll_after is not None:
        verdict = "better" if shift.nll_after < shift.nll_before else "worse"
        nll = f"NLL {fixed(shift.nll_before, 4)} before, {fixed(shift.nll_after, 4)} after"
        effect = f"; on the labels that are known the correction is {verdict}: {nll}"
    if _is_offered(shift, size):
        return f"The shares of the classes seem to have changed by {percent(size)}: {gain}{effect}."
    if shift.p_value >= LARGEST_P or size < SMALLEST_SHIFT:
        return f"No sign that the shares of the classes have changed: {gain}{effect}."
    return f"The shares of the classes seem to have changed by {percent(size)}, but {gain}{effect}."
