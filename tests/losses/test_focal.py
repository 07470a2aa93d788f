"""Focal loss by hand, and against binary cross-entropy's form of it."""

import math

import pytest
import torch

from calibrant.losses import Focal


def test_two_classes_by_hand():
    # p_y = 3/4 from logits log 3 and 0: -(1/4)^2 log(3/4).
    z, y = torch.tensor([[math.log(3.0), 0.0]], dtype=torch.float64), torch.tensor([0])
    assert Focal(gamma=2.0)(z, y).item() == pytest.approx(-math.log(0.75) / 16, rel=1e-14)


@pytest.mark.parametrize("gamma", [0.3, 1.0, 3.0])
def test_the_gradient_is_finite_where_the_label_has_all_or_none(gamma):
    z = torch.tensor([[100.0, 0.0, -3.0], [-100.0, 0.0, 5.0]], requires_grad=True)
    Focal(gamma)(z, torch.tensor([0, 0])).backward()
    assert torch.isfinite(z.grad).all()
    assert z.grad[1, 0] < 0  # the label that lost is still pulled up
