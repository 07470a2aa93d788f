"""Optimisers by name, learning rates by group, and sharpness-aware minimisation [Foret2021]."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from calibrant.training.settings import Factor, Flag, Number, Rate, Settings

Momentum = Annotated[Number, Field(ge=0, lt=1)]


class OptimiserSettings(Settings):
    """The optimiser of a recipe.

    Attributes:
        name: ``"sgd"``, ``"adam"`` or ``"adamw"``.
        rate: Learning rate before the schedule.
        momentum: Of SGD.
        nesterov: Of SGD.
        betas: Of Adam and AdamW.
        weight_decay: Of all parameters, or only of matrices with ``decay_matrices_only``.
        decay_matrices_only: Leave biases and normalisation (parameters of less than 2 dimensions) without decay,
            whatever ``decays`` has for them.
        decays: Another weight decay for parameters whose names begin so, such as ``{"fc": 0.0}``; the longest
            beginning counts.
        rates: What multiplies the rate of parameters whose names begin so, such as ``{"backbone": 0.1}``.
        sam: rho of sharpness-aware minimisation; None leaves it out.
        clip: Largest norm of the gradient; None leaves it as it is.
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
    def _possible(self) -> Self:
        if self.name == "sgd" and self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self

    def build(self, model: nn.Module) -> Optimizer:
        """The optimiser of a model's trainable parameters; each group keeps its share of the rate as ``factor``."""
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                factor = _by_beginning(self.rates, name, 1.0)
                decays = parameter.ndim >= 2 or not self.decay_matrices_only
                decay = _by_beginning(self.decays, name, self.weight_decay) if decays else 0.0
                groups.setdefault((factor, decay), []).append(parameter)
        for setting in ("rates", "decays"):
            for start in getattr(self, setting):
                if not any(name.startswith(start) for name, _ in model.named_parameters()):
                    raise ValueError(f"optimiser.{setting} names {start!r}, and no parameter of the model begins so.")
        if not groups:
            raise ValueError("the model has no parameters to train.")
        arguments: list[dict[str, Any]] = [
            {"params": members, "lr": self.rate * factor, "factor": factor, "weight_decay": decay}
            for (factor, decay), members in groups.items()
        ]
        if self.name == "sgd":
            return SGD(arguments, lr=self.rate, momentum=self.momentum, nesterov=self.nesterov)
        return (Adam if self.name == "adam" else AdamW)(arguments, lr=self.rate, betas=self.betas)


def _by_beginning(table: dict[str, float], name: str, otherwise: float) -> float:
    """The value of the longest beginning that a name has."""
    fitting = [start for start in table if name.startswith(start)]
    return table[max(fitting, key=len)] if fitting else otherwise


def set_rate(optimiser: Optimizer, rate: float) -> None:
    """Give every group its share of a learning rate."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group["factor"]


@contextmanager
def climbed(parameters: list[nn.Parameter], rho: float) -> Iterator[None]:
    r"""Inside: the weights are moved to where the loss is worst nearby; after it they are exactly as before.

    .. math:: w + \rho\, g / \lVert g \rVert

    with g the gradient of all parameters together (not adaptive). Computing the gradient again inside and stepping
    after it is sharpness-aware minimisation.

    Reference:
        [Foret2021], Eq. 2 and Algorithm 1.
    """
    moved = [p for p in parameters if p.grad is not None]
    norm = gradient_norm(moved)
    before = [p.detach().clone() for p in moved]
    with torch.no_grad():
        scale = rho / (norm + 1e-12)
        for parameter in moved:
            assert parameter.grad is not None
            parameter.add_(parameter.grad * scale.to(parameter.dtype))
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(moved, before, strict=True):
                parameter.copy_(value)


def gradient_norm(parameters: list[nn.Parameter]) -> Tensor:
    """Euclidean norm of all gradients together."""
    return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
