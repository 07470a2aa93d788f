"""The choice of calibrator and score: the samples for it, and what helps on them by more than its standard error.

A test that something helps would be the wrong judge: on few samples it keeps a poor model as it is, though a repair is
far more likely to help than to harm. So the bar is one standard error, as in [Breiman1984]; docs/evidence.md has
what either costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Array, class_rows, join_rows, row_slices, take_rows
from calibrant.base.checks import Bools, Ints, check_choice, check_finite
from calibrant.base.progress import Progress, silent
from calibrant.metrics import AurcChanges, Doubles, Judged, aurc, ece, paired_differences, top_label_blocks
from calibrant.posthoc import (
    FOLDS,
    WIDE,
    Calibrator,
    EnsembleTemperatureScaling,
    IsotonicCalibration,
    NumpyOps,
    TemperatureScaling,
    VectorScaling,
    assign_folds,
    best_norm,
    crossfit_all,
    crossfit_ranks,
    ranks_by_fold,
    scores_by_reading,
)
from calibrant.posthoc.scores import FORMULAS, NORMALISED, Score
from calibrant.predictions import FLOOR, LOCAL, Digits, PassEngine, Piece, Predictions, log_probabilities
from calibrant.promises.split import BLOCK, FEWEST_FOR_CHOICE, draw_uniform, share_for_choice

LEVEL = 2 * NormalDist().cdf(1.0) - 1  # of limits one standard error to either side
ROWS_PER_CLASS = 10  # below which a parameter per class is not tried
ROUNDING = 1e-12  # by which a mean loss or an area may differ where nothing does
MOST_ROWS = 50_000  # for the choice
MOST_NUMBERS = 2**25  # logits, for the choice
MOST_PIXELS = 250  # of an image, for the choice

#: The calibrators to choose from, simple ones first: a later one must beat the best so far by its standard error.
CALIBRATORS_TRIED: dict[str, Callable[[], Calibrator]] = {
    "temperature": TemperatureScaling,
    "ensemble": EnsembleTemperatureScaling,
    "isotonic": lambda: IsotonicCalibration(mode="top-label"),
    "vector": VectorScaling,
}
#: Those that change no answer, nor its rank by a score of the original logits.
ORDER_KEEPING = ("temperature", "ensemble", "isotonic")


class ChoiceRows(NamedTuple):
    """Rows for the choice."""

    values: Array  # [n, C], logits or probabilities as the predictions hold them; half precision as float32
    labels: Ints
    unit: Ints  # number of the sample that a row belongs to; for segmentation that of the image
    draw: Doubles  # the random number of that sample
    groups: npt.NDArray[np.str_]  # the name of its group, empty where there are none


@dataclass(frozen=True, eq=False)
class ChoiceSamples:
    """The samples for the choice; ``image_size`` is how many rows an image would have if none were left out."""

    rows: ChoiceRows
    image_size: int

    @property
    def samples(self) -> int:
        """How many samples, or images, the rows belong to."""
        return len(np.unique(self.rows.unit))


def group_names(batch: Predictions, group: str | None, rows: Ints) -> npt.NDArray[np.str_]:
    """The group of each row, empty where there are none."""
    return np.zeros(len(rows), np.str_) if group is None else np.asarray(batch.groups[group]).astype(str)[rows]


class ChoiceCollection:
    """The samples for the choice of some consecutive samples; of very many, those with the smallest random numbers.

    These do not depend on the batches and pieces that the samples came in. All probabilities are added to ``digits``.
    """

    def __init__(self, seed: int, share: float, group: str | None, digits: Digits) -> None:
        self.seed, self.group, self.digits = seed, group, digits
        self.limit, self.most, self.image_size, self.seen = share, MOST_ROWS, 1, 0
        self.is_cut = False  # whether there were very many
        self.parts: list[ChoiceRows] = []

    @property
    def size(self) -> int:
        """How many rows there are."""
        return sum(len(part.labels) for part in self.parts)

    def add(self, start: int, batch: Predictions) -> None:
        """Take those of a batch that has ``start`` samples before it."""
        self.seen += len(batch)
        draw = draw_uniform(self.seed, start, len(batch))
        if batch.holds == "probabilities":
            self.digits.add(batch.probabilities)
        rows = np.flatnonzero(draw < self.limit)
        if len(rows):
            values, labels = batch.data.values[rows], batch.labels[rows]
            samples = ChoiceRows(values, labels, rows + start, draw[rows], group_names(batch, self.group, rows))
            self.parts.append(_counted_positions(samples, batch.ignore_index))
            self.most = min(MOST_ROWS, max(1000, MOST_NUMBERS // values.shape[1]))
            self.image_size = labels[0].size
        if self.size > 2 * self.most:
            self._cut()

    def _cut(self) -> None:
        self.is_cut = True
        joined = join_rows(self.parts)
        if len(joined.draw) > self.most:
            # Rows of one image share theirs, and go together.
            self.limit = min(self.limit, float(np.partition(joined.draw, self.most)[self.most]))
        self.parts = [take_rows(joined, joined.draw < self.limit)]

    def absorb(self, other: ChoiceCollection) -> None:
        """Add the samples of a later piece."""
        self.digits.absorb(other.digits)
        self.parts += other.parts
        self.seen += other.seen
        self.limit, self.most = min(self.limit, other.limit), min(self.most, other.most)
        self.image_size, self.is_cut = max(self.image_size, other.image_size), self.is_cut or other.is_cut
        if self.parts and (self.is_cut or self.size > 2 * self.most):
            self._cut()

    def finish(self) -> ChoiceSamples:
        """The samples."""
        if not self.size:
            raise ValueError(f"no sample that counts is among those for the choice: {self.seen} are too few")
        if self.is_cut:
            self._cut()
        return ChoiceSamples(join_rows(self.parts), -(-self.image_size // _stride(self.image_size)))


def collect_choice(
    predictions: Predictions,
    seed: int,
    share: float,
    group: str | None,
    digits: Digits,
    progress: Progress = silent,
    engine: PassEngine = LOCAL,
) -> ChoiceSamples:
    """The samples for the choice; of very many, a part. All probabilities are added to ``digits``."""
    work = partial(collect_choice_of, seed=seed, share=share, group=group)
    first, *others = engine.run(work, predictions, "reading for the choice", progress)
    for part in others:
        first.absorb(part)
    digits.absorb(first.digits)
    return first.finish()


def collect_choice_of(piece: Piece, seed: int, share: float, group: str | None) -> Iterator[ChoiceCollection]:
    """The samples for the choice that a piece has."""
    collection = ChoiceCollection(seed, share, group, Digits(piece.predictions.num_classes))
    for start, batch in piece.batches():
        collection.add(start, batch)
    yield collection


def _stride(image_size: int) -> int:
    """The stride between kept positions of an image."""
    return -(-image_size // MOST_PIXELS)


def _counted_positions(samples: ChoiceRows, ignore_index: int | None) -> ChoiceRows:
    """Rows ``[n, C]`` of the samples; of an image at most `MOST_PIXELS`, evenly spread over those that count."""
    rows = samples
    if samples.values.ndim > 2:
        image_size = samples.labels[0].size
        # Each image from its own first position on, so that all keep the same number.
        pixels = np.arange(samples.labels.size).reshape(-1, image_size)[:, :: _stride(image_size)].reshape(-1)
        values, labels = class_rows(samples.values)[pixels], samples.labels.reshape(-1)[pixels]
        rows = ChoiceRows(values, labels, *(column[pixels // image_size] for column in samples[2:]))
    counted = rows.labels != ignore_index
    if not counted.all():
        rows = take_rows(rows, counted)
    return rows._replace(values=_widened(rows.values), labels=rows.labels.astype(np.int64))


def _widened(values: Array) -> Array:
    """Half precision as float32."""
    return values.astype(np.float64 if values.itemsize == 8 else np.float32, copy=False)


def take_for_choice(values: Array, labels: Ints, unit: Ints, samples: int) -> ChoiceSamples | None:
    """Those rows of numbered samples that a fit with the seed 0 would choose on; None where they would be too few.

    ``samples`` is how many there were, of which some may not have been kept.
    """
    if not len(unit) or len(np.unique(unit)) < FEWEST_FOR_CHOICE:
        return None
    draw = np.empty(len(unit))
    for block in np.unique(unit // BLOCK).tolist():
        inside = unit // BLOCK == block
        draw[inside] = draw_uniform(0, block * BLOCK, BLOCK)[unit[inside] - block * BLOCK]
    rows = ChoiceRows(values, labels, unit, draw, np.zeros(len(unit), np.str_))
    rows = take_rows(rows, draw < share_for_choice(samples))
    return ChoiceSamples(rows._replace(values=_widened(rows.values)), 1)


@dataclass(frozen=True)
class Candidate:
    """A calibrator or score that was tried: its value, what it had to beat, and the change to that.

    Its limits are a standard error to either side. Of a calibrator, the ECE of what it makes of samples that it was not
    fitted on as well.
    """

    name: str
    value: float
    against: str | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    chosen: bool = False
    ece: float | None = None


@dataclass(frozen=True)
class Selection:
    """The choice, and all that was tried: calibrators by NLL, scores by AURC."""

    calibrator: Calibrator | None
    score: Score
    calibrators: tuple[Candidate, ...] = ()
    scores: tuple[Candidate, ...] = ()
    judged: Mapping[str, Judged] = field(default_factory=dict)

    def better_calibrated(self) -> dict[str, Any] | None:
        """The calibrator that was not chosen and has the lowest ECE, if it is below the chosen one's beyond chance."""
        errors = {candidate.name: candidate.ece or 0.0 for candidate in self.calibrators}
        chosen = next((candidate.name for candidate in self.calibrators if candidate.chosen), "none")
        best = min((name for name in errors if name != "none"), key=lambda name: errors[name], default=chosen)
        if best == chosen or chosen not in self.judged:
            return None
        change = paired_differences(self.judged[chosen], self.judged[best], ranked=False)["ece"]
        return {"name": best, "ece": errors[best], "chosen_ece": errors[chosen]} if change.high < 0 else None

    def evidence(self) -> dict[str, list[dict[str, Any]]]:
        """What was tried, for JSON."""
        scores = [asdict(candidate) for candidate in self.scores]
        for row in scores:
            del row["ece"]
        return {"calibrators": [asdict(candidate) for candidate in self.calibrators], "scores": scores}


