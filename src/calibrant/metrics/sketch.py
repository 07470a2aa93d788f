"""`ConfidenceSketch`: one pass over the predictions, one small state that merges, every top-label metric from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from calibrant._arrays import ArrayLike, as_numpy, given_back, precision_of
from calibrant._validation import choice
from calibrant.metrics import sketch_file
from calibrant.metrics.cells import BASE, CELLS, base_bins, cells_of, snapped, squash
from calibrant.metrics.onepass import BLOCK, TopLabel, blocks
from calibrant.metrics.summary import Summary

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: The state: names, lengths and types. All of it adds up.
STATE: dict[str, tuple[int, type]] = {
    "cells": (2 * CELLS, np.int64),
    "base_counts": (2 * BASE, np.int64),
    "base_sums": (2 * BASE, np.float64),
    "moments": (5, np.float64),
}
_FLUSH = 2**23  # cell numbers to hold before they are counted


class ConfidenceSketch:
    """Everything top-label metrics need, in 15 MB, whatever the number of samples.

    Counts of right and wrong predictions over a million cells of the score (see `calibrant.metrics.cells`), sums of
    confidence over 300 bins, sums of NLL and Brier score and of their squares. Counts are int64 and sums float64, so
    nothing saturates. All states add up: over batches, over sketches with ``+``, over processes
    (`calibrant.torchmetrics.ConfidenceSketch` is the same as a torchmetrics.Metric).

    ECE and MCE are exact for every number of bins that divides 300, as are accuracy, mean confidence, over- and
    underconfidence, NLL and Brier score. What the cells make approximate (AURC and its kin, equal-count bins) comes
    with a bound on the error: see `bounds` and `summary`.

    Args:
        score: what ranks the samples: None for the confidence (MSP), or a function of logits ``[n, C]`` that returns a
            score ``[n]``, higher for surer. Calibration metrics are of the confidence in any case.
        ignore_index: label that counts nowhere.
        kind: what `update` takes: "logits" or "probabilities".

    Example:
        >>> from calibrant.metrics import ConfidenceSketch
        >>> sketch = ConfidenceSketch()
        >>> sketch.update([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], [0, 1, 1])
        >>> values = sketch.compute()
        >>> round(values["accuracy"], 4), round(values["ece"], 4), round(values["aurc"], 4)
        (0.6667, 0.4469, 0.6111)
        >>> (sketch + sketch).summary().samples
        6
    """

    cells: Ints
    base_counts: Ints
    base_sums: Floats
    moments: Floats

    def __init__(
        self,
        *,
        score: Callable[[Any], Any] | None = None,
        ignore_index: int | None = None,
        kind: Literal["logits", "probabilities"] = "logits",
    ) -> None:
        choice("kind", kind, ("logits", "probabilities"))
        if score is not None and kind == "probabilities":
            raise ValueError("a score is a function of logits: it cannot be combined with kind='probabilities'")
        self.score, self.ignore_index, self.kind = score, ignore_index, kind
        for name, (length, dtype) in STATE.items():
            setattr(self, name, np.zeros(length, dtype))

    @property
    def by_confidence(self) -> bool:
        """Whether samples are ranked by their confidence."""
        return self.score is None

    def update(self, logits: ArrayLike, labels: ArrayLike) -> None:
        """Add samples: logits (or probabilities) ``[N, C]`` or ``[N, C, ...]``, labels ``[N]`` or ``[N, ...]``.

        Input that is refused leaves the sketch as it was.
        """
        values, truth = checked(logits, labels, self.ignore_index, self.kind)
        batch = _Batch()
        for top in blocks(values, truth, ignore_index=self.ignore_index, kind=self.kind):
            ranks = None if self.score is None else self._ranks(given_back(top.take(values), logits))
            batch.observe(top, ranks)
        batch.add_to(self)

    def _ranks(self, logits: Any) -> Floats:
        """The scores of some samples; the function gets logits of the kind that `update` was given."""
        assert self.score is not None
        ranks, _ = as_numpy("a score", self.score(logits))
        if ranks.shape != logits.shape[:1] or ranks.dtype.kind not in "fiu" or not np.isfinite(ranks).all():
            asked = f"finite and [{len(logits)}] for logits {list(logits.shape)}"
            raise ValueError(f"a score must be {asked}, got {list(ranks.shape)}")
        return ranks.astype(np.float64, copy=False)

    def observe(self, top: TopLabel, cells: Ints | None = None) -> None:
        """Add samples whose statistics are known already, and their cells if they are."""
        batch = _Batch()
        batch.observe(top, None, cells)
        batch.add_to(self)

    def observe_confidence(self, top: TopLabel, cells: Ints) -> None:
        """Add samples of which only the confidence is known, by their cells."""
        batch = _Batch()
        batch.count(cells, ~top.correct, top.confidence)
        batch.add_to(self)

    def update_confidence(self, confidence: ArrayLike, correct: ArrayLike) -> None:
        """Add samples of which only confidence and correctness are known, ``[N]`` each; NLL and Brier are lost."""
        (c, _), (right, _) = as_numpy("confidence", confidence), as_numpy("correct", correct)
        if c.shape != right.shape or c.dtype.kind != "f" or not c.size:
            raise ValueError(
                f"confidence must be floating point [N] with N >= 1 and correct [N], "
                f"got {c.dtype} {list(c.shape)} and {right.dtype} {list(right.shape)}"
            )
        if not self.by_confidence:
            raise ValueError("this sketch ranks by a score of the logits: update_confidence has none to give")
        precision = precision_of(confidence)
        c, right = c.reshape(-1), right.reshape(-1)
        batch = _Batch()
        for start in range(0, len(c), BLOCK):
            part = c[start : start + BLOCK]
            low, high = float(part.min()), float(part.max())
            if not 0 <= low <= high <= 1:
                raise ValueError(f"confidence must lie in [0, 1], got values from {low:g} to {high:g}")
            exact = part.astype(np.float64)
            placed = snapped(exact, precision) if precision != "float64" else exact
            batch.count(cells_of(placed, 1 - placed), _wrong(right[start : start + BLOCK]), exact)
        batch.add_to(self)

    def summary(self) -> Summary:
        """The numbers behind the metrics, with methods for every metric at any setting."""
        return Summary.of(*(getattr(self, name) for name in STATE), by_confidence=self.by_confidence)

    def compute(self) -> dict[str, float]:
        """Every metric by its name, as Python floats."""
        return {name: float(value) for name, value in self.summary().metrics().items()}

    def bounds(self) -> dict[str, float]:
        """For every metric of `compute`, how far at most the value can lie from the exact definition's."""
        return {name: value.bound for name, value in self.summary().metrics().items()}

    def __add__(self, other: object) -> ConfidenceSketch:
        if not isinstance(other, ConfidenceSketch):
            return NotImplemented
        if (self.score, self.kind, self.ignore_index) != (other.score, other.kind, other.ignore_index):
            raise ValueError("sketches can be added only if they have the same score, kind and ignore_index")
        total = ConfidenceSketch(score=self.score, ignore_index=self.ignore_index, kind=self.kind)
        for name in STATE:
            setattr(total, name, getattr(self, name) + getattr(other, name))
        return total

    def __radd__(self, other: object) -> ConfidenceSketch:
        return self if other == 0 else NotImplemented  # sum() starts at 0

    def save(self, path: str | Path) -> None:
        """Write the state to a ``.safetensors`` file, aside first and then renamed; empty cells take no room."""
        if self.score is not None:
            raise ValueError("a sketch ranked by a function cannot be saved: a function does not go into a file")
        states = {name: getattr(self, name) for name in STATE}
        sketch_file.write(path, states, {"kind": self.kind, "ignore_index": self.ignore_index})

    @classmethod
    def load(cls, path: str | Path) -> ConfidenceSketch:
        """Read a sketch back; a file that is not one, or is damaged, is refused."""
        states, settings = sketch_file.read(path)
        sketch = cls(**settings)
        for name, state in states.items():
            setattr(sketch, name, state)
        return sketch


