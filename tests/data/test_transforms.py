"""Views against torchvision's transforms and against masks that take every step."""

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant import _torchvision
from calibrant.data import (
    RICAP,
    Boxes,
    CentreCrop,
    CutMix,
    Cutout,
    Mixup,
    Pad,
    Pipeline,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    View,
    draw_view,
    objectness_of,
)
from calibrant.data.rendering import render
from tests.helpers.errors import facts
from tests.helpers.toy_images import pictures
from tests.reference import objects as reference

_torchvision.ensure()
from torchvision.transforms import functional as tv  # noqa: E402

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
    assert draw_view([Resize([6, 4])], size, random)[4:6] == (6, 4)
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
    ("make", "words"),
    [
        (lambda: CentreCrop(0), ["size"]),
        (lambda: Resize((4, 5, 6)), ["size"]),
        (lambda: Resize(-1), ["size", "-1"]),
        (lambda: Resize((4, 5), side="longer"), ["longer", "4", "5"]),
        (lambda: Resize(4, side="width"), ["side", "width", "shorter"]),
        (lambda: RandomFlip(2.0), ["probability", "2.0"]),
        (lambda: RandomResizedCrop(8, scale=(2.0, 3.0)), ["scale"]),
        (lambda: RandomResizedCrop(8, ratio=(0.0, 1.0)), ["ratio"]),
        (lambda: RandomCrop(8, padding=-1), ["padding", "-1"]),
        (lambda: Pad(-1), ["pixels", "-1"]),
        (lambda: Pipeline(pictures(), padding="nearest"), ["padding", "nearest", "edge"]),
        (lambda: Pipeline(pictures(), resampling="lanczos"), ["lanczos", "bilinear", "bicubic"]),
        (lambda: Pipeline(pictures(), channels=2), ["channels", "2"]),
        (lambda: Pipeline(pictures(), context_rate=2.0), ["context_rate", "2.0"]),
        (lambda: Pipeline(pictures(), context_rate=0.1), ["boxes"]),
        (lambda: CutMix(alpha=0.0), ["alpha", "0"]),
        (lambda: RICAP(beta=-1.0), ["beta"]),
        (lambda: Mixup(alpha=float("nan")), ["alpha"]),
        (lambda: CutMix(probability=1.5), ["probability", "1.5"]),
        (lambda: Cutout(0), ["size", "0"]),
        (lambda: CutMix()(torch.zeros(3, 8, 8), np.random.default_rng(0)), ["[N, C, H, W]"]),
    ],
)
def test_nonsense_is_refused(make, words):
    with pytest.raises(ValueError, match=facts(*words)):
        make()
