"""Importance weights of predictions: in every format, through every selection of rows, and who has no use of them."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from calibrant import Monitor, Policy, Predictions
from calibrant.posthoc import TemperatureScaling
from calibrant.predictions import replace_data
from tests.helpers.errors import facts
from tests.helpers.predictions import FORMATS, IMAGES, PIXELS, refusal, write_columns

W = np.array([0.2, 3.1, 0.0, 1.0, 1.0, 0.7, 2.0])
Z = np.random.default_rng(3).standard_normal((7, 3))
Y = np.arange(7) % 3
IDS = np.array(list("abcdefa"))
BINARY = (".npz", ".npy", ".safetensors")


def weighted(rows=slice(None), **more):
    return Predictions.from_logits(Z[rows], Y[rows], ids=IDS[rows], weight=W[rows], **more)


def saved(path, predictions):
    """Predictions in a file; of a set of ``.npy`` files the one of the data."""
    path = path.with_name(f"{path.stem}_logits.npy") if path.suffix == ".npy" else path
    predictions.save(path)
    return path


@pytest.mark.parametrize("suffix", [*FORMATS, ".npz of shards", ".csv of shards", ".parquet of shards"])
def test_a_file_keeps_weights(suffix, tmp_path):
    suffix, _, shards = suffix.partition(" ")
    path = tmp_path / "shards" if shards else saved(tmp_path / f"a{suffix}", weighted())
    if shards:
        for number, rows in enumerate((slice(0, 4), slice(4, 7))):
            weighted(rows).save(path / f"{number}{suffix}")
    opened = Predictions.open(path)
    assert opened.weighted
    assert opened.weight.tolist() == W.tolist()
    assert opened.weight.dtype == np.float64
    assert opened.load().weight.tolist() == W.tolist()
    assert [batch.weight.tolist() for batch in opened.batches(4)] == [W[:4].tolist(), W[4:].tolist()]
    assert opened.samples([6, 1]).weight.tolist() == [2.0, 3.1]
    assert opened.without_repeats().weight.tolist() == W[:6].tolist()
    parts = opened.holdout(0.5, seed=1)
    ids = np.concatenate([part.ids for part in parts])
    assert sorted(zip(ids, np.concatenate([part.weight for part in parts]), strict=True)) == sorted(
        zip(IDS, W, strict=True)
    )
    assert opened.unweighted().weight is None
    assert [name for batch in opened.unweighted().batches() for name in batch._store.names] == [
        name for name in opened._store.names if name != "weight"
    ]
    assert opened.unweighted().without_repeats().weight is None
    again = saved(tmp_path / f"again{suffix}", opened)
    assert Predictions.open(again).weight.tolist() == W.tolist()
    assert Predictions.open(path, columns={"weight": None}).weight is None


COLUMNS = {"confidence": np.linspace(0.1, 0.9, 7), "correct": Y == 0, "kilos": W}


@pytest.mark.parametrize("suffix", [*FORMATS, ".tsv"])
def test_another_column_can_hold_the_weights(suffix, tmp_path):
    path = write_columns(tmp_path / f"a{suffix}", COLUMNS)
    assert Predictions.open(path).weight is None
    assert Predictions.open(path, columns={"weight": "kilos"}).weight.tolist() == W.tolist()
    with pytest.raises(ValueError, match=facts("no column 'tons'", "weight", "kilos")):
        Predictions.open(path, columns={"weight": "tons"})


@pytest.mark.parametrize("suffix", [*FORMATS, ".tsv"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_weights_may_be_numbers_of_any_type(suffix, dtype, tmp_path):
    numbers = np.array([1, 0, 2, 3, 4, 5, 200]).astype(dtype)
    columns = {"confidence": COLUMNS["confidence"], "correct": COLUMNS["correct"], "weight": numbers}
    opened = Predictions.open(write_columns(tmp_path / f"a{suffix}", columns))
    assert (opened.weight.tolist(), opened.weight.dtype) == (numbers.tolist(), np.float64)


BAD = [(suffix, bad) for suffix in (*FORMATS, ".tsv") for bad in (-1.0, np.nan, np.inf)]


@pytest.mark.parametrize(("suffix", "bad"), BAD)
def test_a_bad_weight_is_one_sentence(suffix, bad, tmp_path):
    columns = {"confidence": COLUMNS["confidence"], "correct": COLUMNS["correct"], "weight": np.where(Y == 1, bad, W)}
    path = write_columns(tmp_path / f"a{suffix}", columns)
    row = "line 3" if suffix in (".csv", ".tsv") else "line 2" if suffix == ".jsonl" else "row 1"
    told = (row,) if suffix == ".jsonl" and bad != -1 else ("weight", "finite", "at least 0", str(bad), row)
    with pytest.raises(ValueError, match=facts(str(tmp_path), *told)):
        list(Predictions.open(path).batches())


@pytest.mark.parametrize("suffix", [suffix for suffix in (*FORMATS, ".tsv") if suffix not in (".npy", ".safetensors")])
def test_text_is_no_weight(suffix, tmp_path):
    columns = {"confidence": COLUMNS["confidence"], "correct": COLUMNS["correct"], "weight": np.array(["heavy"] * 7)}
    text = refusal(write_columns(tmp_path / f"a{suffix}", columns))
    assert "weight" in text
    assert "number" in text


@pytest.mark.parametrize("suffix", FORMATS)
def test_weights_that_are_all_0_are_refused_where_all_are_known(suffix, tmp_path):
    columns = {"confidence": COLUMNS["confidence"], "correct": COLUMNS["correct"], "weight": 0 * W}
    path = write_columns(tmp_path / f"a{suffix}", columns)
    for read in (Predictions.load, lambda opened: opened.weight):
        with pytest.raises(ValueError, match=facts(str(path), "weight", "above 0")):
            read(Predictions.open(path))
    assert sum(len(batch) for batch in Predictions.open(path).batches(3)) == 7


@pytest.mark.parametrize(
    ("weight", "told"),
    [
        (-W, "weight at least 0 -0.2 row 0"),
        (np.where(Y == 2, np.nan, W), "weight finite nan row 2"),
        ([1e309] * 7, "weight finite inf row 0"),
        (["a"] * 7, "weight numbers [7] U1"),
        ([True] * 7, "weight numbers bool"),
        (W[:6], "weight numbers [7] [6]"),
        (W[:, None], "weight numbers [7] [7, 1]"),
        (0 * W, "weight above 0 7"),
    ],
    ids=["negative", "nan", "infinite", "text", "bool", "short", "wide", "zero"],
)
def test_bad_weights_in_memory(weight, told):
    for make in (
        lambda: Predictions.from_logits(Z, Y, weight=weight),
        lambda: Predictions.from_probabilities(np.eye(3)[Y], Y, weight=weight),
        lambda: Predictions.from_confidence(COLUMNS["confidence"], COLUMNS["correct"], weight=weight),
    ):
        with pytest.raises(ValueError, match=facts(*told.split())):
            make()


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def test_a_frame_has_weights(kind):
    columns = {name: values.tolist() for name, values in COLUMNS.items()}
    assert Predictions.from_frame(kind(columns)).weight is None
    mapped = Predictions.from_frame(kind(columns), columns={"weight": "kilos"})
    named = Predictions.from_frame(kind({**columns, "weight": columns["kilos"]}))
    assert mapped.weight.tolist() == named.weight.tolist() == W.tolist()
    with pytest.raises(ValueError, match=facts("weight", "above 0")):
        Predictions.from_frame(kind({**columns, "weight": [0.0] * 7}))


def test_constant_weights_are_kept_as_they_are():
    p = Predictions.from_confidence([0.5, 0.6], [1, 0], weight=[3, 3])
    assert p.weight.tolist() == [3.0, 3.0]


def test_images_and_sequences_have_one_weight_each(tmp_path):
    images = Predictions.from_logits(IMAGES, PIXELS, kind="segmentation", weight=[1, 2])
    tokens = Predictions.from_logits(np.random.default_rng(0).standard_normal((2, 4, 3)), np.array([[0, 1, 2, 0]] * 2),
                                     kind="tokens", weight=[0.5, 2])  # fmt: skip
    for p, suffixes in ((images, (*BINARY, ".parquet")), (tokens, BINARY)):
        for suffix in suffixes:
            opened = Predictions.open(saved(tmp_path / f"{p.kind}{suffix}", p))
            assert opened.weight.tolist() == p.weight.tolist()
    with pytest.raises(ValueError, match=facts("weight", "[2]", "[2, 4, 5]")):
        Predictions.from_logits(IMAGES, PIXELS, kind="segmentation", weight=np.ones(PIXELS.shape))


def test_rows_of_a_split_keep_their_weights(tmp_path):
    columns = {"confidence": COLUMNS["confidence"], "correct": COLUMNS["correct"], "weight": W, "split": ["val"] * 7}
    columns["split"][2:4] = ["test"] * 2
    path = write_columns(tmp_path / "a.csv", columns)
    assert Predictions.open(path, split="test").weight.tolist() == W[2:4].tolist()
    assert Predictions.open(path, split="test").unweighted().load().weight is None


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_column_called_weight_is_no_group(suffix, tmp_path):
    columns = {"confidence": COLUMNS["confidence"], "correct": COLUMNS["correct"], "weight": np.arange(7)}
    path = write_columns(tmp_path / f"a{suffix}", columns)
    assert Predictions.open(path).group_names == ()
    with pytest.raises(ValueError, match=facts("'weight'", "importance weights", "--column weight=", "group")):
        Predictions.open(path, groups=["weight"])
    grouped = Predictions.open(path, groups=["weight"], columns={"weight": None})
    assert (grouped.weight, grouped.groups["weight"].tolist()) == (None, list(range(7)))
    renamed = Predictions.open(path, columns={"group.kilos": "weight"})
    assert (renamed.weight, renamed.group_names) == (None, ("kilos",))


def test_what_was_taken_for_weights_is_said(tmp_path):
    p = weighted()
    (remark,) = p.remarks
    assert "column weight: importance weights from 0 to 3.1" in remark.lower()
    assert "--column weight=" in remark
    path = write_columns(tmp_path / "a.csv", COLUMNS)
    (remark,) = Predictions.open(path, columns={"weight": "kilos"}).remarks
    assert "column kilos: importance weights from 0 to 3.1" in remark.lower()
    assert Predictions.open(path).remarks == ()


def test_new_data_keep_weights():
    assert replace_data(weighted(), "logits", 2 * Z).weight.tolist() == W.tolist()


def test_a_promise_a_watch_and_a_calibrator_refuse_weights(tmp_path):
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal((400, 3))
    y = (z + rng.gumbel(size=z.shape)).argmax(1)
    p = Predictions.from_logits(z, y, weight=rng.random(400))
    told = facts("importance weights", "--column weight=", "predictions.unweighted()")
    with pytest.raises(ValueError, match=told):
        Policy.fit(p)
    with pytest.raises(ValueError, match=told):
        TemperatureScaling().fit(p)
    policy = Policy.fit(p.unweighted())
    assert policy.threshold.accepted == Policy.fit(Predictions.from_logits(z, y)).threshold.accepted
    with pytest.raises(ValueError, match=told):
        Monitor(policy).update(p)
    assert Monitor(policy).update(p.unweighted()).state.batches[0].samples == 400
