"""Scenes with a label for every pixel, for segmentation without a download."""

from __future__ import annotations

import numpy as np

from calibrant._validation import check_choice
from calibrant.data.dataset import NO_CLASS, Dataset
from calibrant.data.drawing import CLASSES
from calibrant.data.scenes import Shift, draw
from calibrant.data.sources import ImageArray, MaskArray

#: The label of pixels of an object that lies between two classes.
VOID = 255


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
    assert pictures.masks is not None
    masks = np.zeros((len(pictures.labels), size, size), dtype=np.uint8)
    for picture, (start, end) in enumerate(zip(pictures.offsets, pictures.offsets[1:], strict=False)):
        # The first object is the labelled one, which alone may lie between classes.
        for number in range(int(start), int(end)):
            is_void = number == start and pictures.ambiguous[picture]
            masks[picture][pictures.masks[number]] = VOID if is_void else pictures.box_labels[number] // together + 1
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
