"""Batches: what crops show, seeds, masks, unreadable images and workers; at once as sample by sample."""

import dataclasses
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant.data import (
    Batches,
    Boxes,
    CentreCrop,
    ColourJitter,
    Dataset,
    ImageArray,
    ImageFiles,
    Pad,
    Pipeline,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    Rows,
    UnreadableError,
    normalised,
    rendering,
)
from calibrant.data import pipeline as pipeline_module
from calibrant.data.rendering import sample_generator
from calibrant.targets import adaptive_targets
from calibrant.training import predict
from tests.helpers.errors import facts
from tests.helpers.toy_images import BOXES, SIZE, covered, noise, objects, pictures, placed
from tests.reference import objects as reference


def test_predictions_of_a_model_on_a_data_set():
    """Logits by hand; objectness and groups go along, modules get their modes back. Sample c has no class."""
    data = objects(groups=("x", "y", "z"))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(2), torch.nn.Dropout(0.9))
    model(torch.zeros(1, 3, SIZE, SIZE))
    model[0].eval()
    found = predict(model, data, [CentreCrop(SIZE)], mean=(0, 0, 0), std=(1, 1, 1), batch_size=2)
    assert [module.training for module in model] == [False, True, True]
    images = torch.from_numpy(data.inputs.pixels[:2]).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        assert np.allclose(found.logits, model[1](images.flatten(1)).numpy(), atol=1e-5)
    assert found.labels.tolist() == [1, 0]
    shares = [reference.objectness(b, (0, 0, SIZE, SIZE), (SIZE, SIZE), scale=10) for b in BOXES[:2]]
    assert found.objectness == pytest.approx(shares)
    assert list(found.groups["group"]) == ["x", "y"]


def test_objectness_that_nobody_knows_is_nan():
    """A sample with a class but no box: not annotated. One without a class shows no object."""
    data = objects(labels=[1, 0, 1])
    assert Pipeline(data, [CentreCrop(20)]).batch([0, 2]).objectness.isnan().tolist() == [False, True]
    assert Pipeline(objects(), [CentreCrop(20)]).batch([2]).objectness.tolist() == [0]
    targets = adaptive_targets([1, 0], torch.tensor([float("nan"), 0.25]), 4, unknown="hard")
    assert targets.tolist() == [[0, 1, 0, 0], [0.25] * 4]


def test_soft_labels_and_the_single_reading_arrive():
    soft = np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
    batch = Pipeline(objects(soft=soft), [CentreCrop(20)], reading="single").batch([2, 0])
    assert batch.soft.tolist() == [[0, 1], [0.5, 0.5]]
    assert batch.objectness[1].item() == 48 / 400  # the largest box, 8 x 6, alone


