r"""What isotonic regression and histogram binning share: probabilities looked up in tables, and made logits again.

A table f maps a probability to an observed share. With p the softmax of the logits and :math:`\varepsilon` = 1e-6:

- ``"one-vs-rest"``: each class k has its own table, :math:`q_k \propto f_k(p_k) + \varepsilon p_k`.
- ``"top-label"``: one table for the confidence c, the largest probability; the new confidence is
  :math:`c' = (f(c) + \varepsilon c) / (1 + \varepsilon)`, but never below 1/K, where a largest probability cannot be.
  The other classes share 1 - c' in proportion to their p. Where the second would then overtake the first, the rest is
  mixed with as much of a uniform one as keeps it just below: the predicted class stays and has confidence c'.

:math:`\varepsilon` settles what the papers leave open. A class whose share is 0 keeps :math:`\varepsilon p_k`, so that
no logarithm is infinite; a row in which every share is 0 keeps its own p; classes of equal shares keep their order.
Probabilities below 1e-300 count as that. The result is log q.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant.posthoc.base import Calibrator, numbers
from calibrant.posthoc.ops import NumpyOps, Ops, softmax
from calibrant.posthoc.stream import Stream

V = TypeVar("V")
Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
Mode = Literal["one-vs-rest", "top-label"]

EPSILON = 1e-6
LEAST = 1e-300
AHEAD = 2e-6  # by how much, relative, the predicted class stays ahead: float32 logits still tell them apart
BUDGET = 2**27  # bytes of probabilities held at a time


class Tabular(Calibrator):
    """A calibrator that looks probabilities up, one table for each class or one for the confidence."""

    mode: Mode

    @property
    def keeps_order(self) -> bool:
        """With one table for the confidence, not with one for each class."""
        return self._tables() == 1

    @abstractmethod
    def _looked_up(self, ops: Ops[V], p: V) -> V:
        """The share that belongs to each probability; ``[n, D]`` with D tables."""

    @abstractmethod
    def _tables(self) -> int:
        """D: 1 for the confidence alone, or the number of classes."""

    def _check_mode(self) -> None:
        if self.mode not in ("one-vs-rest", "top-label"):
            raise ValueError(f"mode must be 'one-vs-rest' or 'top-label', got {self.mode!r}")

    def apply(self, ops: Ops[V], z: V) -> V:
        """Logarithms of the calibrated probabilities."""
        q = self._top_label(ops, z) if self._tables() == 1 else self._one_vs_rest(ops, z)
        return ops.log(ops.maximum(q, ops.constant(LEAST)))

    def _one_vs_rest(self, ops: Ops[V], z: V) -> V:
        p = softmax(ops, z)
        q = ops.add(self._looked_up(ops, p), ops.mul(p, ops.constant(EPSILON)))
        return ops.div(q, ops.total(q))

    def _top_label(self, ops: Ops[V], z: V) -> V:
        one, zero, classes = ops.constant(1.0), ops.constant(0.0), self.n_classes_
        c = ops.largest(softmax(ops, z))
        c = ops.div(ops.add(self._looked_up(ops, c), ops.mul(c, ops.constant(EPSILON))), ops.constant(1 + EPSILON))
        c = ops.maximum(c, ops.constant((1 + 2 * AHEAD) / classes))
        rest = ops.sub(one, c)
        # How the others share the rest, from their own logits: exact where the first one's probability rounds to 1.
        first = ops.predicted(z)
        second = ops.columns(ops.top(z, 2), 1, 2)
        shares = ops.where(first, zero, ops.exp(ops.where(first, zero, ops.sub(z, second))))
        shares = ops.div(shares, ops.total(shares))
        # Mixed with t of a uniform share, the second's is c / (1 + AHEAD): t between 0 and 1 as c is above 1/K.
        most, even = ops.largest(shares), ops.constant(1 / (classes - 1))
        allowed = ops.div(ops.div(c, ops.constant(1 + AHEAD)), ops.maximum(rest, ops.constant(LEAST)))
        over = ops.maximum(ops.sub(most, allowed), zero)
        t = ops.div(over, ops.maximum(ops.sub(most, even), ops.maximum(over, ops.constant(LEAST))))
        shares = ops.add(ops.mul(shares, ops.sub(one, t)), ops.mul(t, even))
        return ops.where(first, c, ops.mul(rest, shares))


def probabilities(z: Array) -> Doubles:
    """The softmax as `Tabular.apply` has it, to the last bit: samples are looked up where they were counted."""
    return softmax(NumpyOps(), z.astype(np.float64))


def columns(data: Stream, mode: Mode) -> Iterator[tuple[Doubles, npt.NDArray[np.bool_]]]:
    """For each table in turn the probabilities it is fitted on, ``[N]``, and whether each came true.

    Classes go in blocks, with one pass for each, so that no more than `BUDGET` bytes are held.
    """
    if mode == "top-label":
        found = [_confidence(z, y) for z, y in data]
        yield np.concatenate([p for p, _ in found]), np.concatenate([hit for _, hit in found])
        return
    rows = sum(len(y) for _, y in data)
    size = max(1, min(data.num_classes, BUDGET // (9 * rows)))
    for start in range(0, data.num_classes, size):
        stop = min(start + size, data.num_classes)
        block = np.empty((stop - start, rows))
        labels, at = np.empty(rows, dtype=np.int64), 0
        for z, y in data:
            block[:, at : at + len(y)] = probabilities(z)[:, start:stop].T
            labels[at : at + len(y)] = y
            at += len(y)
        for k in range(start, stop):
            yield block[k - start], labels == k


def _confidence(z: Array, y: Array) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    # The predicted class is the first of the largest logits, as it is everywhere.
    return probabilities(z).max(1), z.argmax(1) == y


def padded(rows: Sequence[npt.ArrayLike], fill: float) -> Doubles:
    """Rows of different lengths as one array, filled up at the end with a number, or with their last if it is NaN."""
    arrays = [np.asarray(row, dtype=np.float64) for row in rows]
    found = np.full((len(arrays), max(len(row) for row in arrays)), fill)
    for i, row in enumerate(arrays):
        found[i, : len(row)] = row
        if np.isnan(fill):
            found[i, len(row) :] = row[-1]
    return found


def ragged(state: Mapping[str, Any], num_classes: int, *keys: str) -> list[list[Doubles]]:
    """Rows out of a `state` that holds their ``lengths`` and, under each key, all of them one after the other."""
    lengths = numbers(state, "lengths", (None,))
    if len(lengths) not in (1, num_classes) or (lengths < 1).any() or (lengths % 1 != 0).any():
        raise ValueError(f"lengths must be whole numbers from 1 on, one or {num_classes} of them")
    ends = np.cumsum(lengths)
    found = []
    for key in keys:
        flat = numbers(state, key, (None,))
        if len(flat) != ends[-1]:
            raise ValueError(f"{key} must have {ends[-1]:.0f} numbers as lengths say, got {len(flat)}")
        found.append(np.split(flat, ends[:-1].astype(np.int64)))
    return found


def check_shares(key: str, rows: list[Doubles], *, rising: bool = False) -> None:
    """Raise if a row leaves [0, 1], or falls where it must not."""
    for row in rows:
        if row.min() < 0 or row.max() > 1 or (rising and (np.diff(row) < 0).any()):
            raise ValueError(f"{key} must lie in [0, 1]{' and not fall' if rising else ''}")
