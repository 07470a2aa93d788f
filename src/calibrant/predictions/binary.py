"""One column for two classes: which class it is of, and the two columns that it stands for.

A column of probabilities holds P(positive), one of logits the input of a sigmoid: the logits of the two classes are 0
and z, whose softmax is sigmoid(z). Which class is positive is said by the caller, by the name of the column, or by
custom where the classes are 0 and 1, False and True, or -1 and 1; else the file is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence

import numpy as np

from calibrant._arrays import Array
from calibrant._validation import did_you_mean, listing, shorten
from calibrant.predictions.labels import LabelDecoder, LabelValues, Names, codes_of, number_of
from calibrant.predictions.schema import is_whole
from calibrant.predictions.values import Location, check_numbers

#: Pairs whose second member is positive by custom, wherever one column is of two classes.
CUSTOMARY = (("0", "1"), ("false", "true"), ("-1", "1"))
_OWN = re.compile(r"(probabilities|logits)[._](.+)", re.DOTALL)
_OF_PROBABILITY = re.compile(r"(p|prob|proba|probability|probabilities|logit|logits)[^0-9a-z]", re.IGNORECASE)


def is_one_column(holds: str, shape: Sequence[int]) -> bool:
    """Whether data of this shape are one column for two classes: ``[N]``, ``[N, 1]`` or ``[N, 1, H, W]``."""
    return holds != "confidence" and (len(shape) == 1 or (len(shape) in (2, 4) and shape[1] == 1))


def two_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the two columns that one column stands for."""
    return (shape[0], 2, *shape[2:])


def two_columns(holds: str, title: str, positive: int, values: Array, location: Location) -> Array:
    """The numbers of both classes, ``[n, 2, ...]``, out of those of the positive one, ``[n]`` or ``[n, 1, ...]``."""
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    check_numbers(holds, title, values[:, 0] if values.ndim == 2 else values, location)
    column = values[:, None] if values.ndim == 1 else values
    # A probability may be beyond 1 by rounding, and its complement may not be below 0.
    other = np.maximum(1 - column, 0) if holds == "probabilities" else np.zeros_like(column)
    pair = (column, other) if positive == 0 else (other, column)
    return np.concatenate(pair, axis=1, dtype=values.dtype)


def widen(holds: str, values: Array, positive: int) -> Array:
    """`two_columns` of an array that is in no file."""
    return two_columns(holds, holds, positive, values, Location())


def as_name(positive: object) -> str:
    """The positive class as the caller gives it, a name, a number or a truth value, as text; empty if it is None."""
    return "" if positive is None else str(positive).strip()


def customary_positive(names: Names | None) -> int | None:
    """The position of the class that is positive by custom, of two; None where there is no custom."""
    lower = ["0", "1"] if names is None else [name.lower() for name in names]
    return next((lower.index(pair[1]) for pair in CUSTOMARY if sorted(pair) == sorted(lower)), None)


def find_positive(said: str, names: Names | None, classes: int | None, prefix: str) -> int | None:
    """The position of the positive class of ``classes``, as it was said or by custom; None where that is unknown."""
    if classes != 2:
        if said:
            kinds = "confidences alone" if classes is None else f"{classes} classes"
            raise ValueError(f"{prefix}positive is for two classes, got {said!r} with {kinds}")
        return None
    if not said:
        return customary_positive(names)
    return _position(said, names or ("0", "1"), prefix)


