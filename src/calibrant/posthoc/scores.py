r"""Scores that rank predictions by confidence, from logits; higher is more confident.

======================  ===============================================================================================
``msp``                 the largest softmax probability
``max_logit``           the largest logit; sees a common offset, which the softmax does not
``margin``              the lead of the largest probability over the second
``negative_entropy``    :math:`\sum_k p_k \log p_k`
``energy``              :math:`\log \sum_k e^{z_k}` [Liu2020]; sees a common offset
``normalised_max_logit``  the largest logit over the p-norm of the (centred) logits [Cattelan2024; SC Eq. 17]
======================  ===============================================================================================

Each is a function of logits ``[N, C]`` or ``[N, C, ...]`` that gives ``[N]`` or ``[N, ...]`` in float64, NumPy for
NumPy and PyTorch for PyTorch, and a formula (in `FORMULAS`) that a policy computes and exports.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar

from pydantic import Field

from calibrant.base.checks import LARGEST_LOGIT, check_choice, check_integer
from calibrant.base.entries import ENTRIES, NUMBER, Flag, Text, must_be
from calibrant.posthoc.logit_norm import msp_formula, normalised_max_logit_formula, score_rows
from calibrant.posthoc.ops import NumpyOps, Ops, log_softmax

V = TypeVar("V")

NORMALISED = "normalised_max_logit"
Power = Annotated[int, *NUMBER, Field(ge=1, le=1000), must_be("a whole number from 1 to 1,000")]


def _max_logit(ops: Ops[V], z: V) -> V:
    return ops.largest(z)


def _margin(ops: Ops[V], z: V) -> V:
    two = ops.top(z, 2)
    largest, second = ops.columns(two, 0, 1), ops.columns(two, 1, 2)
    lead = ops.sub(ops.constant(1.0), ops.exp(ops.sub(second, largest)))
    return ops.mul(msp_formula(ops, z), lead)


def _negative_entropy(ops: Ops[V], z: V) -> V:
    logs = log_softmax(ops, z)
    return ops.total(ops.mul(ops.exp(logs), logs))


def _energy(ops: Ops[V], z: V) -> V:
    largest = ops.largest(z)
    return ops.add(largest, ops.log(ops.total(ops.exp(ops.sub(z, largest)))))


#: The scores without parameters; a policy's file calls them by these names.
FORMULAS: dict[str, Callable[[Ops[Any], Any], Any]] = {
    "msp": msp_formula,
    "max_logit": _max_logit,
    "margin": _margin,
    "negative_entropy": _negative_entropy,
    "energy": _energy,
}

#: The scores in words.
_WORDS = {
    "msp": "largest probability (MSP)",
    "max_logit": "largest logit",
    "margin": "lead of the largest probability over the second",
    "negative_entropy": "negative entropy",
    "energy": "energy",
    NORMALISED: "normalised max logit",
}

#: Scores that promises bring along and compute, in words; nobody chooses them.
_OWN_WORDS: dict[str, str] = {}


def own_score(name: str, words: str) -> str:
    """Make the name of a score known that a promise brings along and computes."""
    _OWN_WORDS[name] = words
    return name


@dataclass(frozen=True)
class Score:
    """A score by name, of logits as they come or of calibrated ones; p and centre are of the normalised max logit."""

    __pydantic_config__ = ENTRIES

    name: Text = "msp"  # a key of `FORMULAS`, "normalised_max_logit", or that of a promise, which computes it
    of: Text = "logits"  # or "calibrated"
    p: Power | None = None
    centre: Flag = True

    def __post_init__(self) -> None:
        check_choice("score", self.name, (*FORMULAS, NORMALISED, *_OWN_WORDS))
        check_choice("the score's of", self.of, ("logits", "calibrated"))
        if (self.p is None) == (self.name == NORMALISED):
            raise ValueError(f"p is only for {NORMALISED}, got {self.p!r} with {self.name}")
        if self.p is not None:
            check_integer("p", self.p, 1, 1000)

    def __str__(self) -> str:
        return self._with_settings(self.name)

    @property
    def is_of_promise(self) -> bool:
        """Whether a promise brings it along."""
        return self.name in _OWN_WORDS

    def span(self, num_classes: int) -> tuple[float, float]:
        """Between what it lies; that of a promise says itself."""
        if self.name in ("max_logit", "energy"):
            return -LARGEST_LOGIT, LARGEST_LOGIT
        lowest = {"negative_entropy": -math.log(num_classes), NORMALISED: -1.0}.get(self.name, 0.0)
        return lowest, 0.0 if self.name == "negative_entropy" else 1.0

    @property
    def words(self) -> str:
        """What it is, in words.

        Example:
            >>> Score("msp").words, Score("max_logit", "calibrated").words
            ('largest probability (MSP)', 'largest logit of calibrated logits')
        """
        return self._with_settings(_WORDS.get(self.name) or _OWN_WORDS[self.name])

    def _with_settings(self, words: str) -> str:
        if self.p is not None:
            words += f" (p = {self.p}, {'centred' if self.centre else 'not centred'})"
        is_plain = self.of == "logits" or self.is_of_promise
        return words if is_plain else f"{words} of calibrated logits"

    def apply(self, ops: Ops[V], logits: V, calibrated: V) -> V:
        """The score of each row, ``[n, 1]``."""
        z = logits if self.of == "logits" else calibrated
        if self.p is not None:
            return normalised_max_logit_formula(ops, z, self.p, centre=self.centre)
        return FORMULAS[self.name](ops, z)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: without what the score does not have."""
        return asdict(self) if self.p is not None else {"name": self.name, "of": self.of}


