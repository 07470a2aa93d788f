"""Which of a file's columns are ours: by our names, by one column per class, or as the caller maps them."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibrant.predictions.checks import DATA, GROUP

SINGLE = {"correct": ("correct",), "labels": ("labels", "label"), "ids": ("ids", "id"), "objectness": ("objectness",)}
EXPECTED = "logits or probabilities with labels, or confidence with correct"


@dataclass(frozen=True)
class Request:
    """What the caller of `Predictions.open` said about the files."""

    columns: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    listings: dict[str, list[str]] = field(default_factory=dict)  # folders that were listed during this call


@dataclass(frozen=True)
class Layout:
    """Our names to the file's: one column, or one per class."""

    holds: str
    columns: dict[str, str | tuple[str, ...]]
    class_names: tuple[str, ...] | None = None

    def title(self, name: str) -> str:
        """What an error calls a column: our name, and the file's where it differs."""
        theirs = self.columns[name]
        return name if theirs == name or not isinstance(theirs, str) else f"{name} (column {theirs!r})"

    def source(self, name: str) -> list[str]:
        """The file's columns behind one of ours."""
        theirs = self.columns[name]
        return [theirs] if isinstance(theirs, str) else list(theirs)


def request(
    columns: Mapping[str, str | Sequence[str]] | None, groups: Sequence[str] | None, facts: dict[str, Any]
) -> Request:
    """Check what the caller said, before any file is opened."""
    mapped: dict[str, str | tuple[str, ...]] = {}
    for name, theirs in (columns or {}).items():
        if name not in (*DATA, *SINGLE) and not (name.startswith(GROUP) and name != GROUP):
            known = ", ".join((*DATA, *SINGLE, GROUP + "NAME"))
            raise ValueError(f"columns maps our names to the file's, expected {known}, got {name!r}")
        mapped[name] = theirs if isinstance(theirs, str) else tuple(theirs)
        if not isinstance(theirs, str) and name not in ("logits", "probabilities"):
            raise ValueError(f"columns must give one name for {name}, got {list(theirs)}")
    if sum(name in DATA for name in mapped) > 1:
        raise ValueError(
            f"columns must choose one of {', '.join(DATA)}, got {', '.join(n for n in mapped if n in DATA)}"
        )
    if isinstance(groups, str):
        raise ValueError(f"groups must be a list of columns, got {groups!r}")
    return Request(mapped, tuple(groups or ()), {name: value for name, value in facts.items() if value is not None})


def layout(held: Sequence[str], asked: Request, path: str, *, table: bool, data: str | None = None) -> Layout:
    """Find our columns among those that a file holds.

    Args:
        held: the file's columns.
        asked: what the caller said.
        path: the file, for errors.
        table: whether the data may be one column per class.
        data: what the file holds, where its name already says so.
    """
    name, count = Counter(held).most_common(1)[0] if held else ("", 0)
    if count > 1:
        raise ValueError(f"{path}: column names must differ, got {name!r} {count} times")
    holds, theirs, names = _data(held, asked, path, table, data)
    columns = {holds: theirs}
    needed = "correct" if holds == "confidence" else "labels"
    for name, aliases in SINGLE.items():
        if name in ("correct", "labels") and name != needed:
            continue
        found = _single(name, aliases, held, asked, path)
        if found is not None:
            columns[name] = found
        elif name == needed:
            raise _missing(name, held, path)
    columns |= {name: name for name in held if name.startswith(GROUP) and name != GROUP}
    columns |= {name: c for name, c in asked.columns.items() if name.startswith(GROUP)}
    for group in asked.groups:
        columns[GROUP + group] = group if group in held else GROUP + group
    for name in columns:
        if name.startswith(GROUP) and columns[name] not in held:
            raise _missing(str(columns[name]), held, path)
    return Layout(holds, columns, names)


def _missing(what: str, held: Sequence[str], path: str) -> ValueError:
    shown = ", ".join(held[:20]) + (f" and {len(held) - 20} more" if len(held) > 20 else "")
    return ValueError(f"{path}: {what} missing, expected {EXPECTED}; it holds {shown or 'nothing'}")


