"""Weights from files and from torchvision: taken, left out, or refused."""

import pickle
from pathlib import Path

import pytest
import torch

from calibrant import _torchvision
from calibrant.models import build, names
from calibrant.models.weights import head_of
from tests.helpers.networks import RUN, SEGMENTATION, on_meta, saved

_torchvision.ensure()
import torchvision  # noqa: E402


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


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
        ("keys.pt", r"lacks fc.bias, fc.weight, trunk.bn1.bias and \d+ more, and has net.fc.bias, .* does not have"),
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
