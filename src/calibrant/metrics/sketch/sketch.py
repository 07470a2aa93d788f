"""`ConfidenceSketch`: one pass over the predictions, one small state that merges, every top-label metric from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from calibrant._arrays import (
    Array,
    ArrayLike,
    Doubles,
    Precision,
    as_kind_of,
    as_numpy,
    in_threads,
    is_half,
    precision_of,
    row_slices,
)
from calibrant._validation import Bools, Ints, check_choice, check_correct
from calibrant.metrics.proper import check_labels
from calibrant.metrics.sketch import file
from calibrant.metrics.sketch.grid import BASE, CELLS, base_bins, cells_of, cells_of_confidence, squash
from calibrant.metrics.sketch.kernel import (
    BLOCK,
    Tally,
    TopLabel,
    as_rows,
    compiled_passes,
    counted_rows,
    empty_tally,
    is_large,
    tally_rows,
    top_label_blocks,
)
from calibrant.metrics.sketch.summary import Summary

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

    Counts of right and wrong predictions over a million cells of the score (see `calibrant.metrics.sketch.grid`), sums
    of confidence over 300 bins, sums of NLL and Brier score and of their squares. Counts are int64 and sums float64, so
    nothing saturates. All states add up: over batches, over sketches with ``+``, over processes
    (`calibrant.torchmetrics.ConfidenceSketch` is the same as a torchmetrics.Metric).

    ECE and MCE are exact for every number of bins that divides 300, as are accuracy, mean confidence, over- and
    underconfidence, NLL and Brier score. What the cells make approximate (AURC and its kin, equal-count bins) comes
    with a bound on the error: see `bounds` and `summary`.

    Args:
        score: what ranks the samples: None for the confidence (MSP), or a function of logits ``[n, C]`` that returns a
            score ``[n]``, higher for more confident. Calibration metrics are of the confidence in any case.
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
    base_sums: Doubles
    moments: Doubles

    def __init__(
        self,
        *,
        score: Callable[[Any], Any] | None = None,
        ignore_index: int | None = None,
        kind: Literal["logits", "probabilities"] = "logits",
    ) -> None:
        check_choice("kind", kind, ("logits", "probabilities"))
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
        values, y = _check(logits, labels, self.ignore_index, self.kind)
        batch = _Batch(large=is_large(values.size))
        precision = None if self.kind == "logits" else precision_of(logits)
        is_exact = precision is None or not is_half(precision)  # edges in half precision round otherwise
        if batch.large and self.score is None and is_exact:
            blocks = (block[:2] for block in counted_rows(values, y, self.ignore_index))
            plain = values.ndim == 2 and self.ignore_index is None  # nothing to turn or to leave out
            for z, row_labels in [(values, y.astype(np.int64, copy=False))] if plain else blocks:
                for tally in tally_rows(z, row_labels, self.kind, precision):
                    batch.add(tally)
        else:
            for top in top_label_blocks(values, y, ignore_index=self.ignore_index, kind=self.kind):
                ranks = None if self.score is None else self._ranks(as_kind_of(logits, top.take(values)))
                batch.observe(top, ranks)
        batch.add_to(self)

    def _ranks(self, logits: Any) -> Doubles:
        """The scores of some samples; the function gets logits of the kind that `update` was given."""
        assert self.score is not None
        ranks, _ = as_numpy("a score", self.score(logits))
        if ranks.shape != logits.shape[:1] or ranks.dtype.kind not in "fiu" or not np.isfinite(ranks).all():
            requirement = f"finite and [{len(logits)}] for logits {list(logits.shape)}"
            raise ValueError(f"a score must be {requirement}, got {list(ranks.shape)}")
        return ranks.astype(np.float64, copy=False)

    def observe(self, top: TopLabel) -> None:
        """Add samples whose statistics are known already; without their NLL and Brier score if they have none."""
        batch = _Batch(large=top.large)
        if top.predicted is None:
            batch.count(top.cells, top.confidence, top.correct, base_bins(top.cells))
        else:
            batch.observe(top)
        batch.add_to(self)

    def update_confidence(self, confidence: ArrayLike, correct: ArrayLike) -> None:
        """Add samples of which only confidence and correctness are known, ``[N]`` each; NLL and Brier are lost."""
        (c, _), (correct, _) = as_numpy("confidence", confidence), as_numpy("correct", correct)
        if c.shape != correct.shape or c.dtype.kind != "f" or not c.size:
            raise ValueError(
                f"confidence must be floating point [N] with N >= 1 and correct [N], "
                f"got {c.dtype} {list(c.shape)} and {correct.dtype} {list(correct.shape)}"
            )
        if not self.by_confidence:
            raise ValueError("this sketch ranks by a score of the logits: update_confidence has none to give")
        precision = precision_of(confidence)
        c, correct = c.reshape(-1), check_correct(correct).reshape(-1)
        batch = _Batch(large=is_large(len(c)))
        parts = row_slices(len(c), 1, BLOCK)
        if batch.large and not is_half(precision):
            for tally in in_threads(lambda rows: _tally_confidences(c[rows], correct[rows], precision), parts):
                batch.add(tally)
        else:
            for rows in parts:
                values = _check_range(c[rows]).astype(np.float64)
                cells = cells_of_confidence(values, precision)
                batch.count(cells, values, correct[rows], base_bins(cells))
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
        file.write(path, states, {"kind": self.kind, "ignore_index": self.ignore_index})

    @classmethod
    def load(cls, path: str | Path) -> ConfidenceSketch:
        """Read a sketch back; a file that is not one, or is damaged, is refused."""
        states, settings = file.read(path)
        sketch = cls(**settings)
        for name, state in states.items():
            setattr(sketch, name, state)
        return sketch


class _Batch:
    """The counts of one update, kept apart until all of it has been checked.

    Args:
        large: whether there are so many samples that counting them by compiled code pays.
    """

    def __init__(self, *, large: bool) -> None:
        self.large = large
        self.waiting: list[npt.NDArray[np.int32]] = []
        self.length = 0
        self.cells: Ints | None = None
        self.base_counts = np.zeros(2 * BASE, np.int64)
        self.base_sums = np.zeros(2 * BASE)
        self.moments = np.zeros(5)

    def observe(self, top: TopLabel, ranks: Doubles | None = None) -> None:
        """Judged samples, ranked by their confidence or by other scores."""
        if self.large and ranks is None:
            tally = empty_tally(len(top.cells))
            compiled_passes().tally(top.cells, top.correct, top.confidence, top.nll, top.brier, *tally)
            self.add(tally)
            return
        cells = top.cells if ranks is None else cells_of(*squash(ranks))
        self.count(cells, top.confidence, top.correct, base_bins(top.cells))
        nll, brier = top.nll, top.brier
        with np.errstate(invalid="ignore"):  # an infinite NLL, of a label with probability 0
            self.moments += np.array([nll.sum(), nll @ nll, brier.sum(), brier @ brier, len(nll)])

    def count(self, cells: Ints, confidence: Doubles, correct: Bools, base: npt.NDArray[np.int32]) -> None:
        """Samples by their cells and by the base bins of their confidence."""
        side = 2 * base + ~correct
        self.base_counts += np.bincount(side, minlength=2 * BASE)
        self.base_sums += np.bincount(side, confidence, minlength=2 * BASE)
        self._wait((cells + CELLS * ~correct).astype(np.int32))

    def add(self, tally: Tally) -> None:
        """Samples that were counted already, but for their cells."""
        self.base_counts += tally.base_counts
        self.base_sums += tally.base_sums
        self.moments += tally.moments
        self._wait(tally.code)

    def _wait(self, code: npt.NDArray[np.int32]) -> None:
        self.waiting.append(code)
        self.length += len(code)
        if self.length >= _FLUSH:
            self.cells = np.zeros(2 * CELLS, np.int64) if self.cells is None else self.cells
            self._flush(self.cells)

    def _flush(self, counts: Ints) -> None:
        if self.large:
            for code in self.waiting:
                compiled_passes().count_codes(code, counts)
        elif self.waiting and self.length < CELLS // 8:
            np.add.at(counts, np.concatenate(self.waiting), 1)
        elif self.waiting:
            counts += np.bincount(np.concatenate(self.waiting), minlength=2 * CELLS)
        self.waiting, self.length = [], 0

    def add_to(self, sketch: ConfidenceSketch) -> None:
        self._flush(sketch.cells)
        if self.cells is not None:
            sketch.cells += self.cells
        sketch.base_counts += self.base_counts
        sketch.base_sums += self.base_sums
        sketch.moments += self.moments


def _tally_confidences(confidence: Array, correct: Bools, precision: Precision) -> Tally:
    """What a sketch adds up, of samples of which nothing but confidence and correctness are known."""
    tally = empty_tally(len(confidence))
    rows = as_rows(_check_range(confidence))
    compiled_passes().place_confidences(rows, correct, precision == "float32", *tally[:3])
    return tally


def _check_range(confidence: Array) -> Array:
    low, high = confidence.min(), confidence.max()
    if not 0 <= low <= high <= 1:  # nor is NaN
        raise ValueError(f"confidence must lie in [0, 1], got values from {low:g} to {high:g}")
    return confidence


def _check(logits: ArrayLike, labels: ArrayLike, ignore_index: int | None, kind: str) -> tuple[Array, Array]:
    """Logits or probabilities and labels as arrays that fit each other; values are looked at by the pass itself."""
    (values, _), (y, _) = as_numpy(kind, logits), as_numpy("labels", labels)
    if values.dtype.kind != "f" or values.ndim < 2 or not values.size or values.shape[1] < 2:
        requirement = "floating point [N, C] or [N, C, ...] with N >= 1 and C >= 2"
        raise ValueError(f"{kind} must be {requirement}, got {values.dtype} {list(values.shape)}")
    check_labels(y, (values.shape[0], *values.shape[2:]), values.shape[1], ignore_index)
    if kind == "probabilities" and not (values.min() >= 0 and values.max() <= 1 + 1e-6):
        raise ValueError("probabilities must lie in [0, 1]")
    return values, y
