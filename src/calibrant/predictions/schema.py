"""Facts of predictions that are known before any value is read: columns, shapes, class names, the positive class.

Columns ``p_1, p_2, p_3`` name the classes 1, 2 and 3: label 1 is the first of them, not the second. The names of
columns, and names that the caller gives, therefore decide about labels that are numbers. Names that are stored beside
an array do not by themselves: such labels are positions by convention, and where they may be either, all labels of all
files decide, or the file is refused. `Naming` holds the names; `labels` has the decision.

Columns have other customary names: ``y_true`` or ``target`` are taken for labels, and ``prob`` for a probability. A
``score`` may be a probability, a logit or the confidence of the predicted class: that is never guessed.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant.base.arrays import check_texts
from calibrant.base.checks import check_choice, did_you_mean, listing, shorten

DATA = ("logits", "probabilities", "confidence")
SINGLE = {"correct": ("correct",), "labels": ("labels", "label"), "ids": ("ids", "id"), "objectness": ("objectness",)}
SINGLE |= {"weight": ("weight",), "split": ("split",)}
PREDICTED = "predicted"  # with confidence and labels it stands for correct
ACTUAL = "actual"  # the true class beside a predicted one: labels, where these are no positions
GROUP = "group."
WEIGHT = "weight"  # importance weights, one per sample
SPLIT = "split"  # a column that says for every row what it is used for, or one fact for all
#: Customary names of columns, compared without regard to case.
CUSTOMARY_NAMES = {
    "labels": ("y_true", "true_label", "true_labels", "truth", "ground_truth", "target", "targets"),
    "predicted": ("y_pred", "pred", "prediction", "predicted_label", "predicted_class"),
}
#: Customary names of a single column of probabilities for two classes.
ONE_PROBABILITY = (
    *("p", "prob", "proba", "probability", "y_prob", "y_proba", "pred_prob", "pred_proba", "y_pred_proba"),
    *("predict_proba", "predicted_probability"),
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
#: What the values of a column of splits mean, in lower case.
SPLIT_WORDS = {name: name for name in SPLITS} | {"training": "train", "testing": "test"}
SPLIT_WORDS |= dict.fromkeys(("valid", "validation", "dev", "development"), "val")
#: Columns of ours that a file may have and a caller may leave out.
OMITTABLE = ("ids", "objectness", WEIGHT, SPLIT)
LONGEST_NAME = 1000
MOST_CLASSES = 1 << 19  # twice the largest vocabularies of language models
#: Pairs whose second member is positive by convention.
CUSTOMARY_PAIRS = (("0", "1"), ("false", "true"), ("-1", "1"))
_NUMBER = re.compile(r"[-+]?[0-9]{1,18}(\.0+)?")

Names = tuple[str, ...]
Codes = tuple[int | None, ...]


def customary(role: str, names: Collection[str]) -> list[str]:
    """The columns with a customary name for a role: ours in upper or lower case, or a synonym."""
    words = {role, *SINGLE.get(role, ()), *CUSTOMARY_NAMES.get(role, ())}
    return [name for name in names if name.lower() in words]


def one_column_kind(name: str) -> str:
    """What a single column for two classes holds, by its name: probabilities or logits; empty if that is unclear."""
    if name.lower() in ONE_PROBABILITY or _OF_A_CLASS.fullmatch(name):
        return "probabilities"
    return "logits" if name.lower() == "logit" else ""


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
    holds: str, dtype: np.dtype[Any], shape: Sequence[int], facts: Mapping[str, Any], prefix: str = ""
) -> Schema:
    """Check everything but the values; ``shape`` is that of all the data, errors start with ``prefix``.

    ``facts`` has kind, class names, ignore index and split, as far as they are given.
    """
    assert facts.keys() <= {"kind", "class_names", "ignore_index", "split"}, f"unknown facts in {sorted(facts)}"
    for name, options in (("kind", tuple(KINDS)), ("split", (None, *SPLITS))):
        if name in facts:
            check_choice(f"{prefix}{name}", facts[name], options)
    kind, class_names = facts.get("kind", "classification"), facts.get("class_names")
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
    if sample and sample[0] > MOST_CLASSES:
        raise ValueError(f"{prefix}{holds} must be of at most {MOST_CLASSES:,} classes, got {sample[0]:,}")
    if class_names is not None:
        class_names = check_class_names(class_names, prefix)
        if len(class_names) != sample[0]:
            raise ValueError(f"{prefix}class_names must be {sample[0]}, one per class, got {len(class_names)}")
    ignore_index = None if holds == "confidence" else facts.get("ignore_index", IGNORED)
    if ignore_index is not None:
        ignore_index = _check_label(f"{prefix}ignore_index", ignore_index)
    return Schema(holds, dtype.newbyteorder("="), sample, kind, class_names, ignore_index, facts.get("split"))


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


def _check_label(name: str, value: Any) -> int:
    with contextlib.suppress(TypeError):
        if not isinstance(value, (bool, np.bool_)) and -(2**63) <= operator.index(value) < 2**63:
            return operator.index(value)
    raise ValueError(f"{name} must be None or a whole number of 64 bits, got {shorten(repr(value))}")


@dataclass(frozen=True)
class Naming:
    """The class names that a file and its caller give, before any label is read."""

    names: Names | None = None  # where labels do not choose between the spellings
    spellings: tuple[Names, ...] = ()  # what labels of text may call the classes, the most literal first
    codes: Codes | None = None  # the number that a label has for each class, where that is not its position
    certain: bool = True  # whether numbers are looked up in codes whatever the labels are
    unclear: str = ""  # why labels that are numbers cannot be read, if they cannot


def number_of(name: str) -> int | None:
    """The whole number that a name stands for, such as 7, 007, -7 or 7.0; None if it is not a number."""
    return int(name.partition(".")[0]) if _NUMBER.fullmatch(name) else None


def codes_of(names: Sequence[str]) -> Codes | None:
    """The numbers among names, if one of them is not the position of its class."""
    numbers = tuple(map(number_of, names))
    return numbers if any(n is not None and n != i for i, n in enumerate(numbers)) else None


def are_positions(names: Sequence[str]) -> bool:
    """Whether the names are 0, 1, 2, ..."""
    return all(number_of(name) == i for i, name in enumerate(names))


def name_array(stated: Names | None, requested: Names | None, path: str, *, positions: bool) -> Naming:
    """Names of the classes of an array: stated by the file, requested by the caller, or both.

    ``positions`` is whether the file says that its labels are positions.
    """
    if requested is None or requested == stated:
        if stated is None:
            return Naming()
        return Naming(stated, (stated,), None if positions else codes_of(stated), certain=False)
    if stated is None or len(requested) != len(stated):
        return Naming(requested, (requested,), codes_of(requested))
    if are_positions(requested) or (are_positions(stated) and codes_of(requested) is None):
        return Naming(requested, (requested,))
    verb = "in their order" if set(requested) == set(stated) else "or not be given"
    expected = f"must be those that the file states, {verb}: expected {listing(stated, 5)}"
    raise ValueError(f"{path}: class names {expected}, got {listing(requested, 5)}")


def as_name(positive: object) -> str:
    """The positive class as the caller gives it, a name, a number or a truth value, as text; empty if it is None."""
    return "" if positive is None else str(positive).strip()


def customary_positive(names: Names | None) -> int | None:
    """The position of the class of two that is positive by convention; None where there is no convention."""
    lower = ["0", "1"] if names is None else [name.lower() for name in names]
    return next((lower.index(pair[1]) for pair in CUSTOMARY_PAIRS if sorted(pair) == sorted(lower)), None)


def find_positive(positive: str, names: Names | None, classes: int | None, prefix: str) -> int | None:
    """The position of the positive class of ``classes``, as named or by convention; None where that is unknown."""
    if classes == 2:
        return position_of(positive, names or ("0", "1"), prefix) if positive else customary_positive(names)
    if positive:
        kinds = "confidences alone" if classes is None else f"{classes} classes"
        raise ValueError(f"{prefix}positive is for two classes, got {shorten(positive)!r} with {kinds}")
    return None


def position_of(positive: str, classes: Names, prefix: str) -> int:
    """The position of the positive class, by its name."""
    name = same_class(positive, classes)
    if not name:
        raise not_among(positive, classes, "the classes", prefix)
    return classes.index(name)


def same_class(name: str, classes: Collection[str]) -> str:
    """The class that a name means; if the classes are False and True, also 0 and 1, in any case."""
    if name in classes:
        return name
    by_case = {candidate.lower(): candidate for candidate in classes}
    if set(by_case) <= {"false", "true"}:
        return by_case.get({"0": "false", "1": "true"}.get(name, name.lower()), "")
    return ""


def not_among(positive: str, classes: Sequence[str], title: str, prefix: str) -> ValueError:
    """The error about a positive class that is not among the classes."""
    actual = f"{shorten(positive)!r}{did_you_mean(positive, classes)}"
    return ValueError(f"{prefix}positive must be one of {title} {listing(classes, 2)}, got {actual}")
