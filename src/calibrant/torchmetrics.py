"""`ConfidenceSketch` as a torchmetrics.Metric: for training loops, `MetricCollection` and several processes.

The state lives on the metric's device and is added up over processes by torchmetrics. Tensors on a CPU are read where
they lie; on a GPU the reductions over the classes run there, and only columns of ``[N]`` come back.
"""

from __future__ import annotations

from calibrant.base.extras import needs_torch  # noqa: F401

# isort: split

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from calibrant._tensor_sketch import count_tensors
from calibrant.base import torchvision_operators
from calibrant.metrics import STATE, Summary
from calibrant.metrics import ConfidenceSketch as PlainSketch

torchvision_operators.ensure()
from torchmetrics import Metric  # noqa: E402  (importing torchmetrics imports torchvision)

__all__ = ["ConfidenceSketch"]


class ConfidenceSketch(Metric):
    """`calibrant.metrics.ConfidenceSketch` with torchmetrics' interface.

    Args:
        score: what ranks the samples: None for the confidence, or a function of logits ``[n, C]``.
        ignore_index: label that counts nowhere.
        kind: what `update` takes: "logits" or "probabilities".
        **kwargs: torchmetrics' own.

    Example:
        >>> import torch
        >>> from calibrant.torchmetrics import ConfidenceSketch
        >>> sketch = ConfidenceSketch()
        >>> sketch.update(torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 1, 1]))
        >>> round(sketch.compute()["accuracy"], 4)
        0.6667
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    def __init__(
        self,
        *,
        score: Callable[[Tensor], Tensor] | None = None,
        ignore_index: int | None = None,
        kind: Literal["logits", "probabilities"] = "logits",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        PlainSketch(score=score, ignore_index=ignore_index, kind=kind)  # checks the arguments
        self.score, self.ignore_index, self.kind = score, ignore_index, kind
        for name, length in STATE.items():
            self.add_state(name, torch.zeros(length, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> None:
        """Add samples: logits (or probabilities) ``[N, C]`` or ``[N, C, ...]``, labels ``[N]`` or ``[N, ...]``.

        Weights, at least 0, are those of the rows ``[N]`` or of the labels; without them each sample counts as 1.
        """
        if self.device.type == "cpu" and (not isinstance(logits, Tensor) or logits.device.type == "cpu"):
            self._shared_sketch().update(logits, labels, weight=weight)
        else:
            self._add(self._count_batch(logits, labels, weight))

    def update_confidence(self, confidence: Tensor, correct: Tensor, weight: Tensor | None = None) -> None:
        """Add samples of which only confidence and correctness are known, ``[N]`` each; NLL and Brier are lost."""
        if self.device.type == "cpu":
            self._shared_sketch().update_confidence(confidence, correct, weight=weight)
        else:
            batch = self._empty_sketch()
            batch.update_confidence(confidence, correct, weight=weight)
            self._add(batch)
        self._computed = None
        self._update_count += 1

    def forward(self, logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> dict[str, float]:
        """Add samples and return the metrics of these alone, of this process; empty if all of them are ignored."""
        batch = self._count_batch(logits, labels, weight)
        self._add(batch)
        self._computed = None
        self._update_count += 1
        return batch.compute() if batch.base_counts.any() else {}

    def summary(self) -> Summary:
        """The numbers behind the metrics, with methods for every metric at any setting.

        Where there are several processes it is of all of them, and all must ask for it, as with `compute`.
        """
        if self._is_synced:
            return self.sketch().summary()
        with self.sync_context(should_sync=self._to_sync, should_unsync=self._should_unsync):
            return self.sketch().summary()

    def compute(self) -> dict[str, float]:
        """Every metric by its name, as Python floats."""
        return {name: float(value) for name, value in self.summary().metrics().items()}

    def bounds(self) -> dict[str, float]:
        """For every metric of `compute`, how far at most the value can lie from the exact definition's."""
        return {name: value.bound for name, value in self.summary().metrics().items()}

    def sketch(self) -> PlainSketch:
        """What this process has seen, as a plain sketch, which can be saved and added to others."""
        return self._shared_sketch() + self._empty_sketch()  # a sum has memory of its own

    def _shared_sketch(self) -> PlainSketch:
        """A plain sketch in the memory of this one's state, if that is on the CPU: what it counts is counted here."""
        sketch = self._empty_sketch()
        for name in STATE:
            setattr(sketch, name, getattr(self, name).detach().cpu().numpy())
        return sketch

    def _empty_sketch(self) -> PlainSketch:
        """An empty sketch with the same settings."""
        return PlainSketch(score=self.score, ignore_index=self.ignore_index, kind=self.kind)

    def _count_batch(self, logits: Tensor, labels: Tensor, weight: Tensor | None) -> PlainSketch:
        batch = self._empty_sketch()
        count_tensors(batch, logits, labels, weight)
        return batch

    def _add(self, batch: PlainSketch) -> None:
        for name in STATE:
            state = getattr(self, name)
            state += torch.from_numpy(getattr(batch, name)).to(state.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Any:
        """Follow a module to another device, but never to another precision: sums stay float64."""
        device = fn(torch.zeros(1, device=self.device)).device
        return super()._apply(lambda tensor: tensor.to(device), exclude_state)
