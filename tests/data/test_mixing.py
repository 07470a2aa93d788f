"""Mixing: the share of each label is the share of pixels, counted; ALS's targets follow the objects into the parts."""

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant.data import RICAP, Boxes, CutMix, Cutout, Mixup, RandomErasing, RandomFlip, RandomResizedCrop
from calibrant.data.rendering import render
from calibrant.data.transforms import draw_view
from calibrant.targets import adaptive_targets, mixed_adaptive_targets
from tests.helpers.errors import facts
from tests.reference import objects as reference

N, C, HEIGHT, WIDTH = 6, 3, 18, 26


def numbered(dtype=torch.float32):
    """Image n is the constant n."""
    return torch.arange(N).to(dtype).reshape(N, 1, 1, 1).expand(N, C, HEIGHT, WIDTH)


def counted(images):
    """Share of each source's pixels in each image, [N, N]."""
    return torch.stack([(images[:, 0] == k).double().mean((1, 2)) for k in range(N)], dim=1)


@pytest.mark.parametrize("mix", [CutMix(), CutMix(alpha=0.3), RICAP(), RICAP(beta=1.0)], ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_labels_are_mixed_by_counted_pixels(mix, seed):
    mixed = mix(numbered(), np.random.default_rng(seed))
    shares = mixed.targets(torch.eye(N, dtype=torch.float64))
    assert torch.allclose(shares, counted(mixed.images), atol=1e-15)
    assert sum(part.share for part in mixed.parts) == pytest.approx(1.0, abs=1e-15)
    again = mix(numbered(), np.random.default_rng(seed))
    assert torch.equal(mixed.images, again.images)


def test_pieces_of_ricap_come_from_anywhere():
    """Image pixels that say where they are: each part's rectangle is the one it was cut from."""
    places = torch.arange(HEIGHT * WIDTH).reshape(1, 1, HEIGHT, WIDTH).expand(N, 1, HEIGHT, WIDTH)
    corners = set()
    for seed in range(30):
        mixed = RICAP(beta=1.0)(places, np.random.default_rng(seed))
        given = []
        for part in mixed.parts:
            left, top, right, bottom = part.rectangle
            given.append(places[0, 0, top:bottom, left:right].flatten())
            corners.add((left > 0, top > 0))
        assert torch.equal(torch.cat(given).sort().values, mixed.images[0, 0].flatten().sort().values)
    assert len(corners) == 4


@pytest.mark.parametrize("seed", range(3))
def test_mixup_blends_pixels_and_labels_alike(seed):
    images = torch.nn.functional.one_hot(torch.arange(N)).double().reshape(N, N, 1, 1).expand(N, N, 4, 5)
    mixed = Mixup(alpha=1.0)(images, np.random.default_rng(seed))
    assert torch.allclose(mixed.images[:, :, 1, 3], mixed.targets(torch.eye(N, dtype=torch.float64)))
    assert Mixup()(numbered(torch.uint8), np.random.default_rng(seed)).images.dtype == torch.float32


def test_whole_numbers_and_other_layouts_stay_as_they_are():
    images = numbered(torch.uint8).contiguous(memory_format=torch.channels_last)
    for mix in (CutMix(), RICAP()):
        assert mix(images, np.random.default_rng(0)).images.dtype == torch.uint8
    assert torch.equal(images, numbered(torch.uint8))  # the batch that was given is not changed
    assert len(CutMix(probability=0.0)(images, np.random.default_rng(0)).parts) == 1


def test_shares_over_many_draws_are_those_of_the_papers():
    """CutMix with alpha 1: lambda is uniform, and clipping at the edges leaves more of the first image."""
    random = np.random.default_rng(0)
    lambdas = [CutMix()(torch.zeros(2, 1, 32, 32), random).parts[0].share for _ in range(1000)]
    # Before clipping the mean is 1/2. A side s = sqrt(1 - lambda), centred anywhere, keeps s - s^2/4 on average.
    sides = np.sqrt(np.random.default_rng(1).random(100_000))
    expected = 1 - ((sides - sides**2 / 4) ** 2).mean()
    assert np.mean(lambdas) == pytest.approx(expected, abs=0.03)
    corners = [max(p.share for p in RICAP(beta=0.3)(torch.zeros(2, 1, 32, 32), random).parts) for _ in range(200)]
    even = [max(p.share for p in RICAP(beta=30.0)(torch.zeros(2, 1, 32, 32), random).parts) for _ in range(200)]
    assert np.mean(corners) > np.mean(even) + 0.2  # a small beta puts the point near the edges


# --- ALS with mixing --------------------------------------------------------------------------------------------------

SIZES = [(40, 30), (64, 48), (33, 51), (80, 60), (50, 50), (48, 96)]
BOXES = [
    [[4, 4, 30, 22]],
    [[0, 0, 20, 48], [10, 8, 60, 30]],
    [[5, 10, 33, 40]],
    [],
    [[0, 0, 50, 50]],
    [[8, 8, 9, 90], [20, 0, 48, 40]],
]
LABELS = torch.tensor([2, 0, 4, 1, 3, 2])
K = 5


@pytest.mark.parametrize("mix", [CutMix(), RICAP(beta=1.0), Mixup(alpha=1.0)], ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_objects_are_followed_into_the_parts(mix, seed):
    """Against masks that are rendered and mixed like the images, pixel by pixel, on a fine grid."""
    side = 240
    random = np.random.default_rng(100 + seed)
    chain = [RandomResizedCrop(side, scale=(0.3, 1.0)), RandomFlip()]
    views = [draw_view(chain, size, random) for size in SIZES]
    masks = []
    for boxes, size, view in zip(BOXES, SIZES, views, strict=True):
        stencil = Image.fromarray(reference.mask_of(boxes, *size).astype(np.uint8) * 255)
        masks.append(render(stencil, view, resample=Image.Resampling.NEAREST) > 127)
    objects = torch.from_numpy(np.stack(masks)).double()
    who = torch.arange(N).reshape(N, 1, 1).expand(N, side, side).double()
    mixed = mix(torch.stack([objects, who], dim=1), np.random.default_rng(seed))
    targets = mixed_adaptive_targets(mixed, LABELS, Boxes.of(BOXES), views, K, beta=0.8, dtype=torch.float64)
    hard, spread = np.eye(K), 1 / (K - 1)
    for n in range(N):
        # A target is linear in pixels of objects and of background, so that counting per giver is enough.
        expected = np.zeros(K)
        for giver, weight, pixels in _givers(mix, mixed, objects, n):
            filled, empty = pixels.mean().item(), 1 - pixels.mean().item()
            own = hard[LABELS[giver]]
            expected += weight * (0.8 * (filled * own + empty * spread * (1 - own)) + 0.2 * own)
        assert np.abs(targets[n].numpy() - expected).max() < 6e-3
        assert targets[n].sum().item() == pytest.approx(1.0, abs=1e-12)


def _givers(mix, mixed, objects, n):
    """Who gives what share of image n, and the mask of objects in it."""
    if isinstance(mix, Mixup):
        return [(int(part.samples[n]), part.share, objects[part.samples[n]]) for part in mixed.parts]
    who = mixed.images[n, 1]
    return [(k, (who == k).double().mean().item(), mixed.images[n, 0][who == k]) for k in range(N) if (who == k).any()]


def test_context_flags_follow_their_samples():
    views = [draw_view([], (8, 8), np.random.default_rng(0))] * N
    boxes = Boxes.of([[[0, 0, 8, 8]]] * N)
    context = torch.tensor([True, False, False, True, False, False])
    mixed = Mixup(alpha=1.0)(torch.zeros(N, 1, 8, 8), np.random.default_rng(4))
    targets = mixed_adaptive_targets(mixed, LABELS, boxes, views, K, context=context)
    plain = torch.eye(K)[LABELS]
    plain[context] = 1 / K
    assert torch.allclose(targets, mixed.targets(plain), atol=1e-6)
    with pytest.raises(ValueError, match=facts("others")):
        mixed_adaptive_targets(mixed, LABELS, boxes, [*views[:-1], views[-1]._replace(width=9)], K)
    with pytest.raises(ValueError, match=facts("targets", "[6, K]")):
        mixed.targets(LABELS)


def test_one_part_gives_back_the_plain_targets():
    views = [draw_view([], size, np.random.default_rng(0)) for size in SIZES]
    mixed = CutMix(probability=0.0)(torch.zeros(N, 1, 4, 4), np.random.default_rng(0))
    views = [view._replace(width=4, height=4) for view in views]
    shares = [reference.objectness(b, (0, 0, *s), s) for b, s in zip(BOXES, SIZES, strict=True)]
    targets = mixed_adaptive_targets(mixed, LABELS, Boxes.of(BOXES), views, K, context=torch.arange(N) == 4)
    expected = adaptive_targets(LABELS, shares, K)
    expected[4] = 1 / K
    assert torch.allclose(targets, expected, atol=1e-6)


# --- blanking ---------------------------------------------------------------------------------------------------------


def test_cutout_blanks_a_clipped_square():
    blanked = Cutout(7, value=-1.0)(torch.ones(200, 2, HEIGHT, WIDTH), np.random.default_rng(0)) == -1
    assert torch.equal(blanked[:, 0], blanked[:, 1])
    heights, widths = blanked[:, 0].any(2).sum(1), blanked[:, 0].any(1).sum(1)
    assert torch.equal(heights * widths, blanked[:, 0].sum((1, 2)))  # a rectangle
    assert (int(heights.max()), int(widths.max())) == (7, 7)
    assert int(heights.min()) >= 3  # its centre lies in the image


def test_random_erasing_keeps_to_its_ranges():
    images = torch.ones(2000, 1, 40, 60)
    erased = RandomErasing(0.5, scale=(0.1, 0.2), ratio=(0.5, 1.5))(images, np.random.default_rng(0))[:, 0] == 0
    hit = erased.any((1, 2))
    assert abs(hit.double().mean().item() - 0.5) < 0.05
    area = erased[hit].double().mean((1, 2))
    assert area.min() > 0.09
    assert area.max() < 0.215
    aspect = erased[hit].any(2).sum(1) / erased[hit].any(1).sum(1)
    assert 0.4 < aspect.min() < 0.6
    assert 1.3 < aspect.max() < 1.7
    assert torch.equal(images, torch.ones_like(images))
