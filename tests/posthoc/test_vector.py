"""Vector scaling against the paper's objective and SciPy's optimiser, with missing and with many classes."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from calibrant.posthoc import TemperatureScaling, VectorScaling
from tests.helpers.calibrators import Y, Z, drawn, slopes
from tests.reference import posthoc as reference


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
    expected = VectorScaling().fit(Z, Y)
    factor = torch.linalg.cholesky_ex
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda matrix: (factor(matrix)[0] * torch.nan, torch.tensor(1)))
    found = VectorScaling().fit(Z, Y)
    assert found.converged_
    np.testing.assert_allclose(found.weight_, expected.weight_, rtol=1e-4)
    np.testing.assert_allclose(found.bias_, expected.bias_, atol=1e-4)
