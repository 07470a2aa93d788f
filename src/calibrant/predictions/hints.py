"""What the columns of a file look like and probably mean, by their first values: for errors about columns.

A hint names a column for a role only if its first rows fit that role: a confidence lies in 0..1 and is not lower where
the prediction is right, probabilities of classes sum to 1, labels are few, a prediction is no probability. Names choose
between columns whose values fit. Where the values fit two meanings both are proposed, with what tells them apart; where
they fit none there is no proposal, and the columns are described instead. Every proposal was tried on the first rows.
Without values, as of a file that is too wide, an error lists the columns alone.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from calibrant.base.arrays import Array
from calibrant.base.checks import FARTHEST_SUM, did_you_mean, listing, printable, shorten
from calibrant.predictions.data import DATA
from calibrant.predictions.schema import (
    CUSTOMARY_NAMES,
    CUSTOMARY_PAIRS,
    PREDICTED,
    SINGLE,
    OpenOptions,
    column_options,
    customary,
    one_column_kind,
)
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


# ---- proposals ------------------------------------------------------------------------------------------------------
Columns: TypeAlias = dict[str, str | Sequence[str]]

MOST_READINGS = 3
MOST_TRIED = 12  # columns or groups of them that are tried for one role, those with likely names first
_CONFIDENCE = re.compile(r"conf|certain|sure|msp|max_?(soft)?_?prob|top_?1?_?prob", re.I)
_NO_SCORE = re.compile(r"entropy|uncertain|variance|(^|_)(std|nll|loss|error|energy|distance|age|time)($|_)", re.I)
_VERDICT = re.compile(
    r"(is_?|was_?)?(correct|right|hit|match|matched|ok|accurate|passed|verdict)(ness)?|acc|accuracy|em|exact_match",
    re.I,
)
_LOGIT = re.compile(r"logit|margin|decision|raw|log_?(prob|lik|softmax|odds)|^z(_|$|[0-9])", re.I)
_LOGIT_OR_SCORE = re.compile(f"{_LOGIT.pattern}|{SCORE_NAME.pattern}", re.I)
_PARTS = (r"[^_.( ]+\)?$", r"^[^_. ]+", r"[0-9]+$")  # of names of columns that may be a class


@dataclass(frozen=True)
class Reading:
    """One meaning of the columns of a file: ours to the file's, the positive class, and what speaks for it."""

    columns: Columns
    positive: str = ""
    reason: str = ""


def propose(
    columns: Mapping[str, Array],
    *,
    known: Mapping[str, str | Sequence[str]] | None = None,
    table: bool = True,
    unlabelled: bool = False,
) -> list[Reading]:
    """The meanings that the first rows of columns fit, at most a few; none if there is no meaning that is likely.

    Args:
        columns: the first values of columns, by name.
        known: our names to those of columns whose meaning is known.
        table: whether the data may be one column per class.
        unlabelled: whether labels may be missing.

    Example:
        >>> import numpy as np
        >>> churn, p = np.array([0, 1, 0, 1]), np.array([0.1, 0.8, 0.3, 0.4])
        >>> propose({"id": np.arange(4), "churn": churn, "churn_probability": p})[0].columns
        {'labels': 'churn', 'probabilities': 'churn_probability'}
    """
    known = dict(known or {})
    taken = {name for value in known.values() for name in ([value] if isinstance(value, str) else value)}
    looks = {name: SampledColumn(name, values) for name, values in columns.items()}
    free = [look for look in looks.values() if look.name not in taken]
    readings = []
    if "confidence" not in known and not {"correct", "predicted"} & known.keys():
        readings = _read_classes(free, looks, known, table=table, unlabelled=unlabelled)
    if not readings:
        readings = _read_scores(free, looks, known, unlabelled=unlabelled)
    readings = [reading for reading in readings if _accuracy(reading, known, columns, unlabelled) is not None]
    names = list(columns)
    readings = [replace(reading, columns=_without_own_names(reading.columns, names)) for reading in readings]
    return readings if len(readings) <= MOST_READINGS else []


def _without_own_names(roles: Columns, names: Sequence[str]) -> Columns:
    """The roles that must be said: a column that is called like its role, and the only one, is found by itself."""
    found = {role for role in roles if roles[role] in SINGLE.get(role, ()) and len(customary(role, names)) == 1}
    return {role: column for role, column in roles.items() if role not in found} or roles


