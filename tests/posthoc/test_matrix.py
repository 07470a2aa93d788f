"""Matrix scaling against the paper's objective, SciPy's optimiser and vector scaling."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from calibrant.posthoc import MatrixScaling, TemperatureScaling, VectorScaling
from tests.helpers.calibrators import drawn, slopes
from tests.reference import posthoc as reference


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
