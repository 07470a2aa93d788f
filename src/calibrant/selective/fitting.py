"""`Policy.fit`: choose on some samples, set the threshold on the others."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Array, cache_chunks, class_rows, row_slices
from calibrant._validation import LARGEST_SEED, check_finite, number_in, whole
from calibrant._validation import choice as check_choice
from calibrant.metrics import Interval, wilson
from calibrant.posthoc import NumpyOps
from calibrant.predictions import Predictions
from calibrant.selective.bounds import lower_limit, upper_limit
from calibrant.selective.choice import Chosen, choose
from calibrant.selective.formula import Score, decision
from calibrant.selective.images import ImageCounts, coverage_over_images, first_test, threshold_over_images
from calibrant.selective.planning import Scored, candidates_of, threshold_planned
from calibrant.selective.policy import Policy
from calibrant.selective.policy_file import check_policy
from calibrant.selective.scores import FORMULAS
from calibrant.selective.split import FEWEST, SHARE, Fingerprint, Kept, draws, for_choice, number_above, values_of
from calibrant.selective.threshold import (
    STEPS,
    Method,
    Threshold,
    abstaining,
    of_all_samples,
    open_share,
    threshold_for_coverage,
)
from calibrant.selective.words import some_names

Doubles = npt.NDArray[np.float64]

FINE_STEPS = 512  # candidates over images where none is tested
MOST_GROUPS = 1000
FEWEST_OF_GROUP = 200  # rows of the choice, from which on a group's tests are planned on its own


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

    def checked(self) -> Settings:
        """The same as plain Python values, or one sentence about what is wrong."""
        if (self.target_risk is None) == (self.target_coverage is None):
            raise ValueError("ask for a target risk or for a target coverage, not for both")
        check_choice("method", self.method, get_args(Method))
        if self.target_coverage is not None:
            if self.group is not None:
                raise ValueError("thresholds by group are for a target risk, a target coverage has one for all")
            if self.method != "best":
                raise ValueError(f"method is for a target risk, got {self.method!r} with a target coverage")
        return replace(
            self,
            target_risk=None if self.target_risk is None else open_share("target_risk", self.target_risk),
            target_coverage=(
                None
                if self.target_coverage is None
                else number_in("target_coverage", self.target_coverage, 0.0, 1.0, open_low=True)
            ),
            confidence=open_share("confidence", self.confidence),
            seed=whole("seed", self.seed, 0, LARGEST_SEED),
        )


def fit_policy(predictions: Predictions, settings: Settings) -> Policy:
    """Fit a policy."""
    settings = settings.checked()
    _check(predictions, settings)
    closed = settings.calibrator == "none" and settings.score in FORMULAS
    by_default = settings.calibrator in ("auto", "none") and settings.score in ("auto", "msp")
    chooses = not closed and (len(predictions) >= FEWEST or not by_default)
    # Over images the tests are always planned on others, also where there is nothing to choose.
    share = SHARE if chooses or predictions.kind == "segmentation" else 0.0
    kept, chosen = None, Chosen(None, Score(settings.score if closed else "msp"), [], [])
    if share:
        reading = settings.progress(predictions.batches(), "reading for the choice")
        kept = for_choice(iter(reading), settings.seed, share, settings.group)
    if kept is not None and chooses:
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
    plan = None if kept is None else _scored(policy, kept)
    reading = settings.progress(predictions.batches(), "reading for the threshold")
    fingerprint = Fingerprint()
    judged = _judged_batches(policy, iter(reading), settings, share, fingerprint)
    if policy.kind == "segmentation":
        assert plan is not None
        threshold, groups = _over_images(judged, plan, settings), None
    else:
        threshold, groups = _over_samples(judged, plan, settings, share)
    evidence = {
        "created": datetime.date.today().isoformat(),
        "samples": len(predictions),
        "for_choice": 0 if kept is None else len(np.unique(kept.unit)),
        "for_threshold": number_above(settings.seed, len(predictions), share),
        "seed": settings.seed,
        "fingerprint": str(fingerprint),
        "ignore_index": predictions.ignore_index,
        "calibrators": [one.to_dict() for one in chosen.calibrators],
        "scores": [one.to_dict() for one in chosen.scores],
    }
    policy = replace(policy, threshold=threshold, groups=groups, group=settings.group, evidence=evidence)
    try:
        check_policy(policy)
    except ValueError as error:
        raise ValueError(f"no policy can be made of these predictions: {error}") from None
    return policy


def _check(predictions: Predictions, settings: Settings) -> None:
    if not isinstance(predictions, Predictions):
        raise ValueError(
            f"a policy is fitted on Predictions, got {type(predictions).__name__}: Predictions.open reads a file, "
            "Predictions.from_logits takes arrays"
        )
    if predictions.split == "test":
        raise ValueError("nothing is fitted on test data: these predictions are marked split='test'")
    if not predictions.labelled:
        raise ValueError("a policy is fitted on labelled predictions, and these have no labels")
    if predictions.holds == "confidence":
        raise ValueError("a policy needs logits or probabilities of every class, got confidences alone")
    if settings.group is not None and settings.group not in predictions.group_names:
        known = ", ".join(predictions.group_names) or "none"
        raise ValueError(f"group {settings.group!r} is not among the predictions' groups: {known}")
    if predictions.kind == "segmentation" and settings.group is not None:
        raise ValueError("thresholds by group are for classification; for segmentation there is one for all")
    if predictions.holds == "probabilities" and settings.score == "energy":
        raise ValueError("energy is of logits: of probabilities, which sum to 1, it is always 0")
    if predictions.kind == "segmentation" and settings.method == "sgr":
        raise ValueError("sgr counts independent samples, and pixels are not; use best or fixed-sequence")


def _judged_batches(
    policy: Policy, batches: Iterator[Predictions], settings: Settings, share: float, fingerprint: Fingerprint
) -> Iterator[tuple[Scored, int]]:
    """Scores and correctness of the samples that are not for the choice, some at a time, with how many samples."""
    start = 0
    for batch in batches:
        fingerprint.add(batch)
        rows = np.flatnonzero(draws(settings.seed, start, len(batch)) >= share)
        values, labels = values_of(batch)[rows], batch.labels[rows]
        names = None if settings.group is None else np.asarray(batch.groups[settings.group]).astype(str)[rows]
        first = 0
        for part in cache_chunks(values) if len(rows) else ():
            check_finite(part)
            y = labels[first : first + len(part)].reshape(-1)
            score, correct = _judged(policy, class_rows(part), y)
            places = len(y) // len(part)
            keep = np.ones(len(y), dtype=bool) if batch.ignore_index is None else y != batch.ignore_index
            own = None if names is None else names[first : first + len(part)][keep]
            number = np.repeat(np.arange(len(part)), places)[keep]
            yield Scored(score[keep], correct[keep], own, number, places), len(part)
            first += len(part)
        start += len(batch)


def _judged(policy: Policy, z: Array, y: Array) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    answer = decision(policy, NumpyOps(), z.astype(np.float64))
    return answer.score[:, 0], answer.label[:, 0] == y


def _scored(policy: Policy, kept: Kept) -> Scored:
    """The choice's own rows, by which the order of the tests is planned."""
    chunks = row_slices(len(kept.values), kept.values.shape[1])
    parts = [_judged(policy, kept.values[rows], kept.labels[rows]) for rows in chunks]
    score, correct = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Scored(score, correct, kept.groups, kept.unit, kept.places)


