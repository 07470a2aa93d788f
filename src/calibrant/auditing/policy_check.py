"""A policy on audited predictions: its calibrator applied, and its promise against what happened."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from calibrant._numbers import allowed, percent, round_percent
from calibrant.metrics import Interval, wilson
from calibrant.posthoc import logits_of
from calibrant.predictions import Predictions, class_name, replace_data
from calibrant.selective import Outcome, Policy, risk_interval

_PROMISES = {  # level and title by `Outcome.promise_kept`
    "yes": ("good", "The policy keeps its promise"),
    "no": ("poor", "The policy breaks its promise"),
    "unclear": ("fair", "More answers are wrong than promised, which may be chance"),
    "no sign": ("info", "No sign that the policy breaks its promise"),
    "silent": ("poor", "The policy never answers: no risk as low as asked for can be promised"),
    "nothing": ("info", "The policy answers nothing here"),
    "unknown": ("info", "The policy promises no risk"),
}
_SETS = {  # level and title by `Outcome.sets_hold`
    "no": ("poor", "The prediction sets hold fewer true classes than promised"),
    "no sign": ("info", "No sign that the prediction sets hold fewer true classes than promised"),
    "unknown": ("info", "Whether the prediction sets hold the true classes is unknown"),
}


def calibrate(batch: Predictions, policy: Policy) -> Predictions:
    """The batch with the policy's calibrator applied, holding what it held."""
    if policy.calibrator is None:
        return batch
    if batch.holds == "logits":
        calibrated: Predictions = policy.calibrator.transform(batch)
        return calibrated
    z = policy.calibrator.transform(logits_of(batch, policy.floor))
    exps = np.exp(z - z.max(1, keepdims=True))
    return replace_data(batch, "probabilities", exps / exps.sum(1, keepdims=True))


def describe_policy(outcome: Outcome, model: str) -> dict[str, Any]:
    """What a policy decides about audited predictions, and its promise against what happened."""
    policy, promised, expected = outcome.policy, outcome.policy.promised, outcome.policy.threshold.coverage
    has_no_estimate = policy.part_column or policy.abstains
    level, title = _PROMISES["silent" if policy.abstains else outcome.promise_kept]
    without_policy = Interval(outcome.all_errors / outcome.samples, math.nan, math.nan)
    rows = [
        ("Answered", outcome.coverage, "" if has_no_estimate else f"expected {percent(expected.value)}"),
        ("Wrong answers", outcome.risk, "" if promised is None else f"promised: at most {allowed(promised)}"),
        ("Wrong if all were answered", without_policy, ""),
    ]
    rows += _promise_rows(outcome)
    if policy.kind == "segmentation":  # pixels are not independent, and images were not kept apart here
        rows = [(label, Interval(share.value, math.nan, math.nan), note) for label, share, note in rows]
    return {
        "model": model,
        "level": level,
        "title": title,
        "text": " ".join(outcome.sentences()),
        "evidence": policy.method_summary if policy.abstains else f"Promised: {policy.summary} {policy.method_summary}",
        "kept": outcome.promise_kept,
        "column": policy.part_column,
        "promise": outcome.to_dict()["promise"],
        "rows": [{"label": label, **vars(share), "unit": "share", "note": note} for label, share, note in rows],
        "menu": [offer._asdict() for offer in policy.threshold.menu] if policy.abstains else [],
        "groups": [
            _group(policy, name, *counts)
            for name, counts in (outcome.groups if policy.classes is None else outcome.classes).items()
        ],
        "sets": _sets(outcome),
    }


def _promise_rows(outcome: Outcome) -> list[tuple[str, Interval, str]]:
    """The row of a promised recall or expected risk; a cost is not a share, and is in the text."""
    promise, tally = outcome.policy.promise, outcome.tally
    if not tally.rows or promise.of not in ("recall", "expected-risk"):
        return []
    errors = round(tally.loss)
    if promise.of == "expected-risk":
        share = risk_interval(errors, tally.rows, 0.025, 0.025)
        return [("Answered wrongly, of all", share, f"expected: at most {allowed(promise.target)}")]
    share = risk_interval(tally.rows - errors, tally.rows, 0.025, 0.025)
    label, least = promise.shares[0]
    name = class_name(label, outcome.policy.class_names)
    return [(f"Answered as {name}, of its samples", share, f"promised: at least {allowed(least)}")]


def _sets(outcome: Outcome) -> dict[str, Any] | None:
    """The prediction sets of a policy on audited predictions: their sizes, and coverage in total and by class."""
    sets, counts = outcome.policy.sets, outcome.sets
    if sets is None or counts is None or not counts.samples:
        return None
    level, title = _SETS[outcome.sets_hold]
    facts, names = counts.to_dict(outcome.policy.class_names), outcome.policy.class_names
    promised = f"promised: {round_percent(sets.level)} on average"
    silent = facts["where_abstained"]
    rows = [
        {"label": "Sets with the true class", **facts["coverage"], "unit": "share", "note": promised},
        {"label": "Classes in a set, on average", **facts["mean_size"], "unit": "number", "note": ""},
        {"label": "Sets of one class", **facts["single"], "unit": "share", "note": ""},
        {"label": "Empty sets", **facts["empty"], "unit": "share", "note": ""},
    ]
    if silent["samples"]:
        condition = "where the policy abstains"
        rows += [
            {"label": "Sets of one or two classes", **silent["one_or_two"], "unit": "share", "note": condition},
            {"label": "Sets with the true class", **silent["coverage"], "unit": "share", "note": condition},
        ]
    return {
        "level": level,
        "title": title,
        "text": " ".join(outcome.set_sentences()),
        "evidence": " ".join(sets.sentences(names)),
        "hold": outcome.sets_hold,
        "method": sets.method,
        "promised": sets.level,
        "rows": rows,
        "classes": [
            {"name": str(row["class"]), "samples": row["samples"], **row["coverage"]}
            for row in facts["classes"]
            if row["samples"]
        ],
    }


def _group(policy: Policy, name: str, samples: int, accepted: int, errors: int) -> dict[str, Any]:
    threshold = policy.parts.get(name)
    if threshold is None:
        promised, note = None, "unknown to the policy: never answered"
    elif threshold.abstains:
        promised, note = None, "never answered"
    else:
        promised, note = None if policy.promised is None else threshold.target_risk, ""
    low, high = wilson(errors, accepted, 0.95)
    return {
        "name": name,
        "samples": samples,
        "answered": accepted / samples if samples else None,
        "wrong": errors / accepted if accepted else None,
        "low": float(low) if accepted else None,
        "high": float(high) if accepted else None,
        "promised": promised,
        "note": note,
    }
