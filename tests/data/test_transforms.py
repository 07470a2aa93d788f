"""Views and what is rendered of them, against torchvision, PIL, masks that take every step, and arithmetic by hand."""

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant.base import torchvision_operators
from calibrant.data import (
    RICAP,
    Boxes,
    CentreCrop,
    ColourJitter,
    CutMix,
    Cutout,
    Dataset,
    ImageFiles,
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
from calibrant.data.rendering import boxes_in_view, decode_smaller, render
from tests.helpers.errors import facts
from tests.helpers.toy_images import HEIGHT, WIDTH, Masks, noise, pictures
from tests.reference import objects as reference

torchvision_operators.ensure()
from torchvision.transforms import InterpolationMode  # noqa: E402
from torchvision.transforms import functional as tv  # noqa: E402
from torchvision.transforms.v2 import functional as v2  # noqa: E402

BOXES = [[8, 4, 40, 30], [30, 20, 70, 44], [60, 2, 60, 40]]

WIDE, HIGH = 96, 48


def seen(view, boxes=BOXES):
    return float(objectness_of(Boxes.of([boxes]), [view])[0])


@pytest.mark.parametrize("seed", range(8))
def test_chains_of_steps_against_a_mask_that_takes_them(seed):
    """The rectangle against torchvision's own transforms of a mask, drawn eight times finer than the image's pixels."""
    fine = 8
    random = np.random.default_rng(seed)
    chain = [RandomFlip(), RandomResizedCrop((40, 24), scale=(0.2, 0.9)), RandomFlip(), Pad(3), CentreCrop((30, 26))]
    view = draw_view(chain, (WIDE, HIGH), random)
    # The same draws again, each step done to the mask.
    random = np.random.default_rng(seed)
    before = View.whole(WIDE, HIGH)
    flipped = chain[0](before, random)
    crop = chain[1](flipped, random)
    again = chain[2](crop, random)
    left, right = (WIDE - crop.x2, WIDE - crop.x1) if flipped.flipped else (crop.x1, crop.x2)
    mask = reference.mask_of(BOXES, WIDE, HIGH, fine)
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


def shown(batch):
    """The first image of a batch, as PIL has it."""
    return batch.inputs[0].permute(1, 2, 0).numpy()


def drawn(steps, size=(WIDTH, HEIGHT), seed=0):
    return draw_view(steps, size, np.random.default_rng(seed))


def test_the_longer_side_is_that_of_torchvision():
    """Against v2's resize by max_size; LongestMaxSize of albumentations takes the nearest: at most a pixel more."""
    random = np.random.default_rng(0)
    for width, height, size in random.integers((8, 8, 8), (90, 90, 64), (100, 3)).tolist():
        theirs = v2.resize(torch.empty(1, height, width), size=None, max_size=size).shape[:0:-1]
        ours = drawn([Resize(size, side="longer")], (width, height))[4:6]
        assert ours == tuple(theirs)
        nearest = [round(edge * size / max(width, height)) for edge in (width, height)]
        assert all(0 <= other - mine <= 1 for mine, other in zip(ours, nearest, strict=True))
    assert drawn([Resize(16, side="longer")], (400, 3))[4:6] == (16, 1)
    assert drawn([Resize(16, side="longer")], (3, 400))[4:6] == (1, 16)


@pytest.mark.parametrize("size", [(14, 9), (50, 61), (12, 40)])
def test_bicubic_is_that_of_pil_and_torchvision(size):
    data = pictures()
    ours = shown(Pipeline(data, [Resize(size)], resampling="bicubic").batch([2]))
    picture = Image.fromarray(data.inputs.pixels[2])
    assert np.array_equal(ours, np.asarray(picture.resize(size, Image.Resampling.BICUBIC)))
    tensor = torch.from_numpy(data.inputs.pixels[2]).permute(2, 0, 1)
    theirs = v2.resize(tensor, size[::-1], InterpolationMode.BICUBIC, antialias=True).permute(1, 2, 0).numpy()
    assert np.abs(ours.astype(int) - theirs).max() <= 1
    assert not np.array_equal(ours, shown(Pipeline(data, [Resize(size)]).batch([2])))


def test_masks_stay_nearest():
    masks = noise(2, HEIGHT, WIDTH) % 4
    data = pictures(np.repeat(masks[..., None], 3, axis=3) * 60, masks=Masks(masks), ignore_index=255)
    batch = Pipeline(data, [Resize((17, 40))], resampling="bicubic").batch([0, 1])
    for mask, ours in zip(masks, batch.masks, strict=True):
        nearest = Image.fromarray(mask).resize((17, 40), Image.Resampling.NEAREST)
        assert np.array_equal(ours.numpy(), np.asarray(nearest))


class Cut:
    """A part of a view in its own pixels, given and not drawn."""

    def __init__(self, left, top, width, height):
        self.place = left, top, width, height

    def __call__(self, view, random):
        left, top, width, height = self.place
        return view.part(left, top, left + width, top + height, width, height)


def any_chain(random, picture, padding):
    """A few paddings, cuts (also of nothing but padding) and flips, as steps and done to a picture by torchvision."""
    settings = {"padding_mode": "edge"} if padding == "edge" else {"fill": padding}
    steps = []
    for _ in range(random.integers(1, 10)):
        width, height = picture.size
        match random.integers(3):
            case 0:
                steps.append(Pad(int(random.integers(1, 20))))
                picture = tv.pad(picture, steps[-1].pixels, **settings)
            case 1:
                w, h = (int(random.integers(1, side, endpoint=True)) for side in (width, height))
                left, top = int(random.integers(width - w + 1)), int(random.integers(height - h + 1))
                steps.append(Cut(left, top, w, h))
                picture = tv.crop(picture, top, left, h, w)
            case 2:
                steps.append(RandomFlip(1.0))
                picture = tv.hflip(picture)
    return steps, np.asarray(picture)


@pytest.mark.parametrize("padding", ["edge", 7])
@pytest.mark.parametrize("bands", [1, 3])
def test_padding_is_that_of_torchvision(padding, bands):
    """Padding before and after crops and flips, in any order, pixel by pixel."""
    picture = Image.fromarray(noise(HEIGHT, WIDTH, 3) if bands == 3 else noise(HEIGHT, WIDTH))
    random = np.random.default_rng(0)
    nothing = 0
    for _ in range(200):
        steps, theirs = any_chain(random, picture, padding)
        view = drawn(steps)
        assert np.array_equal(render(picture, view, padding), theirs), [getattr(s, "place", s) for s in steps]
        nothing += view.window[2] <= view.window[0] or view.window[3] <= view.window[1]
    assert nothing > 10  # padding around nothing but padding is among them


def test_edges_of_a_smaller_decoding():
    """An image at half the size that the view was drawn for: scaled first, then padded."""
    half = Image.fromarray(noise(20, 30, 3))
    ours = render(half, drawn([Pad(5), RandomFlip(1.0)], (60, 40)), "edge")
    theirs = tv.hflip(tv.pad(half.resize((60, 40), Image.Resampling.BILINEAR), 5, padding_mode="edge"))
    assert np.array_equal(ours, np.asarray(theirs))


@pytest.mark.parametrize(("pad", "size"), [(7, (37, 29)), (3, (20, 11)), (10, (100, 90)), (40, (9, 8))])
def test_edges_on_parts_of_pixels(pad, size):
    """Padded, then scaled: what is visible lands on the nearest pixel, half a pixel of a smooth image away at most."""
    x, y = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT))
    picture = Image.fromarray(np.stack([4 * x, 4 * y, 100 + 2 * x - 2 * y], axis=2).astype(np.uint8))
    for flip in (0.0, 1.0):
        ours = render(picture, drawn([Pad(pad), Resize(size), RandomFlip(flip)]), "edge").astype(int)
        theirs = tv.pad(picture, pad, padding_mode="edge").resize(size, Image.Resampling.BILINEAR)
        theirs = np.asarray(tv.hflip(theirs) if flip else theirs)
        scale = max((WIDTH + 2 * pad) / size[0], (HEIGHT + 2 * pad) / size[1])
        assert np.abs(ours - theirs).max() <= 4 * max(scale, 1.0) + 1  # the slope is 4 per pixel of the image