def select(
    samples: ChoiceSamples,
    takes: str,
    calibrator: str = "auto",
    score: str = "auto",
    seed: int = 0,
    *,
    quick: bool = False,
    floor: float = FLOOR,
    centre: bool | None = None,
    keep_answers: bool = False,
) -> Selection:
    """Choose on these samples; ``"auto"`` leaves the choice open, a name closes it; ``floor`` is of probabilities.

    ``centre`` leaves one reading of the normalised largest logit to choose from, of centred logits or of others. With
    ``quick`` scores that rank no better have no limits, which changes no choice: an audit asks for it. With
    ``keep_answers`` the calibrator is one that changes no answer.
    """
    values, y, unit = samples.rows.values, samples.rows.labels, samples.rows.unit
    z = values if takes == "logits" else log_probabilities(values, floor)
    z = z.astype(np.float64) if check_finite(z) > WIDE else z
    folds = assign_folds(unit)
    if len(np.unique(folds)) < FOLDS:
        raise ValueError(f"{samples.samples} samples are too few to choose by {FOLDS}-fold cross-fitting")
    crossfitted, name, calibrators, judged = _select_calibrator(
        z, y, unit, folds, calibrator, keep_answers=keep_answers
    )
    fitted = None if name is None else CALIBRATORS_TRIED[name]().fit(z, y)
    ranked = z if fitted is None or fitted.keeps_order else crossfitted
    correct = ranked.argmax(1) == y
    calibrated = None if fitted is None else crossfitted
    best, scores = _select_score(z, calibrated, takes, correct, folds, score, seed, quick=quick, centre=centre)
    return Selection(fitted, best, calibrators, scores, judged)


