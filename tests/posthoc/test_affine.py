"""What vector and matrix scaling have in common: limits, and what was done to the logits is undone."""

import numpy as np
import pytest
import torch

from calibrant.posthoc import MatrixScaling, TemperatureScaling, VectorScaling
from tests.helpers.calibrators import drawn

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
