"""Scenes: the truth that comes with the pictures, held against the pixels and against what chance allows."""

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from calibrant.data import scenes as module
from calibrant.data.drawing import CLASSES, OUTLINES
from calibrant.data.scenes import draw, scene_masks, scenes, true_calibration_error, true_error
from calibrant.metrics import ece
from tests.helpers.errors import facts

K = len(CLASSES)


@pytest.fixture(scope="module")
def drawn():
    return draw("test", samples=600, seed=3, masks=True)


@pytest.fixture(scope="module")
def many():
    """Plans alone, which is all that labels and posteriors depend on."""
    return module._make_plan(np.random.default_rng(5).random((20_000, module._COLUMNS)), 0.8, 0.5, 32)


def within_chance(hits, trials, share):
    """Whether a count is inside the central 99.9% of its binomial distribution."""
    low, high = binom.interval(0.999, trials, share)
    return low <= hits <= high


# --- the same seed, the same pixels


def test_the_seed_and_the_split_decide_every_picture():
    def pictures(split, seed):
        return [image.tobytes() for image in draw(split, samples=200, seed=seed).images]

    assert pictures("train", 1) == pictures("train", 1)
    drawn = [picture for split in ("train", "val", "test") for seed in (1, 2) for picture in pictures(split, seed)]
    assert len(set(drawn)) == 1200


@pytest.mark.parametrize("shift", [None, "texture", "sketch"])
def test_a_sample_does_not_depend_on_how_many_are_drawn(shift):
    few, more = (draw("val", samples=n, seed=4, shift=shift) for n in (259, 601))  # across the edge of a block
    assert np.array_equal(few.images, more.images[:259])
    assert np.array_equal(few.posterior, more.posterior[:259])
    assert np.array_equal(few.boxes, more.boxes[: few.offsets[-1]])


# --- boxes against pixels


def test_boxes_are_tight_around_the_pixels(drawn):
    for (x1, y1, x2, y2), mask in zip(drawn.boxes.tolist(), drawn.masks, strict=True):
        rows, columns = np.nonzero(mask)
        assert (x1, y1, x2, y2) == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)


def test_objects_are_where_the_boxes_say(monkeypatch, drawn):
    """Pictures differ from the same grounds without objects inside the boxes alone, and wherever a mask is."""
    from calibrant.data import drawing

    coverage = drawing.coverage
    monkeypatch.setattr(drawing, "coverage", lambda *a: np.zeros_like(coverage(*a)))
    empty = draw("test", samples=600, seed=3)
    differs = (drawn.images != empty.images).any(axis=3)
    inside = np.zeros_like(differs)
    owner = np.repeat(np.arange(600), np.diff(drawn.offsets))
    found = 0
    for image, mask, (x1, y1, x2, y2) in zip(owner, drawn.masks, drawn.boxes, strict=True):
        inside[image, y1:y2, x1:x2] = True
        found += (differs[image] & mask).sum() / mask.sum()
    assert not (differs & ~inside).any()
    assert found / len(owner) > 0.97  # a pixel may have the colour of the ground behind it by chance


def test_objects_do_not_overlap_and_the_label_is_that_of_the_largest(drawn):
    assert set(np.diff(drawn.offsets)) == {1, 2, 3}
    for image, (start, end) in enumerate(zip(drawn.offsets[:-1], drawn.offsets[1:], strict=True)):
        masks = drawn.masks[start:end]
        assert masks.sum(axis=0).max() == 1
        sizes = masks.sum(axis=(1, 2))
        assert drawn.box_labels[start:end][sizes.argmax()] == drawn.labels[image]
        assert (sizes[1:] < sizes[0]).all()


def test_objects_are_small_and_large(drawn):
    x1, y1, x2, y2 = drawn.boxes[drawn.offsets[:-1]].T
    share = (x2 - x1) * (y2 - y1) / 32**2
    assert 0.06 < share.min() < 0.1
    assert 0.65 < share.max() < 0.82  # the soft edge adds up to a pixel on each side
    assert np.quantile(share, 0.25) < 0.25
    assert np.quantile(share, 0.75) > 0.45


def test_the_drawn_area_is_that_of_the_outline():
    """The area of a shape, by the formula for polar curves, against its pixels in a large picture."""
    large = draw("val", samples=64, size=128, ambiguous=0.0, masks=True)
    plan = module._make_plan(np.random.default_rng([0, 1, 0]).random((64, module._COLUMNS)), 0.8, 0.0, 128)
    assert np.allclose((OUTLINES**2).sum(axis=1) * np.pi / OUTLINES.shape[1], 1)
    ratio = large.masks.sum(axis=(1, 2)) / plan.scale**2
    big = plan.scale > 30
    assert np.abs(ratio[big] - 1).max() < 0.15  # the soft edge counts as drawn
    assert ratio[big].mean() > 1


