"""The parts of an audit document: what a figure needs of one, and what page and figures both read out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibrant.report.text import finite

Part = Mapping[str, Any]

RELIABILITY = ("low", "high", "count", "confidence", "accuracy", "accuracy_low", "accuracy_high")
CURVE = ("coverage", "risk", "risk_low", "risk_high", "threshold", "accepted", "errors")
BANDS = ("msp", "right_mean", "right_spread", "wrong_mean", "wrong_spread")
POINTS = ("msp", "max_logit", "right")


def fitting(where: str, part: Part, keys: Sequence[str]) -> None:
    """Check that the series named by ``keys`` are there and equally long."""
    for key in keys:
        if key not in part:
            raise ValueError(f"{where} needs the series {', '.join(keys)}, and {key!r} is missing")
        if len(part[key]) != len(part[keys[0]]):
            raise ValueError(
                f"{where} needs series of one length, got {len(part[keys[0]])} for {keys[0]!r} and {len(part[key])} "
                f"for {key!r}"
            )


def fitting_histogram(where: str, part: Part) -> None:
    """Check a histogram: one edge more than there are bins."""
    fitting(where, part, ("right", "wrong"))
    edges, bins = len(part.get("edges", ())), len(part["right"])
    if edges != bins + 1:
        raise ValueError(f"{where} needs one edge more than bins, got {edges} edges for {bins} bins")


def fitting_logits(where: str, part: Part) -> None:
    """Check the bands and points of the largest logit against the confidence."""
    fitting(where, part, BANDS)
    fitting(f"{where}, points,", part.get("points") or {}, POINTS)


def unit_of(model: Part) -> str:
    """What a file's numbers count, in the plural: samples or pixels."""
    return str(model.get("unit") or ("pixels" if model.get("kind") == "segmentation" else "samples"))


def risk_top(curves: Sequence[Part]) -> float:
    """Where a risk axis ends: the first few samples jump about and would flatten all the rest."""
    known = [
        (c, float(r)) for curve in curves for c, r in zip(curve["coverage"], curve["risk"], strict=True)
        if finite(r) is not None
    ]  # fmt: skip
    settled = [r for c, r in known if c >= 0.05] or [r for _, r in known]
    return min(1.0, max([*settled, 0.004]) * 1.25)


def checked(document: Part) -> Sequence[Part]:
    """The files of an audit document, after a look at whether it is one."""
    kind, version = document.get("format"), document.get("version")
    if kind != "calibrant.audit" or version != 1:
        raise ValueError(f"a report is written of a calibrant.audit document of version 1, got {kind!r}, {version!r}")
    models = document.get("models") or ()
    if not models:
        raise ValueError("a report is written of at least one file, and the audit document has no models")
    if "verdict" not in document:
        raise ValueError("a report opens with the verdict, and the audit document has none")
    for model in models:
        where = f"the report of {str(model.get('name'))[:80]!r}"
        if model.get("reliability"):
            fitting(f"{where}, reliability,", model["reliability"], RELIABILITY)
        if model.get("histogram"):
            fitting_histogram(f"{where}, histogram,", model["histogram"])
        for curve in model.get("curves") or ():
            fitting(f"{where}, curve {str(curve.get('score'))[:80]!r},", curve, CURVE)
        if model.get("logits"):
            fitting_logits(f"{where}, logits,", model["logits"])
    return models
