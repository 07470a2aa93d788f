r"""Histogram binning [Zadrozny2001; Guo2017, Sec. 4.1]: a probability becomes the share that came true in its bin.

.. math:: f(p) = \frac{\sum_{n \in B(p)} [y_n = k]}{|B(p)|}

=============  ==============================================
paper letter   variable
=============  ==============================================
M              ``bins``
a_m            ``edges_``
theta_m        ``shares_``
=============  ==============================================

Bins are open below and closed above, (lo, hi], as in the ECE; 0 is in the first. ``binning="width"`` has edges at
m / M; an empty bin's share is its middle. ``binning="mass"`` has equally many samples in each bin as far as can be: its
edges lie halfway between samples, equal probabilities are never parted, and bins that would be empty are left out.

[Zadrozny2001] has 10 bins of equal mass, [Guo2017] chooses; the default, 15 of equal width, is the ECE's.
``mode="one-vs-rest"`` (default) bins every class and normalises [Guo2017, Sec. 4.2]; ``mode="top-label"`` bins the
confidence alone and keeps every prediction. `calibrant.posthoc.tables` says how shares become logits, also where they
are 0.

Equal width takes one pass and no memory; equal mass that of isotonic regression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from calibrant._validation import MOST_BINS, whole
from calibrant.posthoc.ops import Ops
from calibrant.posthoc.stream import Stream
from calibrant.posthoc.tables import Doubles, Mode, Tabular, check_shares, columns, padded, probabilities, ragged

V = TypeVar("V")


class HistogramBinning(Tabular):
    """The share that came true, in bins of each class's probability or of the confidence.

    Args:
        bins: how many.
        binning: ``"width"`` for bins of equal width, ``"mass"`` for bins of equally many samples.
        mode: ``"one-vs-rest"`` for bins of each class, ``"top-label"`` for those of the confidence.

    Attributes:
        edges_: upper ends of the bins, ``[D, M]``, the last 1 and infinity after it; D is C, or 1 for top-label.
        shares_: what came true in each bin, ``[D, M]``.
        passes_: how many passes over the logits it took.

    Example:
        >>> import torch
        >>> from calibrant.posthoc import HistogramBinning
        >>> z = torch.tensor([[3.0, 0.0], [2.0, 0.0], [2.5, 0.0], [0.0, 0.2]])
        >>> binning = HistogramBinning(bins=2, mode="top-label").fit(z, torch.tensor([0, 1, 0, 1]))
        >>> binning.edges_, binning.shares_
        (array([[0.5, 1. ]]), array([[0.25, 0.75]]))
        >>> binning.predict_proba(z)[:, 0]
        tensor([0.7500, 0.7500, 0.7500, 0.2500])
    """

    name = "histogram"
    learned = "edges_"

    edges_: Doubles
    shares_: Doubles
    passes_: int

    def __init__(
        self, bins: int = 15, *, binning: Literal["width", "mass"] = "width", mode: Mode = "one-vs-rest"
    ) -> None:
        self.bins = bins
        self.binning = binning
        self.mode = mode

    def _fit(self, data: Stream) -> None:
        bins = whole("bins", self.bins, 1, MOST_BINS)
        self._check_mode()
        if self.binning not in ("width", "mass"):
            raise ValueError(f"binning must be 'width' or 'mass', got {self.binning!r}")
        if self.binning == "width":
            edges = np.arange(1, bins + 1) / bins
            shares = _shares(data, edges, self.mode)
            self.edges_, self.shares_ = np.tile(edges, (len(shares), 1)), shares
        else:
            found = [_equal_mass(p, hit, bins) for p, hit in columns(data, self.mode)]
            self._take([edges for edges, _ in found], [shares for _, shares in found])
        self.passes_ = data.passes

    def _take(self, edges: list[Doubles], shares: list[Doubles]) -> None:
        self.edges_, self.shares_ = padded(edges, np.inf), padded(shares, np.nan)

    def _tables(self) -> int:
        return len(self.edges_)

    def _looked_up(self, ops: Ops[V], p: V) -> V:
        # A knot is reached when p equals it, but an edge still belongs to the bin below. The last edge bounds nothing:
        # probabilities may round to above 1.
        knots = np.where(self.edges_ < 1, np.nextafter(self.edges_, np.inf), np.inf)
        return ops.lookup(p, knots, np.concatenate([self.shares_, self.shares_[:, -1:]], 1))

    def state(self) -> dict[str, Any]:
        """The bins, all tables one after the other, and how many each has."""
        self._check_fitted(self.learned)
        inside = np.isfinite(self.edges_)
        lengths = inside.sum(1).tolist()
        return {"lengths": lengths, "edges": self.edges_[inside].tolist(), "shares": self.shares_[inside].tolist()}

    def restore(self, state: Mapping[str, Any], num_classes: int) -> None:
        """Take over the bins."""
        edges, shares = ragged(state, num_classes, "edges", "shares")
        if any((np.diff(row) <= 0).any() or row[0] < 0 or row[-1] != 1 for row in edges):
            raise ValueError("edges must rise from 0 or more to 1 in every table")
        check_shares("shares", shares)
        self._take(edges, shares)
        self.n_classes_ = num_classes


def _shares(data: Stream, edges: Doubles, mode: Mode) -> Doubles:
    """What came true in bins with the same edges for all, ``[D, M]``, in one pass."""
    bins, tables = len(edges), 1 if mode == "top-label" else data.num_classes
    counts, hits = np.zeros((2, tables * bins))
    for z, y in data:
        p = probabilities(z)
        if tables == 1:
            p, right = p.max(1, keepdims=True), np.flatnonzero(z.argmax(1) == y)
            table = np.zeros_like(right)
        else:
            right, table = np.arange(len(y)), y
        # Places of the flattened tables; of bins (lo, hi] an edge belongs to the one below.
        place = np.searchsorted(edges[:-1], p) + bins * np.arange(tables)
        counts += np.bincount(place.reshape(-1), minlength=len(counts))
        hits += np.bincount(place[right, table], minlength=len(hits))
    middles = np.tile(edges - 0.5 / bins, tables)
    return np.where(counts > 0, hits / np.maximum(counts, 1), middles).reshape(tables, bins)


def _equal_mass(p: Doubles, hit: npt.NDArray[np.bool_], bins: int) -> tuple[Doubles, Doubles]:
    """Upper ends and shares of bins with as equal counts as ties allow."""
    order = np.argsort(p, kind="stable")
    x = np.minimum(p[order], 1.0)
    last = -(-len(x) * np.arange(1, bins + 1) // bins) - 1  # the m-th bin ends with the ceil(m N / M)-th sample
    ends = np.unique(x[last[last >= 0]])  # the largest in each bin
    place = np.searchsorted(ends, x)
    after = x[np.minimum(np.searchsorted(x, ends, side="right"), len(x) - 1)]
    edges = (ends + after) / 2
    shares = np.bincount(place, hit[order], len(edges)) / np.bincount(place, minlength=len(edges))
    edges[-1] = 1.0
    return edges, shares