def _read_classes(
    free: Sequence[SampledColumn], looks: Mapping[str, SampledColumn], known: Columns, *, table: bool, unlabelled: bool
) -> list[Reading]:
    """Readings in which there is a number per class and row."""
    columns = {name: look.values for name, look in looks.items()}
    groups: list[Columns] = [{role: source} for role, source in _class_groups(free, looks, table=table)]
    if {"probabilities", "logits"} & known.keys():
        groups = [{}]
    for group in groups[:MOST_TRIED]:
        if "labels" in known or unlabelled:
            reading = Reading(group)
            if group and _accuracy(reading, known, columns, unlabelled) is not None:
                return [reading]
        elif readings := _with_labels(group, free, columns, known):
            return readings
    return []


def _with_labels(
    group: Columns, free: Sequence[SampledColumn], columns: Mapping[str, Array], known: Columns
) -> list[Reading]:
    """The readings of columns of classes that have labels: columns whose values their largest numbers agree with."""
    used = {name for name in columns if any(_is_source(name, source) for source in group.values())}
    candidates = [
        look
        for look in free
        if look.name not in used
        and look.values.ndim == 1
        and (look.is_text or look.is_whole)
        and (look.is_truth or not (look.is_id or METADATA_NAME.fullmatch(look.name) or _VERDICT.fullmatch(look.name)))
    ]
    readings = []
    for look in sorted(candidates, key=lambda look: not look.is_truth)[:MOST_TRIED]:
        reading = Reading({"labels": look.name} | group)
        accuracy = _accuracy(reading, known, columns, unlabelled=False)
        if accuracy is not None:
            readings.append((look, accuracy, reading))
    truths = [entry for entry in readings if entry[0].is_truth] or [e for e in readings if not e[0].is_predicted]
    if len(truths) > 1:  # what the scores agree with in all rows is the prediction
        truths = [entry for entry in truths if entry[1] < 1] or truths
    # Sums of 1 are evidence enough that numbers are of classes; others must know something about the labels.
    is_few = len(next(iter(columns.values()))) < 3 * FEW
    trusted = "logits" not in group or (is_few and any(map(_LOGIT.search, used)))
    return [
        reading for look, accuracy, reading in truths if _beats_chance(look, accuracy) or (look.is_truth and trusted)
    ]


def _class_groups(
    free: Sequence[SampledColumn], looks: Mapping[str, SampledColumn], *, table: bool
) -> list[tuple[str, str | Sequence[str]]]:
    """Columns that may be one number per class, with what they hold by their values; the most certain first."""
    groups: list[tuple[str, str | Sequence[str]]] = []
    for look in free:
        if look.values.ndim == 2 and look.values.shape[1] > 1 and (holds := _hold(look.values)):
            groups.append((holds, look.name))
    numbers = [look for look in free if look.values.ndim == 1 and not look.is_text and look.values.dtype.kind == "f"]
    numbers = [look for look in numbers if not METADATA_NAME.fullmatch(look.name)]
    if table and len(numbers) > 1:
        starts: dict[str, list[str]] = {}
        for look in numbers:
            for pattern in dict.fromkeys(re.sub(part, "*", look.name) for part in _PARTS):
                if pattern.strip("*") and pattern.count("*") == 1 and not re.search(r"[\[\]?]", pattern):
                    starts.setdefault(pattern, []).append(look.name)
        levels = {str(level) for look in free if look.is_class and look.is_text for level in look.levels}
        candidates: list[tuple[str | Sequence[str], list[str]]] = [
            (pattern, names)
            for pattern, names in starts.items()
            if len(names) > 1 and names == [name for name in looks if fnmatch.fnmatchcase(name, pattern)]
        ]
        named = [look.name for look in numbers if look.name in levels]
        candidates += [(tuple(names), names) for names in (named, [look.name for look in numbers]) if len(names) > 1]
        for source, names in candidates:
            values = np.stack([looks[name].values for name in names], axis=1)
            holds = _hold(values)
            # A common word of embeddings and features does not make them logits.
            is_named = names == named if isinstance(source, tuple) else any(map(_LOGIT_OR_SCORE.search, names))
            if holds == "probabilities" or (holds and is_named):
                groups.append((holds, source))
    return sorted(groups, key=lambda group: group[0] != "probabilities")


def _hold(values: Array) -> str:
    """Probabilities if rows lie in 0..1 and sum to 1, logits if some are negative; empty if it is something else."""
    rows = values[np.isfinite(values).all(1)].astype(np.float64)
    if not (rows != np.rint(rows)).any():  # counts, or one column per class with a single 1
        return ""
    if rows.min() < 0:
        return "logits"
    return "probabilities" if rows.max() <= 1 and (np.abs(rows.sum(1) - 1) <= FARTHEST_SUM).all() else ""