class _Batch:
    """The counts of one update, kept apart until all of it has been checked."""

    def __init__(self) -> None:
        self.waiting: list[npt.NDArray[np.int32]] = []
        self.length = 0
        self.cells: Ints | None = None
        self.base_counts = np.zeros(2 * BASE, np.int64)
        self.base_sums = np.zeros(2 * BASE)
        self.moments = np.zeros(5)

    def observe(self, top: TopLabel, ranks: Floats | None, cells: Ints | None = None) -> None:
        cells = top.cells() if cells is None else cells
        base = None
        if ranks is not None:
            base, cells = base_bins(cells), cells_of(*squash(ranks))
        self.count(cells, ~top.correct, top.confidence, base)
        nll, brier = top.nll, top.brier
        with np.errstate(invalid="ignore"):  # an infinite NLL, of a label with probability 0
            self.moments += np.array([nll.sum(), nll @ nll, brier.sum(), brier @ brier, len(nll)])

    def count(self, cells: Ints, wrong: Bools, confidence: Floats, base: npt.NDArray[np.int32] | None = None) -> None:
        side = 2 * (base_bins(cells) if base is None else base) + wrong
        self.base_counts += np.bincount(side, minlength=2 * BASE)
        self.base_sums += np.bincount(side, confidence, minlength=2 * BASE)
        self.waiting.append((cells + CELLS * wrong).astype(np.int32))
        self.length += len(cells)
        if self.length >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        counts = np.bincount(np.concatenate(self.waiting), minlength=2 * CELLS)
        self.cells = counts if self.cells is None else self.cells + counts
        self.waiting, self.length = [], 0

    def add_to(self, sketch: ConfidenceSketch) -> None:
        if self.waiting and self.cells is None and self.length < CELLS // 8:
            np.add.at(sketch.cells, np.concatenate(self.waiting), 1)
        else:
            if self.waiting:
                self._flush()
            if self.cells is not None:
                sketch.cells += self.cells
        sketch.base_counts += self.base_counts
        sketch.base_sums += self.base_sums
        sketch.moments += self.moments


