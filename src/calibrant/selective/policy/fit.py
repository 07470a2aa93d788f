"""The fit of a policy: choose calibrator and score, find the threshold on other samples, and note the evidence."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from calibrant._arrays import Array, cache_chunks, class_rows, row_slices, take_rows
from calibrant._progress import Progress, track
from calibrant._validation import Bools, Ints, check_finite
from calibrant.metrics import Doubles
from calibrant.posthoc import NumpyOps, msp_formula
from calibrant.predictions import IGNORED, Digits, Predictions, log_probabilities
from calibrant.selective.policy.decision import decision_formula
from calibrant.selective.policy.evidence import CalibrationCheck, FitNotes, describe_majority, is_poor
from calibrant.selective.policy.request import FitRequest
from calibrant.selective.policy.rule import Rule
from calibrant.selective.policy.selection import ChoiceSamples, Selection, collect_choice, group_names, select
from calibrant.selective.policy.set_fitting import SetFit, count_sets
from calibrant.selective.scores import Score
from calibrant.selective.split import count_for_threshold, draw_uniform
from calibrant.selective.thresholds.images import threshold_over_images
from calibrant.selective.thresholds.mean_loss import threshold_of_promise
from calibrant.selective.thresholds.risk import abstaining_threshold
from calibrant.selective.thresholds.samples import ScoredSamples, threshold_over_samples, thresholds_by_class


def fit_rule(predictions: Predictions, request: FitRequest, progress: Progress) -> Rule:
    """Fit a policy in two passes over the predictions, and a third with sets."""
    samples, seed = len(predictions), request.seed
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
        threshold=abstaining_threshold(request.target.method, request.target.risk, request.target.confidence),
        target_risk=request.target.risk,
        confidence=request.target.confidence,
        floor=floor,
        promise=request.promise,
    )
    plan = None if choice is None else score_choice(rule, choice)
    set_fit = None if request.sets is None else SetFit(rule, request.sets, choice)
    notes = FitNotes(rule.num_classes, seed)
    batches = track(predictions.batches(), "reading for the threshold", samples, progress, size=len)
    scored = _score_for_threshold(rule, request, batches, share, notes, set_fit)
    rule = _add_threshold(rule, request, scored, plan, share)
    evidence = {
        "created": datetime.date.today().isoformat(),
        "samples": samples,
        "for_choice": 0 if choice is None else choice.samples,
        "for_threshold": count_for_threshold(seed, samples, share),
        "seed": seed,
        "fingerprint": str(notes.fingerprint),
        "ignore_index": None if predictions.ignore_index == IGNORED else predictions.ignore_index,
        "majority": describe_majority(notes.labels),
        "calibration": _describe_calibration(notes.calibration, selection, independent=rule.kind != "segmentation"),
        "reference": notes.reference.evidence(rule.limits_of, notes.labels, request.promise.answer),
        **selection.evidence(),
    }
    rule = replace(rule, evidence=evidence)
    if set_fit is not None:
        rule = replace(rule, sets=set_fit.finish())
        batches = track(predictions.batches(), "reading for the sets", samples, progress, size=len)
        rule = replace(rule, sets=count_sets(rule, batches, seed, share))
    return rule


def _choose(
    predictions: Predictions, request: FitRequest, share: float, progress: Progress
) -> tuple[ChoiceSamples | None, Selection, float]:
    """The samples of the choice, what is chosen on them, and the floor of the probabilities."""
    choice, selection = None, Selection(None, Score(request.score if request.is_closed else "msp"))
    digits = Digits(int(predictions.num_classes))
    if share:
        batches = track(predictions.batches(), "reading for the choice", len(predictions), progress, size=len)
        choice = collect_choice(batches, request.seed, share, request.group, digits)
        if request.has_choice(len(predictions)):
            selection = select(
                choice, predictions.holds, request.calibrator, request.score, request.seed,
                floor=digits.floor, centre=request.centre,
            )  # fmt: skip
    if request.promise.score is not None:
        selection = replace(selection, score=request.promise.score, scores=())
    return choice, selection, digits.floor


def _add_threshold(
    rule: Rule, request: FitRequest, scored: Iterable[ScoredSamples], plan: ScoredSamples | None, share: float
) -> Rule:
    """The rule with its threshold, or those of groups or classes."""
    target, promise, group = request.target, request.promise, request.group
    if rule.kind == "segmentation":
        assert plan is not None
        return replace(rule, threshold=threshold_over_images(scored, plan, target))
    samples = ScoredSamples.join(scored)
    if promise.is_plain:
        threshold, groups = threshold_over_samples(samples, plan, target, group, share)
        return replace(rule, threshold=threshold, groups=groups, group=group)
    if promise.has_class_thresholds:
        threshold, classes = thresholds_by_class(samples, plan, promise, target, group, share, rule.class_names)
        return replace(rule, threshold=threshold, classes=classes, group=group)
    threshold, promise = threshold_of_promise(samples, plan, promise, target)
    return replace(rule, threshold=threshold, promise=promise)


def _describe_calibration(check: CalibrationCheck, selection: Selection, *, independent: bool) -> dict[str, Any]:
    """The ECE before and after; where that is still poor, what would be better."""
    calibration = check.evidence(independent=independent)
    if is_poor(calibration):
        calibration["compared"] = len(selection.calibrators) > 2
        calibration["better"] = selection.better_calibrated() if independent else None
    return calibration


def score_choice(rule: Rule, choice: ChoiceSamples) -> ScoredSamples:
    """The scores of the samples for the choice, by which the order of the tests is planned."""
    values, labels, unit, _, groups = choice.rows
    parts = [_judge(rule, values[rows], labels[rows]) for rows in row_slices(len(values), values.shape[1])]
    score, correct, predicted = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("score", "correct", "predicted")
    )
    distinct, image = np.unique(unit, return_inverse=True)
    return ScoredSamples(score, correct, groups, image, len(distinct), choice.image_size, predicted, labels)


def _score_for_threshold(
    rule: Rule,
    request: FitRequest,
    batches: Iterable[Predictions],
    share: float,
    notes: FitNotes,
    set_fit: SetFit | None,
) -> Iterator[ScoredSamples]:
    """The scores of the samples for the threshold, some at a time; ``notes`` and ``set_fit`` are updated on the way."""
    start = 0
    for batch in batches:
        notes.add_batch(batch)
        rows = np.flatnonzero(draw_uniform(request.seed, start, len(batch)) >= share)
        values, labels = getattr(batch, batch.holds)[rows], batch.labels[rows]
        names = group_names(batch, request.group, rows)
        offset = 0
        for part in cache_chunks(values) if len(rows) else ():
            chunk = slice(offset, offset + len(part))
            check_finite(part)
            y = labels[chunk].reshape(-1)
            image_size = len(y) // len(part)
            counted = np.ones(len(y), dtype=bool) if batch.ignore_index is None else y != batch.ignore_index
            judged = _judge(rule, class_rows(part), y)
            judged = judged if counted.all() else take_rows(judged, counted)
            notes.calibration.add((judged.plain_confidence, judged.plain_correct), (judged.confidence, judged.correct))
            image = np.repeat(np.arange(len(part)), image_size)[counted]
            groups = names[chunk][image]
            if rule.kind == "classification":
                notes.reference.add(judged.score, judged.confidence, judged.predicted, groups)
            if set_fit is not None:
                set_fit.add((start + rows[chunk])[counted], judged.probabilities, y[counted])
            classes = () if rule.promise.is_plain else (judged.predicted, y[counted])
            yield ScoredSamples(judged.score, judged.correct, groups, image, len(part), image_size, *classes)
            offset += len(part)
        start += len(batch)


class _JudgedRows(NamedTuple):
    """Rows ``[n]`` as the policy judges them, probabilities ``[n, C]``; ``plain``: without its calibrator."""

    score: Doubles
    correct: Bools
    confidence: Doubles
    predicted: Ints
    plain_confidence: Doubles
    plain_correct: Bools
    probabilities: Doubles


def _judge(rule: Rule, values: Array, labels: Array) -> _JudgedRows:
    rows = values.astype(np.float64)
    answer = decision_formula(rule, NumpyOps(), rows)
    confidence, correct = np.clip(answer.confidence[:, 0], 0.0, 1.0), answer.label[:, 0] == labels
    plain = confidence, correct
    if rule.calibrator is not None:
        z = rows if rule.takes == "logits" else log_probabilities(rows, rule.floor)
        plain = np.clip(msp_formula(NumpyOps(), z)[:, 0], 0.0, 1.0), rows.argmax(1) == labels
    return _JudgedRows(answer.score[:, 0], correct, confidence, answer.label[:, 0], *plain, answer.probabilities)
