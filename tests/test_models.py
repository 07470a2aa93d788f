"""Networks by name: sizes against published figures, values against slow versions, weights, and every refusal."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from calibrant import _torchvision
from calibrant.models import Architecture, build, describe, names
from calibrant.models.weights import head_of

_torchvision.ensure()
import torchvision  # noqa: E402

CLASSIFIERS = [
    "mlp", "small_cnn", "small_resnet", "resnet20", "resnet56", "resnet20v2", "resnet56v2", "vgg16_cifar",
    "densenet_bc_100_12", "resnet18", "resnet34", "resnet50", "resnet101", "vgg16", "vgg16_bn", "densenet121",
    "densenet161", "densenet169", "densenet201", "vit_b_16", "vit_s_16",
]  # fmt: skip
SEGMENTATION = ["deeplabv3_resnet50", "deeplabv3_resnet101", "deeplabv3plus_resnet50", "deeplabv3plus_resnet101"]
SEGMENTATION += ["deeplabv3plus_small"]


def on_meta(name: str, **options) -> nn.Module:
    with torch.device("meta"):
        return build(name, **options)


def count(model: nn.Module, running: bool = False) -> int:
    total = sum(p.numel() for p in model.parameters())
    if running:
        total += sum(b.numel() for name, b in model.named_buffers() if name.endswith(("running_mean", "running_var")))
    return total


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_names_are_all_there_in_order():
    assert list(names()) == [*CLASSIFIERS, *SEGMENTATION, "fasterrcnn_resnet50_fpn", "gpcn"]
    assert [list(names("classification")), list(names("segmentation"))] == [CLASSIFIERS, SEGMENTATION]
    with pytest.raises(ValueError, match=r"unknown task 'sound': expected one of classification, segmentation"):
        names("sound")


@pytest.mark.parametrize("name", names())
def test_every_entry_is_complete(name):
    about = describe(name)
    assert isinstance(about, Architecture)
    assert all([about.name == name, about.summary, about.source, about.input_size, about.num_classes >= 2])
    assert (about.published is None) == (not about.published_in)
    assert not {"num_classes", "stem"} & set(about.defaults())
    assert not about.torchvision or name in torchvision.models.list_models()


AS_BUILT = {
    # torchvision's documentation, table of available weights
    "resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032, "resnet101": 44_549_160,
    "vgg16": 138_357_544, "vgg16_bn": 138_365_992, "densenet121": 7_978_856, "densenet161": 28_681_000,
    "densenet169": 14_149_480, "densenet201": 20_013_928, "vit_b_16": 86_567_656, "fasterrcnn_resnet50_fpn": 41_755_286,
    "vit_s_16": 22_050_664,  # timm's table of results: vit_small_patch16_224, 22.05 million
    "densenet_bc_100_12": 769_162,  # Huang et al. 2017, Table 2: 0.8M; public PyTorch ports count 769,162
    "mlp": 785 * 1024 + 1025 * 1024 + 1025 * 10,  # LR's text: two hidden layers of 1024, for 784 pixels
    # Mukhoti2020's and MbLS's code: Conv1d(100, 128, 5), twice Conv1d(128, 128, 5), 128 -> 128 -> 20
    "gpcn": 501 * 128 + 2 * 641 * 128 + 129 * 128 + 129 * 20,
}  # fmt: skip


@pytest.mark.parametrize("name", AS_BUILT)
def test_parameters_are_as_many_as_published(name):
    assert count(on_meta(name)) == describe(name).published == AS_BUILT[name]


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


#: Of the large families one is enough to run; all are counted above.
RUN = [
    name for name in CLASSIFIERS if name not in ("densenet161", "densenet169", "densenet201", "resnet34", "vit_b_16")
]


@pytest.mark.parametrize("name", RUN)
def test_classifiers_give_a_row_of_logits_per_image(name):
    about = describe(name)
    for stem in about.stems or (None,):
        side = about.input_size[1] if stem in (None, "imagenet") else int(stem)
        for channels in (1, 3):
            given = {"input_size": channels * side**2} if name == "mlp" else {"in_channels": channels}
            model = on_meta(name, num_classes=7, stem=stem, **given)
            assert model(torch.empty(2, channels, side, side, device="meta")).shape == (2, 7)


@pytest.mark.parametrize("name", SEGMENTATION)
def test_segmentation_gives_logits_of_every_pixel(name):
    images = torch.empty(2, 3, 67, 98, device="meta")
    assert on_meta(name, num_classes=5)(images).shape == (2, 5, 67, 98)
    stride = 4 if "plus" in name else 8
    small = on_meta(name, num_classes=5, upsample=False)(images)
    assert small.shape == (2, 5, -(-67 // stride), -(-98 // stride))


def test_detection_gives_losses_and_detections():
    model = build("fasterrcnn_resnet50_fpn", num_classes=4)
    model.transform.min_size, model.transform.max_size = (32,), 32
    target = {"boxes": torch.tensor([[4.0, 5.0, 20.0, 30.0]]), "labels": torch.tensor([3])}
    losses = model([torch.rand(3, 32, 32)], [target])
    assert set(losses) == {"loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
    assert all(torch.isfinite(value) for value in losses.values())
    with torch.no_grad():
        (found,) = model.eval()([torch.rand(3, 32, 32)])
    assert set(found) == {"boxes", "labels", "scores"}


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


def test_deeplabv3_gives_torchvisions_logits():
    theirs = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=5)
    model = build("deeplabv3_resnet50", num_classes=5).eval()
    model.load_state_dict(theirs.state_dict())
    images = torch.randn(1, 3, 33, 41)
    torch.testing.assert_close(model(images), theirs.eval()(images)["out"])


def test_the_shortcut_of_option_a_drops_pixels_and_adds_zeros():
    block = build("resnet20").trunk.stages[1][0].eval()
    nn.init.zeros_(block.bn2.weight)  # leaves the shortcut alone
    x = torch.rand(2, 16, 6, 6)
    expected = torch.zeros(2, 32, 3, 3)
    expected[:, 8:24] = x[:, :, ::2, ::2]
    torch.testing.assert_close(block(x), expected)
    assert count(on_meta("resnet20", shortcut="project")) == 269_722 + 16 * 32 + 64 + 32 * 64 + 128


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
        ({"vectors": np.ones(3)}, r"must be a table \[V, D\] of numbers, got shape \[3\]"),
        ({"vectors": vectors, "vocabulary_size": 6}, "vectors has 5 rows, and vocabulary_size is 6"),
        ({"vectors": (vectors, 0.5)}, r"must be a table \[V, D\] of numbers, got tuple"),
        ({"frozen": True}, "frozen=True is about an embedding"),
        ({"vectors": vectors, "frozen": 1}, "frozen must be True or False, got 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            build("gpcn", **wrong)
    for model, texts, words in [
        (given, torch.zeros(2, 20, dtype=torch.long), "at least 21 words, padding included, got 20"),
        (given, torch.zeros(2, 30), r"word indices \[N, L\], got torch.float32"),
        (build("gpcn"), torch.zeros(2, 30), r"word vectors \[N, L, 100\], got shape \[2, 30\]"),
    ]:
        with pytest.raises(ValueError, match=words):
            model(texts)


@pytest.mark.parametrize("name", ["small_cnn", "resnet20v2", "resnet18", "gpcn"])
def test_initial_weights_follow_the_seed_alone(name):
    before = torch.get_rng_state()
    first, again, other = (build(name, seed=seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)
    plain = build(name).state_dict()
    assert all(torch.equal(first[key], again[key]) and torch.equal(first[key], plain[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("mlp", {}, (1, 28, 28)), ("small_cnn", {}, (3, 32, 32)), ("small_resnet", {}, (3, 64, 64)),
        ("resnet20", {}, (3, 16, 16)), ("resnet20", {"shortcut": "project"}, (3, 16, 16)),
        ("resnet56v2", {}, (3, 8, 8)), ("densenet_bc_100_12", {}, (3, 8, 8)), ("gpcn", {}, (40, 100)),
        ("resnet18", {"stem": "64"}, (3, 16, 16)), ("vgg16_bn", {"stem": "32"}, (3, 32, 32)),
        ("vit_s_16", {"image_size": 32}, (3, 32, 32)), ("deeplabv3plus_small", {}, (3, 45, 60)),
    ],
)  # fmt: skip
def test_gradients_reach_every_parameter(name, options, size):
    model = build(name, **options)
    if name == "vit_s_16":
        nn.init.normal_(model.heads.head.weight)  # starts at zero, which stops gradients at the first step
    model(torch.randn(3, *size)).square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        # A bias before batch norm, or of the keys of attention, has no effect, and a gradient of zero.
        assert parameter.dim() < 2 or parameter.grad.any(), key


def saved(path: Path, model: nn.Module, wrapped=lambda state: state) -> Path:
    state = wrapped(model.state_dict())
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


@pytest.mark.parametrize(
    ("file", "wrapped"),
    [
        ("a.safetensors", lambda state: state),
        ("a.pt", lambda state: state),
        ("a.pth", lambda state: {"epoch": 3, "state_dict": state}),
        ("b.pt", lambda state: {f"module.{key}": value for key, value in state.items()}),
        ("c.pt", lambda state: {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}),
    ],
)
def test_weights_come_back(tmp_path, file, wrapped):
    model = build("resnet20", num_classes=7, seed=1)
    model(torch.randn(5, 3, 8, 8))  # moves batch norm's running values
    images = torch.randn(2, 3, 8, 8)
    again = build("resnet20", num_classes=7, weights=str(saved(tmp_path / file, model, wrapped)), seed=2)
    assert torch.equal(again.eval()(images), model.eval()(images))


def test_the_head_is_left_out_on_demand(tmp_path):
    model = build("small_cnn", num_classes=9, seed=1)
    path = saved(tmp_path / "a.safetensors", model)
    with pytest.raises(ValueError, match=r"head has 9 classes and the model 4: ask for num_classes=9, or .*'drop'"):
        build("small_cnn", num_classes=4, weights=path)
    made = build("small_cnn", num_classes=4, seed=2, weights=path, head="drop")
    assert torch.equal(made[0].weight, model[0].weight)
    assert torch.equal(made[14].weight, build("small_cnn", num_classes=4, seed=2)[14].weight)
    headless = saved(tmp_path / "b.pt", model, lambda state: {k: v for k, v in state.items() if k[:2] != "14"})
    assert torch.equal(build("small_cnn", weights=headless, head="drop")[0].weight, model[0].weight)
    with pytest.raises(ValueError, match=r"b.pt: lacks 14.bias, 14.weight"):
        build("small_cnn", weights=headless)


@pytest.mark.parametrize("name", [name for name in [*RUN, *SEGMENTATION, *names("detection")] if "101" not in name])
def test_the_head_is_all_that_changes_with_the_classes(name):
    few, many = (on_meta(name, num_classes=classes).state_dict() for classes in (5, 6))
    changed = {key.rpartition(".")[0] for key in few if few[key].shape != many[key].shape}
    assert changed == set(head_of(on_meta(name)))


class Hostile:
    def __reduce__(self):
        return Path.touch, (Path("executed"),)


def test_files_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hostile.pt").write_bytes(pickle.dumps(Hostile()))
    pickle.loads(Path("hostile.pt").read_bytes())
    Path("executed").unlink()  # so it is hostile indeed
    torch.save({"fc.weight": Hostile()}, "packed.pt")
    torch.save({"fc": 3}, "number.pt")
    Path("broken.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    model = build("resnet20")
    whole = saved(Path("whole.pt"), model).read_bytes()
    Path("half.pt").write_bytes(whole[: len(whole) // 2])
    saved(Path("keys.pt"), model, lambda state: {f"net.{key}": value for key, value in state.items()})
    saved(Path("nan.pt"), model, lambda state: state | {"fc.bias": torch.full([10], torch.nan)})
    saved(Path("grey.pt"), build("resnet20", in_channels=1))
    for file, words in [
        ("none.pt", "none.pt: there is no such file"),
        ("hostile.pt", "holds more than tensors, or is no such file; nothing in it was executed"),
        ("packed.pt", "holds more than tensors"),
        ("number.pt", "not a state dict, which maps names to tensors"),
        ("broken.safetensors", "not a file of weights"),
        ("half.pt", "half.pt: not a "),
        ("keys.pt", r"lacks fc.bias, fc.weight, trunk.bn1.bias and \d+ more, and has net.fc.bias, .* has no place"),
        ("nan.pt", "fc.bias holds values that are not finite"),
        ("grey.pt", r"1 weights have other shapes.*trunk.conv1.weight is \[16, 1, 3, 3\], the model's \[16, 3, 3, 3\]"),
    ]:
        with pytest.raises(ValueError, match=words) as caught:
            build("resnet20", weights=file)
        assert "\n" not in str(caught.value)
    assert not Path("executed").exists()


def test_weights_of_torchvision_go_through_torchvision(monkeypatch):
    asked = []
    state = torchvision.models.resnet18().state_dict()
    given = lambda self, *_, **__: asked.append(self.name) or state  # noqa: E731
    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", given)
    model = build("resnet18", num_classes=5, weights="torchvision:IMAGENET1K_V1", head="drop")
    assert asked == ["IMAGENET1K_V1"]
    assert torch.equal(model.layer4[1].conv2.weight, state["layer4.1.conv2.weight"])


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


def test_a_factory_gives_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "from torch import nn\ndef make(num_classes=4, width=3): return nn.Linear(width, num_classes)\n"
    Path("own_factory.py").write_text(text + "ready = nn.ReLU()\nnumber = 3\ndef text(): return 'x'\n")
    assert build("own_factory:make").out_features == 4
    model = build("own_factory:make", num_classes=5, width=2)
    assert build("own_factory:make", num_classes=5, width=2, weights=saved(Path("a.pt"), model)).bias.equal(model.bias)
    assert isinstance(build("own_factory:ready"), nn.ReLU)
    for name, options, words in [
        ("own_factory:", {}, "a model is named as package.module:factory, got 'own_factory:'"),
        ("no_such_module:make", {}, "cannot import no_such_module .ModuleNotFoundError"),
        ("own_factory:nothing", {}, "own_factory has no 'nothing'"),
        ("own_factory:number", {}, "a function or class that gives a module is needed, got int"),
        ("own_factory:text", {}, "must give a torch.nn.Module, got str"),
        ("own_factory:make", {"depth": 3}, "the call failed .TypeError: .*'depth'"),
        ("own_factory:make", {"stem": "32"}, r"stems are for the networks of names\(\), got stem='32'"),
        ("own_factory:ready", {"num_classes": 3}, "is a module already and takes no options, got num_classes"),
    ]:
        with pytest.raises(ValueError, match=words):
            build(name, **options)
    sys.modules.pop("own_factory", None)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("resnet51", {}, r"unknown model 'resnet51' \(nearest: resnet56, resnet50, \w+\): expected a name of"),
        (3, {}, "asked for by its name, got int"),
        ("mlp", {"depth": 3}, "'mlp' has no option 'depth': expected one of input_size, hidden"),
        ("resnet50", {"stem": "28"}, "stem of 'resnet50' must be one of 'imagenet', '64', '32', got '28'"),
        ("mlp", {"stem": "32"}, "'mlp' has one stem only, got stem='32'"),
        ("mlp", {"num_classes": 1}, "num_classes must be a whole number of at least 2, got 1"),
        ("mlp", {"weights": "torchvision:V1"}, "are for networks of torchvision as they are, which this one is not"),
        ("resnet18", {"weights": "torchvision:V9"}, "no weights 'V9' for resnet18: expected one of IMAGENET1K_V1"),
        ("resnet18", {"weights": "torchvision:V1", "stem": "32"}, "are for stem='imagenet', got stem='32'"),
        ("mlp", {"weights": 3}, "weights are named by a file or as torchvision:NAME, got int"),
        ("deeplabv3plus_small", {"upsample": "no"}, "upsample must be True or False, got 'no'"),
        ("mlp", {"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ("mlp", {"head": "lose"}, "head must be one of 'keep', 'drop', got 'lose'"),
        ("mlp", {"input_size": (3, 0)}, "input_size must be a whole number of at least 1, got 0"),
        ("resnet20", {"shortcut": "B"}, "shortcut must be one of 'pad', 'project', got 'B'"),
        ("vit_s_16", {"image_size": 100}, "multiple of the patches' 16 pixels, got 100"),
        ("vit_s_16", {"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ("fasterrcnn_resnet50_fpn", {"trainable_layers": 6}, "trainable_layers must be from 0 to 5, got 6"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_sentence(name, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        build(name, **options)
    assert "\n" not in str(caught.value)
