"""FLSD at its exact thresholds."""

import math

import pytest
import torch

from calibrant import losses as L


@pytest.mark.parametrize("offset", [0.0, 1.0, 3.0, 1e3])
@pytest.mark.parametrize(("classes", "gamma"), [(5, 3.0), (5, 2.0), (2, 2.0)])
@pytest.mark.parametrize("variant", ["released", "paper"])
def test_flsd_at_exact_thresholds(offset, classes, gamma, variant):
    """Equal logits put p exactly on 0.2 or 0.5, which belongs to the range above; an offset changes nothing."""
    z, y = torch.full((3, classes), offset, dtype=torch.float64), torch.arange(3) % classes
    exponent = 3.0 if (classes == 5 and variant == "released") else gamma
    expected = (1 - 1 / classes) ** exponent * math.log(classes)
    loss = L.FLSD(gamma, variant)
    assert loss(z, y).item() == pytest.approx(expected, rel=1e-14)
    assert loss(z.clone().requires_grad_(), y).item() == pytest.approx(expected, rel=1e-14)
