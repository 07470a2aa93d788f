"""The formulas of `kernel.define`, compiled; importing this imports Numba. Each runs without the interpreter's lock.

``bits`` is the same memory as whole numbers: a value is finite if its exponent's bits are not all ones, and comparing
whole numbers is faster than looking for NaN. The rest of a loop may then assume finite numbers.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from calibrant.metrics.kernel import SATURATED

F = np.float32
_FAST = {"contract", "reassoc", "nsz", "nnan", "ninf"}
_RUN = 64  # float32 numbers that are added up before their sum goes into a float64


@intrinsic
def _float32(typing: Any, bits: Any) -> Any:
    """The float32 with these bits."""
    return types.float32(types.int32), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], context.get_value_type(types.float32)
    )


@intrinsic
def _float64(typing: Any, bits: Any) -> Any:
    """The float64 with these bits."""
    return types.float64(types.int64), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], context.get_value_type(types.float64)
    )


@numba.njit(inline="always")
def _exp32(x: Any) -> Any:
    x = max(x, F(-87.0))
    f = np.floor(x * F(1.44269504088896341) + F(0.5))
    r = x - f * F(0.693359375)  # log 2 in two parts, so that the difference keeps its digits
    r = r - f * F(-2.12194440e-4)
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    p = p * r * r + r + F(1.0)
    return p * _float32((np.int32(f) + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]


@numba.njit(inline="always")
def _exp64(x: Any) -> Any:
    x = max(x, -708.0)
    f = np.floor(x * 1.4426950408889634 + 0.5)
    r = x - f * 6.93145751953125e-1
    r = r - f * 1.42860682030941723212e-6
    p = 1.6059043836821613e-10  # 1/13!, then 1/12! down to 1/2!
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r * r + r + 1.0
    return p * _float64((np.int64(f) + np.int64(1023)) << np.int64(52))  # type: ignore[call-arg]


@numba.njit(inline="always")
def _largest(z: Any, bits: Any, i: int, limit: Any) -> Any:
    """The largest of a row, the first class that has it, and whether all of the row is finite."""
    largest, worst = z[i, 0], limit - limit
    for j in range(z.shape[1]):
        largest = max(largest, z[i, j])
        worst = max(worst, bits[i, j] & limit)
    first = 0
    if worst < limit:
        while z[i, first] != largest:
            first += 1
    return largest, first, worst < limit


@numba.njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def reduce_logits(
    z: Any, bits: Any, labels: Any, top: Any, at_label: Any, total: Any, squares: Any, predicted: Any
) -> bool:
    """Fill the columns; False if a value is not finite."""
    single = z.itemsize == 4
    limit = bits.dtype.type(0x7F800000 if single else 0x7FF0000000000000)
    for i in range(len(z)):
        largest, first, finite = _largest(z, bits, i, limit)
        if not finite:
            return False
        high = np.float64(largest)
        s, q = 0.0, 0.0
        if single:
            for start in range(0, z.shape[1], _RUN):
                s32, q32 = F(0.0), F(0.0)
                for j in range(start, min(start + _RUN, z.shape[1])):
                    e32 = _exp32(F(z[i, j]) - F(largest))
                    s32 += e32
                    q32 += e32 * e32
                s += np.float64(s32)
                q += np.float64(q32)
        if not single or s < SATURATED:
            s, q = 0.0, 0.0
            for j in range(z.shape[1]):
                e64 = _exp64(np.float64(z[i, j]) - high)
                s += e64
                q += e64 * e64
        top[i], total[i], squares[i], predicted[i] = high, s, q, first
        at_label[i] = np.float64(z[i, labels[i]]) - high
    return True


@numba.njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")
def reduce_probabilities(
    z: Any, bits: Any, labels: Any, top: Any, at_label: Any, total: Any, squares: Any, predicted: Any
) -> bool:
    """Fill the columns; False if a value is not finite."""
    limit = bits.dtype.type(0x7F800000 if z.itemsize == 4 else 0x7FF0000000000000)
    for i in range(len(z)):
        largest, first, finite = _largest(z, bits, i, limit)
        if not finite:
            return False
        s, q = 0.0, 0.0
        for j in range(z.shape[1]):
            p = np.float64(z[i, j])
            s += p
            q += p * p
        top[i], total[i], squares[i], predicted[i] = largest, s, q, first
        at_label[i] = z[i, labels[i]]
    return True
