"""What a policy does and promises, in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibrant.selective.policy import Policy
    from calibrant.selective.threshold import Threshold


def summary(policy: Policy) -> str:
    """One or two sentences: how much is answered, and what holds for the answers."""
    found = policy.threshold
    if policy.abstains:
        return found.reason if policy.groups is None else f"Abstains always. {found.reason}"
    if found.accepted == found.samples:
        return f"Answers all {_unit(policy)}. {promise(policy)}"
    answered = f"Answers {_share(found.coverage.value)} of {_unit(policy)}"
    if not math.isnan(found.coverage.low):
        answered += f" ({_share(found.coverage.low)} to {_share(found.coverage.high)})"
    return f"{answered} and abstains on the rest. {promise(policy)}"


def promise(policy: Policy) -> str:
    """What holds for the answers, and with what confidence."""
    found, sure = policy.threshold, f"{100 * policy.confidence:.4g}%"
    seen = f"seen: {_share(found.risk.value)} of {found.accepted:,}"
    if policy.target_risk is None:
        limit = found.risk.high
        if math.isnan(limit):
            return f"No risk was asked for and none is promised ({seen} answers wrong)."
        return f"With {sure} confidence at most {_share(limit)} of the answers are wrong ({seen})."
    target = _share(policy.target_risk)
    if found.confidence is None:
        return f"The threshold is empirical: {target} was met on these samples ({seen}) and nothing is promised."
    if policy.groups is not None:
        every = f"in every {policy.group}"
        text = f"With {sure} confidence at most {target} of the answers are wrong {every} ({seen} in all)."
        silent = [name for name, one in policy.groups.items() if one.abstains]
        return text + (f" It never answers for {some_names(silent)}." if silent else "")
    return f"With {sure} confidence at most {target} of the answers are wrong ({seen})."


def method_sentence(policy: Policy) -> str:
    """Calibrator and score, in a sentence."""
    calibrated = "not calibrated" if policy.calibrator is None else f"calibrated by {policy.calibrator.name} scaling"
    if policy.calibrator is not None and policy.calibrator.name == "isotonic":
        calibrated = "calibrated by isotonic regression"
    return f"Confidence {calibrated}; answers ranked by {policy.score}."


def threshold_row(name: str, found: Threshold) -> list[str]:
    """A row of a table about one group's threshold."""
    if found.abstains:
        needed = "" if found.needed is None else f"{found.needed:,} samples needed"
        return [name, f"{found.samples:,}", "never answers", "", needed]
    limit = "" if found.confidence is None or math.isnan(found.risk.high) else f"at most {_share(found.risk.high)}"
    return [name, f"{found.samples:,}", _share(found.coverage.value), _share(found.risk.value), limit]


def _unit(policy: Policy) -> str:
    return "pixels" if policy.kind == "segmentation" else "samples"


def _share(value: float) -> str:
    return f"{100 * value:.2f}%" if value < 0.1 or value > 0.9 else f"{100 * value:.1f}%"


def some_names(names: list[str], most: int = 5) -> str:
    """Some names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def differing_names(first: Sequence[str], second: Sequence[str], most: int = 5) -> tuple[str, str]:
    """Some names of two lists that are not the same, where they begin to differ.

    Example:
        >>> excerpts(["a", "b", "c", "d", "e", "f"], ["a", "b", "c", "d", "e", "g"])
        ('..., b, c, d, e, f', '..., b, c, d, e, g')
    """
    pairs = enumerate(zip(first, second, strict=False))
    place = next((i for i, (one, other) in pairs if one != other), min(len(first), len(second)))
    start = max(0, place + 1 - most)
    head = ["..."] if start else []
    one, other = (", ".join([*head, *names[start : start + most]]) for names in (first, second))
    return one, other
