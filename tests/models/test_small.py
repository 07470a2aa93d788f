"""Small networks against versions written out, blocks against their definition, ResNets for CIFAR against tables."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from calibrant import _torchvision
from calibrant.models import build, describe
from calibrant.models.small import convolution
from tests.helpers.errors import facts
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
    with pytest.raises(ValueError, match=facts("[7, 5]")):
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


@pytest.mark.parametrize(("name", "printed"), [("resnet20", "0.27M"), ("resnet56", "0.85M")])
def test_resnets_for_cifar_have_the_size_of_he_2016_table_6(name, printed):
    assert f"{count(on_meta(name)) / 1e6:.2f}M" == printed == f"{describe(name).published / 1e6:.2f}M"


def keras_resnet_v2(n: int, classes: int) -> tuple[int, int]:
    """Trainable and other parameters of Keras' example cifar10_resnet, summed by its rules."""

    def layer(inputs, filters, kernel, norm_of):  # a convolution with bias, batch norm over norm_of channels
        return kernel * kernel * inputs * filters + filters + 2 * norm_of, 2 * norm_of

    parts = [layer(3, 16, 3, 16)]
    channels, narrow = 16, 16
    for stage in range(3):
        wide = narrow * (4 if stage == 0 else 2)
        for block in range(n):
            parts.append(layer(channels, narrow, 1, 0 if (stage, block) == (0, 0) else channels))
            parts += [layer(narrow, narrow, 3, narrow), layer(narrow, wide, 1, narrow)]
            parts += [layer(channels, wide, 1, 0)] if block == 0 else []
            channels = wide
        narrow = wide
    parts += [(2 * channels, 2 * channels), ((channels + 1) * classes, 0)]
    return sum(a for a, _ in parts), sum(b for _, b in parts)


@pytest.mark.parametrize(("name", "n"), [("resnet20v2", 2), ("resnet56v2", 6)])
@pytest.mark.parametrize("classes", [10, 100])
def test_resnets_v2_have_the_size_of_keras_example(name, n, classes):
    model = on_meta(name, num_classes=classes)
    trained, running = keras_resnet_v2(n, classes)
    assert (count(model), count(model, running=True)) == (trained, trained + running)
    depth = sum(isinstance(part, nn.Conv2d | nn.Linear) for part in model.modules()) - 3  # less the three projections
    assert depth == 9 * n + 2
    if (name, classes) == ("resnet56v2", 10):
        assert trained + running == 1_673_738 == describe(name).published  # Keras' summary


def test_a_new_preactivation_block_follows_keras_order():
    model = build("resnet20v2").eval()
    first, second = model.blocks[0], model.blocks[1]
    x = torch.randn(2, 64, 5, 5)

    def layer(x, conv, padding=0):  # a new batch norm has mean 0, variance 1, scale 1, shift 0
        return F.conv2d((x / np.sqrt(1 + 1e-3)).clamp(min=0), conv.weight, conv.bias, padding=padding)

    y = layer(layer(x, second.conv1), second.conv2, 1)
    torch.testing.assert_close(second(x), x + layer(y, second.conv3))
    x = torch.randn(2, 16, 5, 5)  # the network's first block takes what the first layer has activated
    y = layer(layer(F.conv2d(x, first.conv1.weight), first.conv2, 1), first.conv3)
    torch.testing.assert_close(first(x), F.conv2d(x, first.shortcut.weight) + y)
