"""Which columns of a file mean what, and the facts of predictions that are known before any value is read.

Columns ``p_1, p_2, p_3`` name the classes 1, 2 and 3: label 1 is the first of them, not the second. The names of
columns, and names that the caller gives, therefore decide about labels that are numbers. Names that are stored beside
an array do not by themselves: such labels are positions by convention, and where they may be either, all labels of all
files decide, or the file is refused. `Naming` holds the names; `labels` has the decision.

Columns have other customary names: ``y_true`` or ``target`` are taken for labels, and ``prob`` for a probability. A
``score`` may be a probability, a logit or the confidence of the predicted class: that is never guessed. Columns of one
class each are numbered or named, ``logits_0`` or ``p_cat``, and are put into the order of the class names that the
caller gives.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import glob
import itertools
import json
import math
import operator
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.base.arrays import check_texts
from calibrant.base.checks import check_choice, did_you_mean, listing, shorten
from calibrant.predictions.data import DATA, SINGLE_LABEL, Data

if TYPE_CHECKING:
    from calibrant.predictions.hints import ColumnErrors, Peek

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
MOST_GROUPS = 1000
MOST_COLUMNS = 200_000
#: Prefixes of numbered columns, one per class, besides our own names.
NUMBERED = ("prob", "proba", "probability")
FACTS = ("class_names", "kind", "ignore_index", SPLIT)
#: A fact of files alone: labels are positions, which class names that are numbers would leave unclear.
LABELS_ARE, POSITIONS = "labels_are", "positions"
#: Another: the positive class of two, if not the conventional one.
POSITIVE = "positive_class"
FILE_FACTS = (*FACTS, LABELS_ARE, POSITIVE)
Columns = str | tuple[str, ...]
_DIGITS = re.compile("[0-9]{1,9}")
NO_WEIGHT = "--column weight= (in Python columns={'weight': None})"
LONGEST_OPTIONS = 200  # characters


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

    data: type[Data]
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    kind: str = "classification"
    class_names: tuple[str, ...] | None = None
    ignore_index: int | None = IGNORED
    split: str | None = None
    positive: int | None = None

    @property
    def holds(self) -> str:
        """The name of the column of the data."""
        return self.data.name

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


def two_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the two columns that one column stands for."""
    return (shape[0], 2, *shape[2:])


def check_schema(
    data: type[Data], dtype: np.dtype[Any], shape: Sequence[int], facts: Mapping[str, Any], prefix: str = ""
) -> Schema:
    """Check everything but the values; ``shape`` is that of all the data, errors start with ``prefix``.

    ``facts`` has kind, class names, ignore index and split, as far as they are given.
    """
    assert facts.keys() <= {"kind", "class_names", "ignore_index", "split"}, f"unknown facts in {sorted(facts)}"
    for name, options in (("kind", tuple(KINDS)), ("split", (None, *SPLITS))):
        if name in facts:
            check_choice(f"{prefix}{name}", facts[name], options)
    kind, class_names = facts.get("kind", "classification"), facts.get("class_names")
    form = KINDS[kind] if data.has_classes else "[N]"
    turned = kind == "tokens" and len(shape) == 3
    few = len(shape) > 1 and shape[-1 if turned else 1] < 2
    if dtype.kind != "f" or dtype.itemsize > 8 or len(shape) != form.count(",") + 1 or 0 in shape or few:
        size = "T >= 1 and V >= 2" if kind == "tokens" else "N >= 1 and C >= 2" if data.has_classes else "N >= 1"
        hints = {4: '; images take kind="segmentation"', 3: '; tokens [B, T, V] with labels [B, T] take kind="tokens"'}
        hint = hints.get(len(shape), "") if kind == "classification" else ""
        raise ValueError(
            f"{prefix}{data.name} must be floating point {form} with {size} (float16, float32 or float64), "
            f"got {dtype} {list(shape)}{hint}"
        )
    sample = tuple(int(n) for n in (shape[:0:-1] if turned else shape[1:]))
    if sample and sample[0] > MOST_CLASSES:
        raise ValueError(f"{prefix}{data.name} must be of at most {MOST_CLASSES:,} classes, got {sample[0]:,}")
    if class_names is not None:
        class_names = check_class_names(class_names, prefix)
        if len(class_names) != sample[0]:
            raise ValueError(f"{prefix}class_names must be {sample[0]}, one per class, got {len(class_names)}")
    ignore_index = facts.get("ignore_index", IGNORED) if data.has_classes else None
    if ignore_index is not None:
        ignore_index = _check_label(f"{prefix}ignore_index", ignore_index)
    return Schema(data, dtype.newbyteorder("="), sample, kind, class_names, ignore_index, facts.get("split"))


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


