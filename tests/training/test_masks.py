"""Masks beside logits. Oracles: pixels picked by hand, scikit-learn's confusion matrix, the network's own features."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.metrics import confusion_matrix
from torch import nn

from calibrant.data import Dataset
from calibrant.metrics import ece
from calibrant.models import build
from calibrant.training import predict
from calibrant.training.masks import excluded_label, labels_at, without_class, without_interpolation
from calibrant.training.prediction import DatasetTally
from calibrant.training.recipe import check_recipe


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
