"""What else could be promised: a small menu of risks and the coverage that each would have, on the same samples.

A menu is made by the search that found the threshold, at other target risks. It is an estimate: whoever chooses a risk
after seeing it has looked at the samples that the promise rests on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from calibrant._numbers import percent, round_percent

if TYPE_CHECKING:
    from calibrant.selective.thresholds.risk import Threshold

OFFERS = 5  # in a menu

#: Risks that a menu may name, of two digits each.
RISKS = tuple(
    round(digits * scale, 4) for scale, most in ((1e-4, 99), (1e-3, 99), (1e-2, 50)) for digits in range(10, most + 1)
)


class Offer(NamedTuple):
    """A target risk, and the share of samples that would be answered with it."""

    risk: float
    coverage: float


def offers_from(coverage_at: Callable[[float], float], above: float = 0.0) -> tuple[Offer, ...]:
    """Risks from the lowest that can be promised up to one that answers as much as any, with the coverage of each.

    Args:
        coverage_at: the share that would be answered with a target risk; rises with it, but for the luck of the tests.
        above: risks up to here are left out.

    Returns:
        At most `OFFERS` of them, in order; none where nothing can be promised.

    Example:
        >>> from calibrant.selective.thresholds.menu import offers_from
        >>> [offer.risk for offer in offers_from(lambda risk: min(1.0, max(0.0, 10 * (risk - 0.05))), 0.05)]
        [0.051, 0.067, 0.087, 0.11, 0.15]
    """
    risks = [risk for risk in RISKS if risk > above + 1e-12]
    coverage: dict[int, float] = {}

    def reach(at: int) -> float:
        if at not in coverage:
            coverage[at] = coverage_at(risks[at])
        return coverage[at]

    if not risks or reach(len(risks) - 1) <= 0:
        return ()
    indices = range(len(risks))
    lowest = bisect_left(indices, True, key=lambda at: reach(at) > 0)
    most = reach(len(risks) - 1) * (1 - 1e-12)
    highest = bisect_left(indices, True, lo=lowest, key=lambda at: reach(at) >= most)
    spaced = np.geomspace(risks[lowest], risks[highest], OFFERS)  # finer where it is strict
    nearest = sorted({lowest, highest, *(int(np.abs(np.array(risks) - risk).argmin()) for risk in spaced)})
    return tuple(Offer(risks[at], reach(at)) for at in nearest if reach(at) > 0)


def add_menu(threshold: Threshold, search_at: Callable[[float], Threshold]) -> Threshold:
    """The threshold with a menu of what the same search finds at other risks; a reason to abstain lists it too."""

    def coverage_at(risk: float) -> float:
        alternative = search_at(risk)
        return alternative.accepted / alternative.samples if alternative.samples else 0.0

    if not threshold.abstains:
        return replace(threshold, menu=offers_from(coverage_at))
    menu = offers_from(coverage_at, above=threshold.target_risk or 0.0)
    words = menu_words(menu, "samples", threshold.confidence)
    return replace(threshold, menu=menu, reason=f"{threshold.reason} {words}")


def menu_words(menu: Sequence[Offer], unit: str, confidence: float | None) -> str:
    """A menu in sentences, with what it is worth and what to do."""
    if not menu:
        highest = f"no risk up to {round_percent(RISKS[-1])}"
        return f"On those {unit} {highest} can be promised." if confidence else f"{highest.capitalize()} was met."
    lowest, *others = menu
    verb = "that could be promised" if confidence else "that is met"
    words = f"The lowest risk {verb} on those {unit} is about {round_percent(lowest.risk)}, which answers "
    words += _share_text(lowest.coverage)
    if others:
        words += "; " + ", ".join(
            f"{round_percent(offer.risk)} answers {_share_text(offer.coverage)}" for offer in others
        )
    if confidence is None:
        return f"{words}. These are estimates."
    return (
        f"{words}. These are estimates: a risk chosen after seeing them holds with less than "
        f"{round_percent(confidence)} confidence, so fit again on fresh {unit} with the risk you choose."
    )


def _share_text(coverage: float) -> str:
    return "all" if coverage >= 1 else percent(coverage)
