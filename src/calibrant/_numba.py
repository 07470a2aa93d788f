"""Compiled passes over many logits, and what those of `calibrant.metrics` share with them. Imports Numba.

Each pass runs without the interpreter's lock. Shared are flags, bits and an exponential that fills the processor's
vectors: the polynomial of Cephes' expf, and a Taylor series in float64, written out because a call per number is not
vectorised. With x = f log 2 + r, f whole and |r| at most log(2)/2, it is 2^f times a polynomial in r. Its relative
error is below 3e-7 in float32 and 1e-15 in float64; exponentials below e^-87 (e^-708) count as that.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

F = np.float32
#: Sums may be taken in any order, and no number is NaN or infinite: that was checked before.
FAST = {"contract", "reassoc", "nsz", "nnan", "ninf"}


@intrinsic
def float32_of_bits(typing: Any, bits: Any) -> Any:
    """The float32 with these bits."""
    return types.float32(types.int32), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], context.get_value_type(types.float32)
    )


@intrinsic
def float64_of_bits(typing: Any, bits: Any) -> Any:
    """The float64 with these bits."""
    return types.float64(types.int64), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], context.get_value_type(types.float64)
    )


@intrinsic
def bits_of_float64(typing: Any, number: Any) -> Any:
    """The bits of a float64."""
    return types.int64(types.float64), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], context.get_value_type(types.int64)
    )


@numba.njit(inline="always")
def exp32(x: Any) -> Any:
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
    return p * float32_of_bits((np.int32(f) + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]


@numba.njit(inline="always")
def exp64(x: Any) -> Any:
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
    return p * float64_of_bits((np.int64(f) + np.int64(1023)) << np.int64(52))  # type: ignore[call-arg]


@numba.njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def add_derivatives(z: Any, labels: Any, s: float, double: bool, sums: Any) -> None:
    """Add up what the derivatives of `TemperatureScaling` need of rows ``[n, C]``; in float64 if asked to.

    ``sums``: of the slope, of the curvature, of the label's lead over the mean, of the label's lag behind the largest,
    and the widest spread of a row.
    """
    classes = z.shape[1]
    for i in range(len(z)):
        top = z[i, 0]
        low = z[i, 0]
        for j in range(classes):
            top = max(top, z[i, j])
            low = min(low, z[i, j])
        total, first, second, spread = 0.0, 0.0, 0.0, 0.0
        if double:
            high = np.float64(top)
            for j in range(classes):
                d = np.float64(z[i, j]) - high
                e = exp64(s * d)
                total += e
                first += e * d
                second += e * d * d
                spread += d
        else:
            t32, f32, s32, d32, scale = F(0.0), F(0.0), F(0.0), F(0.0), F(s)
            for j in range(classes):
                g = F(z[i, j]) - F(top)
                h = exp32(scale * g)
                t32 += h
                f32 += h * g
                s32 += h * g * g
                d32 += g
            total, first, second, spread = np.float64(t32), np.float64(f32), np.float64(s32), np.float64(d32)
        at_label = np.float64(z[i, labels[i]]) - np.float64(top)
        mean = first / total
        sums[0] += mean - at_label
        sums[1] += max(second / total - mean * mean, 0.0)
        sums[2] += at_label - spread / classes
        sums[3] -= at_label
        sums[4] = max(sums[4], np.float64(top) - np.float64(low))


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")
def normalise_rows(z: Any, centre: bool, powers: Any, scores: Any) -> None:
    """The normalised max logit of rows ``[n, C]`` for rising powers, into ``scores [powers, n]``."""
    classes, kind = z.shape[1], z.dtype.type
    tiny = 1.1754943508222875e-38 if z.itemsize == 4 else 2.2250738585072014e-308
    v, power = np.empty(classes, z.dtype), np.empty(classes, z.dtype)
    for i in range(len(z)):
        mean = 0.0
        if centre:
            for j in range(classes):
                mean += np.float64(z[i, j])
            mean /= classes
        shift = kind(mean)
        top = z[i, 0] - shift
        size = abs(top)
        for j in range(classes):
            x = z[i, j] - shift
            v[j] = abs(x)
            top = max(top, x)
            size = max(size, abs(x))
        inverse = kind(1.0) / kind(max(np.float64(size), tiny))
        for j in range(classes):
            v[j] *= inverse
            power[j] = v[j]
        p = 1
        for k in range(len(powers)):
            while p < powers[k]:
                for j in range(classes):
                    power[j] *= v[j]
                p += 1
            total = kind(0.0)
            for j in range(classes):
                total += power[j]
            norm = np.float64(size) * np.float64(total) ** (1.0 / p)
            scores[k, i] = np.float64(top) / max(norm, tiny) if norm > 0 else 0.0
