"""Losses at the limit where they are cross-entropy."""

import torch

from calibrant import losses as L
from tests.helpers.loss_cases import batch, gradient


def test_limits_are_cross_entropy():
    z, y = batch(9, 5)
    expected, slope = L.CrossEntropy()(z, y), gradient(L.CrossEntropy(), z, y)
    for loss in (
        L.Focal(gamma=0.0),
        L.LabelSmoothing(alpha=0.0),
        L.LabelSmoothing(alpha=0.0, spread="others"),
        L.MbLS(margin=1e6),
        L.ACLS(margin=1e6),
        L.ACLS(lambda1=0.0, lambda2=0.0),
        L.ConfidencePenalty(strength=0.0),
        L.MDCA(strength=0.0),
        L.MMCE(strength=0.0),
        L.CPC(lambda1=0.0, lambda2=0.0),
        L.CRL(),
        L.LabelRelaxation(alpha=0.0),
    ):
        torch.testing.assert_close(loss(z, y), expected, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(gradient(loss, z, y), slope, rtol=1e-11, atol=1e-14)
