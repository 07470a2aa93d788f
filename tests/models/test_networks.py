"""The networks against their sources: torchvision, released code, tables of sizes, and versions written out."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from calibrant.base import torchvision_operators
from calibrant.models import build, describe
from calibrant.models.small import convolution
from tests.helpers.errors import facts
from tests.helpers.networks import RUN, SEGMENTATION, count, on_meta, saved

torchvision_operators.ensure()
import torchvision  # noqa: E402

pytestmark = pytest.mark.slow


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
        ("vgg16_cifar", 10, None, 14_991_946),  # Keras' summary, without running means and variances
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


def test_larger_images_are_averaged():
    model = build("vgg16_cifar", num_classes=7, seed=0).eval()
    images = torch.randn(2, 3, 64, 96)
    head = nn.Sequential(model.hidden, nn.ReLU(), model.norm, model.classifier)
    torch.testing.assert_close(model(images), head(model.features(images).mean((2, 3))))


#: LR's released code, layer by layer: convolutions by their channels, dropout by its rate, M is a max-pool.
RELEASED = [
    64, 0.3, 64, "M",
    128, 0.4, 128, "M",
    256, 0.4, 256, 0.4, 256, "M",
    512, 0.4, 512, 0.4, 512, "M",
    512, 0.4, 512, 0.4, 512, "M",
]  # fmt: skip


def test_vgg16_of_lr_has_the_layers_and_logits_of_the_released_code():
    """Running values and scales are moved away from 0 and 1, so that the order of ReLU and batch norm shows."""
    model = build("vgg16_cifar", num_classes=7, seed=5).double().eval()
    layers = [part for part in model.modules() if not list(part.children())]
    rates = [part.p for part in layers if isinstance(part, nn.Dropout)]
    assert rates == [*(one for one in RELEASED if isinstance(one, float)), 0.5, 0.5]
    for part in layers:
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            assert (part.eps, part.momentum) == (1e-3, pytest.approx(1 - 0.99))  # Keras counts what is kept
            for values in (part.weight.data, part.running_var):
                values.uniform_(0.5, 2)
            for values in (part.bias.data, part.running_mean):
                values.normal_()
    remaining = iter([p for p in layers if isinstance(p, nn.Conv2d | nn.Linear | nn.BatchNorm1d | nn.BatchNorm2d)])

    def normalised(x, part):
        shape = (1, -1) + (1,) * (x.dim() - 2)
        parts = (part.running_mean, part.running_var, part.weight, part.bias)
        mean, variance, scale, shift = (values.reshape(shape) for values in parts)
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
    hidden = next(remaining)
    x = normalised((x.flatten(1) @ hidden.weight.T + hidden.bias).clamp(min=0), next(remaining))
    last = next(remaining)
    torch.testing.assert_close(model(images), x @ last.weight.T + last.bias)


def test_vgg16_of_lr_starts_as_in_keras_and_drops_out_unless_told_otherwise():
    """Glorot and Bengio 2010, Eq. 16: uniform up to sqrt(6 / (fan-in + fan-out)); biases 0."""
    with_dropout, without = (build("vgg16_cifar", seed=0, dropout=dropout) for dropout in (True, False))
    for part in without.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            outputs, inputs = part.weight.shape[:2]
            bound = math.sqrt(6 / ((inputs + outputs) * part.weight[0, 0].numel()))
            largest, spread = part.weight.abs().max().item(), part.weight.std().item()
            assert 0.99 * bound < largest <= bound
            assert spread == pytest.approx(bound / math.sqrt(3), rel=0.05)
            assert not part.bias.any()
    assert list(with_dropout.state_dict()) == list(without.state_dict())
    images = torch.randn(4, 3, 32, 32)
    assert torch.equal(without(images), without(images))
    assert not torch.equal(with_dropout(images), with_dropout(images))
    with pytest.raises(ValueError, match=facts("dropout", "0.5")):
        build("vgg16_cifar", dropout=0.5)


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


@pytest.mark.parametrize(("name", "summed", "layers"), [("resnet20v2", 574_090, 20), ("resnet56v2", 1_673_738, 56)])
def test_resnets_v2_have_the_size_of_keras_example(name, summed, layers):
    """Keras' summary of its example cifar10_resnet counts running means and variances too."""
    model = on_meta(name)
    assert count(model, running=True) == summed
    depth = sum(isinstance(part, nn.Conv2d | nn.Linear) for part in model.modules()) - 3  # less the three projections
    assert depth == layers
    if name == "resnet56v2":
        assert describe(name).published == summed


def test_deeplabv3plus_has_the_parts_of_chen_2018():
    def layer(inputs, outputs, kernel):  # a convolution without bias, batch norm
        return kernel * kernel * inputs * outputs + 2 * outputs

    backbone = 44_549_160 - 2049 * 1000  # torchvision's ResNet-101 without its head
    pyramid = 2 * layer(2048, 256, 1) + 3 * layer(2048, 256, 3) + layer(5 * 256, 256, 1)
    decoder = layer(256, 48, 1) + layer(256 + 48, 256, 3) + layer(256, 256, 3)
    model = on_meta("deeplabv3plus_resnet101")
    assert count(model) == backbone + pyramid + decoder + 257 * 19
    assert [part[0].dilation[0] for part in model.aspp.convs[1:4]] == [6, 12, 18]
    assert model.backbone(torch.empty(1, 3, 64, 96, device="meta"))["out"].shape == (1, 2048, 4, 6)  # stride 16


