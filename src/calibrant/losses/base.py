"""What every loss shares: the call, its checks, soft targets, ``ignore_index``, class weights, reduction.

A method file subclasses `Loss` and writes its mathematics twice, side by side:

``formula(z, t)``
    the plain formula on torch tensors, one value per position. It is used by ``torch.func``, for
    ``reduction="none"``, class weights and `Loss.terms`, and the tests differentiate it.
``closed_form(z, t)``
    the same value with its gradient written out, used in training, eager and compiled: the gradient is computed in the
    forward pass, from the same probabilities, so the backward pass is one multiplication. Optional.

Classes live in dimension 1 throughout (``[N, C]`` or ``[N, C, ...]``), so segmentation logits are never copied into
another layout.
"""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from calibrant._validation import check_choice
from calibrant.losses.numerics import (
    Target,
    can_read_values,
    check_all_finite,
    check_class_weights,
    check_distributions,
    check_ignore_index,
    is_transforming,
    type_words,
)
from calibrant.losses.registry import COMMON, Method

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")


class Terms(NamedTuple):
    """A loss per position, split as ACLS Eq. 6 splits it; ``regulariser`` is None for a loss that has none."""

    fidelity: Tensor
    regulariser: Tensor | None = None


class Loss(nn.Module):
    """Base of all losses: ``loss(logits, target)`` with ``[N, C]`` or ``[N, C, ...]`` logits.

    Half-precision logits are computed in float32, and the loss is returned in float32. When no position counts
    (all ignored) the loss is 0.

    Args:
        weight: ``[C]`` class weights of the fidelity term, used as `torch.nn.CrossEntropyLoss` uses them;
            regularisers are not weighted.
        ignore_index: label of positions that count nowhere, neither in a mean nor in a regulariser.
        reduction: ``"mean"`` over the positions that count, ``"sum"``, or ``"none"``.
    """

    method: ClassVar[Method]
    weight: Tensor | None
    #: Class weights divide the mean of the regulariser too (label smoothing, as in torch).
    weighted_regulariser: ClassVar[bool] = False

    def __init__(self, *, weight: Tensor | None = None, ignore_index: int = -100, reduction: Reduction = "mean"):
        super().__init__()
        self.register_buffer("weight", None if weight is None else check_class_weights(weight))
        self.ignore_index = check_ignore_index(ignore_index)
        self.reduction: str = check_choice("reduction", reduction, REDUCTIONS)

    # ------------------------------------------------------------------ what a method writes

    def formula(self, z: Tensor, t: Target) -> Terms:
        """The plain formula: fidelity and regulariser per position, differentiable by autograd."""
        raise NotImplementedError

    def closed_form(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor] | None:
        """The loss per position ``[N, ...]`` and the gradient of its sum ``[N, C, ...]``, or None if not written out.

        Values and gradients at ignored positions are discarded by the caller.
        """
        return None

    # ------------------------------------------------------------------ what a user calls

    def forward(self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None) -> Tensor:
        """The reduced loss.

        Args:
            logits: ``[N, C]`` or ``[N, C, ...]``, floating point; also ``[C]`` with a single label.
            target: class indices ``[N, ...]``, or soft labels of the logits' shape, which are distributions: not
                negative, and 1 in sum over the classes.
            ids: sample ids, used only by methods that remember samples across epochs.

        Returns:
            A scalar, or ``[N, ...]`` for ``reduction="none"``.
        """
        return self._evaluate(logits, target, ids=ids)

    def terms(self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None) -> dict[str, Tensor]:
        """The loss split into ``{"fidelity": ..., "regulariser": ...}``, each reduced; they add up to the loss."""
        return self._evaluate_terms(logits, target, ids=ids)

    @property
    def has_memory(self) -> bool:
        """Whether `update` does anything; a loop need not collect its arguments otherwise."""
        return type(self).update is not Loss.update

    def update(self, logits: Tensor, target: Tensor, *, ids: Tensor | None = None) -> None:
        """Record what the model predicted in this step. Only methods with a memory do anything here."""

    def end_epoch(self) -> None:
        """Record the end of an epoch. Only methods with a memory do anything here."""

    # ------------------------------------------------------------------ what all losses share

    def _weighted(self, value: Tensor, t: Target) -> Tensor:
        """A value per position times the weight of its label, for class labels."""
        return value if self.weight is None else value * self.weight.to(value.dtype)[t.labels]

    def _evaluate(self, logits: Tensor, target: Tensor, **extra: Any) -> Tensor:
        z, t = self._prepare(logits, target, **extra)
        with _full_precision(z):
            loss = self._by_closed_form(z, t)
            if loss is None:
                terms = self.formula(z, t)
                loss = self._reduce(terms.fidelity, z, t, weighted=True)
                if terms.regulariser is not None:
                    loss = loss + self._reduce(terms.regulariser, z, t, weighted=self.weighted_regulariser)
        return loss.squeeze(0) if logits.dim() == 1 and self.reduction == "none" else loss

    def _evaluate_terms(self, logits: Tensor, target: Tensor, **extra: Any) -> dict[str, Tensor]:
        z, t = self._prepare(logits, target, **extra)
        with _full_precision(z):
            terms = self.formula(z, t)
            regulariser = torch.zeros_like(terms.fidelity) if terms.regulariser is None else terms.regulariser
            reduced = {
                "fidelity": self._reduce(terms.fidelity, z, t, weighted=True),
                "regulariser": self._reduce(regulariser, z, t, weighted=self.weighted_regulariser),
            }
        if logits.dim() == 1 and self.reduction == "none":
            return {name: value.squeeze(0) for name, value in reduced.items()}
        return reduced

    def _by_closed_form(self, z: Tensor, t: Target) -> Tensor | None:
        """The reduced loss by `closed_form`, or None if the plain formula has to be used."""
        if not (z.requires_grad and torch.is_grad_enabled()) or self.weight is not None or self.reduction == "none":
            return None
        if is_transforming() or any(x is not None and x.requires_grad for x in (t.soft, t.alpha)):
            return None
        closed = self._total_and_gradient(z, t)
        if closed is None:
            return None
        total, gradient = closed
        count = 1 if self.reduction == "sum" else t.size(z)
        if torch.compiler.is_compiling():
            # The same by operations that the compiler fuses: the value, plus a zero with the known gradient.
            return (total + ((z - z.detach()) * gradient).sum()) / count
        loss: Tensor = _ClosedForm.apply(z, total, gradient, count, self, t)
        return loss

    def _total_and_gradient(self, z: Tensor, t: Target) -> tuple[Tensor, Tensor] | None:
        """The sum of `closed_form` over the positions that count, and its gradient."""
        closed = self.closed_form(z.detach(), t)
        if closed is None:
            return None
        values, gradient = closed
        if t.valid is not None:
            values, gradient = values * t.valid, gradient.mul_(t.valid.unsqueeze(1))
        return values.sum(), gradient

    def _reduce(self, value: Tensor, z: Tensor, t: Target, *, weighted: bool) -> Tensor:
        if t.valid is not None:
            value = torch.where(t.valid, value, 0.0)
        if self.reduction == "none":
            return value
        if self.reduction == "sum":
            return value.sum()
        if weighted and self.weight is not None and t.labels is not None:
            weight = self.weight.to(z.dtype)[t.labels]
            mass = (weight if t.valid is None else weight * t.valid).sum()
            return value.sum() / torch.where(mass > 0, mass, 1.0)
        return value.sum() / t.size(z)

    def _prepare(self, logits: Tensor, target: Tensor, ids: Tensor | None = None) -> tuple[Tensor, Target]:
        """Check a call; return ``[N, C, ...]`` logits of at least float32 and a `Target`."""
        name = type(self).__name__
        if not torch.is_tensor(logits) or not logits.is_floating_point():
            raise ValueError(f"{name} takes floating-point logits, got {type_words(logits)}")
        if not torch.is_tensor(target):
            raise ValueError(f"{name} takes a tensor of labels or soft targets, got {type_words(target)}")
        if logits.dim() == 0 or logits.numel() == 0:
            raise ValueError(f"{name} takes logits [N, C] or [N, C, ...], got an empty shape {list(logits.shape)}")
        z, y = (logits, target) if logits.dim() > 1 else (logits.unsqueeze(0), target.unsqueeze(0))
        if z.shape[1] < 2:
            raise ValueError(f"{name} takes logits of at least 2 classes in dimension 1, got {list(z.shape)}")
        if self.weight is not None and self.weight.shape[0] != z.shape[1]:
            raise ValueError(f"{name} has weights for {self.weight.shape[0]} classes, the logits have {z.shape[1]}")
        if z.dtype in (torch.float16, torch.bfloat16):
            z = z.float()
        visible = can_read_values(z)
        t = self._soft_target(z, y, visible) if y.is_floating_point() else self._hard_target(z, y, visible)
        if visible:
            check_all_finite(name, "logits", z)
        return z, t

    def _soft_target(self, z: Tensor, y: Tensor, visible: bool) -> Target:
        name = type(self).__name__
        if not self.method.soft:
            raise ValueError(f"{name} takes class labels; soft targets have no meaning for it, got {type_words(y)}")
        if y.shape != z.shape:
            raise ValueError(f"{name} takes soft targets of the logits' shape {list(z.shape)}, got {list(y.shape)}")
        if visible:
            check_distributions(name, y)
        return Target(None, soft=y.to(z.dtype))

    def _hard_target(self, z: Tensor, y: Tensor, visible: bool) -> Target:
        name = type(self).__name__
        expected = [z.shape[0], *z.shape[2:]]
        if list(y.shape) != expected:
            has_classes_last = z.dim() == y.dim() + 1 and y.shape == z.shape[:-1]  # as language models have them
            turned = f"logits.transpose(1, {z.dim() - 1})" if z.dim() == 3 else "logits.movedim(-1, 1)"
            hint = f": the classes must be in dimension 1, pass {turned}" if has_classes_last else ""
            raise ValueError(f"{name} takes labels {expected} for logits {list(z.shape)}, got {list(y.shape)}{hint}")
        y = y.long()
        if not visible:
            valid = y != self.ignore_index
            return Target(torch.where(valid, y, 0), valid=valid)
        low, high = (int(v) for v in torch.aminmax(y))
        if low >= 0 and high < z.shape[1] and not low <= self.ignore_index <= high:
            return Target(y)
        valid = y != self.ignore_index
        labels = torch.where(valid, y, 0)
        bad = (labels < 0) | (labels >= z.shape[1])
        if bad.any():
            raise ValueError(
                f"{name} takes labels from 0 to {z.shape[1] - 1} or ignore_index={self.ignore_index}, "
                f"got {int(labels[bad][0])} at position {bad.nonzero()[0].tolist()}"
            )
        return Target(labels, valid=valid)

    def extra_repr(self) -> str:
        """The constructor's parameters that differ from their defaults."""
        defaults = self.method.defaults() | COMMON
        values = {name: getattr(self, name) for name in defaults}
        return ", ".join(f"{n}={_text(v)}" for n, v in values.items() if isinstance(v, Tensor) or v != defaults[n])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


