"""Torchvision's classifiers and their stems against torchvision and public counts; LR's VGG16 against its code."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from calibrant import _torchvision
from calibrant.models import build, describe
from tests.helpers.errors import facts
from tests.helpers.networks import RUN, count, on_meta

_torchvision.ensure()
import torchvision  # noqa: E402


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("name", "classes", "stem", "expected"),
    [
        # counts of kuangliu/pytorch-cifar's networks, which are those of Mukhoti2020's code for CIFAR-10
        ("resnet50", 10, "32", 23_520_842),
        ("densenet121", 10, "32", 6_956_298),
        ("vgg16_bn", 10, "32", 14_728_266),
        # Keras' VGG16 without its top has 14,714,688 parameters; then 512 -> 10
        ("vgg16", 10, "32", 14_714_688 + 5_130),
        # Mukhoti2020's code for Tiny-ImageNet: a 3x3 convolution for the 7x7, and 2048 x 2 x 2 inputs for the head
        ("resnet50", 200, "64", 25_557_032 - 9_408 - 2_049_000 + 1_728 + 8_193 * 200),
        # torchvision's table; the auxiliary head, not built here, has 3x3x1024x256 + 2x256 + 257x21 parameters
        ("deeplabv3_resnet50", 21, None, 42_004_074 - 2_365_205),
    ],
)
def test_parameters_of_other_forms(name, classes, stem, expected):
    assert count(on_meta(name, num_classes=classes, stem=stem)) == expected


@pytest.mark.parametrize("name", RUN)
def test_classifiers_give_a_row_of_logits_per_image(name):
    about = describe(name)
    for stem in about.stems or (None,):
        side = about.input_size[1] if stem in (None, "imagenet") else int(stem)
        for channels in (1, 3):
            given = {"input_size": channels * side**2} if name == "mlp" else {"in_channels": channels}
            model = on_meta(name, num_classes=7, stem=stem, **given)
            assert model(torch.empty(2, channels, side, side, device="meta")).shape == (2, 7)


def test_networks_of_torchvision_are_torchvisions():
    model = build("resnet18", num_classes=5, seed=3).eval()
    torch.manual_seed(3)
    theirs, images = torchvision.models.resnet18(num_classes=5).eval(), torch.randn(2, 3, 48, 40)
    torch.testing.assert_close(model(images), theirs(images))


def test_the_stem_of_64_averages_to_two_by_two():
    model = build("resnet18", num_classes=5, stem="64").eval()
    images = torch.randn(2, 3, 64, 64)
    x = F.relu(model.bn1(F.conv2d(images, model.conv1.weight, padding=1)))
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        x = stage(x)
    assert x.shape == (2, 512, 8, 8)
    quarters = x.unflatten(2, (2, 4)).unflatten(4, (2, 4)).mean((3, 5))
    torch.testing.assert_close(model(images), quarters.flatten(1) @ model.fc.weight.T + model.fc.bias)


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
    with pytest.raises(ValueError, match=facts("dropout", "0.5")):
        build("vgg16_cifar", dropout=0.5)


def test_larger_images_are_averaged():
    model = build("vgg16_cifar", num_classes=7, seed=0).eval()
    images = torch.randn(2, 3, 64, 96)
    head = nn.Sequential(model.hidden, nn.ReLU(), model.norm, model.classifier)
    torch.testing.assert_close(model(images), head(model.features(images).mean((2, 3))))
