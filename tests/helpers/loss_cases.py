"""The losses' cases, once: the tests run their properties over this list, and none may be left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant import losses as L
from tests.reference import losses as R

SAMPLES, CLASSES = 7, 5
COUNTS, EPOCHS = [3, 1, 2, 2, 0, 5, 1], 5
CONFIDENCE, CORRECT = [0.9, 0.35, 0.97, 0.6, 0.55, 0.8, 0.42], [1, 0, 1, 0, 1, 1, 0]


class Case:
    """A loss under the parameters of one `tests.reference.losses.Check`."""

    def __init__(self, check: R.Check):
        self.check, self.parameters = check, check.parameters
        self.loss = L.describe(check.name).loss
        self.classes = CLASSES - self.loss(**self.parameters).extra_logits
        self.per_sample, self.shift_invariant = L.describe(check.name).per_sample, check.shift_invariant

    def __str__(self) -> str:
        return f"{self.loss.__name__}({','.join(f'{k}={v}' for k, v in self.parameters.items())})"

    @property
    def remembers(self) -> bool:
        """Whether the loss looks samples up by their ids."""
        return self.check.ranks or self.check.calibrates or self.check.adapts

    def batch(self, n: int = SAMPLES, classes: int = CLASSES, **options: Any) -> tuple[Tensor, Tensor]:
        """As `batch`, with labels of the classes only, where there is a logit more."""
        z, y = batch(n, classes, **options)
        return z, y % (classes - CLASSES + self.classes)

    def make(self, **common: Any) -> L.Loss:
        loss = self.loss(**self.parameters, **common)
        for name, values in self.check.state.items():
            setattr(loss, name, torch.tensor(values, dtype=torch.float64))
        return remember(loss) if self.remembers else loss

    def extra(self, n: int = SAMPLES) -> dict[str, Tensor]:
        return {"ids": torch.arange(n) % len(COUNTS)} if self.remembers else {}

    def hyper(self) -> dict[str, Any]:
        past: dict[str, Any] = {"correctness": np.array(COUNTS) / EPOCHS} if self.check.ranks else {}
        past |= {"confidence": CONFIDENCE, "correct": CORRECT} if self.check.calibrates else {}
        past |= {"running": R.RUNNING} if self.check.adapts else {}
        return {**self.parameters, **past, **self.check.state}

    def reference_terms(self, z: Tensor, y: Tensor, **more: Any) -> dict[str, np.ndarray]:
        return self.check.reference(z.detach().numpy(), y.numpy(), **self.hyper(), **more)

    def reference_gradient(self, z: Tensor, y: Tensor) -> np.ndarray:
        """Gradient of the summed loss by central differences."""
        frozen = {"frozen": z.numpy()} if self.check.frozen else {}
        gradient = R.gradient(self.check.reference, z.numpy(), y.numpy(), **self.hyper(), **frozen)
        if self.check.halved:
            plain = R.gradient(R.cross_entropy, z.numpy(), y.numpy())
            gradient = plain + (gradient - plain) / 2
        return gradient


def remember(loss: L.Loss) -> L.Loss:
    """The loss with a past of samples 0 to 6: of five epochs, or of one whose predictions it learns from now."""
    if isinstance(loss, L.SelfAdaptive):
        loss.memory.targets = torch.tensor(R.RUNNING)[:, : CLASSES - loss.extra_logits]
        return loss
    if hasattr(loss, "memory"):
        loss.memory.record(torch.arange(SAMPLES), torch.tensor(CONFIDENCE, dtype=torch.float64), torch.tensor(CORRECT))
        loss.end_epoch()
        return loss
    loss.history.counts, loss.history.epochs = torch.tensor(COUNTS), torch.tensor(EPOCHS)
    return loss


CASES = [Case(check) for check in R.CHECKS]


def batch(n: int = SAMPLES, classes: int = CLASSES, seed: int = 0, scale: float = 5.0) -> tuple[Tensor, Tensor]:
    """Float64 logits and labels with right and wrong predictions, away from every kink."""
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    y = torch.where(torch.arange(n) % 3 == 0, torch.randint(0, classes, (n,), generator=generator), z.argmax(1))
    return z, y


def gradient(loss: L.Loss, z: Tensor, y: Tensor, **extra: Any) -> Tensor:
    leaf = z.clone().requires_grad_()
    (g,) = torch.autograd.grad(loss(leaf, y, **extra), leaf)
    return g


def formula_gradient(loss: L.Loss, z: Tensor, y: Tensor, **extra: Any) -> Tensor:
    """The gradient of the plain formula by autograd, never of the closed form."""
    leaf = z.clone().requires_grad_()
    (g,) = torch.autograd.grad(sum(loss.terms(leaf, y, **extra).values()), leaf)
    return g