# ---- what the caller says -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class OpenOptions:
    """The options of a caller of `Predictions.open`."""

    columns: dict[str, Columns] = field(default_factory=dict)
    omitted: tuple[str, ...] = ()  # columns of ours that the file may have, and that are left out
    groups: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    unlabelled: bool = False  # whether labels may be missing
    positive: str = ""  # the positive class of two
    listings: dict[str, list[str]] = field(default_factory=dict)  # folders that were listed during this call


@dataclass(frozen=True)
class ColumnMap:
    """Our column names mapped to the file's: one column, or one per class; for correct perhaps predicted and labels.

    ``positive`` is the positive class as the caller or the file says it; ``one_column`` is whether the data are one
    column for two classes, ``has_split`` whether the file says what its rows are used for, in a column or as a fact.
    """

    holds: str
    columns: dict[str, Columns]
    naming: Naming
    positive: str = ""
    one_column: bool = False
    has_split: bool = False

    @property
    def data(self) -> type[Data]:
        """What the data are."""
        return DATA[self.holds]

    @property
    def is_single(self) -> bool:
        """Whether the data are in one column."""
        return isinstance(self.columns[self.holds], str)

    @property
    def compared(self) -> list[str]:
        """The columns predicted and labels if they stand for correct, else none."""
        return [] if isinstance(self.columns.get("correct", ""), str) else self.sources("correct")

    def title(self, name: str) -> str:
        """The name of a column in errors: ours, and the file's if it differs."""
        column = self.columns[name]
        return name if column == name or not isinstance(column, str) else f"{name} (column {shorten(column)!r})"

    def sources(self, name: str) -> list[str]:
        """The file's columns behind one of ours."""
        columns = self.columns[name]
        return [columns] if isinstance(columns, str) else list(columns)

    def with_names(self, facts: dict[str, Any], options: OpenOptions, path: str) -> ColumnMap:
        """With the class names that a file states, taken out of its ``facts``, if the data are one array of classes."""
        stated, labels_are = facts.pop("class_names", None), facts.pop(LABELS_ARE, None)
        if labels_are not in (None, POSITIONS):
            actual = shorten(repr(labels_are))
            raise ValueError(f"{path}: {LABELS_ARE} must be {POSITIONS!r} or not be there, got {actual}")
        stated_positive = as_name(facts.pop(POSITIVE, None))
        positive = self.positive or stated_positive
        if not self.is_single or not self.data.has_classes:
            return replace(self, positive=positive)
        pair = (stated, options.facts.get("class_names"))
        stated, requested = (None if names is None else check_class_names(names, f"{path}: ") for names in pair)
        naming = name_array(stated, requested, path, positions=labels_are == POSITIONS)
        return replace(self, naming=naming, positive=positive)

    def with_schema(
        self, dtype: np.dtype[Any], shape: Sequence[int], stated: dict[str, Any], options: OpenOptions, path: str
    ) -> tuple[ColumnMap, Schema]:
        """The map, with what is known of the data, and the schema.

        ``shape`` is that of all the data, ``stated`` are the facts that the file states.
        """
        one_column = self.is_single and self.data.is_one_column(shape)
        split, given = stated.get(SPLIT), options.facts.get(SPLIT)
        split = SPLIT_WORDS.get(str(split).lower(), split)
        has_column = SPLIT in self.columns  # whose values are not known yet
        if not has_column and None not in (split, given) and split != given:
            actual = f"{shorten(str(split))!r}, and {shorten(str(given))!r} was asked for"
            raise ValueError(f"{path}: the file says that its samples are of the split {actual}")
        facts = (
            stated
            | options.facts
            | {"class_names": self.naming.names, SPLIT: None if has_column else split if given is None else given}
        )
        if not self.data.has_classes:
            facts = {"split": facts.get("split")}
        elif any(name.endswith(str(IGNORED)) for name in (*(self.naming.names or ()), *self.sources(self.holds))):
            facts = {"ignore_index": None} | facts  # a class has this name: nothing is ignored by default
        schema = check_schema(self.data, dtype, two_shape(shape) if one_column else shape, facts, f"{path}: ")
        return replace(self, one_column=one_column, has_split=has_column or split is not None), schema


