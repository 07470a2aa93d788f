"""The pass over the classes against the plain formulas in float64."""

import numpy as np
import pytest

from calibrant import Predictions, audit
from calibrant.base.arrays import precision_of
from calibrant.metrics import ConfidenceSketch, classwise_ece, kernel
from calibrant.posthoc import LogitNorm, TemperatureScaling
from tests.helpers.errors import facts

#: Few classes, which are transposed, and many; more rows than a thread takes at a time of both.
SHAPES = [(1, 2), (7, 3), (130, 10), (65, 48), (33, 49), (5, 1000), (2100, 129), (16500, 4)]


def data(shape, dtype, kind, scale=3.0):
    rng = np.random.default_rng(shape[0])
    z = np.round(rng.normal(size=shape) * scale, 1)  # with ties
    if kind == "probabilities":
        z = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return z.astype(dtype), rng.integers(0, shape[1], shape[0])


def by_definition(z, y, kind):
    """Top, value at the label, sum without the largest and sum of squares, predicted class."""
    exact, rows = z.astype(np.float64), np.arange(len(z))
    terms = np.exp(exact - exact.max(1, keepdims=True)) if kind == "logits" else exact
    at_label = exact[rows, y] - (exact.max(1) if kind == "logits" else 0)
    others = np.sort(terms, 1)[:, :-1].sum(1)
    return exact.max(1), at_label, others, (terms**2).sum(1), exact.argmax(1)


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", np.longdouble])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_reduced_by_the_formulas(shape, dtype, kind):
    z, y = data(shape, dtype, kind)
    top, at_label, others, squares, predicted = by_definition(z, y, kind)
    reduced, finished = kernel.judge_rows(np.asfortranarray(z), y, kind, None if kind == "logits" else precision_of(z))
    assert (reduced.top == top).all()
    assert (reduced.predicted == predicted).all()
    assert (reduced.at_label == at_label).all()
    np.testing.assert_allclose(reduced.others, others, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(reduced.squares, squares, rtol=1e-14)
    p = (
        np.exp(z.astype(np.float64) - top[:, None]) / (1 + others[:, None])
        if kind == "logits"
        else z.astype(np.float64)
    )
    at = p[np.arange(len(y)), y]
    np.testing.assert_allclose(finished.confidence, p.max(1), rtol=1e-14)
    np.testing.assert_allclose(finished.shortfall, 1 - p.max(1), atol=1e-15)
    with np.errstate(divide="ignore"):  # a probability of float16 that is 0
        np.testing.assert_allclose(finished.nll, -np.log(at), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(finished.brier, (p**2).sum(1) - 2 * at + 1, atol=1e-14)
    assert (finished.correct == (predicted == y)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_single_precision_has_its_digits(shape):
    z, y = data(shape, np.float32, "logits")
    reduced = kernel.reduce_rows(z, y, "logits", np.float32)
    top, at_label, others, squares, predicted = by_definition(z, y, "logits")
    expected = top, at_label, 1 + others, squares, predicted
    for values, exact in zip(reduced._replace(others=1 + reduced.others), expected, strict=True):
        np.testing.assert_allclose(values, exact, rtol=5e-7)
    # A difference of logits has an error of its last digit, and its exponential that many times as much.
    spread = np.ptp(z, axis=1) + 1
    np.testing.assert_allclose(reduced.others / others, 1, atol=float(2**-23 * spread.max()))


@pytest.mark.parametrize("extra", [0, 60])
def test_saturated_rows_keep_the_digits_of_the_shortfall(extra):
    gap = np.linspace(6, 36, 61, dtype=np.float32)
    z = np.concatenate([gap[:, None], np.zeros((61, 1)), np.full((61, 1 + extra), -700)], 1).astype(np.float32)
    reduced = kernel.reduce_rows(z, np.zeros(61, np.int64), "logits", np.float32)
    shortfall, expected = reduced.others, np.exp(-gap.astype(np.float64))
    assert shortfall == pytest.approx(expected, rel=1e-6, abs=3e-16)
    assert (np.diff(shortfall) < 0).all()


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_sketch_counts_what_the_rows_give(dtype, kind):
    z, y = data((3001, 11), dtype, kind)
    counted = y != 3
    sketch = ConfidenceSketch(kind=kind, ignore_index=3)
    sketch.update(z, y)
    _, rows = kernel.judge_rows(z[counted], y[counted], kind, None if kind == "logits" else precision_of(z))
    values = sketch.compute()
    expected = {"accuracy": rows.correct, "nll": rows.nll, "brier": rows.brier, "mean_confidence": rows.confidence}
    for name, column in expected.items():
        assert values[name] == pytest.approx(column.mean(), rel=2e-7), name
    assert sketch.cells.sum() == counted.sum()


def test_a_sketch_does_not_depend_on_threads(monkeypatch):
    z, y = data((20_000, 30), np.float32, "logits")
    states = []
    for number in ("1", "4"):
        monkeypatch.setenv("OMP_NUM_THREADS", number)
        sketch = ConfidenceSketch()
        sketch.update(z, y)
        sketch.update_confidence(np.linspace(0, 1, 20_000), y == 1)
        states.append(sketch)
    assert (states[0].cells == states[1].cells).all()
    assert (states[0].base_sums == states[1].base_sums).all()
    assert states[0].compute() == states[1].compute()


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(2003, 5), (500, 120)])
def test_an_audit_has_the_class_wise_error(shape, dtype, kind):
    z, y = data(shape, dtype, kind)
    make = Predictions.from_logits if kind == "logits" else Predictions.from_probabilities
    value = audit(make(z, y), replicates=20).metrics["classwise_ece"]
    assert value == pytest.approx(classwise_ece(z, y, kind=kind), abs=1e-6)


@pytest.mark.parametrize("classes", [7, 60])
def test_a_temperature_of_float32_is_that_of_float64(classes):
    """From float32 logits the first passes are in float32, the last ones in float64 all the same."""
    z, _ = data((20_003, classes), np.float32, "logits")
    y = (0.5 * z + np.random.default_rng(1).gumbel(size=z.shape)).argmax(1)  # drawn at temperature 2
    single, double = (TemperatureScaling().fit(z.astype(dtype), y) for dtype in (np.float32, np.float64))
    assert single.temperature_ == pytest.approx(double.temperature_, rel=1e-12)
    assert single.temperature_ == pytest.approx(2, rel=0.05)
    assert single.converged_


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("shape", [(2003, 9), (200, 70)])
def test_logits_are_normalised_by_their_norms(shape, centre):
    z, _ = data(shape, np.float64, "logits")
    z[5] = 2.0  # a row of equal logits
    scores = LogitNorm((1, 2, 5, 10), centre=centre).scores(z)
    v = z - z.mean(1, keepdims=True) if centre else z
    for p, score in scores.items():
        norm = (np.abs(v) ** p).sum(1) ** (1 / p)
        expected = np.divide(v.max(1), norm, out=np.zeros(len(v)), where=norm > 0)
        np.testing.assert_allclose(score, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [3, 60])
def test_extreme_logits_stay_finite(dtype, classes):
    z = np.full((4, classes), -1e4, dtype)
    z[:, :3] = [[1e4, -1e4, 0], [-1e38, 3e38, -3e38], [5, 5, 5], [0, -800, -90]]
    reduced, finished = kernel.judge_rows(z, np.array([1, 0, 2, 1]), "logits", None)
    assert np.isfinite(np.array(reduced[:4])).all()
    assert np.isfinite(np.array(finished[:5])).all()
    assert reduced.predicted.tolist() == [0, 1, 0, 0]
    assert reduced.others == pytest.approx([0, 0, 2, 0])
    assert kernel.reduce_rows(z, np.array([1, 0, 2, 1]), "logits", np.float32).others == pytest.approx([0, 0, 2, 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("classes", [5, 60])
def test_values_that_are_not_finite_are_refused(bad, dtype, classes):
    for row, column in ((0, 0), (3, 2), (9, 4)):
        z = np.zeros((10, classes), dtype)
        z[row, column] = bad
        with pytest.raises(ValueError, match=facts("logits", "NaN")):
            kernel.judge_rows(z, np.zeros(10, np.int64), "logits", None)
        with pytest.raises(ValueError, match=facts("logits", "NaN")):
            ConfidenceSketch().update(z, np.zeros(10, np.int64))


def test_a_refused_update_leaves_the_sketch_as_it_was():
    sketch = ConfidenceSketch(kind="probabilities")
    good, y = data((20_000, 2), np.float64, "probabilities")
    good[-1] = 0.5, 0.4
    with pytest.raises(ValueError, match=facts("probabilities", "0.9")):
        sketch.update(good, y)
    assert not sketch.cells.any()
