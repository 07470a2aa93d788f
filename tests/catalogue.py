"""Every loss with every variant, once: the tests run their properties over this list, and none may be left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant import losses as L
from tests.reference import losses as R

SAMPLES, CLASSES = 7, 5
COUNTS, EPOCHS = [3, 1, 2, 2, 0, 5, 1], 5


@dataclass(frozen=True)
class Case:
    """One configuration of one loss, and what is known about it."""

    loss: type[L.Loss]
    parameters: dict[str, Any]
    reference: Callable[..., dict[str, np.ndarray]]
    renamed: dict[str, Any] = field(default_factory=dict)
    frozen: bool = False  # the reference's gradient needs the stop-gradient
    shift_invariant: bool = True
    ranks: bool = False
    halved: bool = False  # the gradient of the regulariser is half the derivative of its value

    def __str__(self) -> str:
        shown = ",".join(f"{k}={v}" for k, v in self.parameters.items())
        return f"{self.loss.__name__}({shown})"

    def make(self, **common: Any) -> L.Loss:
        loss = self.loss(**self.parameters, **common)
        if self.ranks:
            loss.history.counts = torch.tensor(COUNTS)
            loss.history.epochs += EPOCHS
        return loss

    def extra(self, n: int = SAMPLES) -> dict[str, Tensor]:
        return {"ids": torch.arange(n) % len(COUNTS)} if self.ranks else {}

    def hyper(self) -> dict[str, Any]:
        return {**self.parameters, **self.renamed}

    def reference_terms(self, z: Tensor, y: Tensor, **more: Any) -> dict[str, np.ndarray]:
        return self.reference(z.detach().numpy(), y.numpy(), **self.hyper(), **more)

    def reference_gradient(self, z: Tensor, y: Tensor) -> np.ndarray:
        """Gradient of the summed loss by central differences."""
        frozen = {"frozen": z.numpy()} if self.frozen else {}
        gradient = R.gradient(self.reference, z.numpy(), y.numpy(), **self.hyper(), **frozen)
        if self.halved:
            plain = R.gradient(R.cross_entropy, z.numpy(), y.numpy())
            gradient = plain + (gradient - plain) / 2
        return gradient


def _cases() -> list[Case]:
    cases = [
        Case(L.CrossEntropy, {}, R.cross_entropy),
        Case(L.SoftTargetCrossEntropy, {}, R.cross_entropy),
        Case(L.LabelRelaxation, {"alpha": 0.1}, R.label_relaxation),
        Case(L.LabelRelaxation, {"alpha": 0.4}, R.label_relaxation),
        Case(L.LabelRelaxation, {"alpha": 0.0}, R.label_relaxation),
    ]
    cases += [Case(L.LabelSmoothing, {"alpha": 0.1, "spread": s}, R.label_smoothing) for s in ("all", "others")]
    cases += [Case(L.Focal, {"gamma": g}, R.focal) for g in (0.0, 0.5, 1.0, 3.0)]
    for v in ("released", "paper"):
        cases += [
            Case(L.FLSD, {"variant": v}, R.flsd),
            Case(L.ConfidencePenalty, {"strength": 0.3, "variant": v}, R.confidence_penalty),
            Case(L.CPC, {"lambda1": 0.2, "lambda2": 0.7, "variant": v}, R.cpc),
            Case(L.MbLS, {"margin": 4.0, "strength": 0.3, "variant": v}, R.mbls, frozen=v == "paper"),
        ]
        cases += [Case(L.MMCE, {"strength": 0.8, "weighted": w, "variant": v}, R.mmce) for w in (True, False)]
        cases += [Case(L.MDCA, {"strength": 0.8, "base": b, "variant": v}, R.mdca) for b in ("ce", "focal", "ls")]
        correctness = np.array(COUNTS) / EPOCHS
        cases += [
            Case(L.CRL, {"score": s, "variant": v}, R.crl, {"correctness": correctness}, ranks=True)
            for s in ("msp", "entropy", "margin")
        ]
        for smoothing in ("adaptive", "constant"):
            for indicator in ("margin", "none"):
                parameters = {"margin": 4.0, "variant": v, "smoothing": smoothing, "indicator": indicator}
                released = v == "released"
                cases.append(Case(L.ACLS, parameters, R.acls, frozen=released, shift_invariant=not released))
    eq12 = {"margin": 4.0, "variant": "paper", "gradient": "eq12"}
    cases.append(Case(L.ACLS, eq12, _without_gradient(R.acls), frozen=True, halved=True))
    return cases


def _without_gradient(reference: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, gradient: str, **hyper: Any) -> Any:
        return reference(*args, **hyper)

    return call


CASES = _cases()


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
