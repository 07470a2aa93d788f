"""The answers that are expected of a graph, from predictions, decisions or labels; and the check against them.

Expected predictions go through the policy itself, so that label, decision and probabilities of every row are compared:
what `calibrant apply` would have said about them is what the graph must say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.base.arrays import Array, as_numpy
from calibrant.base.checks import Bools, Ints, listing
from calibrant.base.numbers import count, significant
from calibrant.export.agreement import find_order, order_words, read_labels
from calibrant.export.inputs import read_inputs
from calibrant.export.verify import CLOSE, Agreement, AnswerRows
from calibrant.metrics import Doubles
from calibrant.policy import Decisions, Policy
from calibrant.predictions import Predictions

FAR = 0.01  # of probabilities and confidences that differ by more than float32 and rounded decimals explain
MOST_DIFFERING = 0.01  # of the rows: float32 moves some over a tree's threshold
DATA = ("logits", "probabilities", "confidence")
LABELS = ("predicted", "label", "labels")  # beside values of `DATA` the last two would be the true ones
TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")


@dataclass(frozen=True)
class ExpectedRows:
    """What is expected of the rows of the inputs: values that the policy takes, or labels and perhaps more."""

    title: str
    rows: int
    values: Array | None = None  # [N, C, ...]
    group: Array | None = None  # [N], the numbers of the groups, where the policy has them
    label: Ints | None = None  # [N, ...]
    confidence: Doubles | None = None
    accept: Bools | None = None

    def check_rows(self, rows: int) -> None:
        """Raise unless there is one expected answer for each row of the inputs."""
        if self.rows != rows:
            raise ValueError(
                f"{self.title} must be about the rows of the inputs, in their order: it has {count(self.rows)} rows, "
                f"the inputs {count(rows)}"
            )


def to_expected(policy: Policy, source: Any) -> ExpectedRows:
    """What a caller expects: predictions, decisions, an array of labels, or the path of a file of one of these.

    The labels of decisions are positions, as `Policy.decide` gives them, or names; those alone are read as
    `label_output` has it.
    """
    title = "the expected answers"
    if isinstance(source, str | Path):
        title, path = str(source), Path(source)
        source = read_decisions(path)
        if source is None:
            names = None if policy.class_names is None else list(policy.class_names)
            source = Predictions.open(path, class_names=names, positive=policy.positive_name, unlabelled=True)
    if isinstance(source, Predictions):
        policy.check(source)
        loaded, title = source.load(), next(iter(source.files), title)
        group = None if policy.group is None else policy.group_numbers(loaded.groups[policy.group])
        return ExpectedRows(title, len(loaded), getattr(loaded, policy.takes), group)
    is_decided = isinstance(source, Decisions)
    labels, confidence, accept = (
        None if values is None else as_numpy("expected", values)[0]
        for values in (source if is_decided else (source, None, None))
    )
    assert labels is not None
    classes = policy.num_classes
    if labels.dtype.kind in "iu" and (is_decided or policy.class_names is None):
        label = labels.astype(np.int64) if labels.size and 0 <= labels.min() <= labels.max() < classes else None
    else:
        label = read_labels(policy, labels, None) if labels.dtype.kind in "iuOSU" else None
    if label is None:
        raise ValueError(
            f"{title}: labels must be class names or positions from 0 to {classes - 1}, got {labels.dtype} "
            f"{listing(np.unique(labels)[:6].tolist(), 5)}"
        )
    label = label.reshape(labels.shape)
    for name, values in (("confidence", confidence), ("accept", accept)):
        if values is not None and values.shape != label.shape:
            raise ValueError(f"{title}: {name} must be {list(label.shape)} like the labels, got {list(values.shape)}")
    return ExpectedRows(title, len(label), None, None, label, confidence, None if accept is None else accept != 0)


def read_decisions(path: Path) -> Decisions[Any] | Array | None:
    """Decisions of `calibrant apply`, or the array of labels alone; None where a file holds neither."""
    if path.suffix.lower() in (".npz", ".npy") and path.is_file():
        return _decisions_in_arrays(read_inputs(path, only=(*DATA, "accept", *LABELS)))
    if not path.name.lower().endswith(TABLES):
        return None
    for label in ("class_name", "label"):
        # As confidences whose predictions are compared with themselves, so that the readers of predictions read them.
        columns = {"confidence": "confidence", "predicted": label, "labels": label}
        try:
            predictions = Predictions.open(path, columns=columns, groups=["accept", label], unlabelled=True).load()
        except ValueError:
            continue
        accept, labels = predictions.groups["accept"], predictions.groups[label]
        accept = accept != 0 if accept.dtype.kind in "iu" else np.char.lower(accept) == "true"
        return Decisions(labels.astype(str) if label == "class_name" else labels, predictions.confidence, accept)
    return None


def _decisions_in_arrays(arrays: Array | dict[str, Array]) -> Decisions[Any] | Array | None:
    if not isinstance(arrays, dict):
        return arrays if arrays.dtype.kind in "iuU" else None
    if "accept" in arrays and "label" in arrays:
        return Decisions(arrays["label"], arrays.get("confidence"), arrays["accept"])
    if "predicted" in arrays:
        return arrays["predicted"]
    names = [name for name in LABELS if name in arrays]
    return arrays[names[0]] if names and not set(DATA) & set(arrays) else None


class ExpectedCheck:
    """A graph's answers against those expected, added up a batch at a time."""

    def __init__(self, policy: Policy, expected: ExpectedRows) -> None:
        self.policy, self.expected = policy, expected
        self.rows = self.differing = self.labels = self.decisions = self.tied = 0
        self.gap = 0.0
        self._ours: list[Ints] = []
        self._theirs: list[Ints] = []

    def add(self, answers: AnswerRows, start: int, samples: int, group: Array | None) -> None:
        """Compare the answers to some samples, of which ``start`` is the number of the first."""
        expected, part = self.expected, slice(start, start + samples)
        accept: Array | None
        confidence: Array | None
        if expected.values is not None:
            theirs = AnswerRows.of_policy(self.policy, expected.values[part], group)
            label, accept, confidence = theirs.label, theirs.accept, theirs.confidence
            gap = np.abs(answers.probabilities.astype(np.float64) - theirs.probabilities).max(1)
        else:
            assert expected.label is not None
            label = expected.label[part].reshape(-1)
            accept = None if expected.accept is None else expected.accept[part].reshape(-1)
            confidence = None if expected.confidence is None else expected.confidence[part].reshape(-1)
            gap = np.zeros(len(label))
        if confidence is not None:
            gap = np.maximum(gap, np.abs(answers.confidence.astype(np.float64) - confidence))
        rows, p = np.arange(len(label)), answers.probabilities
        is_tied = (answers.label != label) & (p[rows, answers.label] - p[rows, label] <= CLOSE)
        is_other_label = (answers.label != label) & ~is_tied
        is_other_decision = np.zeros(len(label), bool) if accept is None else answers.accept != accept
        self.rows += len(label)
        self.labels += int(is_other_label.sum())
        self.tied += int(is_tied.sum())
        self.decisions += int(is_other_decision.sum())
        self.differing += int((is_other_label | is_other_decision | ~(gap <= FAR)).sum())
        self.gap = max(self.gap, float(np.nan_to_num(gap, nan=1.0).max()))
        self._ours.append(np.where(is_tied, label, answers.label))
        self._theirs.append(label)

    def agreement(self, hint: str = "") -> Agreement:
        """In how many rows the answers differ; raises where they contradict each other, with a hint if there is one."""
        title, rows, expected = self.expected.title, count(self.rows), self.expected
        has_confidence = expected.values is not None or expected.confidence is not None
        parts = [f"{count(self.labels)} have another class"]
        if expected.values is not None or expected.accept is not None:
            parts.append(f"{count(self.decisions)} another decision to answer or abstain")
        gap = significant(self.gap, 2)
        order, more = find_order(np.concatenate(self._ours), np.concatenate(self._theirs))
        if order or self.differing > MOST_DIFFERING * self.rows:
            if 2 * more > self.labels:  # else another model, of which some order happens to agree with more
                hint = f"{order_words(self.policy, order)}, {count(more)} more would agree"
            elif not hint and not has_confidence and expected.accept is None:
                hint = "expected labels are those that the model predicts: the true ones differ wherever it errs"
            off = f", and probabilities differ by up to {gap}" if has_confidence else ""
            raise ValueError(
                f"the graph contradicts {title} in {count(self.differing)} of {rows} rows, so nothing was written: "
                f"{' and '.join(parts)}{off}{hint and f'; {hint}'}"
            )
        off = f"; probabilities differ by at most {gap}" if has_confidence else ""
        differing = self.differing + self.tied
        text = f"the answers agree with {title} in all {rows} rows{off}"
        if differing:
            tied = f", in {count(self.tied)} of them between equally likely classes" if self.tied else ""
            text = f"the answers differ from {title} in {count(differing)} of {rows} rows{tied}{off}"
        return Agreement("expected", self.rows, differing, text)

    @property
    def not_checked(self) -> list[str]:
        """What could not be compared."""
        expected = self.expected
        missing = []
        if expected.values is None and expected.confidence is None:
            missing.append("confidences")
        if expected.values is None and expected.accept is None:
            missing.append("decisions to answer or abstain")
        return [f"{' and '.join(missing)}, which are not in {expected.title}"] if missing else []
