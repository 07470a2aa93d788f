"""Drawing scenes: outlines of the classes, backgrounds, textures, and their rasterisation, many pictures at once.

An outline is a radius per direction around a centre, so that a mixture of two radii is a shape between two classes, and
the distance of a pixel to the edge has a closed form. Lengths are in pixels, y points down, and the centre of the pixel
in column i lies at i + 0.5.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Shift = Literal["texture", "sketch"]

DIRECTIONS = 256  # of an outline
DRESS = 0.7  # probability that an object's colour, and likewise its pattern, is one of its class instead of any
FAINT = 0.06  # coverage below this is not drawn, since it would be invisible

_ANGLE = np.arange(DIRECTIONS) * (2 * math.pi / DIRECTIONS)


def _polygon(*points: tuple[float, float], mirror: bool = False) -> Doubles:
    """The radii of a polygon around the origin, y up; ``mirror`` adds the mirrored left half."""
    corners = np.array(points + tuple((-x, y) for x, y in reversed(points) if mirror and x))
    start, end = corners, np.roll(corners, -1, axis=0)
    ray = np.stack([np.cos(_ANGLE), np.sin(_ANGLE)], axis=1)[:, None]
    side = end - start
    turn = ray[..., 0] * side[:, 1] - ray[..., 1] * side[:, 0]
    parallel = np.abs(turn) < 1e-9
    turn = np.where(parallel, 1.0, turn)
    along = (start[:, 0] * side[:, 1] - start[:, 1] * side[:, 0]) / turn
    across = (start[:, 0] * ray[..., 1] - start[:, 1] * ray[..., 0]) / turn
    hit = ~parallel & (along > 0) & (across >= -1e-9) & (across <= 1 + 1e-9)
    return np.where(hit, along, 0.0).max(axis=1)


def _petals(count: int, depth: float, power: float = 1.0) -> Doubles:
    """A circle with lobes, one of them at the top."""
    wave = np.cos(count * (_ANGLE - math.pi / 2))
    return 1 + depth * np.sign(wave) * np.abs(wave) ** power


def _star() -> Doubles:
    """A star with five points."""
    turn = np.arange(10) * (math.pi / 5) + math.pi / 2
    length = np.where(np.arange(10) % 2, 0.42, 1.0)
    return _polygon(*zip((length * np.cos(turn)).tolist(), (length * np.sin(turn)).tolist(), strict=True))


#: The classes, in a ring: an ambiguous object lies between two neighbours.
SHAPES: dict[str, Doubles] = {
    "star": _star(),
    "flower": _petals(6, 0.2, 0.7),
    "gear": _petals(8, 0.17, 0.35),
    "clover": _petals(3, 0.4, 0.7),
    "cross": _polygon((0.36, 1), (0.36, 0.36), (1, 0.36), (1, -0.36), (0.36, -0.36), (0.36, -1), mirror=True),
    "crate": _polygon((0.9, 0.9), (0.9, -0.9), mirror=True),
    "house": _polygon((0, 1.1), (0.95, 0.2), (0.75, 0.15), (0.75, -0.85), mirror=True),
    "arrow": _polygon((0, 1.1), (0.95, 0), (0.38, -0.05), (0.38, -1), mirror=True),
    "tree": _polygon(
        (0, 1.25), (0.5, 0.35), (0.33, 0.22), (0.85, -0.62), (0.2, -0.62), (0.2, -1.05), mirror=True
    ),
    "tent": _polygon((0, 1.15), (1.0, -0.65), mirror=True),
    "drop": _polygon((0, 1.45), (0.3, 0.72), (0.66, 0.05), (0.74, -0.3), (0.52, -0.72), (0.2, -0.88), mirror=True),
    "leaf": _polygon((0, 1.5), (0.34, 0.8), (0.5, 0.1), (0.4, -0.6), (0.1, -1.1), (0.07, -1.5), mirror=True),
    "fish": _polygon(
        (1.3, 0.05), (0.8, 0.5), (0.2, 0.6), (-0.35, 0.4), (-0.65, 0.15), (-1.25, 0.65), (-1.1, 0.0), (-1.25, -0.65),
        (-0.65, -0.15), (-0.35, -0.4), (0.2, -0.6), (0.8, -0.5),
    ),
    "butterfly": _polygon(
        (0.06, 0.35), (0.75, 0.95), (1.15, 0.75), (1.05, 0.2), (0.5, -0.08), (0.85, -0.5), (0.65, -0.95), (0.06, -0.4),
        mirror=True,
    ),
    "heart": _polygon(
        (0, 0.5), (0.3, 0.86), (0.68, 0.88), (1.0, 0.55), (0.98, 0.1), (0.6, -0.5), (0, -1.1), mirror=True
    ),
    "mushroom": _polygon(
        (0, 0.95), (0.55, 0.82), (0.95, 0.4), (1.05, -0.06), (0.35, -0.12), (0.36, -0.9), mirror=True
    ),
}  # fmt: skip

CLASSES = tuple(SHAPES)

#: Radii ``[K, DIRECTIONS]`` of the shapes, each of area 1.
OUTLINES: Doubles = np.stack([r / np.sqrt((r**2).mean() * math.pi) for r in SHAPES.values()])


def _texture(
    dark: tuple[int, int, int],
    light: tuple[int, int, int],
    waves: tuple[float, float, float] = (0, 0, 0),
    cycles: tuple[float, float] = (1, 1),
    angle: float = 0,
    bend: float = 0,
    sharp: float = 1,
    clouds: float = 0.35,
) -> list[float]:
    """How an area is filled, in one row of numbers: two colours, and the pattern that blends them.

    Args:
        dark: RGB where the pattern is low.
        light: RGB where the pattern is high.
        waves: strength of the first wave, of the second, and of their product.
        cycles: cycles per picture of each wave.
        angle: direction of the first wave in degrees; the second is perpendicular.
        bend: how far the second wave bends the first.
        sharp: sharpness of edges, from soft (1) to hard (8).
        clouds: strength of a slow random variation.
    """
    return [*(c / 255 for c in (*dark, *light)), *waves, *cycles, math.radians(angle), bend, sharp, clouds]


#: One background per class.
GROUNDS = np.array(
    [
        _texture((22, 24, 62), (120, 124, 190), (0.5, 0.5, 0), (5, 5), 20, 0, 1.2, 0.5),  # star: night
        _texture((84, 148, 72), (176, 208, 104), (0, 0, 0.6), (4, 4), 45, 0, 1.5, 0.5),  # flower: meadow
        _texture((112, 120, 132), (188, 196, 204), (0.3, 0.3, 0.5), (4, 4), 0, 0, 4),  # gear: plate
        _texture((40, 104, 60), (104, 160, 84), (0, 0, 0.5), (7, 7), 10, 0, 2, 0.6),  # clover: lawn
        _texture((176, 204, 208), (240, 244, 240), (0, 0, 1), (2.5, 2.5), 0, 0, 6, 0.1),  # cross: tiles
        _texture((140, 92, 52), (204, 160, 104), (1, 0, 0), (0.6, 3), 90, 0.8, 1, 0.3),  # crate: planks
        _texture((148, 76, 60), (208, 140, 112), (0.6, 0.6, 0), (2.5, 5), 0, 0, 5, 0.2),  # house: bricks
        _texture((64, 64, 72), (136, 136, 136), (1, 0, 0), (2, 1), 90, 0, 6, 0.4),  # arrow: road
        _texture((176, 196, 224), (248, 248, 252), (0, 0, 0), (1, 1), 0, 0, 1, 0.9),  # tree: snow
        _texture((204, 164, 96), (244, 216, 148), (1, 0, 0), (3, 1), 70, 1.5, 1, 0.3),  # tent: dunes
        _texture((104, 124, 156), (168, 184, 204), (1, 0, 0), (6, 1), 25, 0, 2, 0.3),  # drop: rain
        _texture((92, 68, 44), (168, 112, 56), (0, 0, 0.4), (5, 3), 30, 1, 3, 0.8),  # leaf: forest floor
        _texture((28, 100, 148), (96, 184, 204), (1, 0, 0), (4, 2), 90, 1.6, 1.2, 0.3),  # fish: water
        _texture((120, 180, 232), (236, 244, 252), (0, 0, 0), (1, 1), 0, 0, 1, 1.1),  # butterfly: sky
        _texture((204, 96, 120), (252, 220, 224), (0.5, 0.5, 0), (3, 3), 0, 0, 8, 0.1),  # heart: checked cloth
        _texture((64, 72, 36), (124, 128, 68), (0.4, 0, 0.6), (3, 5), 60, 1.2, 1.5, 0.7),  # mushroom: moss
    ]
)

#: Colours and patterns of objects.
PAINTS = np.array([
    ((196, 44, 48), (240, 112, 96)), ((224, 120, 24), (252, 184, 88)), ((216, 176, 32), (252, 232, 128)),
    ((48, 128, 56), (132, 200, 108)), ((32, 88, 176), (108, 168, 232)), ((112, 56, 152), (188, 136, 216)),
    ((196, 72, 136), (248, 164, 200)), ((96, 96, 104), (212, 212, 216)),
], dtype=np.float64).reshape(-1, 6) / 255  # fmt: skip
PATTERNS = np.array(
    [
        _texture((0, 0, 0), (0, 0, 0), clouds=0.2),
        _texture((0, 0, 0), (0, 0, 0), (1, 0, 0), (4, 1), 40, 0, 4, 0.1),
        _texture((0, 0, 0), (0, 0, 0), (0, 0, 1), (3, 3), 45, 0, 4, 0.1),
        _texture((0, 0, 0), (0, 0, 0), (0.6, 0.6, 0), (5, 5), 30, 0, 3, 0.1),
    ]
)


def unseen_textures(u: Doubles) -> Doubles:
    """Textures that no background or object has, from numbers ``[M, 12]`` in 0..1: zigzags and rings in any colour."""
    base = 0.15 + 0.7 * u[:, 0:3]
    second = np.clip(base + np.where(u[:, 3:6] < 0.5, -1, 1) * (0.12 + 0.2 * u[:, 3:6]), 0, 1)
    ones = np.ones(len(u))
    is_product = u[:, 6] < 0.5
    waves = [0.2 * ones, np.where(is_product, 0.0, 1.0), np.where(is_product, 1.0, 0.2)]
    cycles = [1 + 7 * u[:, 7], 1 + 7 * u[:, 8]]
    angle, bend, sharp, clouds = 2 * math.pi * u[:, 9], 4 * u[:, 10] - 2, 1 + 7 * u[:, 11], 0.4 * ones
    return np.concatenate([base, second, np.stack([*waves, *cycles, angle, bend, sharp, clouds], axis=1)], axis=1)


def fill(textures: Doubles, phase: Doubles, clouds: Floats, x: Floats, y: Floats) -> Floats:
    """Colours ``[M, S, S, 3]`` of areas with the textures ``[M, 15]``.

    Args:
        textures: rows of `GROUNDS`, `PATTERNS` or `unseen_textures`.
        phase: ``[M, 2]``, the phases of the two waves, in turns.
        clouds: ``[M, S, S]``, the slow variation, approximately standard normal.
        x: horizontal position of every pixel, broadcastable to ``[M, S, S]``; the picture extends from 0 to 1.
        y: vertical position.
    """
    columns = textures.astype(np.float32).T[:, :, None, None]
    wave_a, wave_b, product, cycles_a, cycles_b, angle, bend, sharp, cloudy = columns[6:]
    start = (2 * math.pi * phase).astype(np.float32).T[:, :, None, None]
    c, s = np.cos(angle), np.sin(angle)
    b = np.sin((2 * math.pi) * cycles_b * (y * c - x * s) + start[1])
    a = np.sin((2 * math.pi) * cycles_a * (x * c + y * s) + start[0] + bend * b)
    wave = sharp * (wave_a * a + wave_b * b + product * (a * b))
    height = 0.5 + 0.5 * wave / (1 + np.abs(wave)) * (1 + 1 / sharp) + 0.4 * cloudy * clouds
    np.clip(height, 0, 1, out=height)
    dark, light = (columns[i : i + 3, ..., 0].T[0][:, None, None, :] for i in (0, 3))
    colours: Floats = dark + height[..., None] * (light - dark)
    return colours


def ground_colours(kinds: Ints, u: Doubles, clouds: Floats, x: Floats, y: Floats, shift: Shift | None) -> Floats:
    """Colours of the backgrounds of classes, varied at random."""
    if shift == "sketch":
        paper = np.array([0.93, 0.91, 0.86], dtype=np.float32) - (0.08 * u[:, :1]).astype(np.float32)
        return paper[:, None, None, :] + np.float32(0.012) * clouds[..., None]
    textures = GROUNDS[kinds]
    if shift == "texture":
        textures = unseen_textures(u[:, :12])
    textures[:, :6] = np.clip(
        textures[:, :6] * (0.85 + 0.3 * u[:, 12:13]) + 0.08 * (u[:, 13:16] - 0.5).repeat(2, 1), 0, 1
    )
    # From half to twice as many waves: the coarseness of a background must not reveal how far a crop was enlarged.
    textures[:, 9:11] *= 2 ** (2 * u[:, 16:17] - 1)
    textures[:, 11] += 0.3 * (u[:, 17] - 0.5)
    return fill(textures, u[:, 18:20], clouds, x, y)


def object_colours(
    kinds: Ints, weight: Doubles, u: Doubles, clouds: Floats, x: Floats, y: Floats, shift: Shift | None
) -> Floats:
    """Colours of objects; those between two classes are a mixture of both by weight."""
    if shift == "texture":
        return fill(unseen_textures(u[:, :12]), u[:, 18:20], clouds, x, y)
    colours = fill(_dress(kinds[:, 0], u), u[:, 18:20], clouds, x, y)
    mixed = np.flatnonzero(weight < 1)
    second_colours = fill(_dress(kinds[mixed, 1], u[mixed]), u[mixed, 18:20], clouds[mixed], x, y)
    colours[mixed] += (1 - weight[mixed]).astype(np.float32)[:, None, None, None] * (second_colours - colours[mixed])
    return colours


def _dress(kind: Ints, u: Doubles) -> Doubles:
    """Textures of objects of a class, which shares its pattern and each of its two colours with three other classes."""
    own_pattern, own_paint = kind // 4, kind % 4 + 4 * pick(u[:, 4], 2)
    textures = PATTERNS[np.where(u[:, 5] < DRESS, own_pattern, pick(u[:, 0], len(PATTERNS)))]
    paint = PAINTS[np.where(u[:, 6] < DRESS, own_paint, pick(u[:, 1], len(PAINTS)))]
    textures[:, :6] = np.clip(paint + 0.12 * (u[:, 2:3] - 0.5), 0, 1)
    textures[:, 11] += 2 * np.pi * u[:, 3]
    return textures


def pick(u: Doubles, count: int) -> Ints:
    """Whole numbers below ``count`` from numbers in 0..1."""
    return (u * count).astype(np.int64)


def spread(noise: Floats, size: int) -> Floats:
    """Interpolate noise ``[M, g, g]`` on a coarse grid smoothly to ``[M, size, size]``."""
    grid = noise.shape[-1]
    position = np.linspace(0, grid - 1, size)
    gap = np.abs(position[:, None] - np.arange(grid))
    weight = np.where(gap < 1, 1 - gap**2 * (3 - 2 * gap), 0).astype(np.float32)
    fine: Floats = np.einsum("ig,mgh,jh->mij", weight, noise, weight, optimize=True)
    return fine


def extents(outlines: Doubles) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """How far outlines ``[M, DIRECTIONS]`` of area 1 reach: left, up, right, down, each ``[M]`` and positive."""
    x, y = outlines * np.cos(_ANGLE), -outlines * np.sin(_ANGLE)
    return -x.min(axis=1), -y.min(axis=1), x.max(axis=1), y.max(axis=1)


def turn(outlines: Doubles, turns: Doubles) -> Doubles:
    """Turn outlines counter-clockwise by ``turns`` of a full circle, rounded to whole steps of direction."""
    steps = np.rint(turns * DIRECTIONS).astype(np.int64)
    return np.take_along_axis(outlines, (np.arange(DIRECTIONS) - steps[:, None]) % DIRECTIONS, axis=1)


def occupied_area(centre: Doubles, reach: tuple[Doubles, ...], scale: Doubles) -> Doubles:
    """The rectangle ``[M, 4]`` that each object occupies, with its soft edge."""
    left, up, right, down = (r * scale + 0.5 for r in reach)
    return np.stack([centre[:, 0] - left, centre[:, 1] - up, centre[:, 0] + right, centre[:, 1] + down], axis=1)


def place(areas: Doubles, reach: tuple[Doubles, ...], scale: Doubles, u: Doubles) -> tuple[Doubles, Bools]:
    """Place objects uniformly in rectangles ``[M, 4]``: their centres, and whether they fit."""
    left, up, right, down = (r * scale + 0.5 for r in reach)
    slack_x = areas[:, 2] - areas[:, 0] - left - right
    slack_y = areas[:, 3] - areas[:, 1] - up - down
    centre = np.stack([areas[:, 0] + left + slack_x * u[:, 0], areas[:, 1] + up + slack_y * u[:, 1]], axis=1)
    return centre, (slack_x >= 0) & (slack_y >= 0)


def rectangles_around(box: Doubles, size: int) -> Doubles:
    """Four rectangles ``[M, 4, 4]`` around a box, arranged like a pinwheel so that no two share a pixel."""
    x1, y1 = np.floor(box[:, 0]), np.floor(box[:, 1])
    x2, y2 = np.ceil(box[:, 2]), np.ceil(box[:, 3])
    zero, full = np.zeros_like(x1), np.full_like(x1, size)
    sides = [(zero, zero, x1, y2), (x1, zero, full, y1), (x2, y1, full, full), (zero, y2, x2, full)]
    return np.stack([np.stack(side, axis=1) for side in sides], axis=1)


def first_fit(
    room: Doubles, reach: tuple[Doubles, ...], scale: Doubles, start: Ints, occupied: Ints
) -> tuple[Ints, Bools]:
    """The first of the four rectangles, from ``start`` on, that is free and large enough, and whether there is one."""
    side, fits = start, np.zeros(len(start), dtype=bool)
    for step in range(4):
        candidate = (start + step) % 4
        _, has_room = place(room[np.arange(len(start)), candidate], reach, scale, np.zeros((len(start), 2)))
        better = ~fits & has_room & (candidate != occupied)
        side = np.where(better, candidate, side)
        fits |= better
    return side, fits


def coverage(outlines: Doubles, scale: Doubles, centre: Doubles, size: int) -> Floats:
    """The share of every pixel that its object covers, ``[M, S, S]``: from the distance to the edge.

    The distance along the ray is shortened by the slope of the edge, which is exact for a straight edge nearby.
    """
    pixel = np.arange(size, dtype=np.float32) + 0.5
    dx = (pixel - centre[:, 0, None].astype(np.float32))[:, None, :]
    dy = (pixel - centre[:, 1, None].astype(np.float32))[:, :, None]
    radius = np.sqrt(dx**2 + dy**2)
    per_radian = np.float32(DIRECTIONS / (2 * math.pi))
    direction = np.arctan2(-dy, dx) * per_radian + np.float32(DIRECTIONS)
    low = direction.astype(np.int32)
    edges = (outlines * scale[:, None]).astype(np.float32)
    step = np.roll(edges, -1, axis=1) - edges
    flat = (low % DIRECTIONS) + (np.arange(len(edges), dtype=np.int32) * DIRECTIONS)[:, None, None]
    rise = step.ravel()[flat]
    edge = edges.ravel()[flat] + (direction - low) * rise
    # Where the edge runs along the ray the slope is unbounded, and irrelevant to pixels far from that edge.
    slope = np.minimum(np.abs(rise) * per_radian / np.maximum(radius, 1), 2)
    share: Floats = np.clip((edge - radius) / np.sqrt(1 + slope**2) + np.float32(0.5), 0, 1)
    share[share < FAINT] = 0
    return share


def rim(share: Floats, width: int) -> Floats:
    """The outermost ``width`` pixels of objects with the coverage ``[M, S, S]``."""
    core = share
    for _ in range(width):
        padded = np.pad(core, ((0, 0), (1, 1), (1, 1)))
        core = np.minimum(core, np.minimum(padded[:, :-2, 1:-1], padded[:, 2:, 1:-1]))
        core = np.minimum(core, np.minimum(padded[:, 1:-1, :-2], padded[:, 1:-1, 2:]))
    return share - core


def tight_boxes(pixels: Bools) -> Ints:
    """The smallest boxes ``[M, 4]`` (x1, y1, x2, y2; x2 and y2 excluded) around the pixels ``[M, S, S]``."""
    ends: list[npt.NDArray[Any]] = []
    for axis in (1, 2):
        lines: Bools = np.asarray(pixels.any(axis=axis))
        ends += [lines.argmax(axis=1), lines.shape[1] - lines[:, ::-1].argmax(axis=1)]
    return np.stack([ends[0], ends[2], ends[1], ends[3]], axis=1).astype(np.int64)
