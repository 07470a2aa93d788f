"""`Policy.fit`: choose on some samples, set the threshold on the others."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch

from calibrant.metrics.checks import choice as check_choice
from calibrant.metrics.checks import number_in
from calibrant.metrics.intervals import Interval, wilson
from calibrant.posthoc.ops import TorchOps
from calibrant.posthoc.stream import as_tensor, check_finite, chunks_of, rows_of
from calibrant.predictions import Predictions
from calibrant.selective.bounds import lower_limit, upper_limit
from calibrant.selective.choice import Chosen, choose
from calibrant.selective.formula import Score, decision
from calibrant.selective.images import limits_over_images, threshold_over_images
from calibrant.selective.planning import Scored, planned
from calibrant.selective.policy import Policy
from calibrant.selective.split import FEWEST, SHARE, Kept, draws, for_choice, values_of
from calibrant.selective.threshold import (
    Method,
    Threshold,
    abstaining,
    open_share,
    threshold_for_coverage,
    threshold_for_risk,
)

Doubles = npt.NDArray[np.float64]

FEWEST_TO_PLAN = 50  # rows of a group, below which the order of its tests is not planned on them


@dataclass(frozen=True)
class Settings:
    """The arguments of `Policy.fit`."""

    target_risk: float | None
    confidence: float
    target_coverage: float | None
    method: Method
    calibrator: str
    score: str
    group: str | None
    seed: int
    progress: Callable[[Iterable[Any], str], Iterable[Any]]

    def __post_init__(self) -> None:
        if (self.target_risk is None) == (self.target_coverage is None):
            raise ValueError("ask for a target risk or for a target coverage, not for both")
        if self.target_risk is not None:
            open_share("target_risk", self.target_risk)
        else:
            number_in("target_coverage", self.target_coverage or 0.0, 0.0, 1.0, open_low=True)
        open_share("confidence", self.confidence)
        check_choice("method", self.method, get_args(Method))
        if self.target_coverage is not None and self.group is not None:
            raise ValueError("thresholds by group are for a target risk; a target coverage has one threshold for all")


def fit_policy(predictions: Predictions, settings: Settings) -> Policy:
    """Fit a policy."""
    _check(predictions, settings)
    fixed = settings.calibrator == "none" and settings.score not in ("auto", "normalised_max_logit")
    free = settings.calibrator in ("auto", "none") and settings.score in ("auto", "msp")
    share = 0.0 if fixed or (free and len(predictions) < FEWEST) else SHARE
    kept, chosen = None, Chosen(None, Score(settings.score if fixed else "msp"), [], [])
    if share:
        reading = settings.progress(predictions.batches(), "reading for the choice")
        kept = for_choice(iter(reading), settings.seed, share, settings.group)
        chosen = choose(kept, predictions.holds, settings.calibrator, settings.score, settings.seed)
    policy = Policy(
        num_classes=int(predictions.num_classes),
        class_names=predictions.class_names,
        takes=predictions.holds,
        kind=predictions.kind,
        calibrator=chosen.calibrator,
        score=chosen.score,
        threshold=abstaining(settings.method, settings.target_risk, settings.confidence),
        target_risk=settings.target_risk,
        confidence=settings.confidence,
    )
    reading = settings.progress(predictions.batches(), "reading for the threshold")
    scored = _for_threshold(policy, iter(reading), settings, share)
    plan = None if kept is None else _scored(policy, kept)
    threshold, groups = _thresholds(scored, plan, settings)
    evidence = {
        "created": datetime.date.today().isoformat(),
        "samples": len(predictions),
        "for_choice": 0 if kept is None else len(np.unique(kept.unit)),
        "for_threshold": len(scored.score) if scored.images is None else len(np.unique(scored.images)),
        "seed": settings.seed,
        "calibrators": [one.to_dict() for one in chosen.calibrators],
        "scores": [one.to_dict() for one in chosen.scores],
    }
    return replace(policy, threshold=threshold, groups=groups, group=settings.group, evidence=evidence)


def _check(predictions: Predictions, settings: Settings) -> None:
    if not isinstance(predictions, Predictions):
        raise ValueError(
            f"a policy is fitted on Predictions, got {type(predictions).__name__}: Predictions.open reads a file, "
            "Predictions.from_logits takes arrays"
        )
    if predictions.split == "test":
        raise ValueError("nothing is fitted on test data: these predictions are marked split='test'")
    if predictions.holds == "confidence":
        raise ValueError("a policy needs logits or probabilities of every class, got confidences alone")
    if settings.group is not None and settings.group not in predictions.group_names:
        known = ", ".join(predictions.group_names) or "none"
        raise ValueError(f"group {settings.group!r} is not among the predictions' groups: {known}")
    if predictions.kind == "segmentation" and settings.group is not None:
        raise ValueError("thresholds by group are for classification; for segmentation there is one for all")
    if predictions.kind == "segmentation" and settings.method == "sgr":
        raise ValueError("sgr counts independent samples, and pixels are not; use best or fixed-sequence")


def _for_threshold(policy: Policy, batches: Iterator[Predictions], settings: Settings, share: float) -> Scored:
    """Scores and correctness of the samples that are not for the choice."""
    columns: list[tuple[Any, ...]] = []
    start = 0
    for batch in batches:
        rows = np.flatnonzero(draws(settings.seed, start, len(batch)) >= share)
        values, labels = values_of(batch)[rows], as_tensor(batch.labels)[rows].long()
        names = None if settings.group is None else np.asarray(batch.groups[settings.group]).astype(str)[rows]
        first = 0
        for part in chunks_of(values) if len(rows) else ():
            check_finite(part)
            held = slice(first, first + len(part))
            y = labels[held].reshape(-1)
            score, correct = _judged(policy, rows_of(part), y)
            units = np.repeat(rows[held] + start, len(y) // len(part))
            counted = np.ones(len(y), dtype=bool) if batch.ignore_index is None else (y != batch.ignore_index).numpy()
            columns.append(
                (score[counted], correct[counted], None if names is None else names[held][counted], units[counted])
            )
            first += len(part)
        start += len(batch)
    if not columns or not sum(len(column[0]) for column in columns):
        raise ValueError("no sample is left for the threshold: there are too few")
    scores, rights, groups, images = zip(*columns, strict=True)
    return Scored(
        np.concatenate(scores),
        np.concatenate(rights),
        None if settings.group is None else np.concatenate(groups),
        np.concatenate(images) if policy.kind == "segmentation" else None,
    )


def _judged(policy: Policy, z: torch.Tensor, y: torch.Tensor) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    found = decision(policy, TorchOps(z.device), z.double())
    return found.score.squeeze(1).numpy(), (found.label.squeeze(1) == y).numpy()


def _scored(policy: Policy, kept: Kept) -> Scored:
    """The choice's own rows, by which the order of the tests is planned."""
    parts = []
    for z, y in zip(chunks_of(kept.values), kept.labels.split(len(next(chunks_of(kept.values)))), strict=True):
        parts.append(_judged(policy, z, y))
    score, correct = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Scored(score, correct, kept.groups, kept.unit if policy.kind == "segmentation" else None)