def test_mistakes_in_steps_are_not_called_broken_images(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    data = Dataset("toy", "train", ("x",), ("a",), [0], ImageFiles(tmp_path, ("a.png",)))

    def wrong(view, random):
        raise ValueError("a step of my own is wrong")

    with pytest.raises(ValueError, match="a step of my own is wrong") as failure:
        Pipeline(data, [wrong], on_error="skip").batch([0])
    assert not isinstance(failure.value, UnreadableError)
    missing = data.replace(inputs=ImageFiles(tmp_path, ("b.png",)))
    assert Pipeline(missing, on_error="skip").batch([0]).skipped[0][0] == "a"


def test_seeds_of_any_size_are_different():
    first = [sample_generator(seed, 0, 0).random() for seed in (-2, -1, 0, 1, 2**63, 2**63 + 1, 2**64, 2**70)]
    assert len(set(first)) == len(first)


@pytest.mark.slow
def test_context_only_samples_come_at_their_rate():
    data = objects(boxes=placed()).take([0, 1])
    pipeline = Pipeline(data, [CentreCrop(20)], context_rate=0.15, fill=(0, 0, 0))
    marked = torch.cat([pipeline.batch([0, 1], epoch=epoch).context for epoch in range(1000)])
    assert marked.double().mean().item() == pytest.approx(0.15, abs=5 * np.sqrt(0.15 * 0.85 / 2000))
    batch = next(b for e in range(100) if (b := pipeline.batch([0], epoch=e)).context.any())
    assert batch.objectness.item() == 0
    assert (batch.inputs[0].permute(1, 2, 0).numpy()[covered(BOXES[0])] == 0).all()
    # Boxes of the others in a batch keep their classes; images that cannot be covered stay as they are.
    both = next(b for e in range(100) if (b := pipeline.batch([0, 1], epoch=e)).context.tolist() == [True, False])
    assert both.boxes.counts.tolist() == [0, 1]
    assert both.boxes.labels.tolist() == [0]
    lost = Pipeline(objects(), [CentreCrop(20)], context_rate=1.0, fill=(0, 0, 0)).batch([0, 1, 2])
    assert lost.context.tolist() == [True, False, False]
    assert torch.equal(lost.inputs[1], Pipeline(objects(), [CentreCrop(20)]).batch([1]).inputs[0])


def test_unreadable_images_are_errors_or_skipped(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    for name in "abc":
        Image.fromarray(noise).save(tmp_path / f"{name}.jpg")
    whole = (tmp_path / "b.jpg").read_bytes()
    (tmp_path / "b.jpg").write_bytes(whole[: len(whole) // 2])
    names = ("a.jpg", "b.jpg", "c.jpg")
    data = Dataset("toy", "train", ("x",), names, [0, 0, 0], ImageFiles(tmp_path, names))
    with pytest.raises(UnreadableError, match=facts("b.jpg")):
        Pipeline(data, [CentreCrop(32)]).batch([0, 1, 2])
    batch = Pipeline(data, [CentreCrop(32)], on_error="skip").batch([0, 1, 2])
    assert batch.ids == ("a.jpg", "c.jpg")
    assert [name for name, _ in batch.skipped] == ["b.jpg"]
    assert len(Pipeline(data, on_error="skip").batch([1])) == 0


def test_pipelines_refuse_nonsense():
    texts = Dataset("toy", "train", ("a",), ("1",), [0], Rows(np.zeros((1, 2))))
    assert Pipeline(texts).batch([0]).inputs.shape == (1, 2)
    sizes = [np.zeros((4, 4, 3), np.uint8), np.zeros((5, 5, 3), np.uint8)]

    class Uneven(ImageArray):
        def open(self, index, draft=None):
            return Image.fromarray(sizes[index])

    uneven = Dataset("toy", "train", ("a",), ("1", "2"), [0, 0], Uneven(np.zeros((2, 4, 4), np.uint8)))
    with pytest.raises(ValueError, match=facts("centre_crop")):
        Pipeline(uneven).batch([0, 1])


def test_a_batch_of_nothing_has_its_channels(tmp_path):
    data = Dataset("toy", "train", ("x",), ("a",), [0], ImageFiles(tmp_path, ("missing.png",)))
    for channels in (1, 3):
        batch = Pipeline(data, channels=channels, on_error="skip").batch([0])
        assert batch.inputs.shape == (0, channels, 0, 0)
        assert normalised(batch.inputs, [0.5] * channels, [0.25] * channels).shape == (0, channels, 0, 0)


def same(one, other):
    """Whether two batches agree in every field."""
    for field in dataclasses.fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "views":
            assert list(a) == list(b)
        elif isinstance(a, torch.Tensor):
            assert torch.equal(a.nan_to_num(-1), b.nan_to_num(-1)), field.name
        elif isinstance(a, Boxes):
            assert np.array_equal(a.corners, b.corners)
            assert np.array_equal(a.offsets, b.offsets)
        else:
            assert a == b, field.name
    return True


@pytest.mark.slow
def test_batches_do_not_depend_on_workers():
    boxes = Boxes.of([[[1, 2, 10 + i, 9]] for i in range(5)])
    options = {"padding": "edge", "resampling": "bicubic", "channels": 1, "context_rate": 0.4}
    pipeline = Pipeline(
        pictures(boxes=boxes),
        [RandomResizedCrop(16), Pad(2), RandomCrop(14), RandomFlip()],
        colouring=ColourJitter(0.4, 0.4, 0.4, 0.1),
        seed=3,
        **options,
    )
    batches = Batches(5, 2, seed=3)
    loader = pipeline.loader(batches, 2)
    for epoch in range(2):
        batches.epoch = epoch
        alone, apart = list(pipeline.loader(batches)), list(loader)
        assert len(alone) == len(apart) == 3
        assert all(same(one, other) for one, other in zip(alone, apart, strict=True))


def threads(image, random):
    """Not a colouring, but the number of threads that torch has where it is done."""
    return torch.full_like(image, torch.get_num_threads())


def test_an_interrupt_before_a_worker_ignores_them_does_not_end_it(monkeypatch):
    """Ctrl-C may come while workers are still starting; without the block the main process loses its worker."""
    ignore = pipeline_module._ignore_interrupts

    def interrupted(worker):
        os.kill(os.getpid(), signal.SIGINT)
        ignore(worker)

    monkeypatch.setattr(pipeline_module, "_ignore_interrupts", interrupted)
    loader = Pipeline(objects(), [CentreCrop(SIZE)]).loader(Batches(3, 2), workers=1)
    assert [len(batch.ids) for batch in loader] == [2, 1]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_workers_run_one_thread_each():
    pipeline = Pipeline(pictures(), colouring=threads)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        here, there = (next(iter(pipeline.loader(Batches(5, 5), workers))) for workers in (0, 1))
    finally:
        torch.set_num_threads(before)
    assert (here.inputs == 2).all()
    assert (there.inputs == 1).all()


def test_workers_read_ahead():
    """Three batches are read while one is asked for: that one and the next two."""
    count = multiprocessing.get_context("fork").Value("i", 0)

    class Counted(ImageArray):
        def open(self, index, draft=None):
            with count.get_lock():
                count.value += 1
            return super().open(index, draft)

    pixels = noise(10, 4, 4, 3)
    data = pictures(pixels).replace(inputs=Counted(pixels))
    batches = iter(Pipeline(data).loader(Batches(10, 2), 1, multiprocessing_context="fork"))
    next(batches)
    patience = time.monotonic() + 60
    while count.value < 6 and time.monotonic() < patience:
        time.sleep(0.01)
    assert count.value == 6


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
        assert same(ours, pipeline.batch(indices, epoch))


def test_a_view_that_shows_nothing_goes_sample_by_sample(monkeypatch):
    """Where padding is wider than the image, a crop may lie outside of it."""
    pipeline = Pipeline(images(True), [RandomCrop(8, padding=60), Pad(1)], padding="edge")
    indices = list(range(57))
    ours = pipeline.batch(indices)
    monkeypatch.setattr(Pipeline, "_batch_at_once", lambda self, pairs: None)
    assert same(ours, pipeline.batch(indices))


def test_rows_of_an_array_are_taken_at_once():
    values = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    data = Dataset("table", "train", ("a", "b"), tuple("abcdefghi"), np.arange(9) % 2, Rows(values))
    np.testing.assert_array_equal(Pipeline(data).batch([4, 1, 8]).inputs.numpy(), values[[4, 1, 8]])


def test_masks_are_rendered_with_their_images():
    pixels = np.random.default_rng(0).integers(0, 4, (2, 10, 12), dtype=np.uint8)

    class Masks(ImageArray):
        def open(self, index, draft=None):
            return Image.fromarray(self.pixels[index])

    images = ImageArray(pixels * 60)
    data = Dataset("toy", "train", tuple("abcd"), ("a", "b"), [-1, -1], images, masks=Masks(pixels), ignore_index=255)
    batch = Pipeline(data, [RandomCrop((8, 8), padding=3), RandomFlip()]).batch([0, 1])
    inside = batch.masks != 255
    assert torch.equal(batch.inputs[:, 0][inside].long(), batch.masks[inside] * 60)
    assert (batch.inputs[:, 0][~inside] == 0).all()


def test_batches_say_what_their_crops_show():
    data = objects()
    chain = [RandomResizedCrop(12, scale=(0.2, 1.0)), RandomFlip()]
    pipeline = Pipeline(data, chain, seed=5)
    batch = pipeline.batch([1, 0, 2], epoch=4)
    assert batch.inputs.shape == (3, 3, 12, 12)
    assert batch.inputs.dtype == torch.uint8
    assert batch.ids == ("b", "a", "c")
    for n, image in enumerate((1, 0, 2)):
        crop = batch.views[n].crop  # whole pixels, but the box of b lies on tenths of them
        expected = reference.objectness(BOXES[image], crop, (SIZE, SIZE), scale=10)
        assert batch.objectness[n].item() == pytest.approx(expected, abs=1e-12)