# --- the posterior


def test_posteriors_are_distributions_over_two_neighbours(drawn):
    assert np.allclose(drawn.posterior.sum(axis=1), 1)
    assert (drawn.posterior[~drawn.ambiguous].max(axis=1) == 1).all()
    assert np.array_equal(drawn.posterior.argmax(axis=1)[~drawn.ambiguous], drawn.labels[~drawn.ambiguous])
    unsure = drawn.posterior[drawn.ambiguous]
    assert ((unsure > 0).sum(axis=1) == 2).all()
    assert unsure.max() <= 0.8
    assert unsure[unsure > 0].min() >= 0.2 - 1e-12
    one, other = np.array([np.flatnonzero(row) for row in unsure]).T
    assert set((other - one).tolist()) == {1, K - 1}


def test_labels_are_as_frequent_as_the_posterior_says(many):
    weight = many.posterior[np.arange(len(many.labels)), many.labels]
    # Of each pair (label, its posterior) in a slice of w, the share of the first class is the slice's mean w.
    top = many.posterior.argmax(axis=1)
    for low, high in ((0.5, 0.6), (0.6, 0.7), (0.7, 0.8)):
        own = many.posterior.max(axis=1)
        held = many.ambiguous & (own > low) & (own <= high)
        assert within_chance((many.labels == top)[held].sum(), held.sum(), own[held].mean())
    assert (weight > 0).all()
    expected = many.posterior.sum(axis=0)
    assert chisquare(np.bincount(many.labels, minlength=K), expected).pvalue > 1e-3


def test_nothing_else_in_an_ambiguous_picture_knows_the_label(many):
    """Where the ground is of one of the two classes, the label is still drawn by w alone."""
    unsure = np.flatnonzero(many.ambiguous)
    ground_weight = many.posterior[unsure, many.grounds[unsure]]
    related = ground_weight > 0
    agrees = (many.labels[unsure] == many.grounds[unsure])[related]
    assert within_chance(agrees.sum(), len(agrees), ground_weight[related].mean())
    extras = many.owner[np.flatnonzero(np.diff(many.owner, prepend=-1) == 0)]
    crowded = np.isin(unsure, extras)
    top = many.posterior[unsure].argmax(axis=1)
    hits = (many.labels[unsure] == top)[crowded]
    assert within_chance(hits.sum(), len(hits), many.posterior[unsure].max(axis=1)[crowded].mean())


def test_other_objects_are_of_other_classes(many):
    other = np.diff(many.owner, prepend=-1) == 0
    assert (many.posterior[many.owner[other], many.box_labels[other]] == 0).all()


@pytest.mark.parametrize("context", [0.0, 0.5, 0.8, 1.0])
def test_the_ground_agrees_with_the_class_as_often_as_asked(context):
    plan = module._make_plan(np.random.default_rng(6).random((8_000, module._COLUMNS)), context, 0.2, 32)
    sure = ~plan.ambiguous
    agrees = (plan.grounds == plan.labels)[sure]
    assert within_chance(agrees.sum(), sure.sum(), context + (1 - context) / K)
    assert within_chance(plan.ambiguous.sum(), 8_000, 0.2)


# --- shifts and the data set


@pytest.mark.parametrize("shift", ["texture", "sketch"])
def test_a_shift_changes_pixels_and_nothing_else(drawn, shift):
    shifted = draw("test", samples=600, seed=3, shift=shift, masks=True)
    for field in ("labels", "posterior", "offsets", "boxes", "box_labels", "masks"):
        assert np.array_equal(getattr(drawn, field), getattr(shifted, field)), field
    assert (shifted.images != drawn.images).mean() > 0.9


