"""What rounding and exact zeros of probabilities mean for an audit, in words."""

from __future__ import annotations

from calibrant._numbers import count, fixed, significant
from calibrant.auditing.collect import Collected
from calibrant.predictions import Digits

LOGARITHMS = "Where a logarithm is needed (NLL, temperature scaling, logit normalisation)"
REMEDY = "Unless the model gives them so, save logits, or probabilities with all digits."


def rounding_words(collected: Collected) -> tuple[str, str, str] | None:
    """Title, text and evidence about probabilities that were rounded or are exactly 0; None where neither is so."""
    digits = collected.digits
    if digits is None or not digits.matter:
        return None
    if digits.places == 0:
        return "Every probability is 0 or 1", f"No doubt is left to judge. {_use_of_floor(digits)}", _counts(collected)
    if digits.places is None:
        text = "A model may give them (forests do), or saving lost what was small."
        return "Some probabilities are exactly 0", f"{text} {_use_of_floor(digits)} {REMEDY}", _counts(collected)
    title = f"Probabilities have {places_text(digits.places)}"
    text = f"A confidence is known to within {100 * digits.hidden:g} percentage points."
    if digits.places <= 2:
        text = (
            f"They were rounded, or are shares of votes, as forests give them. If rounded, {text[0].lower()}{text[1:]}"
        )
    if not digits.zeros:
        return title, f"{text} No probability became 0, so no number depends on a floor.", _counts(collected)
    lost = f"What is below {fixed(digits.hidden, digits.places + 1)} shows as 0."
    return f"{title}, some are 0", f"{text} {lost} {_use_of_floor(digits)} {REMEDY}", _counts(collected)


def places_text(places: int) -> str:
    """How many decimal places."""
    return f"only {places} decimal place{'s' if places > 1 else ''}"


def nll_note(collected: Collected) -> str | None:
    """What the NLL takes for labels of probability 0, if there are any."""
    if not collected.impossible:
        return None
    samples = "1 sample gives its" if collected.impossible == 1 else f"{count(collected.impossible)} samples give their"
    return f"{samples} label probability 0, counted as {significant(collected.floor)}; infinite without that floor"


def _use_of_floor(digits: Digits) -> str:
    return f"{LOGARITHMS}, a 0 counts as {significant(digits.floor)}; these numbers depend on that choice."


def _counts(collected: Collected) -> str:
    digits = collected.digits
    assert digits is not None
    if not digits.zeros:
        return f"{count(digits.values)} probabilities, the smallest is {significant(digits.least)}."
    at_label = f"{count(collected.impossible)} of them" if collected.impossible else "none of them"
    counts = f"{count(digits.zeros)} of {count(digits.values)} probabilities are 0, {at_label} at the true label"
    others = f"shared by the {digits.classes - 1} other classes" if digits.classes > 2 else "of the other class"
    if digits.places:
        reason = "half of the last decimal place"
    else:
        reason = (
            f"the smaller of the least probability above 0 ({significant(digits.least)}) and one in twice the samples"
        )
    return f"{counts}. The floor {significant(digits.floor)} is {reason}, {others}."
