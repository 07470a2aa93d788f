"""Which of a file's columns are ours: by our names, by one column per class, or as the caller maps them."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibrant.predictions.checks import DATA, GROUP
from calibrant.predictions.hints import absent, choose, lacking, meant, near

SINGLE = {"correct": ("correct",), "labels": ("labels", "label"), "ids": ("ids", "id"), "objectness": ("objectness",)}
PREDICTED = "predicted"  # with confidence and labels it stands for correct
EXPECTED = "logits or probabilities with labels, or confidence with correct or with predicted and labels"


@dataclass(frozen=True)
class Request:
    """What the caller of `Predictions.open` said about the files."""

    columns: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    unlabelled: bool = False  # whether labels may be missing
    listings: dict[str, list[str]] = field(default_factory=dict)  # folders that were listed during this call


@dataclass(frozen=True)
class Layout:
    """Our names to the file's: one column, or one per class; for correct perhaps predicted and labels.

    Where columns were chosen by the caller, what labels of text call the classes decides between ``namings``.
    """

    holds: str
    columns: dict[str, str | tuple[str, ...]]
    class_names: tuple[str, ...] | None = None
    namings: tuple[tuple[str, ...], ...] = ()

    def title(self, name: str) -> str:
        """What an error calls a column: our name, and the file's where it differs."""
        theirs = self.columns[name]
        return name if theirs == name or not isinstance(theirs, str) else f"{name} (column {theirs!r})"

    def source(self, name: str) -> list[str]:
        """The file's columns behind one of ours."""
        theirs = self.columns[name]
        return [theirs] if isinstance(theirs, str) else list(theirs)

    def named_by(self, labels: Collection[str]) -> tuple[str, ...] | None:
        """The class names, given some labels of text: the naming that knows most of them, the first of equals."""
        known = [sum(label in naming for label in labels) for naming in self.namings]
        return self.namings[known.index(max(known))] if any(known) else self.class_names


def request(
    columns: Mapping[str, str | Sequence[str]] | None,
    groups: Sequence[str] | None,
    facts: dict[str, Any],
    *,
    unlabelled: bool = False,
) -> Request:
    """Check what the caller said, before any file is opened."""
    mapped: dict[str, str | tuple[str, ...]] = {}
    ours = {alias: name for name, aliases in SINGLE.items() for alias in aliases}
    ours |= {name: name for name in (*DATA, PREDICTED)}
    for given, theirs in (columns or {}).items():
        name = given if given.startswith(GROUP) and given != GROUP else ours.get(given, "")
        if not name:
            known = ", ".join((*DATA, *SINGLE, PREDICTED, GROUP + "NAME"))
            guess = meant(given, ours)
            raise ValueError(f"columns maps our names to the file's, expected {known}, got {given!r}{guess}")
        if name in mapped:
            raise ValueError(f"columns must give {name} once, got {name} and {given}")
        mapped[name] = theirs if isinstance(theirs, str) else tuple(theirs)
        if not isinstance(theirs, str) and name not in ("logits", "probabilities"):
            raise ValueError(f"columns must give one name for {name}, got {list(theirs)}")
    if sum(name in DATA for name in mapped) > 1:
        raise ValueError(
            f"columns must choose one of {', '.join(DATA)}, got {', '.join(n for n in mapped if n in DATA)}"
        )
    if isinstance(groups, str):
        raise ValueError(f"groups must be a list of columns, got {groups!r}")
    known_facts = {name: value for name, value in facts.items() if value is not None}
    return Request(mapped, tuple(groups or ()), known_facts, unlabelled)


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
    holds, theirs, names, namings = _data(held, asked, path, table, data)
    columns = {holds: theirs}
    if holds == "confidence":
        columns["correct"] = _correct(held, asked, path)
    for name in ("ids", "objectness") if holds == "confidence" else ("labels", "ids", "objectness"):
        found = _single(name, SINGLE[name], held, asked, path)
        if found is not None:
            columns[name] = found
        elif name == "labels" and not asked.unlabelled:
            raise lacking("no labels", name, held, path, ("true_label", "target", "truth"))
    columns |= {name: name for name in held if name.startswith(GROUP) and name != GROUP}
    columns |= {name: c for name, c in asked.columns.items() if name.startswith(GROUP)}
    columns |= {GROUP + group: group if group in held else GROUP + group for group in asked.groups}
    for name in columns:
        if name.startswith(GROUP) and columns[name] not in held:
            given = str(columns[name]) if name in asked.columns else name.removeprefix(GROUP)
            raise absent(given, "group", held, path)
    return Layout(holds, columns, names, namings)


def _correct(held: Sequence[str], asked: Request, path: str) -> str | tuple[str, str]:
    """The column correct, or those whose agreement it is."""
    if "correct" in asked.columns or PREDICTED not in asked.columns:
        found = _single("correct", SINGLE["correct"], held, asked, path)
        if found is not None:
            return found
    predicted = _single(PREDICTED, (PREDICTED,), held, asked, path)
    if predicted is None:
        raise lacking("confidence, but neither correct nor predicted with labels", "correct", held, path)
    labels = _single("labels", SINGLE["labels"], held, asked, path)
    if labels is None:
        raise lacking("predicted, but no labels to compare with", "labels", held, path)
    return predicted, labels


