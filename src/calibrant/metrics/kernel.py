r"""Reductions over the classes: what each row of logits or probabilities contributes, in one trip through the cache.

Per row z of C numbers with label y: the largest m and the first class that has it; of logits
:math:`\sum_j e^{z_j - m}`, :math:`\sum_j e^{2(z_j - m)}` and :math:`z_y - m`; of probabilities the sum, the sum of
squares and the value at y. `define` says so in NumPy, and is what small inputs use; large ones go through the same
formula compiled by Numba (`_compiled`), on as many threads as there are cores. The compiled code is kept on disk.

The largest exponential is exactly 1. The compiled pass takes those of float32 logits in float32, and once more in
float64 where one class holds nearly everything (a sum below `SATURATED`), so that confidences are ranked down to 2e-16
from 1.

The compiled exponential is the polynomial of Cephes' expf and a Taylor series in float64, written out because a call
per number is not vectorised: with x = f log 2 + r, f whole and |r| at most log(2)/2, it is 2^f times a polynomial in r.
Its relative error is below 3e-7 in float32 and 1e-15 in float64; exponentials below e^-87 (e^-708) count as that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._arrays import CHUNK, Array, row_slices, threads

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SATURATED = 1.0 + 2.0**-7
LARGE = 1 << 21  # numbers of a batch, from which on loading what was compiled pays


class Reduced(NamedTuple):
    """One number per row, float64 but where said.

    Attributes:
        top: the largest value.
        at_label: the label's logit minus the largest, or the label's probability.
        total: the sum of exponentials relative to the largest logit, or of probabilities.
        squares: the sum of their squares.
        predicted: the first class that has the largest value, int64.
    """

    top: Doubles
    at_label: Doubles
    total: Doubles
    squares: Doubles
    predicted: Ints


def reduce_rows(values: Array, labels: Ints, kind: str, *, large: bool) -> Reduced:
    """Reduce ``[n, C]`` values of any floating-point type, with labels ``[n]`` in 0..C-1.

    Args:
        values: logits or probabilities.
        labels: of each row.
        kind: what the values are.
        large: whether there are so many of them, in this and other calls, that the compiled pass pays.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    count, classes = values.shape
    top, at_label, total, squares = np.empty((4, count))
    columns = Reduced(top, at_label, total, squares, np.empty(count, np.int64))
    reduce = _compiled(kind) if large else None

    def fill(rows: slice) -> None:
        part = np.ascontiguousarray(
            values[rows], dtype=None if values.dtype in (np.float32, np.float64) else np.float32
        )
        if reduce is None:
            parts: Any = define(part, labels[rows], kind)
            for column, numbers in zip(columns, parts, strict=True):
                column[rows] = numbers
        elif not reduce(part, part.view(f"i{part.itemsize}"), labels[rows], *(column[rows] for column in columns)):
            raise ValueError(f"{kind} must be finite, got NaN or infinity")

    if reduce is None:
        for rows in row_slices(count, classes):
            fill(rows)
    else:
        with ThreadPoolExecutor(threads()) as pool:
            list(pool.map(fill, row_slices(count, classes, CHUNK // 4)))
    return columns


def define(z: Array, labels: Ints, kind: str) -> Reduced:
    """The definition of what a row contributes, for float32 or float64 ``[n, C]``."""
    if not np.isfinite(z).all():
        raise ValueError(f"{kind} must be finite, got NaN or infinity")
    predicted = z.argmax(1)
    rows = np.arange(len(z))
    top, at_label = (z[rows, classes].astype(np.float64) for classes in (predicted, labels))
    if kind == "probabilities":
        p = z.astype(np.float64)
        return Reduced(top, at_label, p.sum(1), np.square(p).sum(1), predicted)
    exps = np.exp(z - top[:, None])
    return Reduced(top, at_label - top, exps.sum(1), np.square(exps).sum(1), predicted)


@functools.cache
def _compiled(kind: str) -> Callable[..., bool]:
    """The compiled reduction of logits or of probabilities; imports Numba."""
    from calibrant.metrics import _compiled as compiled

    reduce: Callable[..., bool] = compiled.reduce_logits if kind == "logits" else compiled.reduce_probabilities
    return reduce
