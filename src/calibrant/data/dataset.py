"""A data set: columns of facts about each sample, a source that reads inputs on demand, and a report.

The report counts the samples that a reader skipped or found odd, and lists their locations, up to a limit.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch.utils.data
from numpy.typing import ArrayLike, NDArray

from calibrant.base.checks import check_choice, printable
from calibrant.data.boxes import Boxes, Floats, Integers, as_indices
from calibrant.data.sources import Inputs, JoinedInputs, Kind, join

OnError = Literal["raise", "skip"]

#: The label of a sample that shows none of the classes (an image without objects).
NO_CLASS = -1
#: The finding about class names that `group_similar` puts together.
ALIKE = "class name that differs from another only by case, spaces, '-' or '_'"
#: Largest number of locations listed per kind of finding; all are counted.
LISTED = 10_000


class Sample(NamedTuple):
    """One sample with its input."""

    id: str
    input: Any
    label: int
    boxes: Floats | None = None
    box_labels: Integers | None = None
    mask: Any = None
    soft: Floats | None = None


class Issue(NamedTuple):
    """One kind of finding: how often it occurred, and where (at most `LISTED` locations)."""

    what: str
    times: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """What was skipped (not in the data set) and what is odd (in the data set).

    Example:
        >>> findings = Findings("skip")
        >>> findings.skip("val/x.JPEG", "inverted box", "x1 = 9, x2 = 3")
        >>> findings.odd("val/y.JPEG", "box without area")
        >>> print(findings.report())
        skipped: inverted box: 1 (val/x.JPEG (x1 = 9, x2 = 3))
        odd: box without area: 1 (val/y.JPEG)
    """

    skipped: tuple[Issue, ...] = ()
    odd: tuple[Issue, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "nothing skipped, nothing odd"

    def lines(self, locations: int = 3) -> Iterator[str]:
        """One line per kind of finding, with the first few locations."""
        for title, issues in (("skipped", self.skipped), ("odd", self.odd)):
            for issue in issues:
                listed = ", ".join(issue.where[:locations]) + (", ..." if issue.times > locations else "")
                yield f"{title}: {issue.what}: {issue.times}" + (f" ({listed})" if listed else "")

    def __add__(self, other: Report) -> Report:
        findings = Findings("skip")
        findings.add(self)
        findings.add(other)
        return findings.report()


class Findings:
    """Collects a reader's findings; with ``on_error="raise"`` the first broken sample is an error."""

    def __init__(self, on_error: OnError = "raise"):
        self.on_error = check_choice("on_error", on_error, ("raise", "skip"))
        self._times: Counter[tuple[bool, str]] = Counter()  # by whether it was skipped, and the kind
        self._locations: dict[tuple[bool, str], list[str]] = {}

    def skip(self, location: str, finding: str, detail: str = "") -> None:
        """Skip a broken sample, or raise; it is counted under ``finding`` and listed with ``detail``."""
        reason = f" ({printable(detail)})" if detail else ""
        if self.on_error == "raise":
            raise ValueError(f"{printable(location)}: {finding}{reason}")
        self._record(True, finding, 1, (printable(location) + reason,))

    def leave_out(self, location: str, finding: str) -> None:
        """Leave out a sample that is not wanted, such as one of another class: counted, never an error."""
        self._record(True, finding, 1, (printable(location),))

    def odd(self, location: str, finding: str) -> None:
        """Report a sample that is kept."""
        self._record(False, finding, 1, (printable(location),))

    def add(self, report: Report) -> None:
        """Add the findings of a report."""
        for skipped, issues in ((True, report.skipped), (False, report.odd)):
            for issue in issues:
                self._record(skipped, *issue)

    def reasons(self, kinds: int = 5) -> str:
        """Why samples were skipped, with counts: "inverted box (3), hidden file (1)"."""
        skipped = [f"{issue.what} ({issue.times})" for issue in self.report().skipped]
        return ", ".join(skipped[:kinds]) + (", ..." if len(skipped) > kinds else "")

    def report(self) -> Report:
        """All findings so far, skipped and odd, in the order of their first appearance."""
        issues = [(key[0], Issue(key[1], times, tuple(self._locations[key]))) for key, times in self._times.items()]
        return Report(tuple(i for skipped, i in issues if skipped), tuple(i for skipped, i in issues if not skipped))

    def _record(self, skipped: bool, finding: str, times: int, locations: tuple[str, ...]) -> None:
        self._times[skipped, finding] += times
        listed = self._locations.setdefault((skipped, finding), [])
        listed.extend(locations[: LISTED - len(listed)])