def read_two_classes(
    values: LabelValues, said: str, names: Names | None, column: str, ignore_index: int | None, prefix: str
) -> LabelDecoder:
    """How the labels beside one column are read, and which class the column is of.

    Args:
        values: the different labels; none where there are no labels.
        said: the positive class, if the caller said it.
        names: of the classes in order, if they are known.
        column: the name of the column, which may name its class.
        ignore_index: a label that is of no class.
        prefix: what an error starts with.
    """
    labels = sorted({*map(str, values.numbers), *values.texts} - {str(ignore_index)})
    if len(labels) > 2:
        raise ValueError(
            f"{prefix}one column is of two classes, and the labels are of {len(labels)}, {listing(labels, 5)}: give "
            "one column per class"
        )
    numeric = all(map(is_whole, labels)) and not (names is not None and set(labels) <= set(names))
    claimed = _class_in(column, names or labels or ("0", "1"))
    if said and claimed and _same_class(said, names or labels) not in ("", claimed):
        raise ValueError(
            f"{prefix}column {shorten(column)!r} names the class {shorten(claimed)!r}, and positive is given as "
            f"{shorten(said)!r}: they must be the same"
        )
    own = _OWN.fullmatch(column)
    if own and not claimed:
        claimed = own[2]
        if len(names or labels) == 2 or (number_of(claimed) is not None and not set(labels) <= {"0", "1"}):
            raise ValueError(
                f"{prefix}column {shorten(column)!r} names the class {shorten(claimed)!r}, which is not among the "
                f"classes {listing(names or labels, 2)}"
            )
    said = said or claimed
    is_positional = any(set(labels) <= set(pair) for pair in (("0", "1"), ("False", "True")))
    if labels and names is not None and not said and is_positional and not set(labels) <= set(names):
        return LabelDecoder(names, numeric=numeric, positive=1)  # the label 1 or True, which has a name
    classes = names or _both_classes(labels, said, prefix)
    position = _position(said, classes, prefix)
    codes = tuple(map(number_of, classes))
    if None in codes or names is not None:
        return LabelDecoder(classes, None if None in codes else codes_of(classes), numeric, positive=position)
    # Labels that are 0 and 1 need no names.
    return LabelDecoder(None if codes == (0, 1) else classes, codes_of(classes), numeric=True, positive=position)


def _both_classes(labels: Sequence[str], said: str, prefix: str) -> Names:
    """The classes in order: as custom has them, or the negative one first; an unknown negative one is "not yes"."""
    same = _same_class(said, labels)
    if said and not same and len(labels) == 2:
        raise _not_among(said, labels, "the labels", prefix)
    candidates = dict.fromkeys([*labels, same or said] if said else labels)
    custom = next((pair for pair in CUSTOMARY if {name.lower() for name in candidates} <= set(pair)), None)
    if custom is not None:
        spelling = {name.lower(): name for name in candidates}
        is_title = not candidates or any(map(str.istitle, candidates))
        return tuple(spelling.get(name, name.title() if is_title else name) for name in custom)
    if not labels:
        raise ValueError(f"{prefix}the class beside {shorten(said)!r} is not known: give the two class_names")
    others = [name for name in candidates if name != (same or said)]
    return (*(others or [f"not {said}"]), *([same or said] if said else []))


def _position(said: str, classes: Names, prefix: str) -> int:
    """The position of the positive class."""
    if said:
        same = _same_class(said, classes)
        if not same:
            raise _not_among(said, classes, "the classes", prefix)
        return classes.index(same)
    custom = customary_positive(classes)
    if custom is None:
        what = f"the classes are {listing(classes, 2)}" if len(classes) > 1 else f"all labels are {listing(classes)}"
        raise ValueError(
            f"{prefix}one column is of one class, and it is not said of which: {what}; add "
            f"{' or '.join(f'--positive {shlex.quote(shorten(name))}' for name in classes)} (in Python positive=...)"
        )
    return custom


def _same_class(said: str, options: Collection[str]) -> str:
    """Which of the classes is meant; where they are False and True, 0 and 1 mean them too, and case does not matter."""
    if said in options:
        return said
    by_case = {name.lower(): name for name in options}
    if set(by_case) <= {"false", "true"}:
        return by_case.get({"0": "false", "1": "true"}.get(said, said.lower()), "")
    return ""


def _not_among(said: str, options: Sequence[str], what: str, prefix: str) -> ValueError:
    guess = did_you_mean(said, options)
    return ValueError(f"{prefix}positive must be one of {what} {listing(options, 2)}, got {shorten(said)!r}{guess}")


def _class_in(column: str, options: Collection[str]) -> str:
    """The class that the name of a column ends in, as p_yes, P(yes) and yes do; none if it ends in none.

    A number is of a class after a word for probability alone: fold_0 says nothing about the class 0.
    """
    for name in sorted(filter(None, options), key=len, reverse=True):
        match = re.fullmatch(rf"(|.*[^0-9A-Za-z]){re.escape(name)}[)\]]?", column, re.DOTALL)
        if match and (number_of(name) is None or _OF_PROBABILITY.fullmatch(match[1])):
            return name
    return ""
