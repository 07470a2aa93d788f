"""Which rows count: one split of a file that has several, and the first row of each id."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.predictions import RepeatCount
from calibrant.predictions import rows as row_selection
from calibrant.predictions.rows import hash_ids
from tests.helpers.errors import facts
from tests.helpers.predictions import FORMATS, write_columns

N, C = 50, 3
RNG = np.random.default_rng(11)
Z, Y = RNG.standard_normal((N, C)), RNG.integers(0, C, N)
SPLIT = np.array(["train"] * 30 + ["val"] * 8 + ["test"] * 12)[RNG.permutation(N)]
IDS = np.array([f"r{i}" for i in range(N)])


def table(split=SPLIT, name="split"):
    return pa.table({f"logits_{k}": Z[:, k] for k in range(C)} | {"labels": Y, "ids": IDS, name: np.asarray(split)})


def write(path, split=SPLIT, rows=slice(None)):
    """A file of any format with a value of ``split`` per row, written by other libraries."""
    columns = {"logits": Z[rows], "labels": Y[rows], "ids": IDS[rows], "split": np.asarray(split)[rows]}
    if path.suffix == ".parquet":
        pq.write_table(table(split).take(np.arange(N)[rows]), path, row_group_size=7)
        return path
    if path.suffix == ".csv":
        columns = table(split).take(np.arange(N)[rows]).to_pydict()
    elif path.suffix == ".safetensors":  # which has no text
        columns = {"logits": Z[rows], "labels": Y[rows], "split": np.unique(columns["split"], return_inverse=True)[1]}
    return write_columns(path.with_name(path.name.replace("_logits", "")) if path.suffix == ".npy" else path, columns)


@pytest.mark.parametrize("suffix", FORMATS)
def test_one_split_is_read_and_several_are_not_pooled(suffix, tmp_path):
    path, split = write(tmp_path / f"x_logits{suffix}"), "0" if suffix == ".safetensors" else "test"
    with pytest.raises(ValueError, match=r"x_logits.*12 rows.*30 rows.*--split"):
        Predictions.open(path)
    with pytest.raises(ValueError, match=r"'dev2'"):
        Predictions.open(path, split="dev2")
    rows = SPLIT == "test"
    p = Predictions.open(path, split=split)
    assert (len(p), p.split) == (12, "test" if split == "test" else None)
    assert np.array_equal(p.logits, Z[rows])
    parts = list(p.batches(5))
    assert [len(part) for part in parts] == [5, 5, 2]
    assert np.array_equal(np.concatenate([part.labels for part in parts]), Y[rows])
    assert np.array_equal(p.samples([11, 0]).logits, Z[rows][[11, 0]])
    assert np.array_equal(pickle.loads(pickle.dumps(p)).load().labels, Y[rows])
    assert len(Predictions.open(path, columns={"split": None})) == N


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_column_of_one_value_is_a_fact(suffix, tmp_path):
    p = Predictions.open(write(tmp_path / f"x_logits{suffix}", ["test"] * N))
    assert (len(p), p.split) == (N, None if suffix == ".safetensors" else "test")


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_was_selected_keeps_its_meaning_when_it_is_saved(suffix, tmp_path):
    p = Predictions.from_frame(table(), split="val")
    p.save(tmp_path / f"y_logits{suffix}")
    again = Predictions.open(tmp_path / f"y_logits{suffix}")
    assert (len(again), again.split) == (8, "val")
    assert np.array_equal(again.labels, p.labels)


@pytest.mark.parametrize("convert", [pa.Table.to_pandas, lambda t: t])
def test_frames_have_splits_too(convert):
    frame = convert(table())
    assert Predictions.from_frame(frame, split="train").labels.tolist() == Y[SPLIT == "train"].tolist()
    assert len(Predictions.from_frame(frame, columns={"split": None})) == N
    assert Predictions.from_frame(frame, groups=["split"]).groups["split"].tolist() == SPLIT.tolist()
    with pytest.raises(ValueError, match=r"frame: .*val"):
        Predictions.from_frame(frame)


def test_shards_are_one_file(tmp_path):
    """The splits are those of all shards, and a shard may have none of them."""
    ordered = np.sort(SPLIT)  # test, train, val
    for part, rows in enumerate((slice(0, 12), slice(12, 20), slice(20, N))):
        write(tmp_path / f"{part}.csv", ordered, rows)
    with pytest.raises(ValueError, match=r"12 rows.*30 rows.*8 rows"):
        Predictions.open(tmp_path)
    assert Predictions.open(tmp_path, split="train").labels.tolist() == Y[12:42].tolist()
    assert len(Predictions.open(tmp_path, split="train").files) == 3  # which must not be overwritten
    table().drop(["split"]).to_pandas().to_csv(tmp_path / "3.csv", index=False)
    with pytest.raises(ValueError, match="shards must hold the same"):
        Predictions.open(tmp_path)


def test_names_of_splits(tmp_path):
    names = {"train": "Training", "val": "dev", "test": "Hold out"}
    frame = table([names[name] for name in SPLIT], "Split")
    for asked, split, count in (("val", "val", 8), ("train", "train", 30), ("hold out", None, 12)):
        p = Predictions.from_frame(frame, split=asked)
        assert (len(p), p.split) == (count, split)
    folds = table(np.arange(N) % 5, "fold")
    assert len(Predictions.from_frame(folds)) == N
    assert Predictions.from_frame(folds, columns={"split": "fold"}, split="3").labels.tolist() == Y[3::5].tolist()
    assert len(Predictions.from_frame(folds, columns={"split": "fold"}, split=3)) == 10
    np.savez(tmp_path / "x.npz", logits=Z, labels=Y, split="validation")  # a fact of the file, stated once
    assert Predictions.open(tmp_path / "x.npz").split == "val"
    assert Predictions.open(tmp_path / "x.npz", split="val").split == "val"
    with pytest.raises(ValueError, match=facts("x.npz", "'val'", "'test'")):
        Predictions.open(tmp_path / "x.npz", split="test")
    Predictions.from_logits(Z, Y).save(tmp_path / "y.npz")
    assert Predictions.open(tmp_path / "y.npz", split="test").split == "test"


@pytest.mark.parametrize(
    ("split", "words"),
    [
        (SPLIT[:-1], r"\[50\], got \[49\]"),
        (SPLIT.reshape(25, 2), "one value"),
        (Z[:, 0], "and 42 more"),
        ("fold", "'fold'"),
    ],
)
def test_arrays_that_are_no_splits(split, words, tmp_path):
    np.savez(tmp_path / "x.npz", logits=Z, labels=Y, split=split)
    with pytest.raises(ValueError, match=words):
        Predictions.open(tmp_path / "x.npz")


def test_a_column_of_too_many_values_says_no_splits(monkeypatch):
    monkeypatch.setattr(row_selection, "MOST_SPLITS", 9)
    with pytest.raises(ValueError, match="more than 9 values"):
        Predictions.from_frame(table(IDS))


def test_rows_in_errors_are_those_of_the_file(tmp_path):
    """By hand: line 1 is the header, and the second row of the split is in line 4."""
    path = tmp_path / "x.csv"
    path.write_text("probabilities_0,probabilities_1,labels,split\n.5,.5,0,a\n.5,.5,0,b\n.7,.7,0,a\n.9,.9,0,b\n")
    with pytest.raises(ValueError, match="line 4"):
        Predictions.open(path, split="a").load()


# ---- repeated ids -------------------------------------------------------------------------------------------------
REPEATED = ["b", "a", "b", "c", "a", "b"]  # by hand: three repeat an id, the first rows are 0, 1 and 3


@pytest.mark.parametrize("ids", [REPEATED, [7, -1, 7, 2**40, -1, 7]])
@pytest.mark.parametrize("suffix", [None, *FORMATS])
def test_the_first_row_of_each_id(ids, suffix, tmp_path):
    p = Predictions.from_logits(Z[:6], Y[:6], ids=ids)
    if suffix is not None:
        p.save(tmp_path / f"x_logits{suffix}")
        p = Predictions.open(tmp_path / f"x_logits{suffix}")
    first = p.without_repeats()
    assert (p.repeats, len(first), first.repeats) == (3, 3, 0)
    assert first.ids.tolist() == [ids[0], ids[1], ids[3]]
    assert np.array_equal(first.logits, Z[[0, 1, 3]])


def test_no_ids_and_no_repeats():
    p, q = Predictions.from_logits(Z, Y), Predictions.from_logits(Z, Y, ids=IDS)
    assert (p.repeats, q.repeats) == (None, 0)
    assert p.without_repeats() is p
    assert q.without_repeats() is q
    frame = (
        pd.DataFrame({"ids": ["q"] * N, "split": SPLIT}).join(pd.DataFrame(Z).add_prefix("logits_")).assign(labels=Y)
    )
    assert Predictions.from_frame(frame, columns={"ids": None, "split": None}).ids is None


def test_ids_repeat_across_shards_and_within_a_split(tmp_path):
    for part in range(2):
        write(tmp_path / f"{part}.parquet")
    p = Predictions.open(tmp_path, split="test")
    assert (len(p), p.repeats) == (24, 12)
    assert p.without_repeats().labels.tolist() == Y[SPLIT == "test"].tolist()


def test_hashes_do_not_depend_on_the_width_or_byte_order():
    texts = np.array(["", "a", "ab", "ba", "aa", "é", "row 10", "row 01", "日本"])
    hashes = hash_ids(texts)
    assert len(np.unique(hashes)) == len(texts)
    assert np.array_equal(hash_ids(texts.astype("<U40")), hashes)
    assert np.array_equal(hash_ids(texts.astype(">U9")), hashes)
    numbers = np.r_[np.arange(-50_000, 50_000), 2**62, -(2**62)]
    assert len(np.unique(hash_ids(numbers))) == len(numbers)
    many = np.array([f"{prefix}{i:06}" for prefix in ("a", "image/") for i in range(50_000)])
    assert len(np.unique(hash_ids(many))) == len(many)


@pytest.mark.parametrize("most", [1 << 20, 500])
def test_repeats_are_counted_in_bounded_memory(most, monkeypatch):
    """Of 12,000 ids a third occurs twice and one in ten thousand times: 4,000 + 9,999 of 25,999 rows repeat one."""
    monkeypatch.setattr(row_selection, "MOST_IDS", most)
    ids = np.r_[np.arange(12_000), np.arange(4000), np.full(9999, 11_999)]
    ids = np.random.default_rng(0).permutation(ids)
    whole, parts = RepeatCount(), [RepeatCount(), RepeatCount()]
    for part in np.array_split(ids, 40):
        whole.add(part)
        assert whole.size <= 2 * most + len(part)
    for part, counter in zip(np.array_split(ids, 2), parts, strict=True):
        counter.add(part)
    parts[0].absorb(parts[1])
    assert whole.is_exact == (most > 12_000)
    for counter in (whole, parts[0]):
        assert counter.repeats == 13_999 if whole.is_exact else 0 < counter.repeats < len(ids)
    unique = RepeatCount()
    unique.add(np.arange(5000))
    assert unique.repeats == 0
