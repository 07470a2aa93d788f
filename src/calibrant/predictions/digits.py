"""Rounding of probabilities: decimal places, exact zeros and ones; and what replaces a zero in a logarithm.

Probabilities in files are often rounded, and forests give exact zeros. A zero only means a probability below what the
file can represent: half of its last decimal place or, if nothing was rounded, the smallest probability above 0 in the
file, at most one in twice the number of samples. The classes of a sample other than the predicted one share that bound,
so that zeros never add more to a row than the file could have hidden in one number.
"""

from __future__ import annotations

import numpy as np

from calibrant._arrays import Array

FLOOR = 1e-30  # of probabilities, whose logarithms serve as logits, where none is 0 and none was rounded
MOST_PLACES = {2: 2, 4: 5, 8: 6}  # decimal places that rounding shows in, by the bytes of a number
FIRST = 1 << 12  # numbers that are checked first


class Digits:
    """The rounding of probabilities ``[N, C, ...]``, collected in a pass over them.

    Attributes:
        classes: C.
        values: the number of probabilities.
        zeros: the number of exact zeros.
        ones: the number of exact ones.
        least: the smallest probability above 0.
        places: decimal places that represent every probability, 0 if all are 0 or 1; None if `MOST_PLACES` do not
            suffice.
    """

    def __init__(self, classes: int) -> None:
        self.classes, self.values, self.zeros, self.ones = classes, 0, 0, 0
        self.least = 1.0
        self.places: int | None = 0

    def add(self, probabilities: Array) -> None:
        """Count further probabilities."""
        self.values += probabilities.size
        low = float(probabilities.min())
        if low <= 0:
            self.zeros += int(np.count_nonzero(probabilities == 0))
            low = float(probabilities.min(where=probabilities > 0, initial=1.0))
        self.least = min(self.least, low)
        if probabilities.max() >= 1:
            self.ones += int(np.count_nonzero(probabilities == 1))
        for part in (probabilities.reshape(-1)[:FIRST], probabilities):
            if self.places is not None:
                self.places = decimal_places(part, self.places)

    def absorb(self, other: Digits) -> None:
        """Merge the counts of another object into this one."""
        self.values += other.values
        self.zeros += other.zeros
        self.ones += other.ones
        self.least = min(self.least, other.least)
        self.places = None if None in (self.places, other.places) else max(self.places or 0, other.places or 0)

    @property
    def samples(self) -> int:
        """The number of samples, or pixels."""
        return self.values // max(1, self.classes)

    @property
    def matter(self) -> bool:
        """Whether probabilities were rounded, or some are 0."""
        return self.places is not None or self.zeros > 0

    @property
    def hidden(self) -> float:
        """The threshold below which a probability may have been written as 0."""
        return 0.5 * 10.0**-self.places if self.places else min(self.least, 0.5 / max(1, self.samples))

    @property
    def floor(self) -> float:
        """The smallest probability that a logarithm is taken of; smaller ones count as this."""
        return max(FLOOR, self.hidden / max(1, self.classes - 1)) if self.matter and self.values else FLOOR


def decimal_places(probabilities: Array, least: int) -> int | None:
    """The fewest decimal places, at least ``least``, that represent all probabilities; None if there are more."""
    values = probabilities.astype(np.float64)
    error = 4 * float(np.finfo(probabilities.dtype).eps)
    for places in range(least, MOST_PLACES[probabilities.itemsize] + 1):
        scaled = values * 10.0**places
        nearest = np.rint(scaled)
        # Only 0 itself may round to 0: the tiny probabilities of a confident model were not rounded.
        off = np.where(nearest == 0, values, np.abs(scaled - nearest) * 10.0**-places)
        if not (off > np.where(nearest == 0, 0.0, error)).any():
            return places
    return None


def log_probabilities(probabilities: Array, floor: float = FLOOR) -> Array:
    """Probabilities as logits, float64: their logarithms, with values below ``floor`` raised to it."""
    return np.log(np.maximum(probabilities.astype(np.float64), floor))
