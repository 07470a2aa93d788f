"""Requirements on a model's numbers as people write them: ``ece <= 0.03``, ``risk@0.8 <= 5%``, ``ece no worse``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from calibrant._validation import did_you_mean, short
from calibrant.metrics import COMPARED, MEASURED, describe, split_name

#: Measures of a policy: shares, and the cost of its answers.
POLICY_METRICS = {
    "policy.risk": "wrong answers of the policy",
    "policy.coverage": "answered by the policy",
    "policy.wrong": "answered wrongly by the policy, of all samples",
    "policy.recall": "samples of the class that the policy answers as it",
    "policy.cost": "mean cost of the policy's answers",
}
#: Short names of metrics at a share: ``risk@0.8``.
_AT = {"risk": "risk_at_coverage", "coverage": "coverage_at_risk"}
_ABSOLUTE = re.compile(r"\s*([a-z_.0-9]+?(?:@[0-9.]+%?)?)\s*(<=|>=|<|>)\s*([-+0-9.eE]+)\s*(%?)\s*")
_RELATIVE = re.compile(r"\s*([a-z_.0-9]+)\s+no\s+worse(?:\s+by\s+([0-9.eE+-]+)\s*(%?))?\s*")


@dataclass(frozen=True)
class Requirement:
    """One requirement."""

    text: str  # as it was written
    metric: str  # a name of `calibrant.metrics.METRICS`, with its setting, or of `POLICY_METRICS`
    at_most: bool  # whether the value must be at most the limit; otherwise at least
    limit: float  # the limit; of a comparison, the largest difference from the baseline
    is_relative: bool = False  # whether the value is the difference from a baseline

    @property
    def is_of_policy(self) -> bool:
        """Whether it is about a policy."""
        return self.metric in POLICY_METRICS

    @property
    def is_share(self) -> bool:
        """Whether its numbers are printed in percent."""
        if self.metric == "policy.cost":
            return False
        return self.is_of_policy or describe(self.metric).unit == "share"

    @property
    def label(self) -> str:
        """What is measured, in words."""
        return POLICY_METRICS[self.metric] if self.is_of_policy else describe(self.metric).label


def parse_requirement(text: str) -> Requirement:
    """Read a requirement.

    Args:
        text: ``METRIC <= NUMBER`` or ``METRIC >= NUMBER`` with a metric of `calibrant.metrics`, ``risk@COVERAGE``,
            ``coverage@RISK`` or a key of `POLICY_METRICS`; or ``METRIC no worse``, ``METRIC no worse by
            NUMBER``. Numbers may be in percent.

    Example:
        >>> parse_requirement("risk@0.8 <= 5%")
        Requirement(text='risk@0.8 <= 5%', metric='risk_at_coverage_0.8', at_most=True, limit=0.05, is_relative=False)
        >>> parse_requirement("accuracy no worse by 1%").limit
        -0.01
    """
    if match := _RELATIVE.fullmatch(text):
        metric = _metric(match[1], text)
        if metric not in COMPARED:
            raise ValueError(f"{short(text)}: only {', '.join(COMPARED)} are compared with a baseline")
        if describe(metric).better == "none":
            raise ValueError(f"{short(text)}: neither end of {metric} is better as such")
        margin = _number(match[2], match[3] or "", text) if match[2] else 0.0
        if margin < 0:
            raise ValueError(f"{short(text)}: a margin is at least 0")
        at_most = describe(metric).better == "low"
        return Requirement(text.strip(), metric, at_most, margin if at_most else -margin, True)
    if match := _ABSOLUTE.fullmatch(text):
        return Requirement(
            text.strip(), _metric(match[1], text), match[2] in ("<=", "<"), _number(match[3], match[4], text)
        )
    raise ValueError(f"a requirement must be like 'ece <= 0.03', 'risk@0.8 <= 5%' or 'ece no worse', got {short(text)}")


def _metric(name: str, text: str) -> str:
    word, at, share = name.partition("@")
    if at:
        if word not in _AT:
            raise ValueError(f"{short(text)}: only risk@COVERAGE and coverage@RISK take a share, got {name!r}")
        value = _number(share.removesuffix("%"), "%" * share.endswith("%"), text)
        if not 0 < value < 1:
            raise ValueError(f"{short(text)}: the share behind @ lies between 0 and 1, got {share!r}")
        return f"{_AT[word]}_{value:g}"
    if name in POLICY_METRICS or name in MEASURED or name == "classwise_ece":
        return name
    base, setting = split_name(name)
    if base in _AT.values() and setting is not None and 0 < setting < 1:
        return name
    names = [*MEASURED, "classwise_ece", *POLICY_METRICS, "risk@0.8", "coverage@0.05"]
    listed = ", ".join(word for word in names if "_at_" not in word)
    raise ValueError(f"{short(text)}: no metric {name[:60]!r}{did_you_mean(name, names) or f'; there are {listed}'}")


def _number(digits: str, percent: str, text: str) -> float:
    try:
        value = float(digits)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{short(text)}: {digits[:40]!r} is not a number")
    return value / 100 if percent else value
