"""What others call our columns: names that can mean one thing only, and options to propose where a name is not sure.

A truth is called ``y_true`` or ``target`` often enough to be taken for the labels, and ``prob`` says that it is a
probability. A ``score`` may be a probability, a logit or the confidence of the predicted class: that is never guessed,
but the error says the options that would read it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Collection, Sequence

#: What states the truth, by role; names are compared without regard to case.
CUSTOMARY_NAMES = {
    "labels": ("y_true", "true_label", "true_labels", "truth", "ground_truth", "target", "targets"),
    "predicted": ("y_pred", "pred", "prediction", "predicted_label", "predicted_class"),
}
#: What one column of two classes may be called.
ONE_COLUMN = {"logit": "logits"} | dict.fromkeys(
    (
        *("p", "prob", "proba", "probability", "y_prob", "y_proba", "pred_prob", "pred_proba", "y_pred_proba"),
        *("predict_proba", "predicted_probability"),
    ),
    "probabilities",
)
#: Beginnings of columns that are one per class and numbered, as ours are.
NUMBERED = ("prob", "proba", "probability")
_OF_A_CLASS = re.compile(r"(p|prob|proba|probability)(_[0-9]{1,9}|\(.+\))", re.IGNORECASE | re.DOTALL)
_LOGITS = re.compile(r"log_?prob|log_?softmax|log_?p$|logit|decision|margin", re.IGNORECASE)
_FURTHER = re.compile(
    r"|unnamed: 0|index|y|class|actual|split|fold|text|sentence|file|filename|path|name|image|date|time", re.IGNORECASE
)
#: What may be the truth, though not surely.
_PERHAPS_LABELS = ("labels", "label", *CUSTOMARY_NAMES["labels"], "y", "true", "class", "actual", "gt", "outcome")
MOST_LISTED = 8  # columns that a proposal lists
LONGEST_OPTIONS = 200  # characters


def customary(role: str, names: Collection[str]) -> list[str]:
    """The columns that custom has for a role: ours in other case, or other words for it."""
    words = {role, "label"} if role == "labels" else {role}
    words |= {*CUSTOMARY_NAMES.get(role, ())}
    return [name for name in names if name.lower() in words]


def one_column_kind(name: str) -> str:
    """What the only column of two classes holds, by its name: probabilities, logits, or empty where it does not say."""
    return ONE_COLUMN.get(name.lower(), "probabilities" if _OF_A_CLASS.fullmatch(name) else "")


def column_options(columns: dict[str, str | Sequence[str]]) -> str:
    """How to say, on the command line and in Python, which columns are what; names too long to repeat are left out."""
    texts = {role: value if isinstance(value, str) else ",".join(value) for role, value in columns.items()}
    words = " ".join(f"--column {shlex.quote(f'{role}={text}')}" for role, text in texts.items())
    if len(words) > LONGEST_OPTIONS or not words.isprintable():
        return " ".join(f"--column {role}=NAME" for role in columns)
    arguments = {role: value if isinstance(value, str) else list(value) for role, value in columns.items()}
    return f"{words} (in Python columns={json.dumps(arguments, ensure_ascii=False)})"


def propose(names: Sequence[str], *, table: bool) -> dict[str, str | Sequence[str]]:
    """Which columns probably are what, where none is called as ours are; empty where nobody can say.

    In a ``table`` the data may be several columns.

    Example:
        >>> propose(["y_true", "y_score"], table=True)
        {'labels': 'y_true', 'probabilities': 'y_score'}
    """
    truth = [name for role in _PERHAPS_LABELS for name in names if name.lower() == role]
    predicted = customary("predicted", names)
    if len(truth) > 1 and truth[0].lower() in ("label", "labels") and not predicted:
        # Pipelines call what they predict the label, and somebody has put the truth beside it.
        truth, predicted = truth[1:], truth[:1]
    present = set(names)
    pair = next((name[:-6] for name in names if name.endswith(".score") and f"{name[:-6]}.label" in present), None)
    if pair is not None and truth:  # what a pipeline says of one sample
        return {"labels": truth[0], "predicted": f"{pair}.label", "confidence": f"{pair}.score"}
    used = {*truth[:1], *predicted[:1]}
    others = [name for name in names if name not in used and not _is_further(name)]
    if not others:  # what is called a prediction may be a number
        others, predicted = predicted, []
    start: dict[str, str | Sequence[str]] = {"labels": truth[0]} if truth else {}
    if predicted and len(others) == 1:
        return start | {"predicted": predicted[0], "confidence": others[0]}
    if sum(bool(one_column_kind(name)) for name in others) > 1:  # of which one must be chosen
        others = others[:1]
    data = _data_columns(others, table=table)
    return start | {"logits" if all(map(_LOGITS.search, others)) else "probabilities": data} if data else {}


def _data_columns(others: Sequence[str], *, table: bool) -> str | Sequence[str]:
    """One column, a pattern, or a list of a few."""
    if len(others) < 2 or not table:
        return others[0] if len(others) == 1 else ""
    starts = [re.match(r".*?[_.(]", name) for name in others]
    counts = Counter(match[0] for match in starts if match)
    start, count = counts.most_common(1)[0] if counts else ("", 0)
    if count >= 2 and count >= len(others) - 2:
        return f"{start}*"
    return tuple(others) if len(others) <= MOST_LISTED else ""


def _is_further(name: str) -> bool:
    return bool(_FURTHER.fullmatch(name)) or name.lower() in ("id", "ids", "objectness", "correct") or "group." in name
