"""Prediction sets on the terminal: sizes in sentences, coverage by class in a table."""

from __future__ import annotations

import numpy as np

from calibrant._numbers import count, percent, span
from calibrant.cli.console import print_table, say
from calibrant.selective import SetCounts

MOST_ROWS = 12


def print_set_counts(counts: SetCounts, class_names: tuple[str, ...] | None) -> None:
    """Sizes and coverage, in all and by class."""
    for sentence in counts.sentences(class_names):
        say(sentence)
    print_class_coverage(counts, class_names)


def print_class_coverage(counts: SetCounts, class_names: tuple[str, ...] | None) -> None:
    """The coverage of each class; of many classes, those where it is lowest."""
    present = np.flatnonzero(counts.class_samples).tolist()
    if not counts.labelled or len(present) < 2:
        return
    shares = {k: counts.class_coverage(k) for k in present}
    shown = present if len(present) <= MOST_ROWS else sorted(present, key=lambda k: shares[k].high)[:MOST_ROWS]
    rows = [
        [
            str(k) if class_names is None else class_names[k],
            count(counts.class_samples[k]),
            percent(shares[k].value),
            span(shares[k].low, shares[k].high, "share", shares[k].value),
        ]
        for k in shown
    ]
    few = "" if len(shown) == len(present) else f", the {len(shown)} lowest of {len(present)}"
    print_table(f"\nSets that hold the true class, by class{few}", ["", "samples", "hold it", "95% interval"], rows)
