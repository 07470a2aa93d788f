"""What a policy does to audited predictions: the promise it made against what happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from calibrant.metrics import wilson
from calibrant.predictions import Predictions
from calibrant.selective import Outcome, Policy, method_sentence, observe_batch

_LEVELS = {"yes": "good", "no": "poor", "unclear": "fair", "no sign": "info", "nothing": "info", "unknown": "info"}
_TITLES = {
    "yes": "The policy keeps its promise",
    "no": "The policy breaks its promise",
    "unclear": "More answers are wrong than promised, which may be chance",
    "no sign": "No sign that the policy breaks its promise",
    "nothing": "The policy answers nothing here",
    "unknown": "The policy promises no risk",
}


def watched(outcome: Outcome, batches: Iterable[Predictions]) -> Iterator[Predictions]:
    """Pass batches on, and count what the policy decides about them."""
    for batch in batches:
        observe_batch(outcome, batch, outcome.policy.decide(batch))
        yield batch


def calibrated(policy: Policy, batches: Iterable[Predictions]) -> Iterator[Predictions]:
    """The batches with the policy's calibrator applied, holding what they held."""
    for batch in batches:
        assert policy.calibrator is not None
        changed = policy.calibrator.transform(batch)
        if batch.holds == "logits":
            yield changed
            continue
        columns = {"ids": batch.ids, "groups": batch.groups or None, "objectness": batch.objectness}
        facts: dict[str, Any] = {
            name: getattr(batch, name) for name in ("class_names", "kind", "ignore_index", "split")
        }
        exps = np.exp(changed.logits - changed.logits.max(1, keepdims=True))
        yield Predictions.from_probabilities(exps / exps.sum(1, keepdims=True), batch.labels, **columns, **facts)


def described(outcome: Outcome, name: str) -> dict[str, Any]:
    """The policy's part of the document."""
    policy, promised = outcome.policy, outcome.policy.promised
    rows = [
        _row("Answered", outcome.coverage.value, outcome.coverage.low, outcome.coverage.high, ""),
        _row("Wrong answers", outcome.risk.value, outcome.risk.low, outcome.risk.high, ""),
        _row("Wrong if all were answered", outcome.all_errors / outcome.samples, None, None, ""),
    ]
    expected = policy.threshold.coverage
    rows[0]["note"] = f"expected {expected.value:.1%}" if policy.groups is None and not policy.abstains else ""
    rows[1]["note"] = "" if promised is None else f"promised: at most {promised:.2%}"
    if policy.kind == "segmentation":  # pixels are not independent, and images were not kept apart here
        rows = [row | {"low": None, "high": None} for row in rows]
    return {
        "model": name,
        "level": _LEVELS[outcome.kept],
        "title": _TITLES[outcome.kept],
        "text": " ".join(outcome.sentences()),
        "evidence": f"Promised: {policy.summary} {method_sentence(policy)}",
        "kept": outcome.kept,
        "column": policy.group,
        "rows": rows,
        "groups": [_group(policy, key, *counts) for key, counts in outcome.groups.items()],
    }


def _row(label: str, value: float, low: float | None, high: float | None, note: str) -> dict[str, Any]:
    return {"label": label, "value": value, "low": low, "high": high, "unit": "share", "note": note}


def _group(policy: Policy, name: str, samples: int, accepted: int, errors: int) -> dict[str, Any]:
    own = (policy.groups or {}).get(name)
    low, high = wilson(errors, accepted, 0.95)
    note = "unknown to the policy: never answered" if own is None else "never answered" if own.abstains else ""
    return {
        "name": name,
        "samples": samples,
        "answered": accepted / samples,
        "wrong": errors / accepted if accepted else None,
        "low": float(low) if accepted else None,
        "high": float(high) if accepted else None,
        "promised": None if own is None or own.abstains else policy.promised,
        "note": note,
    }
