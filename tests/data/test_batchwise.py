"""Batches at once against the same samples one by one, and their random numbers against NumPy's own generator."""

import numpy as np
import pytest
import torch

from calibrant.data import (
    Boxes,
    CentreCrop,
    Dataset,
    ImageArray,
    Pad,
    Pipeline,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    Rows,
    rendering,
)

CHAINS = {
    "as it is": [],
    "CIFAR": [RandomCrop(32, padding=4), RandomFlip()],
    "flip first": [RandomFlip(), RandomCrop((20, 24), padding=3), RandomFlip(0.3)],
    "middle": [CentreCrop((28, 20))],
    "odd middle": [CentreCrop((27, 21)), RandomFlip(1.0)],
    "padding after a crop": [RandomCrop(16), Pad(5), RandomCrop(18, padding=2), RandomFlip()],
    "one place": [RandomCrop((32, 36)), RandomFlip()],
    "resized to what it is": [Resize((32, 36)), RandomCrop(30)],
}


def images(colours, number=57):
    rng = np.random.default_rng(3)
    shape = (number, 36, 32, 3) if colours else (number, 36, 32)
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    corners = [np.sort(rng.uniform(0, 32, (k, 2, 2)), axis=1).reshape(k, 4) for k in rng.integers(0, 3, number)]
    boxes = Boxes.of([one.tolist() for one in corners])
    labels = rng.integers(0, 4, number)
    return Dataset("noise", "train", tuple("abcd"), tuple(map(str, range(number))), labels, ImageArray(pixels), boxes)


def same(ours, theirs):
    assert torch.equal(ours.inputs, theirs.inputs)
    assert ours.ids == theirs.ids
    assert torch.equal(ours.labels, theirs.labels)
    assert torch.equal(ours.indices, theirs.indices)
    torch.testing.assert_close(ours.objectness, theirs.objectness, rtol=0, atol=0, equal_nan=True)
    assert list(ours.views) == list(theirs.views)


@pytest.mark.parametrize(("padding", "channels"), [(0, 3), (200, 1), ("edge", 3), ((9, 99, 199), 1)], ids=str)
@pytest.mark.parametrize("colours", [True, False], ids=["colours", "grey"])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_batch_at_once_is_the_batch_sample_by_sample(monkeypatch, chain, colours, padding, channels):
    seed = {0: 11, "edge": 0}.get(padding, 2**100 + 17)
    pipeline = Pipeline(images(colours), CHAINS[chain], seed=seed, padding=padding, channels=channels)
    indices = np.random.default_rng(0).permutation(57)[:40].tolist()
    at_once = colours or not isinstance(padding, tuple)  # colours around grey go sample by sample
    together = [pipeline.batch(indices, epoch) for epoch in (0, 7)]
    assert isinstance(together[0].views, rendering.Views) is at_once
    monkeypatch.setattr(Pipeline, "_batch_at_once", lambda self, pairs: None)
    for epoch, ours in zip((0, 7), together, strict=True):
        same(ours, pipeline.batch(indices, epoch))


@pytest.mark.parametrize("steps", [[RandomResizedCrop(24)], [Resize(20)], [RandomCrop(40)], [CentreCrop(64)]], ids=str)
def test_steps_that_resample_go_sample_by_sample(steps):
    pipeline = Pipeline(images(True), steps)
    batch = pipeline.batch([0, 1])
    assert not isinstance(batch.views, rendering.Views)
    assert batch.inputs.shape[0] == 2


def test_a_view_that_shows_nothing_goes_sample_by_sample(monkeypatch):
    """Where padding is wider than the image, a crop may lie outside of it."""
    pipeline = Pipeline(images(True), [RandomCrop(8, padding=60), Pad(1)], padding="edge")
    indices = list(range(57))
    ours = pipeline.batch(indices)
    monkeypatch.setattr(Pipeline, "_batch_at_once", lambda self, pairs: None)
    same(ours, pipeline.batch(indices))


def test_rows_of_an_array_are_taken_at_once():
    values = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    data = Dataset("table", "train", ("a", "b"), tuple("abcdefghi"), np.arange(9) % 2, Rows(values))
    np.testing.assert_array_equal(Pipeline(data).batch([4, 1, 8]).inputs.numpy(), values[[4, 1, 8]])
