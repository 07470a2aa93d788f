"""Passes over parts of the predictions, merged into what one pass over all of them would have collected.

Counts, kept samples, worst errors and checksums are those of one pass. Sums of numbers are added in another order and
may differ from its sums by rounding. Groups are in the order of their names, not of their first appearance.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from calibrant.auditing.breakdown import Breakdown, Levels
from calibrant.auditing.collect import (
    ERRORS_KEPT,
    NOTHING_COUNTS,
    Collected,
    add_batch,
    begin,
    check_groups,
    collect,
    id_bytes,
)
from calibrant.base.cluster import check_fits, connect
from calibrant.base.progress import Progress, silent, track
from calibrant.predictions import BATCH, FileStore, Predictions

#: Rows of a piece, and samples of it that count.
Size: TypeAlias = tuple[int, int]

#: If there are more shards, a piece has several of them. The number is fixed, so that results do not depend on it.
MOST_PIECES = 256


@dataclass(frozen=True)
class Offsets:
    """The position of a part in the whole."""

    rows: int  # samples before it
    samples: int  # those before it that count; for segmentation, pixels
    total: int  # all that count in the whole


@dataclass
class Part:
    """What a pass over consecutive samples collected, and what merging needs."""

    collected: Collected  # as of one pass; numbers of rows and samples count from the beginning of the whole
    offsets: Offsets
    label_bytes: int  # behind the checksum of the labels
    id_bytes: int  # behind that of the ids
    value_bytes: int  # behind that of the first values, as far as they lie in this part
    types: dict[str, str]  # of the ids and groups, ``"int64"`` or ``"text"``


def collect_part(predictions: Predictions, groups: Sequence[str], offsets: Offsets) -> Part:
    """Go through consecutive samples of a larger whole."""
    collected = begin(predictions, groups)
    collected.rows, collected.samples = offsets.rows, offsets.samples
    if offsets.total > collected.confidences.most:
        collected.confidences.most = 0  # the whole will not keep them either
    for sample in (collected.judged, collected.logits):
        sample.expect(offsets.total)
    part = Part(collected, offsets, 0, 0, 0, {})
    value_crc = 0
    first_rows = min(1024, max(1, BATCH // max(1, predictions._store.schema.numbers)))  # of `value_crc`
    for batch in predictions.batches():
        if collected.rows < first_rows:
            values = np.ascontiguousarray(batch.data.values[: first_rows - collected.rows])
            value_crc = zlib.crc32(values.tobytes(), value_crc)
            part.value_bytes += values.nbytes
        add_batch(collected, batch)
        part.label_bytes += 0 if batch.labels is None else batch.labels.nbytes
        if batch.ids is not None:
            part.id_bytes += len(id_bytes(batch.ids))
        columns = batch.groups | ({} if batch.ids is None else {"ids": batch.ids})
        for name, column in columns.items():
            part.types[name] = "text" if column.dtype.kind == "U" else str(column.dtype)
    collected.value_crc = value_crc
    return part


def merge(parts: Iterable[Part]) -> Collected:
    """What one pass over all parts would have collected; the parts come in order."""
    total: Collected | None = None
    types: dict[str, str] = {}
    for part in parts:
        for name, kind in part.types.items():
            if types.setdefault(name, kind) != kind:
                raise ValueError(f"shards must hold the same, got {name} {kind} after {types[name]}")
        if total is None:
            total = part.collected
        else:
            _absorb(total, part)
    if total is None or not total.samples:
        raise ValueError(NOTHING_COUNTS)
    total.groups = {name: _sorted(*group) for name, group in total.groups.items()}
    return total


def _absorb(total: Collected, part: Part) -> None:
    added = part.collected
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
    total.rows, total.samples = added.rows, added.samples
    lows, highs = zip(total.weight_range, added.weight_range, strict=True)
    total.weight_range = min(lows), max(highs)
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
    """Add the table of predicted classes of confidences; drop it if a part has too many."""
    if total.class_levels is None or total.by_class is None:
        return
    if added.class_levels is None or added.by_class is None:
        total.class_levels = total.by_class = None
        return
    _add_group(total.class_levels, total.by_class, added.class_levels, added.by_class)


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


# ---- on a cluster -------------------------------------------------------------------------------------------------
def collect_on_ray(
    predictions: Predictions,
    *,
    groups: Iterable[str] | None = None,
    stage: str = "reading",
    progress: Progress = silent,
    address: str | None = None,
) -> Collected:
    """Go through the predictions once as `collect` does, each shard in a task of its own.

    Files lie on storage that all machines share; predictions in memory are read here. ``address`` is that of a Ray
    cluster; None starts one on this machine.
    """
    store = predictions._store
    if not isinstance(store, FileStore):
        return collect(predictions, groups=groups, stage=stage, progress=progress)
    columns, pieces = check_groups(predictions, groups), pieces_of(store)
    with connect("an audit with the engine ray", address) as ray:
        check_fits(ray, "a pass over a piece of the predictions", cpus=1, gpus=0)

        def read(sizes: Sequence[Size]) -> Iterator[Part]:
            arguments = [(piece, columns, part) for piece, part in zip(pieces, _offsets(sizes), strict=True)]
            parts = track(_in_order(ray, _collect_packed, arguments), stage, len(pieces), progress)
            return (pickle.loads(zlib.decompress(part)) for part in parts)

        stated = _sizes_in_headers(pieces)
        if stated is not None:
            with contextlib.suppress(_OtherSizeError):
                return merge(map(_check_none_ignored, read(stated)))
        return merge(read(list(_in_order(ray, _count_samples, [(piece,) for piece in pieces]))))


def pieces_of(store: FileStore) -> list[Predictions]:
    """The files one by one, or, if there are many, several consecutive files in each piece."""
    parts = np.array_split(np.arange(len(store.readers)), min(MOST_PIECES, len(store.readers)))
    return [Predictions._of(FileStore([store.readers[i] for i in part])) for part in parts]


def _offsets(sizes: Sequence[Size]) -> list[Offsets]:
    """Where each piece begins."""
    rows, samples = (np.cumsum([0, *column]).tolist() for column in zip(*sizes, strict=True))
    return [Offsets(rows[i], samples[i], samples[-1]) for i in range(len(sizes))]


def _sizes_in_headers(pieces: Sequence[Predictions]) -> list[Size] | None:
    """Rows and samples by the files' headers, as if no label were ignored; None if a pass must count them.

    Labels of whole samples are hardly ever ignored, those of pixels and tokens usually are.
    """
    if pieces[0].kind != "classification" and pieces[0].ignore_index is not None:
        return None
    sizes = []
    for piece in pieces:
        store = piece._store
        assert isinstance(store, FileStore)
        counts = [reader.count for reader in store.readers]
        if None in counts:
            return None
        rows = sum(count or 0 for count in counts)
        positions = math.prod(store.schema.shape_of("labels"))
        sizes.append((rows, rows * positions))
    return sizes


class _OtherSizeError(Exception):
    """Fewer samples count than the headers say, because some labels are ignored."""


def _check_none_ignored(part: Part) -> Part:
    if part.collected.ignored:
        raise _OtherSizeError
    return part


def _count_samples(piece: Predictions) -> Size:
    """Rows and samples that count, from the labels alone; runs on any machine."""
    rows = samples = 0
    name = piece.data_type.truth
    for block in piece._store.blocks(2**16, [name]):
        values = block[name]
        rows += len(values)
        samples += values.size if piece.ignore_index is None else int((values != piece.ignore_index).sum())
    return rows, samples


def _collect_packed(piece: Predictions, groups: Sequence[str], offsets: Offsets) -> bytes:
    """What a pass over a piece collects, compressed, as most cells of a sketch are empty; runs on any machine."""
    return zlib.compress(pickle.dumps(collect_part(piece, groups, offsets)), 1)


def _in_order(ray: Any, work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Results in the order of the arguments, by Ray Data, which limits how many are computed at once."""
    data = importlib.import_module("ray.data")
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = data.DataContext.get_current()
    context.enable_progress_bars = False  # ours is shown
    context.execution_options.preserve_order = True

    def run(row: Mapping[str, bytes]) -> dict[str, Any]:
        try:
            return {"result": pickle.dumps(work(*pickle.loads(row["arguments"]))), "problem": ""}
        except (ValueError, OSError) as error:  # a message about a file, to be shown without Ray's traceback
            return {"result": b"", "problem": str(error)}

    rows = [{"arguments": pickle.dumps(values)} for values in arguments]
    try:
        for row in data.from_items(rows, override_num_blocks=len(rows)).map(run, num_cpus=1).iter_rows():
            if row["problem"]:
                raise ValueError(row["problem"])
            yield pickle.loads(row["result"])
    except ray.exceptions.RayError as error:
        raise ValueError(f"a piece of the predictions was lost repeatedly: {type(error).__name__}") from error
