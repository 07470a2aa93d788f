"""The gain of a repair or of another score, judged on data that it was not fitted on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from calibrant.auditing.collect import Collected
from calibrant.base.arrays import Array, Doubles
from calibrant.base.checks import Bools, Ints
from calibrant.base.numbers import difference, difference_span, number, percent, significant
from calibrant.metrics import Interval, Judged, RiskCoverage, normal_interval, paired_differences, risk_coverage_curve
from calibrant.policy import CALIBRATORS_TRIED, Selection, judge_logits, select, take_for_choice
from calibrant.posthoc import (
    CALIBRATORS,
    FOLDS,
    NORMALISED,
    Calibrator,
    LogitNorm,
    Ranked,
    Repaired,
    TemperatureScaling,
    assign_folds,
    crossfit,
    crossfit_ranks,
    fit_best_norm,
    rank_shares,
    scores_by_reading,
)
from calibrant.predictions import FLOOR, log_probabilities
from calibrant.promises import FEWEST_FOR_CHOICE, FEWEST_FOR_SCORE

FEWEST_TO_FIT = 50  # below this number of samples, nothing is fitted
POINTS = 1500  # of the scatter of logits
WINDOWS = 20
READINGS = {True: "of centred logits", False: "of logits that are not centred"}
FEWEST_IN_WINDOW = 10  # of correct and of wrong predictions
#: Level, title, text and evidence of a finding.
Words = tuple[Literal["info"], str, str, str]


@dataclass(frozen=True)
class Repair:
    """A repair and what it changes in one metric."""

    name: str
    fitted: str  # its parameters, and the data it was fitted on
    metric: str
    before: float  # the metric without the repair
    change: Interval  # the difference with the repair

    @property
    def after(self) -> float:
        """The metric with the repair, at least 0: the change may be measured on other samples than ``before``."""
        return max(0.0, self.before + self.change.value)


class ScoreCurve(NamedTuple):
    """The risk-coverage curve of a score over some samples."""

    name: str
    title: str
    curve: RiskCoverage
    samples: int


def kept_logits(collected: Collected, companion: Collected | None = None) -> tuple[Array, Array]:
    """The kept logits ``[n, C]`` (of probabilities, their logarithms) and labels, float64.

    ``companion``: predictions that belong to these, as validation to test; both have the same floor for zeros.
    """
    values, labels, *_ = collected.logits.columns()
    if collected.holds == "probabilities":
        return log_probabilities(values, max(collected.floor, FLOOR if companion is None else companion.floor)), labels
    return values.astype(np.float64), labels


def kept_weight(collected: Collected) -> Doubles | None:
    """The weights of the kept logits, or None."""
    weight = collected.logits.columns()[3:]
    return weight[0] if weight else None


def judge_repairs(
    collected: Collected,
    val: Collected | None,
    choice: Selection | None,
    values: Mapping[str, float],
    *,
    centre: bool | None = None,
    **sampling: Any,
) -> list[Repair]:
    """The gain of temperature scaling, of what a fit would choose, and of logit normalisation.

    Each is fitted on ``val`` if given, else by cross-validation. The list is empty if there is nothing to fit or to
    repair: without logits, with few samples, or if all or none are correct. ``choice`` is that of `choose_as_fit`,
    ``values`` are the metrics before; ``centre`` selects one reading of logit normalisation; ``sampling`` holds level,
    replicates and seed of the intervals.
    """
    if collected.holds == "confidence" or collected.samples < FEWEST_TO_FIT or values["accuracy"] in (0.0, 1.0):
        return []
    z, y = kept_logits(collected, val)
    folds = _folds(collected)
    if val is None and len(np.unique(folds)) < 2:
        return []
    before, weight = judge_logits(z, y), kept_weight(collected)
    chosen_name = None if choice is None or choice.calibrator is None else choice.calibrator.name
    repairs = []
    for name in dict.fromkeys(("temperature", *([chosen_name] if chosen_name in CALIBRATORS_TRIED else []))):
        make = CALIBRATORS_TRIED[name]
        repaired = crossfit(make, z, y, folds) if val is None else _repair_by(val, collected, make, z)
        change = _changes(collected, replace(before, weight=weight), judge_logits(repaired.logits, y), sampling)
        fitted = _calibrator_words(repaired.fitted, val) + "; what calibrant fit would choose" * (name == chosen_name)
        title = repaired.fitted[0].title
        repairs.append(Repair(title, fitted, "ece_15", values["ece_15"], change["ece"]))
        repairs.append(Repair(title, fitted, "nll", values["nll"], change["nll"]))
    ranked = _ranked(collected, z, before, folds, val, centre)
    by_confidence = Judged(before.confidence, before.correct, score=ranked.plain, weight=weight)
    by_norm = Judged(before.confidence, before.correct, score=ranked.normalised)
    change = _changes(collected, by_confidence, by_norm, sampling)
    fitted = _norm_words(ranked.norms, val)
    return [*repairs, Repair(LogitNorm.title, fitted, "aurc", values["aurc"], change["aurc"])]


def choose_as_fit(collected: Collected, centre: bool | None = None) -> Selection | None:
    """What `calibrant fit` would choose on these predictions: the same rows, the same candidates, the same rule.

    If there were too many rows to keep, or they are pixels, a random part of them. None if nothing would be chosen, for
    lack of samples or of logits.
    """
    if collected.holds == "confidence" or collected.rows < FEWEST_FOR_CHOICE:
        return None
    values, labels, unit, *_ = collected.logits.columns()
    samples = take_for_choice(values, labels.astype(np.int64), unit.astype(np.int64), collected.rows)
    if samples is None or len(np.unique(assign_folds(samples.rows.unit))) < FOLDS:
        return None
    few = collected.rows < FEWEST_FOR_SCORE and collected.kind == "classification"
    score = "msp" if few else "auto"
    return select(
        samples, collected.holds, score=score, quick=True, floor=collected.floor, centre=centre, keep_answers=few
    )


def _repair_by(val: Collected, collected: Collected, make: Callable[[], Calibrator], z: Array) -> Repaired[Calibrator]:
    """Logits repaired by a calibrator that was fitted on the validation data."""
    calibrator = make().fit(*kept_logits(val, collected))
    return Repaired(calibrator.transform(z), [calibrator])


def _calibrator_words(calibrators: Sequence[Calibrator], val: Collected | None) -> str:
    """How a calibrator was fitted, with its temperature if it has one."""
    temperatures = [c.temperature_ for c in calibrators if isinstance(c, TemperatureScaling)]
    if temperatures:
        return _fit_words(temperatures, "T", 3, val)
    return f"{FOLDS}-fold cross-validation" if val is None else "fitted on the validation data"


def _changes(collected: Collected, before: Judged, after: Judged, sampling: dict[str, Any]) -> dict[str, Interval]:
    """Paired differences, of rankings if there are scores; without limits for dependent samples such as pixels."""
    if before.score is not None and after.score is not None and np.array_equal(before.score, after.score):
        return {"aurc": Interval(0.0, *[0.0 if collected.kind == "classification" else math.nan] * 2)}
    change = paired_differences(before, after, **sampling, ranked=before.score is not None)
    if collected.kind == "classification":
        return change
    return {name: Interval(difference.value, math.nan, math.nan) for name, difference in change.items()}


def _folds(collected: Collected) -> Ints:
    """Fold of each kept row; pixels of an image and tokens of a sequence stay together."""
    _, labels, image, *_ = collected.logits.columns()
    return assign_folds(np.arange(len(labels)) if collected.kind == "classification" else image)


def _ranked(
    collected: Collected, z: Array, before: Judged, folds: Ints, val: Collected | None, centre: bool | None
) -> Ranked:
    """Confidence and normalised logit as ranks, and the chosen norms."""
    if val is None:
        return crossfit_ranks(before.confidence, scores_by_reading(z, centre), before.correct, folds)
    norm, plain = fit_best_norm(*kept_logits(val, collected), centre=centre), rank_shares(before.confidence)
    return Ranked(plain, plain if norm.p_ is None else rank_shares(norm.score(z)), [norm])


def _fit_words(
    values: Sequence[float | None], letter: str, digits: int, val: Collected | None, no_value: str = ""
) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return f"{no_value}, fitted on the validation data" if val else f"{no_value} in {FOLDS}-fold cross-validation"
    low, high = significant(min(numbers), digits), significant(max(numbers), digits)
    spread = f"{letter} = {low}" if low == high else f"{letter} from {low} to {high}"
    if val is not None:
        return f"{spread}, fitted on the validation data"
    fallbacks = len(values) - len(numbers)
    fallback = f" ({fallbacks} of {len(values)} folds fall back to MSP)" if fallbacks else ""
    return f"{spread}, {FOLDS}-fold cross-validation{fallback}"


def _norm_words(norms: Sequence[LogitNorm], val: Collected | None) -> str:
    """The chosen powers and readings."""
    powers = _fit_words([norm.p_ for norm in norms], "p", 2, val, no_value="no p ranks better than the confidence")
    counts = Counter(READINGS[norm.centre] for norm in norms if norm.p_ is not None)
    readings = (name if len(counts) == 1 else f"{name} in {count} folds" for name, count in counts.most_common())
    return "; ".join(filter(None, [powers, ", ".join(readings)]))


def curves_of_other_scores(collected: Collected, val: Collected | None, centre: bool | None = None) -> list[ScoreCurve]:
    """Risk-coverage curves of other scores; that of logit normalisation on rows that did not choose its p."""
    if collected.holds == "confidence" or collected.samples < FEWEST_TO_FIT:
        return []
    z, y = kept_logits(collected, val)
    correct, weight = z.argmax(1) == y, kept_weight(collected)
    curves = []
    if collected.holds == "logits":
        curves.append(_curve_of("max_logit", "max logit", z.max(1), correct, weight))
    if val is None:
        norm = fit_best_norm(z[::2], y[::2], centre=centre)
        z, correct, origin = z[1::2], correct[1::2], "p chosen on one half of the kept samples, drawn on the other"
        weight = None if weight is None else weight[1::2]
    else:
        norm, origin = fit_best_norm(*kept_logits(val, collected), centre=centre), "p chosen on the validation data"
    if norm.p_ is not None:
        title = f"normalised max logit (p = {norm.p_}, {READINGS[norm.centre]}; {origin})"
        curves.append(_curve_of("logit_norm", title, norm.score(z), correct, weight))
    return curves


def _curve_of(name: str, title: str, score: Doubles, correct: Bools, weight: Doubles | None) -> ScoreCurve:
    samples = len(correct) if weight is None else round(weight.sum() ** 2 / np.square(weight).sum())
    return ScoreCurve(name, title, risk_coverage_curve(score, correct, weight=weight), samples)


def logit_windows(collected: Collected, level: float) -> tuple[dict[str, Any] | None, Interval | None]:
    """Max logit against confidence for correct and wrong predictions, and their gap at equal confidence."""
    if collected.holds != "logits" or collected.samples < FEWEST_TO_FIT:
        return None, None
    confidence, correct, _, _, top, *_ = collected.judged.columns()
    top = top.astype(np.float64)
    if not np.isfinite(top.std()) or top.std() == 0:
        return None, None
    edges = np.unique(np.quantile(confidence, np.linspace(0, 1, WINDOWS + 1)))
    window = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, max(0, len(edges) - 2))
    size = max(1, len(edges) - 1)
    table: dict[str, Any] = {
        "msp": np.bincount(window, confidence, size) / np.maximum(np.bincount(window, None, size), 1)
    }
    for side, rows in (("right", correct), ("wrong", ~correct)):
        n = np.bincount(window[rows], minlength=size)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(window[rows], top[rows], size) / n
            spread = np.sqrt(np.bincount(window[rows], (top[rows] - mean[window[rows]]) ** 2, size) / n)
        table |= {f"{side}_mean": mean, f"{side}_spread": spread, f"{side}_count": n}
    points = np.unique(np.linspace(0, len(confidence) - 1, POINTS).astype(np.int64))
    table["points"] = {"msp": confidence[points], "max_logit": top[points], "right": correct[points]}
    return table, _gap_at_equal_confidence(confidence, correct, top, window, size, level)


def _gap_at_equal_confidence(
    confidence: Doubles, correct: Bools, top: Doubles, window: Ints, size: int, level: float
) -> Interval:
    """Mean difference of the max logit, wrong minus correct, over windows with enough of both, in standard deviations.

    Within a window correct predictions are still a little more confident than wrong ones, and have larger logits for
    that reason; so a straight line over the log-odds is subtracted first.
    """
    sure = np.clip(confidence, 1e-12, 1 - 1e-12)
    odds = np.log(sure) - np.log1p(-sure)
    number = np.maximum(np.bincount(window, minlength=size), 1)
    x, residual = (v - (np.bincount(window, v, size) / number)[window] for v in (odds, top))
    slope = np.bincount(window, x * residual, size) / np.maximum(np.bincount(window, x * x, size), 1e-30)
    residual = residual - slope[window] * x
    correct_counts, error_counts = (np.bincount(window[side], minlength=size) for side in (correct, ~correct))
    enough = (correct_counts >= FEWEST_IN_WINDOW) & (error_counts >= FEWEST_IN_WINDOW)
    if not enough.any():
        return Interval(math.nan, math.nan, math.nan)
    error_means = np.bincount(window[~correct], residual[~correct], size)[enough] / error_counts[enough]
    correct_means = np.bincount(window[correct], residual[correct], size)[enough] / correct_counts[enough]
    spread = np.sqrt(np.maximum(np.bincount(window, residual**2, size) / number, 1e-30))[enough]
    variance = 1 / correct_counts[enough] + 1 / error_counts[enough]
    weight = (1 / variance) / (1 / variance).sum()
    error = float(np.sqrt((weight**2 * variance).sum()))
    return normal_interval(
        float((weight * (error_means - correct_means) / spread).sum()), error, level, -math.inf, math.inf
    )


def repair_findings(
    repairs: Mapping[tuple[str, str], Repair], choice: Selection | None, *, rounded: bool = False
) -> Iterator[Words]:
    """What repairs would change, and which of them `calibrant fit` would choose on the same samples.

    ``rounded`` is whether probabilities were rounded, or some are 0, so that the NLL depends on a floor.
    """
    title = TemperatureScaling.title
    if choice is not None and choice.calibrator is not None:
        title = choice.calibrator.title
    calibrated = repairs.get((title, "ece_15"))
    if calibrated is not None:
        name, text = _effect_words(title, calibrated.change, rounded)
        numbers = f"ECE {_change_words(calibrated, 'share')}; {calibrated.fitted}."
        yield "info", name, f"{text} {_choice_words(choice)}".strip(), numbers
    norm = repairs.get((LogitNorm.title, "aurc"))
    ranks_otherwise = choice is not None and choice.score.name != NORMALISED
    if norm is not None and norm.change.high < 0 and not ranks_otherwise:
        yield (
            "info",
            "Logit normalisation ranks errors better",
            "If the model may abstain, ranking by the normalised largest logit instead of the confidence would lower "
            "the error rate of the accepted predictions.",
            f"AURC {_change_words(norm, 'number')}; {norm.fitted}.",
        )
    if choice is not None and ranks_otherwise and str(choice.score) != "msp":
        best, plain = (next(row for row in choice.scores if row.name == name) for name in (str(choice.score), "msp"))
        yield (
            "info",
            f"The {choice.score.words} ranks errors better than the confidence",
            "calibrant fit ranks by it, so that fewer of the accepted predictions would be wrong.",
            f"AURC {number(plain.value)} to {number(best.value)}, cross-fitted on the samples by which calibrant fit "
            "chooses.",
        )


def _change_words(repair: Repair, unit: str) -> str:
    """The value before and after a repair, and their difference with its interval, as the table of repairs has them."""
    change, after = repair.change, repair.after
    show = percent if unit == "share" else number
    words = f"{show(repair.before)} to {show(after)}: {difference(change.value, unit, (repair.before, after))}"
    return f"{words} {difference_span(change.low, change.high, unit, (repair.before, after))}".rstrip()


def _choice_words(choice: Selection | None) -> str:
    """What `calibrant fit` would choose, and why."""
    if choice is None:
        return ""
    if choice.calibrator is None:
        reason = "no calibrator lowers the NLL by more than its standard error"
        return f"calibrant fit keeps the confidence as it is: {reason}."
    others = [row.name for row in choice.calibrators if row.name not in ("none", choice.calibrator.name)]
    names = ", ".join(CALIBRATORS[name].title.lower() for name in others)
    chosen = "calibrant fit chooses it, because it lowers the NLL by more than the standard error"
    return f"{chosen}, and none of the others lowers it further ({names})." if others else f"{chosen}."


def _effect_words(name: str, change: Interval, rounded: bool) -> tuple[str, str]:
    """Title and text about what a calibrator does to the ECE."""
    if not math.isfinite(change.low):
        text = f"The effect of {name.lower()} on images or sequences that it was not fitted on. Samples within one are"
        return f"{name}, by images or sequences", f"{text} not independent, so there is no interval."
    if change.high < 0:
        unchanged = " and change no prediction" if name == TemperatureScaling.title else ""
        return f"{name} helps", f"{name} would lower the calibration error{unchanged}."
    if change.low > 0:
        if name != TemperatureScaling.title:
            return f"{name} does not help", f"{name} lowers the NLL but raises the ECE."
        reason = "the miscalibration is not one of scale"
        if rounded:
            reason = "the NLL of probabilities that were rounded or are 0 depends on the floor, so try it on logits"
        return f"{name} does not help", f"The temperature with the lowest NLL raises the ECE: {reason}."
    return f"{name} changes little", f"{name} would not change the calibration error beyond chance."