@dataclass(frozen=True, eq=False)
class Dataset(torch.utils.data.Dataset[Sample]):
    """Samples of a classification or segmentation task, from any reader.

    Attributes:
        name: Name of the data set, as its reader calls it.
        split: ``"train"``, ``"val"``, ``"test"`` or another name of the layout.
        classes: The names of the K classes, in the order of the labels.
        ids: Unique, one per sample: usually the path inside the data folder.
        labels: [N] int64 in 0..K-1; -1 for a sample that shows none of the classes (and for all with masks).
        inputs: The source of images, texts or rows.
        boxes: The objects in each image.
        masks: Label masks, for segmentation; `ignore_index` marks pixels without a class.
        soft: [N, K]: class probabilities, from annotators (CIFAR-10H) or known (scenes).
        groups: [N]: the domain or another group of each sample.
        context: [N] bool: samples from which all objects were removed; their target is uniform.
        ignore_index: The value of mask pixels without a class.
        report: What the reader skipped and what it found odd.

    Example:
        >>> from calibrant.data import ImageArray
        >>> pixels = np.zeros((3, 8, 8, 3), dtype=np.uint8)
        >>> data = Dataset("tiny", "train", ("cat", "dog"), ("a", "b", "c"), [0, 1, 0], ImageArray(pixels))
        >>> len(data), data[1].label, data.take([2, 0]).ids, data.counts.tolist()
        (3, 1, ('c', 'a'), [2, 1])
    """

    name: str
    split: str
    classes: tuple[str, ...]
    ids: tuple[str, ...]
    labels: Integers
    inputs: Inputs
    boxes: Boxes | None = None
    masks: Inputs | None = None
    soft: Floats | None = None
    groups: tuple[str, ...] | None = None
    context: NDArray[np.bool_] | None = None
    ignore_index: int | None = None
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        labels = np.asarray(self.labels)
        if labels.ndim != 1 or not (np.issubdtype(labels.dtype, np.integer) or labels.size == 0):
            actual = f"{labels.dtype} {list(labels.shape)}"
            raise ValueError(f"{self.title}: labels must be whole numbers [N], got {actual}")
        object.__setattr__(self, "labels", labels.astype(np.int64))
        for column in ("classes", "ids", "groups"):
            if (values := getattr(self, column)) is not None:
                object.__setattr__(self, column, tuple(values))
        for column, dtype in (("soft", np.float64), ("context", bool)):
            if (values := getattr(self, column)) is not None:
                object.__setattr__(self, column, np.asarray(values, dtype=dtype))
        number = len(self.ids)
        for column in _COLUMNS:
            value = getattr(self, column)
            if value is not None and len(value) != number:
                raise ValueError(f"{self.title}: {len(value)} {column} for {number} samples")
        for kind, names in (("id", self.ids), ("class", self.classes)):
            if len(set(names)) != len(names):
                repeated = next(name for name, times in Counter(names).items() if times > 1)
                raise ValueError(f"{self.title}: the {kind} {repeated!r} occurs more than once")
        outside = (self.labels < NO_CLASS) | (self.labels >= len(self.classes))
        if outside.any():
            label = self.labels[outside][0]
            raise ValueError(f"{self.title}: the label {label} is outside 0..{len(self.classes) - 1}")
        if self.soft is not None and self.soft.shape != (number, len(self.classes)):
            requirement = f"{number} samples x {len(self.classes)} classes"
            raise ValueError(f"{self.title}: soft labels of shape {self.soft.shape} for {requirement}")

    @property
    def title(self) -> str:
        """Name and split, for messages."""
        return f"{self.name} {self.split}".strip()

    @property
    def kind(self) -> Kind:
        """``"image"``, ``"text"`` or ``"array"``."""
        return self.inputs.kind

    @property
    def counts(self) -> Integers:
        """Number of samples of each class, [K]."""
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self.classes))

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int) -> Sample:
        index = range(len(self))[index]  # allows negative indices, and checks the bounds
        span = None if self.boxes is None else self.boxes.span(index)
        return Sample(
            self.ids[index],
            self.inputs[index],
            int(self.labels[index]),
            None if self.boxes is None else self.boxes.corners[span],
            None if self.boxes is None else self.boxes.labels[span],
            None if self.masks is None else self.masks[index],
            None if self.soft is None else self.soft[index],
        )

    def take(self, indices: ArrayLike | Sequence[int], **changes: Any) -> Dataset:
        """Select samples by position or by mask, in that order; ``changes`` replace other columns."""
        rows = as_indices(indices, len(self))
        columns = {name: _rows_of(getattr(self, name), rows) for name in ("ids", *_COLUMNS)}
        return self.replace(**(columns | changes))

    def replace(self, **changes: Any) -> Dataset:
        """A copy with changed columns."""
        return dataclasses.replace(self, **changes)

    def merged(self, other: Dataset) -> Dataset:
        """Both data sets as one; they must have the same classes and no id in common."""
        failure = f"cannot merge {self.title} and {other.title}"
        for name in ("classes", "ignore_index"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(f"{failure}: their {name} differ")
        columns: dict[str, Any] = {}
        for name, join_column in _COLUMNS.items():
            first, second = getattr(self, name), getattr(other, name)
            if (first is None) != (second is None):
                raise ValueError(f"{failure}: only one of them has {name}")
            columns[name] = None if first is None else join_column(first, second)
        split = "+".join(dict.fromkeys((self.split, other.split)))
        return self.replace(split=split, ids=self.ids + other.ids, report=self.report + other.report, **columns)


def group_similar(names: Iterable[str]) -> list[list[str]]:
    """Group names that differ only by case, spaces, '-' or '_'.

    Example:
        >>> group_similar(["trash can", "dog", "Trash_Can"])
        [['trash can', 'Trash_Can'], ['dog']]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.casefold().translate({ord(c): None for c in " -_"}), []).append(name)
    return list(groups.values())


def unique_names(names: Sequence[str], keys: Sequence[object]) -> tuple[str, ...]:
    """Names with their keys added where two classes have the same name.

    Example:
        >>> unique_names(["crane", "bee", "crane"], ["n02012849", "n02206856", "n03126707"])
        ('crane (n02012849)', 'bee', 'crane (n03126707)')
    """
    times = Counter(names)
    return tuple(name if times[name] == 1 else f"{name} ({key})" for name, key in zip(names, keys, strict=True))


def _rows_of(column: Any, rows: Integers) -> Any:
    if column is None:
        return None
    if isinstance(column, tuple):
        return tuple(column[i] for i in rows)
    return column[rows] if isinstance(column, np.ndarray) else column.take(rows)


def _stack(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([first, second])


#: The columns besides ids, and how those of two data sets are joined.
_COLUMNS: dict[str, Callable[[Any, Any], Any]] = {
    "labels": _stack,
    "inputs": join,
    "boxes": operator.add,
    "masks": JoinedInputs.of,
    "soft": _stack,
    "groups": operator.add,
    "context": _stack,
}
