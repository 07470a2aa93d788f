"""Colours of maps: of classes, of confidences, and of wrong pixels by how sure the model was of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]

#: From no confidence to all of it: the deeper the surer [MbLS, Fig. 3].
CONFIDENCE = ("#f7fbff", "#9ecae1", "#2171b5", "#08306b")
#: Wrong pixels from the surest of all pixels to the least sure.
RANK = ("#a50026", "#f46d43", "#fee08b", "#ffffd9")
#: Pixels without a label.
VOID = (128, 128, 128)


def label_colours(number: int) -> Doubles:
    """Colours [number, 3] in 0..1 that differ: twenty, then again."""
    from matplotlib import colormaps

    return np.array([colormaps["tab20"](k % 20)[:3] for k in range(number)])


def paint_labels(labels: npt.NDArray[np.integer], classes: int) -> Pixels:
    """Labels [H, W] in the colours of their classes; what is no class is grey."""
    colours = np.rint(255 * label_colours(classes)).astype(np.uint8)
    is_class = (labels >= 0) & (labels < classes)
    painted = colours[np.where(is_class, labels, 0)]
    painted[~is_class] = VOID
    return painted


def paint_ramp(values: Doubles, ramp: tuple[str, ...]) -> Pixels:
    """Values [H, W] from 0 to 1 in colours between those of a ramp.

    Example:
        >>> paint_ramp(np.array([[0.0, 0.5, 1.0]]), ("#000000", "#ffffff")).tolist()
        [[[0, 0, 0], [128, 128, 128], [255, 255, 255]]]
    """
    anchors = np.array([[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in ramp], np.float64)
    at = np.linspace(0, 1, len(ramp))
    channels = [np.interp(values, at, anchors[:, k]) for k in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)


def paint_wrong(picture: Pixels, rank: Doubles, wrong: npt.NDArray[np.bool_]) -> Pixels:
    """A picture [H, W, 3] in pale grey, and its wrong pixels by the rank of their uncertainty."""
    grey = picture.mean(axis=2, keepdims=True)
    pale = np.rint(np.repeat(150 + 0.35 * grey, 3, axis=2)).astype(np.uint8)
    return np.where(wrong[..., None], paint_ramp(rank, RANK), pale)
