"""Data sets: columns that fit, splits by id, orders of samples, inspections, versions of single objects and context."""

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant.data import (
    Batches,
    Boxes,
    CentreCrop,
    Dataset,
    ImageArray,
    ImageFiles,
    Pipeline,
    RandomResizedCrop,
    Resize,
    Rows,
    by_ids,
    context_only,
    disjoint,
    hold_out,
    inspect,
    normalised,
    pixel_mean,
    recognise,
    resample,
    single_object,
)
from calibrant.data.sources import JoinedInputs
from tests.helpers.errors import facts
from tests.helpers.toy_images import BOX_LABELS, BOXES, covered, noise, objects, placed


def test_merged_sets_keep_boxes_with_their_images():
    first = objects(boxes=Boxes.of(BOXES, BOX_LABELS, [[True, False, False], [False, True], []]))
    second = objects().replace(ids=("d", "e", "f"))
    both = first.merged(second)
    assert both.boxes.labels.tolist() == [1, 0, -1, 1, 0] * 2
    assert both.boxes.crowd.tolist() == [True, False, False, False, True] + [False] * 5
    assert both.boxes[4].tolist() == BOXES[1]
    assert np.array_equal(np.asarray(both[4].input), second.inputs.pixels[1])
    with pytest.raises(ValueError, match=facts("ignore_index")):
        first.merged(second.replace(ignore_index=255))


def test_positions_count_from_the_end_and_are_checked():
    data = objects()
    assert data.take([-1, -2]).ids == ("c", "b")
    assert data.take([-2]).boxes[0].tolist() == BOXES[1]
    assert data.boxes[-2].tolist() == BOXES[1]
    assert Pipeline(data, [CentreCrop(20)]).batch([-2]).ids == ("b",)
    assert data.take([True, False, True]).ids == ("a", "c")
    with pytest.raises(IndexError, match=facts("3")):
        data.take([3])
    with pytest.raises(ValueError, match=facts("[1]")):
        data.take([True])
    with pytest.raises(ValueError, match=facts("float64")):
        data.take([0.5])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": ("a", "a", "c")}, facts("'a'")),
        ({"labels": [0, 2, 0]}, facts("2")),
        ({"labels": [0, 1]}, facts("labels", "2", "3")),
        ({"classes": ("cat", "cat")}, facts("cat")),
        ({"soft": np.ones((3, 5))}, facts("soft", "3, 5")),
        ({"boxes": Boxes.of([[]])}, facts("boxes", "1", "3")),
    ],
)
def test_data_sets_refuse_nonsense(changes, message):
    with pytest.raises(ValueError, match=message):
        objects().replace(**changes)


def test_joined_sources_keep_their_order():
    first, second = (ImageArray(np.full((n, 2, 3), n, np.uint8), f"set {n}") for n in (2, 3))
    joined = JoinedInputs.of(first, second).take(np.array([3, 0, 1]))
    assert (len(joined), joined.kind) == (3, "image")
    assert [joined.where(i) for i in range(3)] == ["set 3[1]", "set 2[0]", "set 2[1]"]
    assert [int(np.asarray(joined[i]).max()) for i in range(3)] == [3, 2, 2]
    assert joined.header(0) == ((3, 2), "L")
    with pytest.raises(ValueError, match=facts("image", "array")):
        JoinedInputs.of(first, Rows(np.zeros((2, 2))))


def test_arrays_that_hold_no_images():
    with pytest.raises(ValueError, match=facts("[2, 4]")):
        ImageArray(np.zeros((2, 4)))


def rows(number, classes=3, prefix=""):
    labels = np.arange(number) % classes
    ids = tuple(f"{prefix}{i}" for i in range(number))
    return Dataset("toy", prefix or "train", tuple("abcdefgh"[:classes]), ids, labels, Rows(np.arange(number)[:, None]))


def test_hold_outs_of_the_papers():
    data = rows(600)
    train, val = hold_out(data, fraction=1 / 6, seed=3)
    assert (len(train), len(val)) == (500, 100)
    assert set(train.ids) | set(val.ids) == set(data.ids)
    assert not set(train.ids) & set(val.ids)
    assert [int(v.input[0]) for v in val] == [int(i) for i in val.ids]  # inputs go with their ids
    assert hold_out(data, fraction=1 / 6, seed=3)[1].ids == val.ids
    assert hold_out(data, fraction=1 / 6, seed=4)[1].ids != val.ids
    assert len(hold_out(data, count=45)[1]) == 45
    assert hold_out(data, per_class=50)[1].counts.tolist() == [50, 50, 50]


def test_hold_outs_do_not_depend_on_the_order_of_samples():
    data = rows(90)
    shuffled = data.take(np.random.default_rng(0).permutation(90))
    assert set(hold_out(data, count=30)[1].ids) == set(hold_out(shuffled, count=30)[1].ids)
    assert set(hold_out(data, per_class=5)[1].ids) == set(hold_out(shuffled, per_class=5)[1].ids)


