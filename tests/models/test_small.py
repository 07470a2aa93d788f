"""Small networks: what they must give, by hand, and the residual blocks that they share with others."""

import numpy as np
import pytest
import torch
from torch import nn

from calibrant import _torchvision
from calibrant.models import build
from calibrant.models.small import convolution
from tests.helpers.networks import count, on_meta

_torchvision.ensure()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_small_cnn_is_the_network_of_the_scenes_benchmark():
    """Written out; under the same seed the same weights, so that results on scenes carry over."""
    torch.manual_seed(5)
    layers = []
    for a, b, kernel, stride in [(3, 24, 5, 2), (24, 48, 3, 2), (48, 96, 3, 2), (96, 96, 3, 1)]:
        layers += [nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    expected = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 6))
    model = build("small_cnn", num_classes=6, seed=5)
    images = torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(model(images), expected(images))


def test_the_mlp_flattens_what_it_is_given():
    model = build("mlp", num_classes=3, input_size=(2, 3), hidden=(5, 4)).double()
    x = np.random.default_rng(0).normal(size=(7, 2, 3))
    value = x.reshape(7, 6)
    parts = [p.detach().numpy() for p in model.parameters()]
    for weight, bias in ((parts[0], parts[1]), (parts[2], parts[3])):
        value = np.maximum(value @ weight.T + bias, 0)
    np.testing.assert_allclose(model(torch.from_numpy(x)).detach(), value @ parts[4].T + parts[5])
    with pytest.raises(ValueError, match=r"takes \[N, ...\] with 6 numbers per sample, got \[7, 5\]"):
        model(torch.zeros(7, 5))


_torchvision.ensure()


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
