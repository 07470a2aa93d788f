"""Weights of whole rows of probabilities, in a sketch and its intervals: against repeated rows and scikit-learn."""

import math

import numpy as np
import pytest
import sklearn.metrics

from calibrant import metrics as M
from calibrant.metrics import ConfidenceSketch
from calibrant.metrics.summary import Confidences
from tests.helpers.errors import facts

RNG = np.random.default_rng(8)
LOGITS = np.round(RNG.normal(size=(211, 5)) * 2, 1)
LABELS = (LOGITS / 2 + RNG.gumbel(size=LOGITS.shape)).argmax(1)
WEIGHT = RNG.gamma(0.5, 3.0, len(LABELS))
TIMES = RNG.integers(0, 5, len(LABELS))
FUNCTIONS = [M.nll, M.brier, M.classwise_ece]


def softmax(z):
    p = np.exp(z - z.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
@pytest.mark.parametrize("metric", FUNCTIONS)
def test_whole_weights_are_repeated_rows(metric, kind):
    values = LOGITS if kind == "logits" else softmax(LOGITS)
    repeated = metric(np.repeat(values, TIMES, 0), np.repeat(LABELS, TIMES), kind=kind)
    assert metric(values, LABELS, weight=TIMES, kind=kind) == pytest.approx(repeated, rel=1e-12)
    assert metric(values, LABELS, weight=np.full(len(LABELS), 0.3), kind=kind) == metric(values, LABELS, kind=kind)


def test_scikit_learn_has_the_same_proper_scores():
    p = softmax(LOGITS)
    expected = sklearn.metrics.log_loss(LABELS, p, sample_weight=WEIGHT, labels=range(5))
    assert M.nll(LOGITS, LABELS, weight=WEIGHT) == pytest.approx(expected, rel=1e-12)
    binary = p[:, :2] / p[:, :2].sum(1, keepdims=True)
    expected = sklearn.metrics.brier_score_loss(LABELS == 1, binary[:, 1], sample_weight=WEIGHT)
    value = M.brier(binary, (LABELS == 1).astype(int), weight=WEIGHT, kind="probabilities", scale="half")
    assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("metric", FUNCTIONS)
def test_ignored_positions_have_no_weight(metric):
    z, y = np.moveaxis(LOGITS[:210].reshape(7, 5, 6, 5), 3, 1), LABELS[:210].reshape(7, 5, 6)
    by_image = RNG.gamma(1.0, 1.0, 7)
    counted = RNG.random(y.shape) < 0.7
    weights = np.broadcast_to(by_image[:, None, None], y.shape)
    expected = metric(np.moveaxis(z, 1, -1)[counted], y[counted], weight=weights[counted])
    y = np.where(counted, y, 255)
    for weight in (by_image, weights):
        assert metric(z, y, weight=weight, ignore_index=255) == pytest.approx(expected, rel=1e-12)


def test_mean_iou_counts_an_image_as_often_as_it_weighs():
    predicted, labels = RNG.integers(0, 4, (2, 9, 3, 5))
    times = RNG.integers(0, 3, 9)
    repeated = M.mean_iou(np.repeat(predicted, times, 0), np.repeat(labels, times, 0), classes=4)
    assert M.mean_iou(predicted, labels, classes=4, weight=times) == pytest.approx(repeated, rel=1e-12)


def sketch_of(weight=None, rows=slice(None), **settings):
    sketch = ConfidenceSketch(**settings)
    sketch.update(LOGITS[rows], LABELS[rows], weight=None if weight is None else weight[rows])
    return sketch


def test_a_sketch_has_the_metrics_of_the_weighted_samples():
    confidence, _, correct = M.top_label(LOGITS, LABELS)
    summary = sketch_of(WEIGHT).summary()
    for name, value in summary.metrics().items():
        function = getattr(M, M.describe(name).name.partition("_0.")[0].removesuffix("_15"), None)
        if name in ("nll", "brier"):
            assert value == pytest.approx(function(LOGITS, LABELS, weight=WEIGHT), rel=1e-12)
        elif name in ("accuracy", "mean_confidence"):
            column = correct if name == "accuracy" else confidence
            assert value == pytest.approx(function(column, weight=WEIGHT), rel=1e-12)
        else:
            base, setting = M.split_name(name)
            settings = {} if setting is None else {M.METRICS[base].setting: setting}
            exact = getattr(M, base)(confidence, correct, weight=WEIGHT, **settings)
            assert abs(value - exact) <= value.bound + 1e-12, name
    assert summary.effective == pytest.approx(WEIGHT.sum() ** 2 / (WEIGHT**2).sum())


def test_weights_add_up_over_batches_sketches_and_scales():
    whole = sketch_of(WEIGHT)
    parts = sketch_of(WEIGHT, slice(0, 100)) + sketch_of(WEIGHT, slice(100, None))
    for name, value in whole.compute().items():
        assert parts.compute()[name] == pytest.approx(value, rel=1e-12)
        assert sketch_of(1e6 * WEIGHT).compute()[name] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("constant", [1.0, 0.1, 7e5])
def test_equal_weights_are_none(constant):
    sketch, plain = sketch_of(np.full(len(LABELS), constant)), sketch_of()
    assert not sketch.summary().is_weighted
    assert sketch.compute() == pytest.approx(plain.compute(), rel=1e-12)
    for name, interval in M.intervals(sketch.summary()).items():
        expected = M.intervals(plain.summary())[name]
        assert vars(interval) == pytest.approx(vars(expected), rel=1e-9, nan_ok=True), name


def test_a_sketch_with_weights_is_saved_and_loaded(tmp_path):
    for weight, version in ((WEIGHT, "2"), (None, "1")):
        sketch = sketch_of(weight)
        sketch.save(tmp_path / "a.safetensors")
        loaded = ConfidenceSketch.load(tmp_path / "a.safetensors")
        assert loaded.compute() == sketch.compute()
        assert M.intervals(loaded.summary()) == M.intervals(sketch.summary())
        assert f'"version":"{version}"'.encode() in (tmp_path / "a.safetensors").read_bytes()[:500]


@pytest.mark.parametrize("weight", [np.ones(3), -np.ones(211), np.full(211, math.nan), np.array(["a"] * 211)])
def test_weights_that_are_none(weight):
    sketch = ConfidenceSketch()
    with pytest.raises(ValueError, match=facts("weight")):
        sketch.update(LOGITS, LABELS, weight=weight)
    with pytest.raises(ValueError, match=facts("weight")):
        M.nll(LOGITS, LABELS, weight=weight)
    assert not sketch.cells.any()


@pytest.mark.parametrize("exact", [True, False])
def test_intervals_are_as_wide_as_weighted_samples_scatter(exact):
    """Replicates of the rows themselves, with their weights: the plain bootstrap."""
    rng = np.random.default_rng(3)
    z = np.repeat(LOGITS, 10, 0) + rng.normal(size=(2110, 5))
    y = (0.6 * z + rng.gumbel(size=z.shape)).argmax(1)
    correct = z.argmax(1) == y
    weight = rng.gamma(1.0, 1.0, len(y)) * np.where(correct, 0.4, 1.6)  # the wrong ones were drawn less often
    sketch, kept = ConfidenceSketch(), Confidences()
    for top in M.top_label_blocks(z, y, kind="logits", weight=weight):
        sketch.observe(top)
        kept.add(top)
    summary = kept.exact(sketch.summary()) if exact else sketch.summary()
    names = ("accuracy", "nll", "brier", "mean_confidence", "aurc", "auroc", "risk_at_coverage_0.8")
    intervals = M.intervals(summary, only=names, replicates=400)
    confidence = M.top_label(z)[0]
    nll, brier = (
        np.concatenate(part)
        for part in zip(*[(t.nll, t.brier) for t in M.top_label_blocks(z, y, kind="logits")], strict=True)
    )
    draws = {name: [] for name in names}
    for _ in range(300):
        rows = rng.integers(0, len(y), len(y))
        c, r, w = confidence[rows], correct[rows], weight[rows]
        values = {"accuracy": M.accuracy(r, weight=w), "mean_confidence": M.mean_confidence(c, weight=w),
                  "nll": np.average(nll[rows], weights=w), "brier": np.average(brier[rows], weights=w),
                  "aurc": M.aurc(c, r, weight=w), "auroc": M.auroc(c, r, weight=w),
                  "risk_at_coverage_0.8": M.risk_at_coverage(c, r, 0.8, weight=w)}  # fmt: skip
        for name, value in values.items():
            draws[name].append(value)
    for name, interval in intervals.items():
        assert interval.high - interval.low == pytest.approx(2 * 1.96 * np.std(draws[name]), rel=0.2), name


@pytest.mark.parametrize("constant", [0.5, 0.1, 2.0, 1e20])
def test_equal_weights_are_saved_as_what_they_are(constant, tmp_path):
    """Others may be added to them, so that they matter after all."""
    halves = sketch_of(np.full(len(LABELS), constant), slice(0, 100)), sketch_of(WEIGHT, slice(100, None))
    halves[0].save(tmp_path / "a.safetensors")
    loaded = ConfidenceSketch.load(tmp_path / "a.safetensors")
    assert loaded.summary().samples == 100
    assert loaded.compute() == halves[0].compute()
    assert (loaded + halves[1]).compute() == (halves[0] + halves[1]).compute()


@pytest.mark.parametrize(
    ("scale", "fact"), [(1e101, "1e+100"), (1e300, "1e+100"), (1e-101, "1e-100"), (1e-300, "1e-100")]
)
def test_weights_whose_squares_cannot_be_summed_are_refused(scale, fact):
    with pytest.raises(ValueError, match=facts("weight", fact)):
        sketch_of(scale * np.maximum(WEIGHT, 0.5) / WEIGHT.max()).compute()


def test_a_label_of_probability_zero_counts_as_little_as_its_sample():
    p, y, weight = np.array([[1.0, 0.0], [0.3, 0.7], [0.6, 0.4]]), np.array([1, 1, 0]), np.array([0.0, 1.0, 2.0])
    expected = -(math.log(0.7) + 2 * math.log(0.6)) / 3
    assert M.nll(p, y, weight=weight, kind="probabilities") == pytest.approx(expected, rel=1e-12)
    sketch = ConfidenceSketch(kind="probabilities")
    sketch.update(p, y, weight=weight)
    assert sketch.compute()["nll"] == pytest.approx(expected, rel=1e-12)
    nll = np.tile(-np.log(np.maximum(p[[0, 1, 2], y], 1e-320)), 8)
    nll[::3] = math.inf
    correct = np.tile([False, True, True], 8)
    confidence = np.tile([1.0, 0.7, 0.6], 8)
    first, second = (M.Judged(confidence, correct, nll=part, weight=np.tile(weight, 8)) for part in (nll, 2 * nll))
    assert M.paired_differences(first, second, replicates=20)["nll"].value == pytest.approx(expected, rel=1e-12)
