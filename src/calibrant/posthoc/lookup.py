r"""What isotonic regression and histogram binning share: probabilities looked up in tables, and made logits again.

A table f maps a probability to the share that came true. With p the softmax of the logits and :math:`\varepsilon` =
1e-6:

- ``"one-vs-rest"`` (default) [Guo2017, Sec. 4.2; Zadrozny2002]: each class k has its own table, :math:`q_k \propto
  f_k(p_k) + \varepsilon p_k`. It changes predictions, and with few samples of a class it overfits.
- ``"top-label"``: one table for the confidence c, the largest probability; the new confidence is
  :math:`c' = (f(c) + \varepsilon c) / (1 + \varepsilon)`, but never below 1/K, where a largest probability cannot be.
  The other classes share 1 - c' in proportion to their p. Where the second would then overtake the first, the rest is
  mixed with as much of a uniform one as keeps it just below: the predicted class stays and has confidence c'.

:math:`\varepsilon` settles what the papers leave open. A class whose share is 0 keeps :math:`\varepsilon p_k`, so that
no logarithm is infinite; a row in which every share is 0 keeps its own p; classes of equal shares keep their order.
Probabilities below 1e-300 count as that. The result is log q.

Fitting holds the probabilities of all samples for as many classes as fit in 128 MB, with a pass for each such lot.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Array
from calibrant.posthoc.base import Calibrator, Doubles, Stream, read_numbers
from calibrant.posthoc.ops import NumpyOps, Ops, softmax

V = TypeVar("V")
Bools = npt.NDArray[np.bool_]
Mode = Literal["one-vs-rest", "top-label"]
MODES = get_args(Mode)

EPSILON = 1e-6
LEAST = 1e-300
AHEAD = 2e-6  # by how much, relative, the predicted class stays ahead: float32 logits still tell them apart
BUDGET = 2**27  # bytes of probabilities held at a time


class Tabular(Calibrator):
    """A calibrator that looks probabilities up, in a table for each class or in one for the confidence.

    Attributes:
        shares_: the values of each table, ``[D, M]``; D is C, or 1 for top-label.
    """

    mode: Mode
    shares_: Doubles

    @property
    def keeps_order(self) -> bool:
        """With one table for the confidence, not with one for each class."""
        return len(self.shares_) == 1

    @abstractmethod
    def _look_up(self, ops: Ops[V], p: V) -> V:
        """The share that belongs to each probability; ``[n, D]`` with D tables."""

    @abstractmethod
    def _check_table(self, ends: Doubles, shares: Doubles) -> None:
        """Raise if a table from a file does not rise as it must."""

    def apply(self, ops: Ops[V], z: V) -> V:
        """Logarithms of the calibrated probabilities."""
        q = self._top_label(ops, z) if self.keeps_order else self._one_vs_rest(ops, z)
        return ops.log(ops.maximum(q, ops.constant(LEAST)))

    def _one_vs_rest(self, ops: Ops[V], z: V) -> V:
        p = softmax(ops, z)
        q = ops.add(self._look_up(ops, p), ops.mul(p, ops.constant(EPSILON)))
        return ops.div(q, ops.total(q))

    def _top_label(self, ops: Ops[V], z: V) -> V:
        one, zero, classes = ops.constant(1.0), ops.constant(0.0), self.n_classes_
        c = ops.largest(softmax(ops, z))
        c = ops.div(ops.add(self._look_up(ops, c), ops.mul(c, ops.constant(EPSILON))), ops.constant(1 + EPSILON))
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

    def _set_tables(self, tables: Sequence[tuple[Doubles, Doubles]]) -> None:
        """Ends and shares of different lengths as two arrays, filled up with infinity and with the last share."""
        missing = [(0, max(len(ends) for ends, _ in tables) - len(ends)) for ends, _ in tables]
        pairs = list(zip(tables, missing, strict=True))
        ends = np.array([np.pad(ends, pad, constant_values=np.inf) for (ends, _), pad in pairs])
        self.shares_ = np.array([np.pad(shares, pad, mode="edge") for (_, shares), pad in pairs])
        setattr(self, self.learned, ends)

    def _state(self) -> dict[str, Any]:
        """All tables one after the other, and how long each is."""
        ends = getattr(self, self.learned)
        inside = np.isfinite(ends)
        lists = {self.learned.rstrip("_"): ends[inside].tolist(), "shares": self.shares_[inside].tolist()}
        return {"lengths": inside.sum(1).tolist(), **lists}

    def _restore(self, state: Mapping[str, Any], num_classes: int) -> None:
        lengths = read_numbers(state, "lengths", (None,))
        if len(lengths) not in (1, num_classes) or (lengths < 1).any() or (lengths % 1 != 0).any():
            raise ValueError(f"lengths must be whole numbers from 1 on, one or {num_classes} of them")
        stops, columns = np.cumsum(lengths), []
        for key in (self.learned.rstrip("_"), "shares"):
            flat = read_numbers(state, key, (None,))
            if len(flat) != stops[-1]:
                raise ValueError(f"{key} must have {stops[-1]:.0f} numbers as lengths say, got {len(flat)}")
            columns.append(np.split(flat, stops[:-1].astype(np.int64)))
        tables = list(zip(*columns, strict=True))
        for ends, shares in tables:
            self._check_table(ends, shares)
        self._set_tables(tables)


def probabilities(z: Array) -> Doubles:
    """The softmax as `Tabular.apply` has it, to the last bit: samples are looked up where they were counted."""
    return softmax(NumpyOps(), z.astype(np.float64))


def columns(data: Stream, mode: Mode) -> Iterator[tuple[Doubles, Bools]]:
    """For each table in turn the probabilities it is fitted on, ``[N]``, and whether each came true.

    Classes go in blocks, with one pass for each, so that no more than `BUDGET` bytes are held.
    """
    if mode == "top-label":
        pairs = [(probabilities(z).max(1), z.argmax(1) == y) for z, y in data]
        yield np.concatenate([p for p, _ in pairs]), np.concatenate([hit for _, hit in pairs])
        return
    rows = sum(len(y) for _, y in data)
    size = max(1, min(data.num_classes, BUDGET // (9 * rows)))
    for start in range(0, data.num_classes, size):
        stop = min(start + size, data.num_classes)
        block, labels, row = np.empty((stop - start, rows)), np.empty(rows, dtype=np.int64), 0
        for z, y in data:
            block[:, row : row + len(y)] = probabilities(z)[:, start:stop].T
            labels[row : row + len(y)] = y
            row += len(y)
        for k in range(start, stop):
            yield block[k - start], labels == k
