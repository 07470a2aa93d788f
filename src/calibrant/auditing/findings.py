"""What the numbers mean, in plain sentences, each with its evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from calibrant._validation import listing
from calibrant.auditing.breakdown import Row
from calibrant.auditing.collect import Collected
from calibrant.auditing.repairs import Repair
from calibrant.metrics import Interval, Reliability, wilson, z_value

Level = Literal["good", "fair", "poor", "info"]

SMALL_ERROR, LARGE_ERROR = 0.02, 0.05  # of ECE
READ_WITH_CARE = 1000  # samples, below which numbers are to be read with care
NO_CLAIM = 100  # samples, below which no claim is made
SURE = 0.99  # confidence of the surest predictions


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
    numbers: dict[str, Interval]
    reliability: Reliability
    gap: Interval
    chance: float
    by_class: Sequence[Row]
    by_group: Mapping[str, Sequence[Row]]
    repairs: Sequence[Repair]
    logit_gap: Interval | None
    confidence_level: float


def percent(value: float, digits: int = 1) -> str:
    """A share in per cent, with a dash where there is none."""
    return "-" if not math.isfinite(value) else f"{100 * value:.{digits}f}%"


def span(interval: Interval, digits: int = 1) -> str:
    """An interval of shares in brackets; nothing where there is none."""
    low, high = percent(interval.low, digits), percent(interval.high, digits)
    return f"[{low}, {high}]" if math.isfinite(interval.low) else "(no interval)"


def points(value: float) -> str:
    """A difference of shares in percentage points."""
    return f"{100 * value:+.2f}"


def verdict(evidence: Evidence) -> tuple[str, str, str]:
    """Level, headline and a second sentence.

    Good if the ECE is surely small, or if it cannot be told from chance and cannot be large either; unknown if it could
    be anything; else by its size.
    """
    accuracy, sure = evidence.numbers["accuracy"], evidence.numbers["mean_confidence"]
    ece, n = evidence.numbers["ece_15"], evidence.collected.samples
    claims = f"it claims {percent(sure.value)} and is right {percent(accuracy.value)} of the time"
    if n < NO_CLAIM or not math.isfinite(ece.low):
        few = f"{n} samples" if evidence.collected.kind == "classification" else f"{evidence.collected.rows} images"
        return (
            "unknown",
            f"Too little data to tell: {few}.",
            f"On these {claims}. No claim about calibration is worth making from so few.",
        )
    text = (
        f"Its calibration error (ECE, 15 bins) is {percent(ece.value, 2)} {span(ece, 2)}; a perfectly calibrated model "
        f"would show about {percent(evidence.chance, 2)} on {n:,} samples by chance."
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
        headline = f"Right on average, wrong in places: {claims}, but over- and underconfidence cancel."
    return ("fair" if ece.value < LARGE_ERROR else "poor"), headline, text


def list_findings(evidence: Evidence) -> list[Finding]:
    """Every finding, the most important first."""
    findings = _repairs(evidence)
    if evidence.collected.kind == "classification":  # the tests below take samples to be independent; pixels are not
        findings += [*_where(evidence), *_confident_errors(evidence), *_max_logit(evidence)]
        findings += _worse("class", evidence.by_class, evidence)
        for column, rows in evidence.by_group.items():
            findings += _worse(column, rows, evidence)
    findings += _enough(evidence)
    order = {"poor": 0, "fair": 1, "info": 2, "good": 3}
    return sorted(findings, key=lambda finding: order[finding.level])


def _where(evidence: Evidence) -> list[Finding]:
    """In which bins confidence and accuracy differ beyond chance."""
    if evidence.collected.samples < NO_CLAIM:
        return []
    bins, level = evidence.reliability, evidence.confidence_level
    filled = bins.count > 0
    # All bins are looked at, so each takes its share of the error that is allowed.
    each = 1 - (1 - level) / max(1, int(filled.sum()))
    right = np.nan_to_num(bins.accuracy) * bins.count
    low, high = wilson(right, bins.count, each)
    over, under = filled & (bins.confidence > high), filled & (bins.confidence < low)
    if not over.any() and not under.any():
        return [
            Finding(
                "good",
                "No bin is off beyond chance",
                "In every bin of the reliability diagram the accuracy agrees with the confidence, as far as data tell.",
                f"15 bins, {int(filled.sum())} of them filled, each tested at {percent(each, 2)}.",
            )
        ]
    findings = []
    ece = evidence.numbers["ece_15"].value
    grade: Level = "poor" if ece >= LARGE_ERROR else "fair" if ece > SMALL_ERROR else "info"
    for which, word in ((over, "Overconfident"), (under, "Underconfident")):
        if which.any():
            gaps = np.where(which, np.abs(bins.confidence - bins.accuracy), 0.0)
            worst = int(np.nanargmax(gaps * bins.count))
            share = bins.count[which].sum() / bins.count.sum()
            findings.append(
                Finding(
                    grade,
                    f"{word} {_ranges(bins, which)}",
                    f"{percent(share)} of the predictions lie where the confidence is "
                    f"{'above' if word == 'Overconfident' else 'below'} the accuracy beyond chance.",
                    f"Most of it between {bins.low[worst]:.2f} and {bins.high[worst]:.2f}: mean confidence "
                    f"{percent(bins.confidence[worst])}, accuracy {percent(bins.accuracy[worst])}, "
                    f"{int(bins.count[worst])} samples.",
                )
            )
    return findings


def _ranges(bins: Reliability, which: npt.NDArray[np.bool_]) -> str:
    """Runs of marked bins in words: "0.53 to 0.80, above 0.93"."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], which.astype(int), [0]])))
    words = []
    for first, stop in zip(edges[::2], edges[1::2], strict=True):
        low, high = bins.low[first], bins.high[stop - 1]
        if low == 0 and high == 1:
            return "everywhere"
        words.append(
            f"above {low:.2f}" if high == 1 else f"below {high:.2f}" if low == 0 else f"{low:.2f} to {high:.2f}"
        )
    return ", ".join(words)