def check_options(
    columns: Mapping[str, str | Sequence[str] | None] | None,
    groups: Sequence[str] | None,
    facts: dict[str, Any],
    *,
    unlabelled: bool,
) -> OpenOptions:
    """Check what the caller says, before any file is opened."""
    mapped: dict[str, Columns] = {}
    omitted = []
    ours = {alias: name for name, aliases in SINGLE.items() for alias in aliases}
    ours |= {name: name for name in (*DATA, PREDICTED)}
    for key, value in (columns or {}).items():
        name = key if key.startswith(GROUP) and key != GROUP else ours.get(key, "")
        if not name:
            expected = ", ".join((*DATA, *SINGLE, PREDICTED, GROUP + "NAME"))
            actual = f"{key!r}{did_you_mean(key, ours)}"
            raise ValueError(f"columns maps our names to the file's, expected {expected}, got {actual}")
        if name in mapped or name in omitted:
            raise ValueError(f"columns must give {name} once, got {name} and {key}")
        if value is None and name in OMITTABLE:
            omitted.append(name)
        elif isinstance(value, str):
            mapped[name] = value
        elif not isinstance(value, Sequence) or not all(isinstance(column, str) for column in value):
            raise ValueError(f"columns must give names of columns, got {shorten(repr(value))} for {name}")
        elif name not in DATA or not DATA[name].has_classes:
            raise ValueError(f"columns must give one name for {name}, got {list(value)}")
        else:
            mapped[name] = tuple(value)
    data = [name for name in mapped if name in DATA]
    if len(data) > 1:
        raise ValueError(f"columns must choose one of {', '.join(DATA)}, got {', '.join(data)}")
    if isinstance(groups, str):
        raise ValueError(f"groups must be a list of columns, got {groups!r}")
    facts = {name: fact for name, fact in facts.items() if fact is not None}
    positive = as_name(facts.pop("positive", None))
    return OpenOptions(mapped, tuple(omitted), tuple(groups or ()), facts, unlabelled, positive)


def facts_of(schema: Schema) -> dict[str, Any]:
    """What files state besides their columns, where it is not the default."""
    facts = {name: getattr(schema, name) for name in FACTS}
    if schema.kind == "classification":
        del facts["kind"]
    if schema.ignore_index == IGNORED:
        del facts["ignore_index"]
    if schema.class_names is not None and codes_of(schema.class_names) is not None:
        facts[LABELS_ARE] = POSITIONS
    if schema.positive is not None and schema.positive != customary_positive(schema.class_names):
        facts[POSITIVE] = class_name(schema.positive, schema.class_names)
    return {name: value for name, value in facts.items() if value is not None}


# ---- finding columns ------------------------------------------------------------------------------------------------
def match_columns(
    names: Sequence[str],
    options: OpenOptions,
    path: str,
    *,
    table: bool,
    data: str | None = None,
    peek: Peek | None = None,
) -> ColumnMap:
    """Find our columns among the ``names`` of a file; in a ``table`` the data may be one column per class.

    ``data`` is what the file holds, where its name already says so; ``peek`` gives the first rows, for errors.
    """
    if len(names) > MOST_COLUMNS:
        advice = "; save the classes as one list per row, or as an array (.npz)" if table else ""
        raise ValueError(f"{path}: a file may have at most {MOST_COLUMNS:,} columns, got {len(names):,}{advice}")
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise ValueError(f"{path}: column names must differ, got {shorten(name)!r} {count} times")
    return _Matcher(names, options, path, table, peek).match(data)


