"""The series of a document that pages and figures draw, and checks that they are complete and equally long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibrant.report.text import finite

Part = Mapping[str, Any]

RELIABILITY = ("low", "high", "count", "confidence", "accuracy", "accuracy_low", "accuracy_high")
CURVE = ("coverage", "risk", "risk_low", "risk_high", "threshold", "accepted", "errors")
BANDS = ("msp", "right_mean", "right_spread", "wrong_mean", "wrong_spread")
POINTS = ("msp", "max_logit", "right")


def check_format(subject: str, document: Part, expected: str) -> None:
    """Check that a document has the expected format, in version 1."""
    kind, version = document.get("format"), document.get("version")
    if kind != expected or version != 1:
        raise ValueError(f"{subject} is written of a {expected} document of version 1, got {kind!r}, {version!r}")


def check_series(subject: str, part: Part, keys: Sequence[str]) -> None:
    """Check that the series named by ``keys`` are there and equally long."""
    for key in keys:
        if key not in part:
            raise ValueError(f"{subject} needs the series {', '.join(keys)}, and {key!r} is missing")
        if len(part[key]) != len(part[keys[0]]):
            raise ValueError(
                f"{subject} needs series of one length, got {len(part[keys[0]])} for {keys[0]!r} and {len(part[key])} "
                f"for {key!r}"
            )


def check_histogram(subject: str, part: Part) -> None:
    """Check that a histogram has one edge more than bins."""
    check_series(subject, part, ("right", "wrong"))
    edges, bins = len(part.get("edges", ())), len(part["right"])
    if edges != bins + 1:
        raise ValueError(f"{subject} needs one edge more than bins, got {edges} edges for {bins} bins")


def check_logits(subject: str, part: Part) -> None:
    """Check the bands and points of the largest logit against the confidence."""
    check_series(subject, part, BANDS)
    check_series(f"{subject}, points,", part.get("points") or {}, POINTS)


def audited_models(document: Part) -> Sequence[Part]:
    """Check an audit document and return its models."""
    check_format("a report", document, "calibrant.audit")
    models = document.get("models") or ()
    if not models:
        raise ValueError("a report is written of at least one file, and the audit document has no models")
    if "verdict" not in document:
        raise ValueError("a report opens with the verdict, and the audit document has none")
    for model in models:
        subject = f"the report of {str(model.get('name'))[:80]!r}"
        if model.get("reliability"):
            check_series(f"{subject}, reliability,", model["reliability"], RELIABILITY)
        if model.get("positive"):
            check_series(f"{subject}, P(positive),", model["positive"]["reliability"], RELIABILITY)
        if model.get("histogram"):
            check_histogram(f"{subject}, histogram,", model["histogram"])
        for curve in model.get("curves") or ():
            check_series(f"{subject}, curve {str(curve.get('score'))[:80]!r},", curve, CURVE)
        if model.get("logits"):
            check_logits(f"{subject}, logits,", model["logits"])
    return models


def unit_of(model: Part) -> str:
    """What a model's numbers count, in the plural: samples, pixels or tokens."""
    return str(model.get("unit") or ("pixels" if model.get("kind") == "segmentation" else "samples"))


def highest_risk(curves: Sequence[Part]) -> float:
    """The highest risk that an axis must show, without the first few samples, whose risk jumps."""
    points = [
        (coverage, float(risk))
        for curve in curves
        for coverage, risk in zip(curve["coverage"], curve["risk"], strict=True)
        if finite(risk) is not None
    ]
    settled = [risk for coverage, risk in points if coverage >= 0.05] or [risk for _, risk in points]
    return max([*settled, 0.004])


def risk_top(curves: Sequence[Part]) -> float:
    """The upper end of an axis of risks."""
    return min(1.0, highest_risk(curves) * 1.25)
