"""Optimisers by name, learning rates by group, schedules, and sharpness-aware minimisation [Foret2021].

A schedule is a function of the progress of a run, so it has no state to save. Progress is in epochs, as in the papers;
smooth schedules use fractions of an epoch.

    multistep   base * gamma^(milestones passed)                                    ALS, ACLS, MbLS, LR
    step        base * gamma^floor(epoch / every)                                   MbLS on CUB and VOC
    cosine      base * (floor + (1 - floor) (1 + cos(pi t)) / 2)                    SC, ACLS on ImageNet
    poly        base * (1 - t)^power                                                SC and ACLS on segmentation
    constant    base

with t the completed share of the run, after a linear warm-up from ``warmup_start`` of the rate over ``warmup`` epochs.
``decay`` also divides by 1 + decay * step, as Keras' optimisers do (LR's code).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from calibrant.training.settings import Factor, Flag, Number, Rate, Settings, Share

Momentum = Annotated[Number, Field(ge=0, lt=1)]


class OptimiserSettings(Settings):
    """The optimiser of a recipe.

    Attributes:
        name: ``"sgd"``, ``"adam"`` or ``"adamw"``.
        rate: Learning rate before the schedule.
        momentum: For SGD.
        nesterov: Nesterov's momentum, for SGD.
        betas: For Adam and AdamW.
        weight_decay: For all parameters, or only for matrices with ``decay_matrices_only``.
        decay_matrices_only: No decay for biases and normalisation (parameters with fewer than 2 dimensions), even if
            ``decays`` names them.
        decays: Weight decay by prefix of the parameter names, such as ``{"fc": 0.0}``; the longest matching prefix
            counts.
        rates: Factor of the learning rate by prefix of the parameter names, such as ``{"backbone": 0.1}``.
        sam: rho of sharpness-aware minimisation; off if None.
        clip: Largest norm of the gradient; no clipping if None.
    """

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    rate: Rate = 0.1
    momentum: Momentum = 0.9
    nesterov: Flag = False
    betas: tuple[Momentum, Momentum] = (0.9, 0.999)
    weight_decay: Factor = 0.0
    decay_matrices_only: Flag = False
    decays: dict[str, Factor] = Field(default_factory=dict)
    rates: dict[str, Factor] = Field(default_factory=dict)
    sam: Rate | None = None
    clip: Annotated[Number, Field(gt=0, le=1e30)] | None = None

    @model_validator(mode="after")
    def _check_nesterov(self) -> Self:
        if self.name == "sgd" and self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self

    def build(self, model: nn.Module) -> Optimizer:
        """The optimiser of the trainable parameters; each group stores its factor of the learning rate."""
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                factor = _longest_match(self.rates, name, 1.0)
                is_decayed = parameter.ndim >= 2 or not self.decay_matrices_only
                decay = _longest_match(self.decays, name, self.weight_decay) if is_decayed else 0.0
                groups.setdefault((factor, decay), []).append(parameter)
        for setting in ("rates", "decays"):
            for prefix in getattr(self, setting):
                if not any(name.startswith(prefix) for name, _ in model.named_parameters()):
                    raise ValueError(f"optimiser.{setting} names {prefix!r}, but no parameter begins with it")
        if not groups:
            raise ValueError("the model has no parameters to train")
        arguments: list[dict[str, Any]] = [
            {"params": members, "lr": self.rate * factor, "factor": factor, "weight_decay": decay}
            for (factor, decay), members in groups.items()
        ]
        if self.name == "sgd":
            return SGD(arguments, lr=self.rate, momentum=self.momentum, nesterov=self.nesterov)
        return (Adam if self.name == "adam" else AdamW)(arguments, lr=self.rate, betas=self.betas)


def _longest_match(table: dict[str, float], name: str, otherwise: float) -> float:
    """The value of the longest matching prefix."""
    prefixes = [prefix for prefix in table if name.startswith(prefix)]
    return table[max(prefixes, key=len)] if prefixes else otherwise


class Schedule(Settings):
    """The factor of the learning rate over the run.

    Example:
        >>> schedule = Schedule(name="multistep", milestones=[2, 4], gamma=0.1)
        >>> [round(schedule.factor(epoch, epochs=6), 4) for epoch in (0, 1.99, 2, 5)]
        [1.0, 1.0, 0.1, 0.01]
        >>> Schedule(name="cosine", warmup=1).factor(0.5, epochs=10)
        0.5
    """

    name: Literal["constant", "multistep", "step", "cosine", "poly"] = "constant"
    milestones: Annotated[tuple[Factor, ...], Field(max_length=10_000)] = ()
    every: Annotated[Number, Field(ge=1e-6, le=1e6)] = 30.0
    gamma: Annotated[Number, Field(gt=0, le=1)] = 0.1
    power: Rate = 0.9
    floor: Share = 0.0
    warmup: Factor = 0.0
    warmup_start: Share = 0.0
    decay: Factor = 0.0

    def factor(self, epoch: float, epochs: float, step: int = 0) -> float:
        """The factor after ``epoch`` of ``epochs`` epochs, which may be fractions."""
        return self._factor_of_epoch(epoch, epochs) / (1.0 + self.decay * step)

    def _factor_of_epoch(self, epoch: float, epochs: float) -> float:
        if epoch < self.warmup:
            return self.warmup_start + (1.0 - self.warmup_start) * epoch / self.warmup
        if self.name == "multistep":
            return self.gamma ** bisect.bisect_right(sorted(self.milestones), epoch)
        if self.name == "step":
            return self.gamma ** math.floor(epoch / self.every)
        t = min(max((epoch - self.warmup) / max(epochs - self.warmup, 1e-12), 0.0), 1.0)
        if self.name == "cosine":
            return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * t))
        if self.name == "poly":
            return (1.0 - t) ** self.power
        return 1.0


@contextmanager
def climb_weights(parameters: list[nn.Parameter], rho: float) -> Iterator[None]:
    r"""Inside, the weights are moved up the gradient by rho; afterwards they are exactly as before.

    .. math:: w + \rho\, g / \lVert g \rVert

    with g the gradient of all parameters together (not adaptive). Sharpness-aware minimisation computes the gradient
    again inside, and steps afterwards.

    Reference:
        [Foret2021], Eq. 2 and Algorithm 1.
    """
    gradients = {p: p.grad for p in parameters if p.grad is not None}
    before = [p.detach().clone() for p in gradients]
    with torch.no_grad():
        scale = rho / (nn.utils.get_total_norm(list(gradients.values())) + 1e-12)
        for parameter, gradient in gradients.items():
            parameter.add_(gradient * scale.to(parameter.dtype))
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(gradients, before, strict=True):
                parameter.copy_(value)
