"""Facts of predictions that are known before any value is read: columns, shapes, class names; and text in columns.

Columns have other customary names: ``y_true`` or ``target`` are taken for labels, and ``prob`` for a probability. A
``score`` may be a probability, a logit or the confidence of the predicted class: that is never guessed.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant._arrays import Array
from calibrant._validation import check_choice, shorten

DATA = ("logits", "probabilities", "confidence")
SINGLE = {"correct": ("correct",), "labels": ("labels", "label"), "ids": ("ids", "id"), "objectness": ("objectness",)}
PREDICTED = "predicted"  # with confidence and labels it stands for correct
ACTUAL = "actual"  # the true class beside a predicted one: labels, where these are no positions
GROUP = "group."
#: Customary names of columns, compared without regard to case.
CUSTOMARY_NAMES = {
    "labels": ("y_true", "true_label", "true_labels", "truth", "ground_truth", "target", "targets"),
    "predicted": ("y_pred", "pred", "prediction", "predicted_label", "predicted_class"),
}
#: Customary names of a single column for two classes, and what it holds.
ONE_COLUMN = {"logit": "logits"} | dict.fromkeys(
    (
        *("p", "prob", "proba", "probability", "y_prob", "y_proba", "pred_prob", "pred_proba", "y_pred_proba"),
        *("predict_proba", "predicted_probability"),
    ),
    "probabilities",
)
_OF_A_CLASS = re.compile(r"(p|prob|proba|probability)(_[0-9]{1,9}|\(.+\))", re.IGNORECASE | re.DOTALL)

#: The shape of the data by kind, as users have them; and the words for samples and for labelled units.
KINDS = {"classification": "[N, C]", "segmentation": "[N, C, H, W]", "tokens": "[B, T, V]"}
UNITS = {
    "classification": ("samples", "samples"),
    "segmentation": ("images", "pixels"),
    "tokens": ("sequences", "tokens"),
}
#: The label that is ignored by default, as in `torch.nn.CrossEntropyLoss` and the losses here.
IGNORED = -100
SPLITS = ("train", "val", "test")
LONGEST_NAME = 1000

#: What whole numbers of 64 bits look like in text, for Arrow's expressions and for Python's.
WHOLE = "^(0|-?[1-9][0-9]{0,17})$"
is_whole = re.compile(WHOLE.removesuffix("$") + r"\Z").match

TEXT_BYTES = 1 << 28  # that a column of text may take, in which every value is as wide as the widest,
TEXT_WIDTH = 64  # unless the widest has no more characters than this
_BLOCK = 1 << 20


def customary(role: str, names: Collection[str]) -> list[str]:
    """The columns with a customary name for a role: ours in upper or lower case, or a synonym."""
    words = {role, *SINGLE.get(role, ()), *CUSTOMARY_NAMES.get(role, ())}
    return [name for name in names if name.lower() in words]


def one_column_kind(name: str) -> str:
    """What a single column for two classes holds, by its name: probabilities or logits; empty if that is unclear."""
    return ONE_COLUMN.get(name.lower(), "probabilities" if _OF_A_CLASS.fullmatch(name) else "")


@dataclass(frozen=True)
class Schema:
    """What predictions hold.

    ``shape`` is that of one sample's data; ``positive`` the position of the positive class of two, if it is known.
    """

    holds: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    kind: str = "classification"
    class_names: tuple[str, ...] | None = None
    ignore_index: int | None = IGNORED
    split: str | None = None
    positive: int | None = None

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

    def stored_shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of one sample in a column as files of arrays have it: of tokens, classes are last."""
        shape = self.shape_of(name)
        return shape[::-1] if self.is_turned(name) else shape

    def is_turned(self, name: str) -> bool:
        """Whether the classes of a column are last for users and in files, as language models have them."""
        return self.kind == "tokens" and name == self.holds

    def rows(self, numbers: int) -> int:
        """The number of samples, at least one, that hold about this many numbers."""
        return max(1, numbers // max(1, self.numbers))


def is_one_column(holds: str, shape: Sequence[int]) -> bool:
    """Whether data of this shape are one column for two classes: ``[N]``, ``[N, 1]`` or ``[N, 1, H, W]``."""
    return holds != "confidence" and (len(shape) == 1 or (len(shape) in (2, 4) and shape[1] == 1))


def two_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the two columns that one column stands for."""
    return (shape[0], 2, *shape[2:])


def check_schema(
    holds: str,
    dtype: np.dtype[Any],
    shape: Sequence[int],
    *,
    kind: str = "classification",
    class_names: Any = None,
    ignore_index: Any = IGNORED,
    split: str | None = None,
    prefix: str = "",
) -> Schema:
    """Check everything but the values; ``shape`` is that of all the data, errors start with ``prefix``."""
    check_choice(f"{prefix}kind", kind, tuple(KINDS))
    check_choice(f"{prefix}split", split, (None, *SPLITS))
    form = "[N]" if holds == "confidence" else KINDS[kind]
    turned = kind == "tokens" and len(shape) == 3
    few = len(shape) > 1 and shape[-1 if turned else 1] < 2
    if dtype.kind != "f" or dtype.itemsize > 8 or len(shape) != form.count(",") + 1 or 0 in shape or few:
        size = "N >= 1" if holds == "confidence" else "T >= 1 and V >= 2" if kind == "tokens" else "N >= 1 and C >= 2"
        hints = {4: '; images take kind="segmentation"', 3: '; tokens [B, T, V] with labels [B, T] take kind="tokens"'}
        hint = hints.get(len(shape), "") if kind == "classification" else ""
        raise ValueError(
            f"{prefix}{holds} must be floating point {form} with {size} (float16, float32 or float64), "
            f"got {dtype} {list(shape)}{hint}"
        )
    sample = tuple(int(n) for n in (shape[:0:-1] if turned else shape[1:]))
    if class_names is not None:
        class_names = check_class_names(class_names, prefix)
        if len(class_names) != sample[0]:
            raise ValueError(f"{prefix}class_names must be {sample[0]}, one per class, got {len(class_names)}")
    if holds == "confidence":
        ignore_index = None
    ignore_index = None if ignore_index is None else _label(f"{prefix}ignore_index", ignore_index)
    return Schema(holds, dtype.newbyteorder("="), sample, kind, class_names, ignore_index, split)


def check_class_names(names: Any, prefix: str) -> tuple[str, ...]:
    """Check that class names differ and that every format can store them."""
    if isinstance(names, (str, bytes, dict)) or not hasattr(names, "__iter__"):
        raise ValueError(f"{prefix}class_names must be a list of text, got {shorten(repr(names))}")
    texts = tuple(names.tolist() if isinstance(names, np.ndarray) else names)
    odd = [name for name in texts if not isinstance(name, str)]
    if odd:
        raise ValueError(f"{prefix}class_names must be a list of text, got {shorten(repr(odd[0]))}")
    check_texts(f"{prefix}class_names", texts)
    long = next((name for name in texts if len(name) > LONGEST_NAME), None)
    if long is not None:
        actual = f"{len(long)}: {shorten(long)!r}"
        raise ValueError(f"{prefix}class_names must have at most {LONGEST_NAME} characters, got {actual}")
    name, count = Counter(texts).most_common(1)[0] if texts else ("", 0)
    if count > 1:
        often = "twice" if count == 2 else f"{count} times"
        raise ValueError(f"{prefix}class_names must differ, got {shorten(name)!r} {often}")
    return texts


def class_name(label: int, class_names: Sequence[str] | None) -> str:
    """The name of a class, or its number."""
    return str(label) if class_names is None else class_names[label]


def _label(name: str, value: Any) -> int:
    try:
        if not isinstance(value, (bool, np.bool_)):
            number = operator.index(value)
            if -(2**63) <= number < 2**63:
                return number
    except TypeError:
        pass
    raise ValueError(f"{name} must be None or a whole number of 64 bits, got {shorten(repr(value))}")


def as_text(name: str, array: Array) -> Array:
    """Text of any NumPy kind (fixed width, variable width, objects that are all ``str``) as fixed-width text.

    Other arrays stay as they are.
    """
    if array.dtype.kind not in "UTO":
        return array
    if array.dtype.kind == "O" and not all(isinstance(value, str) for value in array.flat):
        odd = next(value for value in array.flat if not isinstance(value, str))
        raise ValueError(f"{name} must be text or whole numbers, got an object array with {type(odd).__name__}")
    if array.dtype.kind in "OT":
        check_width(name, array.size, max(map(len, array.flat), default=1))
        array = array.astype(np.str_)
    check_characters(name, array)
    return array


def check_characters(name: str, array: Array) -> None:
    """Refuse fixed-width text with code points that are no characters: Python fails on them, or cannot write them."""
    flat = array.reshape(-1)
    rows = max(1, _BLOCK // max(1, array.itemsize))
    for start in range(0, len(flat), rows):
        block = np.ascontiguousarray(flat[start : start + rows])
        points = block.view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if len(points) and points.max() > 0xD7FF:
            odd = points[(points > 0x10FFFF) | ((points >= 0xD800) & (points <= 0xDFFF))]
            if len(odd):
                raise ValueError(f"{name} must be text, got a character that does not exist, {int(odd[0]):#x}")


def check_texts(name: str, texts: Iterable[str]) -> None:
    """Refuse texts that NumPy or UTF-8 cannot store: with characters that do not exist, or with null characters."""
    for text in texts:
        if "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)):
            raise ValueError(f"{name} must be text, got {text[:60]!r} with a character that cannot be kept")


def check_width(name: str, rows: int, width: int) -> None:
    """Refuse a column of text whose longest value would make all others too wide."""
    size = 4 * rows * width
    if width > TEXT_WIDTH and size > TEXT_BYTES:
        raise ValueError(
            f"{name} must be short text, got a value of {width:,} characters among {rows:,}: "
            f"{size:,} bytes in memory, at most {TEXT_BYTES:,} are allowed"
        )


def as_numbers(texts: Array) -> Array | None:
    """Whole numbers that are written as text, or None if a text is something else."""
    levels, codes = np.unique(texts, return_inverse=True)
    if not all(map(is_whole, levels.tolist())):
        return None
    numbers: Array = np.array([int(level) for level in levels.tolist()], np.int64)[codes].reshape(texts.shape)
    return numbers
