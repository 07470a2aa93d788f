"""The canvas: round ticks, lines with fewer points."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from calibrant.report.html.svg import nice_ticks, thinned


def test_ticks_are_round_and_inside() -> None:
    assert nice_ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert nice_ticks(-3.1, 12.4, 5) == pytest.approx([0, 5, 10])
    assert nice_ticks(0, 7, 7) == pytest.approx(range(8))


def test_thinned_lines_stay_where_they_were() -> None:
    rng = np.random.default_rng(0)
    line = [(float(x), float(y)) for x, y in zip(np.arange(400), rng.normal(size=400).cumsum(), strict=True)]
    fewer = thinned(line, 0.5)
    assert 2 < len(fewer) < len(line)
    xs, ys = zip(*fewer, strict=True)
    assert (fewer[0], fewer[-1]) == (line[0], line[-1])
    # Vertical distance is at least the perpendicular one: bound it through the steepest slope.
    steep = max(abs((b[1] - a[1]) / (b[0] - a[0])) for a, b in pairwise(fewer))
    assert np.abs(np.interp(np.arange(400), xs, ys) - [p[1] for p in line]).max() <= 0.5 * np.hypot(1, steep)
    assert thinned([], 1.0) == []
    assert thinned([(1.0, 2.0)], 1.0) == [(1.0, 2.0)]
