"""Single-object and context-only versions, by hand and by counting pixels."""

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant.data import (
    Boxes,
    Dataset,
    ImageArray,
    ImageFiles,
    Pipeline,
    RandomResizedCrop,
    Resize,
    Rows,
    context_only,
    pixel_mean,
    single_object,
)
from tests.helpers.errors import facts
from tests.helpers.toy_images import BOX_LABELS, BOXES, covered, objects, placed


def test_single_objects():
    data = objects()
    alone = single_object(data, fill=(0, 0, 0))
    assert alone.ids == ("a#0", "a#1", "b#1")  # no sample for a box without class, none without area
    assert alone.labels.tolist() == [1, 0, 0]
    assert alone.boxes.counts.tolist() == [1, 1, 1]
    for i, (image, box) in enumerate(((0, 0), (0, 1), (1, 1))):
        kept = covered([BOXES[image][box]])
        others = covered(BOXES[image]) & ~kept
        pixels = np.asarray(alone[i].input)
        assert (pixels[others] == 0).all()
        assert np.array_equal(pixels[~others], data.inputs.pixels[image][~others])
        assert alone[i].boxes.tolist() == [BOXES[image][box]]
    assert alone.take([2])[0].id == "b#1"


def test_context_only():
    assert context_only(objects(), fill=(9, 9, 9)).ids == ("a",)  # a box of b has no area: its object may be in sight
    data = objects(boxes=placed())
    context = context_only(data, fill=(9, 9, 9))
    assert context.ids == ("a", "b")  # nothing says that image c shows no object
    assert context.labels.tolist() == [1, 0]
    assert context.context.all()
    for i in range(2):
        mask = covered(placed()[i])
        pixels = np.asarray(context[i].input)
        assert (pixels[mask] == 9).all()
        assert np.array_equal(pixels[~mask], data.inputs.pixels[i][~mask])
    batch = Pipeline(context, [RandomResizedCrop(8)]).batch([0, 1])
    assert batch.objectness.tolist() == [0, 0]
    assert batch.context.all()


def test_crowds_are_covered_but_no_samples():
    data = objects(boxes=Boxes.of(BOXES, BOX_LABELS, [[True, False, False], [False, False], []]))
    assert single_object(data, fill=(0, 0, 0)).ids == ("a#1", "b#1")
    assert (np.asarray(context_only(data, fill=(0, 0, 0))[0].input)[3, 3] == 0).all()


def test_the_fill_is_the_mean_pixel():
    data = objects()
    mean = data.inputs.pixels.reshape(-1, 3).astype(float).mean(0)
    assert pixel_mean(data) == tuple(round(v) for v in mean)
    assert tuple(np.asarray(context_only(data)[0].input)[3, 3]) == pixel_mean(data)


def test_covering_a_smaller_decoding(tmp_path):
    """A JPEG that is decoded at a fraction of its size has its boxes covered at that size."""
    Image.new("RGB", (640, 480), (200, 200, 200)).save(tmp_path / "a.jpg", quality=95)
    box = [[160, 120, 480, 360]]
    data = Dataset("toy", "train", ("x",), ("a",), [0], ImageFiles(tmp_path, ("a.jpg",)), Boxes.of([box], [[0]]))
    steps = [Resize(48)]
    batch = Pipeline(context_only(data, fill=(0, 0, 0)), steps).batch([0])
    dark = (batch.inputs[0, 0] < 100).double().mean().item()
    assert dark == pytest.approx(0.25, abs=0.02)
    assert context_only(data).inputs.header(0) == ((640, 480), "RGB")
    shown = Pipeline(data, steps, context_rate=1.0, fill=(0, 0, 0)).batch([0])
    assert torch.equal(shown.inputs, batch.inputs)


def test_variants_need_boxes():
    with pytest.raises(ValueError, match=facts("toy train", "boxes")):
        single_object(objects(boxes=None))
    rows = Dataset("toy", "train", ("a",), ("1",), [0], Rows(np.zeros((1, 2))))
    with pytest.raises(ValueError, match=facts("array")):
        context_only(rows)


def test_the_mean_looks_at_images_all_over_the_set():
    pixels = np.repeat(np.arange(0, 250, 25, dtype=np.uint8), 48).reshape(10, 4, 4, 3)
    data = Dataset("toy", "train", ("x",), tuple("abcdefghij"), [0] * 10, ImageArray(pixels))
    assert pixel_mean(data, limit=2) == (112, 112, 112)  # the first and the last, 0 and 225: 112.5 to the even
