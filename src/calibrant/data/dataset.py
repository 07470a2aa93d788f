"""A data set: columns of what is known about each sample, and a source that reads its input when asked."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch.utils.data
from numpy.typing import ArrayLike, NDArray

from calibrant.data.boxes import Boxes, Floats, Integers, as_indices
from calibrant.data.files import printable
from calibrant.data.sources import Joined, Kind, Source

OnError = Literal["raise", "skip"]

#: What is said of class names that are nearly the same.
ALIKE = "class name that differs from another only by case, spaces, '-' or '_'"
#: Places kept per kind of finding; the counts go on.
LISTED = 10_000

#: The label of a sample that shows none of the classes (an image without objects).
NO_CLASS = -1


class Finding(NamedTuple):
    """One kind of finding: how often, and where (at most `LISTED` places)."""

    what: str
    times: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """What was skipped (it is not in the data set) and what is odd (it is).

    Example:
        >>> findings = Findings("skip")
        >>> findings.skip("val/x.JPEG", "inverted box", "x1 = 9, x2 = 3")
        >>> findings.odd("val/y.JPEG", "box without area")
        >>> print(findings.report())
        skipped: inverted box: 1 (val/x.JPEG (x1 = 9, x2 = 3))
        odd: box without area: 1 (val/y.JPEG)
    """

    skipped: tuple[Finding, ...] = ()
    odd: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "nothing skipped, nothing odd"

    def lines(self, places: int = 3) -> Iterator[str]:
        """One line per kind, with the first few places."""
        for title, findings in (("skipped", self.skipped), ("odd", self.odd)):
            for what, times, where in findings:
                shown = ", ".join(where[:places]) + (", ..." if times > places else "")
                yield f"{title}: {what}: {times}" + (f" ({shown})" if shown else "")

    def __add__(self, other: Report) -> Report:
        joined = Findings("skip")
        for report in (self, other):
            joined.add(report)
        return joined.report()


class Findings:
    """Collects a reader's findings; with ``on_error="raise"`` the first thing that must be skipped is an error."""

    def __init__(self, on_error: OnError = "raise"):
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error takes 'raise' or 'skip', got {on_error!r}.")
        self.on_error = on_error
        self._kinds: dict[tuple[bool, str], tuple[list[int], list[str]]] = {}

    def skip(self, where: str, what: str, detail: str = "") -> None:
        """Something is wrong with a sample: an error, or skipped, counted under ``what`` and listed with ``detail``."""
        reason = f" ({printable(detail)})" if detail else ""
        if self.on_error == "raise":
            raise ValueError(f"{printable(where)}: {what}{reason}.")
        self._record(True, printable(where) + reason, what)

    def leave_out(self, where: str, what: str) -> None:
        """A sample is left out by rule, not by mistake (a class that was not asked for): counted, never an error."""
        self._record(True, printable(where), what)

    def odd(self, where: str, what: str) -> None:
        """A sample is kept, but its user should know."""
        self._record(False, printable(where), what)

    def add(self, report: Report) -> None:
        """Take over the findings of another report."""
        for skipped, findings in ((True, report.skipped), (False, report.odd)):
            for what, times, where in findings:
                counter, places = self._kinds.setdefault((skipped, what), ([0], []))
                counter[0] += times
                places.extend(where[: LISTED - len(places)])

    def reasons(self, kinds: int = 5) -> str:
        """Why samples were skipped, the first kinds with their counts: "inverted box (3), hidden file (1)"."""
        skipped = [f"{what} ({counter[0]})" for (is_skipped, what), (counter, _) in self._kinds.items() if is_skipped]
        return ", ".join(skipped[:kinds]) + (", ..." if len(skipped) > kinds else "")

    def report(self) -> Report:
        """All findings so far, skipped and odd, in the order of their first appearance."""
        kinds = [(skipped, Finding(what, n[0], tuple(w))) for (skipped, what), (n, w) in self._kinds.items()]
        return Report(tuple(f for skipped, f in kinds if skipped), tuple(f for skipped, f in kinds if not skipped))

    def _record(self, skipped: bool, where: str, what: str) -> None:
        counter, places = self._kinds.setdefault((skipped, what), ([0], []))
        counter[0] += 1
        if len(places) < LISTED:
            places.append(where)


class Sample(NamedTuple):
    """One sample: what the data set knows about it, with its input read."""

    id: str
    input: Any
    label: int
    boxes: Floats | None = None
    box_labels: Integers | None = None
    mask: Any = None
    soft: Floats | None = None


