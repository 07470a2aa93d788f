"""Errors about the columns of a file, with the options that would read it, where their values tell which.

The options are those of `proposals`; without values, as of a file that is too wide, an error lists the columns alone.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibrant.base.arrays import Array
from calibrant.base.checks import did_you_mean, listing, shorten
from calibrant.predictions.data import DATA
from calibrant.predictions.proposals import Reading, propose
from calibrant.predictions.samples import MOST_COLUMNS, Peek, describe, find_mistakes
from calibrant.predictions.schema import PREDICTED, SINGLE, customary, one_column_kind

if TYPE_CHECKING:
    from calibrant.predictions.columns import OpenOptions

EXPECTED = "logits or probabilities with labels, or confidence with correct or with predicted and labels"
LONGEST_OPTIONS = 200  # characters


@dataclass(frozen=True)
class ColumnErrors:
    """Errors about the columns of one file; ``table`` is whether its data may be one column per class."""

    names: Sequence[str]
    options: OpenOptions
    path: str
    table: bool
    peek: Peek | None = None  # gives the first rows

    def absent(self, column: str, role: str) -> ValueError:
        """The error about a column that the caller names and the file does not have."""
        guess = did_you_mean(column, self.names) or ";"
        reason = f"no column {shorten(column)!r} (given as {role}){guess}"
        return ValueError(f"{self.path}: {reason} it holds {listing(self.names)}")

    def lacking(self, reason: str, role: str, known: Mapping[str, str | Sequence[str]] | None = None) -> ValueError:
        """The error about a column of ours that is missing; ``known`` are columns that names or the caller mapped."""
        advice = f"say which it is, --column {role}=NAME"
        return self._with_advice(reason, known or {}, advice, f"save {role} in the same file")

    def no_data(self, requested: str | None) -> ValueError:
        """The error about a file without logits, probabilities or confidence, or without what the caller requested."""
        reason = "no logits, probabilities or confidence" if requested is None else f"no {requested}"
        if self.names and all(re.fullmatch(r"[-+.0-9e]+", name) for name in self.names):
            return ValueError(f"{self.path}: the first line must name the columns, got {listing(self.names, 5)}")
        if self.names and all(re.fullmatch(r"arr_[0-9]+", name) for name in self.names):
            advice = "save them by name, np.savez('x.npz', logits=..., labels=...)"
            return ValueError(f"{self.path}: {reason}; it holds {listing(self.names)}: {advice}")
        advice = (
            "say which is which, --column labels=NAME with --column probabilities=NAME (or logits=NAME), or "
            "--column correct=NAME with --column confidence=NAME"
        )
        if requested is not None:
            advice = f"say which it is, --column {requested}=NAME"
        return self._with_advice(f"{reason}, expected {EXPECTED}", {}, advice, f"save {requested or 'logits'} in it")

    def one_of_two(self, column: str) -> ValueError:
        """The error about one column of probabilities or logits beside predicted classes: which class is it of?"""
        kind, customary_name = one_column_kind(column), customary(PREDICTED, self.names)
        known = {PREDICTED: customary_name[0]} if customary_name else {}
        either = f"--column {shlex.quote(f'{kind}={column}')} or --column {shlex.quote(f'confidence={column}')}"
        reason = f"{shorten(column)!r} may be of the positive class or of the predicted one"
        return self._with_advice(reason, known, f"say which, {either}")

    def _with_advice(
        self, reason: str, known: Mapping[str, str | Sequence[str]], advice: str, instead: str = ""
    ) -> ValueError:
        """The error, with the proposals that fit the first rows, or else what the columns look like and the advice.

        ``instead`` is the advice where no column is left.
        """
        options = self.options
        columns: Mapping[str, Array] = {}
        if self.peek is not None and len(self.names) <= MOST_COLUMNS:
            with contextlib.suppress(Exception):  # whatever is wrong with the values, this error is about the columns
                columns = self.peek([name for name in self.names if name not in options.groups])
        known = {**options.columns, **known}
        known = {role: source for role, source in known.items() if role in (*DATA, *SINGLE, PREDICTED)}
        # A column that is called like a probability of the positive class may be a confidence.
        sure = {
            role: source
            for role, source in known.items()
            if role in options.columns or not one_column_kind(str(source))
        }
        readings: list[Reading] = []
        for meaning in (known, sure) if columns else ():
            readings = readings or propose(columns, known=meaning, table=self.table, unlabelled=options.unlabelled)
        start = f"{self.path}: {reason}; it holds"
        free = [name for name in self.names if name not in {str(source) for source in known.values()}]
        if readings:
            return ValueError(f"{start} {listing(self.names)}: {_advise(readings)}")
        if not free and instead:
            return ValueError(f"{start} {listing(self.names)}: {instead}")
        looks = describe(columns, self.names) if columns else listing(self.names)
        mistakes = find_mistakes(columns)
        return ValueError(f"{start} {looks}: {advice}{mistakes and '; '}{mistakes}")


def _advise(readings: Sequence[Reading]) -> str:
    """The options of one reading, or of several with what tells them apart."""
    if len(readings) == 1:
        reason = f"; {readings[0].reason}" if readings[0].reason else ""
        return f"say which is which, probably {column_options(readings[0].columns, readings[0].positive)}{reason}"
    options = [
        " ".join(filter(None, (column_options(reading.columns, reading.positive), reading.reason)))
        for reading in readings
    ]
    return f"say which is which, either {', or '.join(options)}"


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