@pytest.mark.parametrize("name", [name for name in SEGMENTATION if "101" not in name])
def test_segmentation_gives_logits_of_every_pixel(name):
    images = torch.empty(2, 3, 67, 98, device="meta")
    assert on_meta(name, num_classes=5)(images).shape == (2, 5, 67, 98)
    stride = 4 if "plus" in name else 8
    small = on_meta(name, num_classes=5, upsample=False)(images)
    assert small.shape == (2, 5, -(-67 // stride), -(-98 // stride))


def test_deeplabv3_gives_torchvisions_logits():
    theirs = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=5)
    model = build("deeplabv3_resnet50", num_classes=5).eval()
    model.load_state_dict(theirs.state_dict())
    images = torch.randn(1, 3, 33, 41)
    torch.testing.assert_close(model(images), theirs.eval()(images)["out"])


@pytest.mark.slow
def test_a_classifier_becomes_a_backbone(tmp_path):
    classifier = build("resnet50", num_classes=3)
    nn.init.normal_(classifier.bn1.running_mean)
    path = saved(tmp_path / "a.safetensors", classifier)
    plus = build("deeplabv3plus_resnet50", backbone_weights=path)
    detector = build("fasterrcnn_resnet50_fpn", backbone_weights=path)
    for body in (plus.backbone, detector.backbone.body):
        assert torch.equal(body.bn1.running_mean, classifier.bn1.running_mean)
        assert torch.equal(body.layer4[2].conv3.weight, classifier.layer4[2].conv3.weight)
    frozen = {key.split(".")[2] for key, p in detector.named_parameters() if not p.requires_grad}
    assert frozen == {"conv1", "layer1"}  # torchvision's default: three of five parts are trained


def slow_gpcn(model, x):
    """NumPy, window by window, from the description in MbLS's released code."""
    get = {name: p.detach().numpy() for name, p in model.named_parameters()}

    def windows(x):  # [L, D] to [L - 4, 5, D]
        return np.stack([x[i : i + 5] for i in range(len(x) - 4)])

    rows = []
    for one in x:
        for layer in ("conv1", "conv2", "conv3"):
            one = np.einsum("lkd,odk->lo", windows(one), get[f"{layer}.weight"]) + get[f"{layer}.bias"]
            one = np.maximum(one, 0)
            if layer != "conv3":
                one = windows(one).max(1)
        one = np.maximum(get["fc1.weight"] @ one.max(0) + get["fc1.bias"], 0)
        rows.append(get["fc2.weight"] @ one + get["fc2.bias"])
    return np.stack(rows)


@pytest.mark.parametrize("length", [21, 30])
def test_gpcn_is_the_released_network(length):
    rng = np.random.default_rng(0)
    vectors, words = rng.integers(-9, 9, size=(11, 6)) / 8, rng.integers(0, 11, size=(3, length))
    plain = build("gpcn", dimensions=6, num_classes=4).double()
    model = build("gpcn", vectors=vectors, num_classes=4).double()
    model.load_state_dict(plain.state_dict(), strict=False)
    expected = slow_gpcn(plain, vectors[words])
    np.testing.assert_allclose(model(torch.from_numpy(words)).detach(), expected, atol=1e-12)
    np.testing.assert_allclose(plain(torch.from_numpy(vectors[words])).detach(), expected, atol=1e-12)


def test_gpcn_freezes_given_vectors_unless_told_otherwise():
    vectors = np.ones((5, 3), np.float32)
    given, told = build("gpcn", vectors=vectors), build("gpcn", vectors=vectors, frozen=False)
    random, kept = build("gpcn", vocabulary_size=5), build("gpcn", vocabulary_size=5, frozen=True)
    assert [one.embedding.weight.requires_grad for one in (given, told, random, kept)] == [False, True, True, False]
    given(torch.randint(0, 5, (3, 25))).square().sum().backward()
    assert [key for key, p in given.named_parameters() if p.grad is None] == ["embedding.weight"]
    assert count(given) - 15 == 247_316 - 97 * 128 * 5  # three dimensions for a hundred
    for wrong, words in [
        ({"vectors": np.ones(3)}, ("vectors", "[3]")),
        ({"vectors": vectors, "vocabulary_size": 6}, ("vectors", "5", "vocabulary_size", "6")),
        ({"vectors": (vectors, 0.5)}, ("vectors", "tuple")),
        ({"frozen": True}, ("frozen", "True")),
        ({"vectors": vectors, "frozen": 1}, ("frozen", "1")),
    ]:
        with pytest.raises(ValueError, match=facts(*words)):
            build("gpcn", **wrong)
    for model, texts, words in [
        (given, torch.zeros(2, 20, dtype=torch.long), ("21", "20")),
        (given, torch.zeros(2, 30), ("[N, L]", "float32")),
        (build("gpcn"), torch.zeros(2, 30), ("[N, L, 100]", "[2, 30]")),
    ]:
        with pytest.raises(ValueError, match=facts(*words)):
            model(texts)


def test_word_vectors_start_short_and_padding_is_zero():
    """Vectors of deviation 1 would hardly change within an epoch of Adam's steps."""
    weight = build("gpcn", num_classes=20, vocabulary_size=3000).embedding.weight.detach()
    assert weight[1:].std().item() == pytest.approx(0.1, rel=0.02)
    assert not weight[0].any()