def _select_calibrator(
    z: Array, y: Ints, unit: Ints, folds: Ints, requested: str, *, keep_answers: bool
) -> tuple[Array, str | None, tuple[Candidate, ...], dict[str, Judged]]:
    """Cross-fitted logits of the chosen calibrator, its name, how all did, and the rows as each judges them."""
    check_choice("calibrator", requested, ("auto", "none", *CALIBRATORS_TRIED))
    judged, chosen = {"none": judge_logits(z, y)}, "none"
    best = _losses(judged["none"])
    crossfitted, candidates = z, [Candidate("none", float(best.mean()), ece=_ece(judged["none"]))]
    few = len(y) < ROWS_PER_CLASS * z.shape[1]
    candidates_tried = ORDER_KEEPING if keep_answers else tuple(CALIBRATORS_TRIED)
    all_names = [name for name in candidates_tried if not (few and name == "vector")]
    names = {"auto": all_names, "none": []}.get(requested, [requested])
    tried = {name: CALIBRATORS_TRIED[name] for name in names}
    for name, repaired in crossfit_all(tried, z, y, folds).items():
        judged[name] = judge_logits(repaired.logits, y)
        losses = _losses(judged[name])
        change, low, high = _difference(losses - best, unit)
        candidates.append(Candidate(name, float(losses.mean()), chosen, change, low, high, ece=_ece(judged[name])))
        if high < -ROUNDING or requested != "auto":
            best, chosen, crossfitted = losses, name, repaired.logits
    return crossfitted, None if chosen == "none" else chosen, _mark_chosen(candidates, chosen), judged


