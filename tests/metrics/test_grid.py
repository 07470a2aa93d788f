"""The cells of a sketch: in order, between their edges."""

import numpy as np
import pytest

from calibrant.metrics.grid import cells_of, shortfall_edges, squash, unsquash


def test_squash_keeps_the_order_and_can_be_undone():
    score = np.array([-1e6, -3.0, -1e-9, 0.0, 2.5, 40.0])
    value, rest = squash(score)
    assert (np.diff(value) > 0).all()
    assert value + rest == pytest.approx(np.ones(6))
    assert unsquash(value) == pytest.approx(score, rel=1e-6, abs=1e-12)


def test_cells_are_monotone_and_hold_what_their_edges_say():
    rng = np.random.default_rng(0)
    c = np.concatenate([rng.random(5000), 1 - 10.0 ** rng.uniform(-17, -2, 5000), np.arange(301) / 300])
    u = 1 - c
    index = cells_of(c, u)
    edges = shortfall_edges()
    assert (u <= edges[index] * (1 + 1e-12) + 1e-18).all()
    assert (u >= edges[index + 1] * (1 - 1e-12)).all()
    assert (np.diff(index[np.argsort(c, kind="stable")]) >= 0).all()
    assert (np.diff(edges) <= 0).all()
