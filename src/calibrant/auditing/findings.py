"""What the numbers mean, in plain sentences, each with its evidence."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calibrant.auditing.breakdown import Row
from calibrant.auditing.classes import FAIR_FROM, POOR_FROM, ClassBin, Classes
from calibrant.auditing.collect import Collected
from calibrant.auditing.repairs import Repair, repair_findings
from calibrant.base.checks import Bools, listing
from calibrant.base.numbers import count, difference, difference_span, fixed, p_words, percent, significant, span
from calibrant.metrics import BASE, LARGE_ERROR, SMALL_ERROR, Interval, Reliability, wilson
from calibrant.policy import Selection
from calibrant.predictions import Digits

Level = Literal["good", "fair", "poor", "info"]
READ_WITH_CARE = 1000  # below this number of samples, there is a warning about little data
NO_CLAIM = 100  # below this number of samples, no claim is made
SURE = 0.99  # the most confident predictions are above this
LOGARITHMS = "Where a logarithm is needed (NLL, temperature scaling, logit normalisation)"
REMEDY = "Unless the model itself outputs such values, save logits, or probabilities with all digits."


@dataclass(frozen=True)
class Finding:
    """One statement and the numbers behind it."""

    level: Level
    title: str
    text: str
    evidence: str


@dataclass(frozen=True)
class Evidence:
    """The numbers that findings are made of."""

    collected: Collected
    samples: int  # as many of equal weight would be as certain as those collected
    classes: Classes | None
    numbers: dict[str, Interval]
    reliability: Reliability
    gap: Interval
    chance: float
    by_class: Sequence[Row]
    by_group: Mapping[str, Sequence[Row]]
    repairs: Sequence[Repair]
    choice: Selection | None
    logit_gap: Interval | None
    confidence_level: float


def with_limits(share: Interval) -> str:
    """A share and its interval, where it has one."""
    limits = span(share.low, share.high, "share", share.value)
    return f"{percent(share.value)} {limits or '(no interval)'}"


def verdict(evidence: Evidence) -> tuple[str, str, str]:
    """Level, headline and a second sentence: by the top label, and no better than the worst class allows."""
    level, headline, text = _top_label_verdict(evidence)
    doubt = next(_doubts(evidence), None)
    if doubt is not None:
        is_constant = evidence.classes is not None and not evidence.classes.majority.errors
        return "unknown" if is_constant else "poor", f"{doubt.title}.", f"{doubt.text} {headline} {text}"
    row = None if evidence.classes is None else evidence.classes.worst
    if row is None or row.worst is None or level == "poor" or evidence.samples < NO_CLAIM:
        return level, headline, text
    limit = "poor" if row.misplaced >= POOR_FROM else "fair" if row.misplaced >= FAIR_FROM else "good"
    if limit == "good" or limit == level:
        return level, headline, text
    says = f"Its probability of class {row.name} is wrong in places: {_says(row.worst)}."
    return limit, says, f"For the top label alone: {headline[0].lower()}{headline[1:]} {text}"


def _says(part: ClassBin) -> str:
    happened = with_limits(part.happened)
    return f"where it averages {percent(part.claimed)}, {happened} of {count(part.count)} samples are of that class"


def _top_label_verdict(evidence: Evidence) -> tuple[str, str, str]:
    """Good if the ECE is surely small, or cannot be told from chance and cannot be large.

    Unknown if the ECE could be small or large; otherwise by its size.
    """
    accuracy, sure = evidence.numbers["accuracy"], evidence.numbers["mean_confidence"]
    ece, n = evidence.numbers["ece_15"], evidence.samples
    claims = f"it claims {percent(sure.value)} and is right {percent(accuracy.value)} of the time"
    if n < NO_CLAIM or not math.isfinite(ece.low):
        is_of_samples = evidence.collected.kind == "classification"
        size = f"{count(n)} samples" if is_of_samples else f"{evidence.collected.rows} images"
        return (
            "unknown",
            f"Too little data to tell: {size}.",
            f"Here {claims}, but so few do not support any claim about calibration.",
        )
    text = (
        f"Its calibration error (ECE, 15 bins) is {with_limits(ece)}; a perfectly calibrated model "
        f"would show about {percent(evidence.chance)} on {count(n)} samples by chance."
    )
    apart = evidence.gap.low > 0 or evidence.gap.high < 0
    small = ece.high <= LARGE_ERROR and (ece.value <= SMALL_ERROR or ece.low == 0) and not apart
    if small or ece.high <= SMALL_ERROR:
        return "good", f"Its confidence can be trusted: {claims}.", text
    if ece.low == 0 and not apart:
        return "unknown", f"No sign of miscalibration, but it could be up to {percent(ece.high)}: {claims}.", text
    if evidence.gap.low > 0:
        headline = f"Overconfident: {claims}."
    elif evidence.gap.high < 0:
        headline = f"Underconfident: {claims}."
    else:
        headline = f"Right on average, wrong in places: {claims}, but over- and underconfidence cancel out."
    return ("fair" if ece.value < LARGE_ERROR else "poor"), headline, text


def list_findings(evidence: Evidence) -> list[Finding]:
    """Every finding by its level, the worst first; of one level those first that limit the others."""
    repairs = {(repair.name, repair.metric): repair for repair in evidence.repairs}
    sentences = repair_findings(repairs, evidence.choice, rounded=evidence.collected.rounded)
    findings = [Finding(*words) for words in sentences]
    if evidence.collected.kind == "classification":  # the tests below take samples to be independent
        findings += [*_classes(evidence), *_majority(evidence)]
        findings += [*_bins(evidence), *_confident_errors(evidence), *_max_logit(evidence)]
        for column, rows in [("class", evidence.by_class), *evidence.by_group.items()]:
            findings += _worse_groups(column, rows)
    findings += _little_data(evidence)
    order = {"poor": 0, "fair": 1, "info": 2, "good": 3}
    limiting = [*_doubts(evidence), *_rounding(evidence.collected)]
    return sorted(limiting + findings, key=lambda finding: order[finding.level])


def _doubts(evidence: Evidence) -> Iterator[Finding]:
    """Signs of mistaken labels or columns: all labels are the same, or they belong to the other class."""
    classes, n = evidence.classes, evidence.samples
    if classes is None or n < NO_CLAIM:
        return
    majority = classes.majority
    other_classes = "the other class" if len(classes.rows) == 2 else "other classes"
    if not majority.errors:
        yield Finding(
            "poor",
            f"All labels are {majority.name}",
            f"Nothing can be learnt from them about {other_classes}; a policy fitted on them would always answer "
            f"{majority.name}.",
            f"{count(n)} samples, {count(round(majority.model_errors))} of them predicted to be of another class.",
        )
    elif len(classes.rows) == 2 and majority.model_errors > n / 2 and majority.model_errors > majority.errors:
        if majority.p_value >= 1 - evidence.confidence_level:
            return
        rival = "" if classes.positive is None else classes.rows[1 - classes.positive].name
        yield Finding(
            "poor",
            f"Wrong {percent(majority.model_errors / n)} of the time, so the opposite answer would be right more often",
            "The labels may be swapped, or the column may belong to the other class"
            + (f": if it is the probability of {rival}, add --positive {shlex.quote(rival)}." if rival else "."),
            f"{count(round(majority.model_errors))} errors among {count(n)} samples; always answering "
            f"{majority.name} makes {count(round(majority.errors))}.",
        )


def _classes(evidence: Evidence) -> Iterator[Finding]:
    """Which classes' probabilities are off beyond chance, the worst first."""
    classes = evidence.classes
    if classes is None or evidence.samples < NO_CLAIM or classes.worst is None:
        return
    rows = sorted((row for row in classes.rows if row.misplaced > 0), key=lambda row: -row.misplaced)
    worst = rows[0]
    assert worst.worst is not None
    grade: Level = "poor" if worst.misplaced >= POOR_FROM else "fair" if worst.misplaced >= FAIR_FROM else "info"
    further = f" Also off: class {listing([row.name for row in rows[1:]], 5)}." if len(rows) > 1 else ""
    yield Finding(
        grade,
        f"The probability of class {worst.name} is off beyond chance",
        f"{_says(worst.worst).capitalize()}.{further}",
        f"At least {percent(worst.misplaced)} of this probability is given to the wrong samples (exact limits over "
        f"{classes.tested} bins together); its mean is {percent(worst.claimed)}, and "
        f"{percent(worst.labels / classes.samples)} of all samples are of the class.",
    )


