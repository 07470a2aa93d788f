"""Passes over many logits, compiled; importing this imports Numba. Each runs without the interpreter's lock."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from calibrant._numba import FAST, F, exp32, exp64


@numba.njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def add_derivatives(z: Any, labels: Any, s: float, double: bool, sums: Any) -> None:
    """Add up what `temperature._derivatives` needs of rows ``[n, C]``; in float64 if asked to.

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
