"""Soft targets are distributions; a perfect fit has no gradient."""

from calibrant import losses as L
from tests.helpers.loss_cases import batch, gradient


def test_perfectly_fitted_soft_targets_have_no_gradient():
    z, _ = batch(6, 4, scale=1.0)
    q = z.softmax(1)
    assert gradient(L.SoftTargetCrossEntropy(subtract_entropy=True), z, q).abs().max() < 1e-15
    assert abs(L.SoftTargetCrossEntropy(subtract_entropy=True)(z, q)) < 1e-14
