"""What the numbers mean, in plain sentences, each with its evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from calibrant.auditing.collect import Collected
from calibrant.auditing.fixes import Fix
from calibrant.auditing.tables import Row, reach
from calibrant.metrics.calibration import Reliability
from calibrant.metrics.intervals import Interval, wilson

Level = Literal["good", "fair", "poor", "info"]

FAIR, POOR = 0.02, 0.05  # of ECE
FEW = 1000  # samples, below which numbers are to be read with care
NONE = 100  # samples, below which no claim is made


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

    found: Collected
    numbers: dict[str, Interval]
    reliability: Reliability
    gap: Interval
    chance: float
    by_class: Sequence[Row]
    by_group: Mapping[str, Sequence[Row]]
    fixes: Sequence[Fix]
    logit_gap: Interval | None
    confidence_level: float


def percent(value: float, digits: int = 1) -> str:
    """A share in per cent, with a dash where there is none."""
    return "-" if not math.isfinite(value) else f"{100 * value:.{digits}f}%"


def span(one: Interval, digits: int = 1) -> str:
    """An interval of shares in brackets."""
    return f"[{percent(one.low, digits)}, {percent(one.high, digits)}]"


def ece_by_chance(reliability: Reliability) -> float:
    """The ECE that a perfectly calibrated model would show on as many samples, by chance alone.

    In a bin of n samples of mean confidence c the gap is about normal with variance c (1 - c) / n.
    """
    n = reliability.count[reliability.count > 0]
    c = reliability.confidence[reliability.count > 0]
    return float((n * np.sqrt(2 / np.pi * c * (1 - c) / n)).sum() / n.sum())


def verdict(evidence: Evidence) -> tuple[str, str, str]:
    """Level, headline and a second sentence."""
    accuracy, sure = evidence.numbers["accuracy"], evidence.numbers["mean_confidence"]
    ece, n = evidence.numbers["ece"], evidence.found.samples
    claims = f"it claims {percent(sure.value)} and is right {percent(accuracy.value)} of the time"
    if n < NONE:
        return (
            "unknown",
            f"Too little data to tell: {n} samples.",
            f"On these {claims}. Below {NONE} samples no claim about calibration is worth making.",
        )
    error = f"Its calibration error (ECE, 15 bins) is {percent(ece.value, 2)} {span(ece, 2)}"
    chance = f"a perfectly calibrated model would show about {percent(evidence.chance, 2)} on {n} samples by chance"
    if ece.low <= 1.5 * evidence.chance or ece.value <= FAIR:
        tail = f"{error}; {chance}."
        return "good", f"Its confidence can be trusted: {claims}.", tail
    level = "fair" if ece.value < POOR else "poor"
    if evidence.gap.low > 0:
        headline = f"Overconfident: {claims}."
    elif evidence.gap.high < 0:
        headline = f"Underconfident: {claims}."
    else:
        headline = f"Right on average, wrong in places: {claims}, but over- and underconfidence cancel."
    return level, headline, f"{error}; {chance}."


def diagnose(evidence: Evidence) -> list[Finding]:
    """Every finding, the most important first."""
    findings = [*_where(evidence), *_confident_errors(evidence), *_repairs(evidence), *_max_logit(evidence)]
    findings += _worse("class", evidence.by_class, evidence)
    for column, rows in evidence.by_group.items():
        findings += _worse(column, rows, evidence)
    findings += _enough(evidence)
    order = {"poor": 0, "fair": 1, "good": 2, "info": 3}
    return sorted(findings, key=lambda finding: order[finding.level])


def _where(evidence: Evidence) -> list[Finding]:
    """In which bins confidence and accuracy differ beyond chance."""
    if evidence.found.samples < NONE:
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
    ece = evidence.numbers["ece"].value
    grade: Level = "poor" if ece >= POOR else "fair" if ece > FAIR else "info"
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
    """Runs of marked bins in words: "between 0.53 and 0.80, and above 0.93"."""
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
    """Errors at a confidence of 0.99 and more."""
    counts = evidence.found.sketch.summary().base_counts.reshape(-1, 2)[-3:].sum(0)
    right, wrong = int(counts[0]), int(counts[1])
    if right + wrong < NONE:
        return []
    low, _ = (float(limit) for limit in wilson(wrong, right + wrong, evidence.confidence_level))
    rate = wrong / (right + wrong)
    if low <= 0.01:
        return []
    return [
        Finding(
            "poor" if low > 0.03 else "fair",
            "Errors among the surest predictions",
            f"Of the predictions with a confidence above 0.99, {percent(rate)} are wrong; at most 1% should be.",
            f"{wrong} errors among {right + wrong} predictions; the lower limit of the error rate is {percent(low)}.",
        )
    ]


def _repairs(evidence: Evidence) -> list[Finding]:
    findings = []
    by = {(fix.name, fix.metric): fix for fix in evidence.fixes}
    scaling = by.get(("Temperature scaling", "ece"))
    if scaling is not None:
        change = scaling.change
        after = max(0.0, scaling.before + change.value)
        numbers = (
            f"ECE {percent(scaling.before, 2)} to {percent(after, 2)}, change {span(change, 2)}; {scaling.fitted}."
        )
        if change.high < 0:
            text = "Temperature scaling would lower the calibration error and change no prediction."
            findings.append(Finding("info", "Temperature scaling helps", text, numbers))
        elif change.low > 0:
            text = "The temperature with the lowest NLL raises the ECE: the miscalibration is not one of scale."
            findings.append(Finding("info", "Temperature scaling does not help", text, numbers))
        else:
            text = "Temperature scaling would not change the calibration error beyond chance."
            findings.append(Finding("info", "Temperature scaling changes little", text, numbers))
    norm = by.get(("Logit normalisation", "aurc"))
    if norm is not None and norm.change.high < 0:
        findings.append(
            Finding(
                "info",
                "Logit normalisation ranks errors better",
                "Ranking by the normalised largest logit instead of the confidence would lower the error rate of what "
                "is accepted when the model may abstain.",
                f"AURC {norm.before:.4f} to {norm.before + norm.change.value:.4f}, change "
                f"[{norm.change.low:+.4f}, {norm.change.high:+.4f}]; {norm.fitted}.",
            )
        )
    return findings


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
            "The max logit adds nothing to the confidence",
            "Among predictions of equal confidence, right and wrong ones have about the same largest logit: there is "
            "no sign of what label smoothing does to a ranking.",
            numbers,
        )
    ]


def _worse(what: str, rows: Sequence[Row], evidence: Evidence) -> list[Finding]:
    flagged = sorted((row for row in rows if row.flag), key=lambda row: -abs(row.gap) * math.sqrt(row.count))
    if not flagged:
        return []
    names = ", ".join(row.name for row in flagged[:5]) + (f" and {len(flagged) - 5} more" if len(flagged) > 5 else "")
    first = flagged[0]
    limits = reach(evidence.confidence_level) * first.error
    groups = "predicted classes" if what == "class" else f"groups of {what}"
    return [
        Finding(
            "fair",
            f"{len(flagged)} of {len(rows)} {groups} are worse than the rest",
            f"Confidence and accuracy differ more there than elsewhere, beyond chance: {names}.",
            f"{first.name}: confidence {percent(first.confidence)}, accuracy {percent(first.accuracy)}, gap "
            f"{percent(first.gap)} +- {percent(limits)}, {first.count} samples (Holm's correction over {len(rows)}).",
        )
    ]


def _enough(evidence: Evidence) -> list[Finding]:
    n, width = evidence.found.samples, evidence.numbers["ece"]
    if n >= FEW:
        return []
    return [
        Finding(
            "info",
            "Little data",
            "With this few samples only large effects can be told from chance; numbers per class can hardly be.",
            f"{n} samples; the interval of the ECE is {percent(width.high - width.low)} wide.",
        )
    ]
