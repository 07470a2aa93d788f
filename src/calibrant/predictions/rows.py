"""Which rows of predictions count: those of one split, the first row of each id, and those of a part for a purpose.

A column ``split`` says for every row what it is used for. Rows of several splits are never pooled in silence: a caller
names one of them. Rows that are left out are read with the others and dropped batch by batch; what is remembered is one
byte per row.

Two rows with one id are hardly two independent samples. Ids are compared by 64-bit hashes: whole numbers exactly, texts
beyond any reasonable doubt. One labelled set is divided in two, to fit on and to judge by, by whole ids or groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant.base.arrays import Array
from calibrant.base.checks import check_integer, check_number, did_you_mean, listing, shorten
from calibrant.base.numbers import count
from calibrant.predictions.files import Reader
from calibrant.predictions.schema import GROUP, SPLIT, SPLIT_WORDS, UNITS
from calibrant.predictions.stores import GRAIN, FileStore, MemoryStore, Store

if TYPE_CHECKING:
    from calibrant.predictions.passes import PassEngine
    from calibrant.predictions.predictions import Predictions

Bools: TypeAlias = npt.NDArray[np.bool_]
Hashes: TypeAlias = npt.NDArray[np.uint64]

MOST_SPLITS = 1000  # different values of a column that says what rows are used for
MOST_IDS = 1 << 20  # different ids that are counted exactly
_NO_LIMIT = np.uint64(2**64 - 1)
LOOKED_AT = 1000  # common ids of two sets of predictions


class SelectedRows(Reader):
    """The rows of a file that a mask keeps."""

    def __init__(self, reader: Reader, mask: Bools):
        super().__init__(reader.path, reader.columns, reader.schema, int(np.count_nonzero(mask)))
        self.reader, self.mask = reader, mask

    def file_of(self, name: str) -> str:
        """The file that a column is in."""
        return self.reader.file_of(name)

    def name_row(self, row: int) -> str:
        """The name of a row in errors, as the whole file counts it."""
        rows = np.flatnonzero(self.mask)
        return self.reader.name_row(int(rows[row]) if row < len(rows) else row)

    def pieces(self, names: Sequence[str], rows: int) -> Iterator[dict[str, Array]]:
        """The pieces of the file without the rows that are left out."""
        start = 0
        for piece in self.reader.pieces(names, rows):
            stop = start + len(next(iter(piece.values())))
            mask = self.mask[start:stop]
            if mask.all():
                yield piece
            elif mask.any():
                yield {name: array[mask] for name, array in piece.items()}
            start = stop


def keep_rows(store: Store, mask: Bools) -> Store:
    """The rows of a store that a mask keeps; files are still read batch by batch."""
    return store.take(np.flatnonzero(mask)) if isinstance(store, MemoryStore) else _keep_rows_of_files(store, mask)


def _keep_rows_of_files(store: FileStore, mask: Bools) -> FileStore:
    readers, start = [], 0
    for reader in store.readers:
        stop = start + reader.rows()
        readers.append(SelectedRows(reader, mask[start:stop]))
        start = stop
    return FileStore(readers)


# ---- splits ---------------------------------------------------------------------------------------------------------
def select_split(store: FileStore, split: str | None) -> FileStore:
    """The rows of the split that the caller names, where the files have a column of splits; else all rows.

    Rows of several splits without a name are refused. What the rows are used for becomes a fact of the predictions.
    """
    readers = store.readers
    if SPLIT not in readers[0].columns.columns:
        return store
    counts: Counter[str] = Counter()
    parts: list[tuple[list[str], Array]] = []
    for reader in readers:
        for piece in reader.pieces([SPLIT], GRAIN):
            levels, codes, sizes = np.unique(piece[SPLIT], return_inverse=True, return_counts=True)
            names = [f"{level:.15g}" if isinstance(level, float) else str(level).strip() for level in levels.tolist()]
            for name, size in zip(names, sizes.tolist(), strict=True):
                counts[name] += size
            if len(counts) > MOST_SPLITS:
                break
            parts.append((names, codes.astype(np.uint16)))
    value = _chosen_split(readers, counts, split)
    for reader in readers:
        reader.schema = replace(reader.schema, split=SPLIT_WORDS.get(value.lower()))
    if len(counts) == 1:
        return store
    return _keep_rows_of_files(store, np.concatenate([(np.array(names) == value)[codes] for names, codes in parts]))


def _chosen_split(readers: Sequence[Reader], counts: Counter[str], split: str | None) -> str:
    """The value of the column that is meant: the only one, or the one that the caller names."""
    column = shorten(readers[0].columns.sources(SPLIT)[0])
    prefix = f"{readers[0].path}{f' and {len(readers) - 1} more' if len(readers) > 1 else ''}: the column {column!r}"
    pooled = "--column split= (columns={'split': None}) pools all rows"
    if len(counts) > MOST_SPLITS:
        raise ValueError(
            f"{prefix} must say what rows are used for, got more than {count(MOST_SPLITS)} values: {pooled}"
        )
    sizes = {value: f"{count(size)} row{'' if size == 1 else 's'}" for value, size in counts.items()}
    values = listing([f"{shorten(value) or repr(value)} ({size})" for value, size in sizes.items()], 8)
    if split is None:
        if len(counts) == 1:
            return next(iter(counts))
        raise ValueError(f"{prefix} has {values}: choose one with --split NAME (in Python split='NAME'); {pooled}")
    split = str(split)  # it may be the number of a fold
    for meaning in (str, str.lower, lambda name: SPLIT_WORDS.get(name.lower(), name)):
        matches = [value for value in counts if meaning(value) == meaning(split)]
        if len(matches) == 1:
            return matches[0]
    raise ValueError(f"{prefix} has {values}, but no {shorten(split)!r}{did_you_mean(split, list(counts))}")


# ---- repeated ids ---------------------------------------------------------------------------------------------------
def hash_ids(ids: Array) -> Hashes:
    """A hash of 64 bits per id: of whole numbers different for different ones, of texts whatever the column's width."""
    if ids.dtype.kind != "U":
        return _mix(ids.astype(np.int64).view(np.uint64))
    points = np.ascontiguousarray(ids).view(np.dtype(np.uint32).newbyteorder(ids.dtype.byteorder))
    hashes = np.zeros(len(ids), np.uint64)
    for column in points.reshape(len(ids), -1).T:  # a text ends where its code points are 0
        mixed = (hashes ^ column.astype(np.uint64)) * np.uint64(0x9FB21C651E98DF25)
        hashes = np.where(column, mixed ^ (mixed >> np.uint64(29)), hashes)
    return _mix(hashes)


