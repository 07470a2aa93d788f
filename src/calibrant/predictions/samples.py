"""The first values of the columns of a file, and what they look like: for errors about columns."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from calibrant.base.arrays import Array
from calibrant.base.checks import listing, printable, shorten
from calibrant.predictions.schema import CUSTOMARY_NAMES, SINGLE
from calibrant.predictions.values import verdict_of

#: Gives the first rows of columns: one array each, without those that cannot be read.
Peek: TypeAlias = Callable[[Sequence[str]], Mapping[str, Array]]

FIRST_ROWS = 2000
MOST_NUMBERS = 1_000_000
MOST_COLUMNS = 1000  # a wider file is only listed
MOST_CLASSES = 1000  # different labels of a column that may be one of classes
MOST_DESCRIBED = 10
LONGEST_SAMPLE = 200  # characters
FEW = 10  # rows of which all may differ by chance
#: What columns of scores, of the truth, of predicted classes, and others are often called.
SCORE_NAME = re.compile(
    r"prob|score|conf|likel|certain|sure|softmax|sigmoid|msp|(^|_)(p|pred|phat)($|[_(.])|output", re.I
)
TRUTH_NAMES = {*SINGLE["labels"], *CUSTOMARY_NAMES["labels"]}
TRUTH_NAMES |= {"y", "true", "class", "actual", "gt", "gold", "outcome", "expected", "reference", "answer_key"}
TRUTH_NAMES |= {"obs", "observed", "gold_label", "true_class", "actual_class", "correct_answer"}
PREDICTED_NAME = re.compile(
    r"(y_?)?pred(icted|iction)?s?(_(class|label|answer))?|y_?hat|argmax|answer|guess|output|response|.*\.label", re.I
)
_GRADES = ("right", "wrong", "correct", "incorrect")
_LOGARITHM = re.compile(r"log|(^|_)(ll|lp)($|_)", re.I)
METADATA_NAME = re.compile(
    r"|unnamed: 0|.*(^|_)ids?|index|idx|row|split|fold|text|sentence|file|filename|path|name|image|date|time|timestamp|"
    r"topic|task|category|domain|subject|source|group|site|sex|gender|cluster|model|language|seed|year|objectness|(sample_?)?weights?|"
    r"(is_?|was_?)?(wrong|incorrect|error|mistaken?|misclassified)|group\..*",
    re.I,
)


def rows_to_peek(numbers: int) -> int:
    """How many rows of so many numbers are read to see what columns look like."""
    return max(1, min(FIRST_ROWS, MOST_NUMBERS // max(1, numbers)))


def as_sample(values: Iterable[Any]) -> Array | None:
    """Values of a column as an array: numbers with NaN where one is missing, text with none there; None if neither."""
    values = list(values)
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool} and None not in values:
        return np.array(values)
    if kinds and kinds <= {int, float}:
        if kinds == {int} and None not in values and all(-(2**63) <= value < 2**63 for value in values):
            return np.array(values, np.int64)
        return np.array([math.nan if value is None else value for value in values], np.float64)
    if kinds and kinds <= {str, bool}:
        return np.array(["" if value is None else str(value)[:LONGEST_SAMPLE] for value in values])
    if kinds == {list} and len({len(value) for value in values if value is not None}) == 1:
        rows = [value for value in values if value is not None]
        is_number = all(type(number) in (int, float) for row in rows for number in row)
        return np.array(rows, np.float64) if is_number and len(rows) == len(values) else None
    return None


@dataclass(frozen=True)
class SampledColumn:
    """What the first values of a column look like; a missing one is NaN, or empty text."""

    name: str
    values: Array

    @functools.cached_property
    def present(self) -> Array:
        """Which rows have a value."""
        if self.values.ndim > 1:
            return np.asarray(np.isfinite(self.values).reshape(len(self.values), -1).all(1))
        return np.asarray(~np.isnan(self.values) if self.is_float else self.values != "")

    @property
    def is_text(self) -> bool:
        """Whether the values are text."""
        return self.values.dtype.kind == "U"

    @property
    def is_float(self) -> bool:
        """Whether the values are stored as floating point."""
        return self.values.dtype.kind == "f"

    @functools.cached_property
    def levels(self) -> list[Any]:
        """The different values."""
        return list(np.unique(self.values[self.present]).tolist())

    @functools.cached_property
    def is_whole(self) -> bool:
        """Whether the values are whole numbers or truth values."""
        return not self.is_text and all(float(level).is_integer() for level in self.levels)

    @property
    def is_id(self) -> bool:
        """Whether every row has another whole number or text."""
        return (self.is_text or self.is_whole) and len(self.levels) > max(FEW, 0.9 * int(self.present.sum()))

    @property
    def is_real(self) -> bool:
        """Whether the values are numbers of which some are no whole numbers, one per row and not all the same."""
        is_varied = len(self.levels) > 1 or len(self.values) < FEW
        return self.values.ndim == 1 and not self.is_text and not self.is_whole and is_varied

    @property
    def is_share(self) -> bool:
        """Whether the values are numbers in 0..1, and not only at its ends."""
        return self.is_real and self.levels[0] >= 0 and self.levels[-1] <= 1

    @property
    def is_high(self) -> bool:
        """Whether the values are shares that are never below one half."""
        return self.is_share and bool(self.levels[0] >= 0.5)

    @property
    def is_log_share(self) -> bool:
        """Whether the values may be logarithms of probabilities."""
        return self.is_real and self.levels[-1] <= 0

    @property
    def is_logit(self) -> bool:
        """Whether the values are numbers on both sides of 0."""
        return self.is_real and self.levels[0] < 0 < self.levels[-1]

    @property
    def is_class(self) -> bool:
        """Whether the values may be classes: few different whole numbers or texts."""
        if self.values.ndim > 1 or not (self.is_text or self.is_whole):
            return False
        least = 1 if len(self.values) < FEW else 2
        return least <= len(self.levels) <= MOST_CLASSES and not self.is_id

    @property
    def is_pair(self) -> bool:
        """Whether the values are two classes."""
        return self.values.ndim == 1 and (self.is_text or self.is_whole) and len(self.levels) == 2

    @property
    def is_verdict(self) -> bool:
        """Whether the values may say if a prediction was correct."""
        is_plain = self.values.ndim == 1 and 0 < len(self.levels) <= 12
        return is_plain and all(verdict_of(level) is not None for level in self.levels)

    @functools.cached_property
    def verdicts(self) -> Array:
        """Which values say that a prediction was correct."""
        return np.array([verdict_of(value) is True for value in self.values.tolist()])

    @property
    def is_grade(self) -> bool:
        """Whether the values are words that say whether an answer was correct, and are no classes."""
        return self.is_verdict and all(str(level).lower() in _GRADES for level in self.levels)

    @property
    def is_truth(self) -> bool:
        """Whether the column is called like the truth."""
        return self.name.lower() in TRUTH_NAMES

    @property
    def is_predicted(self) -> bool:
        """Whether the column is called like predicted classes."""
        return bool(PREDICTED_NAME.fullmatch(self.name))

    def name_level(self, level: Any) -> str:
        """A level as a caller writes it."""
        if self.values.dtype.kind == "b":
            return str(bool(level))
        return f"{level:.15g}" if self.is_float else str(level)

    def describe(self) -> str:
        """In a few words, for an error."""
        name = printable(shorten(self.name))
        if self.values.ndim > 1:
            shape = ", ".join(map(str, self.values.shape[1:]))
            return f"{name} (numbers [N, {shape}])"
        if not self.levels:
            return f"{name} (empty)"
        if self.is_id:
            return f"{name} ({'text' if self.is_text else 'whole numbers'}, another in each row)"
        if len(self.levels) == 1:
            return f"{name} (only {printable(shorten(self.name_level(self.levels[0])))})"
        if len(self.levels) <= 3 and not self.is_real:
            return f"{name} ({listing([self.name_level(level) for level in self.levels], 3)})"
        if self.is_text:
            return f"{name} (text, {len(self.levels)} different)"
        words = "whole numbers" if self.is_whole else "numbers"
        return f"{name} ({words} from {self.levels[0]:.4g} to {self.levels[-1]:.4g})"


def describe(columns: Mapping[str, Array], names: Sequence[str]) -> str:
    """The columns of a file with what their values look like."""
    texts = [
        SampledColumn(name, columns[name]).describe() if name in columns else name for name in names[:MOST_DESCRIBED]
    ]
    more = f" and {len(names) - len(texts)} more" if len(names) > len(texts) else ""
    return ", ".join(printable(text, 200) for text in texts) + more


def find_mistakes(columns: Mapping[str, Array]) -> str:
    """What to do with columns that are a confidence in another form; empty if there are none."""
    looks = [SampledColumn(name, values) for name, values in columns.items() if not METADATA_NAME.fullmatch(name)]
    logs = [
        look.name
        for look in looks
        if look.is_log_share and (_LOGARITHM.search(look.name) or SCORE_NAME.search(look.name))
    ]
    numbers = [look for look in looks if not look.is_text and look.levels and SCORE_NAME.search(look.name)]
    percentages = [look.name for look in numbers if look.levels[0] >= 0 and 10 < look.levels[-1] <= 100]
    texts = []
    if logs:
        texts.append(f"if {listing(logs[:1])} is a log-probability, exp() of it is a confidence: save that as a column")
    if percentages:
        texts.append(f"if {listing(percentages[:1])} is a percentage, divide it by 100")
    return "; ".join(texts)
