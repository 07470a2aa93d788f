"""Small data sets of images: three with boxes, and some of noise."""

import numpy as np
from PIL import Image

from calibrant.data import Boxes, Dataset, ImageArray

SIZE = 20
BOXES = [[[2, 2, 8, 8], [6, 6, 14, 12], [0, 0, 20, 1]], [[5, 5, 5, 9], [10.5, 3.2, 15.5, 9.9]], []]
BOX_LABELS = [[1, 0, -1], [1, 0], []]
WIDTH, HEIGHT = 31, 23


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


class Masks(ImageArray):
    """Masks as they are stored: one band."""

    def open(self, index, draft=None):
        return Image.fromarray(self.pixels[index])


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def pictures(pixels=None, **columns):
    pixels = noise(5, HEIGHT, WIDTH, 3) if pixels is None else pixels
    ids = tuple(f"picture {i}" for i in range(len(pixels)))
    return Dataset("toy", "train", ("cat", "dog"), ids, np.arange(len(pixels)) % 2, ImageArray(pixels), **columns)
