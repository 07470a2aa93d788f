"""The small networks against versions written out."""

import numpy as np
import pytest
import torch
from torch import nn

from calibrant import _torchvision
from calibrant.models import build

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
