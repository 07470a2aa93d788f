"""A batch of predictions as a watch counts it: what the policy answers, how it looks, and which answers are wrong.

Labels may come later, in a table of ids and labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._files import open_regular
from calibrant._progress import Progress, silent, track
from calibrant._validation import Ints, listing, short
from calibrant.metrics import Doubles
from calibrant.monitoring.label_shift import LabelShift, correct, estimate_label_shift, reference_priors
from calibrant.predictions import IGNORED, Predictions, check_group
from calibrant.selective import Policy, bin_counts, class_counts, decision_chunks

#: Samples that new priors are estimated on, and numbers of them.
MOST_ROWS, MOST_NUMBERS = 20_000, 2**22
UNKNOWN = -1  # the label of a sample whose label is not known
SKETCHED = ("score", "confidence", "predicted")
IDS, LABELS = ("id", "ids"), ("label", "labels")  # columns of labels that come later


@dataclass
class Labelled:
    """Answers whose labels are known, and how many of them are wrong."""

    answers: int = 0
    errors: int = 0

    def add(self, answers: int, errors: int) -> None:
        """Count more of them."""
        self.answers += answers
        self.errors += errors


@dataclass
class BatchCounts:
    """All that a watch keeps of a batch.

    Attributes:
        fingerprint: of its values and ids, whatever its labels are.
        samples: how many there are.
        accepted: how many are answered.
        implied_errors: the sum of 1 - confidence over answers.
        labelled: answers with known labels.
        cost: the sum of their costs over the highest, where the policy promises a cost.
        groups: the same by group.
        sketch: counts of score, confidence and predicted class in the policy's bins; empty if it has none.
        shift: the estimated priors, if they could be estimated.
    """

    fingerprint: str = ""
    samples: int = 0
    accepted: int = 0
    implied_errors: float = 0.0
    labelled: Labelled = field(default_factory=Labelled)
    cost: float = 0.0
    groups: dict[str, Labelled] = field(default_factory=dict)
    sketch: dict[str, Ints] = field(default_factory=dict)
    shift: LabelShift | None = None


@dataclass(frozen=True, eq=False)
class DecidedRows:
    """Some samples: what the policy says of each, its label or `UNKNOWN`, its group."""

    predicted: Ints
    confidence: Doubles
    score: Doubles
    accept: npt.NDArray[np.bool_]
    probabilities: Doubles
    labels: Ints
    groups: npt.NDArray[np.str_] | None


def decide_rows(
    policy: Policy, parts: Iterable[Predictions], by_group: str | None = None, labels: Mapping[str, int] | None = None
) -> Iterator[DecidedRows]:
    """The samples of a batch, some at a time, and what the policy says of them."""
    for batch in parts:
        truth = _labels(batch, labels)
        names = None if by_group is None else np.asarray(batch.groups[by_group]).astype(str)
        group_names = None if policy.group is None else np.asarray(batch.groups[policy.group]).astype(str)
        numbers = None if group_names is None else policy.group_numbers(group_names)
        for rows, answer in decision_chunks(policy, getattr(batch, batch.holds), numbers):
            inside = None if names is None else names[rows]
            if policy.classes is not None:
                inside = class_parts(policy, None if group_names is None else group_names[rows], answer.label[:, 0])
            yield DecidedRows(
                answer.label[:, 0].astype(np.int64), np.clip(answer.confidence[:, 0], 0.0, 1.0), answer.score[:, 0],
                answer.accept[:, 0].astype(bool), answer.probabilities, truth[rows], inside,
            )  # fmt: skip


def class_parts(policy: Policy, groups: npt.NDArray[np.str_] | None, predicted: Ints) -> npt.NDArray[np.str_]:
    """The name of the part, with a threshold of its own, that each sample belongs to; others are never answered."""
    names = np.array([*policy.parts, "none"])
    return names[policy.part_numbers(groups, predicted)]


def _labels(batch: Predictions, late: Mapping[str, int] | None) -> Ints:
    """Each sample's label; those that came later, by id, win."""
    labels = np.full(len(batch), UNKNOWN, np.int64)
    if batch.labels is not None:
        labels = np.where(batch.labels == batch.ignore_index, UNKNOWN, batch.labels).astype(np.int64)
    if late is not None:
        arrived = np.array([late.get(str(name), UNKNOWN) for name in batch.ids.tolist()], np.int64)
        labels = np.where(arrived == UNKNOWN, labels, arrived)
    return labels