@dataclass(frozen=True)
class _Matcher:
    """The columns of one file, and what the caller says about them."""

    names: Sequence[str]
    options: OpenOptions
    path: str
    table: bool  # whether the data may be one column per class
    peek: Peek | None  # gives the first rows, for errors

    @property
    def errors(self) -> ColumnErrors:
        """Errors about these columns, with what their values say."""
        from calibrant.predictions.hints import ColumnErrors  # here: errors alone need it

        return ColumnErrors(self.names, self.options, self.path, self.table, self.peek)

    @functools.cached_property
    def present(self) -> set[str]:
        return set(self.names)

    def _requested_names(self) -> Names | None:
        """The class names that the caller gives."""
        names = self.options.facts.get("class_names")
        return None if names is None else check_class_names(names, f"{self.path}: ")

    def match(self, data: str | None) -> ColumnMap:
        holds, sources, naming = self._data(data)
        if not isinstance(sources, str) and len(sources) == 1:
            sources, naming = sources[0], Naming()
        has_classes = DATA[holds].has_classes
        if isinstance(sources, str) and has_classes:
            naming = name_array(None, self._requested_names(), self.path, positions=False)
        columns = {holds: sources}
        if not has_classes:
            columns["correct"] = self._correct()
            columns |= self._classes()
        for name in (*(("labels",) if has_classes else ()), "ids", "objectness", WEIGHT):
            column = self._single(name, SINGLE[name])
            if column is not None:
                columns[name] = column
            elif name == "labels" and not self.options.unlabelled:
                label_columns = [column for column in self.names if re.fullmatch(r"labels?[_.].+", column)]
                if len(label_columns) > 1:
                    raise ValueError(f"{self.path}: holds {listing(label_columns, 3)} as labels, but {SINGLE_LABEL}")
                raise self.errors.lacking("no labels", name, {holds: sources})
        columns |= self._groups()
        self._check_weight(columns)
        if (split := self._split_column()) is not None:
            columns[SPLIT] = split
        if not isinstance(sources, str):
            data_columns = set(sources)
            for name, source in columns.items():
                if name != holds and source in data_columns:
                    title = shorten(str(source))
                    raise ValueError(f"{self.path}: column {title!r} is taken both for {holds} and for {name}")
        return ColumnMap(holds, columns, naming, self.options.positive)

    def _split_column(self) -> str | None:
        """The column that says what rows are used for; one that the caller takes as a group alone is not that."""
        names = [name for name in self.names if name == SPLIT or (self.table and name.lower() == SPLIT)]
        is_asked = SPLIT in self.options.columns or SPLIT in self.options.facts
        return self._single(SPLIT, [name for name in names if is_asked or name not in self.options.groups])

    def _classes(self) -> dict[str, Columns]:
        """The predicted and the true classes beside confidences, for tables by class and the list of errors."""
        predicted = self._single(PREDICTED, (PREDICTED,))
        if predicted is None:
            return {}
        actual = self._single("labels", (*SINGLE["labels"], ACTUAL))
        classes: dict[str, Columns] = {PREDICTED: predicted}
        return classes if actual is None else classes | {ACTUAL: actual}

    def _groups(self) -> dict[str, Columns]:
        mapped = self.options.columns
        groups: dict[str, Columns] = {name: name for name in self.names if name.startswith(GROUP) and name != GROUP}
        groups |= {name: column for name, column in mapped.items() if name.startswith(GROUP)}
        groups |= {GROUP + name: name if name in self.present else GROUP + name for name in self.options.groups}
        if len(groups) > MOST_GROUPS:
            expected = f"there may be at most {MOST_GROUPS:,} groups"
            raise ValueError(f"{self.path}: {expected}, got more columns that start with {GROUP}")
        for name, column in groups.items():
            if column not in self.present:
                raise self.errors.absent(str(column) if name in mapped else name.removeprefix(GROUP), "group")
        return groups

    def _check_weight(self, columns: Mapping[str, Columns]) -> None:
        """Refuse a column that is taken for weights by its name and asked for as a group."""
        if WEIGHT in columns and columns[WEIGHT] in [columns[name] for name in columns if name.startswith(GROUP)]:
            raise ValueError(
                f"{self.path}: the column {shorten(str(columns[WEIGHT]))!r} holds importance weights and is no group: "
                f"to take it as a group, say that it holds no weights with {NO_WEIGHT}"
            )

    def _correct(self) -> Columns:
        """The column correct, or those whose agreement it is."""
        if "correct" in self.options.columns or PREDICTED not in self.options.columns:
            correct = self._single("correct", SINGLE["correct"])
            if correct is not None:
                return correct
        predicted = self._single(PREDICTED, (PREDICTED,))
        if predicted is None:
            reason = "confidence, but nothing that says whether it was right: correct, or predicted beside labels"
            confidence = self.options.columns.get("confidence", "confidence")
            raise self.errors.lacking(reason, "correct", {"confidence": confidence})
        labels = self._single("labels", SINGLE["labels"])
        if labels is None:
            confidence = self.options.columns.get("confidence", "confidence")
            known = {"confidence": confidence, PREDICTED: predicted}
            raise self.errors.lacking("predicted, but no labels to compare with", "labels", known)
        return predicted, labels

    def _single(self, name: str, aliases: Sequence[str]) -> str | None:
        if name in self.options.omitted:
            return None
        if name in self.options.columns:
            column = str(self.options.columns[name])
            if column not in self.present:
                raise self.errors.absent(column, name)
            return column
        mapped = {str(column) for column in self.options.columns.values()}
        aliases = [alias for alias in aliases if alias in self.present and alias not in mapped]
        if name in ("labels", PREDICTED, "correct"):
            # A column "label" may be the predicted one, if another column states the truth.
            aliases = list(dict.fromkeys([*aliases, *(n for n in customary(name, self.names) if n not in mapped)]))
        if len(aliases) > 1:
            choices = " or ".join(column_options({name: alias}) for alias in aliases[:3])
            raise ValueError(f"{self.path}: holds {' and '.join(map(shorten, aliases[:3]))}: choose with {choices}")
        return aliases[0] if aliases else None

    def _data(self, data: str | None) -> tuple[str, Columns, Naming]:
        """What the file holds, its column or columns, and the class names in them."""
        requested = next((name for name in self.options.columns if name in DATA), data)
        if requested is not None and self.options.columns.get(requested, requested) != requested:
            return requested, *self._mapped(requested, self.options.columns[requested])
        forms = []
        for name in DATA if requested is None else (requested,):
            forms += [(name, column) for column in self.names if column.lower() == name]
            if self.table and DATA[name].has_classes:
                forms += [(name, f"{name}{mark}*") for mark in "_." if per_class(self.names, name, mark)]
        if not forms and requested is None and self.table:
            forms = [("probabilities", f"{word}_*") for word in NUMBERED if len(per_class(self.names, word, "_")) > 1]
        if not forms and requested is None and (column := self._one_column()):
            return one_column_kind(column), column, Naming()
        if not forms:
            raise self.errors.no_data(requested)
        if len(forms) > 1:
            choices = " or ".join(column_options({name: form}) for name, form in forms[:2])
            raise ValueError(f"{self.path}: holds {forms[0][1]} and {forms[1][1]}: choose with {choices}")
        name, form = forms[0]
        if not form.endswith("*"):
            return name, form, Naming()
        return name, *take_own_columns(self.names, form[:-2], form[-2], name, self._requested_names(), self.path)

    def _one_column(self) -> str | None:
        """A single column for two classes, named as a probability or a logit."""
        columns = [name for name in self.names if one_column_kind(name)]
        if len(columns) != 1:
            return None
        if any(customary(role, self.names) or role in self.options.columns for role in (PREDICTED, "correct")):
            raise self.errors.one_of_two(columns[0])  # of what was predicted, or of the positive class
        return columns[0]

    def _mapped(self, name: str, pattern: Columns) -> tuple[Columns, Naming]:
        """The columns that the caller gives for the data: one, a list, or a pattern."""
        if isinstance(pattern, tuple):
            absent = next((column for column in pattern if column not in self.present), None)
            if absent is not None:
                raise self.errors.absent(absent, name)
            if not self.table:
                raise ValueError(f"{self.path}: columns must give one array for {name}, got {len(pattern)} names")
            return take_listed_columns(pattern, name, self._requested_names(), self.path)
        if pattern in self.present:
            return pattern, Naming()
        if self.table and any(column.startswith(f"{pattern}.") for column in self.names):
            pattern = f"{glob.escape(pattern)}.*"  # the parts of an object
        columns = [column for column in self.names if fnmatch.fnmatchcase(column, pattern)]
        if not self.table or not glob.has_magic(pattern) or not columns:
            raise self.errors.absent(pattern, name)
        return take_matching_columns(columns, pattern, name, self._requested_names(), self.path)