def checked(
    logits: ArrayLike, labels: ArrayLike, ignore_index: int | None, kind: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Logits or probabilities and labels as arrays that fit each other; values are looked at by the pass itself."""
    (values, _), (y, _) = as_numpy(kind, logits), as_numpy("labels", labels)
    if values.dtype.kind != "f" or values.ndim < 2 or not values.size or values.shape[1] < 2:
        asked = "floating point [N, C] or [N, C, ...] with N >= 1 and C >= 2"
        raise ValueError(f"{kind} must be {asked}, got {values.dtype} {list(values.shape)}")
    check_labels(values.shape, y, ignore_index)
    if kind == "probabilities" and not (values.min() >= 0 and values.max() <= 1 + 1e-6):
        raise ValueError("probabilities must lie in [0, 1]")
    return values, y


def check_labels(shape: tuple[int, ...], labels: npt.NDArray[Any], ignore_index: int | None) -> None:
    """Raise unless labels are whole numbers of classes, one for each position of values of this shape."""
    expected = [shape[0], *shape[2:]]
    if list(labels.shape) != expected or labels.dtype.kind not in "iu":
        raise ValueError(f"labels must be whole numbers {expected}, got {labels.dtype} {list(labels.shape)}")
    outside = (labels < 0) | (labels >= shape[1])
    if ignore_index is not None:
        outside &= labels != ignore_index
    if outside.any():
        raise ValueError(f"labels must lie in 0..{shape[1] - 1}, got {labels[outside][0]}")


def _wrong(correct: npt.NDArray[Any]) -> Bools:
    if correct.dtype.kind == "b":
        return ~correct
    if not np.isin(correct, (0, 1)).all():
        raise ValueError("correct must be bool or 0/1, got other values")
    return correct == 0
