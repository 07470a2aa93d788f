"""Which of a file's columns are ours: by our names, by one column per class, or as the caller maps them."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calibrant.predictions import naming
from calibrant.predictions.about import DATA, GROUP, checked_names
from calibrant.predictions.hints import absent, choose, lacking, meant, near, short
from calibrant.predictions.labels import Naming

SINGLE = {"correct": ("correct",), "labels": ("labels", "label"), "ids": ("ids", "id"), "objectness": ("objectness",)}
DIGITS = "0123456789"
MOST_GROUPS = 1000
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
    """Our names to the file's: one column, or one per class; for correct perhaps predicted and labels."""

    holds: str
    columns: dict[str, str | tuple[str, ...]]
    naming: Naming

    def title(self, name: str) -> str:
        """What an error calls a column: our name, and the file's where it differs."""
        theirs = self.columns[name]
        return name if theirs == name or not isinstance(theirs, str) else f"{name} (column {short(theirs)!r})"

    def source(self, name: str) -> list[str]:
        """The file's columns behind one of ours."""
        theirs = self.columns[name]
        return [theirs] if isinstance(theirs, str) else list(theirs)


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
        if not isinstance(theirs, str) and not (
            isinstance(theirs, Sequence) and all(isinstance(column, str) for column in theirs)
        ):
            raise ValueError(f"columns must give names of columns, got {short(repr(theirs))} for {name}")
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


def layout(names: Sequence[str], asked: Request, path: str, *, table: bool, data: str | None = None) -> Layout:
    """Find our columns among those that a file holds.

    Args:
        names: the file's columns.
        asked: what the caller said.
        path: the file, for errors.
        table: whether the data may be one column per class.
        data: what the file holds, where its name already says so.
    """
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise ValueError(f"{path}: column names must differ, got {short(name)!r} {count} times")
    present = set(names)
    holds, theirs, classes = _data(names, asked, path, table, data)
    columns = {holds: theirs}
    if holds == "confidence":
        columns["correct"] = _correct(names, asked, path)
    for name in ("ids", "objectness") if holds == "confidence" else ("labels", "ids", "objectness"):
        single = _single(name, SINGLE[name], names, asked, path)
        if single is not None:
            columns[name] = single
        elif name == "labels" and not asked.unlabelled:
            raise lacking("no labels", name, names, path, ("true_label", "target", "truth"))
    columns |= {name: name for name in names if name.startswith(GROUP) and name != GROUP}
    columns |= {name: c for name, c in asked.columns.items() if name.startswith(GROUP)}
    columns |= {GROUP + group: group if group in present else GROUP + group for group in asked.groups}
    if sum(name.startswith(GROUP) for name in columns) > MOST_GROUPS:
        raise ValueError(
            f"{path}: there may be at most {MOST_GROUPS:,} groups, got more columns that start with {GROUP}"
        )
    for name in columns:
        if name.startswith(GROUP) and columns[name] not in present:
            given = str(columns[name]) if name in asked.columns else name.removeprefix(GROUP)
            raise absent(given, "group", names, path)
    if not isinstance(theirs, str):
        data_columns = set(theirs)
        twice = next((name for name, column in columns.items() if name != holds and column in data_columns), None)
        if twice is not None:
            raise ValueError(f"{path}: column {short(str(columns[twice]))!r} is taken both for {holds} and for {twice}")
    return Layout(holds, columns, classes)


def _correct(names: Sequence[str], asked: Request, path: str) -> str | tuple[str, str]:
    """The column correct, or those whose agreement it is."""
    if "correct" in asked.columns or PREDICTED not in asked.columns:
        correct = _single("correct", SINGLE["correct"], names, asked, path)
        if correct is not None:
            return correct
    predicted = _single(PREDICTED, (PREDICTED,), names, asked, path)
    if predicted is None:
        raise lacking("confidence, but neither correct nor predicted with labels", "correct", names, path)
    labels = _single("labels", SINGLE["labels"], names, asked, path)
    if labels is None:
        raise lacking("predicted, but no labels to compare with", "labels", names, path)
    return predicted, labels


