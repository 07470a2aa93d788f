"""The compiled pass against its definition in NumPy, and the definition against plain float64."""

import subprocess
import sys

import numpy as np
import pytest

from calibrant import Predictions, audit
from calibrant._arrays import precision_of
from calibrant.metrics import ConfidenceSketch, classwise_ece, compiled, kernel
from calibrant.posthoc import LogitNorm, TemperatureScaling
from tests.helpers.errors import facts

#: One process compiles what these tests call, not each of them.
pytestmark = pytest.mark.xdist_group("numba")

SHAPES = [(1, 2), (7, 3), (130, 10), (65, 64), (33, 65), (5, 1000), (300, 129)]


def data(shape, dtype, kind, scale=3.0):
    rng = np.random.default_rng(shape[0])
    z = np.round(rng.normal(size=shape) * scale, 1)  # with ties
    if kind == "probabilities":
        z = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return z.astype(dtype), rng.integers(0, shape[1], shape[0])


def reduced_by(large, z, y, kind="logits"):
    return kernel.judge_rows(z, y, kind, None if kind == "logits" else precision_of(z), large=large)[0]


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_compiled_is_defined_and_what_follows_from_it_too(shape, dtype, kind):
    z, y = data(shape, dtype, kind)
    given = None if kind == "logits" else precision_of(z)
    reduced, ours = kernel.judge_rows(z, y, kind, given, large=True)
    plain = reduced_by(False, z, y, kind)
    for name in ("predicted", "top", "at_label"):
        np.testing.assert_array_equal(getattr(reduced, name), getattr(plain, name))
    assert reduced.total == pytest.approx(plain.total, rel=1e-14)
    assert reduced.squares == pytest.approx(plain.squares, rel=1e-14)
    theirs = kernel.finish_rows(reduced, y, kind, given)
    assert (ours.correct == theirs.correct).all()
    for name in ("confidence", "shortfall", "nll", "brier"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-14, atol=4e-15, err_msg=name)
    assert (ours.cells == theirs.cells).mean() > 0.99  # but for a rounding that moves one over an edge
    assert np.abs(ours.cells - theirs.cells).max() <= 1


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_sketch_is_the_same_by_either_way(monkeypatch, dtype, kind):
    z, y = data((3001, 11), dtype, kind)
    sketches = []
    for large in (1 << 40, 0):
        monkeypatch.setattr(kernel, "LARGE", large)
        sketches.append(ConfidenceSketch(kind=kind, ignore_index=3))
        sketches[-1].update(z, y)
        sketches[-1].update_confidence(z.astype(np.float64).clip(0, 1).max(1).astype(dtype), y == 1)
    plain, compiled = sketches
    assert plain.cells.sum() == compiled.cells.sum()
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if kind == "logits" else {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(compiled.base_sums, plain.base_sums, **tolerance)
    np.testing.assert_allclose(compiled.moments, plain.moments, **tolerance)
    np.testing.assert_array_equal(compiled.base_counts, plain.base_counts)
    for name, value in plain.compute().items():
        np.testing.assert_allclose(compiled.compute()[name], value, atol=2e-6, err_msg=name)


def _classes(found):
    return found.document["models"][0]["classes_table"]


@pytest.mark.parametrize("dtype", [">f4", ">f8", np.longdouble])
def test_numbers_of_other_machines_are_taken(monkeypatch, dtype):
    """Byte order and types that compiled code does not know."""
    monkeypatch.setattr(kernel, "LARGE", 0)
    z, y = data((400, 5), np.float32, "logits")
    confidence = data((400, 5), np.float32, "probabilities")[0].max(1)
    sketches = [ConfidenceSketch(), ConfidenceSketch()]
    for sketch, kind in zip(sketches, (np.float64 if dtype == np.longdouble else dtype[1:], dtype), strict=True):
        sketch.update(np.asfortranarray(z.astype(kind)), y.astype(">i4"))
        sketch.update_confidence(confidence.astype(kind), y == 1)
    assert sketches[0].compute() == sketches[1].compute()


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(2003, 5), (500, 120)])
def test_classwise_sums_are_the_same_by_either_way(monkeypatch, shape, dtype, kind):
    z, y = data(shape, dtype, kind)
    values, rows = [classwise_ece(z, y, kind=kind)], []
    for large in (1 << 40, 0):
        monkeypatch.setattr(kernel, "LARGE", large)
        made = Predictions.from_logits if kind == "logits" else Predictions.from_probabilities
        found = audit(made(z, y), replicates=20)
        values.append(found.metrics["classwise_ece"])
        rows.append([(r["name"], r["count"], r["accuracy"], r["confidence"], r["ece"]) for r in _classes(found)])
    np.testing.assert_allclose(values[1:], values[0], atol=1e-6)
    for plain, fast in zip(*rows, strict=True):
        assert plain[:2] == fast[:2]
        np.testing.assert_allclose(plain[2:], fast[2:], atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_temperature_is_the_same_by_either_way(monkeypatch, dtype):
    z, y = data((2003, 7), dtype, "logits")
    fits = []
    for large in (1 << 40, 0):
        monkeypatch.setattr(kernel, "LARGE", large)
        fits.append(TemperatureScaling().fit(z, y))
    assert fits[0].temperature_ == pytest.approx(fits[1].temperature_, rel=1e-12)
    assert fits[1].converged_


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalised_logits_are_the_same_by_either_way(monkeypatch, dtype, centre):
    z, y = data((2003, 9), dtype, "logits")
    z[5] = 2.0  # a row of equal logits
    fits = []
    for large in (1 << 40, 0):
        monkeypatch.setattr(kernel, "LARGE", large)
        fits.append((LogitNorm((1, 2, 5, 10), centre=centre), LogitNorm(centre=centre).fit(z, y)))
        fits[-1] = (fits[-1][0].scores(z), fits[-1][1])
    (plain, first), (compiled, second) = fits
    for p, score in plain.items():
        np.testing.assert_allclose(compiled[p], score, rtol=1e-13, atol=1e-15)
    assert first.p_ == second.p_
    for p, area in first.aurc_.items():
        assert second.aurc_[p] == pytest.approx(area, abs=1e-5)  # rounding breaks ties


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_definition_is_the_formula_in_float64(kind):
    z, y = data((57, 11), np.float32, kind)
    exact = z.astype(np.float64)
    reduced = kernel.reduce_rows(z, y, kind)
    assert (reduced.top == exact.max(1)).all()
    assert (reduced.predicted == exact.argmax(1)).all()
    terms = np.exp(exact - exact.max(1, keepdims=True)) if kind == "logits" else exact
    at_label = exact[np.arange(57), y]
    assert reduced.at_label == pytest.approx(at_label - exact.max(1) if kind == "logits" else at_label, abs=0)
    assert reduced.total == pytest.approx(terms.sum(1), rel=1e-14)
    assert reduced.squares == pytest.approx((terms**2).sum(1), rel=1e-14)


def test_saturated_rows_are_summed_in_float64():
    gap = np.linspace(6, 36, 61, dtype=np.float32)
    z = np.stack([gap, np.zeros_like(gap), np.full_like(gap, -700)], 1)
    columns = np.empty((4, 61))
    assert compiled.reduce_logits(z, z.view("i4"), np.zeros(61, np.int64), *columns, np.empty(61, np.int64))
    shortfall = columns[2] - 1
    expected = np.exp(-gap.astype(np.float64))
    assert shortfall == pytest.approx(expected, rel=1e-9, abs=3e-16)
    assert (np.diff(shortfall[:50]) < 0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_single_precision_has_its_digits(shape):
    z, y = data(shape, np.float32, "logits")
    columns, predicted = np.empty((4, len(z))), np.empty(len(z), np.int64)
    assert compiled.reduce_logits(z, z.view("i4"), y, *columns, predicted)
    exact = kernel.reduce_rows(z, y, "logits")
    assert (predicted == exact.predicted).all()
    np.testing.assert_allclose(columns, exact[:4], rtol=4e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_logits_stay_finite(dtype):
    z = np.array([[1e4, -1e4, 0], [-1e30, 1e30, 0], [5, 5, 5], [0, -800, -90]], dtype)
    reduced = reduced_by(True, z, np.array([1, 0, 2, 1]))
    assert np.isfinite(np.array(reduced[:4])).all()
    assert reduced.predicted.tolist() == [0, 1, 0, 0]
    assert reduced.total == pytest.approx([1, 1, 3, 1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("large", [True, False])
def test_values_that_are_not_finite_are_refused(monkeypatch, bad, dtype, large):
    monkeypatch.setattr(kernel, "LARGE", 0 if large else 1 << 40)
    for row, column in ((0, 0), (3, 2), (9, 4)):
        z = np.zeros((10, 5), dtype)
        z[row, column] = bad
        with pytest.raises(ValueError, match=facts("logits", "NaN")):
            reduced_by(large, z, np.zeros(10, np.int64))
        with pytest.raises(ValueError, match=facts("logits", "NaN")):
            ConfidenceSketch().update(z, np.zeros(10, np.int64))


@pytest.mark.parametrize("large", [0, 1 << 40])
def test_probabilities_must_sum_to_1(monkeypatch, large):
    monkeypatch.setattr(kernel, "LARGE", large)
    sketch = ConfidenceSketch(kind="probabilities")
    with pytest.raises(ValueError, match=facts("probabilities", "0.9")):
        sketch.update(np.array([[0.5, 0.5], [0.5, 0.4]]), np.array([0, 1]))
    assert not sketch.cells.any()


def test_rows_do_not_depend_on_threads(monkeypatch):
    z, y = data((4000, 300), np.float32, "logits")
    columns = []
    for number in ("1", "4"):
        monkeypatch.setenv("OMP_NUM_THREADS", number)
        columns.append(reduced_by(True, z, y))
    for ours, theirs in zip(*columns, strict=True):
        assert (ours == theirs).all()


@pytest.mark.slow
def test_where_nothing_can_be_written_the_cache_goes_with_the_process(tmp_path):
    code = """
import numba.core.caching as caching
for name, locator in list(vars(caching).items()):
    if name.endswith("CacheLocator") and "UserProvided" not in name:
        locator.from_function = classmethod(lambda cls, *_: None)
import numpy as np
from calibrant.metrics import ConfidenceSketch
from calibrant.metrics import kernel
kernel.LARGE = 0
sketch = ConfidenceSketch()
sketch.update(np.eye(3), np.array([0, 1, 1]))
print(sketch.compute()["accuracy"])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert result.stdout.startswith("0.66666"), result.stderr