def msp(logits: Any) -> Any:
    """The largest softmax probability of each row.

    Example:
        >>> from calibrant.posthoc import msp
        >>> msp([[0.0, 0.0], [1000.0, 0.0]]).tolist()
        [0.5, 1.0]
    """
    return score_rows(logits, lambda z: msp_formula(NumpyOps(), z))


def max_logit(logits: Any) -> Any:
    """The largest logit of each row.

    Example:
        >>> from calibrant.posthoc import max_logit
        >>> max_logit([[0.0, 3.0], [-1.0, -2.0]]).tolist()
        [3.0, -1.0]
    """
    return score_rows(logits, lambda z: _max_logit(NumpyOps(), z))


def margin(logits: Any) -> Any:
    """The lead of the largest probability of each row over its second.

    Example:
        >>> from calibrant.posthoc import margin
        >>> margin([[0.0, 0.0, -1000.0], [1000.0, 0.0, 0.0]]).tolist()
        [0.0, 1.0]
    """
    return score_rows(logits, lambda z: _margin(NumpyOps(), z))


def negative_entropy(logits: Any) -> Any:
    """The entropy of each row's probabilities with its sign changed, in nats.

    Example:
        >>> from calibrant.posthoc import negative_entropy
        >>> negative_entropy([[0.0, 0.0], [1000.0, 0.0]]).tolist()
        [-0.6931471805599453, 0.0]
    """
    return score_rows(logits, lambda z: _negative_entropy(NumpyOps(), z))


def energy(logits: Any) -> Any:
    """The logarithm of the sum of each row's exponentials: the negative of what [Liu2020] calls energy.

    Example:
        >>> from calibrant.posthoc import energy
        >>> energy([[1000.0, 0.0], [0.0, 0.0]]).tolist()
        [1000.0, 0.6931471805599453]
    """
    return score_rows(logits, lambda z: _energy(NumpyOps(), z))


def normalised_max_logit(logits: Any, p: int, *, centre: bool = True) -> Any:
    """The largest logit of each row over the p-norm of its logits, which are centred unless told otherwise.

    Example:
        >>> from calibrant.posthoc import normalised_max_logit
        >>> normalised_max_logit([[4.0, 1.0, -2.0]], 1).tolist()  # v = (3, 0, -3)
        [0.5]
    """
    power = check_integer("p", p, 1)
    return score_rows(logits, lambda z: normalised_max_logit_formula(NumpyOps(), z, power, centre=centre))