def _single(name: str, aliases: Sequence[str], held: Sequence[str], asked: Request, path: str) -> str | None:
    if name in asked.columns:
        theirs = str(asked.columns[name])
        if theirs not in held:
            raise absent(theirs, name, held, path)
        return theirs
    found = [alias for alias in aliases if alias in held]
    if len(found) > 1:
        raise ValueError(f"{path}: holds {' and '.join(found)}: choose with {choose(name, found[0])}")
    return found[0] if found else None


Found = tuple[str, str | tuple[str, ...], tuple[str, ...] | None, tuple[tuple[str, ...], ...]]


def _data(held: Sequence[str], asked: Request, path: str, table: bool, data: str | None) -> Found:
    """What the file holds, its column or columns, class names if the columns give them, and what else they may be."""
    chosen = next((name for name in asked.columns if name in DATA), data)
    if chosen is not None and asked.columns.get(chosen, chosen) != chosen:
        return chosen, *_mapped(chosen, asked.columns[chosen], held, path, table)
    found = []
    for name in DATA if chosen is None else (chosen,):
        if name in held:
            found.append((name, name))
        if table and name != "confidence":
            found += [(name, f"{name}{mark}*") for mark in "_." if _per_class(name, mark, held)]
    if not found:
        what = "no logits, probabilities or confidence" if chosen is None else f"no {chosen}"
        guess = next((name for name in DATA if near(name, held)), "logits")
        raise lacking(f"{what}, expected {EXPECTED}", chosen or guess, held, path)
    if len(found) > 1:
        (name, first), (_, second) = found[:2]
        raise ValueError(f"{path}: holds {first} and {second}: choose with {choose(name, first)}")
    name, theirs_or_pattern = found[0]
    if theirs_or_pattern == name:
        return name, name, None, ()
    mark = theirs_or_pattern[len(name)]
    columns = _per_class(name, mark, held)
    ordered, names = _ordered(columns, [c[len(name) + 1 :] for c in columns], path)
    return name, ordered, names if mark == "." else None, ()


def _per_class(name: str, mark: str, held: Sequence[str]) -> list[str]:
    """Columns such as logits_0 (numbers only, so that logits_file is none) or logits.cat."""
    pattern = re.compile(re.escape(name) + (r"_[0-9]{1,9}" if mark == "_" else r"\..+"), re.DOTALL)
    return [column for column in held if pattern.fullmatch(column)]


def _mapped(
    name: str, theirs: str | tuple[str, ...], held: Sequence[str], path: str, table: bool
) -> tuple[str | tuple[str, ...], tuple[str, ...] | None, tuple[tuple[str, ...], ...]]:
    if isinstance(theirs, str) and theirs in held:
        return theirs, None, ()
    if isinstance(theirs, tuple):
        known = set(held)
        lost = next((column for column in theirs if column not in known), None)
        if lost is not None:
            raise absent(lost, name, held, path)
        if not table:
            raise ValueError(f"{path}: columns must give one array for {name}, got {len(theirs)} names")
        return theirs, _short_names(theirs), _namings(theirs, _short_names(theirs))
    if not table or not glob.has_magic(theirs):
        raise absent(theirs, name, held, path)
    columns = [column for column in held if fnmatch.fnmatchcase(column, theirs)]
    if not columns:
        raise absent(theirs, name, held, path)
    before, after = re.split(r"[*?\[]", theirs)[0], re.split(r"[*?\]]", theirs)[-1]
    parts = [column[len(before) : len(column) - len(after)] for column in columns]
    ordered, names = _ordered(columns, parts, path)
    return ordered, None if all(part.isdecimal() for part in parts) else names, _namings(ordered, names)


def _short_names(columns: tuple[str, ...]) -> tuple[str, ...]:
    """p_cat, p_car as cat, car: without what they share up to a mark; as they are if that leaves numbers or nothing."""
    short = _without_ends(columns, lambda shared: len(shared) - len(re.split(r"_|[^\w\s]", shared)[-1]))
    return short if all(short) and not all(part.isdecimal() for part in short) else columns


def _without_ends(columns: tuple[str, ...], length: Callable[[str], int]) -> tuple[str, ...]:
    """Names without the start and the end that they share, of which ``length`` says how much goes."""
    for _ in "start", "end":  # the end is the start of the reversed names, which are turned back by the second round
        low, high = min(columns), max(columns)
        shared = low[: next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]
        columns = tuple(column[length(shared) :][::-1] for column in columns)
    return columns


def _namings(columns: tuple[str, ...], names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """What labels may call the classes: the columns' own names, those given, and without all that they share."""
    options = (columns, names, _short_names(columns), _without_ends(columns, len))
    return tuple(dict.fromkeys(option for option in options if all(option) and len(set(option)) == len(columns)))


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