def test_less_than_half_a_pixel_in_sight():
    """A view of padding and of 2 columns in 40, at 8 pixels: the columns at the border fill it."""
    picture = Image.fromarray(noise(HEIGHT, WIDTH, 3))
    steps = [Pad(38), Cut(0, 38, 40, HEIGHT), Resize((8, HEIGHT))]
    ours = render(picture, drawn(steps), "edge")
    assert (ours == ours[:, :1]).all()
    border = np.asarray(picture)[:, :5].astype(int)  # a pixel of the view is 5 of the image
    assert (ours[:, 0] >= border.min(1)).all()
    assert (ours[:, 0] <= border.max(1)).all()
    assert (render(picture, drawn(steps), 9) == 9).all()


def test_padding_shows_no_object_and_no_class():
    masks = noise(2, HEIGHT, WIDTH) % 4
    boxes = Boxes.of([[[0, 0, WIDTH, HEIGHT]], [[0, 0, 10, HEIGHT]]])
    data = pictures(noise(2, HEIGHT, WIDTH, 3), masks=Masks(masks), ignore_index=250, boxes=boxes)
    edge, plain = (Pipeline(data, [Pad(4)], padding=padding).batch([0, 1]) for padding in ("edge", 0))
    whole = (WIDTH + 8) * (HEIGHT + 8)
    assert edge.objectness.tolist() == pytest.approx([WIDTH * HEIGHT / whole, 10 * HEIGHT / whole])
    assert torch.equal(edge.objectness, plain.objectness)
    around = np.pad(masks, ((0, 0), (4, 4), (4, 4)), constant_values=250)
    assert np.array_equal(edge.masks.numpy(), around)
    beside = Pipeline(data, [Pad(9), Cut(0, 0, 6, HEIGHT), Pad(3)], padding="edge").batch([0, 1])
    assert beside.objectness.tolist() == [0, 0]
    assert (beside.masks == 250).all()


