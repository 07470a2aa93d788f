"""What is known of predictions before any value is read."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant.predictions.hints import short
from calibrant.predictions.text import check_names

DATA = ("logits", "probabilities", "confidence")
KINDS = ("classification", "segmentation")
SPLITS = ("train", "val", "test")
GROUP = "group."
LONGEST_NAME = 1000


@dataclass(frozen=True)
class About:
    """What is known of predictions before any value is read; ``shape`` is that of one sample's data."""

    holds: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    kind: str = "classification"
    class_names: tuple[str, ...] | None = None
    ignore_index: int | None = None
    split: str | None = None

    @property
    def num_classes(self) -> int | None:
        """The number of classes, None for confidences."""
        return self.shape[0] if self.shape else None

    @property
    def numbers(self) -> int:
        """Numbers per sample."""
        return math.prod(self.shape)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of one sample in a column."""
        if name == self.holds:
            return self.shape
        return self.shape[1:] if name == "labels" else ()


def about(
    holds: str,
    dtype: np.dtype[Any],
    shape: Sequence[int],
    *,
    kind: str = "classification",
    class_names: Any = None,
    ignore_index: Any = None,
    split: str | None = None,
    head: str = "",
) -> About:
    """Check everything but the values; ``shape`` is that of all the data, ``[N, ...]``."""
    if kind not in KINDS:
        raise ValueError(f"{head}kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if split is not None and split not in SPLITS:
        raise ValueError(f"{head}split must be None or one of {', '.join(SPLITS)}, got {split!r}")
    form = "[N]" if holds == "confidence" else "[N, C]" if kind == "classification" else "[N, C, H, W]"
    few = len(shape) > 1 and shape[1] < 2
    if dtype.kind != "f" or dtype.itemsize > 8 or len(shape) != form.count(",") + 1 or 0 in shape or few:
        size = "N >= 1" if holds == "confidence" else "N >= 1 and C >= 2"
        hint = '; images take kind="segmentation"' if len(shape) == 4 and kind == "classification" else ""
        if holds == "probabilities" and (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
            hint = f" (of two classes? np.stack([1 - p, p], 1){' with p = p[:, 0]' if len(shape) > 1 else ''})"
        raise ValueError(
            f"{head}{holds} must be floating point {form} with {size} (float16, float32 or float64), "
            f"got {dtype} {list(shape)}{hint}"
        )
    return About(
        holds,
        dtype.newbyteorder("="),
        tuple(int(n) for n in shape[1:]),
        kind,
        None if class_names is None else _class_names(class_names, int(shape[1]), head),
        None if ignore_index is None else _whole("ignore_index", ignore_index, head),
        split,
    )


def checked_names(names: Any, head: str) -> tuple[str, ...]:
    """Class names that differ and that every format can keep."""
    if isinstance(names, (str, bytes, dict)) or not hasattr(names, "__iter__"):
        raise ValueError(f"{head}class_names must be a list of text, got {short(repr(names))}")
    texts = tuple(names.tolist() if isinstance(names, np.ndarray) else names)
    odd = [name for name in texts if not isinstance(name, str)]
    if odd:
        raise ValueError(f"{head}class_names must be a list of text, got {short(repr(odd[0]))}")
    check_names(f"{head}class_names", texts)
    long = next((name for name in texts if len(name) > LONGEST_NAME), None)
    if long is not None:
        raise ValueError(
            f"{head}class_names must have at most {LONGEST_NAME} characters, got {len(long)}: {short(long)!r}"
        )
    name, count = Counter(texts).most_common(1)[0] if texts else ("", 0)
    if count > 1:
        often = "twice" if count == 2 else f"{count} times"
        raise ValueError(f"{head}class_names must differ, got {short(name)!r} {often}")
    return texts


def _class_names(names: Any, classes: int, head: str) -> tuple[str, ...]:
    texts = checked_names(names, head)
    if len(texts) != classes:
        raise ValueError(f"{head}class_names must be {classes}, one per class, got {len(texts)}")
    return texts


def _whole(name: str, value: Any, head: str) -> int:
    try:
        if not isinstance(value, (bool, np.bool_)):
            number = operator.index(value)
            if -(2**63) <= number < 2**63:
                return number
    except TypeError:
        pass
    raise ValueError(f"{head}{name} must be None or a whole number of 64 bits, got {short(repr(value))}")
