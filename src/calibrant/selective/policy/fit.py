"""The fit of a policy: choose calibrator and score, find the threshold on other samples, and note the evidence."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant._progress import Progress, track
from calibrant.predictions import IGNORED, Digits, Predictions
from calibrant.selective.policy.evidence import CalibrationCheck, count_labels, describe_majority, is_poor
from calibrant.selective.policy.holdout import Fingerprint, ForChoice, for_choice, score_choice, score_for_threshold
from calibrant.selective.policy.reference import Reference
from calibrant.selective.policy.rule import Rule
from calibrant.selective.policy.selection import Selection, select
from calibrant.selective.policy.set_fitting import SetFit, with_counts
from calibrant.selective.promise import Promise
from calibrant.selective.scores import FORMULAS, Score
from calibrant.selective.sets.prediction_sets import SetTarget
from calibrant.selective.split import FEWEST_FOR_CHOICE, count_for_threshold, share_for_choice
from calibrant.selective.thresholds.classes import thresholds_by_class
from calibrant.selective.thresholds.images import threshold_over_images
from calibrant.selective.thresholds.mean_loss import threshold_of_promise
from calibrant.selective.thresholds.risk import abstaining
from calibrant.selective.thresholds.samples import ScoredSamples, ThresholdTarget, threshold_over_samples


@dataclass(frozen=True, eq=False)
class FitRequest:
    """What is asked of a fit, checked: the arguments of `Policy.fit`, those of promise and sets put together."""

    target: ThresholdTarget
    promise: Promise
    sets: SetTarget | None
    calibrator: str
    score: str
    centre: bool | None
    group: str | None
    seed: int

    @property
    def is_closed(self) -> bool:
        """Whether calibrator and score are given, so that nothing is left to choose."""
        return self.calibrator == "none" and self.score in FORMULAS

    def has_choice(self, samples: int) -> bool:
        """Whether calibrator or score are chosen: of few samples, only where something else than MSP is asked for."""
        is_default = self.calibrator in ("auto", "none") and self.score in ("auto", "msp")
        return not self.is_closed and (samples >= FEWEST_FOR_CHOICE or not is_default)

    def share_for_choice(self, predictions: Predictions) -> float:
        """The share of the samples that choose, or only plan the tests; 0 where all are for the threshold."""
        samples, has_sets = len(predictions), self.sets is not None and self.sets.has_choice
        chooses = self.has_choice(samples) or predictions.kind == "segmentation" or has_sets
        # Over images the tests are always planned on others, and with samples enough everywhere.
        is_planned = self.target.is_planned and self.promise.of not in ("recall", "expected-risk")
        if chooses or self.promise.of == "cost" or (samples >= FEWEST_FOR_CHOICE and is_planned):
            return share_for_choice(samples, plans_only=not chooses)
        return 0.0


def fit_rule(predictions: Predictions, request: FitRequest, progress: Progress) -> Rule:
    """Fit a policy in two passes over the predictions, and a third with sets."""
    samples, seed, is_segmentation = len(predictions), request.seed, predictions.kind == "segmentation"
    share = request.share_for_choice(predictions)
    choice, selection, floor = _choose(predictions, request, share, progress)
    rule = Rule(
        num_classes=int(predictions.num_classes),
        class_names=predictions.class_names,
        positive=predictions.positive,
        takes=predictions.holds,
        kind=predictions.kind,
        calibrator=selection.calibrator,
        score=selection.score,
        threshold=abstaining(request.target.method, request.target.risk, request.target.confidence),
        target_risk=request.target.risk,
        confidence=request.target.confidence,
        floor=floor,
        promise=request.promise,
    )
    plan = None if choice is None else score_choice(rule, choice)
    set_fit = None if request.sets is None else SetFit(rule, request.sets, choice)
    fingerprint, check, reference = Fingerprint(), CalibrationCheck(), Reference(seed)
    counts = np.zeros(rule.num_classes, np.int64)
    batches = track(predictions.batches(), "reading for the threshold", samples, progress, size=len)
    if set_fit is not None:
        batches = set_fit.observe(batches, seed, share)
    scored = score_for_threshold(
        rule, count_labels(batches, counts), seed, share, request.group, fingerprint, check, reference
    )
    rule = _with_threshold(rule, request, scored, plan, share)
    evidence = {
        "created": datetime.date.today().isoformat(),
        "samples": samples,
        "for_choice": 0 if choice is None else choice.samples,
        "for_threshold": count_for_threshold(seed, samples, share),
        "seed": seed,
        "fingerprint": str(fingerprint),
        "ignore_index": None if predictions.ignore_index == IGNORED else predictions.ignore_index,
        "majority": describe_majority(counts),
        "calibration": _calibration(check, selection, independent=not is_segmentation),
        "reference": reference.evidence(rule.limits_of, counts, request.promise.answer),
        **selection.evidence(),
    }
    rule = replace(rule, evidence=evidence)
    if set_fit is not None:
        rule = replace(rule, sets=set_fit.finish())
        batches = track(predictions.batches(), "reading for the sets", samples, progress, size=len)
        rule = replace(rule, sets=with_counts(rule, batches, seed, share))
    return rule


def _choose(
    predictions: Predictions, request: FitRequest, share: float, progress: Progress
) -> tuple[ForChoice | None, Selection, float]:
    """The samples of the choice, what is chosen on them, and the floor of the probabilities."""
    choice, selection = None, Selection(None, Score(request.score if request.is_closed else "msp"))
    digits = Digits(int(predictions.num_classes))
    if share:
        batches = track(predictions.batches(), "reading for the choice", len(predictions), progress, size=len)
        choice = for_choice(batches, request.seed, share, request.group, digits)
        if request.has_choice(len(predictions)):
            selection = select(
                choice, predictions.holds, request.calibrator, request.score, request.seed,
                floor=digits.floor, centre=request.centre,
            )  # fmt: skip
    if request.promise.score is not None:
        selection = replace(selection, score=request.promise.score, scores=())
    return choice, selection, digits.floor


def _with_threshold(
    rule: Rule, request: FitRequest, scored: Iterable[ScoredSamples], plan: ScoredSamples | None, share: float
) -> Rule:
    """The rule with its threshold, or those of groups or classes."""
    target, promise, group = request.target, request.promise, request.group
    rule = replace(rule, group=group)
    if rule.kind == "segmentation":
        assert plan is not None
        return replace(rule, threshold=threshold_over_images(scored, plan, target))
    if promise.is_plain:
        threshold, groups = threshold_over_samples(scored, plan, target, group, share)
        return replace(rule, threshold=threshold, groups=groups)
    samples = ScoredSamples.joined(scored)
    if promise.has_class_thresholds:
        threshold, classes = thresholds_by_class(samples, plan, promise, target, group, share, rule.class_names)
        return replace(rule, threshold=threshold, classes=classes)
    threshold, promise = threshold_of_promise(samples, plan, promise, target)
    return replace(rule, threshold=threshold, promise=promise)


def _calibration(check: CalibrationCheck, selection: Selection, *, independent: bool) -> dict[str, Any]:
    """The ECE before and after; where that is still poor, what would be better."""
    calibration = check.evidence(independent=independent)
    if is_poor(calibration):
        calibration["compared"] = len(selection.calibrators) > 2
        calibration["better"] = selection.better_calibrated() if independent else None
    return calibration
