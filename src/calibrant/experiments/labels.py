"""Labels that name more than a method: ``"ls + temperature"``, ``"ls, tuned for ece"``, ``"acls, lambda1=0.1"``."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from calibrant.experiments.results import Results

POSTHOC = ("temperature", "logit-norm")
_TUNED = "tuned for "
#: What recipes call a method that has another name among the losses: ALS's hard labels are cross-entropy.
_SAME = {"hard": "ce"}


class Label(NamedTuple):
    """A label taken apart; None where it leaves something open."""

    method: str
    posthoc: str | None
    tuned_for: str | None
    settings: tuple[tuple[str, Any], ...]


def parse(label: str, known: list[str]) -> Label:
    """Take a label apart; what is itself the name of a method in ``known`` stays whole.

    Example:
        >>> parse("ls + temperature, tuned for ece", ["ls"])
        Label(method='ls', posthoc='temperature', tuned_for='ece', settings=())
        >>> parse("acls, lambda1=0.1, lambda2=0", ["acls"]).settings
        (('lambda1', 0.1), ('lambda2', 0))
    """
    if label in known:
        return Label(label, None, None, ())
    if label.replace(" + ", "+") in known:
        return Label(label.replace(" + ", "+"), None, None, ())
    first, *parts = (part.strip() for part in label.split(","))
    method, plus, fix = (part.strip() for part in first.rpartition("+"))
    posthoc = fix if plus and fix in POSTHOC else None
    words, tuned_for, settings = [method if posthoc else first], None, []
    for part in parts:
        name, equals, value = part.partition("=")
        if part.startswith(_TUNED):
            tuned_for = part.removeprefix(_TUNED).strip()
        elif equals and ", ".join([*words, part]) not in known:
            settings.append((name.strip(), _value(value.strip())))
        else:
            words.append(part)
    name = next((n for n in (", ".join(words), ", ".join(words).replace(" + ", "+")) if n in known), ", ".join(words))
    return Label(name if name in known else _SAME.get(name, name), posthoc, tuned_for, tuple(settings))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def nothing_tuned(rows: Results) -> bool:
    """Whether a method's rows are of one choice of settings, the same for every target because none was searched."""
    return len(rows.column("settings")) == 1 and set(rows.column("stage")) <= {"final"}


def choices(rows: Results, label: Label, *, tuned: bool) -> list[tuple[str, Results]]:
    """What a label can mean among the rows of its method: tuning targets, and the rows of each.

    Where nothing was tuned, the same runs may stand there for every target: they are taken together, under ``""``.
    """
    found: list[str] = rows.column("tuned_for")
    if label.tuned_for in found:
        return [(label.tuned_for, rows.where(tuned_for=label.tuned_for))]
    # A method without parameters is the same whatever is tuned for.
    if label.tuned_for is not None and rows.column("settings") != ["{}"]:
        return []
    if not tuned and found:
        one = rows.where(tuned_for="") if "" in found else rows
        return [("", Results(row._replace(tuned_for="") for row in one))]
    return [(target, rows.where(tuned_for=target)) for target in found]


def named(results: Results, label: Label) -> Results:
    """The rows of a label's method and settings."""
    rows = results.where(method=label.method)
    if not label.settings:
        return rows
    fitting = [text for text in rows.column("settings") if _holds(json.loads(text), label.settings)]
    return rows.where(settings=fitting)


def _holds(settings: dict[str, Any], asked: tuple[tuple[str, Any], ...]) -> bool:
    """Whether the settings have the values, also under a longer name: beta of targets.beta."""
    return all(
        any((n == name or n.endswith(f".{name}")) and v == value for n, v in settings.items()) for name, value in asked
    )


def the_one(results: Results, text: str) -> tuple[Results, Label]:
    """The rows that a label means, all of one tuning target; an error if there are none, or of several."""
    known: list[str] = results.column("method")
    label = parse(text, known)
    if label.method not in known:
        raise ValueError(f"no results of {text!r}: there are {', '.join(known) or 'none at all'}")
    rows = named(results, label)
    found = choices(rows, label, tuned=not nothing_tuned(rows))
    if not found:
        there = ", ".join(map(repr, rows.column("tuned_for"))) or "none with such settings"
        raise ValueError(f"no results of {text!r}: tuning targets are {there}")
    untuned = [one for one in found if not one[0]]
    if len(found) > 1 and not untuned:
        names = " and for ".join(target for target, _ in found)
        raise ValueError(f"{text!r} was tuned for {names}: say which, as in '{text}, tuned for {found[0][0]}'")
    return (untuned or found)[0][1], label
