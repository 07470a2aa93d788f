r"""What a policy promises: the mean of which loss, over which samples, is at most how much, and how that is shown.

===================  =====================================  ========================  =================================
promise              loss, in [0, 1]                        mean over                 shown by
===================  =====================================  ========================  =================================
``"risk"``           the answer is wrong                    answers: all, or those    exact binomial tests in a fixed
                                                            of a group or a class     sequence, of each part at once
``"precision"``      the answer is wrong                    answers of a class        the same
``"recall"``         the sample is not answered as its      samples of the class      an exact binomial limit of the
                     class                                                            class's own samples
``"cost"``           the answer's cost over the highest     answers                   bets, in a fixed sequence
``"expected-risk"``  the sample is answered, and wrongly    samples                   conformal risk control: on
                                                                                      average over fits
===================  =====================================  ========================  =================================

All but the last hold with the policy's confidence. `docs/repair.md` has the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from calibrant._validation import Bools, Ints
from calibrant.metrics import Doubles
from calibrant.posthoc import Ops
from calibrant.selective.scores import CLASS_PROBABILITY, EXPECTED_COST, Score
from calibrant.selective.thresholds import Threshold

V = TypeVar("V")

KINDS = ("risk", "precision", "recall", "cost", "expected-risk")


class LossTally(NamedTuple):
    """How many samples a mean is over, and the sum of their losses."""

    rows: int = 0
    loss: float = 0.0

    @property
    def mean(self) -> float:
        """The mean loss; NaN of no samples."""
        return self.loss / self.rows if self.rows else float("nan")


class ClassThreshold(NamedTuple):
    """The threshold of answers that predict a class, in a group if there are groups."""

    label: int
    group: str | None
    threshold: Threshold

    def name(self, class_names: Sequence[str] | None) -> str:
        """What it is called where parts are listed."""
        return part_name(self.group, self.label, class_names)


def part_name(group: str | None, label: int, class_names: Sequence[str] | None) -> str:
    """A class by its name, after the group if there is one.

    Example:
        >>> from calibrant.selective.promise import part_name
        >>> part_name(None, 1, ("cat", "dog")), part_name("north", 1, None)
        ('dog', 'north: 1')
    """
    own = class_name(label, class_names)
    return own if group is None else f"{group}: {own}"


def class_name(label: int, class_names: Sequence[str] | None) -> str:
    """The name of a class, or its number."""
    return str(label) if class_names is None else class_names[label]


@dataclass(frozen=True)
class Promise:
    """What is promised; see the table of the module.

    Attributes:
        of: a key of that table.
        by_class: of a risk, whether each predicted class has a threshold of its own.
        shares: of precision and recall, each class with the share that is promised at least.
        target: of a cost or an expected risk, the mean that is promised at most.
        costs: of a cost, ``costs[label][answer]``.
        abstain_cost: of a cost, what no answer costs; no answer is given that is expected to cost more.
        tally: of recall, cost and expected risk, the losses of the samples that set the threshold.
    """

    of: str = "risk"
    by_class: bool = False
    shares: tuple[tuple[int, float], ...] = ()
    target: float | None = None
    costs: tuple[tuple[float, ...], ...] | None = None
    abstain_cost: float | None = None
    tally: LossTally | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is the risk of all answers, or of every group."""
        return self.of == "risk" and not self.by_class

    @property
    def has_class_thresholds(self) -> bool:
        """Whether a threshold belongs to answers of one class."""
        return self.by_class or self.of == "precision"

    @property
    def label(self) -> int:
        """The class of recall."""
        return self.shares[0][0]

    @property
    def answer(self) -> int | None:
        """The class that all accepted samples are answered as, likelier ones or not; None without such a class."""
        return self.label if self.of == "recall" else None

    @property
    def cost_matrix(self) -> Doubles:
        """The costs as an array ``[C, C]``."""
        return np.array(self.costs, dtype=np.float64)

    @property
    def highest(self) -> float:
        """The most that an answer can cost."""
        return float(self.cost_matrix.max())

    @property
    def mean_loss(self) -> float | None:
        """The mean loss that is promised at most, where it is one number and the promise is not of a risk."""
        if self.of == "recall":
            return round(1 - self.shares[0][1], 12)
        if self.of == "cost" and self.target is not None:
            return self.target / self.highest
        return self.target if self.of == "expected-risk" else None

    @property
    def score(self) -> Score | None:
        """What answers are ranked by, where the promise leaves no choice."""
        names = {"recall": CLASS_PROBABILITY, "cost": EXPECTED_COST}
        return Score(names[self.of], of="calibrated") if self.of in names else None

    def risk_of(self, label: int) -> float | None:
        """Of precision, the risk that is promised for answers of a class."""
        return next((round(1 - share, 12) for own, share in self.shares if own == label), None)

    def losses(self, labels: Ints, answers: Ints, accept: Bools) -> tuple[Bools, Doubles]:
        """Which of some samples the mean is over, and the loss of every sample."""
        if self.of == "recall":
            return labels == self.label, (~accept).astype(np.float64)
        if self.of == "cost":
            return accept, self.cost_matrix[labels, answers] / self.highest
        wrong = (answers != labels).astype(np.float64)
        return (np.ones_like(accept), wrong * accept) if self.of == "expected-risk" else (accept, wrong)

    def rank(self, ops: Ops[V], ranked: V, probabilities: V) -> tuple[V, V | None]:
        """What the class of an answer is the largest of, and the score where the promise has its own."""
        if self.of == "recall":
            return ranked, ops.columns(probabilities, self.label, self.label + 1)
        if self.of == "cost":
            savings = ops.sub(ops.constant(0.0), ops.matmul(probabilities, self.cost_matrix))
            return savings, ops.largest(savings)
        return ranked, None
