"""The fit of a policy: what is asked, read and checked; then calibrator and score, the threshold, and the evidence."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypedDict

import numpy as np

from calibrant.base.arrays import Array, cache_chunks, class_rows, row_slices, take_rows
from calibrant.base.checks import LARGEST_SEED, Bools, Ints, check_finite, check_flag, check_integer
from calibrant.base.files import json_value
from calibrant.base.progress import Progress
from calibrant.metrics import Doubles
from calibrant.policy.evidence import FitNotes, describe_majority, find_idle_promises, is_poor
from calibrant.policy.formula import decision_formula
from calibrant.policy.policy import Policy
from calibrant.policy.prediction_sets import SetFit, count_sets
from calibrant.policy.selection import ORDER_KEEPING, ChoiceSamples, Selection, collect_choice, group_names, select
from calibrant.posthoc import NORMALISED, NumpyOps, msp_formula
from calibrant.posthoc.scores import FORMULAS, Score
from calibrant.predictions import (
    IGNORED,
    Digits,
    PassEngine,
    Piece,
    Predictions,
    check_group,
    log_probabilities,
    refuse_weights,
    resolve_repeats,
)
from calibrant.predictions.stores import GRAIN
from calibrant.promises import Cost, Promise, Risk, Sets, parse_promises
from calibrant.promises.parts import ScoredSamples, ThresholdData, ThresholdTarget
from calibrant.promises.split import (
    FEWEST_FOR_CHOICE,
    FEWEST_FOR_SCORE,
    count_for_threshold,
    draw_uniform,
    share_for_choice,
)
from calibrant.promises.thresholds import Method, abstaining_threshold


class Shortcuts(TypedDict, total=False):
    """What may be asked of a fit by words of its own, instead of by a promise or by sets."""

    target_risk: float | None
    target_coverage: float | None
    by_class: bool
    costs: Any
    target_cost: float | None
    abstain_cost: float | None
    group: str | None
    set_method: str
    set_penalty: float | None
    set_free_ranks: int | None
    set_randomised: bool


@dataclass(frozen=True, eq=False)
class FitRequest:
    """What is asked of a fit, checked: the arguments of `Policy.fit` as a promise, sets and the rest."""

    promise: Promise
    target: ThresholdTarget
    sets: Sets | None
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

    def tests_all(self, samples: int, kind: str) -> bool:
        """Whether all samples set the threshold: they are few, and what is tested does not depend on the choice.

        The score is fixed beforehand, and no calibrator that may be chosen changes an answer.
        """
        few = samples < FEWEST_FOR_SCORE and kind == "classification"
        keeps_answers = self.calibrator in ("auto", "none", *ORDER_KEEPING)
        return few and keeps_answers and self.score in ("auto", *FORMULAS) and self.promise.score is None

    def share_for_choice(self, samples: int, kind: str) -> float:
        """The share of the samples that choose, or only plan the tests; 0 where nothing is chosen."""
        has_sets = self.sets is not None and self.sets.has_choice
        chooses = self.has_choice(samples) or kind == "segmentation" or has_sets
        # Over images the tests are always planned on others, and with samples enough everywhere.
        is_planned = self.target.is_planned and self.promise.planned == "may"
        is_planned &= samples >= FEWEST_FOR_CHOICE and not self.tests_all(samples, kind)
        if chooses or self.promise.planned == "must" or is_planned:
            return share_for_choice(samples, plans_only=not chooses)
        return 0.0


def read_request(
    predictions: Predictions,
    promise: Promise | str | float | Sequence[Promise | str] | None,
    confidence: float,
    by: str | None,
    sets: Sets | float | None,
    method: Method,
    calibrator: str,
    score: str,
    centre: bool | None,
    seed: int,
    shortcuts: Shortcuts,
) -> FitRequest:
    """What is asked of a fit on these predictions: the arguments of `Policy.fit`, checked and put together."""
    if unknown := set(shortcuts) - set(Shortcuts.__annotations__):
        raise TypeError(f"Policy.fit() got an unexpected argument {min(unknown)!r}")
    check_fittable(predictions)
    coverage, group = shortcuts.get("target_coverage"), shortcuts.get("group")
    if by is not None and group is not None:
        raise ValueError(f"by and group are the same: give one of them, got {by!r} and {group!r}")
    group = by if group is None else group
    asked = read_promise(promise, shortcuts)
    check_compatible(asked, coverage, method, score, group)
    asked = asked.bind(predictions)
    target = ThresholdTarget(asked.target_risk, coverage, confidence, method)
    score = score if asked.score is None else "msp"  # which is not used
    check_arguments(predictions, target, score, group)
    if centre is not None and score not in ("auto", NORMALISED):
        raise ValueError(f"centre is for the score {NORMALISED}, got score {score!r}")
    seed = check_integer("seed", seed, 0, LARGEST_SEED)
    return FitRequest(asked, target, read_sets(predictions, sets, shortcuts), calibrator, score, centre, group, seed)


def read_promise(promise: Promise | str | float | Sequence[Promise | str] | None, shortcuts: Shortcuts) -> Promise:
    """The promise asked for, as one or by shortcuts; that of a risk where nothing else is."""
    risk, by_class = shortcuts.get("target_risk"), check_flag("by_class", shortcuts.get("by_class", False))
    target_cost, costs = shortcuts.get("target_cost"), dict[str, Any]()
    if shortcuts.get("costs") is not None:
        costs = {"costs": shortcuts["costs"], "abstain_cost": shortcuts.get("abstain_cost")}
    for name, value in (("target_cost", target_cost), ("abstain_cost", shortcuts.get("abstain_cost"))):
        if value is not None and not costs:
            raise ValueError(f"{name} goes with a cost matrix: give costs")
    if isinstance(promise, int | float | np.number):
        if risk is not None:
            raise ValueError(f"two risks are asked for, {promise} and {risk}: give one of them")
        risk, promise = promise, None
    if (promise is not None and target_cost is not None) or (by_class and costs):
        raise ValueError(f"{'by_class' if by_class else 'promise'} and costs are different promises: give one of them")
    if promise is not None:
        asked = parse_promises(promise, **costs, **({"by_class": True} if by_class else {}))
    elif costs:
        if target_cost is None:
            raise ValueError("costs need target_cost, the mean cost of answers allowed")
        asked = Cost(target_cost, **costs)
    else:
        is_of_coverage = shortcuts.get("target_coverage") is not None and not by_class
        return Risk(0.05 if risk is None and not is_of_coverage else risk, by_class=by_class)
    if risk is not None:
        raise ValueError(f"target_risk does not go with {asked.title}: it says itself what is promised")
    return asked


def check_compatible(promise: Promise, coverage: float | None, method: str, score: str, group: str | None) -> None:
    """Raise unless the other arguments of a fit go with the promise."""
    if coverage is not None and not promise.is_plain:
        raise ValueError(f"target_coverage does not go with {promise.title}, which decides how much is answered")
    if coverage is None and promise.is_plain and promise.target_risk is None:
        raise ValueError("a promise of risk needs a target, such as Risk(0.05)")
    if method not in promise.methods and not promise.is_plain:
        raise ValueError(f"{promise.title} has a test of its own, got method {method!r}")
    if score != "auto" and promise.score is not None:
        raise ValueError(f"{promise.title} ranks answers by the {promise.score.words}, got score {score!r}")
    if group is not None and not promise.has_groups:
        raise ValueError(f"thresholds by group are for a risk or a precision, got {promise.title}")


def read_sets(predictions: Predictions, sets: Sets | float | None, shortcuts: Shortcuts) -> Sets | None:
    """The prediction sets asked for, as such or by their level and shortcuts."""
    names = ("set_method", "set_penalty", "set_free_ranks", "set_randomised")
    settings = {name.removeprefix("set_"): shortcuts[name] for name in names if name in shortcuts}  # type: ignore[literal-required]
    if sets is not None and not isinstance(sets, Sets):
        sets = Sets(sets, **settings)
    elif any(value not in ("lac", None, False) for value in settings.values()):
        raise ValueError("set_method and the other settings of sets go with a level: give sets, for example 0.95")
    if sets is not None and predictions.kind == "segmentation":
        raise ValueError("prediction sets are for classification: pixels of an image are not exchangeable samples")
    return sets


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
    refuse_weights(predictions, "a promise")


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


def fit_policy(
    predictions: Predictions,
    request: FitRequest,
    repeats: Literal["first"] | None,
    progress: Progress,
    engine: PassEngine,
) -> Policy:
    """Fit a policy in two passes over the predictions, and a third with sets."""
    predictions = resolve_repeats(predictions, repeats, engine)
    samples, seed = engine.count_rows(predictions), request.seed
    tests_all = request.tests_all(samples, predictions.kind)
    if tests_all and request.score == "auto":
        request = replace(request, score="msp")
    share = request.share_for_choice(samples, predictions.kind)
    share_untested = 0.0 if tests_all else share
    choice, selection, floor = _choose(predictions, request, samples, share, progress, engine)
    policy = Policy.model_construct(
        num_classes=int(predictions.num_classes),
        class_names=predictions.class_names,
        positive=predictions.positive,
        takes=predictions.holds,
        kind=predictions.kind,
        calibrator=selection.calibrator,
        score=selection.score,
        threshold=abstaining_threshold(request.target.method, request.target.risk, request.target.confidence),
        confidence=request.target.confidence,
        floor=floor,
        promise=request.promise,
    )
    plan = None if choice is None or tests_all else score_choice(policy, choice)
    set_fit = None if request.sets is None else SetFit(policy, request.sets, choice, seed)
    notes = FitNotes(policy.num_classes, seed)
    work = partial(
        score_piece,
        policy=policy,
        request=request,
        share=share,
        tests_all=tests_all,
        set_fit=set_fit,
        starts=_starts_of_untouched(predictions, seed, share, engine),
    )
    scored = _without_notes(engine.run(work, predictions, "reading for the threshold", progress), notes, set_fit)
    policy = _add_threshold(policy, request, scored, plan, share_untested)
    is_independent = policy.kind != "segmentation"
    calibration = notes.calibration.evidence(independent=is_independent)
    if is_poor(calibration):
        calibration["compared"] = len(selection.calibrators) > 2
        calibration["better"] = selection.better_calibrated() if is_independent else None
    evidence = {
        **policy.evidence,
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
        "reference": notes.reference.evidence(policy.limits_of, notes.labels, request.promise.answer),
        **selection.evidence(),
        **request.promise.notes(notes.labels),
    }
    policy = policy.model_copy(update={"evidence": json_value(evidence)})
    if set_fit is not None:
        policy = policy.model_copy(update={"sets": set_fit.finish()})
        policy = policy.model_copy(update={"sets": count_sets(policy, predictions, seed, share, progress, engine)})
    try:
        return Policy(**dict(policy))  # what cannot be read back must not be written
    except ValueError as error:
        raise ValueError(f"no policy can be made of these predictions: {error}") from None


def _choose(
    predictions: Predictions, request: FitRequest, samples: int, share: float, progress: Progress, engine: PassEngine
) -> tuple[ChoiceSamples | None, Selection, float]:
    """The samples of the choice, what is chosen on them, and the floor of the probabilities."""
    choice, selection = None, Selection(None, Score(request.score if request.is_closed else "msp"))
    digits = Digits(int(predictions.num_classes))
    if share:
        choice = collect_choice(predictions, request.seed, share, request.group, digits, progress, engine)
        if request.has_choice(samples):
            selection = select(
                choice, predictions.holds, request.calibrator, request.score, request.seed,
                floor=digits.floor, centre=request.centre, keep_answers=request.tests_all(samples, predictions.kind),
            )  # fmt: skip
    if request.promise.score is not None:
        selection = replace(selection, score=request.promise.score, scores=())
    return choice, selection, digits.floor


def _add_threshold(
    policy: Policy, request: FitRequest, scored: Iterable[ScoredSamples], plan: ScoredSamples | None, share: float
) -> Policy:
    """The policy with its threshold, or those of groups or classes, and the answer if all answers are the same."""
    if policy.kind == "segmentation":
        assert plan is not None
        return policy.model_copy(update=request.promise.find_on_images(scored, plan, request.target)._asdict())
    samples, group = ScoredSamples.join(scored), request.group
    data = ThresholdData(samples, plan, request.target, group, share, policy.class_names)
    thresholds = request.promise.find(data)
    policy = policy.model_copy(update={**thresholds._asdict(), "group": group})
    answers = samples.predicted[samples.score >= policy.limits_of(samples.groups, samples.predicted)]
    is_same = bool(len(answers) and (answers == answers[0]).all())
    evidence: dict[str, Any] = {"only_answer": int(answers[0]) if is_same else None}
    if group is not None and request.promise.risks is not None:
        evidence["idle"] = find_idle_promises(samples.groups, samples.labels, request.promise.risks)
    return policy.model_copy(update={"evidence": evidence})


def score_choice(policy: Policy, choice: ChoiceSamples) -> ScoredSamples:
    """The scores of the samples for the choice, by which the order of the tests is planned."""
    values, labels, unit, _, groups = choice.rows
    parts = [_judge(policy, values[rows], labels[rows]) for rows in row_slices(len(values), values.shape[1])]
    score, correct, predicted = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("score", "correct", "predicted")
    )
    distinct, image = np.unique(unit, return_inverse=True)
    return ScoredSamples(score, correct, groups, image, len(distinct), choice.image_size, predicted, labels)


class PieceNotes(NamedTuple):
    """What a fit notes about a piece, and the scores of true classes for its sets."""

    notes: FitNotes
    set_scores: list[tuple[Doubles, Ints]]


def _without_notes(
    results: Iterable[ScoredSamples | PieceNotes], notes: FitNotes, set_fit: SetFit | None
) -> Iterator[ScoredSamples]:
    """The scored samples; the notes of every piece are added to ``notes`` and ``set_fit``."""
    for result in results:
        if isinstance(result, ScoredSamples):
            yield result
            continue
        notes.absorb(result.notes)
        if set_fit is not None:
            set_fit.scores += result.set_scores


def _starts_of_untouched(predictions: Predictions, seed: int, share: float, engine: PassEngine) -> list[int]:
    """How many samples that count and chose nothing are before each piece, by the labels."""
    if len(engine.pieces(predictions)) == 1:
        return [0]
    counts = list(engine.run(partial(count_untouched, seed=seed, share=share), predictions, "counting"))
    return [0, *np.cumsum(counts)[:-1].tolist()]


def count_untouched(piece: Piece, seed: int, share: float) -> Iterator[int]:
    """How many samples of a piece count and chose nothing; positions, of images."""
    start, count, ignored = piece.start, 0, piece.predictions.ignore_index
    for block in piece.predictions._store.blocks(GRAIN, ["labels"]):
        labels = block["labels"]
        chose_nothing = labels[draw_uniform(seed, start, len(labels)) >= share]
        count += chose_nothing.size if ignored is None else int((chose_nothing != ignored).sum())
        start += len(labels)
    yield count


def score_piece(
    piece: Piece,
    policy: Policy,
    request: FitRequest,
    share: float,
    tests_all: bool,
    set_fit: SetFit | None,
    starts: Sequence[int],
) -> Iterator[ScoredSamples | PieceNotes]:
    """The scores of the samples for the threshold in a piece, some at a time, and at last what is noted about it.

    The notes, and what the sets are fitted on, are of the samples that chose nothing, also where those that chose are
    for the threshold as well.
    """
    notes = FitNotes(policy.num_classes, request.seed, starts[piece.number])
    set_fit = None if set_fit is None else set_fit.for_piece()
    for start, batch in piece.batches():
        notes.add_batch(batch)
        chose_nothing = draw_uniform(request.seed, start, len(batch)) >= share
        rows = np.arange(len(batch)) if tests_all else np.flatnonzero(chose_nothing)
        values, labels = batch.data.values[rows], batch.labels[rows]
        names = group_names(batch, request.group, rows)
        offset = 0
        for part in cache_chunks(values) if len(rows) else ():
            chunk = slice(offset, offset + len(part))
            check_finite(part)
            y = labels[chunk].reshape(-1)
            image_size = len(y) // len(part)
            counted = np.ones(len(y), dtype=bool) if batch.ignore_index is None else y != batch.ignore_index
            judged = _judge(policy, class_rows(part), y)
            judged = judged if counted.all() else take_rows(judged, counted)
            image = np.repeat(np.arange(len(part)), image_size)[counted]
            groups = names[chunk][image]
            fresh = chose_nothing[rows[chunk]][image]
            new = take_rows(judged, fresh) if tests_all else judged
            notes.calibration.add((new.plain_confidence, new.plain_correct), (new.confidence, new.correct))
            if policy.kind == "classification":
                notes.reference.add(new.score, new.confidence, new.predicted, groups[fresh], y[counted][fresh])
            if set_fit is not None:
                set_fit.add((start + rows[chunk])[counted][fresh], new.probabilities, y[counted][fresh])
            needs_labels = request.group is not None or not policy.promise.is_plain
            classes = (judged.predicted, y[counted]) if needs_labels else (judged.predicted,)
            yield ScoredSamples(judged.score, judged.correct, groups, image, len(part), image_size, *classes)
            offset += len(part)
    yield PieceNotes(notes, [] if set_fit is None else set_fit.scores)


class _JudgedRows(NamedTuple):
    """Rows ``[n]`` as the policy judges them, probabilities ``[n, C]``; ``plain``: without its calibrator."""

    score: Doubles
    correct: Bools
    confidence: Doubles
    predicted: Ints
    plain_confidence: Doubles
    plain_correct: Bools
    probabilities: Doubles


def _judge(policy: Policy, values: Array, labels: Array) -> _JudgedRows:
    rows = values.astype(np.float64)
    answer = decision_formula(policy, NumpyOps(), rows)
    confidence, correct = np.clip(answer.confidence[:, 0], 0.0, 1.0), answer.label[:, 0] == labels
    plain = confidence, correct
    if policy.calibrator is not None:
        z = rows if policy.takes == "logits" else log_probabilities(rows, policy.floor)
        plain = np.clip(msp_formula(NumpyOps(), z)[:, 0], 0.0, 1.0), rows.argmax(1) == labels
    return _JudgedRows(answer.score[:, 0], correct, confidence, answer.label[:, 0], *plain, answer.probabilities)