def _single(name: str, aliases: Sequence[str], names: Sequence[str], asked: Request, path: str) -> str | None:
    if name in asked.columns:
        theirs = str(asked.columns[name])
        if theirs not in names:
            raise absent(theirs, name, names, path)
        return theirs
    present = [alias for alias in aliases if alias in names]
    if len(present) > 1:
        raise ValueError(f"{path}: holds {' and '.join(present)}: choose with {choose(name, present[0])}")
    return present[0] if present else None


Data = tuple[str, str | tuple[str, ...], Naming]


def _data(names: Sequence[str], asked: Request, path: str, table: bool, data: str | None) -> Data:
    """What the file holds, its column or columns, and what the columns call the classes."""
    chosen = next((name for name in asked.columns if name in DATA), data)
    if chosen is not None and asked.columns.get(chosen, chosen) != chosen:
        return chosen, *_mapped(chosen, asked, names, path, table)
    forms = []
    for name in DATA if chosen is None else (chosen,):
        if name in names:
            forms.append((name, name))
        if table and name != "confidence":
            forms += [(name, f"{name}{mark}*") for mark in "_." if _per_class(name, mark, names)]
    if not forms:
        what = "no logits, probabilities or confidence" if chosen is None else f"no {chosen}"
        guess = next((name for name in DATA if near(name, names)), "logits")
        raise lacking(f"{what}, expected {EXPECTED}", chosen or guess, names, path)
    if len(forms) > 1:
        (name, first), (_, second) = forms[:2]
        raise ValueError(f"{path}: holds {first} and {second}: choose with {choose(name, first)}")
    name, form = forms[0]
    if form == name:
        return name, name, Naming()
    mark = form[len(name)]
    columns = _per_class(name, mark, names)
    ordered, parts = naming.ordered(columns, [column[len(name) + 1 :] for column in columns], path)
    return name, *_with_given(name, naming.of_own_columns(parts, dotted=mark == "."), ordered, asked, path)


def _per_class(name: str, mark: str, names: Sequence[str]) -> list[str]:
    """Columns such as logits_0 (numbers only, so that logits_file is none) or logits.cat."""
    pattern = re.compile(re.escape(name) + (r"_[0-9]{1,9}" if mark == "_" else r"\..+"), re.DOTALL)
    return [column for column in names if pattern.fullmatch(column)]


def _mapped(
    name: str, asked: Request, names: Sequence[str], path: str, table: bool
) -> tuple[str | tuple[str, ...], Naming]:
    theirs, present = asked.columns[name], set(names)
    if isinstance(theirs, str) and theirs in present:
        return theirs, Naming()
    if isinstance(theirs, tuple):
        lost = next((column for column in theirs if column not in present), None)
        if lost is not None:
            raise absent(lost, name, names, path)
        twice, count = Counter(theirs).most_common(1)[0] if theirs else ("", 0)
        if count != 1:
            got = f"{short(twice)!r} {count} times" if theirs else "none"
            raise ValueError(f"{path}: columns must list different columns for {name}, got {got}")
        if not table:
            raise ValueError(f"{path}: columns must give one array for {name}, got {len(theirs)} names")
        return _with_given(name, naming.of_listed_columns(theirs), theirs, asked, path, listed=True)
    if not table or not glob.has_magic(theirs):
        raise absent(theirs, name, names, path)
    columns = [column for column in names if fnmatch.fnmatchcase(column, theirs)]
    if not columns:
        raise absent(theirs, name, names, path)
    before = re.split(r"[*?\[]", theirs)[0].rstrip(DIGITS)  # what begins or ends a number is part of it
    after = re.split(r"[*?\]]", theirs)[-1].lstrip(DIGITS)
    ordered, parts = naming.ordered(columns, [c[len(before) : len(c) - len(after)] for c in columns], path)
    return _with_given(name, naming.of_matched_columns(ordered, parts), ordered, asked, path)


def _with_given(
    holds: str, classes: Naming, columns: tuple[str, ...], asked: Request, path: str, *, listed: bool = False
) -> tuple[tuple[str, ...], Naming]:
    """The columns in the order of the class names that the caller gave, if any."""
    given = asked.facts.get("class_names")
    if given is None:
        return columns, classes
    names = checked_names(given, f"{path}: ")
    return naming.with_given_columns(classes, columns, names, path, holds, listed=listed)
