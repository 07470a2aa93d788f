r"""Scenes: drawn pictures of objects, with boxes and known class posteriors, from a seed and without a download.

A picture shows one of 16 shapes, large or small, on a background. It is hard for the same reasons as photographs:

- *size*: the box of the labelled object fills from about 8% to 70% of the picture;
- *context*: the background is that of the class with probability ``context``, else of a random class: it helps, and
  misleads;
- *company*: some pictures hold one or two smaller objects of other classes; the label is the largest object's;
- *ambiguity*: a share ``ambiguous`` of the objects lies between two neighbouring classes a and b, their outlines and
  fills mixed with weight w, and the label is a with probability w. Nothing else in such a picture depends on the label
  that was drawn, so

  .. math:: P(y \mid x) = w\,[y = a] + (1 - w)\,[y = b]

  exactly, as far as the picture shows a, b and w. All other pictures have a posterior of 0 and 1;
- *shift*: the same objects at the same positions, with unseen fills and backgrounds (``"texture"``), or as outlines on
  paper (``"sketch"``).

The posterior gives exactly what is usually estimated: the probability that a prediction :math:`\hat y` is wrong,
:math:`P_{error} = 1 - \bar\pi_{\hat y}` (SC Eq. 6), and the calibration error without label noise.

An object usually has a colour and a pattern of its class, and three other classes share each of them: only the shape
identifies the class. Every split and every kind of random number has its own stream: sample i is the same however many
are drawn, and under every shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import row_slices
from calibrant.base.checks import check_choice, check_integer, check_number
from calibrant.data import drawing
from calibrant.data.boxes import Boxes
from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.drawing import CLASSES, Bools, Doubles, Floats, Ints, Shift
from calibrant.data.sources import ImageArray, MaskArray

#: The default number of samples of a split.
SAMPLES: Mapping[str, int] = {"train": 8000, "val": 4000, "test": 8000}

SHARES = (0.08, 0.70)  # of the picture that the labelled object's box fills: least and most
WEIGHTS = (0.2, 0.8)  # of the first class of an ambiguous object
COMPANY = (0.6, 0.3)  # share of pictures with a second and a third object, where there is room
SMALLER = 0.75  # largest length (root of the area) of the other objects, relative to the labelled one
SMALLEST = 5 / 32  # their smallest length, relative to the picture
TURN = 0.05  # objects are turned by at most this share of a circle
NOISE = 0.03  # of a pixel, where 1 is white

#: Most pixels of all pictures together: a million pictures of the default size, which take three gigabytes.
MAX_PIXELS = 2**30
VOID = 255  # the label of pixels of an object that lies between two classes

_K = len(CLASSES)
_COLUMNS = 32  # random numbers per picture; some are spare, so that using one more changes no picture
_ROWS = 256  # pictures drawn at once, so that they stay in the cache
_STREAMS = ("plan", "look", "clouds", "noise")


@dataclass(frozen=True, eq=False)
class Scenes:
    """Drawn pictures and their ground truth: K = 16 classes, M objects; the first of a picture is the labelled one.

    Attributes:
        images: ``[N, S, S, 3]`` uint8.
        labels: ``[N]`` int64.
        posterior: ``[N, K]`` float64, P(y | x).
        ambiguous: ``[N]`` bool, whether the labelled object lies between two classes.
        grounds: ``[N]`` int64, the class whose background was drawn; a shift replaces it.
        offsets: ``[N + 1]`` int64; picture i holds the objects ``offsets[i]:offsets[i + 1]``.
        boxes: ``[M, 4]`` int64, x1, y1, x2, y2 in pixels, x2 and y2 excluded: tight around the drawn pixels.
        box_labels: ``[M]`` int64.
        masks: ``[M, S, S]`` bool, each object's pixels; None unless asked for.
    """

    images: npt.NDArray[np.uint8]
    labels: Ints
    posterior: Doubles
    ambiguous: Bools
    grounds: Ints
    offsets: Ints
    boxes: Ints
    box_labels: Ints
    masks: Bools | None = None


def scenes(
    split: str = "train",
    *,
    samples: int | None = None,
    seed: int = 0,
    shift: Shift | None = None,
    context: float = 0.8,
    ambiguous: float = 0.2,
    size: int = 32,
) -> Dataset:
    """Draw scenes as a data set of images in memory; soft labels are the true posterior. Arguments as for `draw`.

    Example:
        >>> data = scenes("test", samples=20)
        >>> len(data), data.classes[:3], data.soft.shape
        (20, ('star', 'flower', 'gear'), (20, 16))
    """
    pictures = draw(split, samples=samples, seed=seed, shift=shift, context=context, ambiguous=ambiguous, size=size)
    name = "scenes" if shift is None else f"scenes-{shift}"
    no_crowd = np.zeros(len(pictures.boxes), dtype=bool)
    return Dataset(
        name,
        split,
        CLASSES,
        tuple(f"{split}-{seed}-{number:06d}" for number in range(len(pictures.labels))),
        pictures.labels,
        ImageArray(pictures.images, name),
        boxes=Boxes(pictures.boxes.astype(np.float64), pictures.offsets, pictures.box_labels, no_crowd),
        soft=pictures.posterior,
    )


def scene_masks(
    split: str = "train",
    *,
    samples: int | None = None,
    seed: int = 0,
    shift: Shift | None = None,
    context: float = 0.8,
    ambiguous: float = 0.0,
    size: int = 32,
    families: int = len(CLASSES),
) -> Dataset:
    """The same scenes with a label for every pixel: 0 is the background, then the classes of the objects.

    Pixels of an object between two classes are void, `VOID`. Arguments as for `draw`; ``families`` below 16 takes
    neighbouring shapes together, which is easier to learn.

    Example:
        >>> data = scene_masks("test", samples=20)
        >>> data.classes[:3], data.ignore_index, data.masks[0].size
        (('background', 'star', 'flower'), 255, (32, 32))
    """
    check_choice("families", families, (2, 4, 8, 16))
    pictures = draw(
        split, samples=samples, seed=seed, shift=shift, context=context, ambiguous=ambiguous, size=size, masks=True
    )
    together = len(CLASSES) // families
    names = [" or ".join(CLASSES[k : k + together]) for k in range(0, len(CLASSES), together)]
    values = pictures.box_labels // together + 1
    values[pictures.offsets[:-1][pictures.ambiguous]] = VOID  # the labelled object, the first, may lie between classes
    owners = np.repeat(np.arange(len(pictures.labels)), np.diff(pictures.offsets))
    masks = np.zeros((len(pictures.labels), size, size), dtype=np.uint8)
    assert pictures.masks is not None
    for owner, pixels, value in zip(owners, pictures.masks, values, strict=True):
        masks[owner][pixels] = value
    name = "scene-masks" if shift is None else f"scene-masks-{shift}"
    return Dataset(
        name,
        split,
        ("background", *names),
        tuple(f"{split}-{seed}-{number:06d}" for number in range(len(masks))),
        np.full(len(masks), NO_CLASS),
        ImageArray(pictures.images, name),
        masks=MaskArray(masks, name),
        ignore_index=VOID,
    )


def draw(
    split: str = "train",
    *,
    samples: int | None = None,
    seed: int = 0,
    shift: Shift | None = None,
    context: float = 0.8,
    ambiguous: float = 0.2,
    size: int = 32,
    masks: bool = False,
) -> Scenes:
    """Draw scenes as plain arrays.

    Args:
        split: ``"train"``, ``"val"`` or ``"test"``.
        samples: number of samples; if None, 8000, 4000 and 8000.
        seed: the same seed gives the same pixels.
        shift: None, ``"texture"`` or ``"sketch"``; labels, positions and posteriors stay the same.
        context: probability that the background is that of the class instead of a random one.
        ambiguous: share of pictures whose object lies between two classes.
        size: width and height in pixels.
        masks: whether to return each object's pixels.

    Example:
        >>> pictures = draw("test", samples=100)
        >>> pictures.images.shape, pictures.posterior.shape
        ((100, 32, 32, 3), (100, 16))
    """
    check_choice("split", split, list(SAMPLES))  # a list, since an unhashable value must be refused like any other
    check_choice("shift", shift, (None, "texture", "sketch"))
    samples = check_integer("samples", SAMPLES[split] if samples is None else samples, 1)
    check_integer("seed", seed, 0)
    check_integer("size", size, 16)
    check_number("context", context, 0, 1)
    check_number("ambiguous", ambiguous, 0, 1)
    if samples * size * size > MAX_PIXELS:
        raise ValueError(f"samples x size x size must be at most {MAX_PIXELS} pixels, got {samples} x {size} x {size}")
    key = list(SAMPLES).index(split)
    streams = {name: np.random.default_rng([seed, key, number]) for number, name in enumerate(_STREAMS)}
    plan = _make_plan(streams["plan"].random((samples, _COLUMNS)), context, ambiguous, size)
    images = np.empty((samples, size, size, 3), dtype=np.uint8)
    pixels = np.zeros((len(plan.owner), size, size), dtype=bool) if masks else None
    boxes = np.zeros((len(plan.owner), 4), dtype=np.int64)
    for rows in row_slices(samples, 1, _ROWS):
        objects = slice(int(plan.offsets[rows.start]), int(plan.offsets[rows.stop]))
        images[rows], covered = _paint(plan, rows, objects, streams, shift, size)
        boxes[objects] = drawing.tight_boxes(covered)
        if pixels is not None:
            pixels[objects] = covered
    return Scenes(
        images, plan.labels, plan.posterior, plan.ambiguous, plan.grounds, plan.offsets, boxes, plan.box_labels, pixels
    )


@dataclass(frozen=True, eq=False)
class _Plan:
    """The contents of the pictures before they are drawn; ``owner`` and all after it have one row per object.

    An object lies between the classes of its ``kinds`` ``[M, 2]``, at ``weight`` of the first.
    """

    labels: Ints
    posterior: Doubles
    ambiguous: Bools
    grounds: Ints
    offsets: Ints
    box_labels: Ints
    owner: Ints
    kinds: Ints
    weight: Doubles
    outlines: Doubles
    scale: Doubles
    centre: Doubles


def _make_plan(u: Doubles, context: float, ambiguous: float, size: int) -> _Plan:
    """Plan the pictures from uniform random numbers ``[N, _COLUMNS]``; each column has one use."""
    row = np.arange(len(u))
    class_a = drawing.pick(u[:, 0], _K)
    is_ambiguous = u[:, 1] < ambiguous
    class_b = (class_a + np.where(u[:, 2] < 0.5, 1, -1)) % _K
    low, high = WEIGHTS
    weight = np.where(is_ambiguous, low + (high - low) * u[:, 3], 1.0)
    labels = np.where(u[:, 4] < weight, class_a, class_b)
    posterior = np.zeros((len(u), _K))
    posterior[row, class_b] = 1 - weight
    posterior[row, class_a] = weight
    # The background of an ambiguous picture is that of one of its classes, drawn independently of the label.
    shown_class = np.where(is_ambiguous & (u[:, 7] < 0.5), class_b, class_a)
    grounds = np.where(u[:, 5] < context, shown_class, drawing.pick(u[:, 6], _K))

    mixed = weight[:, None] * drawing.OUTLINES[class_a] + (1 - weight[:, None]) * drawing.OUTLINES[class_b]
    mixed /= np.sqrt((mixed**2).mean(axis=1, keepdims=True) * np.pi)
    outlines = drawing.turn(mixed, TURN * (2 * u[:, 9] - 1))
    left, up, right, down = reach = drawing.extents(outlines)
    wide, tall = left + right, up + down
    length = np.sqrt(SHARES[0]) + (np.sqrt(SHARES[1]) - np.sqrt(SHARES[0])) * u[:, 8]
    scale = np.minimum(size * length / np.sqrt(wide * tall), (size - 2) / np.maximum(wide, tall))
    picture = np.tile([0.0, 0.0, size, size], (len(u), 1))
    centre, _ = drawing.place(picture, reach, scale, u[:, 10:12])
    parts = [(row, labels, np.stack([class_a, class_b], axis=1), weight, outlines, scale, centre)]

    room = drawing.rectangles_around(drawing.occupied_area(centre, reach, scale), size)
    occupied = np.full(len(u), -1)
    for number, share in enumerate(COMPANY):
        draws = u[:, 14 + 6 * number : 20 + 6 * number]
        # Neither a nor b: the other objects must not reveal which label was drawn.
        companion = _other_class(draws[:, 0], class_a, class_b)
        shape = drawing.turn(drawing.OUTLINES[companion], TURN * (2 * draws[:, 1] - 1))
        reach = drawing.extents(shape)
        least, most = SMALLEST * size, SMALLER * scale
        length = least + (most - least) * draws[:, 2]
        side, fits = drawing.first_fit(room, reach, length, drawing.pick(draws[:, 3], 4), occupied)
        position, _ = drawing.place(room[row, side], reach, length, draws[:, 4:6])
        is_present = fits & (most >= least) & (u[:, 13] < share)
        occupied = np.where(is_present, side, occupied)
        kinds, ones = np.stack([companion, companion], axis=1), np.ones(len(u))
        parts.append(tuple(column[is_present] for column in (row, companion, kinds, ones, shape, length, position)))
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    owner, box_labels, kinds, weight, outlines, scale, centre = (column[order] for column in joined)
    offsets = np.searchsorted(owner, np.arange(len(u) + 1))
    return _Plan(
        labels, posterior, is_ambiguous, grounds, offsets, box_labels, owner, kinds, weight, outlines, scale, centre
    )


def _other_class(u: Doubles, first: Ints, second: Ints) -> Ints:
    """Draw uniformly among the classes other than these two."""
    low, high = np.minimum(first, second), np.maximum(first, second)
    classes = drawing.pick(u, _K - 2)
    classes += classes >= low
    return classes + (classes >= high)


def _paint(
    plan: _Plan, rows: slice, objects: slice, streams: Mapping[str, np.random.Generator], shift: Shift | None, size: int
) -> tuple[npt.NDArray[np.uint8], Bools]:
    """Pictures ``[n, S, S, 3]`` of some rows of the plan, and each object's pixels ``[m, S, S]``."""
    count = rows.stop - rows.start
    u = streams["look"].random((count, 4, 24))  # a ground and up to three objects
    coarse = streams["clouds"].standard_normal((count, 2, 5, 5), dtype=np.float32)
    noise = streams["noise"].standard_normal((count, size, size, 3), dtype=np.float32)
    axis: Floats = ((np.arange(size) + 0.5) / size).astype(np.float32)
    x, y = axis[None, None, :], axis[None, :, None]

    clouds = drawing.spread(coarse[:, 0], size)
    picture = drawing.ground_colours(plan.grounds[rows], u[:, 0], clouds, x, y, shift)
    owner = plan.owner[objects] - rows.start
    rank = np.arange(len(owner)) - (plan.offsets[plan.owner[objects]] - objects.start)
    share = drawing.coverage(plan.outlines[objects], plan.scale[objects], plan.centre[objects], size)
    edge = drawing.rim(share, max(1, round(size / 32)))
    fills = drawing.spread(coarse[:, 1], size)
    for number in range(3):
        indices = np.flatnonzero(rank == number)
        pictures = owner[indices]
        kinds, weight = plan.kinds[objects][indices], plan.weight[objects][indices]
        colours = drawing.object_colours(kinds, weight, u[pictures, 1 + number], fills[pictures], x, y, shift)
        if shift == "sketch":  # an outline without fill, in one grey
            cover = edge[indices][..., None]
            colours = 0.2 + 0.2 * u[pictures, 1 + number, 0].astype(np.float32)[:, None, None, None]
        else:
            cover = share[indices][..., None]
            height = (y - (plan.centre[objects][indices, 1] / size)[:, None, None].astype(np.float32))[..., None]
            shade = np.float32(1.02) - np.float32(0.35) * height
            colours *= shade * (1 - np.float32(0.55) * edge[indices][..., None])
        picture[pictures] += cover * (colours - picture[pictures])
    picture += np.float32(NOISE) * noise
    return np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8), share > 0


