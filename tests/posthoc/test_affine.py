"""Vector and matrix scaling against the papers' objectives, SciPy's optimiser and each other; limits."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from calibrant.posthoc import MatrixScaling, TemperatureScaling, VectorScaling
from tests.helpers.calibrators import Y, Z, drawn, slopes
from tests.reference import posthoc as reference

AFFINE = ["vector", "matrix"]


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


def test_a_matrix_without_its_off_diagonal_is_vector_scaling():
    z, y = drawn(401, 6, 6, scale=2.5, skew=0.3)
    matrix = MatrixScaling(1e9, 0.0, strength=0.0).fit(z, y)
    vector = VectorScaling(0.0).fit(z, y)
    assert torch.allclose(matrix.predict_proba(z), vector.predict_proba(z), atol=1e-5)


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


def test_vector_scaling_without_a_factor_of_the_hessian(monkeypatch):
    def refuse(matrix):
        raise np.linalg.LinAlgError

    expected = VectorScaling().fit(Z, Y)
    monkeypatch.setattr(np.linalg, "cholesky", refuse)
    found = VectorScaling().fit(Z, Y)
    assert found.converged_
    assert found.passes_ > expected.passes_
    np.testing.assert_allclose(found.weight_, expected.weight_, rtol=1e-4)
    np.testing.assert_allclose(found.bias_, expected.bias_, atol=1e-4)
