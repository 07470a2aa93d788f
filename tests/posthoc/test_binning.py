"""Isotonic regression against scikit-learn and the max-min formula; bins by hand and by slow versions; small memory."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from calibrant.posthoc import HistogramBinning, IsotonicCalibration, binning
from calibrant.posthoc.binning import pool
from tests.helpers.calibrators import METHODS, Y, Z, drawn
from tests.reference import posthoc as reference

CURVES = {
    "smooth": lambda rng: (rng.random(401), None),
    "ties": lambda rng: (rng.integers(0, 12, 307) / 12, None),
    "falling": lambda rng: (np.linspace(0, 1, 53), (np.arange(53) < 26).astype(float)),
    "rising": lambda rng: (np.linspace(0, 1, 53), (np.arange(53) > 26).astype(float)),
    "one": lambda rng: (np.array([0.3]), np.array([1.0])),
    "ends": lambda rng: (np.array([0.0, 1.0, 0.0, 1.0, 0.5]), np.array([0.0, 1.0, 1.0, 1.0, 0.0])),
}


@pytest.mark.parametrize("curve", CURVES)
def test_the_function_is_scikit_learns(curve):
    """Two classes and the log-odds of p for logits, so that the softmax gives p again."""
    rng = np.random.default_rng(0)
    p, hit = CURVES[curve](rng)
    hit = (rng.random(len(p)) < p**2).astype(float) if hit is None else hit
    inside = np.clip(p, 1e-12, 1 - 1e-12)
    z = np.stack([np.log1p(-inside), np.log(inside)], 1)
    fitted = IsotonicCalibration().fit(z, hit.astype(int))
    exact = torch.as_tensor(z).softmax(1)[:, 1].numpy()
    theirs = IsotonicRegression(out_of_bounds="clip").fit(exact, hit)
    inner = np.isfinite(fitted.knots_[1])
    np.testing.assert_allclose(fitted.knots_[1][inner], theirs.X_thresholds_, atol=1e-15)
    np.testing.assert_allclose(fitted.shares_[1][inner], theirs.y_thresholds_, atol=1e-14)
    new = np.linspace(0.001, 0.999, 211)
    logits = np.stack([np.log1p(-new), np.log(new)], 1)
    rows = torch.as_tensor(logits).softmax(1).numpy()
    other = IsotonicRegression(out_of_bounds="clip").fit(torch.as_tensor(z).softmax(1)[:, 0].numpy(), 1 - hit)
    shares = np.stack([other.predict(rows[:, 0]), theirs.predict(rows[:, 1])], 1)
    expected = [reference.one_vs_rest(row, share) for row, share in zip(rows.tolist(), shares, strict=True)]
    np.testing.assert_allclose(fitted.predict_proba(logits), expected, atol=1e-12)


def test_every_class_has_scikit_learns_function():
    z, y = drawn(211, 4, 11, scale=2.0, skew=0.3)
    new, _ = drawn(97, 4, 12, scale=2.5)
    p, q = z.softmax(1).numpy(), new.softmax(1).numpy()
    models = [IsotonicRegression(out_of_bounds="clip").fit(p[:, k], (y == k).double().numpy()) for k in range(4)]
    shares = np.stack([models[k].predict(q[:, k]) for k in range(4)], 1)
    expected = [reference.one_vs_rest(row, share) for row, share in zip(q, shares, strict=True)]
    np.testing.assert_allclose(IsotonicCalibration().fit(z, y).predict_proba(new), expected, atol=1e-12)


def test_the_confidence_has_scikit_learns_function():
    z, y = drawn(311, 4, 13, scale=2.0)
    p = z.softmax(1).numpy()
    model = IsotonicRegression(out_of_bounds="clip").fit(p.max(1), (z.argmax(1) == y).double().numpy())
    shares = model.predict(p.max(1))
    found = IsotonicCalibration("top-label").fit(z, y).predict_proba(z).numpy()
    for row, share, q in zip(p, shares, found, strict=True):
        expected = reference.top_label(row, share)
        if expected[row.argmax()] > 1.001 * sorted(expected)[-2]:  # else the rest is flattened
            np.testing.assert_allclose(q, expected, atol=1e-11)
        else:
            assert q.max() == pytest.approx(max(expected[row.argmax()], 1 / 4), abs=1e-5)
            assert q.argmax() == row.argmax()


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=25))
def test_pooling_is_the_max_min_formula(pairs):
    p, hit = [a / 10 for a, _ in pairs], [int(b) for _, b in pairs]
    expected = reference.isotonic(p, hit)
    points = sorted(expected)
    sums = np.array([sum(h for q, h in zip(p, hit, strict=True) if q == x) for x in points], dtype=float)
    counts = np.array([p.count(x) for x in points], dtype=float)
    starts = pool(sums, counts)
    means = np.add.reduceat(sums, starts) / np.add.reduceat(counts, starts)
    found = np.repeat(means, np.diff([*starts, len(points)]))
    np.testing.assert_allclose(found, [expected[x] for x in points], atol=1e-14)
    assert (np.diff(means) > 0).all()


@pytest.mark.parametrize("size", [1, 2, 1000, 4096])
def test_pooling_of_weighted_means_where_runs_pool_slowly(size):
    """A ramp whose last value is far too low pools one block at a time, from the right."""
    values = np.arange(size, dtype=float)
    values[-1] = -size / 8
    weights = np.random.default_rng(1).uniform(0.5, 2, size)
    theirs = IsotonicRegression().fit_transform(np.arange(size), values, sample_weight=weights)
    starts = pool(values * weights, weights)
    means = np.add.reduceat(values * weights, starts) / np.add.reduceat(weights, starts)
    np.testing.assert_allclose(np.repeat(means, np.diff([*starts, size])), theirs, rtol=1e-12, atol=1e-12)


def test_bins_by_hand():
    """p of class 1: 0.1, 0.2, 0.2, 0.7, 0.9 with hits 0, 1, 0, 1, 1; bins of 1/4; none in (0.25, 0.5]."""
    p = np.array([0.1, 0.2, 0.2, 0.7, 0.9])
    z = np.stack([np.log(1 - p), np.log(p)], 1)
    y = np.array([0, 1, 0, 1, 1])
    found = HistogramBinning(4).fit(z, y)
    assert found.edges_.tolist() == [[0.25, 0.5, 0.75, 1.0]] * 2
    assert found.shares_[1].tolist() == pytest.approx([1 / 3, 0.375, 1.0, 1.0])
    assert found.shares_[0].tolist() == pytest.approx([0.0, 0.0, 0.625, 2 / 3])
    assert found.predict_proba(z)[0].tolist() == pytest.approx([2 / 3, 1 / 3], abs=1e-5)
    mass = HistogramBinning(2, binning="mass").fit(z, y)
    assert mass.edges_[1].tolist() == pytest.approx([0.45, 1.0])
    assert mass.shares_[1].tolist() == pytest.approx([1 / 3, 1.0])
    many = HistogramBinning(50, binning="mass").fit(z, y)
    assert many.edges_[1].tolist() == pytest.approx([0.15, 0.45, 0.8, 1.0])
    assert many.shares_[1].tolist() == pytest.approx([0.0, 0.5, 1.0, 1.0])


def test_an_edge_belongs_to_the_bin_below():
    """Equal logits of four classes have p = 1/4 exactly: the first of four bins."""
    z, y = np.zeros((3, 4)), np.array([1, 1, 2])
    found = HistogramBinning(4).fit(z, y)
    assert found.shares_[:, 0].tolist() == pytest.approx([0, 2 / 3, 1 / 3, 0])
    assert found.shares_[:, 1:].tolist() == [[0.375, 0.625, 0.875]] * 4
    assert found.predict_proba(z)[0].tolist() == pytest.approx([0, 2 / 3, 1 / 3, 0], abs=1e-5)


@pytest.mark.parametrize("bins", [1, 2, 15])
def test_bins_of_equal_width_are_the_references(bins):
    z, y = drawn(157, 4, 14, scale=2.0)
    p = z.softmax(1).numpy()
    found = HistogramBinning(bins).fit(z, y)
    for k in range(4):
        assert found.shares_[k].tolist() == pytest.approx(
            reference.width_shares(p[:, k].tolist(), (y == k).int().tolist(), bins)
        )
    shares = [[found.shares_[k][reference.width_bin(row[k], bins)] for k in range(4)] for row in p]
    expected = [reference.one_vs_rest(row, share) for row, share in zip(p, shares, strict=True)]
    np.testing.assert_allclose(found.predict_proba(z), expected, atol=1e-12)
    top = HistogramBinning(bins, mode="top-label").fit(z, y)
    hits = (z.argmax(1) == y).int().tolist()
    assert top.shares_[0].tolist() == pytest.approx(reference.width_shares(p.max(1).tolist(), hits, bins))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=60), st.integers(1, 9))
def test_bins_of_equal_mass_lose_nobody(values, bins):
    p = np.array(values) / 21 + 0.01
    z, y = np.stack([np.log(1 - p), np.log(p)], 1), np.arange(len(p)) % 2
    found = HistogramBinning(bins, binning="mass").fit(z, y)
    exact = torch.as_tensor(z).softmax(1)[:, 1].numpy()
    edges = found.edges_[1][np.isfinite(found.edges_[1])]
    place = np.searchsorted(edges, exact)
    counts = np.bincount(place, minlength=len(edges))
    assert counts.min() >= 1
    assert len(edges) <= bins
    shares = np.bincount(place, y) / counts
    np.testing.assert_allclose(found.shares_[1][: len(edges)], shares)
    if len(set(values)) == len(values):
        assert counts.max() - counts.min() <= 1


def test_a_row_without_any_share_keeps_its_softmax():
    isotonic = IsotonicCalibration()
    isotonic.restore({"lengths": [2, 2, 2], "knots": [0.7, 0.9] * 3, "shares": [0.0, 1.0] * 3}, 3)
    z = np.array([[0.3, 0.2, 0.0]])
    expected = reference.softmax(z[0])
    assert isotonic.predict_proba(z)[0].tolist() == pytest.approx(expected, abs=1e-12)
    flat = IsotonicCalibration()
    flat.restore({"lengths": [1, 1, 1], "knots": [0.5] * 3, "shares": [0.2, 0.2, 0.6]}, 3)
    assert flat.predict_proba(z)[0].tolist() == pytest.approx([0.2, 0.2, 0.6], abs=1e-5)


@pytest.mark.parametrize("make", [METHODS["isotonic"], METHODS["histogram mass"]])
def test_a_small_budget_takes_more_passes_and_changes_nothing(make, monkeypatch):
    expected = make().fit(Z, Y)
    monkeypatch.setattr(binning, "BUDGET", 2 * 9 * len(Y))
    found = make().fit(Z, Y)
    assert (expected.passes_, found.passes_) == (2, 4)
    assert torch.equal(found.transform(Z), expected.transform(Z))
