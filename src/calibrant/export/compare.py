"""The check before anything is written: onnxruntime against the policy itself, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Precision, as_numpy, class_rows, is_half, precision_of
from calibrant.export.graph import OUTPUTS
from calibrant.export.runtime import Array
from calibrant.posthoc import NumpyOps
from calibrant.selective import Decision, Policy, decision

Bools = npt.NDArray[np.bool_]

CLOSE = 1e-5  # of probabilities, and of logits relative to the largest of their row
HALF_CLOSE = {"float16": 2.0**-7, "bfloat16": 2.0**-4}  # eight roundings: a network adds a few up
ROUNDING = 1e-12  # of float64 formulas that sum in another order


@dataclass(frozen=True)
class Found:
    """What a check saw: rows, how many accepted, the largest difference; and that of rows that rounding excuses."""

    rows: int
    accepted: int
    undecided: int
    difference: float
    blur: float


@dataclass(frozen=True)
class Rows:
    """Answers ``[n]``, probabilities ``[n, C]``: each position of a segmentation is a row."""

    label: Array
    confidence: Array
    accept: Array
    probabilities: Array

    @classmethod
    def of(cls, answers: Sequence[Any]) -> Rows:
        """Of what a graph gives, in the order of `OUTPUTS`."""
        label, confidence, accept, spread = map(np.asarray, answers)
        wide = np.moveaxis(spread, 1, -1).reshape(-1, spread.shape[1])
        return cls(label.reshape(-1), confidence.reshape(-1), accept.reshape(-1), wide)

    def off(self, other: Rows) -> tuple[Bools, npt.NDArray[np.float64]]:
        """Which rows differ from another's, and by how much the probabilities do."""
        gap = np.maximum(_gap(self.probabilities, other.probabilities).max(1), _gap(self.confidence, other.confidence))
        # Where logits are no numbers, nor is there a largest.
        label = (self.label != other.label) & ~np.isnan(self.confidence)
        return label | (self.accept != other.accept) | ~(gap <= CLOSE), gap


def _gap(a: Array, b: Array) -> npt.NDArray[np.float64]:
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))


class Comparison:
    """Batches of a graph's answers against the policy's own, added up.

    Args:
        policy: what the graph should do.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rows = self.accepted = self.undecided = self.wrong = 0
        self.difference, self.blur, self.first = 0.0, 0.0, ""

    def answers(self, logits: Array, group: Array | None) -> Rows:
        """The policy's answers to logits, in their precision or float32 for half of it."""
        found = self._decided(logits, group)
        precision = np.float64 if logits.dtype == np.float64 else np.float32
        confidence, probabilities = found.confidence[:, 0].astype(precision), found.probabilities.astype(precision)
        return Rows(found.label[:, 0], confidence, found.accept[:, 0], probabilities)

    def _decided(self, logits: Array, group: Array | None) -> Decision[Any]:
        rows = class_rows(logits.astype(np.float64))
        numbers = None if group is None else np.repeat(group.astype(np.float64), len(rows) // len(logits))[:, None]
        with np.errstate(all="ignore"):  # logits that are not finite are given on purpose
            return decision(self.policy, NumpyOps(), rows, numbers)

    def add(self, graph: Sequence[Array], logits: Any, group: Array | None, own: Callable[[], Array]) -> None:
        """Compare a batch.

        Args:
            graph: the graph's answers.
            logits: those that the policy answers, of any framework.
            group: ``[N]``, if the policy has groups.
            own: gives the graph's own logits in float64, which may differ by rounding.
        """
        reference = as_numpy("logits", logits)[0]
        ours, theirs = Rows.of(graph), self.answers(reference, group)
        off, gap = ours.off(theirs)
        if off.any():
            excused = off & self._rounded(own(), reference, precision_of(logits), ours, group)
            self.undecided += int(excused.sum())
            self.blur = max(self.blur, float(np.where(excused, gap, 0.0).max()))
            gap = np.where(excused, 0.0, gap)
            off &= ~excused
        if off.any() and not self.wrong:
            self.first = _told(ours, theirs, int(np.argmax(off)), self.rows)
        self.wrong += int(off.sum())
        self.rows += len(off)
        self.accepted += int(ours.accept.sum())
        worst = float(gap.max())
        self.difference = worst if np.isnan(worst) else max(self.difference, worst)

    def _rounded(self, own: Array, other: Array, precision: Precision, ours: Rows, group: Array | None) -> Bools:
        """Rows in which the two logits are the same but for rounding, and the graph's answer is that to its own."""
        a, b = (class_rows(z.astype(np.float64)) for z in (own, other))
        close = HALF_CLOSE[precision] if is_half(precision) else CLOSE
        same = _gap(a, b).max(1) <= close * np.maximum(1.0, np.abs(b).max(1))
        off = ours.off(self.answers(own, group))[0]
        return same & (~off | self._blurred(own, ours, group))

    def _blurred(self, z: Array, ours: Rows, group: Array | None) -> Bools:
        """Rows whose answer, by the policy itself, becomes the graph's when logits move by float64's rounding.

        Where a score is all but constant, moving the logits does not move it: there, rows count whose score meets the
        threshold but for rounding.
        """
        rng = np.random.default_rng(0)
        tied = self._ties(z, group)
        found = np.zeros(len(ours.label), dtype=bool)
        for _ in range(16):
            theirs = self.answers(z.astype(np.float64) * (1 + ROUNDING * rng.standard_normal(z.shape)), group)
            found |= ~ours.off(replace(theirs, accept=np.where(tied, ours.accept, theirs.accept)))[0]
        return found

    def _ties(self, z: Array, group: Array | None) -> Bools:
        """Rows whose score is the threshold but for rounding."""
        score = self._decided(z, group).score[:, 0]
        limits = np.array([*self.policy.limits, np.inf])
        places = np.zeros(len(z), dtype=int) if group is None else group
        limit = np.repeat(limits[np.where((places >= 0) & (places < len(limits)), places, -1)], len(score) // len(z))
        scale = ROUNDING * np.maximum(1.0, np.abs(np.where(np.isfinite(limit), limit, 0.0)))
        return _gap(score, limit) <= scale

    def result(self) -> Found:
        """What was seen; raises if the graph is wrong anywhere."""
        if self.wrong:
            raise ValueError(
                f"the graph does not do what the policy does in {self.wrong} of {self.rows} rows, so nothing was "
                f"written: {self.first}; the largest difference of probabilities is {self.difference:.3g}"
            )
        return Found(self.rows, self.accepted, self.undecided, self.difference, self.blur)


def _told(ours: Rows, theirs: Rows, row: int, before: int) -> str:
    parts = []
    for name in OUTPUTS[:3]:
        a, b = getattr(ours, name)[row].item(), getattr(theirs, name)[row].item()
        parts.append(f"{name} {a:.7g} instead of {b:.7g}" if isinstance(a, float) else f"{name} {a} instead of {b}")
    return f"row {before + row} has " + ", ".join(parts)
