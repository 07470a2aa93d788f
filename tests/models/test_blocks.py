"""Blocks of residual networks against their definition."""

import pytest
import torch
from torch import nn

from calibrant import _torchvision
from calibrant.models import build
from calibrant.models.blocks import convolution
from tests.helpers.networks import count, on_meta

_torchvision.ensure()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_the_shortcut_of_option_a_drops_pixels_and_adds_zeros():
    block = build("resnet20").trunk.stages[1][0].eval()
    nn.init.zeros_(block.bn2.weight)  # leaves the shortcut alone
    x = torch.rand(2, 16, 6, 6)
    expected = torch.zeros(2, 32, 3, 3)
    expected[:, 8:24] = x[:, :, ::2, ::2]
    torch.testing.assert_close(block(x), expected)
    assert count(on_meta("resnet20", shortcut="project")) == 269_722 + 16 * 32 + 64 + 32 * 64 + 128


@pytest.mark.parametrize("inputs", [2, 7, 8])
def test_a_projection_is_a_strided_convolution(inputs):
    """Values and gradients of torch's own, on channels-last images with an odd side, where torch's own may crash."""
    torch.manual_seed(0)
    projection = convolution(inputs, 5, 1, stride=2)
    x = torch.randn(3, inputs, 6, 7, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    projection = projection.double()
    y = projection(x)
    weight, plain = projection.weight.detach().clone().requires_grad_(), x.detach().contiguous().requires_grad_()
    expected = torch.einsum("oi,nihw->nohw", weight[:, :, 0, 0], plain[:, :, ::2, ::2])
    torch.testing.assert_close(y, expected)
    slope = torch.randn_like(y)
    y.backward(slope)
    expected.backward(slope)
    torch.testing.assert_close(x.grad, plain.grad)
    torch.testing.assert_close(projection.weight.grad, weight.grad)