def count_batch(
    policy: Policy,
    predictions: Predictions,
    *,
    by_group: str | None = None,
    labels: Mapping[str, int] | None = None,
    progress: Progress = silent,
) -> BatchCounts:
    """Count a batch.

    Args:
        policy: what decides.
        predictions: with labels, without, or with some (``ignore_index`` for the others).
        by_group: the column whose groups are counted apart.
        labels: class by id, of samples whose labels came later.
        progress: called as samples are read.
    """
    policy.check(predictions)
    if by_group is not None:
        check_group(predictions, by_group)
    if labels is not None and "ids" not in predictions._store.names:
        raise ValueError("labels that come later are matched by id, and the predictions have no ids")
    counts, reference = BatchCounts(), policy.evidence.get("reference")
    samples: list[DecidedRows] = []
    most = min(MOST_ROWS, MOST_NUMBERS // policy.num_classes)
    fingerprint = BatchFingerprint()
    parts = fingerprint.of(track(predictions.batches(), "reading", len(predictions), progress, size=len))
    for rows in decide_rows(policy, parts, by_group, labels):
        _count(counts, rows, reference)
        if policy.promise.of == "cost":
            paid = rows.accept & (rows.labels != UNKNOWN)
            _, losses = policy.promise.losses(rows.labels[paid], rows.predicted[paid], rows.accept[paid])
            counts.cost += float(losses.sum())
        if sum(len(part.labels) for part in samples) < most:
            samples.append(rows)
    counts.fingerprint = str(fingerprint)
    if reference is not None and reference["labels"] is not None:
        probabilities, truth = (np.concatenate([getattr(part, name) for part in samples])[:most]
                                for name in ("probabilities", "labels"))  # fmt: skip
        priors = reference_priors(np.asarray(reference["labels"]))
        counts.shift = estimate_label_shift(probabilities, priors, truth)
    return counts


def _count(counts: BatchCounts, rows: DecidedRows, reference: Mapping[str, Any] | None) -> None:
    answers = rows.accept & (rows.labels != UNKNOWN)
    is_wrong = answers & (rows.labels != rows.predicted)
    counts.samples += len(rows.labels)
    counts.accepted += int(rows.accept.sum())
    counts.implied_errors += float((1 - rows.confidence[rows.accept]).sum())
    counts.labelled.add(int(answers.sum()), int(is_wrong.sum()))
    if rows.groups is not None:
        for name in np.unique(rows.groups).tolist():
            inside = rows.groups == name
            counts.groups.setdefault(name, Labelled()).add(int(answers[inside].sum()), int(is_wrong[inside].sum()))
    if reference is not None:
        added = {name: bin_counts(getattr(rows, name), reference[name]["edges"]) for name in ("score", "confidence")}
        added["predicted"] = class_counts(rows.predicted, reference["predicted"]["classes"])
        counts.sketch = {name: counts.sketch.get(name, 0) + added[name] for name in SKETCHED}


class BatchFingerprint:
    """A checksum of values and ids, by which a batch is known again when its labels have come."""

    def __init__(self) -> None:
        self._values, self._ids, self._rows = hashlib.sha256(), hashlib.sha256(), 0

    def of(self, parts: Iterable[Predictions]) -> Iterator[Predictions]:
        """The same parts of a batch, each taken in as it passes."""
        for part in parts:
            self._values.update(np.ascontiguousarray(getattr(part, part.holds), dtype=np.float64).tobytes())
            if part.ids is not None:
                names = "".join(f"{name}\0" for name in part.ids.tolist())
                self._ids.update(names.encode("utf-8", "surrogatepass"))
            self._rows += len(part)
            yield part

    def __str__(self) -> str:
        parts = f"{self._rows}:{self._values.hexdigest()}:{self._ids.hexdigest()}"
        return hashlib.sha256(parts.encode()).hexdigest()[:32]


def correct_predictions(
    policy: Policy, predictions: Predictions, shift: LabelShift, *, progress: Progress = silent
) -> Predictions:
    """The policy's calibrated probabilities, corrected for the priors of a shift; unknown labels are ignored ones."""
    parts = track(predictions.batches(), "correcting", len(predictions), progress, size=len)
    rows = list(decide_rows(policy, parts))
    probabilities = np.concatenate([correct(part.probabilities, shift.before, shift.priors) for part in rows])
    labels = np.concatenate([part.labels for part in rows])
    return Predictions.from_probabilities(
        probabilities,
        np.where(labels == UNKNOWN, IGNORED, labels),
        ids=predictions.ids,
        groups=predictions.groups or None,
        class_names=policy.class_names,
        ignore_index=IGNORED,
    )


def read_labels(path: str | Path, classes: int, class_names: Sequence[str] | None) -> dict[str, int]:
    """The class of every id.

    Args:
        path: .csv or .parquet with a column id and a column label: positions of classes, or their names.
        classes: how many there are.
        class_names: what they are called.
    """
    import pyarrow as pa

    try:
        table = _read_table(Path(path))
    except pa.ArrowException as error:
        raise ValueError(f"{path}: not a table of labels ({str(error).splitlines()[0]})") from None
    ids, labels = (_read_column(path, table, names) for names in (IDS, LABELS))
    numbers = {name: number for number, name in enumerate(class_names or ())}
    numbers |= {str(number): number for number in range(classes) if str(number) not in numbers and class_names is None}
    classes_by_id: dict[str, int] = {}
    for name, label in zip(ids, labels, strict=True):
        if name is None or label is None:
            continue  # a label that is still missing
        number = numbers.get(str(label), label if isinstance(label, int) and 0 <= label < classes else None)
        if number is None:
            raise ValueError(f"{path}: the label {short(label)} is none of {classes} classes")
        if classes_by_id.setdefault(str(name), number) != number:
            raise ValueError(f"{path}: the id {short(name)} has two labels")
    if not classes_by_id:
        raise ValueError(f"{path}: there are no labels")
    return classes_by_id


def _read_table(path: Path) -> Any:
    import pyarrow.csv
    import pyarrow.parquet

    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path}: labels are read from .csv or .parquet, got {suffix!r}")
    with open_regular(path) as file:
        if suffix == ".csv":
            return pyarrow.csv.read_csv(file, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True))
        return pyarrow.parquet.read_table(file)


def _read_column(path: str | Path, table: Any, names: tuple[str, ...]) -> list[Any]:
    matches = [name for name in table.column_names if name in names]
    if len(matches) != 1:
        raise ValueError(f"{path}: expected a column {names[0]!r}, got {listing(table.column_names, 5)}")
    return table.column(matches[0]).to_pylist()
