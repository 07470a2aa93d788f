"""Objectness against counted pixels, views against torchvision's transforms, adaptive targets against ALS's formula."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from calibrant import _torchvision
from calibrant.data import (
    Boxes,
    CentreCrop,
    Pad,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    View,
    draw_view,
    objectness_of,
    render,
    union_area,
)
from calibrant.data.rendering import smaller_decoding
from calibrant.targets import adaptive_targets, hard_targets, objectness, uniform_targets
from tests.reference import objects as reference

_torchvision.ensure()
from torchvision.transforms import functional as tv  # noqa: E402

side = st.integers(1, 14)


@st.composite
def scenes(draw):
    """Boxes (overlapping, touching, without area, leaving the image), a crop that may leave it too, the size."""
    return scene(draw(st.integers(0, 2**32)))


def scene(seed):
    random = np.random.default_rng(seed)
    size = random.integers(8, 15, 2)
    corners = random.integers(-3, 9, (random.integers(0, 6), 2))
    boxes = np.concatenate([corners, corners + random.integers(0, 10, corners.shape)], axis=1)
    low = random.integers(-4, 5, 2)
    return boxes.tolist(), [*low, *(low + random.integers(5, 15, 2))], tuple(size.tolist())


def test_most_scenes_show_something():
    shares = [reference.objectness(*scene(seed)) for seed in range(300)]
    assert np.mean(np.array(shares) > 0) > 0.6
    assert len(set(shares)) > 100


@given(scenes())
def test_objectness_counts_pixels(scene):
    boxes, crop, size = scene
    assert objectness(boxes, crop, size) == pytest.approx(reference.objectness(boxes, crop, size), abs=1e-14)


def test_objectness_counts_pixels_of_many_scenes():
    for seed in range(1000):
        boxes, crop, size = scene(seed)
        assert objectness(boxes, crop, size) == pytest.approx(reference.objectness(boxes, crop, size), abs=1e-14)


@given(st.lists(scenes(), min_size=1, max_size=5))
def test_a_batch_is_its_images(batch):
    boxes, crops, sizes = zip(*batch, strict=True)
    values = objectness(list(map(np.array, boxes)) if all(boxes) else list(boxes), crops, sizes)
    assert values.tolist() == [objectness(*scene) for scene in batch]


@pytest.mark.parametrize(
    ("boxes", "crop", "size", "expected"),
    [
        ([[2, 2, 6, 6]], [0, 0, 8, 8], (8, 8), 16 / 64),
        ([[0, 0, 4, 4], [4, 0, 8, 4]], [0, 0, 8, 8], (8, 8), 32 / 64),  # touching
        ([[0, 0, 4, 4], [2, 2, 6, 6], [3, 3, 5, 5]], [0, 0, 8, 8], (8, 8), 28 / 64),  # overlapping, one inside
        ([[0, 0, 4, 4], [0, 0, 4, 4]], [0, 0, 8, 8], (8, 8), 16 / 64),  # twice the same
        ([[3, 0, 3, 8]], [0, 0, 8, 8], (8, 8), 0.0),  # without width
        ([[-5, -5, 4, 4]], [0, 0, 8, 8], (8, 8), 16 / 64),  # clipped to the image
        ([[20, 20, 30, 30]], [0, 0, 8, 8], (8, 8), 0.0),  # beside the image
        ([[6, 0, 20, 8]], [4, 0, 12, 8], (8, 8), 16 / 64),  # the crop's right half is padding
        ([[-5, -5, 4, 4]], [-3, -3, 5, 5], (8, 8), 16 / 64),  # and here its left and top
        ([[0.5, 0.25, 1.5, 0.75]], [0, 0, 2, 1], (2, 1), 0.25),  # parts of pixels
        ([[0, 0, 10, 20]], None, (40, 20), 0.25),  # width before height; None is the whole image
        ([], [0, 0, 8, 8], (8, 8), 0.0),
    ],
)
def test_objectness_by_hand(boxes, crop, size, expected):
    assert objectness(boxes, crop, size) == expected


def test_the_single_box_of_the_text():
    boxes = [[0, 0, 4, 4], [2, 2, 8, 8]]
    assert objectness(boxes, [0, 0, 8, 8], (8, 8), reading="single") == 36 / 64
    assert objectness(boxes, [0, 0, 4, 4], (8, 8), reading="single") == 1.0  # the one that shows most in the crop
    assert objectness([[0, 0, 4, 4]], [0, 0, 8, 8], (8, 8), reading="single") == 16 / 64
    assert objectness([], [0, 0, 8, 8], (8, 8), reading="single") == 0.0
    with pytest.raises(ValueError, match="'union' and 'single', got 'mask'"):
        objectness(boxes, [0, 0, 8, 8], (8, 8), reading="mask")


def test_forms_of_the_arguments():
    ragged = [[[0, 0, 4, 4]], [[0, 0, 8, 4], [0, 2, 8, 8]], []]
    expected = [0.25, 1.0, 0.0]
    whole = [0, 0, 8, 8]
    padded = np.zeros((3, 2, 4))
    padded[0, 0], padded[1] = ragged[0][0], ragged[1]
    assert objectness(ragged, whole, (8, 8)).tolist() == expected
    assert objectness(Boxes.of(ragged), [whole] * 3, [(8, 8)] * 3).tolist() == expected
    assert objectness(padded, whole, (8, 8)).tolist() == expected
    tensor = objectness(torch.tensor(padded, dtype=torch.float32), torch.tensor(whole), (8, 8))
    assert isinstance(tensor, torch.Tensor)
    assert tensor.tolist() == expected
    assert isinstance(objectness([torch.tensor([[0.0, 0, 4, 4]])], whole, (8, 8)), torch.Tensor)
    assert objectness(torch.zeros(0, 3, 4), whole, (8, 8)).shape == (0,)
    assert objectness(torch.tensor([[0, 0, 4, 4]], dtype=torch.bfloat16), whole, (8, 8)).item() == 0.25
    assert objectness([[0, 0, 4, 4]], whole, [(8, 8), (4, 4), (2, 2)]).tolist() == [0.25, 0.25, 0.0625]
    one_image_many_crops = objectness([[0, 0, 4, 8]], [[0, 0, 4, 8], [2, 0, 6, 8], whole], (8, 8))
    assert one_image_many_crops.tolist() == [1.0, 0.5, 0.5]
    assert isinstance(objectness([0, 0, 4, 4], whole, (8, 8)), float)


@pytest.mark.parametrize(
    ("boxes", "crop", "size", "message"),
    [
        ([[4, 0, 2, 4]], [0, 0, 8, 8], (8, 8), "img.jpg: box 0 is inverted"),
        ([[0, 0, 2, 2], [0, 5, 2, 4]], [0, 0, 8, 8], (8, 8), "img.jpg: box 1 is inverted"),
        ([[0, 0, float("nan"), 4]], [0, 0, 8, 8], (8, 8), "not finite"),
        ([[0, 0, 2, 2]], [4, 0, 4, 8], (8, 8), "img.jpg: the crop .* has no area"),
        ([[0, 0, 2, 2]], [0, 0, 8, 8], (8, 0), "above 0"),
        ([[0, 0, 2]], [0, 0, 8, 8], (8, 8), "boxes"),
        ([[0, 0, 2, 2]], [0, 0, 8], (8, 8), r"crop of shape \[4\]"),
    ],
)
def test_broken_objects_are_refused(boxes, crop, size, message):
    with pytest.raises(ValueError, match=message):
        objectness(boxes, crop, size, names=["img.jpg"])
    with pytest.raises(ValueError, match=message):
        objectness(boxes, crop, size, names="img.jpg")


def test_numbers_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="2 of crop for 3 images"):
        objectness([[[0, 0, 1, 1]]] * 3, [[0, 0, 8, 8]] * 2, (8, 8))
    with pytest.raises(ValueError, match="boxes are"):
        objectness([[0, 0, 4, 4], [1, 2]], [0, 0, 8, 8], (8, 8))
    with pytest.raises(ValueError, match="image 1: box 0 is inverted"):
        objectness([[[0, 0, 1, 1]], [[3, 0, 1, 1]]], [0, 0, 8, 8], (8, 8))
    with pytest.raises(ValueError, match="image 0: box 1 is inverted"):
        Boxes.of([[[0, 0, 1, 1], [3, 0, 1, 1]]])
    with pytest.raises(ValueError, match="per box of each image"):
        Boxes.of([[[0, 0, 1, 1]], []], labels=[[], [1]])


def test_one_crowded_image_does_not_slow_its_batch():
    """The work of a batch is the sum over its images, not their number times the largest: counted, not timed."""
    from calibrant.data import boxes

    random = np.random.default_rng(0)
    corners = random.integers(0, 60, (300, 2))
    crowded = np.concatenate([corners, corners + random.integers(1, 20, corners.shape)], axis=1)
    done = []
    slabs = boxes._slabs
    boxes._slabs = lambda boxes: done.append(boxes.shape) or slabs(boxes)
    try:
        values = objectness([crowded, *[[[0, 0, 4, 4], [2, 2, 8, 8]]] * 50], [0, 0, 80, 80], (80, 80))
    finally:
        boxes._slabs = slabs
    assert sorted(shape[:2] for shape in done) == [(1, 300), (50, 2)]
    assert values[0] == reference.mask_of(crowded, 80, 80).sum() / 6400
    assert values[1] == (16 + 36 - 4) / 6400


def test_many_boxes():
    random = np.random.default_rng(0)
    corners = random.integers(0, 60, (3, 150, 2))
    boxes = np.concatenate([corners, corners + random.integers(0, 20, corners.shape)], axis=2)
    for image, area in zip(boxes, union_area(boxes.astype(float)), strict=True):
        assert area == reference.mask_of(image, 80, 80).sum()


# --- views ------------------------------------------------------------------------------------------------------------

BOXES = [[8, 4, 40, 30], [30, 20, 70, 44], [60, 2, 60, 40]]
WIDTH, HEIGHT = 96, 48


def seen(view, boxes=BOXES):
    return float(objectness_of(Boxes.of([boxes]), [view])[0])


@pytest.mark.parametrize("seed", range(8))
def test_chains_of_steps_against_a_mask_that_takes_them(seed):
    """The rectangle against torchvision's own transforms of a mask, drawn eight times finer than the image's pixels."""
    fine = 8
    random = np.random.default_rng(seed)
    chain = [RandomFlip(), RandomResizedCrop((40, 24), scale=(0.2, 0.9)), RandomFlip(), Pad(3), CentreCrop((30, 26))]
    view = draw_view(chain, (WIDTH, HEIGHT), random)
    # The same draws again, each step done to the mask.
    random = np.random.default_rng(seed)
    before = View.whole(WIDTH, HEIGHT)
    flipped = chain[0](before, random)
    crop = chain[1](flipped, random)
    again = chain[2](crop, random)
    left, right = (WIDTH - crop.x2, WIDTH - crop.x1) if flipped.flipped else (crop.x1, crop.x2)
    mask = reference.mask_of(BOXES, WIDTH, HEIGHT, fine)
    transforms = [
        lambda m: tv.hflip(m) if flipped.flipped else m,
        lambda m: m.crop(tuple(round(v * fine) for v in (left, crop.y1, right, crop.y2))).resize(
            (40 * fine, 24 * fine)
        ),
        lambda m: tv.hflip(m) if again.flipped != flipped.flipped else m,
        lambda m: tv.pad(m, 3 * fine),
        lambda m: tv.center_crop(m, [26 * fine, 30 * fine]),
    ]
    assert seen(view) == pytest.approx(reference.through(mask, transforms), abs=2e-3)
    assert (view.width, view.height) == (30, 26)


def test_flipped_parts_are_mirrored():
    view = View.whole(10, 4)._replace(flipped=True)
    assert view.part(0, 0, 3, 4, 3, 4).crop == (7, 0, 10, 4)
    twice = view.part(0, 0, 6, 4, 6, 4).part(0, 0, 2, 4, 2, 4)
    assert twice.crop == (8, 0, 10, 4)


@pytest.mark.parametrize("size", [(96, 48), (37, 61)])
def test_evaluation_views_are_those_of_torchvision(size):
    random = np.random.default_rng(0)
    picture = Image.fromarray(np.random.default_rng(1).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8))
    resized = tv.resize(picture, 32)
    assert draw_view([Resize(32)], size, random)[4:6] == resized.size
    cropped = render(picture, draw_view([CentreCrop(24)], size, random))
    assert np.array_equal(cropped, np.asarray(tv.center_crop(picture, 24)))
    # torchvision pads before it crops when the image is too small.
    small = render(picture, draw_view([CentreCrop((120, 30))], size, random))
    assert np.array_equal(small, np.asarray(tv.center_crop(picture, [30, 120])))
    both = render(picture, draw_view([Resize(32), CentreCrop(24)], size, random)).astype(int)
    expected = np.asarray(tv.center_crop(resized, 24)).astype(int)
    assert np.abs(both[2:-2, 2:-2] - expected[2:-2, 2:-2]).max() <= 1  # the filter meets the edge elsewhere


def test_random_crops_with_padding_are_exact():
    picture = Image.fromarray(np.random.default_rng(1).integers(1, 255, (32, 32, 3), dtype=np.uint8))
    padded = np.pad(np.asarray(picture), ((4, 4), (4, 4), (0, 0)))
    places = set()
    for seed in range(40):
        view = draw_view([RandomCrop(32, padding=4)], (32, 32), np.random.default_rng(seed))
        x, y = int(view.x1) + 4, int(view.y1) + 4
        places.add((x, y))
        assert np.array_equal(render(picture, view), padded[y : y + 32, x : x + 32])
    assert len(places) > 25
    assert {0, 8} <= {x for x, _ in places}


def test_random_resized_crops_have_the_law_of_torchvision():
    """Areas and places of our crops against torchvision's own draws: two-sample Kolmogorov-Smirnov."""
    from scipy.stats import ks_2samp
    from torchvision.transforms import RandomResizedCrop as Theirs

    torch.manual_seed(0)
    image = torch.empty(3, 80, 120)
    theirs = np.array([Theirs.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(2000)])  # top left h w
    random = np.random.default_rng(0)
    ours = np.array([draw_view([RandomResizedCrop(32)], (120, 80), random).crop for _ in range(2000)])
    for mine, other in (
        ((ours[:, 2] - ours[:, 0]) * (ours[:, 3] - ours[:, 1]), theirs[:, 2] * theirs[:, 3]),
        (ours[:, 0], theirs[:, 1]),
        (ours[:, 1], theirs[:, 0]),
        ((ours[:, 2] - ours[:, 0]) / (ours[:, 3] - ours[:, 1]), theirs[:, 3] / theirs[:, 2]),
    ):
        assert ks_2samp(mine, other).pvalue > 1e-3


