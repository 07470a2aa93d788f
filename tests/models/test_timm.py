"""Networks of timm by name, against timm itself: what it makes under the same seed, and the names that it gives."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from calibrant import _torchvision
from calibrant.models import build
from calibrant.models.foreign import head_of
from tests.helpers.errors import facts

_torchvision.ensure()
import timm  # noqa: E402

#: The smallest of several families, which timm has for tests.
SMALL = ["test_resnet", "test_vit", "test_efficientnet", "test_convnext"]


def same(first: nn.Module, second: nn.Module) -> bool:
    ours, theirs = first.state_dict(), second.state_dict()
    return list(ours) == list(theirs) and all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("name", SMALL)
def test_the_network_is_timms(name):
    model = build(f"timm/{name}", num_classes=7, in_chans=2, seed=3)
    torch.manual_seed(3)
    theirs = timm.create_model(name, num_classes=7, in_chans=2)
    assert type(model) is type(theirs)
    assert model.training
    assert same(model, theirs)
    assert not same(build(f"timm/{name}", num_classes=7, in_chans=2, seed=4), theirs)
    images = torch.randn(3, 2, 160, 160)
    logits = model.eval()(images)
    assert logits.shape == (3, 7)
    torch.testing.assert_close(logits, theirs.eval()(images))


def test_a_name_may_carry_the_tag_of_weights_that_are_not_loaded():
    assert same(build("timm/test_resnet.r160_in1k", seed=1), build("timm/test_resnet", seed=1))


@pytest.mark.parametrize("name", SMALL)
def test_the_head_is_the_layer_that_timm_names(name):
    model = timm.create_model(name)
    assert head_of(model) == (model.default_cfg["classifier"],)


def test_weights_come_from_a_file_with_or_without_the_head(tmp_path):
    trained = timm.create_model("test_resnet", num_classes=7)
    torch.save(trained.state_dict(), tmp_path / "a.pt")
    assert same(build("timm/test_resnet", num_classes=7, weights=tmp_path / "a.pt"), trained)
    with pytest.raises(ValueError, match=facts("a.pt", "7", "5")):
        build("timm/test_resnet", num_classes=5, weights=tmp_path / "a.pt")
    other = build("timm/test_resnet", num_classes=5, weights=tmp_path / "a.pt", head="drop", seed=2)
    assert torch.equal(other.conv1[0].weight, trained.conv1[0].weight)
    assert torch.equal(other.fc.weight, build("timm/test_resnet", num_classes=5, seed=2).fc.weight)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("timm/resnet11t", {}, facts("timm", "resnet11t", "resnet14t")),
        ("timm/Resnet_18", {}, facts("timm", "Resnet_18", "resnet18")),
        ("timm/", {}, facts("timm")),
        ("timm/resnet10t.none", {}, facts("timm/resnet10t.none", "RuntimeError")),
        ("timm/test_resnet", {"depth": 3}, facts("timm/test_resnet", "TypeError", "depth")),
        ("timm/test_resnet", {"stem": "32"}, facts("32", "stem='32'")),
        ("timm/test_resnet", {"num_classes": 1}, facts("num_classes", "1")),
        ("timm/test_resnet", {"weights": "torchvision:V1"}, facts("torchvision")),
    ],
)
def test_what_timm_does_not_have_is_refused_in_one_sentence(name, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        build(name, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("No module named 'yaml'", name="yaml"), facts("yaml")),
        (ImportError("cannot import\nname 'x'"), facts("'x'")),
        (RuntimeError("operator torchvision::nms does not exist"), facts("timm", "torchvision::nms")),
        (ModuleNotFoundError("No module named 'timm'", name="timm"), facts("timm/test_resnet")),
    ],
)
def test_a_timm_that_cannot_be_imported_says_why(monkeypatch, error, words):
    monkeypatch.delitem(sys.modules, "timm")

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "timm":
                raise error

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.raises(ValueError, match=words) as caught:
        build("timm/test_resnet")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_fresh_interpreter_builds_one():
    """timm imports torchvision, whose operators may not load: nothing here has called `ensure` before."""
    text = """
import sys, torch
from calibrant.models import build
assert "timm" not in sys.modules and "torchvision" not in sys.modules
model = build("timm/test_resnet", num_classes=5, in_chans=1, seed=0).eval()
assert "torchvision" in sys.modules
print(list(model(torch.zeros(2, 1, 64, 64)).shape))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("[2, 5]\n", "")
