"""How finely probabilities were written: decimal places, exact zeros and ones; and what replaces a zero in a logarithm.

Files of probabilities are often rounded, and forests give exact zeros. Of a zero it is only known that it is below what
the file could show: half of its last decimal place, or, where nothing was rounded, the least probability above 0 in the
file, and what its number of samples can tell from 0, one in twice as many. The classes of a sample other than the
predicted one share that, so that zeros never add more to a row than the file could have hidden in one number.
"""

from __future__ import annotations

import numpy as np

from calibrant._arrays import Array

FLOOR = 1e-30  # of probabilities, whose logarithms serve as logits, where none is 0 and none was rounded
MOST_PLACES = {2: 2, 4: 5, 8: 6}  # decimal places that rounding shows in, by the bytes of a number
FIRST = 1 << 12  # numbers that are looked at first


class Digits:
    """How probabilities ``[N, C, ...]`` were written, collected in a pass over them.

    Attributes:
        classes: C.
        values: how many probabilities there are.
        zeros: how many of them are exactly 0.
        ones: how many are exactly 1.
        least: the smallest above 0.
        places: decimal places that represent every probability, 0 if all are 0 or 1; None if a few are not enough.
    """

    def __init__(self, classes: int) -> None:
        self.classes, self.values, self.zeros, self.ones = classes, 0, 0, 0
        self.least = 1.0
        self.places: int | None = 0

    def add(self, probabilities: Array) -> None:
        """Take some more probabilities into account."""
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
    """The fewest decimal places, at least ``least``, that represent all probabilities; None if a few are not enough."""
    values = probabilities.astype(np.float64)
    error = 4 * float(np.finfo(probabilities.dtype).eps)
    for places in range(least, MOST_PLACES[probabilities.itemsize] + 1):
        scaled = values * 10.0**places
        nearest = np.rint(scaled)
        # What rounds to 0 is 0 itself: the tiny probabilities of a sure model were not rounded.
        off = np.where(nearest == 0, values, np.abs(scaled - nearest) * 10.0**-places)
        if not (off > np.where(nearest == 0, 0.0, error)).any():
            return places
    return None


def log_probabilities(probabilities: Array, floor: float = FLOOR) -> Array:
    """Probabilities as logits, float64: their logarithms, with values below ``floor`` raised to it."""
    return np.log(np.maximum(probabilities.astype(np.float64), floor))