def grey(inputs):
    """ITU-R 601-2 luma of [N, 3, H, W] as PIL's documents have it, in 16-bit fixed point, rounded."""
    weights = np.round(np.array([0.299, 0.587, 0.114]) * 2**16).astype(np.int64)
    assert weights.sum() == 2**16
    return (np.einsum("nchw,c->nhw", inputs.numpy().astype(np.int64), weights) + 2**15) >> 16


@pytest.mark.parametrize("colouring", [None, ColourJitter(0.4, 0.4, 0.4, 0.1)])
def test_one_grey_channel_after_colouring(colouring):
    steps = [RandomCrop((16, 12), padding=2), RandomFlip()]
    data = pictures()
    one, three = (
        Pipeline(data, steps, colouring=colouring, padding=(9, 80, 200), channels=channels).batch([4, 0, 1, 2])
        for channels in (1, 3)
    )
    assert one.inputs.shape == (4, 1, 12, 16)
    assert one.inputs.dtype == torch.uint8
    assert np.array_equal(one.inputs[:, 0].numpy(), grey(three.inputs))


def test_grey_images_stay_as_they_are():
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 8, 32)
    batch = Pipeline(pictures(pixels), channels=1).batch([0])
    assert np.array_equal(batch.inputs[0].numpy(), pixels)


@pytest.mark.parametrize("flipped", [False, True])
def test_boxes_in_a_view_surround_the_pixels_of_the_objects(flipped):
    box = np.array([[6.0, 4.0, 20.0, 12.0], [40.0, 0.0, 44.0, 3.0]])  # the second is out of sight
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[4:12, 6:20] = 255
    view = View.whole(48, 32).part(4, 8, 28, 32, 48, 48)._replace(flipped=flipped)  # twice as large, from (4, 8) on
    shown = render(Image.fromarray(pixels), view, resample=Image.Resampling.NEAREST)[..., 0] > 0
    rows, columns = np.flatnonzero(shown.any(1)), np.flatnonzero(shown.any(0))
    expected = [[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]]
    np.testing.assert_allclose(boxes_in_view(box, view), expected)


@pytest.mark.parametrize("resampling", ["bilinear", "bicubic"])
def test_a_smaller_decoding_shows_the_same(tmp_path, resampling):
    x, y = np.meshgrid(np.linspace(0, 255, 640), np.linspace(0, 255, 480))
    Image.fromarray(np.stack([x, y, 255 - x], axis=2).astype(np.uint8)).save(tmp_path / "a.jpg", quality=95)
    data = Dataset("toy", "train", ("x",), ("a",), [0], ImageFiles(tmp_path, ("a.jpg",)))
    ours = shown(Pipeline(data, [Resize(60)], resampling=resampling).batch([0])).astype(int)
    with Image.open(tmp_path / "a.jpg") as image:
        whole = np.asarray(image.resize((80, 60), Image.Resampling[resampling.upper()]))
    assert np.abs(ours - whole).max() <= 3
    with Image.open(tmp_path / "a.jpg") as image:
        decode_smaller(image, draw_view([Resize(60), CentreCrop(48)], (640, 480), np.random.default_rng(0)))
        assert image.size == (160, 120)  # a quarter: still two pixels for each of the view's


def test_flipped_parts_are_mirrored():
    view = View.whole(10, 4)._replace(flipped=True)
    assert view.part(0, 0, 3, 4, 3, 4).crop == (7, 0, 10, 4)
    twice = view.part(0, 0, 6, 4, 6, 4).part(0, 0, 2, 4, 2, 4)
    assert twice.crop == (8, 0, 10, 4)