def _majority(evidence: Evidence) -> Iterator[Finding]:
    """The model beside always answering the most frequent class."""
    if evidence.classes is None or evidence.samples < NO_CLAIM:
        return
    majority, n = evidence.classes.majority, evidence.classes.samples
    error = percent(majority.model_errors / n)
    constant = f"Always answering {majority.name} is wrong {with_limits(majority.error)} of the time"
    is_better = majority.model_errors < majority.errors and majority.p_value < 1 - evidence.confidence_level
    if majority.error.value > 0.5 and is_better:
        return  # a constant answer is no competitor among many classes
    is_worse = majority.model_errors > majority.errors and majority.p_value < 1 - evidence.confidence_level
    order = " Are the columns in the order of the labels?" if is_worse and len(evidence.classes.rows) > 2 else ""
    yield Finding(
        "info" if is_better else "fair",
        "Better than always answering the majority class" if is_better else "No better than the majority class",
        f"{constant}, the model {error}."
        if is_better
        else f"{constant}; the model {error}, which is not less beyond chance.{order}",
        f"{count(round(majority.errors))} and {count(round(majority.model_errors))} errors among {count(round(n))} "
        f"samples (McNemar's exact test, {p_words(majority.p_value)}).",
    )


def _bins(evidence: Evidence) -> Iterator[Finding]:
    """In which bins confidence and accuracy differ beyond chance."""
    if evidence.samples < NO_CLAIM:
        return
    bins, level = evidence.reliability, evidence.confidence_level
    filled = bins.count > 0
    # All bins are tested together (Bonferroni).
    bin_level = 1 - (1 - level) / max(1, int(filled.sum()))
    correct = np.nan_to_num(bins.accuracy) * bins.effective
    low, high = wilson(correct, bins.effective, bin_level)
    over, under = filled & (bins.confidence > high), filled & (bins.confidence < low)
    if not over.any() and not under.any():
        yield Finding(
            "good",
            "No bin is off beyond chance",
            "As far as the data can tell, accuracy and confidence agree in every bin of the reliability diagram.",
            f"15 bins, {int(filled.sum())} of them filled, each tested at {percent(bin_level)}.",
        )
    ece = evidence.numbers["ece_15"].value
    grade: Level = "poor" if ece >= LARGE_ERROR else "fair" if ece > SMALL_ERROR else "info"
    for marked, word, side in ((over, "Overconfident", "above"), (under, "Underconfident", "below")):
        if not marked.any():
            continue
        gaps = np.where(marked, np.abs(bins.confidence - bins.accuracy), 0.0)
        worst = int(np.nanargmax(gaps * bins.count))
        share = bins.count[marked].sum() / bins.count.sum()
        yield Finding(
            grade,
            f"{word} {_ranges(bins, marked)}",
            f"{percent(share)} of the predictions lie where the confidence is {side} the accuracy beyond chance.",
            f"Most of it between {percent(bins.low[worst])} and {percent(bins.high[worst])}: mean confidence "
            f"{percent(bins.confidence[worst])}, accuracy {percent(bins.accuracy[worst])}, "
            f"{count(round(bins.effective[worst]))} samples.",
        )