def column_options(columns: Mapping[str, str | Sequence[str]], positive: str = "") -> str:
    """The options, for the command line and for Python, that map columns; names too long to repeat are left out."""
    texts = {role: value if isinstance(value, str) else ",".join(value) for role, value in columns.items()}
    words = " ".join(f"--column {shlex.quote(f'{role}={text}')}" for role, text in texts.items())
    if len(words) + len(positive) > LONGEST_OPTIONS or not (words + positive).isprintable():
        return " ".join(f"--column {role}=NAME" for role in columns)
    arguments = {role: value if isinstance(value, str) else list(value) for role, value in columns.items()}
    python = f"columns={json.dumps(arguments, ensure_ascii=False)}"
    if positive:
        words += f" --positive {shlex.quote(positive)}"
        python += f", positive={json.dumps(positive, ensure_ascii=False)}"
    return f"{words} (in Python {python})"


# ---- one column per class -------------------------------------------------------------------------------------------
def per_class(names: Sequence[str], word: str, mark: str) -> list[str]:
    """Columns such as logits_0 (numbers only, so that logits_file is none) or logits.cat."""
    pattern = re.compile(re.escape(word) + (r"_[0-9]{1,9}" if mark == "_" else r"\..+"), re.DOTALL)
    return [column for column in names if pattern.fullmatch(column)]


