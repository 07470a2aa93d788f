"""`ConfidenceSketch`: one pass over the predictions, one small state that merges, every top-label metric from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from calibrant import _torchvision
from calibrant.metrics import sketch_file
from calibrant.metrics.cells import BASE, CELLS, base_bins, cells_of, snapped, squash
from calibrant.metrics.onepass import BLOCK, TopLabel, blocks
from calibrant.metrics.summary import Summary

_torchvision.ensure()
from torchmetrics import Metric  # noqa: E402  (importing torchmetrics imports torchvision)

_FLUSH = 2**23  # cell numbers to hold before they are counted
_STATES = ("cells", "base_counts", "base_sums", "moments")


class ConfidenceSketch(Metric):
    """Everything top-label metrics need, in 15 MB, whatever the number of samples.

    Counts of right and wrong predictions over a million cells of the score (see `calibrant.metrics.cells`), sums of
    confidence over 300 bins, sums of NLL and Brier score and of their squares. Counts are int64 and sums float64, so
    nothing saturates. All states add up: over batches, over processes (torchmetrics synchronises them by a sum), over
    sketches with ``+``.

    ECE and MCE are exact for every number of bins that divides 300, as are accuracy, mean confidence, over- and
    underconfidence, NLL and Brier score. What the cells make approximate (AURC and its kin, equal-count bins) comes
    with a bound on the error: see `bounds` and `summary`.

    Args:
        score: what ranks the samples: None for the confidence (MSP), or a function of logits ``[n, C]`` that returns a
            score ``[n]``, higher for surer. Calibration metrics are of the confidence in any case.
        ignore_index: label that counts nowhere.
        kind: what `update` takes: "logits" or "probabilities".

    Example:
        >>> import torch
        >>> from calibrant.metrics import ConfidenceSketch
        >>> sketch = ConfidenceSketch()
        >>> sketch.update(torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 1, 1]))
        >>> values = sketch.compute()
        >>> round(values["accuracy"], 4), round(values["ece"], 4), round(values["aurc"], 4)
        (0.6667, 0.4469, 0.6111)
        >>> (sketch + sketch).summary().samples
        6
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    cells: Tensor
    base_counts: Tensor
    base_sums: Tensor
    moments: Tensor

    def __init__(
        self,
        *,
        score: Callable[[Tensor], Tensor] | None = None,
        ignore_index: int | None = None,
        kind: Literal["logits", "probabilities"] = "logits",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if kind not in ("logits", "probabilities"):
            raise ValueError(f"kind must be 'logits' or 'probabilities', got {kind!r}")
        if score is not None and kind == "probabilities":
            raise ValueError("a score is a function of logits: it cannot be combined with kind='probabilities'")
        self.score, self.ignore_index, self.kind = score, ignore_index, kind
        self.by_confidence = score is None
        self.add_state("cells", torch.zeros(2 * CELLS, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("base_counts", torch.zeros(2 * BASE, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("base_sums", torch.zeros(2 * BASE, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("moments", torch.zeros(5, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add samples: logits (or probabilities) ``[N, C]`` or ``[N, C, ...]``, labels ``[N]`` or ``[N, ...]``.

        Input that is refused leaves the sketch as it was.
        """
        _check(logits, labels, self.ignore_index, self.kind)
        batch = _Batch(self.cells.device)
        for top in blocks(logits, labels, ignore_index=self.ignore_index, kind=self.kind):
            batch.observe(top, None if self.score is None else self._ranks(top.take(logits.detach())))
        batch.add_to(self)

    def _ranks(self, logits: Tensor) -> Tensor:
        assert self.score is not None
        ranks = self.score(logits)
        if not isinstance(ranks, Tensor) or ranks.shape != logits.shape[:1] or not bool(torch.isfinite(ranks).all()):
            shape = list(ranks.shape) if isinstance(ranks, Tensor) else type(ranks).__name__
            raise ValueError(f"a score must be finite and [{len(logits)}] for logits {list(logits.shape)}, got {shape}")
        return ranks

    def forward(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """Add samples and return the metrics of these alone, of this process; empty if all of them are ignored."""
        alone = self._like()
        alone.update(logits, labels)
        self.update(logits, labels)
        if not bool(alone.base_counts.any()):
            return {}
        return {name: float(value) for name, value in alone._summary().metrics().items()}

    def observe(self, top: TopLabel, cells: Tensor | None = None) -> None:
        """Add samples whose statistics are known already, and their cells if they are."""
        batch = _Batch(self.cells.device)
        batch.observe(top, None, cells)
        self._take(batch)

    def observe_confidence(self, top: TopLabel, cells: Tensor) -> None:
        """Add samples of which only the confidence is known, by their cells."""
        batch = _Batch(self.cells.device)
        batch.count(cells, ~top.correct, top.confidence)
        self._take(batch)

    def update_confidence(self, confidence: Tensor, correct: Tensor) -> None:
        """Add samples of which only confidence and correctness are known, ``[N]`` each; NLL and Brier are lost."""
        c, right = torch.as_tensor(confidence).detach(), torch.as_tensor(correct).detach()
        alike = c.shape == right.shape
        c, right = c.flatten(), right.flatten()
        if not alike or not c.is_floating_point() or not len(c):
            raise ValueError(
                f"confidence must be floating point [N] with N >= 1 and correct [N], "
                f"got {c.dtype} {list(c.shape)} and {right.dtype} {list(right.shape)}"
            )
        if not self.by_confidence:
            raise ValueError("this sketch ranks by a score of the logits: update_confidence has none to give")
        batch = _Batch(self.cells.device)
        for part, truth in zip(c.split(BLOCK), right.split(BLOCK), strict=True):
            low, high = (float(v) for v in part.aminmax())
            if not (0 <= low <= high <= 1):
                raise ValueError(f"confidence must lie in [0, 1], got values from {low:g} to {high:g}")
            exact = part.double()
            placed = exact if c.dtype == torch.float64 else snapped(exact, c.dtype)
            batch.count(cells_of(placed, 1 - placed), _wrong(truth), exact)
        self._take(batch)

    def _take(self, batch: _Batch) -> None:
        """Add a batch outside of `update`, which torchmetrics watches to know when a computed value is stale."""
        batch.add_to(self)
        self._computed = None
        self._update_count += 1

    def summary(self) -> Summary:
        """The numbers behind the metrics, with methods for every metric at any setting.

        Where there are several processes it is of all of them, and all must ask for it, as with `compute`.
        """
        if self._is_synced:
            return self._summary()
        with self.sync_context(should_sync=self._to_sync, should_unsync=self._should_unsync):
            return self._summary()

    def _summary(self) -> Summary:
        state = (getattr(self, name).detach().cpu().numpy() for name in _STATES)
        return Summary.of(*state, by_confidence=self.by_confidence)

    def compute(self) -> dict[str, float]:
        """Every metric by its name, as Python floats."""
        return {name: float(value) for name, value in self.summary().metrics().items()}

    def bounds(self) -> dict[str, float]:
        """For every metric of `compute`, how far at most the value can lie from the exact definition's."""
        return {name: value.bound for name, value in self.summary().metrics().items()}

    def __add__(self, other: object) -> ConfidenceSketch:  # type: ignore[override]
        if not isinstance(other, ConfidenceSketch):
            return NotImplemented
        if (self.score, self.kind, self.ignore_index) != (other.score, other.kind, other.ignore_index):
            raise ValueError("sketches can be added only if they have the same score, kind and ignore_index")
        total = self._like()
        for name in _STATES:
            setattr(total, name, getattr(self, name) + getattr(other, name).to(self.device))
        total._update_count = self._update_count + other._update_count
        return total

    def _like(self) -> ConfidenceSketch:
        """An empty sketch with the same settings."""
        return ConfidenceSketch(score=self.score, ignore_index=self.ignore_index, kind=self.kind).to(self.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Any:
        """Follow a module to another device, but never to another precision: sums stay float64."""
        device = fn(torch.zeros(1, device=self.cells.device)).device
        return super()._apply(lambda tensor: tensor.to(device), exclude_state)

    def __radd__(self, other: object) -> ConfidenceSketch:  # type: ignore[override]
        return self if other == 0 else NotImplemented  # sum() starts at 0

    def save(self, path: str | Path) -> None:
        """Write the state to a ``.safetensors`` file, aside first and then renamed; empty cells take no room."""
        if self.score is not None:
            raise ValueError("a sketch ranked by a function cannot be saved: a function does not go into a file")
        states = {name: getattr(self, name).cpu() for name in _STATES}
        sketch_file.write(path, states, {"kind": self.kind, "ignore_index": self.ignore_index})

    @classmethod
    def load(cls, path: str | Path) -> ConfidenceSketch:
        """Read a sketch back; a file that is not one, or is damaged, is refused."""
        states, settings = sketch_file.read(path)
        sketch = cls(**settings)
        for name, state in states.items():
            setattr(sketch, name, state)
        sketch._update_count = 1
        return sketch


class _Batch:
    """The counts of one update, kept apart until all of it has been checked."""

    def __init__(self, device: torch.device) -> None:
        self.waiting: list[Tensor] = []
        self.held = 0
        self.cells: Tensor | None = None
        self.base_counts = torch.zeros(2 * BASE, dtype=torch.int64, device=device)
        self.base_sums = torch.zeros(2 * BASE, dtype=torch.float64, device=device)
        self.moments = torch.zeros(5, dtype=torch.float64, device=device)

    def observe(self, top: TopLabel, ranks: Tensor | None, cells: Tensor | None = None) -> None:
        cells = top.cells() if cells is None else cells
        base = None
        if ranks is not None:
            base, cells = base_bins(cells), cells_of(*squash(ranks.double()))
        self.count(cells, ~top.correct, top.confidence, base)
        nll, brier = top.nll, top.brier
        sums = nll.sum(), nll.dot(nll), brier.sum(), brier.dot(brier), nll.new_tensor(len(nll))
        self.moments += torch.stack(sums)

    def count(self, cells: Tensor, wrong: Tensor, confidence: Tensor, base: Tensor | None = None) -> None:
        side = (2 * (base_bins(cells) if base is None else base)).add_(wrong)
        self.base_counts += torch.bincount(side, minlength=2 * BASE)
        self.base_sums += torch.bincount(side, confidence, minlength=2 * BASE)
        self.waiting.append(torch.add(cells, wrong, alpha=CELLS).int())
        self.held += len(cells)
        if self.held >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        found = torch.bincount(torch.cat(self.waiting), minlength=2 * CELLS)
        self.cells = found if self.cells is None else self.cells.add_(found)
        self.waiting, self.held = [], 0

    def add_to(self, sketch: ConfidenceSketch) -> None:
        if self.waiting and self.cells is None and self.held < CELLS // 8:
            where = torch.cat(self.waiting).long()
            sketch.cells.index_add_(0, where, torch.ones_like(where))
        else:
            if self.waiting:
                self._flush()
            if self.cells is not None:
                sketch.cells += self.cells
        sketch.base_counts += self.base_counts
        sketch.base_sums += self.base_sums
        sketch.moments += self.moments


def _wrong(correct: Tensor) -> Tensor:
    if correct.dtype == torch.bool:
        return ~correct
    if not bool(((correct == 0) | (correct == 1)).all()):
        raise ValueError("correct must be bool or 0/1, got other values")
    return correct == 0


def _check(values: Tensor, labels: Tensor, ignore_index: int | None, kind: str) -> None:
    if not isinstance(values, Tensor) or not isinstance(labels, Tensor):
        raise ValueError(f"update takes tensors, got {type(values).__name__} and {type(labels).__name__}")
    if not values.is_floating_point() or values.dim() < 2 or not values.numel() or values.shape[1] < 2:
        raise ValueError(
            f"{kind} must be floating point [N, C] or [N, C, ...] with N >= 1 and C >= 2, "
            f"got {values.dtype} {list(values.shape)}"
        )
    expected = [len(values), *values.shape[2:]]
    if list(labels.shape) != expected or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels must be whole numbers {expected}, got {labels.dtype} {list(labels.shape)}")
    outside = (labels < 0) | (labels >= values.shape[1])
    if ignore_index is not None:
        outside &= labels != ignore_index
    if bool(outside.any()):
        raise ValueError(f"labels must lie in 0..{values.shape[1] - 1}, got {int(labels[outside][0])}")
    if kind == "probabilities" and not bool((values >= 0).all() and (values <= 1 + 1e-6).all()):
        raise ValueError("probabilities must lie in [0, 1]")
