"""The formulas of `kernel`, compiled; importing this imports Numba. Each runs without the interpreter's lock.

``bits`` is the same memory as whole numbers: a value is finite if its exponent's bits are not all ones, and comparing
whole numbers is faster than looking for NaN. The rest of a loop may then assume finite numbers.

Rows of few classes are turned first, a hundred at a time, so that the loops run along rows and fill the processor's
vectors; rows of many classes fill them by themselves.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from calibrant._numba import FAST, F, bits_of_float64, exp32, exp64
from calibrant.metrics import grid
from calibrant.metrics.kernel import SATURATED

_RUN = 64  # float32 numbers that are added up before their sum goes into a float64
_FEW = 48  # classes up to which rows are turned
_TURNED = 128  # rows at a time
_STEP = 1024  # rows whose columns stay in the cache

_BASE, _HALF, _CELLS, _LOW, _LINEAR = grid.BASE, grid.HALF, grid.CELLS, grid.LOW, grid.LINEAR
_LOW_SHIFT, _HIGH_SHIFT = grid.PER_LOW.bit_length() - 1, grid.PER_HIGH.bit_length() - 1
_WIDE, _STEEPER = float(grid.BASE * grid.PER_LOW), float(grid.BASE * (grid.PER_HIGH - grid.PER_LOW))
_TAIL, _FIRST_KEY, _SHIFT = grid.OCTAVES * grid.PER_OCTAVE, grid.FIRST_KEY, grid.MANTISSA_SHIFT
_ROUNDING = grid.ROUNDING


@numba.njit(inline="always")
def _all_finite(bits: Any) -> Any:
    """Whether no exponent of these numbers is all ones."""
    limit = bits.dtype.type(0x7F800000 if bits.itemsize == 4 else 0x7FF0000000000000)
    flat = bits.reshape(-1)
    for start in range(0, len(flat), 4096):
        worst = limit - limit
        for i in range(start, min(start + 4096, len(flat))):
            worst = max(worst, flat[i] & limit)
        if worst == limit:
            return False
    return True


@numba.njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def reduce_logits(
    z: Any, bits: Any, labels: Any, top: Any, at_label: Any, total: Any, squares: Any, predicted: Any
) -> bool:
    """Fill the columns of `kernel.Reduced`; False if a value is not finite."""
    if not _all_finite(bits):
        return False
    if z.shape[1] > _FEW:
        _along_classes(z, labels, top, at_label, total, squares, predicted)
    else:
        _along_rows(z, labels, top, at_label, total, squares, predicted)
    return True


@numba.njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def _along_classes(z: Any, labels: Any, top: Any, at_label: Any, total: Any, squares: Any, predicted: Any) -> None:
    single = z.itemsize == 4
    for i in range(len(z)):
        largest = z[i, 0]
        for j in range(z.shape[1]):
            largest = max(largest, z[i, j])
        first = 0
        while z[i, first] != largest:
            first += 1
        high = np.float64(largest)
        s, q = 0.0, 0.0
        if single:
            for start in range(0, z.shape[1], _RUN):
                s32, q32 = F(0.0), F(0.0)
                for j in range(start, min(start + _RUN, z.shape[1])):
                    e32 = exp32(F(z[i, j]) - F(largest))
                    s32 += e32
                    q32 += e32 * e32
                s += np.float64(s32)
                q += np.float64(q32)
        if not single or s < SATURATED:
            s, q = 0.0, 0.0
            for j in range(z.shape[1]):
                e64 = exp64(np.float64(z[i, j]) - high)
                s += e64
                q += e64 * e64
        top[i], total[i], squares[i], predicted[i] = high, s, q, first
        at_label[i] = np.float64(z[i, labels[i]]) - high


@numba.njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def _along_rows(z: Any, labels: Any, top: Any, at_label: Any, total: Any, squares: Any, predicted: Any) -> None:
    single = z.itemsize == 4
    classes = z.shape[1]
    turned = np.empty((classes, _TURNED), z.dtype)
    high = np.empty(_TURNED, z.dtype)
    first = np.empty(_TURNED, np.int32)
    s32, q32 = np.empty(_TURNED, F), np.empty(_TURNED, F)
    s64, q64 = np.empty(_TURNED, np.float64), np.empty(_TURNED, np.float64)
    for start in range(0, len(z), _TURNED):
        rows = min(_TURNED, len(z) - start)
        for i in range(rows):
            for j in range(classes):
                turned[j, i] = z[start + i, j]
        for i in range(rows):
            high[i], first[i] = turned[0, i], 0
        for j in range(1, classes):
            for i in range(rows):
                above = turned[j, i] > high[i]
                high[i] = turned[j, i] if above else high[i]
                first[i] = j if above else first[i]
        doubtful = not single
        if single:
            s32[:rows], q32[:rows] = F(0.0), F(0.0)
            for j in range(classes):
                for i in range(rows):
                    e32 = exp32(F(turned[j, i]) - F(high[i]))
                    s32[i] += e32
                    q32[i] += e32 * e32
            for i in range(rows):
                doubtful |= s32[i] < F(SATURATED)
        if doubtful:
            s64[:rows], q64[:rows] = 0.0, 0.0
            for j in range(classes):
                for i in range(rows):
                    e64 = exp64(np.float64(turned[j, i]) - np.float64(high[i]))
                    s64[i] += e64
                    q64[i] += e64 * e64
        for i in range(rows):
            exact = not single or s32[i] < F(SATURATED)
            total[start + i] = s64[i] if exact else np.float64(s32[i])
            squares[start + i] = q64[i] if exact else np.float64(q32[i])
            top[start + i], predicted[start + i] = np.float64(high[i]), first[i]
            at_label[start + i] = np.float64(turned[labels[start + i], i]) - np.float64(high[i])


@numba.njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def reduce_probabilities(
    z: Any, bits: Any, labels: Any, top: Any, at_label: Any, total: Any, squares: Any, predicted: Any
) -> bool:
    """Fill the columns of `kernel.Reduced`; False if a value is not finite."""
    if not _all_finite(bits):
        return False
    for i in range(len(z)):
        largest = z[i, 0]
        s, q = 0.0, 0.0
        for j in range(z.shape[1]):
            largest = max(largest, z[i, j])
            p = np.float64(z[i, j])
            s += p
            q += p * p
        first = 0
        while z[i, first] != largest:
            first += 1
        top[i], total[i], squares[i], predicted[i] = largest, s, q, first
        at_label[i] = z[i, labels[i]]
    return True


@numba.njit(inline="always")
def _cell(confidence: Any, shortfall: Any) -> Any:
    position = confidence * _WIDE + max(confidence - 0.5, 0.0) * _STEEPER
    linear = np.int64(max(np.ceil(position - _ROUNDING) - 1.0, 0.0))
    if linear < _LINEAR:
        return linear
    key = bits_of_float64(shortfall * _BASE) >> _SHIFT  # type: ignore[call-arg]
    return min(max(_FIRST_KEY - key, 0), _TAIL) + _LINEAR


@numba.njit(inline="always")
def _base_bin(cell: Any) -> Any:
    if cell < _LOW:
        return cell >> _LOW_SHIFT
    if cell < _LINEAR:
        return _HALF + ((cell - _LOW) >> _HIGH_SHIFT)
    return _BASE - 1


@numba.njit(inline="always")
def _snap(confidence: Any) -> Any:
    """A confidence that is the edge of a base bin, rounded to float32, put back on that edge."""
    edge = np.rint(confidence * _BASE) / _BASE
    return edge if np.float64(F(edge)) == confidence else confidence


@numba.njit(nogil=True, cache=True, error_model="numpy")
def finish_logits(
    labels: Any, at_label: Any, total: Any, squares: Any, predicted: Any,
    confidence: Any, shortfall: Any, correct: Any, nll: Any, brier: Any, cells: Any,
) -> None:  # fmt: skip
    """What `kernel.finish_rows` makes of reduced logits."""
    for i in range(len(labels)):
        nll[i] = np.log(total[i]) - at_label[i]
    for i in range(len(labels)):
        sure = 1.0 / total[i]
        share = exp64(at_label[i]) * sure if at_label[i] > -708.0 else 0.0
        confidence[i] = sure
        shortfall[i] = (total[i] - 1.0) * sure
        brier[i] = max(squares[i] * (sure * sure) - 2.0 * share + 1.0, 0.0)
        correct[i] = predicted[i] == labels[i]
        cells[i] = _cell(sure, shortfall[i])


@numba.njit(nogil=True, cache=True, error_model="numpy")
def finish_probabilities(
    labels: Any, at_label: Any, top: Any, squares: Any, predicted: Any, single: bool,
    confidence: Any, shortfall: Any, correct: Any, nll: Any, brier: Any, cells: Any,
) -> None:  # fmt: skip
    """The same of reduced probabilities; ``single`` if they came as float32."""
    for i in range(len(labels)):
        sure, share = min(top[i], 1.0), at_label[i]
        nll[i] = max(-np.log(share), 0.0)
        confidence[i], shortfall[i] = sure, 1.0 - sure
        brier[i] = max(squares[i] - 2.0 * share + 1.0, 0.0)
        correct[i] = predicted[i] == labels[i]
        placed = _snap(sure) if single else sure
        cells[i] = _cell(placed, 1.0 - placed)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def place_confidences(confidences: Any, correct: Any, single: bool, code: Any, counts: Any, sums: Any) -> None:
    """Codes of confidences in 0..1, and counts and sums over base bins."""
    for i in range(len(confidences)):
        sure = np.float64(confidences[i])
        placed = _snap(sure) if single else sure
        cell = _cell(placed, 1.0 - placed)
        is_wrong = 0 if correct[i] else 1
        code[i] = cell + _CELLS * is_wrong
        side = 2 * _base_bin(cell) + is_wrong
        counts[side] += 1
        sums[side] += sure


@numba.njit(nogil=True, cache=True, error_model="numpy")
def tally(
    cells: Any, correct: Any, confidence: Any, nll: Any, brier: Any, code: Any, counts: Any, sums: Any, moments: Any
) -> None:
    """Codes of judged samples, counts and sums over base bins, and the moments of NLL and Brier score."""
    loss = loss2 = score = score2 = 0.0
    for i in range(len(cells)):
        is_wrong = 0 if correct[i] else 1
        code[i] = cells[i] + _CELLS * is_wrong
        side = 2 * _base_bin(cells[i]) + is_wrong
        counts[side] += 1
        sums[side] += confidence[i]
        loss += nll[i]
        loss2 += nll[i] * nll[i]
        score += brier[i]
        score2 += brier[i] * brier[i]
    moments[0] += loss
    moments[1] += loss2
    moments[2] += score
    moments[3] += score2
    moments[4] += len(cells)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def tally_logits(z: Any, bits: Any, labels: Any, code: Any, counts: Any, sums: Any, moments: Any) -> bool:
    """Reduce, finish and tally, a thousand rows at a time, so that nothing in between leaves the cache.

    False if a value is not finite.
    """
    top, at_label, total, squares, predicted = _reduced_columns()
    confidence, shortfall, correct, nll, brier, cells = _finished_columns()
    for start in range(0, len(z), _STEP):
        rows = slice(start, min(start + _STEP, len(z)))
        n = rows.stop - rows.start
        y, t, a, s, q, p = labels[rows], top[:n], at_label[:n], total[:n], squares[:n], predicted[:n]
        c, u, r, g, b, k = confidence[:n], shortfall[:n], correct[:n], nll[:n], brier[:n], cells[:n]
        if not reduce_logits(z[rows], bits[rows], y, t, a, s, q, p):
            return False
        finish_logits(y, a, s, q, p, c, u, r, g, b, k)
        tally(k, r, c, g, b, code[rows], counts, sums, moments)
    return True


@numba.njit(nogil=True, cache=True, error_model="numpy")
def tally_probabilities(
    z: Any, bits: Any, labels: Any, single: bool, code: Any, counts: Any, sums: Any, moments: Any
) -> float:
    """The same of probabilities: gives the sum that is furthest from 1, or NaN if a value is not finite."""
    top, at_label, total, squares, predicted = _reduced_columns()
    confidence, shortfall, correct, nll, brier, cells = _finished_columns()
    furthest = 1.0
    for start in range(0, len(z), _STEP):
        rows = slice(start, min(start + _STEP, len(z)))
        n = rows.stop - rows.start
        y, t, a, s, q, p = labels[rows], top[:n], at_label[:n], total[:n], squares[:n], predicted[:n]
        c, u, r, g, b, k = confidence[:n], shortfall[:n], correct[:n], nll[:n], brier[:n], cells[:n]
        if not reduce_probabilities(z[rows], bits[rows], y, t, a, s, q, p):
            return np.nan
        for i in range(n):
            furthest = s[i] if abs(s[i] - 1.0) > abs(furthest - 1.0) else furthest
        finish_probabilities(y, a, t, q, p, single, c, u, r, g, b, k)
        tally(k, r, c, g, b, code[rows], counts, sums, moments)
    return furthest


@numba.njit
def _reduced_columns() -> Any:
    """Room for the columns of `kernel.Reduced`, of some rows."""
    return np.empty(_STEP), np.empty(_STEP), np.empty(_STEP), np.empty(_STEP), np.empty(_STEP, np.int64)


@numba.njit
def _finished_columns() -> Any:
    """Room for those of `kernel.Finished`."""
    correct, cells = np.empty(_STEP, np.bool_), np.empty(_STEP, np.int64)
    return np.empty(_STEP), np.empty(_STEP), correct, np.empty(_STEP), np.empty(_STEP), cells


@numba.njit(nogil=True, cache=True)
def count_codes(code: Any, counts: Any) -> None:
    """How often each code occurs."""
    for i in range(len(code)):
        counts[code[i]] += 1


@numba.njit(nogil=True, cache=True, error_model="numpy")
def risks_of_small(count: Any, errors: Any, few: int) -> float:
    """The sum of the risks over the members of all groups of at most ``few``, as `ties.sum_of_risks` defines it."""
    total, before, errors_before = 0.0, 0.0, 0.0
    for i in range(len(count)):
        n, e = count[i], np.float64(errors[i])
        if n == 1:
            total += (errors_before + e) / (before + 1.0)
        elif n <= few:
            share = e / n
            for j in range(1, n + 1):
                total += (errors_before + j * share) / (before + j)
        before += n
        errors_before += e
    return total


@numba.njit(inline="always")
def _bin_of(share: Any, inner: Any) -> Any:
    """How many of the inner edges lie below a share."""
    index: Any = min(np.int64(share * (len(inner) + 1)), len(inner))
    while index < len(inner) and inner[index] < share:
        index += 1
    while index > 0 and inner[index - 1] >= share:
        index -= 1
    return index


@numba.njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def classwise(
    z: Any, top: Any, total: Any, labels: Any, logits: bool, inner: Any,
    totals: Any, sums: Any, counts: Any, hits: Any,
) -> None:  # fmt: skip
    """The sums of `auditing.breakdown.ClasswiseSums`."""
    classes, bins = z.shape[1], len(inner) + 1
    single = z.itemsize == 4
    p = np.empty(classes, z.dtype)
    least = z.dtype.type(inner[0] * (1 - 1e-6))
    for i in range(len(z)):
        high, inverse = z.dtype.type(top[i]), z.dtype.type(1.0 / total[i])
        if not logits:
            for j in range(classes):
                p[j] = z[i, j]
        elif single:
            for j in range(classes):
                p[j] = exp32(F(z[i, j]) - F(high)) * F(inverse)
        else:
            for j in range(classes):
                p[j] = exp64(np.float64(z[i, j]) - np.float64(high)) * np.float64(inverse)
        for j in range(classes):
            totals[j] += np.float64(p[j])
        for j in range(classes):
            if p[j] > least:
                share = np.float64(p[j])
                if logits:
                    share = exp64(np.float64(z[i, j]) - top[i]) / total[i]
                index = _bin_of(share, inner)
                if index > 0:
                    sums[j * bins + index] += share
                    counts[j * bins + index] += 1
        y = labels[i]
        share = np.float64(p[y])
        if logits and p[y] > least:
            share = exp64(np.float64(z[i, y]) - top[i]) / total[i]
        hits[y * bins + _bin_of(share, inner)] += 1


@numba.njit(nogil=True, cache=True, error_model="numpy")
def break_down(key: Any, base: Any, correct: Any, confidence: Any, counts: Any, sums: Any, squares: Any) -> None:
    """The sums of `auditing.breakdown.Breakdown`: counts and sums ``[keys, bins, 2]``, squares ``[keys]``."""
    width = _BASE // counts.shape[1]
    for i in range(len(key)):
        k, index, is_wrong = key[i], base[i] // width, 0 if correct[i] else 1
        counts[k, index, is_wrong] += 1
        sums[k, index, is_wrong] += confidence[i]
        gap = confidence[i] - (1.0 - is_wrong)
        squares[k] += gap * gap
