"""`Policy`: a calibrator, a score and a threshold, fitted together, that answer or abstain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Array, cache_chunks, class_rows, given_back
from calibrant._validation import as_logits, check_finite
from calibrant.posthoc import Calibrator, NumpyOps
from calibrant.predictions import Predictions
from calibrant.selective.formula import Score, decision
from calibrant.selective.threshold import Method, Threshold
from calibrant.selective.words import differing_names

if TYPE_CHECKING:
    from torch import nn

    from calibrant.selective.module import PolicyModule

A = TypeVar("A")

#: Shows progress: given things to go through and what is done with them, passes them on.
Progress = Callable[[Iterable[Any], str], Iterable[Any]]


class Decisions(NamedTuple, Generic[A]):
    """What a policy says about each sample, ``[N]`` or ``[N, ...]`` each.

    Attributes:
        labels: the predicted class, int64.
        confidence: its calibrated probability, float64.
        accept: whether to answer; False abstains.
    """

    labels: A
    confidence: A
    accept: A


@dataclass(frozen=True, eq=False)
class Policy:
    """A classifier's last step: which class, how sure, and whether to answer at all.

    Made by `Policy.fit` or `Policy.load`.

    Attributes:
        num_classes: how many logits a row must have.
        class_names: their names, or None.
        takes: ``"logits"`` or ``"probabilities"``, as the predictions it was fitted on.
        kind: ``"classification"`` or ``"segmentation"``.
        calibrator: fitted, or None where the logits are used as they are.
        score: what ranks predictions by how sure they are.
        threshold: where to accept; with groups, that of all of them together, for information.
        groups: threshold by group, or None.
        group: name of the group column.
        target_risk: the risk asked for, or None.
        confidence: of the guarantee and of the limits.
        evidence: how it was chosen: samples, what was tried and how it did.
    """

    num_classes: int
    class_names: tuple[str, ...] | None
    takes: str
    kind: str
    calibrator: Calibrator | None
    score: Score
    threshold: Threshold
    groups: Mapping[str, Threshold] | None = None
    group: str | None = None
    target_risk: float | None = None
    confidence: float = 0.95
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        predictions: Predictions,
        target_risk: float | None = None,
        confidence: float = 0.95,
        *,
        target_coverage: float | None = None,
        method: Method = "best",
        calibrator: str = "auto",
        score: str = "auto",
        group: str | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Policy:
        """Choose calibrator and score by cross-fitting, then the threshold on samples that the choice did not see.

        A third of the samples, drawn at random, is for the choice; what does not help beyond chance is not used, and
        plain MSP of the logits as they come is what remains when nothing does. The other two thirds are for the
        threshold: nothing was chosen on them, so the guarantee holds for the policy as a whole.

        Args:
            predictions: held-out logits or probabilities with labels; those marked as test are refused.
            target_risk: the error rate allowed among answers, 0.05 unless a coverage is asked for.
            confidence: how sure the promise is: P(risk > target_risk) <= 1 - confidence.
            target_coverage: instead of a risk, the share of samples to answer.
            method: how the threshold is found: ``"best"``, ``"fixed-sequence"``, ``"sgr"`` or ``"empirical"``, which
                promises nothing. ``"best"`` takes of the first two the one that covers more on the choice's samples.
            calibrator: ``"auto"``, ``"none"``, or ``"temperature"``, ``"ensemble"``, ``"vector"``, ``"isotonic"``.
            score: ``"auto"``, or a score's name; ``"normalised_max_logit"`` chooses its p.
            group: a group column of the predictions: a threshold for every group, all of them guaranteed together.
            seed: of the split.
            progress: shows progress over the batches.

        Example:
            >>> import numpy as np
            >>> from calibrant import Policy, Predictions
            >>> rng = np.random.default_rng(0)
            >>> honest = 3 * rng.standard_normal((3000, 5))
            >>> labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
            >>> policy = Policy.fit(Predictions.from_logits(2 * honest, labels), target_risk=0.1)
            >>> policy.calibrator.name, policy.threshold.risk.high <= 0.1
            ('temperature', True)
            >>> labels, confidence, accept = policy.decide(np.array([[9.0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]))
            >>> labels.tolist(), accept.tolist()
            ([0, 0], [True, False])
        """
        from calibrant.selective.fitting import Settings, fit_policy  # it makes policies, so it comes after them

        if target_risk is None and target_coverage is None:
            target_risk = 0.05
        settings = Settings(
            target_risk, confidence, target_coverage, method, calibrator, score, group, seed, progress or _unseen
        )
        return fit_policy(predictions, settings)

    @property
    def limits(self) -> npt.NDArray[np.float64]:
        """The thresholds as numbers: one, or one per group in the order of `group_names`."""
        held = [self.threshold] if self.groups is None else list(self.groups.values())
        return np.array([one.value for one in held])

    @property
    def group_names(self) -> tuple[str, ...] | None:
        """The groups with thresholds of their own."""
        return None if self.groups is None else tuple(self.groups)

    @property
    def abstains(self) -> bool:
        """Whether it never answers."""
        return bool((self.limits == math.inf).all())

    @property
    def promised(self) -> float | None:
        """The risk that is promised: the target, or the limit that came with a coverage; None if there is none."""
        limit = self.target_risk if self.target_risk is not None else self.threshold.risk.high
        return None if self.threshold.confidence is None or self.abstains or math.isnan(limit) else limit

    @property
    def summary(self) -> str:
        """What it does and promises, in a sentence or two."""
        from calibrant.selective.words import summary

        return summary(self)

    def __repr__(self) -> str:
        return f"Policy({self.summary!r})"

    def decide(self, logits: Any, groups: Any = None) -> Decisions[Any]:
        """Labels, calibrated confidence and whether to answer.

        Args:
            logits: ``[N, C]``, for segmentation ``[N, C, ...]``, from NumPy or PyTorch, which the answer is too;
                probabilities where the policy was fitted on them. Or `Predictions`.
            groups: ``[N]`` each sample's group, where the policy has a threshold for each; one that it does not know is
                never answered. Predictions bring theirs along.
        """
        if isinstance(logits, Predictions):
            return self._decide_predictions(logits)
        z = self._checked(logits)
        numbers = self._numbers(groups, len(z))
        parts, start = [], 0
        for part in cache_chunks(z):
            check_finite(part)
            rows = class_rows(part).astype(np.float64)
            group = None
            if numbers is not None:
                group = np.repeat(numbers[start : start + len(part)], len(rows) // len(part))[:, None]
            answer = decision(self, NumpyOps(), rows, group)
            shape = (len(part), *part.shape[2:])
            parts.append([x.reshape(shape) for x in (answer.label, answer.confidence, answer.accept)])
            start += len(part)
        joined = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Decisions(*(given_back(column, logits, np.float64) for column in joined))

    def _decide_predictions(self, predictions: Predictions) -> Decisions[Any]:
        self.check(predictions)
        parts = []
        for batch in predictions.batches():
            values = batch.logits if self.takes == "logits" else batch.probabilities
            parts.append(self.decide(values, None if self.group is None else batch.groups[self.group]))
        return Decisions(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def check(self, predictions: Predictions) -> None:
        """Raise unless these predictions are such as the policy was fitted on."""
        if predictions.holds != self.takes:
            raise ValueError(f"the policy takes {self.takes}, got {predictions.holds}")
        if predictions.num_classes != self.num_classes:
            raise ValueError(f"the policy is for {self.num_classes} classes, got {predictions.num_classes}")
        if predictions.kind != self.kind:
            raise ValueError(f"the policy is for {self.kind}, got {predictions.kind}")
        if self.class_names and predictions.class_names and self.class_names != predictions.class_names:
            ours, theirs = differing_names(self.class_names, predictions.class_names)
            raise ValueError(
                f"the policy's classes are {ours}, those of the predictions {theirs}: they must be the same, in order"
            )
        if self.group is not None and self.group not in predictions.group_names:
            raise ValueError(f"the policy has thresholds by {self.group!r}, which the predictions do not hold")

    def _checked(self, values: Any) -> Array:
        z = as_logits(values)
        if z.shape[1] != self.num_classes:
            raise ValueError(f"the policy is for {self.num_classes} classes, got {self.takes} of {z.shape[1]}")
        if (z.ndim > 2) != (self.kind == "segmentation"):
            raise ValueError(f"the policy is for {self.kind}, got {self.takes} {list(z.shape)}")
        if self.takes == "probabilities":
            off = np.abs(z.sum(1, dtype=np.float64) - 1).max()
            if float(z.min()) < 0 or not float(off) <= 1e-2:
                raise ValueError("the policy takes probabilities, in 0..1 and summing to 1 over the classes")
        return z

    def _numbers(self, groups: Any, rows: int) -> npt.NDArray[np.float64] | None:
        """Each row's group by its place in the list, -1 for an unknown one."""
        if self.groups is None:
            if groups is not None:
                raise ValueError("groups are given, but the policy has one threshold for all")
            return None
        if groups is None:
            raise ValueError(f"groups are needed: the policy has a threshold for every {self.group}")
        given = np.asarray(groups)
        if given.dtype.kind == "f":
            raise ValueError("groups must be whole numbers or text, got floating point")
        given = given.astype(str)
        if given.shape != (rows,):
            raise ValueError(f"groups must be [{rows}], one for each sample, got {list(given.shape)}")
        place = {name: number for number, name in enumerate(self.groups)}
        distinct, inverse = np.unique(given, return_inverse=True)
        return np.array([place.get(name, -1) for name in distinct.tolist()], dtype=np.float64)[inverse]

    def module(self, model: nn.Module | None = None) -> PolicyModule:
        """The policy as an ``nn.Module``, behind a model if one is given; it can be exported with ``torch.export``.

        Example:
            >>> import torch
            >>> from calibrant import Policy, Predictions
            >>> logits = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
            >>> policy = Policy.fit(Predictions.from_logits(logits, logits.argmax(1)), target_risk=0.2)
            >>> policy.module()(logits[:2]).accept.shape
            torch.Size([2])
        """
        from calibrant.selective.module import PolicyModule  # needs PyTorch

        return PolicyModule(self, model)

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON, aside and then renamed."""
        from calibrant.selective.policy_file import write_policy

        write_policy(self, path)

    @staticmethod
    def load(path: str | Path) -> Policy:
        """Read a policy, checked from end to end; nothing in the file is executed."""
        from calibrant.selective.policy_file import read_policy

        return read_policy(path)


def _unseen(items: Iterable[Any], _: str) -> Iterable[Any]:
    return items
