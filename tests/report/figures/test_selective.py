"""Figures of sorted and normalised logits; those of rankings are in tests/selective/test_rankings.py."""

import numpy as np
import pytest

from calibrant.report import draw_normalised_given_max_logit, draw_rank_statistics, new_axes
from calibrant.selective import normalised_given_max_logit, sorted_logits

LOGITS = np.random.default_rng(0).normal(size=(40, 5))
BINS = normalised_given_max_logit([0.5] * 30 + [0.9] * 10, LOGITS.max(1), LOGITS.mean(1), fewest=3)
DRAWS = {
    "ranks": lambda target: draw_rank_statistics(target, sorted_logits(LOGITS).plain, label="$v$"),
    "normalised": lambda target: draw_normalised_given_max_logit(target, BINS, title="$5"),
}


@pytest.mark.parametrize("name", DRAWS)
def test_figures_are_the_same_each_time(tmp_path, name):
    for file in ("a.svg", "b.svg"):
        DRAWS[name](tmp_path / file)
    first, second = ((tmp_path / file).read_bytes() for file in ("a.svg", "b.svg"))
    assert first == second
    assert b"</svg>" in first


def test_bands_reach_one_standard_deviation():
    _, (axis,) = new_axes((3, 3))
    DRAWS["ranks"](axis)
    ordered = -np.sort(-LOGITS, axis=1)
    corners = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert corners.max() == pytest.approx((ordered.mean(0) + ordered.std(0)).max())
    assert corners.min() == pytest.approx((ordered.mean(0) - ordered.std(0)).min())


def test_axes_stand_row_after_row():
    figure, axes = new_axes((4, 3), 3, 2)
    assert [axis.get_subplotspec().num1 for axis in axes] == [0, 1, 2, 3, 4, 5]
    assert not axes[0].spines["top"].get_visible()
    assert list(figure.get_size_inches()) == [4, 3]


def test_no_bins_no_figure():
    with pytest.raises(ValueError, match="at least one bin of the MSP with samples, got none"):
        draw_normalised_given_max_logit(new_axes((3, 3))[1][0], [])
