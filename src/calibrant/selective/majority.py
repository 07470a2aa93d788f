"""The majority class: what always answering it would be worth, beside what a policy promises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from calibrant._numbers import allowed, percent
from calibrant._validation import Ints
from calibrant.predictions import Predictions

RIVAL = 0.5  # an error of the constant answer above this is no rival to anything


def count_labels(batches: Iterable[Predictions], counts: Ints) -> Iterator[Predictions]:
    """Pass batches on, and add to ``counts`` how many labels of each class they have."""
    for batch in batches:
        labels = batch.labels.reshape(-1)
        if batch.ignore_index is not None:
            labels = labels[labels != batch.ignore_index]
        counts += np.bincount(labels, minlength=len(counts))
        yield batch


def describe_majority(counts: Ints) -> dict[str, Any]:
    """The most frequent class by its position, and how often always answering it is wrong."""
    total = int(counts.sum())
    return {"class": int(np.argmax(counts)), "error": (total - int(counts.max())) / total if total else None}


def majority_words(
    majority: Mapping[str, Any], names: tuple[str, ...] | None, promised: float | None, seen: float
) -> str:
    """The error of the constant answer, and a warning where the policy is worth no more; empty where it is no rival.

    Args:
        majority: as `describe_majority` gives it.
        names: of the classes.
        promised: the risk that the policy promises, if it does.
        seen: the share of its answers that were wrong.
    """
    error, number = majority.get("error"), majority.get("class")
    if not isinstance(error, float) or not isinstance(number, int) or error > RIVAL:
        return ""
    name = names[number] if names is not None and number < len(names) else str(number)
    if error == 0:
        return f"Warning: all labels are {name}: nothing was learnt about other classes, and no promise is about them."
    text = f"Always answering {name} would be wrong in {percent(error)} of all samples."
    if promised is not None and promised >= error:
        worth = f"The promise of at most {allowed(promised)} is no better"
        return f"Warning: {text} {worth}: ask for a target risk below that error."
    if seen >= error:
        return f"Warning: {text} The policy's answers are wrong no less often, {percent(seen)}."
    return text
