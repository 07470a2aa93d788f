"""Networks for CIFAR against the released code, He et al.'s table and Keras' example."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from calibrant import _torchvision
from calibrant.models import build, describe
from tests.helpers.networks import count, on_meta

_torchvision.ensure()

#: The released code, layer by layer: convolutions by their channels, dropout by its rate, M is a max-pool.
RELEASED = [
    64, 0.3, 64, "M",
    128, 0.4, 128, "M",
    256, 0.4, 256, 0.4, 256, "M",
    512, 0.4, 512, 0.4, 512, "M",
    512, 0.4, 512, 0.4, 512, "M",
]  # fmt: skip


def layers(model: nn.Module) -> list[nn.Module]:
    return [part for part in model.modules() if not list(part.children())]


def counts(model: nn.Module) -> tuple[int, int]:
    """What is trained, and all that Keras counts: running means and variances too."""
    trained = sum(p.numel() for p in model.parameters())
    running = sum(b.numel() for name, b in model.named_buffers() if name.endswith(("running_mean", "running_var")))
    return trained, trained + running


@pytest.mark.parametrize(("classes", "channels"), [(10, 3), (100, 3), (7, 1)])
def test_parameters_are_those_of_keras_summary(classes, channels):
    with torch.device("meta"):
        model = build("vgg16_cifar", num_classes=classes, in_channels=channels)
    widths = [one for one in RELEASED if isinstance(one, int)]
    trained = sum(9 * a * b + b for a, b in zip([channels, *widths], widths, strict=False))
    trained += 512 * 512 + 512 + 513 * classes + 2 * (sum(widths) + 512)
    assert counts(model) == (trained, trained + 2 * (sum(widths) + 512))
    if (classes, channels) == (10, 3):
        assert counts(model) == (14_991_946, 15_001_418)
        assert describe("vgg16_cifar").published == 15_001_418


def test_layers_come_in_the_order_of_the_released_code():
    expected: list[tuple] = []
    for one in RELEASED:
        if one == "M":
            expected.append(("MaxPool2d", 2))
        elif isinstance(one, float):
            expected.append(("Dropout", one))
        else:
            expected += [("Conv2d", one), ("ReLU",), ("BatchNorm2d", one)]
    expected += [("AdaptiveAvgPool2d", 1), ("Flatten",), ("Dropout", 0.5), ("Linear", 512), ("ReLU",)]
    expected += [("BatchNorm1d", 512), ("Dropout", 0.5), ("Linear", 10)]
    sizes = ("out_channels", "num_features", "out_features", "kernel_size", "output_size", "p")
    with torch.device("meta"):
        model = build("vgg16_cifar")
    found = []
    for part in layers(model):
        size = [getattr(part, key) for key in sizes if hasattr(part, key)]
        found.append((type(part).__name__, *size[-1:]) if not isinstance(part, nn.Conv2d) else ("Conv2d", size[0]))
    assert found == expected
    for part in layers(model):
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            assert (part.eps, part.momentum) == (1e-3, pytest.approx(1 - 0.99))  # Keras counts what is kept


def test_logits_are_those_of_the_released_order():
    """Running values and scales are moved away from 0 and 1, so that the order of ReLU and batch norm shows."""
    model = build("vgg16_cifar", num_classes=7, seed=5).double().eval()
    torch.manual_seed(0)
    for part in layers(model):
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            for values in (part.weight.data, part.running_var):
                values.uniform_(0.5, 2)
            for values in (part.bias.data, part.running_mean):
                values.normal_()
    remaining = iter(
        [p for p in layers(model) if isinstance(p, nn.Conv2d | nn.Linear | nn.BatchNorm1d | nn.BatchNorm2d)]
    )

    def normalised(x, part):
        shape = (1, -1) + (1,) * (x.dim() - 2)
        mean, variance, scale, shift = (
            v.reshape(shape) for v in (part.running_mean, part.running_var, part.weight, part.bias)
        )
        return (x - mean) / torch.sqrt(variance + 1e-3) * scale + shift

    images = torch.rand(3, 3, 32, 32, dtype=torch.float64)
    x = images
    for one in RELEASED:
        if one == "M":
            x = F.max_pool2d(x, 2)
        elif isinstance(one, int):
            convolution = next(remaining)
            x = F.conv2d(x, convolution.weight, convolution.bias, padding=1)
            x = normalised(x.clamp(min=0), next(remaining))
    assert x.shape == (3, 512, 1, 1)
    hidden = next(remaining)
    x = normalised((x.flatten(1) @ hidden.weight.T + hidden.bias).clamp(min=0), next(remaining))
    last = next(remaining)
    torch.testing.assert_close(model(images), x @ last.weight.T + last.bias)


def test_weights_start_as_in_keras():
    """Glorot and Bengio 2010, Eq. 16: uniform up to sqrt(6 / (fan-in + fan-out)); biases 0."""
    for part in layers(build("vgg16_cifar", seed=0)):
        if isinstance(part, nn.Conv2d | nn.Linear):
            outputs, inputs = part.weight.shape[:2]
            bound = math.sqrt(6 / ((inputs + outputs) * part.weight[0, 0].numel()))
            largest, spread = part.weight.abs().max().item(), part.weight.std().item()
            assert 0.99 * bound < largest <= bound
            assert spread == pytest.approx(bound / math.sqrt(3), rel=0.05)
            assert not part.bias.any()


def test_gradients_reach_every_parameter():
    model = build("vgg16_cifar", seed=0)
    model(torch.randn(4, 3, 32, 32)).square().sum().backward()
    for key, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.any(), key  # biases too: a ReLU is between them and batch norm


def test_dropout_is_the_codes_and_can_be_left_out():
    images = torch.randn(4, 3, 32, 32)
    with_dropout, without = (build("vgg16_cifar", seed=0, dropout=dropout) for dropout in (True, False))
    assert list(with_dropout.state_dict()) == list(without.state_dict())
    assert torch.equal(without(images), without(images))
    assert not torch.equal(with_dropout(images), with_dropout(images))
    with pytest.raises(ValueError, match=r"dropout must be True or False, got 0.5$"):
        build("vgg16_cifar", dropout=0.5)


def test_larger_images_are_averaged():
    model = build("vgg16_cifar", num_classes=7, seed=0).eval()
    images = torch.randn(2, 3, 64, 96)
    head = nn.Sequential(model.hidden, nn.ReLU(), model.norm, model.classifier)
    torch.testing.assert_close(model(images), head(model.features(images).mean((2, 3))))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


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
