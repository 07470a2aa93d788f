"""Vector, matrix and ensemble scaling, isotonic regression and histogram binning, against slow versions from the
papers' formulas, scikit-learn, SciPy's optimisers, values worked by hand and limit cases."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

from calibrant.posthoc import (
    EnsembleTemperatureScaling,
    HistogramBinning,
    IsotonicCalibration,
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
    tables,
)
from calibrant.posthoc.isotonic import pav
from tests.calibrator_data import METHODS, Y, Z, drawn, nll
from tests.reference import posthoc as reference

AFFINE = ["vector", "matrix"]


# ---- vector and matrix scaling ---------------------------------------------------------------------------------------
def slopes(objective, x, step=1e-5):
    """The gradient by central differences."""
    for i in range(len(x)):
        ahead, behind = x.copy(), x.copy()
        ahead[i] += step
        behind[i] -= step
        yield (objective(ahead) - objective(behind)) / (2 * step)


@pytest.mark.parametrize("strength", [0.0, 0.1, 3.0])
def test_vector_scaling_minimises_the_papers_objective(strength):
    z, y = drawn(61, 4, 3, scale=2.0, skew=0.4)
    scaling, t = VectorScaling(strength).fit(z, y), TemperatureScaling().fit(z, y).temperature_

    def objective(x):
        return reference.vector_objective(z.numpy(), y.tolist(), x[:4], x[4:], t, strength)

    found = np.concatenate([scaling.weight_, scaling.bias_])
    assert max(map(abs, slopes(objective, found))) < 1e-6
    best = minimize(objective, np.array([1 / t] * 4 + [0.0] * 4), method="BFGS", options={"gtol": 1e-6})
    assert objective(found) <= best.fun + 1e-9
    assert objective(found) == pytest.approx(best.fun, abs=1e-7)
    assert scaling.converged_
    assert scaling.gradient_ < 1e-6


@pytest.mark.parametrize(
    ("off_diagonal", "intercept", "strength"), [(0.5, 0.01, 0.1), (0.0, 0.0, 0.0), (2.0, 1.0, 5.0)]
)
def test_matrix_scaling_minimises_the_papers_objective(off_diagonal, intercept, strength):
    z, y = drawn(59, 3, 4, scale=2.0, skew=0.4)
    scaling = MatrixScaling(off_diagonal, intercept, strength=strength).fit(z, y)
    t = TemperatureScaling().fit(z, y).temperature_

    def objective(x):
        w, b = x[:9].reshape(3, 3), x[9:]
        return reference.matrix_objective(z.numpy(), y.tolist(), w, b, off_diagonal, intercept, t, strength)

    found = np.concatenate([scaling.weight_.ravel(), scaling.bias_])
    assert max(map(abs, slopes(objective, found))) < 1e-6
    best = minimize(objective, np.concatenate([np.eye(3).ravel() / t, np.zeros(3)]), options={"gtol": 1e-6})
    assert objective(found) == pytest.approx(best.fun, abs=1e-7)
    assert scaling.converged_


def test_formulas_by_hand():
    vector, matrix = VectorScaling(), MatrixScaling()
    vector.restore({"weight": [2.0, 0.5], "bias": [1.0, -1.0]}, 2)
    assert vector.transform(np.array([[1.0, 4.0]])).tolist() == [[3.0, 1.0]]
    matrix.restore({"weight": [[1.0, 2.0], [0.0, 3.0]], "bias": [0.5, 0.0]}, 2)
    assert matrix.transform(np.array([[1.0, 4.0]])).tolist() == [[9.5, 12.0]]


@pytest.mark.parametrize("name", AFFINE)
def test_a_strong_pull_is_temperature_scaling(name):
    z, y = drawn(307, 6, 5, scale=2.5, skew=0.3)
    strong = VectorScaling(1e9) if name == "vector" else MatrixScaling(1e9, 1e9, strength=1e9)
    expected = TemperatureScaling().fit(z, y).transform(z)
    assert torch.allclose(strong.fit(z, y).transform(z), expected, atol=1e-4)


def test_a_matrix_without_its_off_diagonal_is_vector_scaling():
    z, y = drawn(401, 6, 6, scale=2.5, skew=0.3)
    matrix = MatrixScaling(1e9, 0.0, strength=0.0).fit(z, y)
    vector = VectorScaling(0.0).fit(z, y)
    assert torch.allclose(matrix.predict_proba(z), vector.predict_proba(z), atol=1e-5)


@pytest.mark.parametrize("name", AFFINE)
def test_what_was_done_to_the_logits_is_undone(name):
    generator = torch.Generator().manual_seed(7)
    z, y = drawn(20011, 3, 7)
    turn = torch.diag(torch.tensor([1.0, 2.0, 3.0])).double()
    if name == "matrix":
        turn += 0.3 * torch.rand(3, 3, generator=generator).double()
    wrong = z @ turn + torch.tensor([0.0, 1.0, -1.0])
    made = VectorScaling() if name == "vector" else MatrixScaling(1e-4, 1e-6)
    found = made.fit(wrong, y).predict_proba(wrong)
    assert float((found - z.softmax(1)).abs().mean()) < 0.01
    assert float((wrong.softmax(1) - z.softmax(1)).abs().mean()) > 0.1


def test_a_missing_class_keeps_a_modest_probability():
    z, y = drawn(503, 5, 9)
    scaling = VectorScaling().fit(z, torch.where(y == 2, 1, y))
    assert scaling.converged_
    assert abs(scaling.bias_).max() < 10
    assert 0 < float(scaling.predict_proba(z)[:, 2].mean()) < 0.01


def test_many_classes():
    """More than the Hessian is taken for as a whole: the same optimum, by its gradient."""
    z, y = drawn(3001, 300, 10, scale=2.0, skew=0.2)
    scaling = VectorScaling().fit(z.float(), y)
    assert scaling.converged_
    w, b = (torch.tensor(v, requires_grad=True) for v in (scaling.weight_, scaling.bias_))
    z = z.float().double()
    t = TemperatureScaling().fit(z, y).temperature_
    u = w * z + b
    loss = torch.nn.functional.cross_entropy(u, y) + 0.1 / 3001 * (u - z / t).square().mean(0).sum()
    loss.backward()
    assert float(torch.cat([w.grad, b.grad]).norm()) < 1e-6


# ---- isotonic regression ---------------------------------------------------------------------------------------------
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
    starts = pav(sums, counts)
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
    starts = pav(values * weights, weights)
    means = np.add.reduceat(values * weights, starts) / np.add.reduceat(weights, starts)
    np.testing.assert_allclose(np.repeat(means, np.diff([*starts, size])), theirs, rtol=1e-12, atol=1e-12)


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
    monkeypatch.setattr(tables, "BUDGET", 2 * 9 * len(Y))
    found = make().fit(Z, Y)
    assert (expected.passes_, found.passes_) == (2, 4)
    assert torch.equal(found.transform(Z), expected.transform(Z))


# ---- histogram binning -----------------------------------------------------------------------------------------------
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


# ---- ensemble temperature scaling ------------------------------------------------------------------------------------
@pytest.mark.parametrize("objective", ["nll", "mse"])
@pytest.mark.parametrize("noise", [0, 40])
def test_weights_are_the_best_of_the_simplex(objective, noise):
    z, y = drawn(151, 4, 15, scale=3.0)
    y[:noise] = (y[:noise] + 1) % 4
    scaling = EnsembleTemperatureScaling(objective).fit(z, y)
    assert scaling.temperature_ == TemperatureScaling().fit(z, y).temperature_
    parts = [reference.ets(z.numpy(), scaling.temperature_, w) for w in np.eye(3).tolist()]

    def value(w):
        q = sum(a * part for a, part in zip(w, parts, strict=True))
        if objective == "nll":
            return -np.log(q[np.arange(151), y]).mean()
        return np.square(q - np.eye(4)[y]).sum(1).mean()

    best, grid = value(scaling.weights_), [value(w) for w in reference.simplex(60)]
    assert best <= min(grid) + 1e-12
    assert best >= min(grid) - 1e-3
    assert scaling.weights_.sum() == pytest.approx(1)
    assert scaling.weights_.min() >= 0
    assert scaling.converged_
    expected = reference.ets(z.numpy(), scaling.temperature_, scaling.weights_.tolist())
    np.testing.assert_allclose(scaling.predict_proba(z), expected, atol=1e-12)


def test_weights_of_known_mixtures():
    generator = torch.Generator().manual_seed(16)
    z, y = drawn(40009, 5, 16)
    plain = EnsembleTemperatureScaling().fit(3 * z, y)
    assert plain.temperature_ == pytest.approx(3, abs=0.1)
    assert plain.weights_[0] > 0.9  # only the temperature was wrong
    noisy = torch.where(
        torch.rand(len(y), generator=generator) < 0.4, torch.randint(5, y.shape, generator=generator), y
    )
    mixed = EnsembleTemperatureScaling().fit(z, noisy)
    assert mixed.temperature_ > 1.5
    found = mixed.predict_proba(z)
    truth = 0.6 * z.softmax(1) + 0.4 / 5
    assert float((found - truth).abs().mean()) < 0.02
    assert nll(found.log(), noisy) < nll(TemperatureScaling().fit(z, noisy).transform(z), noisy) - 0.01


def test_labels_that_no_part_but_the_uniform_allows():
    """Logits of 1e4: all but the predicted class have probability 0, with T as without."""
    z = 1e4 * torch.eye(3).double()[torch.arange(50) % 3]
    y = torch.where(torch.arange(50) < 10, (torch.arange(50) + 1) % 3, torch.arange(50) % 3)
    scaling = EnsembleTemperatureScaling().fit(z, y)
    assert float(scaling.predict_proba(z).amax(1).mean()) == pytest.approx(0.8, abs=1e-6)


def test_the_uniform_part_never_stands_alone():
    """Labels that follow the lowest logit: no part but the uniform one is any good, and the prediction still stays."""
    for objective in ("nll", "mse"):
        scaling = EnsembleTemperatureScaling(objective).fit(Z, Z.argmin(1))
        assert scaling.weights_[:2].sum() > 0
        assert torch.equal(scaling.transform(Z.float()).argmax(1), Z.argmax(1))
        assert float(scaling.predict_proba(Z).amax()) < 0.21


def test_vector_scaling_without_a_factor_of_the_hessian(monkeypatch):
    expected = VectorScaling().fit(Z, Y)
    factor = torch.linalg.cholesky_ex
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda matrix: (factor(matrix)[0] * torch.nan, torch.tensor(1)))
    found = VectorScaling().fit(Z, Y)
    assert found.converged_
    np.testing.assert_allclose(found.weight_, expected.weight_, rtol=1e-4)
    np.testing.assert_allclose(found.bias_, expected.bias_, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_ties_leave_a_doubt_that_no_temperature_takes(scale):
    """Every label has the largest logit, and some share it: the confidence wanted is never reached."""
    z = torch.tensor([[1.0, 1.0, 0.0], [3.0, 0.0, 0.0], [2.0, 2.0, 2.0], [0.0, 5.0, 1.0]] * 5, dtype=torch.float64)
    scaling = TemperatureScaling().fit(scale * z, torch.tensor([0, 0, 1, 1] * 5))
    assert 1e-20 * scale <= scaling.temperature_ <= scale
    probabilities = scaling.predict_proba(scale * z)
    np.testing.assert_allclose(probabilities[:4, :2], [[0.5, 0.5], [1, 0], [1 / 3, 1 / 3], [0, 1]], atol=1e-2)
