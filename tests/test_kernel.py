"""The compiled pass against its definition in NumPy, and the definition against plain float64."""

import numpy as np
import pytest

from calibrant.metrics import kernel

SHAPES = [(1, 2), (7, 3), (130, 10), (65, 64), (33, 65), (5, 1000), (300, 129)]


def data(shape, dtype, kind, scale=3.0):
    rng = np.random.default_rng(shape[0])
    z = np.round(rng.normal(size=shape) * scale, 1)  # with ties
    if kind == "probabilities":
        z = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return z.astype(dtype), rng.integers(0, shape[1], shape[0])


@pytest.fixture
def compiled(monkeypatch):
    monkeypatch.setattr(kernel, "LARGE", 0)


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_compiled_is_defined(compiled, shape, dtype, kind):
    z, y = data(shape, dtype, kind)
    wide = z if dtype == np.float64 else z.astype(np.float32)
    ours, theirs = kernel.reduce_rows(z, y, kind), kernel.define(wide, y, kind)
    tolerance = 1e-14 if dtype == np.float64 or kind == "probabilities" else 4e-7
    assert (ours.predicted == theirs.predicted).all()
    assert (ours.top == theirs.top).all()
    assert (ours.at_label == theirs.at_label).all()
    assert ours.total == pytest.approx(theirs.total, rel=tolerance)
    assert ours.squares == pytest.approx(theirs.squares, rel=tolerance)


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_definition_is_the_formula_in_float64(kind):
    z, y = data((57, 11), np.float32, kind)
    exact = z.astype(np.float64)
    reduced = kernel.define(z, y, kind)
    assert (reduced.top == exact.max(1)).all()
    assert (reduced.predicted == exact.argmax(1)).all()
    terms = np.exp(exact - exact.max(1, keepdims=True)) if kind == "logits" else exact
    at_label = exact[np.arange(57), y]
    assert reduced.at_label == pytest.approx(at_label - exact.max(1) if kind == "logits" else at_label, abs=0)
    assert reduced.total == pytest.approx(terms.sum(1), rel=1e-14)
    assert reduced.squares == pytest.approx((terms**2).sum(1), rel=1e-14)


def test_saturated_rows_are_summed_in_float64(compiled):
    gap = np.linspace(6, 36, 61, dtype=np.float32)
    z = np.stack([gap, np.zeros_like(gap), np.full_like(gap, -700)], 1)
    shortfall = kernel.reduce_rows(z, np.zeros(61, np.int64), "logits").total - 1
    expected = np.exp(-gap.astype(np.float64))
    assert shortfall == pytest.approx(expected, rel=1e-9, abs=3e-16)
    assert (np.diff(shortfall[:50]) < 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_logits_stay_finite(compiled, dtype):
    z = np.array([[1e4, -1e4, 0], [-1e30, 1e30, 0], [5, 5, 5], [0, -800, -90]], dtype)
    reduced = kernel.reduce_rows(z, np.array([1, 0, 2, 1]), "logits")
    assert np.isfinite(np.array(reduced[:4])).all()
    assert reduced.predicted.tolist() == [0, 1, 0, 0]
    assert reduced.total == pytest.approx([1, 1, 3, 1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("large", [0, 1 << 40])
def test_values_that_are_not_finite_are_refused(monkeypatch, bad, dtype, large):
    monkeypatch.setattr(kernel, "LARGE", large)
    for row, column in ((0, 0), (3, 2), (9, 4)):
        z = np.zeros((10, 5), dtype)
        z[row, column] = bad
        with pytest.raises(ValueError, match="logits must be finite, got NaN or infinity"):
            kernel.reduce_rows(z, np.zeros(10, np.int64), "logits")


def test_rows_do_not_depend_on_threads(compiled, monkeypatch):
    z, y = data((4000, 300), np.float32, "logits")
    monkeypatch.setattr(kernel, "threads", lambda: 1)
    alone = kernel.reduce_rows(z, y, "logits")
    monkeypatch.setattr(kernel, "threads", lambda: 4)
    for ours, theirs in zip(kernel.reduce_rows(z, y, "logits"), alone, strict=True):
        assert (ours == theirs).all()