def test_a_sketch_has_no_colour_and_no_fill(drawn):
    sketch = draw("test", samples=600, seed=3, shift="sketch").images.astype(int)
    assert np.abs(sketch.mean(axis=(1, 2))[:, 0] - sketch.mean(axis=(1, 2))[:, 1]).max() < 12
    crates = np.flatnonzero((drawn.labels == CLASSES.index("crate")) & ~drawn.ambiguous)
    boxes = drawn.boxes[drawn.offsets[crates]]
    for image, (x1, y1, x2, y2) in zip(crates, boxes, strict=True):
        if x2 - x1 > 14:
            middle = sketch[image, (y1 + y2) // 2, (x1 + x2) // 2].mean()
            assert middle > sketch[image].mean() - 25


def test_the_data_set_holds_what_was_drawn():
    data, drawn = scenes("val", samples=70, seed=9, size=40), draw("val", samples=70, seed=9, size=40)
    assert data.classes == CLASSES
    assert (data.name, data.split, len(data)) == ("scenes", "val", 70)
    assert np.array_equal(np.asarray(data[13].input), drawn.images[13])
    assert np.array_equal(data.boxes[13], drawn.boxes[drawn.offsets[13] : drawn.offsets[14]])
    assert np.array_equal(data.soft, drawn.posterior)
    assert np.array_equal(data.labels, drawn.labels)
    assert not set(data.ids) & set(scenes("test", samples=70, seed=9).ids)
    assert scenes(samples=5, shift="sketch").name == "scenes-sketch"


def test_the_posterior_itself_is_calibrated(many):
    confidence, predicted = many.posterior.max(axis=1), many.posterior.argmax(axis=1)
    assert true_calibration_error(confidence, predicted, many.posterior) == pytest.approx(0, abs=1e-12)
    assert ece(confidence, predicted == many.labels) < 0.02  # from 20,000 labels
    assert true_error(predicted, many.posterior).mean() == pytest.approx((predicted != many.labels).mean(), abs=0.01)


# --- refused


def test_masks_have_the_class_of_the_object_below_them():
    options = {"samples": 30, "ambiguous": 0.4, "size": 24, "seed": 3}
    data, pictures = scene_masks("val", families=4, **options), draw("val", masks=True, **options)
    assert data.classes[0] == "background"
    assert len(data.classes) == 5
    for k in range(30):
        mask = np.asarray(data.masks[k])
        expected = np.zeros_like(mask)
        for number in range(pictures.offsets[k], pictures.offsets[k + 1]):
            between = pictures.ambiguous[k] and number == pictures.offsets[k]
            expected[pictures.masks[number]] = 255 if between else pictures.box_labels[number] // 4 + 1
        assert np.array_equal(mask, expected)
        assert np.array_equal(np.asarray(data.inputs[k]), pictures.images[k])
    assert {255} < set(np.unique(data.masks.pixels))
    assert np.array_equal(data.take(np.array([4])).masks[0], data.masks[4])
    with pytest.raises(ValueError, match=facts("families")):
        scene_masks("val", families=3)


def test_true_calibration_error_by_hand():
    # One bin of two: confidence 0.7, truth (0.5 + 0.7) / 2; one of one: 0.95 against 1.
    posterior = [[0.5, 0.5], [0.7, 0.3], [1.0, 0.0]]
    assert true_calibration_error([0.7, 0.7, 0.95], [0, 0, 0], posterior) == pytest.approx((2 * 0.1 + 0.05) / 3)
    assert true_calibration_error([0.7, 0.7, 0.95], [0, 0, 0], posterior, bins=1) == pytest.approx(0.15 / 3)


def test_with_certain_posteriors_the_true_error_is_ece():
    rng = np.random.default_rng(8)
    labels, predicted, confidence = rng.integers(0, 5, 700), rng.integers(0, 5, 700), rng.random(700)
    confidence[:16] = np.arange(16) / 15  # on the edges
    truth = np.eye(5)[labels]
    for bins in (1, 7, 15):
        ours = true_calibration_error(confidence, predicted, truth, bins=bins)
        assert ours == pytest.approx(ece(confidence, predicted == labels, bins=bins))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"split": "training"}, ("split", "training", "val")),
        ({"split": ["train"]}, ("split", "train", "val")),
        ({"samples": -5}, ("samples", "-5")),
        ({"samples": 2.5}, ("samples", "2.5")),
        ({"seed": -1}, ("seed", "-1")),
        ({"size": 8}, ("size", "8")),
        ({"shift": "blur"}, ("shift", "blur", "texture")),
        ({"ambiguous": float("nan")}, ("ambiguous", "nan")),
        ({"context": -0.1}, ("context", "-0.1")),
    ],
)
def test_what_cannot_be_drawn_is_refused(wrong, words):
    for function in (draw, scenes):
        with pytest.raises(ValueError, match=facts(*words)):
            function(**{"samples": 3, **wrong})


@pytest.mark.parametrize(
    ("confidence", "predicted", "posterior", "bins", "words"),
    [
        ([0.5, 0.5], [0, 1], [[0.5, 0.5]], 15, ("predicted", "posterior")),
        ([0.5], [2], [[0.5, 0.5]], 15, ("2",)),
        ([0.5], [0.5], [[0.5, 0.5]], 15, ("float64",)),
        ([0.5], [0], [[0.5, 0.6]], 15, ("posterior",)),
        ([0.5], [0], [[np.nan, 0.5]], 15, ("posterior",)),
        ([0.5, 0.5], [0], [[0.5, 0.5]], 15, ("confidence",)),
        ([1.5], [0], [[0.5, 0.5]], 15, ("confidence",)),
        ([0.5], [0], [[0.5, 0.5]], 0, ("bins",)),
    ],
)
def test_truths_refuse_what_does_not_fit(confidence, predicted, posterior, bins, words):
    with pytest.raises(ValueError, match=facts(*words)):
        true_calibration_error(confidence, predicted, posterior, bins=bins)
