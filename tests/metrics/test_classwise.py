"""Class-wise ECE against the slow one of tests/reference."""

import numpy as np
import pytest
import torch

from calibrant import metrics as M
from tests.helpers.metric_data import LOGITS, close
from tests.reference import metrics as R

scored = pytest.mark.parametrize("data", LOGITS.values(), ids=LOGITS.keys())


@scored
@pytest.mark.parametrize("size", [1, 7, 15])
def test_classwise_ece(data, size):
    z, y = R.rows_of(*data)
    expected = R.classwise_ece(np.array(z), y, bins=size, average=None)
    np.testing.assert_allclose(M.classwise_ece(*data, bins=size, average=None), expected, rtol=1e-12, atol=2e-15)
    assert M.classwise_ece(*data, bins=size) == close(float(np.mean(expected)), rel=1e-12)


def test_probabilities_on_edges_of_bins():
    p = torch.tensor([[0.2, 0.8], [0.6, 0.4], [1.0, 0.0], [0.4, 0.6]])
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        given, y = p.to(dtype), [0, 1, 0, 1]
        expected = R.classwise_ece(given, y, bins=5, kind="probabilities", average=None)
        seen = M.classwise_ece(given, y, bins=5, kind="probabilities", average=None)
        np.testing.assert_allclose(seen, expected, rtol=1e-14)
