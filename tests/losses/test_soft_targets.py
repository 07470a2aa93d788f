"""Soft targets are distributions; a perfect fit has no gradient."""

import pytest
import torch.nn.functional as F

from calibrant import losses as L
from tests.helpers.loss_cases import CLASSES, batch, gradient


def test_perfectly_fitted_soft_targets_have_no_gradient():
    z, _ = batch(6, 4, scale=1.0)
    q = z.softmax(1)
    assert gradient(L.SoftTargetCrossEntropy(subtract_entropy=True), z, q).abs().max() < 1e-15
    assert abs(L.SoftTargetCrossEntropy(subtract_entropy=True)(z, q)) < 1e-14


def test_soft_target_cross_entropy_checks_distributions():
    z, y = batch()
    loss = L.SoftTargetCrossEntropy()
    for bad in (F.one_hot(y, CLASSES).double() * 2, F.one_hot(y, CLASSES).double() - 0.1):
        with pytest.raises(ValueError, match="takes distributions over dimension 1"):
            loss(z, bad)
