"""The fit of a policy: what is asked, read and checked; then calibrator and score, the threshold, and the evidence."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from calibrant.base.arrays import Array, cache_chunks, class_rows, row_slices, take_rows
from calibrant.base.checks import Bools, Ints, check_finite, check_flag, check_number
from calibrant.base.progress import Progress, track
from calibrant.metrics import Doubles
from calibrant.policy.evidence import FitNotes, describe_cheapest, describe_majority, find_idle_promises, is_poor
from calibrant.policy.prediction_sets import SetFit, count_sets
from calibrant.policy.rule import Rule, decision_formula
from calibrant.policy.selection import ORDER_KEEPING, ChoiceSamples, Selection, collect_choice, group_names, select
from calibrant.posthoc import NumpyOps, msp_formula
from calibrant.posthoc.scores import FORMULAS, Score
from calibrant.predictions import IGNORED, Digits, Predictions, check_group, log_probabilities
from calibrant.promises.bounds import check_open_share
from calibrant.promises.images import threshold_over_images
from calibrant.promises.mean_loss import threshold_of_promise
from calibrant.promises.parts import ScoredSamples, ThresholdTarget, threshold_over_samples, thresholds_by_class
from calibrant.promises.promise import LARGEST_COST, Promise, check_costs, parse_promises
from calibrant.promises.sets import SetTarget
from calibrant.promises.split import (
    FEWEST_FOR_CHOICE,
    FEWEST_FOR_SCORE,
    count_for_threshold,
    draw_uniform,
    share_for_choice,
)
from calibrant.promises.thresholds import abstaining_threshold


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

    def tests_all(self, predictions: Predictions) -> bool:
        """Whether all samples set the threshold: they are few, and what is tested does not depend on the choice.

        The score is fixed beforehand, and no calibrator that may be chosen changes an answer.
        """
        few = len(predictions) < FEWEST_FOR_SCORE and predictions.kind == "classification"
        keeps_answers = self.calibrator in ("auto", "none", *ORDER_KEEPING)
        return few and keeps_answers and self.score in ("auto", *FORMULAS) and self.promise.score is None

    def share_for_choice(self, predictions: Predictions) -> float:
        """The share of the samples that choose, or only plan the tests; 0 where nothing is chosen."""
        samples, has_sets = len(predictions), self.sets is not None and self.sets.has_choice
        chooses = self.has_choice(samples) or predictions.kind == "segmentation" or has_sets
        # Over images the tests are always planned on others, and with samples enough everywhere.
        is_planned = self.target.is_planned and self.promise.of not in ("recall", "expected-risk")
        is_planned &= samples >= FEWEST_FOR_CHOICE and not self.tests_all(predictions)
        if chooses or self.promise.of == "cost" or is_planned:
            return share_for_choice(samples, plans_only=not chooses)
        return 0.0


def read_promise(
    predictions: Predictions,
    promise: str | Sequence[str] | None = None,
    by_class: bool = False,
    costs: Any = None,
    target_cost: float | None = None,
    abstain_cost: float | None = None,
) -> Promise:
    """The promise asked for; that of a risk where nothing else is."""
    check_flag("by_class", by_class)
    arguments = {"promise": promise is not None, "by_class": by_class, "costs": costs is not None}
    names = [name for name, is_given in arguments.items() if is_given]
    if len(names) > 1:
        raise ValueError(f"{names[0]} and {names[1]} are different promises: give one of them")
    for name, value in (("target_cost", target_cost), ("abstain_cost", abstain_cost)):
        if value is not None and costs is None:
            raise ValueError(f"{name} goes with a cost matrix: give costs")
    if not names:
        return Promise()
    if predictions.kind == "segmentation":
        raise ValueError(f"{names[0]} is for classification; for segmentation the risk of all pixels is promised")
    if by_class:
        return Promise(by_class=True)
    classes = int(predictions.num_classes)
    if promise is not None:
        return parse_promises(promise, predictions.class_names, classes)
    matrix = check_costs(costs, classes)
    highest = float(matrix.max())
    if target_cost is None:
        raise ValueError(f"costs need target_cost, the mean cost of answers allowed: between 0 and {highest:g}")
    target = check_number("target_cost", target_cost, 0.0, highest)
    check_open_share("target_cost over the highest cost", target / highest)
    if abstain_cost is not None:
        abstain_cost = check_number("abstain_cost", abstain_cost, 0.0, LARGEST_COST)
    return Promise("cost", target=target, costs=tuple(map(tuple, matrix.tolist())), abstain_cost=abstain_cost)


def check_compatible(
    promise: Promise, target_risk: float | None, target_coverage: float | None, method: str, score: str, group: Any
) -> None:
    """Raise unless the other arguments of a fit go with the promise."""
    if promise.is_plain:
        return
    title = "thresholds by class" if promise.by_class else f"a promise of {promise.of.replace('-', ' ')}"
    if target_coverage is not None:
        raise ValueError(f"target_coverage does not go with {title}, which decides how much is answered")
    if target_risk is not None and not promise.by_class:
        raise ValueError(f"target_risk does not go with {title}: it says itself what is promised")
    if method not in ("best", "fixed-sequence" if promise.of in ("risk", "precision", "cost") else "best"):
        raise ValueError(f"{title} has a test of its own, got method {method!r}")
    if score != "auto" and promise.score is not None:
        raise ValueError(f"{title} ranks answers by the {promise.score.words}, got score {score!r}")
    if group is not None and not promise.has_class_thresholds:
        raise ValueError(f"thresholds by group are for a risk or a precision, got {title}")


def read_set_target(
    predictions: Predictions,
    level: float | None,
    method: str,
    penalty: float | None,
    free_ranks: int | None,
    randomised: bool,
    seed: int,
) -> SetTarget | None:
    """The prediction sets asked for, checked."""
    if level is None:
        if (method, penalty, free_ranks, randomised) != ("lac", None, None, False):
            raise ValueError("set_method and the other settings of sets go with a level: give sets, for example 0.95")
        return None
    target = SetTarget(level, method, penalty, free_ranks, randomised, seed)
    if predictions.kind == "segmentation":
        raise ValueError("prediction sets are for classification: pixels of an image are not exchangeable samples")
    return target


def check_fittable(predictions: Predictions) -> None:
    """Raise unless a policy can be fitted on these predictions."""
    if not isinstance(predictions, Predictions):
        raise ValueError(
            f"a policy is fitted on Predictions, got {type(predictions).__name__}: Predictions.open reads a file, "
            "Predictions.from_logits takes arrays"
        )
    if predictions.split == "test":
        raise ValueError("nothing is fitted on test data: these predictions are marked split='test'")
    if not predictions.labelled:
        raise ValueError("a policy is fitted on labelled predictions, and these have no labels")
    if predictions.kind == "tokens":
        raise ValueError("a policy is for independent samples or for images, got tokens, for which there is none yet")
    if predictions.holds == "confidence":
        raise ValueError("a policy needs logits or probabilities of every class, got confidences alone")


def check_arguments(predictions: Predictions, target: ThresholdTarget, score: str, group: str | None) -> None:
    """Raise unless group, score and method go with the predictions and the target."""
    if target.coverage is not None and group is not None:
        raise ValueError("thresholds by group are for a target risk, a target coverage has one for all")
    if group is not None:
        check_group(predictions, group)
    if predictions.kind == "segmentation" and group is not None:
        raise ValueError("thresholds by group are for classification; for segmentation there is one for all")
    if predictions.holds == "probabilities" and score == "energy":
        raise ValueError("energy needs logits: for probabilities, which sum to 1, it is always 0")
    if predictions.kind == "segmentation" and target.method == "sgr":
        raise ValueError("sgr assumes independent samples, which pixels are not; use best or fixed-sequence")


def fit_rule(predictions: Predictions, request: FitRequest, progress: Progress) -> Rule:
    """Fit a policy in two passes over the predictions, and a third with sets."""
    samples, seed = len(predictions), request.seed
    tests_all = request.tests_all(predictions)
    if tests_all and request.score == "auto":
        request = replace(request, score="msp")
    share = request.share_for_choice(predictions)
    share_untested = 0.0 if tests_all else share
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
    plan = None if choice is None or tests_all else score_choice(rule, choice)
    set_fit = None if request.sets is None else SetFit(rule, request.sets, choice)
    notes = FitNotes(rule.num_classes, seed)
    batches = track(predictions.batches(), "reading for the threshold", samples, progress, size=len)
    scored = _score_for_threshold(rule, request, batches, share, tests_all, notes, set_fit)
    rule = _add_threshold(rule, request, scored, plan, share_untested)
    is_independent = rule.kind != "segmentation"
    calibration = notes.calibration.evidence(independent=is_independent)
    if is_poor(calibration):
        calibration["compared"] = len(selection.calibrators) > 2
        calibration["better"] = selection.better_calibrated() if is_independent else None
    evidence = {
        **rule.evidence,
        "created": datetime.date.today().isoformat(),
        "samples": samples,
        "for_choice": 0 if choice is None else choice.samples,
        "for_threshold": count_for_threshold(seed, samples, share_untested),
        "seed": seed,
        "fingerprint": str(notes.fingerprint),
        "ignore_index": None if predictions.ignore_index == IGNORED else predictions.ignore_index,
        "majority": describe_majority(notes.labels),
        "zero_class": notes.zero_class,
        "calibration": calibration,
        "reference": notes.reference.evidence(rule.limits_of, notes.labels, request.promise.answer),
        **selection.evidence(),
    }
    if request.promise.costs is not None:
        evidence["cheapest"] = describe_cheapest(notes.labels, request.promise.cost_matrix)
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
                floor=digits.floor, centre=request.centre, keep_answers=request.tests_all(predictions),
            )  # fmt: skip
    if request.promise.score is not None:
        selection = replace(selection, score=request.promise.score, scores=())
    return choice, selection, digits.floor


def _add_threshold(
    rule: Rule, request: FitRequest, scored: Iterable[ScoredSamples], plan: ScoredSamples | None, share: float
) -> Rule:
    """The rule with its threshold, or those of groups or classes, and the answer if all answers are the same."""
    if rule.kind == "segmentation":
        assert plan is not None
        return replace(rule, threshold=threshold_over_images(scored, plan, request.target))
    samples = ScoredSamples.join(scored)
    rule = _set_thresholds(rule, request, samples, plan, share)
    answers = samples.predicted[samples.score >= rule.limits_of(samples.groups, samples.predicted)]
    is_same = bool(len(answers) and (answers == answers[0]).all())
    evidence: dict[str, Any] = {"only_answer": int(answers[0]) if is_same else None}
    promised = {label: 1 - share for label, share in request.promise.shares} or request.target.risk
    if request.group is not None and promised is not None:
        evidence["idle"] = find_idle_promises(samples.groups, samples.labels, promised)
    return replace(rule, evidence=evidence)


def _set_thresholds(
    rule: Rule, request: FitRequest, samples: ScoredSamples, plan: ScoredSamples | None, share: float
) -> Rule:
    """The rule with its threshold, or those of groups or classes, over independent samples."""
    target, promise, group = request.target, request.promise, request.group
    if promise.is_plain:
        threshold, groups = threshold_over_samples(samples, plan, target, group, share)
        return replace(rule, threshold=threshold, groups=groups, group=group)
    if promise.has_class_thresholds:
        threshold, classes = thresholds_by_class(samples, plan, promise, target, group, share, rule.class_names)
        of_classes = tuple(int((samples.labels == label).sum()) for label, _ in promise.shares)
        promise = replace(promise, class_samples=of_classes)
        return replace(rule, threshold=threshold, classes=classes, group=group, promise=promise)
    threshold, promise = threshold_of_promise(samples, plan, promise, target, rule.class_names)
    return replace(rule, threshold=threshold, promise=promise)


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
    tests_all: bool,
    notes: FitNotes,
    set_fit: SetFit | None,
) -> Iterator[ScoredSamples]:
    """The scores of the samples for the threshold, some at a time; ``notes`` and ``set_fit`` are updated on the way.

    These two are of the samples that chose nothing, also where those that chose are for the threshold as well.
    """
    start = 0
    for batch in batches:
        notes.add_batch(batch)
        chose_nothing = draw_uniform(request.seed, start, len(batch)) >= share
        rows = np.arange(len(batch)) if tests_all else np.flatnonzero(chose_nothing)
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
            image = np.repeat(np.arange(len(part)), image_size)[counted]
            groups = names[chunk][image]
            fresh = chose_nothing[rows[chunk]][image]
            new = take_rows(judged, fresh) if tests_all else judged
            notes.calibration.add((new.plain_confidence, new.plain_correct), (new.confidence, new.correct))
            if rule.kind == "classification":
                notes.reference.add(new.score, new.confidence, new.predicted, groups[fresh], y[counted][fresh])
            if set_fit is not None:
                set_fit.add((start + rows[chunk])[counted][fresh], new.probabilities, y[counted][fresh])
            needs_labels = request.group is not None or not rule.promise.is_plain
            classes = (judged.predicted, y[counted]) if needs_labels else (judged.predicted,)
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
