"""What every loss shares: the call, its checks, class weights and reduction, and its entry in the registry.

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
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from calibrant.base.checks import check_choice
from calibrant.losses.numerics import (
    Target,
    can_read_values,
    check_all_finite,
    check_class_weights,
    check_ignore_index,
    hard_target,
    is_transforming,
    soft_target,
    type_words,
)

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")
#: Parameters that every loss has, and their defaults.
COMMON = {"weight": None, "ignore_index": -100, "reduction": "mean"}


@dataclass(frozen=True)
class Method:
    """The facts of one registered method.

    Attributes:
        name: short name, as in `get`.
        title: name in words.
        loss: the class.
        paper: key in references.bib.
        equation: the equation in the paper.
        summary: one line.
        use: when to use it.
        avoid: when not to.
        hyper: for each hyper-parameter, what raising it does.
        search: values of the hyper-parameters that the papers try; empty where they give none.
        soft: whether soft targets make sense.
        per_sample: whether the value of a sample depends on that sample alone.
        cost: how the work grows with the number of classes C and of samples N.
        short: how papers abbreviate it: ``"MbLS"``; the name in capitals if left out.
    """

    name: str
    title: str
    loss: type[Loss]
    paper: str
    equation: str
    summary: str
    use: str
    avoid: str
    hyper: Mapping[str, str] = field(default_factory=dict)
    search: Mapping[str, Sequence[float]] = field(default_factory=dict)
    soft: bool = True
    per_sample: bool = True
    cost: str = "N C"
    short: str = ""

    @property
    def abbreviation(self) -> str:
        """How papers abbreviate it: ``"MbLS"``."""
        return self.short or self.name.upper()

    def defaults(self) -> dict[str, Any]:
        """The method's own parameters and their defaults (those every loss has are left out)."""
        parameters = inspect.signature(self.loss).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in COMMON}


METHODS: dict[str, Method] = {}
_L = TypeVar("_L", bound="type[Loss]")


class Terms(NamedTuple):
    """A loss per position, split as ACLS Eq. 6 splits it; ``regulariser`` is None for a loss that has none."""

    fidelity: Tensor
    regulariser: Tensor | None = None


class SizedByData(nn.Module):
    """A module with buffers whose length the data decide: a state of any length is loaded.

    Attributes:
        sized: the names of those buffers.
    """

    sized: ClassVar[tuple[str, ...]] = ()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in self.sized:
            stored, buffer = state_dict.get(f"{prefix}{name}"), getattr(self, name)
            if stored is not None and stored.shape != buffer.shape:
                setattr(self, name, buffer.new_zeros(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


class CountsEpochs(nn.Module):
    """A module that counts finished epochs, in its state and as a plain number, which does not stall a device.

    Attributes:
        finished: the number of finished epochs.
    """

    epochs: Tensor

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))
        self.finished = 0

    def end_epoch(self, observed: Tensor | None = None) -> None:
        """Count a finished epoch."""
        self.epochs += 1
        self.finished += 1

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.finished = int(self.epochs)


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
    #: Samples of a batch without which a penalty does not exist; it is 0 for fewer.
    least_samples: ClassVar[int] = 1
    #: Logits that follow those of the classes: 1 for a method with an output for abstaining, which is no class.
    extra_logits: int = 0

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

    @property
    def learns_from_validation(self) -> bool:
        """Whether `observe` and `end_epoch` need the predictions of validation samples after each epoch."""
        return type(self).observe is not Loss.observe

    def observe(self, logits: Tensor, target: Tensor) -> Tensor:
        """What the method learns from a batch of validation samples: rows, joined over batches for `end_epoch`."""
        raise TypeError(f"{type(self).__name__} learns nothing from validation data")

    def end_epoch(self, observed: Tensor | None = None) -> None:
        """Record the end of an epoch. Only methods with a memory, or that learn from validation data, act here.

        Args:
            observed: the rows that `observe` gave for the validation data after this epoch.
        """

    # ------------------------------------------------------------------ what all losses share

    def _weighted(self, value: Tensor, t: Target) -> Tensor:
        """A value per position times the weight of its label, or the mean weight of its soft label."""
        if self.weight is None:
            return value
        weight = self.weight.to(value.dtype)
        return value * (weight[t.labels] if t.soft is None else torch.tensordot(t.soft, weight, ([1], [0])))

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
        classes = z.shape[1] - self.extra_logits
        if classes < 2:
            more = " and one for abstaining" if self.extra_logits else ""
            raise ValueError(f"{name} takes logits of at least 2 classes{more} in dimension 1, got {list(z.shape)}")
        if self.weight is not None and self.weight.shape[0] != classes:
            raise ValueError(f"{name} has weights for {self.weight.shape[0]} classes, the logits have {classes}")
        if z.dtype in (torch.float16, torch.bfloat16):
            z = z.float()
        if not y.is_floating_point():
            t = hard_target(name, z, y, self.ignore_index, classes)
        elif self.method.soft:
            t = soft_target(name, z, y)
        else:
            raise ValueError(f"{name} takes class labels; soft targets have no meaning for it, got {type_words(y)}")
        if can_read_values(z):
            check_all_finite(name, "logits", z)
        return z, t

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


def register(
    name: str,
    title: str,
    *,
    paper: str,
    equation: str,
    summary: str,
    use: str,
    avoid: str,
    hyper: Mapping[str, str] | None = None,
    search: Mapping[str, Sequence[float]] | None = None,
    soft: bool = True,
    per_sample: bool = True,
    cost: str = "N C",
    short: str = "",
) -> Callable[[_L], _L]:
    """Class decorator: registers a loss under a short name, with the facts of `Method`."""

    def enter(loss: _L) -> _L:
        facts = (paper, equation, summary, use, avoid, hyper or {}, search or {}, soft, per_sample, cost, short)
        method = Method(name, title, loss, *facts)
        unexplained = set(method.defaults()) - set(method.hyper)
        if name in METHODS or unexplained:
            raise TypeError(f"cannot register {loss.__name__} as {name!r}: taken, or no direction for {unexplained}")
        METHODS[name] = method
        loss.method = method
        return loss

    return enter


def names() -> tuple[str, ...]:
    """Short names of all losses, in the order of the docs.

    Example:
        >>> from calibrant.losses import names
        >>> names()[:4]
        ('ce', 'ls', 'focal', 'flsd')
    """
    return tuple(METHODS)


def describe(name: str) -> Method:
    """The facts of the method with this short name: paper, equation, directions of its hyper-parameters.

    Example:
        >>> from calibrant.losses import describe
        >>> describe("ls").hyper["alpha"]
        'larger: flatter targets, lower confidence'
    """
    if name not in METHODS:
        raise ValueError(f"unknown loss {name!r}: expected one of {', '.join(METHODS)}")
    return METHODS[name]


def get(name: str, **parameters: Any) -> Loss:
    """Build a loss by its short name.

    Args:
        name: one of `names`.
        **parameters: the method's own parameters and those of `Loss`.

    Returns:
        The loss module.

    Example:
        >>> from calibrant.losses import get
        >>> get("acls", margin=6.0)
        ACLS(margin=6.0)
    """
    method = describe(name)
    allowed = [*method.defaults(), *COMMON]
    for parameter in parameters:
        if parameter not in allowed:
            raise ValueError(f"loss {name!r} has no parameter {parameter!r}: expected one of {', '.join(allowed)}")
    return method.loss(**parameters)
