"""Boxes of an image as a view shows them, and back; and which boxes are objects to detect."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.data import Boxes, View

#: Pixels along a side of the smallest box that is trained on: in less, nothing can be seen.
LEAST_SIDE = 1.0


def to_view(corners: NDArray[Any], view: View) -> NDArray[np.float64]:
    """Boxes [B, 4] of an image in the pixels of a view, clipped to what it shows.

    Example:
        >>> view = View.whole(20, 10)._replace(width=40, height=20, flipped=True)
        >>> to_view(np.array([[1.0, 2.0, 5.0, 6.0]]), view).tolist()
        [[30.0, 4.0, 38.0, 12.0]]
    """
    offset, scale = _geometry(view)
    points = (np.asarray(corners, dtype=np.float64).reshape(-1, 2, 2) - offset) * scale
    if view.flipped:
        points[:, :, 0] = view.width - points[:, ::-1, 0]
    return np.clip(points, 0, (view.width, view.height)).reshape(-1, 4)


def to_image(corners: NDArray[Any], view: View) -> NDArray[np.float64]:
    """Boxes [B, 4] of a view in the pixels of its image, clipped to the image.

    Example:
        >>> view = View.whole(20, 10)._replace(width=40, height=20, flipped=True)
        >>> to_image(np.array([[30.0, 4.0, 38.0, 12.0]]), view).tolist()
        [[1.0, 2.0, 5.0, 6.0]]
    """
    offset, scale = _geometry(view)
    points = np.array(corners, dtype=np.float64).reshape(-1, 2, 2)
    if view.flipped:
        points[:, :, 0] = view.width - points[:, ::-1, 0]
    return np.clip(points / scale + offset, 0, view.image_size).reshape(-1, 4)


def _geometry(view: View) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The corner of the image at which a view begins, and pixels of the view for one of the image."""
    x1, y1, x2, y2 = view.crop
    return np.array([x1, y1]), np.array([view.width / (x2 - x1), view.height / (y2 - y1)])


def is_object(boxes: Boxes) -> NDArray[np.bool_]:
    """Which boxes [M] are objects of a class: those of no class, and those without area, are not."""
    return (boxes.labels >= 0) & (boxes.areas > 0)


def is_single(boxes: Boxes) -> NDArray[np.bool_]:
    """Which boxes [M] are single objects of a class, to train on."""
    return is_object(boxes) & ~boxes.crowd