def _over_images(judged: Iterator[tuple[Scored, int]], plan: Scored, settings: Settings) -> Threshold:
    """A threshold for pixels; only counts for each image and candidate are kept."""
    tested = settings.target_risk is not None and settings.method != "empirical"
    candidates, _, _ = candidates_of(plan, STEPS if tested else FINE_STEPS)
    counts: ImageCounts | None = None
    for part, images in judged:
        counts = ImageCounts(candidates, part.places) if counts is None else counts
        assert part.images is not None
        counts.add(part.score, part.correct, part.images, images)
    if counts is None or not counts.pixels:
        raise ValueError("no pixel that counts is left for the threshold: there are too few images")
    if settings.target_risk is None:
        assert settings.target_coverage is not None
        return coverage_over_images(counts, settings.target_coverage, settings.confidence)
    first = first_test(plan, candidates, settings.target_risk) if tested else 0
    return threshold_over_images(counts, first, settings.target_risk, settings.confidence, settings.method)


def _over_samples(
    judged: Iterator[tuple[Scored, int]], plan: Scored | None, settings: Settings, share: float
) -> tuple[Threshold, dict[str, Threshold] | None]:
    """A threshold for all samples, or one for each group."""
    parts = [part for part, _ in judged]
    if not sum(len(part.score) for part in parts):
        raise ValueError("no sample that counts is left for the threshold: there are too few")
    score, correct = (np.concatenate([getattr(part, key) for part in parts]) for key in ("score", "correct"))
    names = None if settings.group is None else np.concatenate([part.groups for part in parts])
    scored = Scored(score, correct, names)
    if settings.target_risk is None:
        assert settings.target_coverage is not None
        wanted = settings.target_coverage
        return threshold_for_coverage(score, correct, wanted, confidence=settings.confidence), None
    asked = settings.target_risk, settings.confidence, settings.method
    if names is None:
        return of_all_samples(threshold_planned(scored, plan, *asked), share), None
    distinct = np.unique(names)
    if len(distinct) > MOST_GROUPS:
        raise ValueError(
            f"group {settings.group!r} has {len(distinct):,} different values, over {MOST_GROUPS:,}: it does not name "
            "groups"
        )
    each = 1 - (1 - settings.confidence) / len(distinct)
    groups = {}
    for name in distinct.tolist():
        own = None if plan is None else _of_group(plan, name)
        # Few rows of its own say less about where to test than all rows do.
        own = own if own is not None and len(own.score) >= FEWEST_OF_GROUP else plan
        found = threshold_planned(_of_group(scored, name), own, settings.target_risk, each, settings.method)
        groups[name] = of_all_samples(found, share)
    return _together(groups, settings), groups


def _of_group(scored: Scored, name: str) -> Scored:
    held = scored.groups == name
    return Scored(scored.score[held], scored.correct[held])


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
        reason += f" Abstains always in {some_names(silent)}."
    sure = None if settings.method == "empirical" else settings.confidence
    nothing = abstaining("by group", settings.target_risk, sure)
    coverage = Interval(accepted / samples, float(low), float(high))
    return replace(
        nothing, value=math.nan, samples=samples, accepted=accepted, errors=errors, coverage=coverage, risk=risk,
        reason=reason,
    )  # fmt: skip
