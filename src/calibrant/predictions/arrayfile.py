"""Files of named arrays: which arrays are ours, what the file says about them, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant._arrays import Array
from calibrant.predictions.about import About, about, checked_names
from calibrant.predictions.columns import Layout, Request, layout
from calibrant.predictions.hints import of_shape, short
from calibrant.predictions.labels import LabelCode, LabelValues, Naming, codes_of
from calibrant.predictions.members import Coded, Compared, Deflated, Member, Stored, values_of
from calibrant.predictions.naming import of_array
from calibrant.predictions.shards import reading
from calibrant.predictions.store import BATCH, Store, dtypes
from calibrant.predictions.text import check_characters
from calibrant.predictions.where import counted

FACTS = ("class_names", "kind", "ignore_index", "split")
#: A fact of files alone: that labels are positions, where names that are numbers would leave it open.
LABELS_ARE = "labels_are"
POSITIONS = "positions"
MOST_ARRAYS = 10_000
FACT_BYTES = 1 << 28


class ArraySource:
    """A file of named arrays, or a set of files with one array each."""

    def __init__(self, path: str, members: dict[str, Member], plan: Layout, known: About, naming: Naming):
        self.path, self.about, self.plan, self.naming = path, known, plan, naming
        self.names = tuple(members)
        self.members = members
        self.count = self.members[known.holds].shape[0]
        for name, member in self.members.items():
            expected = (self.count, *known.shape_of(name))
            if member.shape != expected:
                hint = of_shape(member.shape, expected)
                raise ValueError(f"{path}: {plan.title(name)} must be {list(expected)}, got {list(member.shape)}{hint}")

    def title(self, name: str) -> str:
        """What an error calls a column."""
        return self.plan.title(name)

    def file_of(self, name: str) -> str:
        """The file a column is in."""
        return self.members[name].path

    def rows(self) -> int:
        """The number of samples."""
        return self.count

    def known_rows(self) -> int | None:
        """The number of samples, always known."""
        return self.count

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """Runs of some columns, as the file has them."""
        rows = min(rows, self.count)
        with reading(self.path):
            for blocks in zip(*(self.members[name].blocks(rows) for name in names), strict=True):
                yield dict(zip(names, blocks, strict=True))

    def place(self, row: int) -> str:
        """What errors call a row."""
        return counted(row)

    def mapped(self, name: str) -> Array | None:
        """A whole column as a map of the file, if that is possible."""
        return self.members[name].mapped()

    def labels_matter(self) -> bool:
        """Whether labels must be seen to know how they are read: text, or numbers that may be names."""
        if "labels" not in self.members:
            return False
        text = self.members["labels"].dtype.kind == "U"
        return text or (self.naming.codes is not None and not self.naming.certain)

    def label_values(self) -> LabelValues:
        """The different labels, in a pass over them."""
        return self._values(self.members["labels"])

    def compared_values(self) -> tuple[LabelValues, LabelValues] | None:
        """The different values of predicted and labels, if they are text that is compared."""
        member = self.members.get("correct")
        if not isinstance(member, Compared) or {member.predicted.dtype.kind, member.labels.dtype.kind} != {"U"}:
            return None
        return self._values(member.predicted), self._values(member.labels)

    def _values(self, member: Member) -> LabelValues:
        values = LabelValues()
        with reading(self.path):
            values_of(member, max(1, min(self.count, (BATCH // 16) // max(1, self.about.numbers))), values.add)
        return values

    def settle(self, code: LabelCode) -> None:
        """Take what was decided about labels."""
        self.about = replace(self.about, class_names=code.names)
        if "labels" in self.members and (code.codes or code.numeric or code.unclear):
            ignored = self.about.ignore_index
            self.members["labels"] = Coded(self.members["labels"], code, self.title("labels"), ignored)


def open_arrays(
    path: str,
    names: Sequence[str],
    member: Callable[[str], Member],
    asked: Request,
    facts: dict[str, Any],
    data: str | None = None,
) -> ArraySource:
    """Find our arrays in a file of named arrays.

    Args:
        path: the file, for errors.
        names: the names of its arrays.
        member: gives an array by name; only those that are ours are asked for.
        asked: what the caller said.
        facts: class names and the like, as the file states them.
        data: what the file holds, where its name says so.
    """
    plan = layout([name for name in names if name not in (*FACTS, LABELS_ARE)], asked, path, table=False, data=data)
    members = {name: member(plan.source(name)[0]) for name in plan.columns}
    if not isinstance(plan.columns.get("correct", ""), str):
        members["correct"] = Compared(*map(member, plan.source("correct")))
    own, naming = facts.pop("class_names", None), Naming()
    positions = is_positions(facts.pop(LABELS_ARE, None), path)
    facts = facts | asked.facts
    if plan.holds == "confidence":
        facts = {"split": facts.get("split")}
    else:
        own, given = (
            None if names is None else checked_names(names, f"{path}: ") for names in (own, facts.get("class_names"))
        )
        naming = of_array(own, given, path, positions=positions)
        facts["class_names"] = naming.names
    first = members[plan.holds]
    known = about(plan.holds, first.dtype, first.shape, **facts, head=f"{path}: ")
    return ArraySource(path, members, plan, known, naming)


def is_positions(value: Any, path: str) -> bool:
    """What a file says about its labels."""
    if value not in (None, POSITIONS):
        raise ValueError(f"{path}: {LABELS_ARE} must be {POSITIONS!r} or not be there, got {short(repr(value))}")
    return value == POSITIONS


def stated(names: Sequence[str], member: Callable[[str], Stored | Deflated]) -> dict[str, Any]:
    """The facts among the arrays of a file: class names, kind, ignore index, split."""
    facts: dict[str, Any] = {}
    for name in (name for name in (*FACTS, LABELS_ARE) if name in names):
        array = member(name)
        one = name != "class_names"
        if array.shape not in ((), (1,)) if one else len(array.shape) != 1 or not array.shape[0]:
            raise ValueError(
                f"{array.path}: {name} must be {'one value' if one else 'a list'}, got {list(array.shape)}"
            )
        if array.dtype.itemsize * max(1, *array.shape, 1) > FACT_BYTES:
            raise ValueError(
                f"{array.path}: {name} must be at most {FACT_BYTES:,} bytes, got {array.dtype} {array.shape}"
            )
        (whole,) = replace(array, shape=array.shape or (1,)).blocks(max(1, *array.shape, 1))
        if whole.dtype.kind == "U":
            check_characters(f"{array.path}: {name}", whole)
        facts[name] = whole[0].item() if one else whole
    return facts


def facts_of(known: About) -> dict[str, Array]:
    """The facts as arrays, those that are not the default."""
    facts = {name: getattr(known, name) for name in FACTS}
    if known.kind == "classification":
        del facts["kind"]
    if known.class_names is not None and codes_of(known.class_names) is not None:
        facts[LABELS_ARE] = POSITIONS
    return {name: np.array(value) for name, value in facts.items() if value is not None}


def column_blocks(store: Store, name: str) -> tuple[np.dtype[Any], Iterator[Array]]:
    """A column to write: its type, and its rows block by block."""
    dtype = dtypes(store, [name])[name]
    if dtype.kind == "U":  # its width is known only at the end
        whole = store.column(name)
        return whole.dtype, iter([whole])
    size = max(1, BATCH // max(1, store.about.numbers))
    return dtype, (block[name] for block in store.blocks(size, [name]))


def as_bytes(array: Array) -> memoryview:
    """The bytes of an array in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