def _confident_errors(evidence: Evidence) -> list[Finding]:
    """Errors among the predictions that should hardly have any."""
    counts = evidence.collected.sketch.summary().base_counts.reshape(-1, 2)
    counts = counts[round(SURE * len(counts)) :].sum(0)
    right, wrong = int(counts[0]), int(counts[1])
    if right + wrong < NO_CLAIM:
        return []
    low, _ = (float(limit) for limit in wilson(wrong, right + wrong, evidence.confidence_level))
    rate = wrong / (right + wrong)
    if low <= 0.01:
        return []
    return [
        Finding(
            "poor" if low > 0.03 else "fair",
            "Errors among the surest predictions",
            f"Of the predictions with a confidence above {SURE}, {percent(rate)} are wrong; at most 1% should be.",
            f"{wrong} errors among {right + wrong} predictions; the lower limit of the error rate is {percent(low)}.",
        )
    ]


def _repairs(evidence: Evidence) -> list[Finding]:
    by = {(repair.name, repair.metric): repair for repair in evidence.repairs}
    findings = []
    scaling = by.get(("Temperature scaling", "ece_15"))
    if scaling is not None:
        title, text = _said_of_scaling(scaling)
        limits = scaling.change
        spread = f" [{points(limits.low)}, {points(limits.high)}]" if math.isfinite(limits.low) else ""
        after = percent(max(0.0, scaling.before + limits.value), 2)
        numbers = (
            f"ECE {percent(scaling.before, 2)} to {after}: {points(limits.value)} points{spread}; {scaling.fitted}."
        )
        findings.append(Finding("info", title, text, numbers))
    norm = by.get(("Logit normalisation", "aurc"))
    if norm is not None and norm.change.high < 0:
        findings.append(
            Finding(
                "info",
                "Logit normalisation ranks errors better",
                "Ranking by the normalised largest logit instead of the confidence would lower the error rate of what "
                "is accepted when the model may abstain.",
                f"AURC {norm.before:.4f} to {norm.before + norm.change.value:.4f}: {norm.change.value:+.4f} "
                f"[{norm.change.low:+.4f}, {norm.change.high:+.4f}]; {norm.fitted}.",
            )
        )
    return findings