def _read_scores(
    free: Sequence[SampledColumn], looks: Mapping[str, SampledColumn], known: Columns, *, unlabelled: bool
) -> list[Reading]:
    """Readings in which there is one number per row: of the positive class, or of the predicted one."""
    data = next((str(known[role]) for role in DATA if role in known), None)
    if data is not None:
        scores = [looks[data]] if data in looks and looks[data].values.ndim == 1 else []
    else:
        scores = [s for s in free if (s.is_share or s.is_logit) and not METADATA_NAME.fullmatch(s.name)]
        scores = [score for score in scores if not _NO_SCORE.search(score.name)]
    readings = []
    for score in sorted(scores, key=lambda score: not SCORE_NAME.search(score.name))[:MOST_TRIED]:
        others = [look for look in looks.values() if look.name != score.name and (look.is_class or look.is_verdict)]
        others = sorted(others, key=lambda look: not _is_outcome(look, score, known))[: 2 * MOST_TRIED]
        found = _outcomes(score, others, known)
        if not found and unlabelled and score.is_share and SCORE_NAME.search(score.name):
            found = [(1, Reading({"probabilities": score.name}, reason="if it is of the positive class"))]
            found.append((1, Reading({"confidence": score.name}, reason="if it is of the predicted class")))
        readings += [(rank + 2 * bool(SCORE_NAME.search(score.name)), reading) for rank, reading in found]
    best = max((rank for rank, _ in readings), default=0)
    readings = [(rank, reading) for rank, reading in readings if rank == best]
    # Logits of which some are higher for one class and some for the other are one column per class.
    positives = {reading.positive for _, reading in readings if "logits" in reading.columns}
    return [reading for _, reading in readings if "logits" not in reading.columns or len(positives) == 1]


def _outcomes(score: SampledColumn, others: Sequence[SampledColumn], known: Columns) -> list[tuple[int, Reading]]:
    """The likely readings of one number per row, each with how much its names speak for it."""
    start: Columns = {} if "confidence" in known else {"confidence": score.name}
    of_class = bool({"probabilities", "logits"} & known.keys())
    readings = [] if of_class else _compared(score, others, known, start)
    if readings or readings is None:
        return [(3, reading) for reading in readings or ()]
    ranked: list[tuple[int, Reading]] = []
    for look in others:
        role = next((role for role, column in known.items() if column == look.name), "")
        others_fixed = {"labels", "correct"} & known.keys()
        if (others_fixed and role not in others_fixed) or (not role and METADATA_NAME.fullmatch(look.name)):
            continue
        is_named_verdict = bool(_VERDICT.fullmatch(look.name)) or look.is_grade
        if of_class and is_named_verdict and role != "labels":
            continue
        is_verdict = look.is_verdict and role != "labels" and not look.is_predicted and not of_class
        is_right = not of_class and (is_named_verdict or role == "correct")
        stems = [look.name, *(str(level) for level in look.levels if look.is_text and look.is_pair)]
        names_score = any(_is_stem(stem, score.name) for stem in stems)
        if is_right and look.is_verdict and score.is_share:
            is_implied = any(_follows(look, score, other) for other in others if other.is_pair and other is not look)
            reading = None if is_implied else _as_confidence(score, look, start, known)
            ranked += [(4, reading)] if reading else []
        elif look.is_pair and not is_right and "confidence" not in known and not look.is_predicted:
            reading = _as_positive(score, look, known)
            named = look.is_truth or role == "labels" or names_score
            z = _rank_auc(score.values, look.values == look.levels[1], score.present & look.present)[1]
            if reading is None or not (named or is_verdict or abs(z) > 5):
                continue
            rank = 3 if named else 2
            ranked.append((rank, reading))
            if is_verdict and score.is_share and (score.is_high or not named or _CONFIDENCE.search(score.name)):
                both = _tell_apart(reading, _as_confidence(score, look, start, known), score, look)
                ranked = [*ranked[:-1], *((rank, option) for option in both)]
        elif "confidence" in known and look.is_verdict and not look.is_predicted and role != "labels":
            reading = _as_confidence(score, look, start, known)
            ranked += [(2, reading)] if reading else []
    best = max((rank for rank, _ in ranked), default=0)
    return [entry for entry in ranked if entry[0] == best]


def _is_outcome(look: SampledColumn, score: SampledColumn, known: Columns) -> bool:
    """Whether the name of a column speaks for it as the truth, the prediction, or whether that was right."""
    is_named = look.is_truth or look.is_predicted or _VERDICT.fullmatch(look.name) or look.name in known.values()
    return bool(is_named) or _is_stem(look.name, score.name)


