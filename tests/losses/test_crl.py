"""CRL with the indicator of ACLS."""

import torch

from calibrant import losses as L
from tests.helpers.loss_cases import batch, gradient


def test_crl_with_the_margin_condition_smooths_where_acls_would():
    z, y = batch()
    top, low = z.amax(1, keepdim=True), z.amin(1, keepdim=True)
    p, predicted = z.softmax(1), z.argmax(1, keepdim=True)
    r = p.gather(1, predicted)
    f = (-r * p).scatter(1, predicted, r * (1 - r))  # gradient of r
    active = (top - z > 6.0).scatter(1, predicted, top - low > 6.0)
    assert active.any()
    assert not active.all()
    loss = L.CRL(strength=0.7, indicator="margin", margin=6.0, reduction="sum")
    slope = gradient(loss, z, y) - gradient(L.CrossEntropy(reduction="sum"), z, y)
    torch.testing.assert_close(slope, 0.7 * f * active, rtol=1e-10, atol=1e-14)
