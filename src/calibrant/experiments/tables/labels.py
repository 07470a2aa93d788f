"""Labels of table rows: ``"ls"``, ``"ls + temperature"``, ``"ls, tuned for ece"``, ``"acls, lambda1=0.1"``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from calibrant.base.checks import did_you_mean
from calibrant.experiments.results import Results
from calibrant.experiments.tables.cells import Column
from calibrant.training import REPAIRS, Recipe

#: The numbers of a row, for comparison with another's.
Runs = frozenset[tuple[Any, ...]]
_TUNED = "tuned for "
#: Names of losses in recipes that differ from ours: ALS's hard labels are cross-entropy.
_ALIASES = {"hard": "ce"}


class Label(NamedTuple):
    """A parsed label; None where it does not say."""

    method: str
    posthoc: str | None
    tuned_for: str | None
    settings: tuple[tuple[str, Any], ...]


def parse(label: str, methods: list[str]) -> Label:
    """Parse a label; the name of a method is not split.

    Example:
        >>> parse("ls + temperature, tuned for ece", ["ls"])
        Label(method='ls', posthoc='temperature', tuned_for='ece', settings=())
        >>> parse("acls, lambda1=0.1, lambda2=0", ["acls"]).settings
        (('lambda1', 0.1), ('lambda2', 0))
    """
    for name in (label, label.replace(" + ", "+")):
        if name in methods:
            return Label(name, None, None, ())
    head, *parts = (part.strip() for part in label.split(","))
    method, plus, fix = (part.strip() for part in head.rpartition("+"))
    posthoc = fix if plus and fix in REPAIRS else None
    words, tuned_for, settings = [method if posthoc else head], None, []
    for part in parts:
        name, equals, value = part.partition("=")
        if part.startswith(_TUNED):
            tuned_for = part.removeprefix(_TUNED).strip()
        elif equals and ", ".join([*words, part]) not in methods:
            settings.append((name.strip(), _value(value.strip())))
        else:
            words.append(part)
    name = next((n for n in (", ".join(words), ", ".join(words).replace(" + ", "+")) if n in methods), ", ".join(words))
    return Label(name if name in methods else _ALIASES.get(name, name), posthoc, tuned_for, tuple(settings))


def label_of(recipe: Recipe, text: str, methods: list[str]) -> Label:
    """Parse a label of a recipe: one of its methods, which may be a repair of another, or as in `parse`."""
    name, comma, tuned = text.partition(f", {_TUNED}")
    method = recipe.methods.get(name)
    if method is None or (method.of or name) not in methods:
        return parse(text, methods)
    return Label(method.of or name, method.repair, tuned.strip() if comma else None, ())


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def is_untuned(rows: Results) -> bool:
    """Whether the settings of a method were not searched, and are the same for every target."""
    return len(rows.column("settings")) == 1 and set(rows.column("stage")) <= {"final"}


def choices(rows: Results, label: Label, *, tuned: bool) -> list[tuple[tuple[str, ...], Results]]:
    """The possible meanings of a label among the rows of its method: tuning targets, and the rows of each.

    Targets with the same runs are merged; without tuning there are no targets.
    """
    targets: list[str] = rows.column("tuned_for")
    if label.tuned_for in targets:
        return [(tuple(filter(None, (label.tuned_for,))), rows.where(tuned_for=label.tuned_for))]
    # A method without parameters is the same for every target.
    if label.tuned_for is not None and rows.column("settings") != ["{}"]:
        return []
    if not tuned and targets:
        untuned = rows.where(tuned_for="") if "" in targets else rows
        return [((), Results(row._replace(tuned_for="") for row in untuned))]
    outcomes: dict[Runs, tuple[list[str], Results]] = {}
    for target in targets:
        tuned_rows = rows.where(tuned_for=target)
        outcomes.setdefault(_runs(tuned_rows), ([], tuned_rows))[0].append(target)
    return [(tuple(filter(None, names)), tuned_rows) for names, tuned_rows in outcomes.values()]


def _runs(rows: Results) -> Runs:
    """The numbers without their tuning targets; NaN becomes None, which equals itself."""
    plain = (row._replace(tuned_for="") for row in rows)
    return frozenset(tuple(None if isinstance(v, float) and math.isnan(v) else v for v in row) for row in plain)


def rows_of_method(results: Results, label: Label) -> Results:
    """The rows of a label's method and settings."""
    rows = results.where(method=label.method)
    if not label.settings:
        return rows
    fitting = [text for text in rows.column("settings") if _has_values(json.loads(text), label.settings)]
    return rows.where(settings=fitting)


def _has_values(settings: dict[str, Any], condition: tuple[tuple[str, Any], ...]) -> bool:
    """Whether settings have some values, also under a longer name: beta for targets.beta."""
    return all(
        any((n == name or n.endswith(f".{name}")) and v == value for n, v in settings.items())
        for name, value in condition
    )