def _compared(
    score: SampledColumn, others: Sequence[SampledColumn], known: Columns, start: Columns
) -> list[Reading] | None:
    """Readings with a predicted and a true class, whose agreement says what is correct; None if they never agree."""
    truths = [look for look in others if look.is_class and (look.is_truth or known.get("labels") == look.name)]
    predicted = [
        look for look in others if look.is_class and (look.is_predicted or known.get("predicted") == look.name)
    ]
    if len(truths) > 1 and not predicted:  # pipelines call their prediction "label"; the truth was added beside it
        predicted = [look for look in truths if look.name.lower() in SINGLE["labels"]]
        truths = [look for look in truths if look not in predicted]
    truths = [look for look in truths if look not in predicted]
    if len(truths) != 1 or len(predicted) != 1 or not score.is_share:
        return []
    (truth,), (said,) = truths, predicted
    if not {truth.name_level(level) for level in truth.levels} & {said.name_level(level) for level in said.levels}:
        return None
    roles = {"labels": truth.name, "predicted": said.name} | start
    roles = {role: column for role, column in roles.items() if role not in known}
    right = np.array(
        [
            truth.name_level(a) == said.name_level(b)
            for a, b in zip(truth.values.tolist(), said.values.tolist(), strict=True)
        ]
    )
    confidence = Reading(roles)
    is_confidence = _rank_auc(score.values, right, score.present)[1] > -3
    if not (truth.is_pair and said.is_pair) or "confidence" in known:
        return [confidence] if is_confidence else []
    positive = _as_positive(score, truth, known)
    # Of the positive class, what is predicted follows from the score: one class above a threshold, the other below.
    high, low = (score.values[chosen] for chosen in (said.values == said.levels[1], said.values == said.levels[0]))
    follows = high.min() >= low.max() or low.min() >= high.max()
    if positive is not None and follows and not score.is_high:
        return [positive]
    if positive is None or not follows:
        return [confidence] if is_confidence else []
    return [
        Reading(positive.columns, positive.positive, f"if {shorten(score.name)} is of the positive class"),
        Reading(confidence.columns, "", f"if {shorten(score.name)} is of the predicted class"),
    ]


def _follows(verdict: SampledColumn, score: SampledColumn, truth: SampledColumn) -> bool:
    """Whether a verdict is what a probability of one of two classes gives at one half: then it is no confidence."""
    said, actual = score.values > 0.5, truth.values == truth.levels[1]
    return not score.is_high and len({*((said == actual) == verdict.verdicts).tolist()}) == 1


def _as_confidence(score: SampledColumn, look: SampledColumn, start: Columns, known: Columns) -> Reading | None:
    """The score as a confidence, and the other column as whether it was right; None if it is lower where it is."""
    rows = score.present & look.present
    auc, z = _rank_auc(score.values, look.verdicts, rows)
    is_near = auc >= 0.6 and abs(float(score.values[rows].mean()) - float(look.verdicts[rows].mean())) <= 0.2
    if z < -3 or not (is_near or SCORE_NAME.search(score.name)):
        return None
    roles = {"correct": look.name} | start
    return Reading({role: column for role, column in roles.items() if role not in known})


def _as_positive(score: SampledColumn, look: SampledColumn, known: Columns) -> Reading | None:
    """The score as that of one of two classes; None if it has nothing to do with them."""
    rows = score.present & look.present
    auc, z = _rank_auc(score.values, look.values == look.levels[1], rows)
    named = bool(SCORE_NAME.search(score.name)) or _is_stem(look.name, score.name)
    if score.is_share:
        # Without a name that says so, it must rank the classes well and be as large as they are frequent.
        rate = float((look.values[rows] == look.levels[int(auc >= 0.5)]).mean())
        is_fitting = named or (abs(auc - 0.5) >= 0.2 and abs(float(score.values[rows].mean()) - rate) <= 0.15)
        if score.is_high and not look.is_verdict:  # it would always say the same class
            return None
    else:
        is_fitting = score.is_logit and abs(auc - 0.5) >= 0.1 and (named or bool(_LOGIT.search(score.name)))
    if not is_fitting or (rows.sum() >= 200 and abs(z) < 2):
        return None
    levels = [look.name_level(level) for level in look.levels]
    custom = next(
        (pair[1] for pair in CUSTOMARY_PAIRS if sorted(pair) == sorted(level.lower() for level in levels)), None
    )
    higher = levels[1] if auc >= 0.5 else levels[0]
    positive, reason = "", ""
    if custom is None or (higher.lower() != custom and z**2 > 9):
        positive = higher
        reason = f"{shorten(score.name)} is higher where {shorten(look.name)} is {printable(shorten(higher))}"
    roles = {"labels": look.name, "probabilities" if score.is_share else "logits": score.name}
    return Reading({role: column for role, column in roles.items() if role not in known}, positive, reason)