def true_error(predicted: npt.ArrayLike, posterior: npt.ArrayLike) -> Doubles:
    r"""The probability that each prediction is wrong, :math:`P_{error} = 1 - \bar\pi_{\hat y}`.

    Args:
        predicted: ``[N]``, the predicted classes.
        posterior: ``[N, K]``, P(y | x).

    Returns:
        ``[N]``, between 0 and 1.

    Example:
        >>> true_error([0, 1], [[0.75, 0.25], [0.75, 0.25]])
        array([0.25, 0.75])

    Reference:
        SC, Eq. 6.
    """
    classes, truth = np.asarray(predicted), np.asarray(posterior, dtype=np.float64)
    if truth.ndim != 2 or classes.shape != truth.shape[:1] or not len(truth):
        raise ValueError(f"true_error takes predicted [N] and posterior [N, K], got {classes.shape} and {truth.shape}")
    requirement = f"predicted must be classes from 0 to {truth.shape[1] - 1}"
    if classes.dtype.kind not in "iu":
        raise ValueError(f"{requirement}, got values of type {classes.dtype}")
    outside = (classes < 0) | (classes >= truth.shape[1])
    if outside.any():
        raise ValueError(f"{requirement}, got {classes[outside][0]}")
    if not (truth >= 0).all() or np.abs(truth.sum(axis=1) - 1).max() > 1e-6:
        raise ValueError("posterior must hold distributions, got a row that is negative, NaN or does not sum to 1")
    return np.clip(1 - truth[np.arange(len(truth)), classes], 0.0, 1.0)


