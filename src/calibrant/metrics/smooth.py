r"""Smooth ECE [Blasiok2024]: calibration error without bins.

With the residuals :math:`\rho_i = y_i - c_i` (correct minus confidence) and a Gaussian kernel :math:`K_s` of width s
that is reflected at 0 and 1 (images at :math:`2k + c` and :math:`2k - c`),

.. math:: \mathrm{smECE}_s = \int_0^1 \Bigl| \frac1N \sum_i K_s(t, c_i)\, \rho_i \Bigr| \, dt .

It never rises with s, so there is one width with :math:`\mathrm{smECE}_s = s`: that value is the smooth ECE. (The
package of the authors, relplot, stops its search for it after ten halvings, and at 0.001.)

How it is computed: the residuals are put on a grid of spacing h, each split between its two neighbours so that its
place is kept on average. On the cosine series of the grid the reflected kernel multiplies the k-th term by
:math:`e^{-(\pi k s)^2 / 2}`, without error, so each further width costs one FFT. The splitting and the sum over the
grid are each off by about :math:`\frac{1}{8} (h/s)^2 \cdot \frac1N \sum |\rho_i|` at most; h is chosen from that.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from calibrant._arrays import ArrayLike, Doubles
from calibrant._validation import Floats, check_number, check_scores

TOLERANCE = 2e-6  # bound on the error by the grid, well inside the 1e-5 that is promised
NARROWEST = 1e-4  # of the widths that can be asked for: below it the finest grid is too coarse for the promise
COARSE, FINE = 1 << 14, 1 << 22
ROWS = 1 << 20
MOST_DAMPED = 3.0  # times 1 / s: further terms of the series are damped by over 1e-19


def smooth_ece(confidence: ArrayLike, correct: ArrayLike, *, bandwidth: float | None = None) -> float:
    r"""Smooth ECE: the residuals smoothed by a kernel as wide as the result; error below 1e-5.

    Args:
        confidence: ``[N]``, between 0 and 1.
        correct: ``[N]``, whether each prediction is right.
        bandwidth: the width s of the kernel, at least 1e-4; by default the width at which
            :math:`\mathrm{smECE}_s = s`.

    Returns:
        The error, between 0 and 1; lower is better.

    Example:
        >>> from calibrant.metrics import smooth_ece
        >>> round(smooth_ece([0.9, 0.9, 0.9, 0.9], [1, 1, 0, 0]), 6)  # every residual at one place: |0.5 - 0.9|
        0.4

    Reference:
        [Blasiok2024].
    """
    (values, _), correct = check_scores(confidence, correct, name="confidence")
    return _smooth_ece(values, lambda rows: correct[rows] - values[rows].astype(np.float64), len(values), bandwidth)


def smooth_ece_of_residuals(position: Floats, residual: Doubles, size: int) -> float:
    """`smooth_ece` of ``size`` predictions from sums of residuals (right - confidence) at positions ``[G]`` in 0..1."""
    return _smooth_ece(position, lambda rows: residual[rows], size, None)


def _smooth_ece(position: Floats, residual: Callable[[slice], Doubles], size: int, bandwidth: float | None) -> float:
    """Grids of growing fineness until the bound on the error holds at the width that was asked or found."""
    if bandwidth is not None:
        bandwidth = check_number("bandwidth", bandwidth, NARROWEST)
    cells = COARSE if len(position) < ROWS else COARSE << 3  # putting many residuals on a grid twice costs most
    while True:
        mass, weights = _on_grid(position, residual, cells)
        spectrum = np.fft.rfft(weights / size, n=2 * cells).real
        width = _fixed_point(spectrum) if bandwidth is None else bandwidth
        needed = math.sqrt(mass / size / TOLERANCE / 2) / width if width > TOLERANCE else 0.0
        if needed <= cells or cells == FINE:
            return width if bandwidth is None else _at_width(spectrum, width)
        cells = min(FINE, 1 << math.ceil(math.log2(needed)))


def _on_grid(position: Floats, residual: Callable[[slice], Doubles], cells: int) -> tuple[float, Doubles]:
    """The sum of the absolute residuals, and the residuals split between the nodes j / cells, ``[cells + 1]``."""
    mass, weights = 0.0, np.zeros(cells + 1)
    for start in range(0, len(position), ROWS):
        rows = slice(start, start + ROWS)
        amount = residual(rows)
        x = position[rows] * np.float64(cells)
        node = np.minimum(x.astype(np.int64), cells - 1)
        upper = amount * (x - node)
        weights[:-1] += np.bincount(node, weights=amount - upper, minlength=cells)
        weights[1:] += np.bincount(node, weights=upper, minlength=cells)
        mass += float(np.abs(amount).sum())
    return mass, weights


def _at_width(spectrum: Doubles, width: float) -> float:
    """The integral of the smoothed residuals' absolute value, by the trapezoid rule on the grid."""
    cells = len(spectrum) - 1
    terms = min(cells, int(MOST_DAMPED / width) + 1 if width > MOST_DAMPED / cells else cells) + 1
    damped = spectrum[:terms] * np.exp(-0.5 * (math.pi * width * np.arange(terms)) ** 2)
    smoothed = np.abs(np.fft.irfft(damped, n=2 * cells)[: cells + 1])  # without the terms that are as good as 0
    # The density is 2 cells times this, the spacing is 1 / cells.
    return float(2 * smoothed.sum() - smoothed[0] - smoothed[-1])


def _fixed_point(spectrum: Doubles) -> float:
    """The width s with smECE_s = s, to 1e-9, by false position with the step of Anderson and Björck.

    smECE_s - s falls at least as fast as -s, so that its value bounds the distance to the root.
    """
    low, high = abs(float(spectrum[0])), _at_width(spectrum, 0.0)
    if high - low <= 1e-9:
        return high
    above, below = high - low, _at_width(spectrum, high) - high
    while high - low > 1e-9:
        width = min(max(low + (high - low) * above / (above - below), low), high)
        gap = _at_width(spectrum, width) - width
        if abs(gap) <= 5e-10:
            return width
        # The end that stays counts for less, by as much as the other one has gained.
        if gap > 0:
            low, above, below = width, gap, below * _weight(gap / above)
        else:
            high, below, above = width, gap, above * _weight(gap / below)
    return (low + high) / 2


def _weight(ratio: float) -> float:
    return 1 - ratio if ratio < 1 else 0.5