@dataclass(frozen=True, eq=False)
class Dataset(torch.utils.data.Dataset[Sample]):
    """Samples of a classification or segmentation task, from any reader.

    Attributes:
        name: Of the data set, as its reader calls it.
        split: ``"train"``, ``"val"``, ``"test"`` or what the layout calls it.
        classes: The names of the K classes, in the order of the labels.
        ids: One per sample, unique: usually the path inside the data folder.
        labels: [N] int64 in 0..K-1; -1 for a sample that shows none of the classes (and for all with masks).
        inputs: Where images, texts or rows come from.
        boxes: The objects in each image.
        masks: Label masks, for segmentation; `ignore_index` marks pixels without a class.
        soft: [N, K]: class probabilities, from people (CIFAR-10H) or known (scenes).
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
    inputs: Source
    boxes: Boxes | None = None
    masks: Source | None = None
    soft: Floats | None = None
    groups: tuple[str, ...] | None = None
    context: NDArray[np.bool_] | None = None
    ignore_index: int | None = None
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        labels = np.asarray(self.labels)
        if labels.ndim != 1 or not (np.issubdtype(labels.dtype, np.integer) or labels.size == 0):
            raise ValueError(f"{self.title}: labels are whole numbers [N], got {labels.dtype} {list(labels.shape)}.")
        columns: dict[str, Any] = {"labels": labels.astype(np.int64), "classes": tuple(self.classes)}
        columns["ids"] = tuple(self.ids)
        if self.soft is not None:
            columns["soft"] = np.asarray(self.soft, dtype=np.float64)
        if self.context is not None:
            columns["context"] = np.asarray(self.context, dtype=bool)
        for column, value in columns.items():
            object.__setattr__(self, column, value)
        self._check(len(self.ids))

    def _check(self, number: int) -> None:
        for column in ("labels", "inputs", "boxes", "masks", "soft", "groups", "context"):
            value = getattr(self, column)
            if value is not None and len(value) != number:
                raise ValueError(f"{self.title}: {len(value)} {column} for {number} samples.")
        if len(set(self.ids)) != number:
            raise ValueError(f"{self.title}: the id {_first_repeated(self.ids)!r} occurs more than once.")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError(f"{self.title}: the class {_first_repeated(self.classes)!r} occurs more than once.")
        if number and not (self.labels.min() >= NO_CLASS and self.labels.max() < len(self.classes)):
            bad = self.labels[(self.labels < NO_CLASS) | (self.labels >= len(self.classes))][0]
            raise ValueError(f"{self.title}: the label {bad} is outside 0..{len(self.classes) - 1}.")
        if self.soft is not None and self.soft.shape != (number, len(self.classes)):
            raise ValueError(
                f"{self.title}: soft labels of shape {self.soft.shape} for {number} x {len(self.classes)}."
            )

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
        index = range(len(self))[index]  # negative ones count from the end, and the range ends
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
        """Some of the samples, by position or by mask, in that order; ``changes`` replace other columns."""
        rows = as_indices(indices, len(self))
        columns: dict[str, Any] = {
            "ids": tuple(self.ids[i] for i in rows),
            "labels": self.labels[rows],
            "inputs": self.inputs.take(rows),
            "boxes": None if self.boxes is None else self.boxes.take(rows),
            "masks": None if self.masks is None else self.masks.take(rows),
            "soft": None if self.soft is None else self.soft[rows],
            "groups": None if self.groups is None else tuple(self.groups[i] for i in rows),
            "context": None if self.context is None else self.context[rows],
        }
        return dataclasses.replace(self, **(columns | changes))

    def replace(self, **changes: Any) -> Dataset:
        """The same with other columns."""
        return dataclasses.replace(self, **changes)

    def merged(self, other: Dataset) -> Dataset:
        """Both data sets in one; they must have the same classes and no id in common."""
        if self.classes != other.classes:
            raise ValueError(f"cannot merge {self.title} and {other.title}: their classes differ.")
        if self.ignore_index != other.ignore_index:
            raise ValueError(f"cannot merge {self.title} and {other.title}: their ignore_index differs.")

        def both(column: str) -> tuple[Any, Any] | None:
            pair = getattr(self, column), getattr(other, column)
            if (pair[0] is None) != (pair[1] is None):
                raise ValueError(f"cannot merge {self.title} and {other.title}: only one of them has {column}.")
            return None if pair[0] is None else pair

        boxes, masks, soft, groups, context = map(both, ("boxes", "masks", "soft", "groups", "context"))
        return Dataset(
            self.name,
            "+".join(dict.fromkeys((self.split, other.split))),
            self.classes,
            self.ids + other.ids,
            np.concatenate([self.labels, other.labels]),
            Joined.of(self.inputs, other.inputs),
            boxes and _boxes_of_both(*boxes),
            masks and Joined.of(*masks),
            None if soft is None else np.concatenate(soft),
            groups and groups[0] + groups[1],
            None if context is None else np.concatenate(context),
            self.ignore_index,
            self.report + other.report,
        )


def _boxes_of_both(a: Boxes, b: Boxes) -> Boxes:
    return Boxes(
        np.concatenate([a.corners, b.corners]),
        np.concatenate([a.offsets, b.offsets[1:] + a.offsets[-1]]),
        np.concatenate([a.labels, b.labels]),
        np.concatenate([a.crowd, b.crowd]),
    )


def _first_repeated(names: Sequence[str]) -> str:
    return next(name for name, times in Counter(names).items() if times > 1)
