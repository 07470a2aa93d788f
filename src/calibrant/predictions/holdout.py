"""One set of labelled predictions as two, samples to fit on and others to judge by; and whether two sets overlap."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from calibrant.base.checks import check_integer, check_number
from calibrant.predictions.row_selection import Bools, Hashes, hash_ids, keep_rows
from calibrant.predictions.schema import GROUP
from calibrant.predictions.stores import GRAIN, FileStore, Store

if TYPE_CHECKING:
    from calibrant.predictions.predictions import Predictions

LOOKED_AT = 1000  # common ids of two sets of predictions


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