def _single(name: str, aliases: Sequence[str], held: Sequence[str], asked: Request, path: str) -> str | None:
    if name in asked.columns:
        theirs = str(asked.columns[name])
        if theirs not in held:
            raise _missing(f"{theirs!r}, which columns gives as {name},", held, path)
        return theirs
    found = [alias for alias in aliases if alias in held]
    if len(found) > 1:
        raise ValueError(f"{path}: holds {' and '.join(found)}: choose with columns={{{name!r}: {found[0]!r}}}")
    return found[0] if found else None


def _data(
    held: Sequence[str], asked: Request, path: str, table: bool, data: str | None
) -> tuple[str, str | tuple[str, ...], tuple[str, ...] | None]:
    """What the file holds, its column or columns, and class names if the columns give them."""
    chosen = next((name for name in asked.columns if name in DATA), data)
    if chosen is not None and asked.columns.get(chosen, chosen) != chosen:
        theirs, names = _mapped(chosen, asked.columns[chosen], held, path, table)
        return chosen, theirs, names
    found = []
    for name in DATA if chosen is None else (chosen,):
        if name in held:
            found.append((name, name))
        if table and name != "confidence":
            found += [(name, f"{name}{mark}*") for mark in "_." if _per_class(name, mark, held)]
    if not found:
        what = "logits, probabilities and confidence" if chosen is None else chosen
        raise _missing(what, held, path)
    if len(found) > 1:
        (name, first), (_, second) = found[:2]
        raise ValueError(f"{path}: holds {first} and {second}: choose with columns={{{name!r}: {first!r}}}")
    name, theirs_or_pattern = found[0]
    if theirs_or_pattern == name:
        return name, name, None
    mark = theirs_or_pattern[len(name)]
    columns = _per_class(name, mark, held)
    ordered, names = _ordered(columns, [c[len(name) + 1 :] for c in columns], path)
    return name, ordered, names if mark == "." else None


def _per_class(name: str, mark: str, held: Sequence[str]) -> list[str]:
    """Columns such as logits_0 (numbers only, so that logits_file is none) or logits.cat."""
    pattern = re.compile(re.escape(name) + (r"_[0-9]{1,9}" if mark == "_" else r"\..+"), re.DOTALL)
    return [column for column in held if pattern.fullmatch(column)]


def _mapped(
    name: str, theirs: str | tuple[str, ...], held: Sequence[str], path: str, table: bool
) -> tuple[str | tuple[str, ...], tuple[str, ...] | None]:
    if isinstance(theirs, str) and theirs in held:
        return theirs, None
    if isinstance(theirs, tuple):
        known = set(held)
        lost = next((column for column in theirs if column not in known), None)
        if lost is not None or not table:
            raise _missing(repr(lost) if lost is not None else "one array", held, path)
        return theirs, theirs
    if not table or not glob.has_magic(theirs):
        raise _missing(f"{theirs!r}, which columns gives as {name},", held, path)
    columns = [column for column in held if fnmatch.fnmatchcase(column, theirs)]
    if not columns:
        raise _missing(f"anything that matches {theirs!r}", held, path)
    before, after = re.split(r"[*?\[]", theirs)[0], re.split(r"[*?\]]", theirs)[-1]
    parts = [column[len(before) : len(column) - len(after)] for column in columns]
    ordered, names = _ordered(columns, parts, path)
    return ordered, None if all(part.isdecimal() for part in parts) else names


def _ordered(columns: list[str], parts: list[str], path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Columns and their class names: by number if all are numbers, else as the file has them."""
    if not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
        return tuple(columns), tuple(parts)
    numbered = sorted(zip(map(int, parts), columns, parts, strict=True))
    if [number for number, _, _ in numbered] != list(range(len(numbered))):
        raise ValueError(
            f"{path}: one column per class must be numbered 0..{len(columns) - 1}, got {columns[0]} .. {columns[-1]}"
        )
    return tuple(column for _, column, _ in numbered), tuple(part for _, _, part in numbered)
