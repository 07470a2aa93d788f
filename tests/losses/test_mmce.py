"""MMCE at its edges, against the pairwise sum."""

import math

import pytest
import torch

from calibrant import losses as L
from tests.helpers.loss_cases import gradient
from tests.reference import losses as R


def test_mmce_released_is_zero_without_both_groups_and_finite_where_its_root_is_undefined():
    z = torch.tensor([[3.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    for labels in ([0, 0], [1, 1]):
        terms = L.MMCE().terms(z, torch.tensor(labels))
        assert terms["regulariser"] == 0
        assert torch.isfinite(gradient(L.MMCE(), z, torch.tensor(labels))).all()
    same = torch.tensor([[math.log(10.0), 0.0]] * 11, dtype=torch.float64)
    labels = torch.tensor([0] + [1] * 10)
    assert torch.isfinite(gradient(L.MMCE(), same, labels)).all()
    expected = R.mmce(same.numpy(), labels.numpy())["regulariser"][0]
    assert L.MMCE().terms(same, labels)["regulariser"].item() == pytest.approx(expected, abs=1e-9)


def test_mmce_with_equal_confidences_matches_the_pairwise_sum():
    z = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0], [1.0, 0.0, 0.0]] * 3, dtype=torch.float64)
    y = torch.tensor([0, 1, 0, 0, 2, 1, 2, 1, 0, 1, 1, 0])
    for weighted in (True, False):
        for variant in ("released", "paper"):
            loss = L.MMCE(weighted=weighted, variant=variant)
            expected = R.mmce(z.numpy(), y.numpy(), weighted=weighted, variant=variant)["regulariser"][0]
            assert loss.terms(z, y)["regulariser"].item() == pytest.approx(expected, rel=1e-12)
