"""Networks by name: sizes against published figures, seeds, and every refusal."""

import resource
import zipfile

import pytest
import torch
from torch import nn

from calibrant.base import torchvision_operators
from calibrant.models import Architecture, build, describe, names
from calibrant.models.registry import check_memory, physical_memory
from tests.helpers.errors import facts
from tests.helpers.networks import CLASSIFIERS, SEGMENTATION, count, on_meta

torchvision_operators.ensure()
import torchvision  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_names_are_all_there_in_order():
    assert list(names()) == [*CLASSIFIERS, *SEGMENTATION, "fasterrcnn_resnet50_fpn", "gpcn"]
    assert [list(names("classification")), list(names("segmentation"))] == [CLASSIFIERS, SEGMENTATION]
    with pytest.raises(ValueError, match=facts("sound")):
        names("sound")


@pytest.mark.parametrize("name", names())
def test_every_entry_is_complete(name):
    about = describe(name)
    assert isinstance(about, Architecture)
    assert all([about.name == name, about.summary, about.source, about.input_size, about.num_classes >= 2])
    assert (about.published is None) == (not about.published_in)
    assert not {"num_classes", "stem"} & set(about.defaults())
    assert not about.torchvision or name in torchvision.models.list_models()


@pytest.mark.parametrize("name", [name for name in names("classification") if describe(name).last_block])
def test_the_last_block_has_positions_and_no_convolution_follows_it(name):
    with torch.device("meta"):
        model = build(name).eval()
        inputs = torch.zeros(2, *describe(name).input_size)
    shapes, after = [], []
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_hook(lambda *_: after.append("convolution"))
    block = model.get_submodule(describe(name).last_block)

    def note(module, arguments, output):
        shapes.append(output.shape)
        after.clear()

    block.register_forward_hook(note)
    model(inputs)
    assert len(shapes) == 1
    assert shapes[0].numel() > shapes[0][0] * shapes[0][1], "one position is no map"
    assert after == []


def test_only_networks_without_convolutions_over_an_image_have_no_last_block():
    assert [n for n in names() if not describe(n).last_block] == [
        "mlp", "vit_b_16", "vit_s_16", *SEGMENTATION, "fasterrcnn_resnet50_fpn", "gpcn",
    ]  # fmt: skip


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


@pytest.mark.parametrize("name", ["small_cnn", "resnet20v2", "gpcn", "timm/test_resnet"])
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
        ("resnet20v2", {}, (3, 8, 8)), ("densenet_bc_100_12", {}, (3, 8, 8)), ("gpcn", {}, (40, 100)),
        ("resnet18", {"stem": "64"}, (3, 16, 16)), ("vgg16_bn", {"stem": "32"}, (3, 32, 32)),
        ("vgg16_cifar", {}, (3, 32, 32)),
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


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("resnet51", {}, facts("resnet51", "resnet56")),
        (3, {}, facts("int")),
        ("mlp", {"depth": 3}, facts("mlp", "depth", "input_size")),
        ("resnet50", {"stem": "28"}, facts("28", "resnet50", "imagenet")),
        ("mlp", {"stem": "32"}, facts("32", "stem='32'", "mlp")),
        ("mlp", {"num_classes": 1}, facts("num_classes", "1")),
        ("mlp", {"weights": "torchvision:V1"}, facts("torchvision")),
        ("resnet18", {"weights": "torchvision:V9"}, facts("V9", "IMAGENET1K_V1")),
        ("resnet18", {"weights": "torchvision:V1", "stem": "32"}, facts("32", "stem='32'", "imagenet")),
        ("mlp", {"weights": 3}, facts("int")),
        ("deeplabv3plus_small", {"upsample": "no"}, facts("upsample", "no")),
        ("mlp", {"seed": -1}, facts("seed", "-1")),
        ("mlp", {"head": "lose"}, facts("head", "lose", "keep")),
        ("mlp", {"input_size": (3, 0)}, facts("input_size", "0")),
        ("resnet20", {"shortcut": "B"}, facts("shortcut", "'B'", "pad")),
        ("vit_s_16", {"image_size": 100}, facts("100")),
        ("vit_s_16", {"dropout": 1.0}, facts("dropout", "1.0")),
        ("fasterrcnn_resnet50_fpn", {"trainable_layers": 6}, facts("trainable_layers", "6")),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_sentence(name, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        build(name, **options)
    assert "\n" not in str(caught.value)


#: How much is needed and there is, or that no machine has as much.
MEMORY = "GB|memory"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("mlp", {"hidden": [10**6, 10**6]}, facts("1,000")),
        ("mlp", {"hidden": 10**9, "input_size": 10**9}, facts("mlp")),
        ("mlp", {"hidden": [8] * 1001}, facts("hidden", "1001")),
        ("mlp", {"hidden": 10**18}, facts("hidden", "1,000,000")),
        ("mlp", {"input_size": [10**9] * 9}, facts("input_size")),
        ("small_cnn", {"width": 10**9}, MEMORY),
        ("small_resnet", {"width": 10**7}, MEMORY),
        ("deeplabv3plus_small", {"width": 10**7}, MEMORY),
        ("resnet18", {"in_channels": 10**9}, MEMORY),
        ("vit_s_16", {"image_size": 16 * 10**6}, MEMORY),
        ("gpcn", {"vocabulary_size": 10**9, "dimensions": 10**5}, MEMORY),
        ("mlp", {"num_classes": 10**9, "hidden": 10**4}, MEMORY),
    ],
)
def test_what_does_not_fit_into_memory_is_refused(name, options, words):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=words) as caught:
        build(name, **options)
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # kilobytes: less than a gigabyte


def test_the_bound_is_the_memory_of_this_machine(monkeypatch):
    monkeypatch.setattr("calibrant.models.registry.physical_memory", lambda: 8 * 25)
    check_memory("linear", lambda: torch.nn.Linear(4, 5))  # 25 parameters
    with pytest.raises(ValueError, match=facts("30")):
        check_memory("linear", lambda: torch.nn.Linear(5, 5))
    assert physical_memory() > 2**28


@pytest.mark.parametrize("name", [name for name in names() if name.startswith(("mlp", "small", "gpcn", "resnet20"))])
def test_options_of_a_wrong_type_name_the_model(name):
    for option in describe(name).defaults():
        for value in ({"a": 1}, object()):
            with pytest.raises(ValueError, match=facts(name, option)):
                build(name, **{option: value})


def test_an_archive_that_would_grow_is_refused(tmp_path):
    """torch.save compresses nothing; a small archive of zeros could fill the memory."""
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data/0", bytes(2**24))
    assert path.stat().st_size < 2**16
    with pytest.raises(ValueError, match=facts("bomb.pt", "compressed")):
        build("mlp", weights=path)