def test_held_out_samples_are_drawn_evenly():
    """Over 200 seeds each of 12 samples is held out a third of the time (5 standard errors)."""
    times = np.zeros(12)
    for seed in range(200):
        times[[int(i) for i in hold_out(rows(12), count=4, seed=seed)[1].ids]] += 1
    assert np.abs(times / 200 - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 200)


def test_merge_and_resample():
    train, test = rows(40, prefix="train"), rows(13, prefix="test")
    one, two = resample(train, test, seed=1), resample(train, test, seed=2)
    for new_train, new_test in (one, two):
        assert (len(new_train), len(new_test)) == (40, 13)
        assert set(new_train.ids) | set(new_test.ids) == set(train.ids + test.ids)
        for sample in new_test:
            assert int(sample.input[0]) == int(sample.id.removeprefix("train").removeprefix("test"))
    assert one[1].ids != two[1].ids
    assert [part.split for part in one] == ["train", "test"]
    order = list(train.ids + test.ids)
    assert all(list(part.ids) == sorted(part.ids, key=order.index) for part in one)
    assert {i.rstrip("0123456789") for i in one[1].ids} == {"train", "test"}
    with pytest.raises(ValueError, match=facts("train0")):
        resample(train, train, seed=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: hold_out(d), facts("none", "per_class")),
        (lambda d: hold_out(d, count=1, fraction=0.5), facts("fraction", "count")),
        (lambda d: hold_out(d, count=12), facts("12")),
        (lambda d: hold_out(d, fraction=1.0), facts("fraction", "1.0")),
        (lambda d: hold_out(d, per_class=4), facts("'a'", "4")),
        (lambda d: by_ids(d, {"a": ["1"], "b": ["2", "1"]}), facts("'1'", "'a'", "'b'")),
        (lambda d: by_ids(d, {"a": ["99"]}), facts("99")),
        (lambda d: disjoint(d, d.take([3])), facts("'3'")),
    ],
)
def test_splits_refuse_overlap_and_nonsense(call, message):
    with pytest.raises(ValueError, match=message):
        call(rows(12))


def test_orders_of_epochs():
    batches = Batches(10, 4, seed=2)
    first = list(batches)
    assert [len(b) for b in first] == [4, 4, 2]
    assert sorted(i for b in first for _, i in b) == list(range(10))
    batches.epoch = 1
    assert [i for b in batches for _, i in b] != [i for b in first for _, i in b]
    batches.epoch, batches.start = 0, 1
    assert list(batches) == first[1:]
    assert len(batches) == 2
    assert len(Batches(10, 4, drop_last=True)) == 2


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "strided"])
@pytest.mark.parametrize("channels", [1, 3])
def test_normalisation_of_any_layout(layout, channels):
    images = torch.from_numpy(noise(2, 5, 7, 4))[..., :channels].permute(0, 3, 1, 2)
    if layout != "strided":
        order = torch.channels_last if layout == "channels last" else torch.contiguous_format
        images = images.contiguous(memory_format=order)
    mean, std = [0.4, 0.5, 0.6][:channels], [0.2, 0.3, 0.25][:channels]
    expected = images.double() / 255
    expected = (expected - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)
    floats = images.float()
    kept = floats.clone()
    for given in (images, floats):
        torch.testing.assert_close(normalised(given, mean, std).double(), expected, rtol=0, atol=1e-6)
    assert torch.equal(floats, kept)  # what was given is not overwritten
    for wrong in ([0.5] * 2, [0.5] * (4 - channels), []):
        for arguments in ((wrong, std), (mean, wrong)):
            with pytest.raises(ValueError, match=facts(*(str(len(values)) for values in arguments))):
                normalised(images, *arguments)


def test_counts_copies_and_progress():
    layout, root = recognise("scenes")
    calls = []
    options = {"samples": 40}
    inspection, datasets = inspect(
        layout, root, ["train", "val"], options=options, progress=lambda *call: calls.append(call)
    )
    assert inspection.samples == 80
    facts, data = inspection.splits["val"], datasets["val"]
    assert list(facts.class_counts.values()) == data.counts.tolist()
    assert facts.sizes == {"width_min": 32, "height_min": 32, "width_max": 32, "height_max": 32}
    assert facts.boxes["number"] == len(data.boxes.corners)
    assert sum(facts.boxes["area_histogram"]) == len(data.boxes.corners)
    assert sum(facts.boxes["objectness_histogram"]) == 40
    missing = {name for name, count in facts.class_counts.items() if count == 0}
    assert missing == {place for issue in facts.report.odd if "without samples" in issue.what for place in issue.where}
    assert inspection.to_json()["across_splits"] == []
    for what in ("images of train", "images of val", "copies in train", "copies in val"):
        assert [call[1:] for call in calls if call[0] == what] == [(done, 40) for done in range(41)]


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