def _thresholds(
    scored: Scored, plan: Scored | None, settings: Settings
) -> tuple[Threshold, dict[str, Threshold] | None]:
    if settings.target_risk is None:
        assert settings.target_coverage is not None
        found = threshold_for_coverage(
            scored.score, scored.correct, settings.target_coverage, confidence=settings.confidence
        )
        return (found if scored.images is None else limits_over_images(found, scored)), None
    if scored.images is not None:
        return threshold_over_images(scored, plan, settings.target_risk, settings.confidence, settings.method), None
    if scored.groups is None:
        return _one(scored, plan, settings, settings.target_risk, settings.confidence), None
    names = np.unique(scored.groups)
    each = 1 - (1 - settings.confidence) / len(names)
    groups = {}
    for name in names.tolist():
        part = _of_group(scored, name)
        own = None if plan is None else _of_group(plan, name)
        groups[name] = _one(part, own, settings, settings.target_risk, each)
    return _together(groups, settings), groups


def _of_group(scored: Scored, name: str) -> Scored:
    held = scored.groups == name
    return Scored(scored.score[held], scored.correct[held])


def _one(scored: Scored, plan: Scored | None, settings: Settings, risk: float, confidence: float) -> Threshold:
    """A threshold for one set of independent samples; the other samples say in which order to test."""
    method, candidates = settings.method, None
    if plan is not None and len(plan.score) >= FEWEST_TO_PLAN and method in ("best", "fixed-sequence"):
        candidates, better = planned(plan, len(scored.score), risk, 1 - confidence)
        method = better if method == "best" else method
    elif method == "best":
        method = "fixed-sequence"
    return threshold_for_risk(
        scored.score, scored.correct, risk, confidence=confidence, method=method,
        candidates=candidates if method == "fixed-sequence" else None,
    )  # fmt: skip


def _together(groups: dict[str, Threshold], settings: Settings) -> Threshold:
    """What the thresholds of all groups give together."""
    parts = list(groups.values())
    samples, accepted, errors = (sum(getattr(one, key) for one in parts) for key in ("samples", "accepted", "errors"))
    low, high = wilson(accepted, samples, settings.confidence)
    risk = Interval(math.nan, math.nan, math.nan)
    delta = 1 - settings.confidence
    if accepted:
        risk = Interval(
            errors / accepted, lower_limit(errors, accepted, delta / 2), upper_limit(errors, accepted, delta / 2)
        )
    silent = [name for name, one in groups.items() if one.abstains]
    reason = f"Accepts {accepted:,} of {samples:,} samples, {errors:,} of them wrong, over {len(groups)} groups."
    if silent:
        reason += f" Abstains always in {', '.join(silent)}."
    nothing = abstaining("by group", settings.target_risk, settings.confidence)
    coverage = Interval(accepted / samples, float(low), float(high))
    return replace(
        nothing, value=math.nan, samples=samples, accepted=accepted, errors=errors, coverage=coverage, risk=risk,
        reason=reason,
    )  # fmt: skip