class _ClosedForm(torch.autograd.Function):
    """Passes autograd a value and a gradient that are computed already."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, total: Tensor, gradient: Tensor, count: Tensor | int, loss: Loss, target: Target
    ) -> Tensor:
        ctx.save_for_backward(z)
        ctx.gradient, ctx.count, ctx.loss, ctx.target = gradient, count, loss, target
        return total / count

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():
            # Scaled in place and returned, so that there is one array of the logits' size. A second pass through a
            # retained graph computes it again.
            gradient, ctx.gradient = ctx.gradient, None
            if gradient is None:
                _, gradient = ctx.loss._total_and_gradient(*ctx.saved_tensors, ctx.target)
            # On the CPU the factor becomes a plain number, which is not broadcast; elsewhere that would synchronise.
            scale = upstream / ctx.count
            if is_transforming() or torch._C._functorch.is_legacy_batchedtensor(scale):  # several upstreams at once
                return gradient * scale, None, None, None, None, None
            return gradient.mul_(float(scale) if scale.device.type == "cpu" else scale), None, None, None, None, None
        # create_graph=True: the stored gradient is a constant to autograd, so differentiate the plain formula instead.
        (z,) = ctx.saved_tensors
        terms = ctx.loss.formula(z, ctx.target)
        total = terms.fidelity if terms.regulariser is None else terms.fidelity + terms.regulariser
        if ctx.target.valid is not None:
            total = torch.where(ctx.target.valid, total, 0.0)
        (gradient,) = torch.autograd.grad(total.sum() * (upstream / ctx.count), z, create_graph=True)
        return gradient, None, None, None, None, None


def _full_precision(z: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Switch autocast off where it is on: it would send matrix products back to half precision."""
    if torch.is_autocast_enabled(z.device.type):
        return torch.autocast(z.device.type, enabled=False)
    return contextlib.nullcontext()


def _text(value: object) -> str:
    return f"[{value.numel()} values]" if isinstance(value, Tensor) else repr(value)
