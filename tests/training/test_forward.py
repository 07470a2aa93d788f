"""A model, its inputs, its classes and its loss are seen to go together before anything is written or trained."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.metrics import confusion_matrix
from torch import nn

from calibrant.data import Dataset, Rows
from calibrant.metrics import ece
from calibrant.models import build
from calibrant.training import estimate, load, predict, train
from calibrant.training.classification import Classification
from calibrant.training.datasets import align_classes, load_sets
from calibrant.training.distributed import make_fabric
from calibrant.training.forward import (
    excluded_label,
    forward,
    labels_at,
    memory_errors,
    without_class,
    without_interpolation,
)
from calibrant.training.prediction import DatasetTally, logits_by_batch
from calibrant.training.recipe import check_recipe
from calibrant.training.run import prepare_run


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model.input_size=[3, 9, 9]"], r"model 'mlp' does not take inputs of shape \[512, 3, 8, 8\] \(the mlp takes"),
        (["data.channels=1"], r"does not take inputs of shape \[512, 1, 8, 8\]"),
        (["data.steps=[{step='resize', size=9}]"], r"of shape \[512, 3, 9, 9\]"),
        (["model={name='resnet18', in_channels=1, stem='32'}"], r"model 'resnet18' does not take inputs of shape"),
        (["model={name='vit_s_16', image_size=32}"], "Wrong image height"),
        (["model={name='gpcn'}"], "model 'gpcn' does not take inputs"),
        (["model={name='fasterrcnn_resnet50_fpn'}"], "model 'fasterrcnn_resnet50_fpn' does not take inputs"),
        (["model={name='deeplabv3plus_small'}"], r"takes labels \[2, 8, 8\] for logits \[2, 10, 8, 8\], got \[2\]"),
        (["model={name='timm/test_vit', img_size=32}"], "model 'timm/test_vit' does not take inputs of shape"),
        (["loss={name='ce', weight=[1.0, 2.0]}"], "has weights for 2 classes, the logits have 10"),
        (["loss={name='crl'}", "mixing={name='mixup'}"], "takes class labels; soft targets have no meaning"),
        (["data.text={}"], "data.text is for data sets of texts, and digits train is one of images"),
        (["model={name='small_resnet'}", "training.batch_size=1"], "does not take inputs of shape .*1, 3, 8, 8"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_does_not_go_together_is_said_before_anything_is_written(overrides, words, recipe, tmp_path):
    plan = load(recipe, overrides)
    for attempt in (lambda: train(plan, tmp_path / "run"), lambda: estimate(plan)):
        with pytest.raises(ValueError, match=words) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def own(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_net.py").write_text("import torch, sys\nfrom torch import nn\n" + text)
    monkeypatch.delitem(__import__("sys").modules, "own_net", raising=False)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return x.flatten(1)[:, :7]", r"gives \[2, 7\] for inputs of shape \[2, 3, 8, 8\]: logits of 10 classes"),
        ("return x.flatten(1)[0, :10]", r"gives \[10\] for inputs"),
        ("return {'logits': x}", "must give a tensor of logits, got NoneType"),
        ("return None", "must give a tensor of logits, got NoneType"),
        ("raise KeyError('weights')", r"does not take inputs of shape .* \('weights'\)"),
        ("sys.exit(0)", "does not take inputs of shape"),
        ("return x.view(3, 5)", "does not take inputs of shape .*shape"),
    ],
)
def test_models_of_ones_own(body, words, recipe, tmp_path, monkeypatch):
    own(tmp_path, monkeypatch, f"class Net(nn.Linear):\n    def __init__(self, num_classes): super().__init__(4, 5)\n"
                               f"    def forward(self, x):\n        {body}\n")  # fmt: skip
    plan = load(recipe, ["model={name='own_net:Net'}"])
    with pytest.raises(ValueError, match=words):
        train(plan, tmp_path / "run", trust_code=True)
    assert not (tmp_path / "run").exists()


def test_a_model_that_looks_at_values_is_trained(recipe, tmp_path, monkeypatch):
    """Shapes alone cannot go through it; a few inputs do."""
    own(tmp_path, monkeypatch, "class Net(nn.Linear):\n    def __init__(self, num_classes): super().__init__(192, 10)\n"
                               "    def forward(self, x):\n        assert float(x.max()) > 0\n"
                               "        return super().forward(x.flatten(1))\n")  # fmt: skip
    result = train(load(recipe, ["model={name='own_net:Net'}"]), tmp_path / "run", trust_code=True)
    assert result["sets"]["test"]["accuracy"] > 0.2


@pytest.mark.parametrize("model", ["{name='mlp', input_size=[3, 8, 8], hidden=[8]}", "{name='small_cnn'}"])
def test_a_rehearsal_changes_nothing(model, recipe):
    """Neither weights, nor running means, nor modes, nor random numbers."""
    plan = load(recipe, [f"model={model}"])
    run = prepare_run(plan, make_fabric(plan, "cpu", 1, 1), load_sets(plan), Classification())
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    modes = [module.training for module in run.model.modules()]
    torch.manual_seed(5)
    run.task.rehearse(run)
    drawn = torch.rand(4)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(4))
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.model.state_dict().items())
    assert [module.training for module in run.model.modules()] == modes
    assert not run.has_begun


def test_a_batch_that_is_larger_than_the_memory(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.training.classification.physical_memory", lambda: 1000)
    with pytest.raises(ValueError, match=r"a batch of 512 inputs of shape \[3, 8, 8\] takes"):
        train(load(recipe), tmp_path / "run")


@pytest.mark.parametrize(
    "text",
    [
        "[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1000 bytes",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
    ],
)
def test_no_memory_is_a_memory_error(text):
    with pytest.raises(MemoryError, match="a smaller batch or model needs less"), memory_errors():
        raise RuntimeError(text)


def test_no_memory_in_a_step_is_one_sentence(recipe, tmp_path, monkeypatch, refused):
    def full(*_):
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.")

    monkeypatch.setattr(torch.optim.SGD, "step", full)
    assert "not enough memory" in refused("train", recipe, "-o", tmp_path / "run", "-q")


def test_other_errors_of_torch_stay_what_they_are():
    """Only the first batch can say that a model and its inputs do not fit; later it is a bug, and shown as one."""

    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("some bug")

    with pytest.raises(RuntimeError, match="some bug"):
        forward(Broken(), torch.zeros(2, 3), "broken", is_first=False)
    with pytest.raises(ValueError, match=r"model 'broken' does not take inputs of shape \[2, 3\] \(some bug\)"):
        forward(Broken(), torch.zeros(2, 3), "broken", is_first=True)
    with pytest.raises(RuntimeError, match="some bug"), memory_errors():
        raise RuntimeError("some bug")


def test_a_lost_process_is_not_taken_for_a_misfit():
    class Lost(nn.Module):
        def forward(self, x):
            raise RuntimeError("[gloo] Connection closed by peer")

    with pytest.raises(RuntimeError, match="gloo"):
        forward(Lost(), torch.zeros(2), "lost", is_first=True)


def test_predicting_says_what_does_not_fit(recipe):
    plan = load(recipe)
    batch = prepare_run(plan, make_fabric(plan, "cpu", 1, 1), load_sets(plan), Classification()).pipeline.batch([0, 1])
    with pytest.raises(ValueError, match=r"model 'Linear' does not take inputs of shape \[2, 3, 8, 8\]"):
        list(logits_by_batch(nn.Linear(5, 6), [batch], (0.5,) * 3, (0.25,) * 3, "cpu"))


def test_a_diverged_dry_run_is_one_sentence(recipe, refused):
    words = [word for setting in ("optimiser.rate=1e6", "data.std=[1e-34]") for word in ("--set", setting)]
    assert "the loss is" in refused("train", recipe, "--dry-run", *words)


# --- classes of the parts ---------------------------------------------------------------------------------------------


def test_labels_of_the_parts_are_matched_by_name():
    """A test file that lists its classes in another order has the same labels all the same."""
    test = Dataset("t", "test", ("dog", "cat"), ("a", "b", "c"), [0, 1, 0], Rows(np.zeros((3, 2))))
    assert align_classes(test, ("cat", "dog"), by_position=False).labels.tolist() == [1, 0, 1]
    numbered = Dataset("t", "test", ("0", "1"), ("a", "b", "c"), [0, 1, 0], Rows(np.zeros((3, 2))))
    assert align_classes(numbered, ("cat", "dog")).labels.tolist() == [0, 1, 0]  # another data set, by position
    with pytest.raises(ValueError, match="the class '0' is not one of the 2 trained classes"):
        align_classes(numbered, ("1", "2"), by_position=False)


class Files:
    """Pictures or masks in memory."""

    kind = "image"

    def __init__(self, arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays)

    def __getitem__(self, index):
        return Image.fromarray(self.arrays[index])

    def open(self, index, draft=None):
        return self[index]


@pytest.fixture(scope="module")
def scenes():
    random = np.random.default_rng(3)
    images = Files([random.integers(0, 256, (20, 28, 3), dtype=np.uint8) for _ in range(4)])
    masks = [random.integers(0, 3, (20, 28), dtype=np.uint8) for _ in range(4)]
    masks[1][:5] = 255
    names = ("background", "cat", "dog")
    return Dataset("s", "test", names, tuple("abcd"), [-1] * 4, images, masks=Files(masks), ignore_index=255)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return build("deeplabv3plus_small", num_classes=3, width=2).eval()


def test_labels_are_those_of_the_nearest_pixels():
    masks = torch.arange(6 * 9).view(1, 6, 9)
    rows, columns = [1, 3, 5], [1, 4, 7]  # centres 1, 3, 5 of 6 and 1.5, 4.5, 7.5 of 9, in pixels
    expected = masks[:, rows][:, :, columns]
    assert torch.equal(labels_at(masks, torch.zeros(1, 2, 3, 3)), expected)
    assert labels_at(masks, torch.zeros(1, 2, 6, 9)) is masks
    soft = torch.zeros(1, 2)
    assert labels_at(soft, torch.zeros(1, 2)) is soft


def test_an_excluded_class_is_not_measured_and_mean_iou_is_of_the_others(scenes, network):
    tally = DatasetTally(scenes, exclude="background")
    plain = predict(network, scenes, batch_size=3, exclude="background", tally=tally)
    every = predict(network, scenes, batch_size=3)
    labels, predicted = np.asarray(every.labels).ravel(), np.asarray(every.logits).argmax(1).ravel()
    counted = labels != 255
    table = confusion_matrix(labels[counted], predicted[counted], labels=range(3))
    iou = np.diag(table) / (table.sum(0) + table.sum(1) - np.diag(table))
    numbers = tally.compute()
    assert numbers["mean_iou"] == pytest.approx(iou[1:].mean())
    foreground = counted & (labels != 0)
    right = predicted[foreground] == labels[foreground]
    assert numbers["accuracy"] == pytest.approx(right.mean())
    confidence = torch.as_tensor(every.logits).softmax(1).amax(1).numpy().ravel()[foreground]
    assert numbers["ece"] == pytest.approx(ece(confidence.astype(np.float64), right), abs=1e-5)
    assert np.array_equal(np.asarray(plain.labels).ravel() != 255, foreground)
    drawn = predict(network, scenes, pixels=50, exclude="background")
    assert 0 not in drawn.labels
    assert len(drawn) == 200


def test_logits_before_the_last_interpolation_have_the_labels_below_them(scenes, network):
    tally = DatasetTally(scenes)
    coarse = predict(network, scenes, interpolate=False, tally=tally)
    fine = predict(network, scenes)
    assert coarse.logits.shape == (4, 3, 5, 7)
    assert fine.logits.shape == (4, 3, 20, 28)
    wide = F.interpolate(torch.as_tensor(coarse.logits), size=(20, 28), mode="bilinear", align_corners=False)
    assert np.allclose(wide.numpy(), fine.logits, atol=1e-5)
    below = np.stack([mask[2::4, 2::4] for mask in scenes.masks.arrays])
    assert np.array_equal(coarse.labels, below)
    counted = below != 255
    right = (np.asarray(coarse.logits).argmax(1) == below)[counted]
    assert tally.compute()["accuracy"] == pytest.approx(right.mean())
    assert network.upsample is True


def test_what_cannot_be_excluded_or_left_uninterpolated_is_said(scenes):
    with pytest.raises(ValueError, match=r"has no class 'bakground'.*background"):
        excluded_label(scenes, "bakground")
    with pytest.raises(ValueError, match="has none"):
        excluded_label(scenes.replace(masks=None), "background")
    with (
        pytest.raises(ValueError, match=r"data\.interpolate = false is for networks"),
        without_interpolation(nn.ReLU()),
    ):
        pass
    labels = torch.tensor([0, 1, 255])
    assert without_class(labels, 0, 255).tolist() == [255, 1, 255]
    assert without_class(labels, None, 255) is labels


def test_recipes_from_before_these_settings_keep_their_keys():
    data = {"layout": "camvid"}
    plain = {"data": data, "model": {"name": "deeplabv3plus_small"}}
    key = check_recipe(plain, "old").key
    assert check_recipe(plain | {"data": data | {"interpolate": True}}, "same").key == key
    assert check_recipe(plain | {"data": data | {"interpolate": False}}, "coarse").key != key
    assert check_recipe(plain | {"data": data | {"exclude": "Sky"}}, "without sky").key != key
