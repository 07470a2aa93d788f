"""Predictions of pixels: some of every image, or whole maps."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.metrics import confusion_matrix
from torch import nn

from calibrant import Predictions
from calibrant.data import Dataset, Pipeline, Resize
from calibrant.metrics import ece
from calibrant.models import build
from calibrant.training import predict, prediction, train
from calibrant.training.datasets import load_sets
from calibrant.training.prediction import (
    DatasetTally,
    excluded_label,
    forward,
    labels_at,
    memory_errors,
    without_class,
    without_interpolation,
)
from calibrant.training.recipe import check_recipe
from tests.helpers.errors import facts
from tests.helpers.recipe_data import written


class Pixelwise(torch.nn.Module):
    """Logits from the colours of each pixel."""

    def forward(self, images):
        return torch.stack([images[:, 0], images[:, 1] * 2.0, images[:, 2] - 0.5], 1)


class Files:
    """Pictures or masks in memory, which may differ in size."""

    kind = "image"

    def __init__(self, arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays)

    def __getitem__(self, index):
        return Image.fromarray(self.arrays[index])

    def open(self, index, draft=None):
        return self[index]


@pytest.fixture
def segmented():
    random = np.random.default_rng(0)
    sizes = [(7, 5), (6, 9), (4, 4)]
    images = Files([random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes])
    masks = [random.integers(0, 3, size, dtype=np.uint8) for size in sizes]
    masks[0][:4] = 255
    masks[2][:] = 255  # nothing is labelled
    return Dataset(
        "pixels", "test", ("a", "b", "c"), ("x", "y", "z"), [-1, -1, -1], images, masks=Files(masks), ignore_index=255
    )


def test_some_pixels_of_every_image_are_kept(segmented):
    tally = DatasetTally(segmented)
    found = predict(Pixelwise(), segmented, batch_size=1, pixels=10, tally=tally, mean=(0, 0, 0), std=(1, 1, 1))
    assert found.kind == "classification"
    assert len(found) == 20
    assert len(set(found.ids.tolist())) == 20
    for logits, label, place in zip(found.logits, found.labels, found.ids, strict=True):
        image, pixel = divmod(int(place), 2**32)
        colours = segmented.inputs.arrays[image].reshape(-1, 3)[pixel] / 255.0
        assert logits == pytest.approx([colours[0], 2 * colours[1], colours[2] - 0.5], abs=1e-6)
        assert label == segmented.masks.arrays[image].ravel()[pixel] != 255
    again = predict(Pixelwise(), segmented, batch_size=1, pixels=10, mean=(0, 0, 0), std=(1, 1, 1))
    assert np.array_equal(again.logits, found.logits)
    every = predict(Pixelwise(), segmented, batch_size=1, pixels=1000, mean=(0, 0, 0), std=(1, 1, 1))
    assert len(every) == 15 + 54
    right = every.logits.argmax(1) == every.labels
    assert tally.compute()["accuracy"] == pytest.approx(right.mean())  # of all pixels, not of the ten
    shares = [
        ((every.logits.argmax(1) == k) & (every.labels == k)).sum()
        / ((every.logits.argmax(1) == k) | (every.labels == k)).sum()
        for k in range(3)
    ]
    assert tally.compute()["mean_iou"] == pytest.approx(np.mean(shares))


def test_whole_images_must_fit_into_memory_and_be_of_one_size(segmented, monkeypatch):
    with pytest.raises(ValueError, match=facts("5000")):
        predict(Pixelwise(), segmented, batch_size=1)
    monkeypatch.setattr(prediction, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=facts("3", "5000")):
        predict(Pixelwise(), Pipeline(segmented, [Resize((8, 12))]))
    assert predict(Pixelwise(), Pipeline(segmented, [Resize((9, 3))])).logits.shape == (3, 3, 3, 9)  # 972 bytes


@pytest.mark.slow
def test_a_run_writes_pixels_and_counts_them_all(tmp_path):
    home = written("camvid", tmp_path)
    plain = {
        "data": {"layout": "camvid", "pixels": 7, "steps": [{"step": "resize", "size": [32, 24]}]},
        "model": {"name": "deeplabv3plus_small"},
        "training": {"max_steps": 1, "batch_size": 2},
    }
    recipe = check_recipe(plain, "camvid")
    result = train(recipe, tmp_path / "run", data=str(home))
    sets = load_sets(recipe, str(home))
    found = Predictions.open(tmp_path / "run" / "test.npz")
    assert len(found) <= 7 * len(sets.test)
    assert found.logits.shape[1:] == (len(sets.test.classes),)
    whole = check_recipe(plain | {"data": {k: v for k, v in plain["data"].items() if k != "pixels"}}, "camvid")
    assert train(whole, tmp_path / "whole", data=str(home))["sets"] == result["sets"]
    assert Predictions.open(tmp_path / "whole" / "test.npz").kind == "segmentation"


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
    with pytest.raises(ValueError, match=facts("bakground")):
        excluded_label(scenes, "bakground")
    with pytest.raises(ValueError, match=facts("data.exclude", "masks")):
        excluded_label(scenes.replace(masks=None), "background")
    with pytest.raises(ValueError, match=facts("data.interpolate")), without_interpolation(nn.ReLU()):
        pass
    labels = torch.tensor([0, 1, 255])
    assert without_class(labels, 0, 255).tolist() == [255, 1, 255]
    assert without_class(labels, None, 255) is labels


@pytest.mark.parametrize(
    ("text", "is_first", "expected"),
    [
        ("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.", True, MemoryError),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1000 bytes", True, MemoryError),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", True, MemoryError),
        ("some bug", True, ValueError),
        ("some bug", False, RuntimeError),  # later than the first batch it is a bug, and shown as one
        ("[gloo] Connection closed by peer", True, RuntimeError),  # a lost process
    ],
)
def test_errors_of_torch_in_a_forward_pass(text, is_first, expected):
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError(text)

    with pytest.raises(expected, match=facts("[2, 3]" if expected is ValueError else "")), memory_errors():
        forward(Broken(), torch.zeros(2, 3), "broken", is_first=is_first)
