"""What the caller says about the columns of files, which of them are ours, and what files state besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calibrant._validation import did_you_mean, shorten
from calibrant.predictions.binary import as_name, customary_positive, is_one_column, two_shape
from calibrant.predictions.labels import Naming, codes_of, name_array
from calibrant.predictions.schema import DATA, GROUP, IGNORED, Schema, check_class_names, check_schema, class_name

SINGLE = {"correct": ("correct",), "labels": ("labels", "label"), "ids": ("ids", "id"), "objectness": ("objectness",)}
PREDICTED = "predicted"  # with confidence and labels it stands for correct
ACTUAL = "actual"  # the true class beside a predicted one: labels, where these are no positions

FACTS = ("class_names", "kind", "ignore_index", "split")
#: A fact of files alone: that labels are positions, where names that are numbers would leave it open.
LABELS_ARE, POSITIONS = "labels_are", "positions"
#: Another: which of two classes is the positive one, where custom does not say.
POSITIVE = "positive_class"
FILE_FACTS = (*FACTS, LABELS_ARE, POSITIVE)
Columns = str | tuple[str, ...]


@dataclass(frozen=True)
class OpenOptions:
    """What the caller of `Predictions.open` said about the files."""

    columns: dict[str, Columns] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    unlabelled: bool = False  # whether labels may be missing
    positive: str = ""  # the positive class of two
    listings: dict[str, list[str]] = field(default_factory=dict)  # folders that were listed during this call


@dataclass(frozen=True)
class ColumnMap:
    """Our names to the file's: one column, or one per class; for correct perhaps predicted and labels.

    ``positive`` is the positive class as the caller or the file says it; ``one_column`` is whether the data are one
    column for two classes.
    """

    holds: str
    columns: dict[str, Columns]
    naming: Naming
    positive: str = ""
    one_column: bool = False

    @property
    def is_single(self) -> bool:
        """Whether the data are in one column."""
        return isinstance(self.columns[self.holds], str)

    @property
    def compared(self) -> list[str]:
        """The columns predicted and labels if they stand for correct, else none."""
        return [] if isinstance(self.columns.get("correct", ""), str) else self.sources("correct")

    def title(self, name: str) -> str:
        """What an error calls a column: our name, and the file's where it differs."""
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
        said = self.positive or stated_positive
        if not self.is_single or self.holds == "confidence":
            return replace(self, positive=said)
        both = (stated, options.facts.get("class_names"))
        stated, requested = (None if names is None else check_class_names(names, f"{path}: ") for names in both)
        naming = name_array(stated, requested, path, positions=labels_are == POSITIONS)
        return replace(self, naming=naming, positive=said)

    def widened(self, shape: Sequence[int]) -> tuple[ColumnMap, tuple[int, ...]]:
        """This, and the shape of all the data, with both classes where the data are one column of two."""
        if not self.is_single or not is_one_column(self.holds, shape):
            return self, tuple(shape)
        return replace(self, one_column=True), two_shape(shape)

    def schema(self, dtype: np.dtype[Any], shape: Sequence[int], facts: dict[str, Any], path: str) -> Schema:
        """What the file holds, checked; ``shape`` is that of all the data."""
        facts = facts | {"class_names": self.naming.names}
        if self.holds == "confidence":
            facts = {"split": facts.get("split")}
        elif any(name.endswith(str(IGNORED)) for name in (*(self.naming.names or ()), *self.sources(self.holds))):
            facts = {"ignore_index": None} | facts  # a class is called so: only what is said is ignored
        return check_schema(self.holds, dtype, shape, **facts, prefix=f"{path}: ")


def check_options(
    columns: Mapping[str, str | Sequence[str]] | None,
    groups: Sequence[str] | None,
    facts: dict[str, Any],
    *,
    unlabelled: bool = False,
) -> OpenOptions:
    """Check what the caller said, before any file is opened."""
    mapped: dict[str, Columns] = {}
    ours = {alias: name for name, aliases in SINGLE.items() for alias in aliases}
    ours |= {name: name for name in (*DATA, PREDICTED)}
    for key, value in (columns or {}).items():
        name = key if key.startswith(GROUP) and key != GROUP else ours.get(key, "")
        if not name:
            expected = ", ".join((*DATA, *SINGLE, PREDICTED, GROUP + "NAME"))
            actual = f"{key!r}{did_you_mean(key, ours)}"
            raise ValueError(f"columns maps our names to the file's, expected {expected}, got {actual}")
        if name in mapped:
            raise ValueError(f"columns must give {name} once, got {name} and {key}")
        if isinstance(value, str):
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
    return OpenOptions(mapped, tuple(groups or ()), facts, unlabelled, positive)


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
