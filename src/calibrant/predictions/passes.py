"""A pass over predictions: the same work on every piece of them, and its results in the order of the samples.

Work is a function that goes through a `Piece`, consecutive samples of the whole, and yields results: counts at the end,
or rows as it goes. An engine has it done and hands the results on, in order; who asked for them puts them together.
`InProcess` takes the whole as one piece, here. `OnRay` takes each file, or several where there are many, in a task of
its own on whichever machine is free, and holds the results of one task at a time.
"""

from __future__ import annotations

import importlib
import logging
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from calibrant.base.progress import Progress, silent, track
from calibrant.predictions.predictions import Predictions
from calibrant.predictions.rows import Hashes, hash_ids
from calibrant.predictions.stores import GRAIN, FileStore

T = TypeVar("T")

#: If there are more files, a piece has several of them. The number is fixed, so that results do not depend on it.
MOST_PIECES = 256
#: Of ids, held at once where they are compared; more take several passes.
MOST_HASHES = 1 << 25


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive samples of some predictions, and where they lie in them.

    Attributes:
        predictions: the samples.
        number: which piece it is, from 0 on.
        start: how many samples are in the pieces before it.
        is_whole: whether these are all samples.
        report: passes batches on, and reports the progress.
    """

    predictions: Predictions
    number: int = 0
    start: int = 0
    is_whole: bool = True
    report: Callable[[Iterator[Predictions]], Iterator[Predictions]] = iter

    def batches(self) -> Iterator[tuple[int, Predictions]]:
        """The batches, and for each how many samples are before it in the whole."""
        start = self.start
        for batch in self.report(self.predictions.batches()):
            yield start, batch
            start += len(batch)


class PassEngine(Protocol):
    """What has work done on pieces: `InProcess` or `OnRay`."""

    def pieces(self, predictions: Predictions) -> list[Piece]:
        """The pieces that `run` takes the predictions in."""

    def run(
        self,
        work: Callable[[Piece], Iterable[T]],
        predictions: Predictions,
        stage: str = "reading",
        progress: Progress = silent,
        *,
        is_whole: bool = False,
    ) -> Iterator[T]:
        """The results of the work on every piece, in order; with ``is_whole``, on the whole as one piece."""

    def count_rows(self, predictions: Predictions) -> int:
        """How many samples there are."""

    def count_repeats(self, predictions: Predictions) -> int | None:
        """How many rows repeat an id that came before; None if there are no ids."""


class InProcess:
    """The engine that works here, on the whole as one piece."""

    def pieces(self, predictions: Predictions) -> list[Piece]:
        """The whole."""
        return [Piece(predictions)]

    def run(
        self,
        work: Callable[[Piece], Iterable[T]],
        predictions: Predictions,
        stage: str = "reading",
        progress: Progress = silent,
        *,
        is_whole: bool = False,
    ) -> Iterator[T]:
        """The results of the work; progress counts samples."""
        total = None if progress is silent else len(predictions)  # which may take a pass over the files

        def report(batches: Iterator[Predictions]) -> Iterator[Predictions]:
            return track(batches, stage, total, progress, size=len)

        return iter(work(Piece(predictions, report=report)))

    def count_rows(self, predictions: Predictions) -> int:
        """How many samples there are."""
        return len(predictions)

    def count_repeats(self, predictions: Predictions) -> int | None:
        """How many rows repeat an id that came before; None if there are no ids."""
        return predictions.repeats


#: The engine where none is given.
LOCAL = InProcess()


class OnRay:
    """The engine that works on a Ray cluster, a piece to a task; predictions in memory are worked on here.

    Files lie on storage that all machines share. ``address`` is that of a cluster; None starts one on this machine.
    """

    def __init__(self, address: str | None = None) -> None:
        self.address = address
        self._rows: dict[FileStore, list[int]] = {}  # by the pieces of a store

    def pieces(self, predictions: Predictions) -> list[Piece]:
        """The files one by one, or, if there are many, several consecutive files in each piece."""
        store = predictions._store
        if not isinstance(store, FileStore):
            return [Piece(predictions)]
        parts = _divide(store)
        starts = np.cumsum([0, *self._count_rows(store, parts)]).tolist()
        return [Piece(part, k, starts[k], is_whole=len(parts) == 1) for k, part in enumerate(parts)]

    def run(
        self,
        work: Callable[[Piece], Iterable[T]],
        predictions: Predictions,
        stage: str = "reading",
        progress: Progress = silent,
        *,
        is_whole: bool = False,
    ) -> Iterator[T]:
        """The results of the work; progress counts pieces."""
        if not isinstance(predictions._store, FileStore):
            yield from LOCAL.run(work, predictions, stage, progress)
            return
        pieces = [Piece(predictions)] if is_whole else self.pieces(predictions)
        yield from self._run_tasks(work, pieces, stage, progress)

    def count_rows(self, predictions: Predictions) -> int:
        """How many samples there are."""
        store = predictions._store
        return sum(self._count_rows(store, _divide(store))) if isinstance(store, FileStore) else len(store)

    def count_repeats(self, predictions: Predictions) -> int | None:
        """How many rows repeat an id that came before; None if there are no ids.

        The ids are hashed by tasks, and compared here: `MOST_HASHES` at most in each pass, by the remainder of a hash.
        """
        if "ids" not in predictions._store.names:
            return None
        passes, repeats = 1 + self.count_rows(predictions) // MOST_HASHES, 0
        for remainder in range(passes):
            work = partial(_hash_ids, passes=passes, remainder=remainder)
            hashes = np.sort(np.concatenate(list(self.run(work, predictions, "comparing ids"))))
            repeats += int((hashes[1:] == hashes[:-1]).sum())
        return repeats

    def _count_rows(self, store: FileStore, parts: list[Predictions]) -> list[int]:
        """How many rows each piece has: by the headers of its files, or counted by a task."""
        if store not in self._rows:
            if any(reader.count is None for reader in store.readers):
                pieces = [Piece(part, k) for k, part in enumerate(parts)]
                self._rows[store] = list(self._run_tasks(_count_rows, pieces, "counting", silent))
            else:
                self._rows[store] = [len(part) for part in parts]
        return self._rows[store]

    def _run_tasks(
        self, work: Callable[[Piece], Iterable[T]], pieces: list[Piece], stage: str, progress: Progress
    ) -> Iterator[T]:
        """Results in the order of the pieces, by Ray Data, which limits how many tasks run at once."""
        from calibrant.base.cluster import check_fits, connect  # here: a pass in this process needs none of it

        with connect("the engine ray", self.address) as ray:
            check_fits(ray, "a pass over a piece of the predictions", cpus=1, gpus=0)
            data = importlib.import_module("ray.data")
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            context = data.DataContext.get_current()
            context.enable_progress_bars = False  # ours is shown
            context.execution_options.preserve_order = True
            rows = [{"piece": pickle.dumps(piece)} for piece in pieces]
            tasks = data.from_items(rows, override_num_blocks=len(rows)).flat_map(partial(_do, work), num_cpus=1)
            done = 0
            progress(stage, done, len(pieces))
            try:
                for row in tasks.iter_rows():
                    if row["problem"]:
                        raise ValueError(row["problem"])
                    if row["result"]:
                        yield pickle.loads(zlib.decompress(row["result"]))
                    else:
                        done += 1
                        progress(stage, done, len(pieces))
            except ray.exceptions.RayError as error:
                raise ValueError(f"a piece of the predictions was lost repeatedly: {type(error).__name__}") from error


def _do(work: Callable[[Piece], Iterable[T]], row: Mapping[str, bytes]) -> Iterator[dict[str, Any]]:
    """The results of a piece, packed, and an empty one after the last; runs on any machine."""
    try:
        for result in work(pickle.loads(row["piece"])):
            yield {"result": zlib.compress(pickle.dumps(result), 1), "problem": ""}
    except (ValueError, OSError) as error:  # a message about a file, to be shown without Ray's traceback
        yield {"result": b"", "problem": str(error)}
    yield {"result": b"", "problem": ""}


def _divide(store: FileStore) -> list[Predictions]:
    parts = np.array_split(np.arange(len(store.readers)), min(MOST_PIECES, len(store.readers)))
    return [Predictions._of(FileStore([store.readers[i] for i in part])) for part in parts]


def _count_rows(piece: Piece) -> Iterator[int]:
    yield len(piece.predictions)


def _hash_ids(piece: Piece, passes: int, remainder: int) -> Iterator[Hashes]:
    """The hashes of the ids, of several passes those with this remainder."""
    parts = [np.empty(0, np.uint64)]
    for block in piece.predictions._store.blocks(GRAIN, ["ids"]):
        hashes = hash_ids(block["ids"])
        parts.append(hashes[hashes % np.uint64(passes) == remainder])
    yield np.concatenate(parts)
