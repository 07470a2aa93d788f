"""Predictions of pixels: some of every image, or whole maps."""

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant import Predictions
from calibrant.data import Dataset, Pipeline, Resize
from calibrant.training import predict, prediction, train
from calibrant.training.datasets import load_sets
from calibrant.training.prediction import DatasetTally
from calibrant.training.recipe import check_recipe
from tests.helpers.recipe_data import written


class Pixelwise(torch.nn.Module):
    """Logits from the colours of each pixel."""

    def forward(self, images):
        return torch.stack([images[:, 0], images[:, 1] * 2.0, images[:, 2] - 0.5], 1)


class Masks:
    """Images of labels, of different sizes."""

    def __init__(self, arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays)

    def __getitem__(self, index):
        return Image.fromarray(self.arrays[index])


class Pictures(Masks):
    kind = "image"

    def open(self, index, draft=None):
        return self[index]


@pytest.fixture
def segmented():
    random = np.random.default_rng(0)
    sizes = [(7, 5), (6, 9), (4, 4)]
    images = Pictures([random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes])
    masks = [random.integers(0, 3, size, dtype=np.uint8) for size in sizes]
    masks[0][:4] = 255
    masks[2][:] = 255  # nothing is labelled
    return Dataset(
        "pixels", "test", ("a", "b", "c"), ("x", "y", "z"), [-1, -1, -1], images, masks=Masks(masks), ignore_index=255
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
    with pytest.raises(ValueError, match=r"images of different sizes: .*data\.pixels = 5000"):
        predict(Pixelwise(), segmented, batch_size=1)
    monkeypatch.setattr(prediction, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"the logits of 3 images .*data\.pixels = 5000"):
        predict(Pixelwise(), Pipeline(segmented, [Resize((8, 12))]))
    assert predict(Pixelwise(), Pipeline(segmented, [Resize((9, 3))])).logits.shape == (3, 3, 3, 9)  # 972 bytes


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