def take_own_columns(
    names: Sequence[str], word: str, mark: str, holds: str, requested: Names | None, path: str
) -> tuple[Names, Naming]:
    """Columns named like ours, ``logits_0`` or ``logits.cat``: in order, with the class names that they imply.

    ``requested`` are the class names that the caller gives, if any, as for the functions that follow.
    """
    columns = per_class(names, word, mark)
    present = set(columns)
    unnumbered = [column for column in names if column.startswith(word + mark) and column not in present]
    if len(columns) == 1 and unnumbered:
        raise ValueError(
            f"{path}: holds {shorten(columns[0])} and {listing(unnumbered, 3)}, expected one column per class: "
            f"say which it is with {column_options({holds: columns[0]})}, or list all of them"
        )
    ordered, parts = _sort_columns(columns, [column[len(word) + 1 :] for column in columns], path)
    naming = Naming(parts, (parts,), codes_of_columns(parts))
    if mark == "_" and are_positions(parts):
        naming = Naming()
    return _rename(naming, ordered, requested, path, holds)


def take_matching_columns(
    columns: Sequence[str], pattern: str, holds: str, requested: Names | None, path: str
) -> tuple[Names, Naming]:
    """Columns that the caller chose by a pattern; the classes are named by what its wildcards match."""
    before = re.split(r"[*?\[]", pattern)[0].rstrip("0123456789")  # what begins or ends a number is part of it
    after = re.split(r"[*?\]]", pattern)[-1].lstrip("0123456789")
    ordered, parts = _sort_columns(columns, [c[len(before) : len(c) - len(after)] for c in columns], path)
    names = None if are_unsigned(parts) and are_positions(parts) else parts
    naming = Naming(names, _spellings(ordered, parts), codes_of_columns(parts))
    return _rename(naming, ordered, requested, path, holds)


def take_listed_columns(columns: Names, holds: str, requested: Names | None, path: str) -> tuple[Names, Naming]:
    """Columns that the caller listed."""
    repeated, count = Counter(columns).most_common(1)[0] if columns else ("", 0)
    if count != 1:
        actual = f"{shorten(repeated)!r} {count} times" if columns else "none"
        raise ValueError(f"{path}: columns must list different columns for {holds}, got {actual}")
    names, codes = _without_shared_words(columns), codes_of_columns(columns)
    bare = _without_ends(columns, _up_to_number)
    if codes is not None and all(number_of(part) is not None for part in bare) and names == columns:
        names = bare
    naming = Naming(names, _spellings(columns, names), codes)
    return _rename(naming, columns, requested, path, holds, listed=True)


def are_unsigned(parts: Sequence[str]) -> bool:
    """Whether all parts are numbers without a sign, so that they have an order."""
    return all(_DIGITS.fullmatch(part) for part in parts)