def _mix(values: Hashes) -> Hashes:
    """The finalizer of splitmix64, which maps different values to different values."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def first_rows(store: Store) -> Bools | None:
    """Which rows have an id that no row before has; None if no id repeats, or there are none.

    Takes a pass over the ids, and at most some 50 bytes per row.
    """
    if "ids" not in store.names:
        return None
    hashes = np.concatenate([hash_ids(block["ids"]) for block in store.blocks(GRAIN, ["ids"])])
    ordered = np.sort(hashes)
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    del ordered
    _, rows = np.unique(hashes, return_index=True)
    mask = np.zeros(len(hashes), bool)
    mask[rows] = True
    return mask


def resolve_repeats(predictions: Predictions, repeats: str | None, engine: PassEngine | None = None) -> Predictions:
    """Predictions for work that takes samples to be independent: repeated ids are refused, or ``repeats`` says how.

    With ``"first"`` the first row of each id is kept. The ids are compared by the engine, if one is given.
    """
    if repeats not in (None, "first"):
        raise ValueError(f"repeats must be 'first' or not be given, got {shorten(repr(repeats))}")
    if repeats == "first":
        return predictions.without_repeats()
    number = predictions.repeats if engine is None else engine.count_repeats(predictions)
    if number:
        words = repeat_words(number, len(predictions), predictions.kind)
        unit = UNITS[predictions.kind][0]
        raise ValueError(f"{words}, and {unit} with the same id are not independent: {REPEAT_REMEDIES}")
    return predictions


#: What to do about repeated ids.
REPEAT_REMEDIES = (
    "--repeats first keeps the first row of each id (in Python repeats='first'); if the column does not identify "
    "samples, --column ids= leaves it out (columns={'ids': None})"
)


def repeat_words(repeats: int, rows: int, kind: str, *, is_exact: bool = True) -> str:
    """How many rows repeat an id, the beginning of a sentence."""
    unit, each = UNITS[kind][0], rows / max(1, rows - repeats)
    number = count(repeats) if is_exact else f"about {count(float(f'{repeats:.2g}'))}"
    average = f" ({count(round(each))} per id on average)" if each >= 3 else ""
    verb = "repeats" if repeats == 1 else "repeat"
    return f"{number} of {count(rows)} {unit} {verb} an id that came before{average}"


class RepeatCount:
    """Counts the rows whose id came before, in memory that does not grow with the data.

    All of up to `MOST_IDS` different ids are counted. Of more ids those with the smallest hashes are, a random sample:
    each with all of its rows, so that the share of repeated rows among theirs is an estimate of that of all.
    """

    def __init__(self) -> None:
        self.rows, self.size = 0, 0
        self.limit = _NO_LIMIT
        self.parts: list[tuple[Hashes, Array]] = []

    def add(self, ids: Array) -> None:
        """Count the ids of further rows."""
        self.rows += len(ids)
        for start in range(0, len(ids), GRAIN):
            hashes = hash_ids(ids[start : start + GRAIN])
            self._append(*np.unique(hashes[hashes <= self.limit], return_counts=True))

    def absorb(self, other: RepeatCount) -> None:
        """Add what was counted in another part of the data."""
        self.rows += other.rows
        self.limit = min(self.limit, other.limit)
        for part in other.parts:
            self._append(*part)

    def _append(self, hashes: Hashes, counts: Array) -> None:
        rows = hashes <= self.limit
        self.parts.append((hashes[rows], counts[rows]))
        self.size += len(self.parts[-1][0])
        if self.size > 2 * MOST_IDS:
            self._join()

    def _join(self) -> tuple[Hashes, Any]:
        """The different ids by their hashes, as many as are kept, and the number of rows of each."""
        hashes, counts = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        order = np.argsort(hashes, kind="stable")  # fast, because every part is in order
        hashes = hashes[order]
        starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
        hashes, counts = hashes[starts], np.add.reduceat(counts[order], starts)
        if len(hashes) > MOST_IDS:
            self.limit = hashes[MOST_IDS - 1]
        rows = hashes <= self.limit
        self.parts, self.size = [(hashes[rows], counts[rows])], int(rows.sum())
        return self.parts[0]

    @property
    def is_exact(self) -> bool:
        """Whether all ids were counted."""
        return bool(self.limit == _NO_LIMIT)

    @property
    def repeats(self) -> int:
        """How many rows repeat an id that came before; an estimate where there are very many ids."""
        if not self.rows:
            return 0
        hashes, counts = self._join()
        repeated = int(counts.sum()) - len(hashes)
        return repeated if self.is_exact else round(self.rows * repeated / int(counts.sum()))


# ---- two parts ------------------------------------------------------------------------------------------------------
def draw_holdout(predictions: Predictions, share: float, seed: int, by: str | None) -> tuple[Store, Store]:
    """The samples to fit on, and those to judge by, as `Predictions.holdout` draws them.

    Whole groups are drawn: the rows of one value of ``by``, or else of one id. What is remembered are some 25 bytes
    per row, and the rows are read batch by batch.
    """
    check_number("share", share, 0.0, 1.0, open_low=True, open_high=True)
    check_integer("seed", seed, 0)
    store, split = predictions._store, predictions.split
    if split == "test":
        raise ValueError("nothing is fitted on test data: these predictions are marked split='test'")
    column = GROUP + by if by is not None else "ids" if "ids" in store.names else None
    if column is None:
        groups = np.arange(len(store))
    else:
        _, groups = np.unique(_hash_column(store, column), return_inverse=True)
    number = int(groups.max()) + 1
    if number < 2:
        unit = "sample" if column is None else f"value of {by}" if by is not None else "id"
        raise ValueError(f"predictions are divided between at least two groups, got one {unit}")
    to_fit = np.zeros(number, bool)
    to_fit[np.random.default_rng(seed).permutation(number)[: min(max(round(share * number), 1), number - 1)]] = True
    marks = ("train", "train") if split == "train" else ("val", "test")
    return _part(store, to_fit[groups], marks[0]), _part(store, ~to_fit[groups], marks[1])


def _hash_column(store: Store, name: str) -> Hashes:
    """A hash of every value of a column of ids or groups, in a pass over it."""
    return np.concatenate([hash_ids(block[name]) for block in store.blocks(GRAIN, [name])])


def _part(store: Store, mask: Bools, split: str) -> Store:
    """The rows of a mask, marked with what they are for."""
    part = keep_rows(store, mask)
    if isinstance(part, FileStore):
        for reader in part.readers:
            reader.schema = replace(reader.schema, split=split)
    else:
        part.schema = replace(part.schema, split=split)
    return part


def count_shared(first: Predictions, second: Predictions) -> int:
    """How many samples of the first are in the second, too: by their ids, if labels and values agree there.

    Ids may be mere row numbers, which agree for different samples; so up to a thousand of the common ids are looked at,
    and where most of them are of different samples, nothing is said to be shared.
    """
    stores = first._store, second._store
    names = first.holds, "labels"
    if first.holds != second.holds or not all({"ids", *names} <= set(store.names) for store in stores):
        return 0
    hashes, others = (_hash_column(store, "ids") for store in stores)
    common, rows, other_rows = np.intersect1d(hashes, others, return_indices=True)
    if not len(common):
        return 0
    looked_at = first.samples(rows[:LOOKED_AT]), second.samples(other_rows[:LOOKED_AT])
    is_same = np.ones(len(looked_at[0]), bool)
    for name in names:
        values, other_values = (getattr(part, name) for part in looked_at)
        if values.shape != other_values.shape:
            return 0
        is_same &= np.isclose(values, other_values, rtol=1e-4).reshape(len(values), -1).all(1)
    share = float(is_same.mean())
    return round(share * len(common)) if share > 0.5 else 0