@pytest.mark.parametrize("size", [(400, 4), (4, 401), (301, 7)])
def test_crops_of_odd_images_fall_back_to_the_middle(size):
    from torchvision.transforms import RandomResizedCrop as Theirs

    view = draw_view([RandomResizedCrop(8, scale=(0.9, 1.0))], size, np.random.default_rng(0))
    top, left, height, width = Theirs.get_params(torch.empty(3, size[1], size[0]), (0.9, 1.0), (3 / 4, 4 / 3))
    assert view.crop == (left, top, left + width, top + height)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CentreCrop(0), "a size is"),
        (lambda: Resize((4, 5, 6)), "a size is"),
        (lambda: Resize(-1), "at least 1 pixel"),
        (lambda: RandomFlip(2.0), r"probability in 0\.\.1"),
        (lambda: RandomResizedCrop(8, scale=(2.0, 3.0)), "rising scale"),
        (lambda: RandomResizedCrop(8, ratio=(0.0, 1.0)), "rising ratio"),
        (lambda: RandomCrop(8, padding=-1), "padding of 0"),
        (lambda: Pad(-1), "Pad takes"),
    ],
)
def test_steps_refuse_nonsense(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_sizes_may_be_lists():
    assert draw_view([Resize([6, 4]), CentreCrop([3, 2])], (8, 8), np.random.default_rng(0))[4:6] == (3, 2)


def test_a_smaller_decoding_shows_the_same(tmp_path):
    x, y = np.meshgrid(np.linspace(0, 255, 640), np.linspace(0, 255, 480))
    Image.fromarray(np.stack([x, y, 255 - x], axis=2).astype(np.uint8)).save(tmp_path / "a.jpg", quality=95)
    view = draw_view([Resize(60), CentreCrop(48)], (640, 480), np.random.default_rng(0))
    with Image.open(tmp_path / "a.jpg") as image:
        whole = render(image, view).astype(int)
    with Image.open(tmp_path / "a.jpg") as image:
        smaller_decoding(view)(image)
        assert image.size == (160, 120)  # a quarter: still two pixels for each of the view's
        assert np.abs(render(image, view).astype(int) - whole).max() <= 3


# --- targets ----------------------------------------------------------------------------------------------------------


@given(st.integers(2, 7), st.floats(0, 1), st.floats(0, 1), st.data())
def test_adaptive_targets_are_those_of_the_paper(classes, share, beta, data):
    label = data.draw(st.integers(0, classes - 1))
    target = adaptive_targets([label], [share], classes, beta, dtype=torch.float64)[0]
    assert target.tolist() == pytest.approx(reference.adaptive_target(label, share, classes, beta), abs=1e-15)
    assert target.sum().item() == pytest.approx(1.0, abs=1e-14)


def test_limits_of_adaptive_targets():
    labels = torch.tensor([2, 0, 1])
    assert torch.equal(adaptive_targets(labels, 1.0, 4), torch.eye(4)[labels])
    assert torch.equal(adaptive_targets(labels, [0.1, 0.2, 0.3], 4, beta=0.0), torch.eye(4)[labels])
    assert torch.equal(hard_targets(labels, 4), torch.eye(4)[labels])
    assert adaptive_targets([1], [0.0], 4)[0].tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    # Beta 0.75 leaves the class at least a quarter, as the paper says.
    assert adaptive_targets([1], [0.0], 4, beta=0.75)[0, 1] == 0.25
    context = adaptive_targets(labels, [0.5, 0.0, 0.9], 4, beta=0.5, context=[False, True, False])
    assert context[1].tolist() == [0.25] * 4
    assert context[0, 2] == pytest.approx(0.75)
    assert adaptive_targets([-1, 0], [0.0, 1.0], 4)[0].tolist() == [0.25] * 4  # none of the classes
    assert torch.equal(uniform_targets(3, 5), torch.full((3, 5), 0.2))
    assert adaptive_targets(labels, torch.rand(3, dtype=torch.float64), 4).dtype == torch.float64
    assert adaptive_targets(torch.zeros(0, dtype=torch.long), torch.zeros(0), 4).shape == (0, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 4], [0.5, 0.5], 4), "labels in 0..3"),
        (([0.5], [0.5], 4), "integers"),
        (([0], [1.5], 4), "objectness in 0..1"),
        (([0], [float("nan")], 4), "objectness in 0..1"),
        (([0, 1], [0.5], 4), r"\[1\] objectness values for 2 labels"),
        (([0], [0.5], 1), "at least 2 classes"),
        (([0], [0.5], 4, 1.5), "beta in 0..1"),
        (([0, 0], [float("nan"), 0.5], 4), "objectness in 0..1"),
    ],
)
def test_targets_refuse_nonsense(arguments, message):
    with pytest.raises(ValueError, match=message):
        adaptive_targets(*arguments)


def test_boxes_keep_their_images():
    boxes = Boxes.of([[[0, 0, 1, 1]], [], [[1, 1, 2, 3], [4, 4, 9, 6]]], labels=[[3], [], [1, 2]])
    chosen = boxes.take(np.array([2, 1, 2, 0]))
    assert chosen.counts.tolist() == [2, 0, 2, 1]
    assert chosen[2].tolist() == [[1, 1, 2, 3], [4, 4, 9, 6]]
    assert chosen.labels.tolist() == [1, 2, 1, 2, 3]
    assert chosen.owners.tolist() == [0, 0, 2, 2, 3]
    assert boxes.areas.tolist() == [1, 2, 10]
    with pytest.raises(ValueError, match="offsets that rise"):
        Boxes(np.zeros((2, 4)), np.array([0, 1]), np.zeros(2, dtype=np.int64), np.zeros(2, dtype=bool))
