"""Single-object and context-only versions, splits, and batches: by hand and by counting pixels."""

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
    by_ids,
    context_only,
    disjoint,
    hold_out,
    normalised,
    pixel_mean,
    resample,
    single_object,
)
from calibrant.data.pipeline import sample_generator
from calibrant.targets import adaptive_targets
from calibrant.training import predict
from tests.reference import objects as reference

SIZE = 20
BOXES = [[[2, 2, 8, 8], [6, 6, 14, 12], [0, 0, 20, 1]], [[5, 5, 5, 9], [10.5, 3.2, 15.5, 9.9]], []]
BOX_LABELS = [[1, 0, -1], [1, 0], []]


def objects(**changes):
    pixels = np.random.default_rng(0).integers(1, 255, (3, SIZE, SIZE, 3), dtype=np.uint8)
    columns = {"boxes": Boxes.of(BOXES, BOX_LABELS), "labels": [1, 0, -1]} | changes
    return Dataset("toy", "train", ("cat", "dog"), ("a", "b", "c"), inputs=ImageArray(pixels), **columns)


def placed():
    """The boxes that have an area."""
    return Boxes.of([BOXES[0], BOXES[1][1:], []], [BOX_LABELS[0], BOX_LABELS[1][1:], []])


def covered(boxes):
    mask = np.zeros((SIZE, SIZE), dtype=bool)
    for x1, y1, x2, y2 in boxes:
        if x2 > x1 and y2 > y1:
            mask[int(np.floor(y1)) : int(np.ceil(y2)), int(np.floor(x1)) : int(np.ceil(x2))] = True
    return mask


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
    with pytest.raises(ValueError, match="toy train: boxes are needed"):
        single_object(objects(boxes=None))
    rows = Dataset("toy", "train", ("a",), ("1",), [0], Rows(np.zeros((1, 2))))
    with pytest.raises(ValueError, match="images are needed, and its samples are of kind 'array'"):
        context_only(rows)


def test_the_mean_looks_at_images_all_over_the_set():
    pixels = np.repeat(np.arange(0, 250, 25, dtype=np.uint8), 48).reshape(10, 4, 4, 3)
    data = Dataset("toy", "train", ("x",), tuple("abcdefghij"), [0] * 10, ImageArray(pixels))
    assert pixel_mean(data, limit=2) == (112, 112, 112)  # the first and the last, 0 and 225: 112.5 to the even


def test_merged_sets_keep_boxes_with_their_images():
    first = objects(boxes=Boxes.of(BOXES, BOX_LABELS, [[True, False, False], [False, True], []]))
    second = objects().replace(ids=("d", "e", "f"))
    both = first.merged(second)
    assert both.boxes.labels.tolist() == [1, 0, -1, 1, 0] * 2
    assert both.boxes.crowd.tolist() == [True, False, False, False, True] + [False] * 5
    assert both.boxes[4].tolist() == BOXES[1]
    assert np.array_equal(np.asarray(both[4].input), second.inputs.pixels[1])
    with pytest.raises(ValueError, match="their ignore_index differs"):
        first.merged(second.replace(ignore_index=255))


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


# --- splits -----------------------------------------------------------------------------------------------------------


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
    """Over 400 seeds each of 12 samples is held out a third of the time (5 standard errors)."""
    times = np.zeros(12)
    for seed in range(400):
        times[[int(i) for i in hold_out(rows(12), count=4, seed=seed)[1].ids]] += 1
    assert np.abs(times / 400 - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 400)


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
    with pytest.raises(ValueError, match="'train0' is in toy train and in toy train: splits must not overlap"):
        resample(train, train, seed=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: hold_out(d), "one of fraction, count and per_class, got none"),
        (lambda d: hold_out(d, count=1, fraction=0.5), "got fraction, count"),
        (lambda d: hold_out(d, count=12), "cannot hold out 12 of 12"),
        (lambda d: hold_out(d, fraction=1.0), "between 0 and 1"),
        (lambda d: hold_out(d, per_class=4), "class 'a' has 4"),
        (lambda d: by_ids(d, {"a": ["1"], "b": ["2", "1"]}), "'1' is in the splits 'a' and 'b'"),
        (lambda d: by_ids(d, {"a": ["99"]}), "the id '99', which no sample has"),
        (lambda d: disjoint(d, d.take([3])), "'3' is in toy train"),
    ],
)
def test_splits_refuse_overlap_and_nonsense(call, message):
    with pytest.raises(ValueError, match=message):
        call(rows(12))


# --- batches ----------------------------------------------------------------------------------------------------------


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


