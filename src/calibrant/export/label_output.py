"""The label that a model gives itself: which of its outputs it is, and which of the policy's classes its values mean.

Text is matched with the policy's class names. A number is matched with names that are numbers, and is a position where
no name is a number, as in files of predictions. A value that is no class of the policy is an error, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calibrant.base.arrays import Array
from calibrant.base.checks import Ints, listing
from calibrant.policy import Policy
from calibrant.predictions import number_of, same_class
from calibrant.predictions.schema import codes_of

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

#: Types of outputs that may be labels.
TYPES = ("STRING", "INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16", "UINT8")
_NAMES = re.compile(r"label|class|pred", re.IGNORECASE)
_MAKERS = ("ArgMax", "ArrayFeatureExtractor", "LabelEncoder")


class LabelOutput(NamedTuple):
    """An output with the model's own label of each row, and the model's classes in the order of its columns."""

    name: str
    classes: tuple[str, ...] | None = None  # None if the graph does not list them


def is_label(kind: str | None, name: str, operation: str) -> bool:
    """Whether an output with one value for each row is a label, by its type, its name and what made it."""
    if kind == "STRING":
        return True
    return kind in TYPES and bool(operation in _MAKERS or operation.endswith("Classifier") or _NAMES.search(name))


def listed_classes(node: NodeProto | None, graph: GraphProto) -> tuple[str, ...] | None:
    """The classes that the maker of a label chooses from, as text; None if it does not list them."""
    from onnx import numpy_helper

    if node is None:
        return None
    for attribute in node.attribute:
        if attribute.name.startswith("classlabels") and (attribute.strings or attribute.ints):
            names = [name.decode("utf-8", "replace") for name in attribute.strings]
            return tuple(names or map(str, attribute.ints))
    if node.op_type != "ArrayFeatureExtractor":
        return None
    chosen_from = next((values for values in graph.initializer if values.name == node.input[0]), None)
    return None if chosen_from is None else tuple(map(_text, numpy_helper.to_array(chosen_from).reshape(-1).tolist()))


def gives_positions(policy: Policy, label: LabelOutput, values: Array) -> bool:
    """Whether labels are positions among the model's own outputs, which say nothing about what each output means."""
    numbers = None if policy.class_names is None else codes_of(policy.class_names)
    return label.classes is None and values.dtype.kind not in "OSU" and numbers is None


def read_labels(policy: Policy, values: Array, classes: Sequence[str] | None) -> Ints | None:
    """The positions of the classes that labels mean, ``[n]``; None where nothing says which class is which.

    ``classes`` are those of the model in the order of its columns, where they are known. Labels that are not among the
    policy's classes are a ValueError.
    """
    values = values.reshape(-1)
    distinct, inverse = np.unique(values.astype(str) if values.dtype.kind in "OSU" else values, return_inverse=True)
    texts = [_text(value) for value in distinct.tolist()]
    positions = _positions(policy, list(dict.fromkeys([*texts, *(classes or ())])), classes)
    return None if positions is None else np.array([positions[text] for text in texts], np.int64)[inverse.reshape(-1)]


def _positions(policy: Policy, texts: Sequence[str], classes: Sequence[str] | None) -> Mapping[str, int] | None:
    """The position of each label among the policy's classes."""
    count, names = policy.num_classes, policy.class_names
    in_order = {str(k): k for k in range(count)}
    if names is None:
        if classes is not None and len(classes) == count and set(classes) != set(in_order):
            in_order = {name: k for k, name in enumerate(classes)}
        return in_order if set(texts) <= set(in_order) else None
    codes = {number: k for k, number in enumerate(map(number_of, names)) if number is not None}
    numbers = codes or dict(enumerate(range(count)))
    positions: dict[str, int] = {}
    for text in texts:
        name, number = same_class(text, names), number_of(text)
        if name:
            positions[text] = names.index(name)
        elif number in numbers:
            positions[text] = numbers[number]
        else:
            raise ValueError(
                f"the model's own labels are {listing(texts, 5)}, the policy's classes {listing(names, 5)}: "
                f"{text!r} must be one of these"
            )
    return positions


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
