"""Data sets: columns that fit, where inputs come from, splits by id, orders of samples."""

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
    Rows,
    TextFiles,
    by_ids,
    disjoint,
    hold_out,
    normalised,
    resample,
)
from calibrant.data.sources import JoinedInputs
from tests.helpers.errors import facts
from tests.helpers.toy_images import BOX_LABELS, BOXES, noise, objects


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


def test_files_are_taken_by_position(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"text {number}")
        Image.new("L", (4 + number, 2), number).save(tmp_path / f"{number}.png")
    texts = TextFiles(tmp_path, ("0.txt", "1.txt", "2.txt")).take(np.array([2, 0]))
    assert (len(texts), texts[0], texts.where(1)) == (2, "text 2", str(tmp_path / "0.txt"))
    masks = ImageFiles(tmp_path, ("0.png", "1.png", "2.png"), mode=None, max_pixels=100).take(np.array([1]))
    assert (masks.mode, masks.max_pixels, masks.header(0)) == (None, 100, ((5, 2), "L"))
    assert np.asarray(masks[0]).tolist() == [[1] * 5] * 2


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