def _mark_chosen(candidates: list[Candidate], chosen: str) -> tuple[Candidate, ...]:
    return tuple(replace(candidate, chosen=candidate.name == chosen) for candidate in candidates)


def judge_logits(z: Array, y: Array) -> Judged:
    """Confidence, correctness, NLL and Brier score of each row of logits ``[n, C]``."""
    tops = list(top_label_blocks(z, y, kind="logits"))
    names = ("confidence", "correct", "nll", "brier")
    return Judged(**{name: np.concatenate([getattr(top, name) for top in tops]) for name in names})


def _losses(judged: Judged) -> Doubles:
    assert judged.nll is not None
    return judged.nll


def _ece(judged: Judged) -> float:
    return ece(judged.confidence, judged.correct)


def _difference(change: Doubles, unit: Ints) -> tuple[float, float, float]:
    """The mean change, and a standard error to either side; rows of one unit count as one draw."""
    _, number = np.unique(unit, return_inverse=True)
    mean = float(change.mean())
    sums = np.bincount(number, change - mean)
    error = math.sqrt(float(np.square(sums).sum())) / len(change) if len(sums) > 1 else math.inf
    return mean, mean - error, mean + error


def _select_score(
    z: Array,
    calibrated: Array | None,
    takes: str,
    correct: Bools,
    folds: Ints,
    requested: str,
    seed: int,
    *,
    quick: bool,
    centre: bool | None,
) -> tuple[Score, tuple[Candidate, ...]]:
    """The score with the least AURC among those that beat plain MSP by more than a standard error."""
    check_choice("score", requested, ("auto", *FORMULAS, NORMALISED))
    if requested in FORMULAS:
        value = aurc(_values(Score(requested), z, z), correct)
        return Score(requested), (Candidate(requested, value, chosen=True),)
    plain, readings = _values(Score(), z, z), scores_by_reading(z, centre)
    normalised = crossfit_ranks(plain, readings, correct, folds).normalised
    norm = best_norm(plain, readings, correct)
    if requested == NORMALISED:
        p = norm.p_ or min(norm.aurc_, key=lambda p: norm.aurc_[p] if p else math.inf)
        score = Score(NORMALISED, p=p, centre=norm.centre)
        return score, (Candidate(str(score), aurc(normalised, correct), chosen=True),)
    # Of probabilities the energy is 0, and what is left of it rounding.
    names = [name for name in FORMULAS if name != "msp" and (takes == "logits" or name != "energy")]
    candidates: dict[Score, Doubles] = {Score(name): _values(Score(name), z, z) for name in names}
    if calibrated is not None:
        candidates[Score(of="calibrated")] = _values(Score(of="calibrated"), z, calibrated)
    if norm.p_ is not None:
        candidates[Score(NORMALISED, p=norm.p_, centre=norm.centre)] = normalised
    return _best_beyond_error(plain, candidates, correct, folds, seed, quick=quick)


def _best_beyond_error(
    plain: Doubles, scores: Mapping[Score, Doubles], correct: Bools, folds: Ints, seed: int, *, quick: bool
) -> tuple[Score, tuple[Candidate, ...]]:
    before = ranks_by_fold(plain, folds)
    best, least = Score(), aurc(before, correct)
    candidates = [Candidate(str(best), least)]
    some_wrong, changes = 0 < int(correct.sum()) < len(correct), None
    for score, values in scores.items():
        after = ranks_by_fold(values, folds)
        candidate = Candidate(str(score), aurc(after, correct), str(Score()))
        if some_wrong and not (quick and candidate.value >= least):
            changes = changes or AurcChanges(Judged(plain, correct, score=before), level=LEVEL, seed=seed)
            change = changes.to(after)
            candidate = replace(candidate, change=change.value, low=change.low, high=change.high)
            if change.high < -ROUNDING and candidate.value < least:
                best, least = score, candidate.value
        candidates.append(candidate)
    return best, _mark_chosen(candidates, str(best))


def _values(score: Score, z: Array, calibrated: Array) -> Doubles:
    parts = [
        score.apply(NumpyOps(), z[rows].astype(np.float64), calibrated[rows].astype(np.float64))
        for rows in row_slices(len(z), z.shape[1])
    ]
    return np.concatenate(parts)[:, 0]
