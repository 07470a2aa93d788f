"""What a promise says, in a sentence or two, where it is not simply the risk of all answers."""

from __future__ import annotations

from collections.abc import Sequence

from calibrant._numbers import allowed, count, number, percent, round_percent
from calibrant._validation import listing
from calibrant.predictions import class_name
from calibrant.selective.promise import LossTally, Promise
from calibrant.selective.thresholds.risk import ClassThreshold, Threshold

MOST_LISTED = 5  # parts that are named in a sentence


def promise_words(
    promise: Promise,
    parts: Sequence[ClassThreshold],
    threshold: Threshold,
    class_names: Sequence[str] | None,
    group: str | None,
    target_risk: float | None,
    confidence: float,
) -> str:
    """What holds for the answers, or for the samples, and with what confidence."""
    sure = f"With {round_percent(confidence)} confidence"
    if promise.has_class_thresholds:
        observed = f"seen: {percent(threshold.risk.value)} of {count(threshold.accepted)} answers wrong"
        where = "" if group is None else f" in every {group}"
        if promise.by_class:
            every = "of every predicted class" + where
            text = f"{sure} at most {allowed(target_risk)} of the answers {every} are wrong, at once ({observed})."
        else:
            shares = [
                f"{allowed(share)} of the answers {class_name(label, class_names)}" for label, share in promise.shares
            ]
            text = f"{sure} at least {' and '.join(shares)} are right{where} ({observed}); no other class is answered."
        silent = [part.name(class_names) for part in parts if part.threshold.abstains]
        return text + (f" It never answers {listing(silent, MOST_LISTED)}." if silent else "")
    tally = promise.tally
    rows = 0 if tally is None else tally.rows
    if promise.of == "recall":
        (label, share), *_ = promise.shares
        name = class_name(label, class_names)
        observed = "" if tally is None else f" (seen: {percent(1 - tally.mean)} of {count(rows)})"
        return f"{sure} at least {allowed(share)} of the samples of {name} are answered as {name}{observed}."
    if promise.of == "cost":
        observed = "" if tally is None else f" (seen: {number(promise.highest * tally.mean)}, of {count(rows)})"
        return f"{sure} an answer costs at most {promise.target:g} on average{observed}."
    observed = "" if tally is None else f" (seen: {percent(tally.mean)} of {count(rows)})"
    return (
        f"On average over validation sets, at most {allowed(promise.target)} of all samples are answered wrongly"
        f"{observed}: an expected risk, which a single fit may exceed."
    )


def promise_title(promise: Promise, class_names: Sequence[str] | None, risk: float | None) -> str:
    """What is promised, as the subject of a sentence."""
    if promise.of == "recall":
        name = class_name(promise.label, class_names)
        return f"The promise that at least {allowed(promise.shares[0][1])} of {name} are answered as {name}"
    if promise.of == "cost":
        return f"The promise that an answer costs at most {promise.target:g} on average"
    if promise.of == "expected-risk":
        return f"The expectation that at most {allowed(promise.target)} of all samples are answered wrongly"
    if promise.of == "precision":
        shares = [f"{allowed(share)} of answers {class_name(label, class_names)}" for label, share in promise.shares]
        return f"The promise that at least {' and '.join(shares)} are right"
    where = " of every class" if promise.by_class else ""
    return f"The promise of at most {allowed(risk or 0)} wrong answers{where}"


def tally_words(promise: Promise, tally: LossTally, class_names: Sequence[str] | None) -> str:
    """What came of a promise that is not about the share of wrong answers; empty for others, and of no samples."""
    if not tally.rows:
        return ""
    if promise.of == "recall":
        name, answered = class_name(promise.label, class_names), tally.rows - round(tally.loss)
        return (
            f"{count(answered)} of {count(tally.rows)} samples of {name} are answered as {name}, "
            f"{percent(1 - tally.mean)}."
        )
    if promise.of == "cost":
        return f"An answer costs {number(promise.highest * tally.mean)} on average."
    if promise.of == "expected-risk":
        return f"{percent(tally.mean)} of all samples are answered wrongly."
    return ""
