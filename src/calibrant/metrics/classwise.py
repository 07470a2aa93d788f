r"""Class-wise calibration: the probability of every class against how often the class occurs, over all samples.

.. math:: \frac1C \sum_k \sum_b \frac{|B_{kb}|}{N} \bigl| \overline{p_k}(B_{kb}) - \overline{[y = k]}(B_{kb}) \bigr|

with the bins of `ece`, on p_k ([Kull2019]; [Nixon2019] calls it static calibration error).

Nearly all probabilities of a sample lie in the lowest bin. Only those above its edge, fewer than there are bins, are
binned one by one; the lowest bin is what remains of the class's total.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.base.arrays import Array, Doubles, Precision
from calibrant.base.checks import Ints
from calibrant.metrics.calibration import bin_edges, find_bins

#: Below the lowest edge by this much, relatively, float32 may have rounded a probability that lies above it.
SLACK = 1e-6


class ClasswiseSums:
    """The sums behind class-wise ECE: for each class, over the bins of its probability; they add up.

    `calibrant.metrics.kernel` hands over the rows on its way (`add`).

    Args:
        classes: number of classes.
        bins: how many, of equal width.
        precision: of given probabilities, to which the edges of the bins are rounded.
    """

    def __init__(self, classes: int, bins: int, precision: Precision = "float64") -> None:
        self.classes, self.bins, self.edges = classes, bins, bin_edges(bins, precision)
        self.samples = 0
        self.size = self.squares = 0.0  # sums of the weights and of their squares
        self.total = np.zeros(classes)
        self.sums, self.counts, self.hits = np.zeros((3, classes * bins))

    def empty(self) -> ClasswiseSums:
        """The same without samples."""
        other = ClasswiseSums.__new__(ClasswiseSums)
        other.__dict__ |= vars(self) | {"samples": 0, "size": 0.0, "squares": 0.0}
        other.total, (other.sums, other.counts, other.hits) = np.zeros(self.classes), np.zeros((3, len(self.sums)))
        return other

    def absorb(self, other: ClasswiseSums) -> None:
        """Add the samples of another part."""
        self.samples += other.samples
        self.size += other.size
        self.squares += other.squares
        for name in ("total", "sums", "counts", "hits"):
            table = getattr(self, name)
            table += getattr(other, name)

    def add(self, shares: Array, total: Doubles | None, labels: Ints, axis: int, weight: Doubles | None) -> None:
        """Add rows: ``shares`` are probabilities, or exponentials of logits, ``total`` together in each row."""
        rows, flat = np.arange(len(labels)), shares.reshape(-1)
        scale = np.ones(len(labels)) if total is None else 1 / total
        if weight is not None:
            scale = scale * weight
        # Sums over rows of float32 shares are float32 within a chunk, and float64 from there on.
        scale = scale.astype(shares.dtype)
        self.total += np.einsum("ij,j->i" if axis == 0 else "ij,i->j", shares, scale)
        if self.bins > 1:
            edge = self.edges[1] * (1 - SLACK)
            edges = np.expand_dims(np.full(len(labels), edge) if total is None else edge * total, axis)
            index = np.flatnonzero(shares > edges.astype(shares.dtype))
            row, column = np.divmod(index, self.classes) if axis else np.divmod(index, len(labels))[::-1]
            self._bin(_probabilities(flat[index], total, row), row, column, weight)
        at_label = labels * len(rows) + rows if axis == 0 else rows * self.classes + labels
        bins = find_bins(_probabilities(flat[at_label], total, rows), self.edges)
        self.hits += np.bincount(labels * self.bins + bins, weight, minlength=len(self.hits))
        self.samples += len(labels)
        self.size += len(labels) if weight is None else float(weight.sum())
        self.squares += len(labels) if weight is None else float(weight @ weight)

    def _bin(self, share: Doubles, row: Ints, column: Ints, weight: Doubles | None) -> None:
        """Count and sum probabilities above the lowest bin."""
        is_above = share > self.edges[1]
        if not is_above.all():
            share, row, column = share[is_above], row[is_above], column[is_above]
        code = column * self.bins + find_bins(share, self.edges)
        weights = None if weight is None else weight[row]
        self.counts += np.bincount(code, weights, minlength=len(self.counts))
        self.sums += np.bincount(code, share if weights is None else share * weights, minlength=len(self.sums))

    def by_class(self) -> Doubles:
        """Class-wise ECE of each class, ``[C]``."""
        sums, _, hits = self.tables()
        errors: Doubles = np.abs(sums - hits).sum(1) / max(1, self.samples)
        return errors

    def tables(self) -> tuple[Doubles, Doubles, Doubles]:
        """Sums of probability, counts, and samples of the class, ``[C, bins]``, with weights of mean 1."""
        scale = self.samples / self.size if self.size else 1.0
        sums, counts, hits = (part.reshape(-1, self.bins) * scale for part in (self.sums, self.counts, self.hits))
        sums[:, 0] = np.maximum(self.total * scale - sums[:, 1:].sum(1), 0.0)
        counts[:, 0] = self.samples - counts[:, 1:].sum(1)
        return sums, counts, hits

    @property
    def effective(self) -> float:
        """The share of the samples that equally weighted ones would have to be for means as certain as these."""
        return float(self.size**2 / self.squares / self.samples) if self.squares else 1.0

    def replicates(self, rng: np.random.Generator, number: int) -> tuple[Doubles, Doubles]:
        """Bootstrap replicates of the mean over classes minus its value, and values of a perfectly calibrated model.

        In each class and bin, the counts of samples of the class and of others are drawn as Poisson numbers, each with
        the bin's mean probability. That classes share their samples is neglected.
        """
        sums, counts, hits = (part.ravel() * self.effective for part in self.tables())
        filled = counts > 0
        n, hit, p = counts[filled], hits[filled], sums[filled] / counts[filled]
        whole, share = np.rint(n).astype(np.int64), np.clip(p, 0, 1)
        resampled, null = np.empty(number), np.empty(number)
        for i in range(number):
            positive, negative = rng.poisson(hit), rng.poisson(np.maximum(n - hit, 0))
            resampled[i] = np.abs((positive + negative) * p - positive).sum()
            null[i] = np.abs(n * p - rng.binomial(whole, share)).sum()
        scale = max(1.0, self.samples * self.effective) * self.classes
        return (resampled - np.abs(n * p - hit).sum()) / scale, null / scale


def _probabilities(shares: Array, total: Doubles | None, row: Any) -> Doubles:
    """Probabilities ``[n]`` of one share of each of some rows."""
    numbers = shares.astype(np.float64)
    return numbers if total is None else numbers / total[row]
