"""What the names of columns mean: one column per class, and errors where a name may mean several things.

Columns per class are numbered or named, ``logits_0`` or ``p_cat``; they are put into the order of the class names that
the caller gives. Errors name the options that would probably read the file.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibrant._validation import did_you_mean, find_closest, listing, shorten
from calibrant.predictions.schema import (
    CUSTOMARY_NAMES,
    DATA,
    PREDICTED,
    SINGLE,
    Codes,
    Names,
    Naming,
    are_positions,
    codes_of,
    customary,
    number_of,
    one_column_kind,
)

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
_DIGITS = re.compile("[0-9]{1,9}")


def per_class(names: Sequence[str], word: str, mark: str) -> list[str]:
    """Columns such as logits_0 (numbers only, so that logits_file is none) or logits.cat."""
    pattern = re.compile(re.escape(word) + (r"_[0-9]{1,9}" if mark == "_" else r"\..+"), re.DOTALL)
    return [column for column in names if pattern.fullmatch(column)]


def take_own_columns(
    names: Sequence[str], word: str, mark: str, holds: str, requested: Names | None, path: str
) -> tuple[Names, Naming]:
    """Columns named like ours, ``logits_0`` or ``logits.cat``: in order, with the class names that they imply.

    ``requested`` are the class names that the caller gives, if any, as for the functions that follow.
    """
    columns = per_class(names, word, mark)
    present = set(columns)
    unnumbered = [column for column in names if column.startswith(word + mark) and column not in present]
    if len(columns) == 1 and unnumbered:
        raise ValueError(
            f"{path}: holds {shorten(columns[0])} and {listing(unnumbered, 3)}, expected one column per class: "
            f"say which it is with {column_options({holds: columns[0]})}, or list all of them"
        )
    ordered, parts = _sort_columns(columns, [column[len(word) + 1 :] for column in columns], path)
    naming = Naming(parts, (parts,), codes_of_columns(parts))
    if mark == "_" and are_positions(parts):
        naming = Naming()
    return _rename(naming, ordered, requested, path, holds)


def take_matching_columns(
    columns: Sequence[str], pattern: str, holds: str, requested: Names | None, path: str
) -> tuple[Names, Naming]:
    """Columns that the caller chose by a pattern; the classes are named by what its wildcards match."""
    before = re.split(r"[*?\[]", pattern)[0].rstrip("0123456789")  # what begins or ends a number is part of it
    after = re.split(r"[*?\]]", pattern)[-1].lstrip("0123456789")
    ordered, parts = _sort_columns(columns, [c[len(before) : len(c) - len(after)] for c in columns], path)
    names = None if are_unsigned(parts) and are_positions(parts) else parts
    naming = Naming(names, _spellings(ordered, parts), codes_of_columns(parts))
    return _rename(naming, ordered, requested, path, holds)


def take_listed_columns(columns: Names, holds: str, requested: Names | None, path: str) -> tuple[Names, Naming]:
    """Columns that the caller listed."""
    repeated, count = Counter(columns).most_common(1)[0] if columns else ("", 0)
    if count != 1:
        actual = f"{shorten(repeated)!r} {count} times" if columns else "none"
        raise ValueError(f"{path}: columns must list different columns for {holds}, got {actual}")
    names, codes = _without_shared_words(columns), codes_of_columns(columns)
    bare = _without_ends(columns, _up_to_number)
    if codes is not None and all(number_of(part) is not None for part in bare) and names == columns:
        names = bare
    naming = Naming(names, _spellings(columns, names), codes)
    return _rename(naming, columns, requested, path, holds, listed=True)


def are_unsigned(parts: Sequence[str]) -> bool:
    """Whether all parts are numbers without a sign, so that they have an order."""
    return all(_DIGITS.fullmatch(part) for part in parts)


def _sort_columns(columns: Sequence[str], parts: Sequence[str], path: str) -> tuple[Names, Names]:
    """Columns and the parts of their names that differ, sorted by number if all are numbers."""
    if not are_unsigned(parts):
        return tuple(columns), tuple(parts)
    rows = sorted(zip(map(int, parts), columns, parts, strict=True))
    for (number, column, _), (next_number, next_column, _) in itertools.pairwise(rows):
        if number == next_number:
            names = f"{shorten(column)} and {shorten(next_column)}"
            raise ValueError(f"{path}: columns of classes must have different numbers, got {names}")
    return tuple(column for _, column, _ in rows), tuple(part for _, _, part in rows)


def codes_of_columns(names: Names) -> Codes | None:
    """The numbers in names that differ only by a number; or the numbers among names of any kind."""
    bare = _without_ends(names, _up_to_number)
    return codes_of(bare if all(number_of(part) is not None for part in bare) else names)


def _without_shared_words(columns: Names) -> Names:
    """p_cat, p_car as cat, car: without their shared words; unchanged if only numbers or nothing would be left."""
    parts = _without_ends(columns, lambda shared: len(shared) - len(re.split(r"_|[^\w\s]", shared)[-1]))
    return parts if all(parts) and not all(part.isdecimal() for part in parts) else columns


def _up_to_number(shared: str) -> int:
    """The length of a shared prefix without trailing digits, which may belong to a number."""
    start = shared.rstrip("0123456789")
    if start.endswith(".") and start[-2:-1].isdigit():
        start = start[:-1].rstrip("0123456789")
    return len(start)


def _without_ends(columns: Names, length: Callable[[str], int]) -> Names:
    """Names without the prefix and the suffix that they share; ``length`` says how much of each is removed."""
    for _ in "start", "end":  # the suffix is the prefix of the reversed names; the second round reverses them back
        low, high = min(columns), max(columns)
        shared = low[: next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]
        columns = tuple(column[length(shared) :][::-1] for column in columns)
    return columns


def _spellings(columns: Names, names: Names) -> tuple[Names, ...]:
    """Spellings of the classes in labels: names of columns, given names, and names without shared parts."""
    options = (columns, names, _without_shared_words(columns), _without_ends(columns, _up_to_number))
    return tuple(dict.fromkeys(option for option in options if all(option) and len(set(option)) == len(columns)))


def _rename(
    naming: Naming, columns: Names, requested: Names | None, path: str, holds: str, *, listed: bool = False
) -> tuple[Names, Naming]:
    """Match names that the caller gives with columns: by name, or else by number or in the order listed."""
    if requested is None:
        return columns, naming
    if len(requested) != len(columns):
        return columns, Naming(requested)  # refused by the check of the schema
    numbers = [number_of(part) for part in _without_ends(columns, _up_to_number)]
    has_numbers = all(number is not None for number in numbers)
    spellings = (*naming.spellings, *_spellings(columns, naming.names or columns), tuple(map(str, numbers)))
    matching = next((spelling for spelling in spellings if set(spelling) == set(requested)), None)
    if matching is not None:
        position = {name: i for i, name in enumerate(matching)}
        ordered = tuple(columns[position[name]] for name in requested)
        codes = codes_of_columns(ordered)
        unclear = "" if ordered == columns or codes else _unclear_reason(columns, requested)
        return ordered, Naming(requested, (requested,), codes, unclear=unclear)
    if listed:
        clear = naming.codes is None or any(number_of(name) is not None for name in requested) or not has_numbers
        unclear = "" if clear else _unclear_reason(columns, requested)
        return columns, Naming(requested, (requested,), codes_of(requested), unclear=unclear)
    if has_numbers and numbers == list(range(len(columns))) and codes_of(requested) is None:
        return columns, Naming(requested, (requested,))
    raise ValueError(
        f"{path}: class names must be those of the columns, {listing(columns, 5)}, got {listing(requested, 5)}: "
        f"list the columns in the same order to say which is which, --column {holds}=COLUMN,COLUMN,..."
    )


def _unclear_reason(columns: Names, requested: Names) -> str:
    return (
        f"must be text, as numbers may be those of the columns, {listing(columns, 5)}, or of the class names, "
        f"{listing(requested, 5)} (write the labels as text to say which)"
    )


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
