"""The rows of the loss benchmark: which losses, on what batch, and the targets they are held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks._harness import Ratio
from calibrant.losses import describe, get

#: Upper limits of the measures. "growth": memory at twice the samples, or twice the classes, by that at the shape.
TARGETS: dict[str, dict[str, float]] = {
    "linear in the classes": {"eager": 4, "compiled": 2, "memory": 2, "compiled memory": 2},
    "ls": {"torch LS": 1, "compiled torch LS": 1},
    "cpc at [1024, 200]": {"eager": 300, "compiled": 300, "growth": 2.2},
    "mmce at [1024, 200]": {"eager": 10, "compiled": 10},
}
#: Shapes without targets: at [128, 10] every call takes tens of microseconds, most of them Python's.
UNJUDGED = {(128, 10)}
#: CRL looks samples up in its record of the training set: this many, or one per position if those are more.
TRAINING_SET = 50_000
#: The longest batch whose pairs are all compared.
ALL_PAIRS = 10_000

Call = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]


class Batch(NamedTuple):
    """Logits ``[N, C, ...]``, labels, a target distribution per position, sample ids."""

    z: Tensor
    labels: Tensor
    soft: Tensor
    ids: Tensor

    @classmethod
    def draw(cls, shape: Shape) -> Batch:
        """Logits of spread 5 with the label's raised by 15, so that right and wrong predictions both occur."""
        random = torch.Generator().manual_seed(0)
        labels = torch.randint(shape[1], (shape[0], *shape[2:]), generator=random)
        one_hot = torch.zeros(shape).scatter_(1, labels.unsqueeze(1), 1.0)
        z = 5 * torch.randn(shape, generator=random) + 15 * one_hot
        soft = 0.7 * one_hot + 0.3 * torch.randn(shape, generator=random).softmax(1)
        ids = torch.randperm(max(TRAINING_SET, labels.numel()), generator=random)[: labels.numel()]
        return cls(z.requires_grad_(), labels, soft, ids.view_as(labels))

    def shares(self) -> dict[str, float]:
        """What part of the batch the conditional methods really touch."""
        z = self.z.detach()
        touched = {
            "logits more than 10 below the largest": z.amax(1, keepdim=True) - z > 10,
            "largest logits above 10": z.amax(1) > 10,
            "correct predictions": z.argmax(1) == self.labels,
        }
        return {name: round(float(share.float().mean()), 3) for name, share in touched.items()}


@dataclass
class Row:
    """A loss, and what was found about it at one shape. Torch's own have no method."""

    method: str | None
    options: dict[str, Any]
    shape: Shape
    times: dict[str, Ratio] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)
    failure: str = ""

    @property
    def name(self) -> str:
        if self.method is None:
            return "torch LS" if self.options else "torch CE"
        return " ".join([self.method, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def is_default(self) -> bool:
        return self.method is None or not self.options

    @property
    def all_pairs(self) -> bool:
        """Whether every position is compared with all others (the registry speaks of a method's default)."""
        return self.method == "crl" and self.options.get("variant") == "paper" and "indicator" not in self.options

    @property
    def skipped(self) -> str:
        """Why the row is left out, if it is."""
        positions = torch.Size((self.shape[0], *self.shape[2:])).numel()
        return f"compares all pairs of {positions} positions" if self.all_pairs and positions > ALL_PAIRS else ""

    @property
    def limits(self) -> dict[str, float]:
        """The targets that hold for it."""
        if self.method is None or self.all_pairs or self.shape in UNJUDGED:
            return {}
        default_cost = describe(self.method).cost.partition(";")[0]
        linear = TARGETS["linear in the classes"] if default_cost == "N C" else {}
        return linear | TARGETS.get(self.method, {}) | TARGETS.get(f"{self.method} at {list(self.shape)}", {})

    def call(self, batch: Batch) -> Call:
        """The loss as a function of the logits."""
        if self.method is None:
            labels, options = batch.labels, self.options
            return lambda z: F.cross_entropy(z, labels, **options)
        loss, ids = get(self.method, **self.options), batch.ids
        classes = self.shape[1] - loss.extra_logits
        target = batch.soft if self.method == "soft" else batch.labels % classes
        history: Any = getattr(loss, "history", None)
        if history is not None:
            random = torch.Generator().manual_seed(1)
            history.counts = torch.randint(0, 6, (max(TRAINING_SET, ids.numel()),), generator=random)
            history.epochs += 5
        elif loss.has_memory:
            loss.update(batch.z.detach(), target, ids=ids)
            loss.end_epoch()
        else:
            return lambda z: loss(z, target)
        return lambda z: loss(z, target, ids=ids)

    def record(self) -> dict[str, Any]:
        """The row for the JSON file."""
        return {
            "name": self.name,
            "method": self.method,
            "options": self.options,
            "times": {name: ratio._asdict() for name, ratio in self.times.items()},
            "sizes": self.sizes,
            "limits": self.limits,
            "failure": self.failure,
            "verdict": self.verdict(),
        }

    def verdict(self) -> str:
        """Its measures against its limits.

        "No slower than torch" is missed where three quarters of the rounds were slower: of equals half are.
        """
        if self.skipped:
            return f"skipped: {self.skipped}"
        values = {name: t.low if name.endswith("torch LS") else t.median for name, t in self.times.items()} | self.sizes
        over = [
            f"{name} {values[name]:.4g} > {limit:g}"
            for name, limit in self.limits.items()
            if name in values and values[name] > limit
        ]
        failed = [f"failed: {self.failure}"] if self.failure else []
        over = [f"over: {', '.join(over)}"] if over else []
        return "; ".join(failed + over) or ("ok" if self.limits else "-")


def torch_rows(shape: Shape) -> list[Row]:
    """Torch's cross-entropy, to which all is compared, and its label smoothing."""
    return [Row(None, {}, shape), Row(None, {"label_smoothing": 0.05}, shape)]


def rows_of(method: str, shape: Shape) -> list[Row]:
    """The default, and each choice of the constructor changed alone, under every variant that accepts it."""
    loss, defaults = describe(method).loss, describe(method).defaults()
    hints = {name: kind for name, kind in get_type_hints(loss.__init__).items() if name in defaults}
    choices: dict[str, tuple[Any, ...]] = {name: (True, False) for name, kind in hints.items() if kind is bool}
    choices |= {name: get_args(kind) for name, kind in hints.items() if get_origin(kind) is Literal}
    variants = [{"variant": value} for value in choices.pop("variant", ())] or [{}]
    changes = [{name: value} for name, values in choices.items() for value in values if value != defaults[name]]
    rows = []
    for variant in variants:
        for change in ({}, *changes):
            options = {name: value for name, value in (variant | change).items() if value != defaults[name]}
            try:
                get(method, **options)
            except ValueError:  # a choice that another variant has
                continue
            rows.append(Row(method, options, shape))
    return rows