def _ranges(bins: Reliability, marked: Bools) -> str:
    """Runs of marked bins in words: "from 53.33% to 80.00% and above 93.33%"."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], marked.astype(int), [0]])))
    ends = [(bins.low[start], bins.high[stop - 1]) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
    if (0, 1) in ends:
        return "everywhere"
    words = [
        f"above {percent(low)}" if high == 1 else f"below {percent(high)}" if low == 0
        else f"from {percent(low)} to {percent(high)}"
        for low, high in ends
    ]  # fmt: skip
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _confident_errors(evidence: Evidence) -> Iterator[Finding]:
    """Errors among the predictions that should hardly have any."""
    sketch = evidence.collected.sketch
    counts, squares = (part.reshape(-1, 2)[round(SURE * BASE) :] for part in (sketch.base_counts, sketch.base_squares))
    # With weights, as many samples of equal weight as would be as certain.
    scale = counts.sum() / squares.sum() if squares.any() else 1.0
    correct, errors = (counts.sum(0) * scale).tolist()
    low = float(wilson(errors, correct + errors, evidence.confidence_level)[0])
    if round(correct + errors) < NO_CLAIM or low <= 0.01:
        return
    rate = percent(errors / (correct + errors))
    yield Finding(
        "poor" if low > 0.03 else "fair",
        "Errors among the most confident predictions",
        f"Of the predictions with a confidence above {SURE:.0%}, {rate} are wrong; at most 1% should be.",
        f"{count(round(errors))} errors among {count(round(correct + errors))} predictions; the lower limit of the "
        f"error rate is {percent(low)}.",
    )


def _max_logit(evidence: Evidence) -> Iterator[Finding]:
    """Whether the largest logit tells correct from wrong predictions of equal confidence (SC Fig. 9)."""
    gap = evidence.logit_gap
    if gap is None or not math.isfinite(gap.low):
        return
    middle, low, high = (fixed(value, 2, sign=True) for value in (gap.value, gap.low, gap.high))
    numbers = (
        f"At equal confidence the largest logit of wrong predictions is {middle} standard deviations "
        f"[{low}, {high}] from that of right ones."
    )
    level: Level = "good"
    title = "The max logit adds little to the confidence"
    text = "right and wrong ones have nearly the same largest logit: no sign of what label smoothing does to rankings."
    if gap.low > 0.1:
        level, title = "fair", "The max logit reveals errors that the confidence does not"
        text = (
            "wrong ones have the larger logits, as after training with label smoothing. The confidence is then a poor "
            "ranking of errors; logit normalisation is the remedy."
        )
    elif gap.high < -0.1:
        level, title = "info", "Right predictions have the larger logits"
        text = (
            "right ones have the larger logits: the max logit carries information that the confidence lacks, though "
            "not of the kind that label smoothing leaves."
        )
    yield Finding(level, title, f"Among predictions of equal confidence, {text}", numbers)


def _worse_groups(column: str, rows: Sequence[Row]) -> Iterator[Finding]:
    flagged = sorted((row for row in rows if row.flag), key=lambda row: -abs(row.gap) * math.sqrt(row.count))
    if not flagged:
        return
    largest = flagged[0]
    shares = (largest.accuracy, largest.confidence)
    limits = difference_span(largest.gap_low, largest.gap_high, "share", shares)
    groups = "predicted classes" if column == "class" else f"groups of {column}"
    names = listing([row.name for row in flagged], 5)
    yield Finding(
        "fair",
        f"{len(flagged)} of {len(rows)} {groups} {'is' if len(flagged) == 1 else 'are'} worse than the rest",
        f"Confidence and accuracy differ more there than elsewhere, beyond chance: {names}.",
        f"{largest.name}: confidence {percent(largest.confidence)}, accuracy {percent(largest.accuracy)}, gap "
        f"{difference(largest.gap, 'share', shares)} {limits}, {count(largest.count)} samples "
        f"(exact binomial tails, Holm's procedure over {len(rows)}).",
    )


def _little_data(evidence: Evidence) -> Iterator[Finding]:
    n, width = evidence.samples, evidence.numbers["ece_15"]
    if n < READ_WITH_CARE and math.isfinite(width.low):
        yield Finding(
            "info",
            "Little data",
            "With so few samples only large effects can be told from chance, and numbers per class hardly at all.",
            f"{count(n)} samples; the interval of the ECE is {percent(width.high - width.low)} wide.",
        )


def _rounding(collected: Collected) -> Iterator[Finding]:
    """Probabilities that were rounded, or are exactly 0."""
    digits = collected.digits
    if digits is None or not digits.matter:
        return
    floor = f"{LOGARITHMS}, a 0 counts as {significant(digits.floor)}; these numbers depend on that choice."
    if digits.places == 0:
        title, text = "Every probability is 0 or 1", f"There is no uncertainty to judge. {floor}"
    elif digits.places is None:
        title = "Some probabilities are exactly 0"
        text = f"A model may output them (forests do), or small values were lost in saving. {floor} {REMEDY}"
    else:
        title = f"Probabilities have only {digits.places} decimal place{'s' if digits.places > 1 else ''}"
        text = f"A confidence is known to within {100 * digits.hidden:g} percentage points."
        if digits.places <= 2:
            origin = "They were rounded, or are shares of votes, as forests output them."
            text = f"{origin} If rounded, {text[0].lower()}{text[1:]}"
        if digits.zeros:
            title += ", some are 0"
            text += f" Anything below {fixed(digits.hidden, digits.places + 1)} became 0. {floor} {REMEDY}"
        else:
            text += " No probability became 0, so no number depends on a floor."
    yield Finding("info", title, text, _counts(collected, digits))


def _counts(collected: Collected, digits: Digits) -> str:
    if not digits.zeros:
        return f"{count(digits.values)} probabilities, the smallest is {significant(digits.least)}."
    at_label = f"{count(collected.impossible)} of them" if collected.impossible else "none of them"
    counts = f"{count(digits.zeros)} of {count(digits.values)} probabilities are 0, {at_label} at the true label"
    holders = f"shared by the {digits.classes - 1} other classes" if digits.classes > 2 else "of the other class"
    if digits.places:
        reason = "half of the last decimal place"
    else:
        reason = (
            f"the smaller of the least probability above 0 ({significant(digits.least)}) and one in twice the samples"
        )
    return f"{counts}. The floor {significant(digits.floor)} is {reason}, {holders}."
