"""The pass of an audit over shards, by the machines of a Ray cluster: every shard is read where it is counted.

What travels is what was found, some megabytes whatever the size of a shard. Ray Data hands the shards out; Calibrant
reads them itself, as on one machine, so that columns, checks and messages are the same. Ray Data's own readers
know neither these nor the number of a row, on which the kept samples depend.
"""

from __future__ import annotations

import importlib
import logging
import math
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from calibrant._ray import check_fits, connected
from calibrant.auditing.collect import Collected, collect, wanted_groups
from calibrant.auditing.merging import Part, Place, collect_part, merged
from calibrant.predictions import FileStore, Predictions

#: Shards beyond this number are counted several at a time. It depends on nothing else, nor do the results.
MOST_PIECES = 256


def collect_on_ray(
    predictions: Predictions,
    *,
    groups: Iterable[str] | None = None,
    progress: Callable[[Iterable[Predictions]], Iterable[Predictions]] = lambda batches: batches,
    address: str | None = None,
) -> Collected:
    """Go through the predictions once, each shard in a task of its own; what is in memory is gone through here.

    Args:
        predictions: Opened files, on storage that all machines share.
        groups: As `collect` takes them.
        progress: Shows progress, over pieces of the predictions.
        address: Of a Ray cluster; None starts one on this machine.
    """
    store = predictions._store
    if not isinstance(store, FileStore):
        return collect(predictions, groups=groups, progress=progress)
    wanted, pieces = wanted_groups(predictions, groups), pieces_of(store)
    with connected("an audit with the engine ray", address) as ray:
        check_fits(ray, "a pass over a piece of the predictions", cpus=1, gpus=0)
        found: list[Part] = []

        def arriving() -> Iterator[Predictions]:
            arguments = [(piece, wanted, place) for piece, place in zip(pieces, _places(ray, pieces), strict=True)]
            for piece, packed in zip(pieces, _in_order(ray, _counted, arguments), strict=True):
                found.append(pickle.loads(zlib.decompress(packed)))
                yield piece

        return merged(found.pop() for _ in progress(arriving()))


def pieces_of(store: FileStore) -> list[Predictions]:
    """The files, one by one, or for many of them several consecutive ones at a time."""
    parts = np.array_split(np.arange(len(store.readers)), min(MOST_PIECES, len(store.readers)))
    return [Predictions._of(FileStore([store.readers[i] for i in part])) for part in parts]


def _places(ray: Any, pieces: Sequence[Predictions]) -> list[Place]:
    """Where each piece begins; a pass over the labels where that cannot be known without one."""
    sizes = [_known(piece) for piece in pieces]
    if None in sizes:
        sizes = list(_in_order(ray, _size, [(piece,) for piece in pieces]))
    rows, samples = (
        np.cumsum([0, *column]).tolist() for column in zip(*(size or (0, 0) for size in sizes), strict=True)
    )
    return [Place(rows[i], samples[i], samples[-1]) for i in range(len(pieces))]


def _known(piece: Predictions) -> tuple[int, int] | None:
    """Rows and samples that count, if the files say so."""
    store = piece._store
    assert isinstance(store, FileStore)
    rows = [reader.count for reader in store.readers]
    if piece.ignore_index is not None or None in rows:
        return None
    number = sum(row or 0 for row in rows)
    places = 1 if piece.holds == "confidence" else math.prod(store.schema.shape_of("labels"))
    return number, number * places


def _size(piece: Predictions) -> tuple[int, int]:
    """On any machine: rows and samples that count, from the labels alone."""
    rows = samples = 0
    name = "correct" if piece.holds == "confidence" else "labels"
    for block in piece._store.blocks(2**16, [name]):
        values = block[name]
        rows += len(values)
        samples += values.size if piece.ignore_index is None else int((values != piece.ignore_index).sum())
    return rows, samples


def _counted(piece: Predictions, groups: Sequence[str], place: Place) -> bytes:
    """On any machine: what a pass over a piece finds, packed, as most cells of a sketch are empty."""
    return zlib.compress(pickle.dumps(collect_part(piece, groups, place)), 1)


def _in_order(ray: Any, work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Results in the order of the arguments, by Ray Data, which has no more of them under way than fit."""
    data = importlib.import_module("ray.data")
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = data.DataContext.get_current()
    context.enable_progress_bars = False  # ours is shown
    context.execution_options.preserve_order = True

    def done(row: Mapping[str, bytes]) -> dict[str, Any]:
        try:
            return {"found": pickle.dumps(work(*pickle.loads(row["given"]))), "problem": ""}
        except (ValueError, OSError) as error:  # a sentence about a file: not Ray's business
            return {"found": b"", "problem": str(error)}

    rows = [{"given": pickle.dumps(one)} for one in arguments]
    try:
        for row in data.from_items(rows, override_num_blocks=len(rows)).map(done, num_cpus=1).iter_rows():
            if row["problem"]:
                raise ValueError(row["problem"])
            yield pickle.loads(row["found"])
    except ray.exceptions.RayError as error:
        raise ValueError(f"a piece of the predictions was lost again and again: {type(error).__name__}.") from error
