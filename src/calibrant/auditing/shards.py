"""What passes over pieces of the predictions collected, merged into what one pass over all would have.

Counts, kept samples, worst errors and checksums are those of one pass. Sums of numbers are added in another order and
may differ from its sums by rounding. Groups are in the order of their names, not of their first appearance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from calibrant.auditing.breakdown import MOST_LEVELS, Breakdown, Levels
from calibrant.base.numbers import count
from calibrant.predictions import FileStore, PassEngine, Piece, Predictions
from calibrant.predictions.schema import GROUP

if TYPE_CHECKING:
    from calibrant.auditing.collect import Collected
    from calibrant.policy import Outcome

NOTHING_COUNTS = "every position is ignored: there is nothing to audit"
ERRORS_KEPT = 50

#: Rows of a piece, and samples of it that count.
Size: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Offsets:
    """The position of a part in the whole."""

    rows: int = 0  # samples before it
    samples: int = 0  # those before it that count; for segmentation, pixels
    total: int | None = None  # all that count in the whole, where that is known


@dataclass
class Part:
    """What a pass over consecutive samples collected, and what merging needs."""

    collected: Collected  # as of one pass; numbers of rows and samples count from the beginning of the whole
    offsets: Offsets
    outcome: Outcome | None = None  # what a policy did with them
    label_bytes: int = 0  # behind the checksum of the labels
    id_bytes: int = 0  # behind that of the ids
    value_bytes: int = 0  # behind that of the first values, as far as they lie in this part
    types: dict[str, str] = field(default_factory=dict)  # of the ids and groups, ``"int64"`` or ``"text"``


def merge(parts: Iterable[Part]) -> Part:
    """What one pass over all parts would have collected; the parts come in order, and the first one is added to."""
    whole: Part | None = None
    for part in parts:
        if whole is None:
            whole = part
            continue
        for name, kind in part.types.items():
            if whole.types.setdefault(name, kind) != kind:
                raise ValueError(f"shards must hold the same, got {name} {kind} after {whole.types[name]}")
        _absorb(whole.collected, part)
        if whole.outcome is not None and part.outcome is not None:
            whole.outcome.absorb(part.outcome)
    if whole is None:
        raise ValueError(NOTHING_COUNTS)
    collected = whole.collected
    collected.groups = {name: _sorted(*group) for name, group in collected.groups.items()}
    return whole


def _absorb(total: Collected, part: Part) -> None:
    added = part.collected
    total.oddities = total.oddities or added.oddities
    total.weight_title = total.weight_title or added.weight_title
    total.sketch = total.sketch + added.sketch
    _absorb_predicted(total, added)
    if total.classwise is not None and added.classwise is not None:
        total.classwise.absorb(added.classwise)
    for name in ("without_class", "by_class", "clusters", "overlaps", "object_sizes"):
        if (table := getattr(total, name)) is not None and not (name == "by_class" and total.class_levels):
            for part_name, value in vars(getattr(added, name)).items():
                setattr(table, part_name, getattr(table, part_name) + value)
    for name, (levels, breakdown) in added.groups.items():
        _add_group(*total.groups[name], levels, breakdown)
    # Stable: of equally confident errors the first ones stay.
    total.worst = sorted(total.worst + added.worst, key=lambda error: error.shortfall)[:ERRORS_KEPT]
    total.confidences.absorb(added.confidences)
    total.judged.absorb(added.judged)
    total.logits.absorb(added.logits)
    lows, highs = zip(total.weight_range, added.weight_range, strict=True)
    total.weight_range = min(lows), max(highs)
    total.rows += added.rows - part.offsets.rows
    total.samples += added.samples - part.offsets.samples
    total.impossible += added.impossible
    total.impossible_weights += added.impossible_weights
    total.errors += added.errors
    if total.digits is not None and added.digits is not None:
        total.digits.absorb(added.digits)
    total.ignored += added.ignored
    total.repeats.absorb(added.repeats)
    total.label_crc = join_crc32(total.label_crc, added.label_crc, part.label_bytes)
    if added.named_label_crc is not None:  # four bytes a label, and eight of a label itself
        total.named_label_crc = join_crc32(total.named_label_crc or 0, added.named_label_crc, part.label_bytes // 2)
    total.value_crc = join_crc32(total.value_crc, added.value_crc, part.value_bytes)
    if added.id_crc is not None:
        total.id_crc = join_crc32(total.id_crc or 0, added.id_crc, part.id_bytes)


def _absorb_predicted(total: Collected, added: Collected) -> None:
    """Add the table of predicted classes of confidences; drop it if there are too many."""
    if total.class_levels is None or total.by_class is None:
        return
    if added.class_levels is None or added.by_class is None:
        total.class_levels = total.by_class = None
    elif len(total.class_levels.codes.keys() | added.class_levels.codes.keys()) > MOST_LEVELS:
        drop_predicted(total)
        return
    else:
        _add_group(total.class_levels, total.by_class, added.class_levels, added.by_class)
    total.remarks += [remark for remark in added.remarks if remark not in total.remarks]


def drop_predicted(collected: Collected) -> None:
    """Go without a table of predicted classes, as these are too many."""
    collected.class_levels = collected.by_class = None
    collected.remarks.append(f"More than {count(MOST_LEVELS)} different classes are predicted: no table by class.")


def _add_group(levels: Levels, breakdown: Breakdown, added_levels: Levels, added: Breakdown) -> None:
    codes = [levels.codes.setdefault(value, len(levels.codes)) for value in added_levels.codes]
    levels.check()
    breakdown.grow(len(levels.codes))
    for name, value in vars(added).items():
        getattr(breakdown, name)[codes] += value


def _sorted(levels: Levels, breakdown: Breakdown) -> tuple[Levels, Breakdown]:
    """The groups in the order of their names."""
    values = sorted(levels.codes)
    order = [levels.codes[value] for value in values]
    reordered = Breakdown()
    for name, table in vars(breakdown).items():
        setattr(reordered, name, table[order])
    return Levels(levels.column, {value: code for code, value in enumerate(values)}), reordered


def join_crc32(first: int, second: int, length: int) -> int:
    """The CRC-32 of two concatenated pieces of data, from those of the pieces; ``length`` is of the second, in bytes.

    Zeros appended to data change its checksum by a linear map over the two-element field; the map of many zeros comes
    from that of one by squaring.

    Example:
        >>> import zlib
        >>> join_crc32(zlib.crc32(b"calib"), zlib.crc32(b"rant"), 4) == zlib.crc32(b"calibrant")
        True
    """
    zeros = [0xEDB88320, *(1 << n for n in range(31))]  # one bit
    for _ in range(3):
        zeros = [_apply(zeros, column) for column in zeros]
    while length:
        if length & 1:
            first = _apply(zeros, first)
        zeros = [_apply(zeros, column) for column in zeros]
        length >>= 1
    return first ^ second


def _apply(columns: Sequence[int], vector: int) -> int:
    image = 0
    for n, column in enumerate(columns):
        if vector >> n & 1:
            image ^= column
    return image


# ---- where a piece lies -------------------------------------------------------------------------------------------
def find_offsets(sizes: Sequence[Size]) -> list[Offsets]:
    """Where each piece begins, by the sizes of all."""
    rows, samples = (np.cumsum([0, *column]).tolist() for column in zip(*sizes, strict=True))
    return [Offsets(rows[i], samples[i], samples[-1]) for i in range(len(sizes))]


def sizes_in_headers(pieces: Sequence[Piece]) -> list[Size] | None:
    """Rows and samples by the files' headers, as if no label were ignored; None if a pass must count them.

    Labels of whole samples are hardly ever ignored, those of pixels and tokens usually are.
    """
    first = pieces[0].predictions
    if first.kind != "classification" and first.ignore_index is not None:
        return None
    sizes = []
    for piece in pieces:
        store = piece.predictions._store
        assert isinstance(store, FileStore)
        counts = [reader.count for reader in store.readers]
        if None in counts:
            return None
        rows = sum(count or 0 for count in counts)
        positions = math.prod(store.schema.shape_of("labels"))
        sizes.append((rows, rows * positions))
    return sizes


class OtherSizeError(Exception):
    """Fewer samples count than the headers say, because some labels are ignored."""


def check_none_ignored(part: Part) -> Part:
    """The part, where no label of it was ignored."""
    if part.collected.ignored:
        raise OtherSizeError
    return part


def count_samples(piece: Piece, column: str | None = None) -> Iterator[dict[str, Size]]:
    """Rows and samples that count, from the labels alone; in each group of a column, or in all by the name ""."""
    sizes: dict[str, Size] = {}
    predictions = piece.predictions
    truth, ignored = predictions.data_type.truth, predictions.ignore_index
    for block in predictions._store.blocks(2**16, [truth, *([] if column is None else [GROUP + column])]):
        values = block[truth].reshape(len(block[truth]), -1)
        samples = np.full(len(values), values.shape[1]) if ignored is None else (values != ignored).sum(1)
        names = np.full(len(values), "") if column is None else np.asarray(block[GROUP + column]).astype(str)
        for name in np.unique(names).tolist():
            inside = names == name
            rows, counted = sizes.get(name, (0, 0))
            sizes[name] = rows + int(inside.sum()), counted + int(samples[inside].sum())
    yield sizes


def offsets_by_group(predictions: Predictions, column: str | None, engine: PassEngine) -> list[dict[str, Offsets]]:
    """Where each piece begins in every group of a column, or in all by the name "", in a pass over the labels."""
    sizes = list(engine.run(partial(count_samples, column=column), predictions, "counting"))
    names = {name for piece in sizes for name in piece}
    by_name = {name: find_offsets([piece.get(name, (0, 0)) for piece in sizes]) for name in names}
    return [{name: offsets[k] for name, offsets in by_name.items()} for k in range(len(sizes))]