def true_calibration_error(
    confidence: npt.ArrayLike, predicted: npt.ArrayLike, posterior: npt.ArrayLike, *, bins: int = 15
) -> float:
    """ECE with the true probability of the predicted class instead of its correctness: free of label noise.

    Args:
        confidence: ``[N]``, between 0 and 1.
        predicted: ``[N]``, the predicted classes.
        posterior: ``[N, K]``, P(y | x).
        bins: number of equal-width bins ``(low, high]``, as in `calibrant.metrics.ece`.

    Returns:
        The mean over the samples of their bin's gap between confidence and truth.

    Example:
        >>> true_calibration_error([0.9, 0.7], [0, 0], [[1.0, 0.0], [0.6, 0.4]])  # gaps of 0.1 and 0.1
        0.1
    """
    accuracy = 1 - true_error(predicted, posterior)
    confidences = np.asarray(confidence, dtype=np.float64)
    if confidences.shape != accuracy.shape:
        raise ValueError(f"confidence must have shape {accuracy.shape} as predicted has, got {confidences.shape}")
    if not ((confidences >= 0) & (confidences <= 1)).all():
        raise ValueError("confidence must be between 0 and 1, got a value outside or NaN")
    edges = np.arange(1, check_integer("bins", bins, 1)) / bins
    bin_of = np.searchsorted(edges, confidences, side="left")
    gaps = np.bincount(bin_of, weights=confidences - accuracy, minlength=int(bins))
    return float(np.abs(gaps).sum() / len(confidences))