def _sort_columns(columns: Sequence[str], parts: Sequence[str], path: str) -> tuple[Names, Names]:
    """Columns and the parts of their names that differ, sorted by number if all are numbers."""
    if not are_unsigned(parts):
        return tuple(columns), tuple(parts)
    rows = sorted(zip(map(int, parts), columns, parts, strict=True))
    for (number, column, _), (next_number, next_column, _) in itertools.pairwise(rows):
        if number == next_number:
            names = f"{shorten(column)} and {shorten(next_column)}"
            raise ValueError(f"{path}: columns of classes must have different numbers, got {names}")
    return tuple(column for _, column, _ in rows), tuple(part for _, _, part in rows)


def codes_of_columns(names: Names) -> Codes | None:
    """The numbers in names that differ only by a number; or the numbers among names of any kind."""
    bare = _without_ends(names, _up_to_number)
    return codes_of(bare if all(number_of(part) is not None for part in bare) else names)


def _without_shared_words(columns: Names) -> Names:
    """p_cat, p_car as cat, car: without their shared words; unchanged if only numbers or nothing would be left."""
    parts = _without_ends(columns, lambda shared: len(shared) - len(re.split(r"_|[^\w\s]", shared)[-1]))
    return parts if all(parts) and not all(part.isdecimal() for part in parts) else columns


def _up_to_number(shared: str) -> int:
    """The length of a shared prefix without trailing digits, which may belong to a number."""
    start = shared.rstrip("0123456789")
    if start.endswith(".") and start[-2:-1].isdigit():
        start = start[:-1].rstrip("0123456789")
    return len(start)


def _without_ends(columns: Names, length: Callable[[str], int]) -> Names:
    """Names without the prefix and the suffix that they share; ``length`` says how much of each is removed."""
    for _ in "start", "end":  # the suffix is the prefix of the reversed names; the second round reverses them back
        low, high = min(columns), max(columns)
        shared = low[: next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]
        columns = tuple(column[length(shared) :][::-1] for column in columns)
    return columns


def _spellings(columns: Names, names: Names) -> tuple[Names, ...]:
    """Spellings of the classes in labels: names of columns, given names, and names without shared parts."""
    options = (columns, names, _without_shared_words(columns), _without_ends(columns, _up_to_number))
    return tuple(dict.fromkeys(option for option in options if all(option) and len(set(option)) == len(columns)))


def _rename(
    naming: Naming, columns: Names, requested: Names | None, path: str, holds: str, *, listed: bool = False
) -> tuple[Names, Naming]:
    """Match names that the caller gives with columns: by name, or else by number or in the order listed."""
    if requested is None:
        return columns, naming
    if len(requested) != len(columns):
        return columns, Naming(requested)  # refused by the check of the schema
    numbers = [number_of(part) for part in _without_ends(columns, _up_to_number)]
    has_numbers = all(number is not None for number in numbers)
    spellings = (*naming.spellings, *_spellings(columns, naming.names or columns), tuple(map(str, numbers)))
    matching = next((spelling for spelling in spellings if set(spelling) == set(requested)), None)
    if matching is not None:
        position = {name: i for i, name in enumerate(matching)}
        ordered = tuple(columns[position[name]] for name in requested)
        codes = codes_of_columns(ordered)
        unclear = "" if ordered == columns or codes else _unclear_reason(columns, requested)
        return ordered, Naming(requested, (requested,), codes, unclear=unclear)
    if listed:
        clear = naming.codes is None or any(number_of(name) is not None for name in requested) or not has_numbers
        unclear = "" if clear else _unclear_reason(columns, requested)
        return columns, Naming(requested, (requested,), codes_of(requested), unclear=unclear)
    if has_numbers and numbers == list(range(len(columns))) and codes_of(requested) is None:
        return columns, Naming(requested, (requested,))
    raise ValueError(
        f"{path}: class names must be those of the columns, {listing(columns, 5)}, got {listing(requested, 5)}: "
        f"list the columns in the same order to say which is which, --column {holds}=COLUMN,COLUMN,..."
    )


def _unclear_reason(columns: Names, requested: Names) -> str:
    return (
        f"must be text, as numbers may be those of the columns, {listing(columns, 5)}, or of the class names, "
        f"{listing(requested, 5)} (write the labels as text to say which)"
    )
