"""What a policy does to a row of logits, written once in `Ops`: PyTorch computes it, ONNX draws it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant.posthoc import FLOOR, Calibrator, Ops, normalised_max_logit_formula, softmax
from calibrant.selective.scores import FORMULAS

V = TypeVar("V")

NORMALISED = "normalised_max_logit"


@dataclass(frozen=True)
class Score:
    """A score of `calibrant.selective` by name.

    Attributes:
        name: a key of `FORMULAS`, or ``"normalised_max_logit"``.
        of: what it is computed from: ``"logits"`` as they come, or ``"calibrated"`` ones.
        p: of the normalised max logit.
        centre: likewise.
    """

    name: str = "msp"
    of: str = "logits"
    p: int | None = None
    centre: bool = True

    def __post_init__(self) -> None:
        if self.name not in (*FORMULAS, NORMALISED):
            raise ValueError(f"score must be one of {', '.join((*FORMULAS, NORMALISED))}, got {self.name!r}")
        if self.of not in ("logits", "calibrated"):
            raise ValueError(f"score must be of 'logits' or 'calibrated' ones, got {self.of!r}")
        if (self.p is None) == (self.name == NORMALISED):
            raise ValueError(f"p goes with {NORMALISED} and nothing else, got {self.p!r} with {self.name}")
        if self.p is not None and (isinstance(self.p, bool) or not isinstance(self.p, int) or not 1 <= self.p <= 1000):
            raise ValueError(f"p must be a whole number from 1 to 1000, got {self.p!r}")

    def __str__(self) -> str:
        words = self.name if self.p is None else f"{self.name} (p = {self.p}{'' if self.centre else ', not centred'})"
        return words if self.of == "logits" else f"{words} of calibrated logits"

    def apply(self, ops: Ops[V], logits: V, calibrated: V) -> V:
        """The score of each row, ``[n, 1]``."""
        z = logits if self.of == "logits" else calibrated
        if self.p is not None:
            return normalised_max_logit_formula(ops, z, self.p, centre=self.centre)
        return FORMULAS[self.name](ops, z)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: without what the score does not have."""
        found = asdict(self)
        return found if self.p is not None else {"name": self.name, "of": self.of}


class Rule(Protocol):
    """What `decision` needs to know of a policy."""

    @property
    def takes(self) -> str:
        """What the values are: ``"logits"`` or ``"probabilities"``."""

    @property
    def calibrator(self) -> Calibrator | None:
        """The calibrator, if any."""

    @property
    def score(self) -> Score:
        """What ranks the predictions."""

    @property
    def limits(self) -> npt.NDArray[np.float64]:
        """The thresholds: one, or one per group in the groups' order."""

    @property
    def group_names(self) -> tuple[str, ...] | None:
        """The groups that have thresholds of their own, if they do."""


@dataclass(frozen=True)
class Decision(Generic[V]):
    """Label, calibrated confidence, whether the score reaches the threshold, probabilities, and the score itself.

    All are ``[n, 1]``, the probabilities ``[n, C]``.
    """

    label: V
    confidence: V
    accept: V
    probabilities: V
    score: V


def decision(rule: Rule, ops: Ops[V], values: V, group: V | None = None) -> Decision[V]:
    """The formula of a policy.

    Args:
        rule: the policy.
        ops: what computes or draws.
        values: ``[n, C]`` float64, logits or probabilities as the policy takes them.
        group: ``[n, 1]`` float64, the number of each row's group, where there is a threshold for each; a number that
            no group has is never accepted.
    """
    z = values
    if rule.takes == "probabilities":
        z = ops.log(ops.maximum(values, ops.constant(FLOOR)))
    calibrated = z if rule.calibrator is None else rule.calibrator.apply(ops, z)
    # Where a calibrator keeps the order, its rounding must not make ties.
    ranked = z if rule.calibrator is None or rule.calibrator.keeps_order else calibrated
    probabilities = softmax(ops, calibrated)
    zero = ops.constant(0.0)
    confidence = ops.total(ops.where(ops.predicted(ranked), probabilities, zero))
    # Logits that are not finite have no confidence, and are not accepted by any threshold, not even by "everything".
    score = ops.where(
        ops.greater_equal(confidence, zero), rule.score.apply(ops, z, calibrated), ops.constant(float("nan"))
    )
    if group is None:
        limit = ops.constant(rule.limits[0])
    else:
        number = np.arange(len(rule.limits) + 1, dtype=np.float64)[None]
        limit = ops.lookup(group, number, np.concatenate([[np.inf], rule.limits, [np.inf]])[None])
    accept = ops.greater_equal(score, limit)
    return Decision(ops.argmax(ranked), confidence, accept, probabilities, score)
