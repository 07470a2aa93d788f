"""Label relaxation: digits near the border, limits, convexity."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant import losses as L
from tests.helpers.loss_cases import gradient


@pytest.mark.parametrize("alpha", [1e-10, 1e-3, 0.1, 0.4])
@pytest.mark.parametrize("distance", [1e-14, 1e-9, 1e-5, 1e-2])
def test_label_relaxation_keeps_its_digits_near_the_border(alpha, distance):
    """Two classes with 1 - p_y = alpha (1 + distance): KL by its Taylor series in delta, good to delta^4."""
    rest = alpha * (1 + distance)
    z = torch.tensor([[math.log1p(-rest) - math.log(rest), 0.0]], dtype=torch.float64)
    rest = float(torch.sigmoid(-z[0, 0]))  # what the rounded logit really says
    delta = rest - alpha
    series = sum(delta**k / k * ((1 - alpha) ** (1 - k) - (-1) ** (k + 1) * alpha ** (1 - k)) for k in range(2, 9))
    value = L.LabelRelaxation(alpha)(z.clone().requires_grad_(), torch.tensor([0])).item()
    if delta > 1e-15 * alpha:
        # delta itself carries the rounding of the logit's sigmoid, a few ulp of alpha.
        slack = 8e-16 * alpha / delta
        assert value == pytest.approx(series, rel=2 * slack + 1e-9, abs=1e-300)
    slope = gradient(L.LabelRelaxation(alpha), z, torch.tensor([0]))
    assert slope[0, 0].item() == pytest.approx(-max(delta, 0.0), rel=1e-9, abs=4e-16 * alpha)


def test_label_relaxation_with_vanishing_probability():
    # p_y = e^-2000 underflows; the loss is (1-a)(log(1-a) + 2000) + a log a to all digits.
    z, y, a = torch.tensor([[-2000.0, 0.0, -900.0]], dtype=torch.float64), torch.tensor([0]), 0.1
    expected = (1 - a) * (math.log(1 - a) + 2000) + a * math.log(a)
    assert L.LabelRelaxation(a)(z.clone().requires_grad_(), y).item() == pytest.approx(expected, rel=1e-15)
    torch.testing.assert_close(gradient(L.LabelRelaxation(a), z, y)[0, :2], z.new_tensor([-0.9, 0.9]))


@given(st.floats(0.01, 0.99), st.floats(-40, 40), st.integers(2, 6), st.integers(0, 10_000))
def test_label_relaxation_is_zero_inside_and_blind_to_the_other_classes(alpha, gap, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    others = 3 * torch.randn(1, classes, generator=generator, dtype=torch.float64)
    others = others - others.logsumexp(1, keepdim=True)
    z, y = torch.cat([torch.tensor([[gap]], dtype=torch.float64), others], 1), torch.tensor([0])
    loss = L.LabelRelaxation(alpha)
    p = torch.sigmoid(torch.tensor(gap, dtype=torch.float64)).item()
    value = loss(z.clone().requires_grad_(), y).item()
    if p >= 1 - alpha + 1e-12:
        assert value == 0
        assert (gradient(loss, z, y) == 0).all()
    elif p <= 1 - alpha - 1e-12:
        assert value > 0
    same_mass = torch.tensor([[gap] + [-math.log(classes)] * classes], dtype=torch.float64)
    assert loss(same_mass, y).item() == pytest.approx(value, rel=1e-9, abs=1e-14)


@settings(max_examples=200)
@given(st.floats(0.01, 0.9), st.floats(0, 1), st.integers(0, 10_000))
def test_label_relaxation_is_convex_in_the_prediction(alpha, t, seed):
    generator = torch.Generator().manual_seed(seed)
    p, q = torch.rand(2, 1, 4, generator=generator, dtype=torch.float64).clamp(min=1e-6)
    p, q = p / p.sum(), q / q.sum()
    loss, y = L.LabelRelaxation(alpha), torch.tensor([1])
    mixed = loss((t * p + (1 - t) * q).log(), y)
    assert mixed <= t * loss(p.log(), y) + (1 - t) * loss(q.log(), y) + 1e-12
