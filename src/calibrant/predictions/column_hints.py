"""Errors about the columns of a file, each with the options that would probably read it."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibrant._validation import did_you_mean, find_closest, listing, shorten
from calibrant.predictions.schema import CUSTOMARY_NAMES, DATA, PREDICTED, SINGLE, customary, one_column_kind

if TYPE_CHECKING:
    from calibrant.predictions.columns import OpenOptions

EXPECTED = "logits or probabilities with labels, or confidence with correct or with predicted and labels"
MOST_LISTED = 8  # columns that a proposal lists
LONGEST_OPTIONS = 200  # characters
_LOGITS = re.compile(r"log_?prob|log_?softmax|log_?p$|logit|decision|margin", re.IGNORECASE)
_METADATA = re.compile(
    r"|unnamed: 0|index|y|class|actual|split|fold|text|sentence|file|filename|path|name|image|date|time", re.IGNORECASE
)
#: Names that the labels may have.
_PERHAPS_LABELS = ("labels", "label", *CUSTOMARY_NAMES["labels"], "y", "true", "class", "actual", "gt", "outcome")


@dataclass(frozen=True)
class ColumnErrors:
    """Errors about the columns of one file; ``table`` is whether its data may be one column per class."""

    names: Sequence[str]
    options: OpenOptions
    path: str
    table: bool

    def absent(self, column: str, role: str) -> ValueError:
        """The error about a column that the caller names and the file does not have."""
        guess = did_you_mean(column, self.names) or ";"
        reason = f"no column {shorten(column)!r} (given as {role}){guess}"
        return ValueError(f"{self.path}: {reason} it holds {listing(self.names)}")

    def lacking(self, reason: str, role: str, aliases: Sequence[str] = ()) -> ValueError:
        """The error about a column of ours that the file does not have and the caller does not map."""
        mapped = {str(column) for column in self.options.columns.values()} | set(DATA)
        free = [column for column in self.names if column not in mapped]
        guess = next((match for alias in (role, *aliases) if (match := find_closest(alias, free))), "NAME")
        advice = f"say which it is, for example {column_options({role: guess})}"
        if not free:
            advice = f"save {role} in the same file"
        return ValueError(f"{self.path}: {reason}; it holds {listing(self.names)}: {advice}")

    def no_outcome(self) -> ValueError:
        """The error about confidences without a column for whether the predictions were correct."""
        reason = "confidence, but nothing that says whether it was right: correct, or predicted beside labels"
        columns = propose(self.names, table=self.table)
        if not {"labels", PREDICTED} <= set(columns):
            return self.lacking(reason, "correct")
        pair = {role: columns[role] for role in (PREDICTED, "labels")}
        advice = f"say which is which, probably {column_options(pair)}"
        return ValueError(f"{self.path}: {reason}; it holds {listing(self.names)}: {advice}")

    def no_data(self, requested: str | None) -> ValueError:
        """The error about a file without logits, probabilities or confidence, or without what the caller requested."""
        reason = "no logits, probabilities or confidence" if requested is None else f"no {requested}"
        mapped = {str(column) for column in self.options.columns.values()} | set(self.options.groups)
        columns = propose([name for name in self.names if name not in mapped], table=self.table)
        if self.names and all(re.fullmatch(r"[-+.0-9e]+", name) for name in self.names):
            return ValueError(f"{self.path}: the first line must name the columns, got {listing(self.names, 5)}")
        if self.names and all(re.fullmatch(r"arr_[0-9]+", name) for name in self.names):
            advice = "save them by name, np.savez('x.npz', logits=..., labels=...)"
            return ValueError(f"{self.path}: {reason}; it holds {listing(self.names)}: {advice}")
        if requested is not None or not columns:
            guess = next((name for name in DATA if find_closest(name, self.names)), "logits")
            return self.lacking(f"{reason}, expected {EXPECTED}", requested or guess)
        if columns.get("labels") in SINGLE["labels"]:
            del columns["labels"]
        columns = {role: column for role, column in columns.items() if role not in self.options.columns}
        data = columns.get("probabilities")
        advice = f"say which is which, probably {column_options(columns)}"
        if data is not None:
            advice += ", or logits= if they are logits"
        if isinstance(data, str) and "*" not in data:
            advice += "; of one column for two classes, --positive NAME says which class it is of"
        return ValueError(f"{self.path}: {reason}; it holds {listing(self.names)}: {advice}")


def column_options(columns: dict[str, str | Sequence[str]]) -> str:
    """The options, for the command line and for Python, that map columns; names too long to repeat are left out."""
    texts = {role: value if isinstance(value, str) else ",".join(value) for role, value in columns.items()}
    words = " ".join(f"--column {shlex.quote(f'{role}={text}')}" for role, text in texts.items())
    if len(words) > LONGEST_OPTIONS or not words.isprintable():
        return " ".join(f"--column {role}=NAME" for role in columns)
    arguments = {role: value if isinstance(value, str) else list(value) for role, value in columns.items()}
    return f"{words} (in Python columns={json.dumps(arguments, ensure_ascii=False)})"


def propose(names: Sequence[str], *, table: bool) -> dict[str, str | Sequence[str]]:
    """Guess the meaning of columns with other names than ours; empty if there is no guess.

    In a ``table`` the data may be several columns.

    Example:
        >>> propose(["y_true", "y_score"], table=True)
        {'labels': 'y_true', 'probabilities': 'y_score'}
    """
    truth = [name for role in _PERHAPS_LABELS for name in names if name.lower() == role]
    predicted = customary("predicted", names)
    if len(truth) > 1 and truth[0].lower() in ("label", "labels") and not predicted:
        # Pipelines call their prediction "label"; the truth was added beside it.
        truth, predicted = truth[1:], truth[:1]
    present = set(names)
    pair = next((name[:-6] for name in names if name.endswith(".score") and f"{name[:-6]}.label" in present), None)
    if pair is not None and truth:  # the output of a pipeline for one sample
        return {"labels": truth[0], "predicted": f"{pair}.label", "confidence": f"{pair}.score"}
    assigned = {*truth[:1], *predicted[:1]}
    candidates = [name for name in names if name not in assigned and not _is_metadata(name)]
    if not candidates:  # what is called a prediction may be a number
        candidates, predicted = predicted, []
    start: dict[str, str | Sequence[str]] = {"labels": truth[0]} if truth else {}
    if predicted and len(candidates) == 1:
        return start | {"predicted": predicted[0], "confidence": candidates[0]}
    if sum(bool(one_column_kind(name)) for name in candidates) > 1:  # of which one must be chosen
        candidates = candidates[:1]
    data = _data_columns(candidates, table=table)
    return start | {"logits" if all(map(_LOGITS.search, candidates)) else "probabilities": data} if data else {}


def _data_columns(names: Sequence[str], *, table: bool) -> str | Sequence[str]:
    """One column, a pattern, or a list of a few."""
    if len(names) < 2 or not table:
        return names[0] if len(names) == 1 else ""
    starts = [re.match(r".*?[_.(]", name) for name in names]
    counts = Counter(match[0] for match in starts if match)
    start, count = counts.most_common(1)[0] if counts else ("", 0)
    if count >= 2 and count >= len(names) - 2:
        return f"{start}*"
    return tuple(names) if len(names) <= MOST_LISTED else ""


def _is_metadata(name: str) -> bool:
    return bool(_METADATA.fullmatch(name)) or name.lower() in ("id", "ids", "objectness", "correct") or "group." in name
