"""What a repair would gain: temperature scaling and logit normalisation, judged on data they were not fitted on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.auditing.collect import Collected
from calibrant.metrics import Interval, Judged, paired_differences, top_label_blocks
from calibrant.posthoc import (
    FLOOR,
    FOLDS,
    LogitNorm,
    Ranked,
    TemperatureScaling,
    crossfit,
    crossfit_ranks,
    folds_of,
    rank_shares,
)

Array = npt.NDArray[Any]

FEWEST = 50  # samples, below which nothing is fitted


@dataclass(frozen=True)
class Fix:
    """A repair and what it changes in one metric.

    Attributes:
        name: of the repair.
        fitted: with what result, and on what.
        metric: name of the metric.
        before: its value without the repair.
        change: the difference it makes, with an interval.
    """

    name: str
    fitted: str
    metric: str
    before: float
    change: Interval


def logits_of(found: Collected) -> tuple[Array, Array]:
    """The kept logits ``[n, C]`` (of probabilities, their logarithms) and labels, float64."""
    values, labels, _ = found.logits.columns()
    values = values.astype(np.float64)
    return (np.log(np.maximum(values, FLOOR)) if found.holds == "probabilities" else values), labels


def fixes(
    found: Collected, val: Collected | None, values: Mapping[str, float], *, level: float, replicates: int, seed: int
) -> list[Fix]:
    """The gain of each repair, fitted on ``val`` if given, else by cross-validation.

    Empty where there is nothing to fit or to repair: without logits, with few samples, or when all or none are right.
    ``values`` are the metrics before.
    """
    errors = found.sketch.summary().errors
    if found.holds == "confidence" or found.samples < FEWEST or errors in (0, found.samples):
        return []
    z, y = logits_of(found)
    folds = _folds(found)
    if val is None and len(np.unique(folds)) < 2:
        return []
    before = judge(z, y)
    temperatures, scaled = _scaled(z, y, folds, val)
    settings = {"level": level, "replicates": replicates, "seed": seed}
    change = _changes(found, before, judge(scaled, y), settings)
    how = _how(temperatures, "T", "{:.3g}", val)
    gained = [Fix("Temperature scaling", how, "ece_15", values["ece_15"], change["ece"])]
    if not found.impossible:
        gained.append(Fix("Temperature scaling", how, "nll", values["nll"], change["nll"]))
    ranked = _ranked(z, before, folds, val)
    first = Judged(before.confidence, before.correct, score=ranked.plain)
    second = Judged(before.confidence, before.correct, score=ranked.normalised)
    change = _changes(found, first, second, settings)
    how = _how(ranked.powers, "p", "{:.0f}", val, none="no p ranks better than the confidence")
    return [*gained, Fix("Logit normalisation", how, "aurc", values["aurc"], change["aurc"])]


def _changes(found: Collected, before: Judged, after: Judged, settings: dict[str, Any]) -> dict[str, Interval]:
    """Paired differences; without limits where samples are pixels, which are not independent."""
    change = paired_differences(before, after, **settings)
    if found.kind != "segmentation":
        return change
    return {name: Interval(one.value, math.nan, math.nan) for name, one in change.items()}


def judge(z: Array, y: Array) -> Judged:
    """Confidence, correctness, NLL and Brier score of each row."""
    tops = list(top_label_blocks(z, y, kind="logits"))
    names = ("confidence", "correct", "nll", "brier")
    return Judged(**{name: np.concatenate([getattr(top, name) for top in tops]) for name in names})


def _folds(found: Collected) -> npt.NDArray[np.int64]:
    """Fold of each kept row; pixels of an image stay together."""
    _, labels, image = found.logits.columns()
    return folds_of(image if found.kind == "segmentation" else np.arange(len(labels)))


def _scaled(z: Array, y: Array, folds: npt.NDArray[np.int64], val: Collected | None) -> tuple[list[float], Array]:
    """Temperatures, and the logits with each row scaled by one that was not fitted on it."""
    if val is not None:
        scaling = TemperatureScaling().fit(*logits_of(val))
        return [scaling.temperature_], scaling.transform(z)
    repaired = crossfit(TemperatureScaling, z, y, folds)
    return [one.temperature_ for one in repaired.fitted], repaired.logits


def _ranked(z: Array, before: Judged, folds: npt.NDArray[np.int64], val: Collected | None) -> Ranked:
    """Both scores as ranks, and the chosen powers."""
    scores = LogitNorm().scores(z)
    if val is None:
        return crossfit_ranks(before.confidence, scores, before.correct, folds)
    norm, plain = LogitNorm().fit(*logits_of(val)), rank_shares(before.confidence)
    return Ranked(plain, plain if norm.p_ is None else rank_shares(scores[norm.p_]), [norm.p_])


def _how(values: Sequence[float | None], letter: str, form: str, val: Collected | None, none: str = "") -> str:
    said = [none if value is None else f"{letter} = {form.format(value)}" for value in values]
    if val is not None:
        return f"{said[0]}, fitted on the validation data"
    known = [value for value in values if value is not None]
    if not known:
        return f"{none} in {FOLDS}-fold cross-validation"
    low, high = form.format(min(known)), form.format(max(known))
    spread = f"{letter} = {low}" if low == high else f"{letter} from {low} to {high}"
    missing = len(values) - len(known)
    fallback = f" ({missing} of {len(values)} folds fall back to MSP)" if missing else ""
    return f"{spread}, {FOLDS}-fold cross-validation{fallback}"
