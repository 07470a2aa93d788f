"""What a repair is worth, in plain sentences: the one that `calibrant fit` would choose first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal

from calibrant._numbers import difference, difference_span, number, percent
from calibrant.auditing.repairs import Repair
from calibrant.metrics import Interval
from calibrant.posthoc import CALIBRATORS, LogitNorm, TemperatureScaling
from calibrant.selective import NORMALISED, Selection

#: Level, title, text and evidence of a finding.
Words = tuple[Literal["info"], str, str, str]


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
        name, text = _calibrator_words(title, calibrated.change, rounded)
        numbers = f"ECE {_change_words(calibrated, 'share')}; {calibrated.fitted}."
        yield "info", name, f"{text} {_choice_words(choice)}".strip(), numbers
    norm = repairs.get((LogitNorm.title, "aurc"))
    ranks_otherwise = choice is not None and choice.score.name != NORMALISED
    if norm is not None and norm.change.high < 0 and not ranks_otherwise:
        yield (
            "info",
            "Logit normalisation ranks errors better",
            "Ranking by the normalised largest logit instead of the confidence would lower the error rate of what is "
            "accepted when the model may abstain.",
            f"AURC {_change_words(norm, 'number')}; {norm.fitted}.",
        )
    if choice is not None and ranks_otherwise and str(choice.score) != "msp":
        chosen, plain = (next(row for row in choice.scores if row.name == name) for name in (str(choice.score), "msp"))
        yield (
            "info",
            f"Ranking by {choice.score} finds errors better",
            "calibrant fit ranks by it instead of the confidence: of what is accepted, less would be wrong.",
            f"AURC {number(plain.value)} to {number(chosen.value)}, cross-fitted on the samples that calibrant fit "
            "chooses on.",
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
        reason = "no calibrator lowers the NLL there by more than its standard error"
        return f"calibrant fit keeps the confidence as it is: {reason}."
    others = [row.name for row in choice.calibrators if row.name not in ("none", choice.calibrator.name)]
    names = ", ".join(CALIBRATORS[name].title.lower() for name in others)
    chosen = "calibrant fit chooses it, because it lowers the NLL by more than the standard error"
    return f"{chosen}, and none of the others does further ({names})." if others else f"{chosen}."


def _calibrator_words(name: str, change: Interval, rounded: bool) -> tuple[str, str]:
    """Title and text about what a calibrator does to the ECE."""
    if not math.isfinite(change.low):
        text = f"What {name.lower()} changes on images or sequences it was not fitted on; what is inside one of them is"
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
