"""Objects the slow way: masks of pixels that go through the same transformations, and are counted."""

import numpy as np
from PIL import Image


def mask_of(boxes, width, height, scale=1):
    """A mask of an image, ``scale`` mask pixels to a pixel, for boxes whose corners are multiples of 1/scale."""
    mask = np.zeros((height * scale, width * scale), dtype=bool)
    for box in np.asarray(boxes, dtype=float).reshape(-1, 4):
        x1, y1, x2, y2 = (round(v * scale) for v in box)
        mask[max(y1, 0) : max(y2, 0), max(x1, 0) : max(x2, 0)] = True
    return mask


def objectness(boxes, crop, image_size, scale=1):
    """Share of a crop (corners multiples of 1/scale) that a mask covers; outside the image nothing is covered."""
    width, height = image_size
    x1, y1, x2, y2 = (round(v * scale) for v in crop)
    mask = mask_of(boxes, width, height, scale)
    covered = sum(
        bool(mask[y, x])
        for y in range(max(y1, 0), min(y2, len(mask)))
        for x in range(max(x1, 0), min(x2, mask.shape[1]))
    )
    return covered / ((x2 - x1) * (y2 - y1))


def through(mask, transforms):
    """A mask through torchvision's own transforms, as an image: the share of white in what comes out."""
    image = Image.fromarray(mask.astype(np.uint8) * 255)
    for transform in transforms:
        image = transform(image)
    return float(np.asarray(image).mean() / 255)


def adaptive_target(label, share, classes, beta):
    """ALS, the soft label before Eq. 6, term by term."""
    alpha = 1 - share
    target = []
    for k in range(classes):
        pi = 1.0 if k == label else 0.0
        target.append((pi * (1 - alpha) + (1 - pi) * alpha / (classes - 1)) * beta + (1 - beta) * pi)
    return target
