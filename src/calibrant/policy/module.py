"""A policy as a PyTorch module: to run behind a model, and to export."""

from __future__ import annotations

from calibrant.base.extras import needs_torch  # noqa: F401

# isort: split

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from calibrant.policy.formula import decision_formula
from calibrant.posthoc import TorchOps

if TYPE_CHECKING:
    from calibrant.policy.policy import Policy


class Answers(NamedTuple):
    """What a policy says: ``[N]`` or ``[N, ...]`` each, probabilities ``[N, C]`` or ``[N, C, ...]``."""

    label: Tensor
    confidence: Tensor
    accept: Tensor
    probabilities: Tensor


class SetAnswers(NamedTuple):
    """`Answers` of a policy with prediction sets: their members are a mask ``[N, C]``."""

    label: Tensor
    confidence: Tensor
    accept: Tensor
    probabilities: Tensor
    prediction_set: Tensor


class PolicyModule(nn.Module):
    """Logits in, answers out; with a model given, the model's inputs in.

    Confidence and probabilities have the precision of the logits, or float32 for half precision; inside, everything is
    float64, so that thresholds hold to the last digit.

    Args:
        policy: what answers.
        model: what makes the logits, or None.
    """

    def __init__(self, policy: Policy, model: nn.Module | None = None) -> None:
        super().__init__()
        self.policy = policy
        self.model = model

    def forward(self, inputs: Tensor, group: Tensor | None = None) -> Answers | SetAnswers:
        """Answers to a batch, with prediction sets where the policy has them.

        Args:
            inputs: logits ``[N, C]`` or ``[N, C, ...]``, or what the model takes.
            group: ``[N]`` whole numbers, the position of each row's group in the policy's list; -1 for an unknown
                group, which is never accepted.
        """
        values = inputs if self.model is None else self.model(inputs)
        if (group is None) == (self.policy.group_names is not None):
            requirement = "is needed" if group is None else "is not taken"
            raise ValueError(f"group {requirement}: the policy has {len(self.policy.limits)} threshold(s)")
        rows = values if values.dim() == 2 else values.flatten(2).movedim(1, 2).reshape(-1, values.shape[1])
        rows = rows.double()
        numbers = None
        if group is not None:
            positions = rows.shape[0] // values.shape[0]
            numbers = group.to(rows.device, torch.float64).reshape(-1, 1).repeat_interleave(positions, 0)
        answer = decision_formula(self.policy, TorchOps(rows.device), rows, numbers)
        shape = (values.shape[0], *values.shape[2:])
        precision = values.dtype if values.dtype in (torch.float32, torch.float64) else torch.float32
        spread = answer.probabilities.reshape(*shape, values.shape[1]).movedim(-1, 1)
        answers = Answers(
            answer.label.reshape(shape),
            answer.confidence.reshape(shape).to(precision),
            answer.accept.reshape(shape),
            spread.to(precision),
        )
        if self.policy.sets is None:
            return answers
        return SetAnswers(*answers, self.policy.sets.members(TorchOps(rows.device), answer.probabilities))