def test_positions_count_from_the_end_and_are_checked():
    data = objects()
    assert data.take([-1, -2]).ids == ("c", "b")
    assert data.take([-2]).boxes[0].tolist() == BOXES[1]
    assert data.boxes[-2].tolist() == BOXES[1]
    assert Pipeline(data, [CentreCrop(20)]).batch([-2]).ids == ("b",)
    assert data.take([True, False, True]).ids == ("a", "c")
    with pytest.raises(IndexError, match="outside the 3 samples"):
        data.take([3])
    with pytest.raises(ValueError, match="a mask of shape"):
        data.take([True])
    with pytest.raises(ValueError, match="whole numbers"):
        data.take([0.5])


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


def test_padding_has_one_colour_in_every_channel():
    batch = Pipeline(objects(), [Pad(2)], padding=128).batch([0])
    assert batch.inputs[0, :, 0, 0].tolist() == [128, 128, 128]


def test_a_sample_depends_on_seed_epoch_and_index_alone():
    data = objects()
    chain = [RandomCrop(16, padding=2), RandomFlip()]
    pipeline = Pipeline(data, chain, seed=1, colouring=ColourJitter(0.4, 0.4, 0.4, 0.1), context_rate=0.3)
    together = pipeline.batch([0, 1, 2], epoch=2)
    alone = [pipeline.batch([i], epoch=2).inputs for i in range(3)]
    assert torch.equal(together.inputs, torch.cat(alone))
    assert not torch.equal(together.inputs, pipeline.batch([0, 1, 2], epoch=3).inputs)
    batches = Batches(3, 2, seed=1)
    batches.epoch = 2
    loaded = {}
    for batch in pipeline.loader(batches, workers=2):
        loaded |= dict(zip(batch.indices.tolist(), batch.inputs, strict=True))
    assert torch.equal(torch.stack([loaded[i] for i in range(3)]), together.inputs)


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


def test_unreadable_images_are_errors_or_skipped(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    for name in "abc":
        Image.fromarray(noise).save(tmp_path / f"{name}.jpg")
    whole = (tmp_path / "b.jpg").read_bytes()
    (tmp_path / "b.jpg").write_bytes(whole[: len(whole) // 2])
    names = ("a.jpg", "b.jpg", "c.jpg")
    data = Dataset("toy", "train", ("x",), names, [0, 0, 0], ImageFiles(tmp_path, names))
    with pytest.raises(UnreadableError, match=r"b\.jpg: the image is truncated or broken"):
        Pipeline(data, [CentreCrop(32)]).batch([0, 1, 2])
    batch = Pipeline(data, [CentreCrop(32)], on_error="skip").batch([0, 1, 2])
    assert batch.ids == ("a.jpg", "c.jpg")
    assert [name for name, _ in batch.skipped] == ["b.jpg"]
    assert len(Pipeline(data, on_error="skip").batch([1])) == 0


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_normalisation(layout):
    images = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8).contiguous(memory_format=layout)
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.25])
    expected = (images.double() / 255 - mean[:, None, None]) / std[:, None, None]
    result = normalised(images, mean, std)
    assert torch.allclose(result.double(), expected, atol=1e-6)
    assert result.shape == images.shape
    floats = images.float().contiguous(memory_format=layout)
    kept = floats.clone()
    normalised(floats, mean, std)
    assert torch.equal(floats, kept)  # what was given is not overwritten


def test_pipelines_refuse_nonsense():
    with pytest.raises(ValueError, match=r"context rate in 0\.\.1"):
        Pipeline(objects(), context_rate=2.0)
    with pytest.raises(ValueError, match="context-only samples need boxes"):
        Pipeline(objects(boxes=None), context_rate=0.1)
    texts = Dataset("toy", "train", ("a",), ("1",), [0], Rows(np.zeros((1, 2))))
    assert Pipeline(texts).batch([0]).inputs.shape == (1, 2)
    sizes = [np.zeros((4, 4, 3), np.uint8), np.zeros((5, 5, 3), np.uint8)]

    class Uneven(ImageArray):
        def open(self, index, draft=None):
            return Image.fromarray(sizes[index])

    uneven = Dataset("toy", "train", ("a",), ("1", "2"), [0, 0], Uneven(np.zeros((2, 4, 4), np.uint8)))
    with pytest.raises(ValueError, match="different sizes in one batch"):
        Pipeline(uneven).batch([0, 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": ("a", "a", "c")}, "the id 'a' occurs more than once"),
        ({"labels": [0, 2, 0]}, "the label 2 is outside 0..1"),
        ({"labels": [0, 1]}, "2 labels for 3 samples"),
        ({"classes": ("cat", "cat")}, "the class 'cat' occurs more than once"),
        ({"soft": np.ones((3, 5))}, "soft labels of shape"),
        ({"boxes": Boxes.of([[]])}, "1 boxes for 3 samples"),
    ],
)
def test_data_sets_refuse_nonsense(changes, message):
    with pytest.raises(ValueError, match=message):
        objects().replace(**changes)
