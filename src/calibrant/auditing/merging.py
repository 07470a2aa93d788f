"""Passes over parts of the predictions, put together: what one pass over all of them would have found.

Counts, kept samples, worst errors and checksums are those of one pass. Sums of numbers are added in another order and
may differ from its sums by rounding. Groups come in the order of their names, wherever they first appear.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant.auditing.collect import ERRORS_KEPT, Collected, Kept, id_bytes, judged_blocks, mark, observe, started
from calibrant.auditing.tables import MOST_LEVELS, Breakdown, Levels
from calibrant.predictions import BATCH, Predictions


@dataclass(frozen=True)
class Place:
    """Where a part lies in the whole.

    Attributes:
        rows: Samples before it.
        samples: The same, of those that count; for segmentation, pixels.
        total: Those that count in the whole.
    """

    rows: int
    samples: int
    total: int


@dataclass
class Part:
    """What a pass over consecutive samples found, and what it takes to put parts together.

    Attributes:
        found: As of one pass; numbers of rows and samples count from the beginning of the whole.
        place: Of the part.
        label_bytes: Behind the checksum of the labels.
        id_bytes: Behind that of the ids.
        value_bytes: Behind that of the first values, as far as they lie in this part.
        types: Of the ids and groups, ``"int64"`` or ``"text"``.
    """

    found: Collected
    place: Place
    label_bytes: int
    id_bytes: int
    value_bytes: int
    types: dict[str, str]


def collect_part(predictions: Predictions, groups: Sequence[str], place: Place) -> Part:
    """Go through consecutive samples of a larger whole."""
    found = started(predictions, groups)
    found.rows, found.samples = place.rows, place.samples
    if place.total > found.confidences.most:
        found.confidences.most = 0  # the whole will not keep them either
    for sample in (found.judged, found.logits):
        sample.limit = _limit(sample.size, place.total)
    part = Part(found, place, 0, 0, 0, {})
    of_values = 0
    first_rows = min(1024, max(1, BATCH // max(1, predictions._store.schema.numbers)))  # those that `mark` looks at
    for batch in predictions.batches():
        if found.rows < first_rows:
            first = np.ascontiguousarray(getattr(batch, batch.holds)[: first_rows - found.rows])
            of_values = zlib.crc32(first.tobytes(), of_values)
            part.value_bytes += first.nbytes
        for top, values in judged_blocks(batch, found):
            observe(found, batch, top, values)
        mark(found, batch)
        found.rows += len(batch)
        part.label_bytes += 0 if batch.labels is None else batch.labels.nbytes
        if batch.ids is not None:
            part.id_bytes += len(id_bytes(batch.ids))
        columns = batch.groups | ({} if batch.ids is None else {"ids": batch.ids})
        part.types |= {name: "text" if one.dtype.kind == "U" else str(one.dtype) for name, one in columns.items()}
    found.of_values = of_values
    return part


def _limit(size: int, total: int) -> int:
    """A hash below which ``size`` of ``total`` samples lie, and hardly more, so that parts keep no more than is needed.

    How many lie below has a binomial spread of at most the root of their number; twelve times that is never missed.
    """
    most = int(np.iinfo(np.uint64).max)
    wanted = size + 12 * math.isqrt(size) + 144
    return most if wanted >= total else most * wanted // total


def merged(parts: Iterable[Part]) -> Collected:
    """What one pass over all parts, which come in order, would have found."""
    whole: Collected | None = None
    types: dict[str, str] = {}
    for part in parts:
        for name, kind in part.types.items():
            if types.setdefault(name, kind) != kind:
                raise ValueError(f"shards must hold the same, got {name} {kind} after {types[name]}")
        if whole is None:
            whole = part.found
        else:
            _absorb(whole, part)
    if whole is None or not whole.samples:
        raise ValueError("every position is ignored: there is nothing to audit")
    whole.groups = {name: _sorted(*group) for name, group in whole.groups.items()}
    return whole


def _absorb(whole: Collected, part: Part) -> None:
    found = part.found
    whole.sketch = whole.sketch + found.sketch
    _add(whole.whole, found.whole)
    if whole.by_class is not None and found.by_class is not None:
        _add(whole.by_class, found.by_class)
    if whole.classwise is not None and found.classwise is not None:
        whole.classwise.absorb(found.classwise)
    if whole.clusters is not None and found.clusters is not None:
        _add(whole.clusters, found.clusters)
    for name, (levels, breakdown) in found.groups.items():
        _add_group(*whole.groups[name], levels, breakdown)
    # Stable: of equally confident errors the first ones stay.
    whole.worst = sorted(whole.worst + found.worst, key=lambda error: error.shortfall)[:ERRORS_KEPT]
    whole.confidences.absorb(found.confidences)
    _keep(whole.judged, found.judged)
    _keep(whole.logits, found.logits)
    whole.rows, whole.samples = found.rows, found.samples
    whole.impossible += found.impossible
    whole.of_labels = joined_crc32(whole.of_labels, found.of_labels, part.label_bytes)
    if found.of_named_labels is not None:  # four bytes a label, and eight of a label itself
        whole.of_named_labels = joined_crc32(whole.of_named_labels or 0, found.of_named_labels, part.label_bytes // 2)
    whole.ignored += found.ignored
    whole.of_values = joined_crc32(whole.of_values, found.of_values, part.value_bytes)
    if found.of_ids is not None:
        whole.of_ids = joined_crc32(whole.of_ids or 0, found.of_ids, part.id_bytes)


def _add(ours: Any, theirs: Any) -> None:
    """Tables of counts and sums."""
    for name, value in vars(theirs).items():
        setattr(ours, name, getattr(ours, name) + value)


def _keep(ours: Kept, theirs: Kept) -> None:
    ours.keys += theirs.keys
    ours.parts += theirs.parts
    ours.held += theirs.held
    if ours.held > 2 * ours.size:
        ours.prune()


def _add_group(levels: Levels, ours: Breakdown, more: Levels, theirs: Breakdown) -> None:
    codes = [levels.codes.setdefault(value, len(levels.codes)) for value in more.codes]
    if len(levels.codes) > MOST_LEVELS:
        raise ValueError(
            f"column {levels.column!r} has more than {MOST_LEVELS} different values: it does not name groups"
        )
    for name, value in vars(theirs).items():
        old = getattr(ours, name)
        new = np.zeros((len(levels.codes), *old.shape[1:]), old.dtype)
        new[: len(old)] = old
        new[codes] += value
        setattr(ours, name, new)


def _sorted(levels: Levels, breakdown: Breakdown) -> tuple[Levels, Breakdown]:
    order = sorted(levels.codes)
    moved = [levels.codes[value] for value in order]
    made = Breakdown()
    for name, value in vars(breakdown).items():
        setattr(made, name, value[moved])
    return Levels(levels.column, {value: code for code, value in enumerate(order)}), made


def joined_crc32(first: int, second: int, length: int) -> int:
    """The CRC-32 of two pieces of data, one after the other, from theirs; ``length`` is that of the second, in bytes.

    Zeros appended to data change its checksum by a linear map over the two-element field; the map of many zeros comes
    from that of one by squaring.

    Example:
        >>> import zlib
        >>> joined_crc32(zlib.crc32(b"calib"), zlib.crc32(b"rant"), 4) == zlib.crc32(b"calibrant")
        True
    """
    zeros = [0xEDB88320, *(1 << n for n in range(31))]  # one bit
    for _ in range(3):
        zeros = [_mapped(zeros, column) for column in zeros]
    while length:
        if length & 1:
            first = _mapped(zeros, first)
        zeros = [_mapped(zeros, column) for column in zeros]
        length >>= 1
    return first ^ second


def _mapped(columns: Sequence[int], vector: int) -> int:
    found = 0
    for n, column in enumerate(columns):
        if vector >> n & 1:
            found ^= column
    return found