def _said_of_scaling(scaling: Repair) -> tuple[str, str]:
    change = scaling.change
    if not math.isfinite(change.low):
        return (
            "Temperature scaling, by images",
            "What temperature scaling changes on images it was not fitted on; pixels are not independent, so there is "
            "no interval.",
        )
    if change.high < 0:
        return (
            "Temperature scaling helps",
            "Temperature scaling would lower the calibration error and change no prediction.",
        )
    if change.low > 0:
        return (
            "Temperature scaling does not help",
            "The temperature with the lowest NLL raises the ECE: the miscalibration is not one of scale.",
        )
    return (
        "Temperature scaling changes little",
        "Temperature scaling would not change the calibration error beyond chance.",
    )


def _max_logit(evidence: Evidence) -> list[Finding]:
    """Whether the largest logit tells right from wrong at equal confidence, as after label smoothing (SC Fig. 9)."""
    gap = evidence.logit_gap
    if gap is None or not math.isfinite(gap.low):
        return []
    numbers = (
        f"At equal confidence the largest logit of wrong predictions is {gap.value:+.2f} standard deviations "
        f"[{gap.low:+.2f}, {gap.high:+.2f}] from that of right ones."
    )
    if gap.low > 0.1:
        return [
            Finding(
                "fair",
                "The max logit knows of errors that the confidence does not",
                "Among predictions of equal confidence, wrong ones have the larger logits, as after training with "
                "label smoothing. The confidence is then a poor ranking of errors; logit normalisation is the remedy.",
                numbers,
            )
        ]
    if gap.high < -0.1:
        return [
            Finding(
                "info",
                "Right predictions have the larger logits",
                "Among predictions of equal confidence, right ones have the larger logits: the max logit carries "
                "information that the confidence lacks, though not of the kind that label smoothing leaves.",
                numbers,
            )
        ]
    return [
        Finding(
            "good",
            "The max logit adds little to the confidence",
            "Among predictions of equal confidence, right and wrong ones have nearly the same largest logit: "
            "no sign of what label smoothing does to a ranking.",
            numbers,
        )
    ]


def _worse(what: str, rows: Sequence[Row], evidence: Evidence) -> list[Finding]:
    flagged = sorted((row for row in rows if row.flag), key=lambda row: -abs(row.gap) * math.sqrt(row.count))
    if not flagged:
        return []
    names = listing([row.name for row in flagged], 5)
    first = flagged[0]
    limits = z_value(evidence.confidence_level) * first.error
    groups = "predicted classes" if what == "class" else f"groups of {what}"
    return [
        Finding(
            "fair",
            f"{len(flagged)} of {len(rows)} {groups} are worse than the rest",
            f"Confidence and accuracy differ more there than elsewhere, beyond chance: {names}.",
            f"{first.name}: confidence {percent(first.confidence)}, accuracy {percent(first.accuracy)}, gap "
            f"{percent(first.gap)} [{percent(first.gap - limits)}, {percent(first.gap + limits)}], {first.count:,} "
            f"samples (exact binomial tails, Holm's procedure over {len(rows)}).",
        )
    ]


def _enough(evidence: Evidence) -> list[Finding]:
    n, width = evidence.collected.samples, evidence.numbers["ece_15"]
    if n >= READ_WITH_CARE or not math.isfinite(width.low):
        return []
    return [
        Finding(
            "info",
            "Little data",
            "With this few samples only large effects can be told from chance; numbers per class can hardly be.",
            f"{n} samples; the interval of the ECE is {percent(width.high - width.low)} wide.",
        )
    ]