def rows_of_label(results: Results, text: str) -> tuple[Results, Label]:
    """The rows of a label, all of one tuning target; an error if there are none, or several targets."""
    methods: list[str] = results.column("method")
    label = parse(text, methods)
    if label.method not in methods:
        raise ValueError(f"no results of {text!r}: there are {', '.join(methods) or 'none at all'}")
    rows = rows_of_method(results, label)
    meanings = choices(rows, label, tuned=not is_untuned(rows))
    if not meanings:
        targets = ", ".join(map(repr, rows.column("tuned_for"))) or "none with such settings"
        raise ValueError(f"no results of {text!r}: tuning targets are {targets}")
    untuned = [meaning for meaning in meanings if not meaning[0]]
    if len(meanings) > 1 and not untuned:
        names = " and for ".join(target for targets, _ in meanings for target in targets)
        raise ValueError(f"{text!r} was tuned for {names}: say which, as in '{text}, tuned for {meanings[0][0][0]}'")
    return (untuned or meanings)[0][1], label


def enumerate_words(words: Sequence[str]) -> str:
    """Words joined by commas and "and".

    Example:
        >>> enumerate_words(["ece"]), enumerate_words(["ece", "nll", "accuracy"])
        ('ece', 'ece, nll and accuracy')
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


@dataclass(frozen=True, eq=False)
class RowSource:
    """The numbers of one row of a table."""

    name: str
    targets: tuple[str, ...]  # that its settings were tuned for, all with the same outcome; empty without tuning
    rows: Results
    label: Label

    @property
    def tuned_for(self) -> str:
        """The targets in words."""
        return enumerate_words(self.targets)

    @cached_property
    def key(self) -> tuple[str | None, Runs]:
        """Equal for rows with the same numbers."""
        return self.label.posthoc, _runs(self.rows)

    def values(self, column: Column) -> dict[int, float]:
        """The numbers of a column by seed."""
        posthoc = self.label.posthoc or column.posthoc
        return self.rows.by_seed(set=column.set, posthoc=posthoc, metric=column.metric)


def sources(
    results: Results, methods: Sequence[str] | None = None, only_targets: Sequence[str] | None = None
) -> Iterator[RowSource]:
    """The rows of a table over the final runs: every method once for each outcome of its tuning.

    Only some labels and tuning targets may be kept; methods without anything to tune stay.
    """
    final = results.where(stage="final")
    names: list[str] = final.column("method")
    for name in names if methods is None else methods:
        label = parse(name, names)
        if label.method not in names:
            raise ValueError(f"no final results of {name!r}: there are {', '.join(names) or 'none at all'}")
        row_name = name.partition(", tuned for ")[0] if label.tuned_for else name
        tuned = not is_untuned(results.where(method=label.method))
        for targets, tuned_rows in choices(rows_of_method(final, label), label, tuned=tuned):
            remaining = tuple(t for t in targets if only_targets is None or t in only_targets)
            if remaining or not targets:
                yield RowSource(row_name, remaining, tuned_rows, label)


def references(results: Results, text: str) -> dict[str, RowSource]:
    """The rows of the reference by tuning target, under ``""`` if one row serves all; empty without numbers."""
    methods: list[str] = results.where(stage="final").column("method")
    label = parse(text, methods)
    rows = list(sources(results, [text])) if label.method in methods else []
    if label.tuned_for or (len(rows) == 1 and not rows[0].targets):
        return {"": rows[0]} if rows else {}
    return {target: source for source in rows for target in source.targets or ("",)}


def counterparts(source: RowSource, reference: Mapping[str, RowSource]) -> list[tuple[tuple[str, ...], RowSource]]:
    """The rows of the reference to compare a row with, each with its tuning targets.

    A row is not compared with itself. A row of several targets is compared with every distinct row of the reference.
    """
    if "" in reference:
        pairs = {reference[""].key: (list(source.targets), reference[""])}
    else:
        pairs = {}
        for target in source.targets or reference:
            if target in reference:
                row = reference[target]
                pairs.setdefault(row.key, ([], row))[0].append(target)
    return [(tuple(targets), row) for key, (targets, row) in pairs.items() if key != source.key]


def check_reference(reference: str, labels: Iterable[str], targets: Sequence[str]) -> None:
    """Refuse a reference that a comparison of methods, tuned for some targets, cannot have.

    Example:
        >>> check_reference("ls, tuned for ece", ["ce", "ls"], ["ece"])
        >>> check_reference("lss", ["ce", "ls"], ["ece"])
        Traceback (most recent call last):
        ValueError: unknown reference 'lss'; there are ce, ls; did you mean 'ls'?
    """
    names = list(labels)
    label = parse(reference, names)
    if label.method not in names:
        possible = [*names, *(f"{name}, tuned for {target}" for name in names for target in targets)]
        methods = f"there are {', '.join(names)}{did_you_mean(reference, possible)}"
        raise ValueError(f"unknown reference {reference!r}; {methods}")
    if label.tuned_for is not None and label.tuned_for not in targets:
        tuned = f"only for {enumerate_words(targets)}" if targets else "nor for anything else"
        raise ValueError(f"the reference {reference!r} does not exist: nothing is tuned for {label.tuned_for}, {tuned}")
