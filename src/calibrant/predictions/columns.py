"""Finding the columns of predictions in a file: by our names, by one column per class, or as the caller maps them."""

from __future__ import annotations

import fnmatch
import functools
import glob
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibrant.base.checks import did_you_mean, listing, shorten
from calibrant.predictions.column_errors import ColumnErrors, column_options
from calibrant.predictions.column_names import per_class, take_listed_columns, take_matching_columns, take_own_columns
from calibrant.predictions.samples import Peek
from calibrant.predictions.schema import (
    ACTUAL,
    DATA,
    GROUP,
    IGNORED,
    OMITTABLE,
    PREDICTED,
    SINGLE,
    SPLIT,
    SPLIT_WORDS,
    WEIGHT,
    Names,
    Naming,
    Schema,
    as_name,
    check_class_names,
    check_schema,
    class_name,
    codes_of,
    customary,
    customary_positive,
    is_one_column,
    name_array,
    one_column_kind,
    two_shape,
)
from calibrant.predictions.values import NO_WEIGHT, SINGLE_LABEL

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
        if not self.is_single or self.holds == "confidence":
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
        one_column = self.is_single and is_one_column(self.holds, shape)
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
        if self.holds == "confidence":
            facts = {"split": facts.get("split")}
        elif any(name.endswith(str(IGNORED)) for name in (*(self.naming.names or ()), *self.sources(self.holds))):
            facts = {"ignore_index": None} | facts  # a class has this name: nothing is ignored by default
        schema = check_schema(self.holds, dtype, two_shape(shape) if one_column else shape, facts, f"{path}: ")
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
        elif name not in ("logits", "probabilities"):
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


class _Matcher(ColumnErrors):
    """The columns of one file, and what the caller says about them."""

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
        if isinstance(sources, str) and holds != "confidence":
            naming = name_array(None, self._requested_names(), self.path, positions=False)
        columns = {holds: sources}
        if holds == "confidence":
            columns["correct"] = self._correct()
            columns |= self._classes()
        for name in (*(() if holds == "confidence" else ("labels",)), "ids", "objectness", WEIGHT):
            column = self._single(name, SINGLE[name])
            if column is not None:
                columns[name] = column
            elif name == "labels" and not self.options.unlabelled:
                label_columns = [column for column in self.names if re.fullmatch(r"labels?[_.].+", column)]
                if len(label_columns) > 1:
                    raise ValueError(f"{self.path}: holds {listing(label_columns, 3)} as labels, but {SINGLE_LABEL}")
                raise self.lacking("no labels", name, {holds: sources})
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
                raise self.absent(str(column) if name in mapped else name.removeprefix(GROUP), "group")
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
            raise self.lacking(reason, "correct", {"confidence": confidence})
        labels = self._single("labels", SINGLE["labels"])
        if labels is None:
            confidence = self.options.columns.get("confidence", "confidence")
            known = {"confidence": confidence, PREDICTED: predicted}
            raise self.lacking("predicted, but no labels to compare with", "labels", known)
        return predicted, labels

    def _single(self, name: str, aliases: Sequence[str]) -> str | None:
        if name in self.options.omitted:
            return None
        if name in self.options.columns:
            column = str(self.options.columns[name])
            if column not in self.present:
                raise self.absent(column, name)
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
            if self.table and name != "confidence":
                forms += [(name, f"{name}{mark}*") for mark in "_." if per_class(self.names, name, mark)]
        if not forms and requested is None and self.table:
            forms = [("probabilities", f"{word}_*") for word in NUMBERED if len(per_class(self.names, word, "_")) > 1]
        if not forms and requested is None and (column := self._one_column()):
            return one_column_kind(column), column, Naming()
        if not forms:
            raise self.no_data(requested)
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
            raise self.one_of_two(columns[0])  # of what was predicted, or of the positive class
        return columns[0]

    def _mapped(self, name: str, pattern: Columns) -> tuple[Columns, Naming]:
        """The columns that the caller gives for the data: one, a list, or a pattern."""
        if isinstance(pattern, tuple):
            absent = next((column for column in pattern if column not in self.present), None)
            if absent is not None:
                raise self.absent(absent, name)
            if not self.table:
                raise ValueError(f"{self.path}: columns must give one array for {name}, got {len(pattern)} names")
            return take_listed_columns(pattern, name, self._requested_names(), self.path)
        if pattern in self.present:
            return pattern, Naming()
        if self.table and any(column.startswith(f"{pattern}.") for column in self.names):
            pattern = f"{glob.escape(pattern)}.*"  # the parts of an object
        columns = [column for column in self.names if fnmatch.fnmatchcase(column, pattern)]
        if not self.table or not glob.has_magic(pattern) or not columns:
            raise self.absent(pattern, name)
        return take_matching_columns(columns, pattern, name, self._requested_names(), self.path)


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