def _tell_apart(
    positive: Reading, confidence: Reading | None, score: SampledColumn, look: SampledColumn
) -> list[Reading]:
    """Both readings of a share beside a column of 0 and 1, with what each would mean."""
    if confidence is None:
        return [] if score.is_high else [positive]
    name, other = (printable(shorten(part)) for part in (score.name, look.name))
    bound = (
        "all its values are at least 0.5, as those"
        if score.is_high
        else "some of its values are below 0.5, unlike those"
    )
    of_class = f"if {name} is the probability of a class and {other} says whether it was that class"
    of_answer = (
        f"if {name} is how sure the model was and {other} says whether it was right ({bound} of a model of two classes)"
    )
    return [
        Reading(positive.columns, positive.positive, of_class),
        Reading(confidence.columns, confidence.positive, of_answer),
    ]


def _is_stem(name: str, score: str) -> bool:
    """Whether a score is named after a column: churn and churn_probability, is_fraud and p_fraud."""
    stem = re.escape(re.sub(r"^(is|was|has|will)_", "", name.lower()))
    return len(stem) > 1 and bool(re.search(rf"(^|[^a-z0-9]){stem}($|[^a-z0-9])", score.lower()))


def _rank_auc(values: Array, chosen: Array, present: Array) -> tuple[float, float]:
    """The area under the ROC curve, ties shared, and its distance from 0.5 in standard errors of chance."""
    values, chosen = values[present], chosen[present]
    _, ranks, counts = np.unique(values, return_inverse=True, return_counts=True)
    average = np.cumsum(counts) - (counts - 1) / 2
    positives = int(chosen.sum())
    negatives = len(chosen) - positives
    if not positives or not negatives:
        return 0.5, 0.0
    auc = (average[ranks][chosen].sum() - positives * (positives + 1) / 2) / (positives * negatives)
    return float(auc), float((auc - 0.5) / math.sqrt((len(values) + 1) / (12 * positives * negatives)))


def _beats_chance(look: SampledColumn, accuracy: float) -> bool:
    """Whether an accuracy is better than that of always saying the most frequent label."""
    _, counts = np.unique(look.values[look.present], return_counts=True)
    share, rows = counts.max() / counts.sum(), counts.sum()
    return bool(accuracy > share + 2 * math.sqrt(share * (1 - share) / rows))


def _accuracy(reading: Reading, known: Columns, columns: Mapping[str, Array], unlabelled: bool) -> float | None:
    """The accuracy of a reading on the first rows; None if they cannot be read so."""
    import pyarrow as pa  # here, because most errors need no values

    from calibrant.predictions.formats.tables import from_frame
    from calibrant.predictions.schema import check_options

    roles = {**known, **reading.columns}
    used = [name for name in columns if any(_is_source(name, source) for source in roles.values())]  # classes in order
    if not used:
        return None
    present = np.logical_and.reduce([SampledColumn(name, columns[name]).present for name in used])
    arrays = {}
    for name in used:
        rows = columns[name][present]
        arrays[name] = pa.array(list(rows.astype(np.float64))) if rows.ndim == 2 else pa.array(rows)
    facts = {"positive": reading.positive or None}
    try:
        # Without hints about hints: where columns are lacking, that would go on for hours.
        options = check_options(roles, None, facts, unlabelled=unlabelled)
        store = from_frame(pa.table(arrays), options, has_hints=False)
    except (ValueError, pa.ArrowException):
        return None
    if "correct" in store.names:
        return float(store.column("correct").mean())
    if "labels" not in store.names:
        return 0.0
    scores, labels = store.column(store.schema.holds), store.column("labels")
    if store.schema.holds == "logits" and any(
        _rank_auc(column, labels == k, labels >= 0)[1] < -3 for k, column in enumerate(scores.T)
    ):
        return None  # such as two models' scores of one class
    return float((scores.argmax(1) == labels).mean())


def _is_source(name: str, source: str | Sequence[str]) -> bool:
    """Whether a column is among those that are given for a role."""
    return name == source or fnmatch.fnmatchcase(name, source) if isinstance(source, str) else name in source


# ---- errors ---------------------------------------------------------------------------------------------------------
EXPECTED = "logits or probabilities with labels, or confidence with correct or with predicted and labels"


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
