"""Torchvision's classifiers and their stems against torchvision and public counts."""

import pytest
import torch
import torch.nn.functional as F

from calibrant import _torchvision
from calibrant.models import build, describe
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
