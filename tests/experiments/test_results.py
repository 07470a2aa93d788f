"""Results of comparisons, in memory and on disk. Oracles: pyarrow, the csv module, hand-worked values."""

import csv as csv_files
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.experiments.results import ResultRow, Results
from tests.helpers.errors import facts
from tests.helpers.result_rows import NAN, SMALL, of, row


def test_where_column_and_by_seed():
    both = SMALL + of({"ce": (0.9, 0.8)}, "accuracy")
    assert both.where(method="ce", metric="accuracy").by_seed() == {0: 0.9, 1: 0.8}
    assert both.where(method=["ce", "ls"], seed={2}).column("value") == [0.06, 0.04]
    assert both.column("method") == ["ce", "ls", "acls"]
    assert len(both.where(parameter=NAN)) == len(both)
    assert not both.where(method="none")
    with pytest.raises(ValueError, match=facts("methods")):
        both.where(methods="ce")
    with pytest.raises(ValueError, match=facts("0", "'ce'", "accuracy", "ece")):
        both.by_seed(method="ce")


def test_same_number_twice():
    assert SMALL + SMALL == SMALL
    assert len(Results([row(value=NAN), row(value=NAN, parameter=float("nan"))])) == 1
    with pytest.raises(ValueError, match=facts("0.02", "0.03", "ls")):
        Results([row(value=0.02)]) + Results([row(value=0.03)])
    with pytest.raises(ValueError, match=facts("seed", "one")):
        Results([row(seed="one")])
    with pytest.raises(ValueError, match=facts("method", "None")):
        Results([row(method=None)])
    with pytest.raises(AttributeError):
        SMALL.rows = ()


@pytest.mark.parametrize("name", ["", "results.parquet", "results.csv"])
def test_saved_and_loaded(tmp_path, name):
    odd = Results(
        [
            row('a, "b"\nc\u2028d = é', 3, value=0.1 + 0.2, settings={"alpha": 0.1}),
            row(value=NAN, parameter=1.25, posthoc="temperature"),
            row(value=math.inf, metric="nll"),
            row(value=-5e-324, metric="aurc"),
        ]
    )
    odd.save(tmp_path)
    assert Results.load(tmp_path / name) == odd
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results.csv", "results.parquet"]
    Results().save(tmp_path)
    assert Results.load(tmp_path / name) == Results()


def test_others_can_read_the_files(tmp_path):
    SMALL.save(tmp_path)
    table = pq.read_table(tmp_path / "results.parquet")
    assert table.column_names == list(ResultRow._fields)
    assert table["value"].to_pylist() == [r.value for r in SMALL.rows]
    with (tmp_path / "results.csv").open(newline="") as file:
        lines = list(csv_files.DictReader(file))
    assert [float(line["value"]) for line in lines] == [r.value for r in SMALL.rows]
    assert {line["parameter"] for line in lines} == {""}


def test_wrong_and_truncated_files(tmp_path):
    with pytest.raises(ValueError, match=facts(str(tmp_path))):
        Results.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        Results.load(tmp_path / "results.parquet")
    SMALL.save(tmp_path)
    for name in ("results.parquet", "results.csv"):
        whole = (tmp_path / name).read_bytes()
        for length in (0, 1, len(whole) // 2, len(whole) - 1):
            (tmp_path / name).write_bytes(whole[:length])
            with pytest.raises(ValueError, match=facts(name)) as caught:
                Results.load(tmp_path / name)
            assert "\n" not in str(caught.value)
    pq.write_table(pa.table({"logits": [1.0]}), tmp_path / "results.parquet")
    with pytest.raises(ValueError, match=facts("results.parquet", "run, method")):
        Results.load(tmp_path)
    head = ",".join(ResultRow._fields)
    for body, words in {
        "r,ls,{},,final,x,test,none,,ece,0.1\n": ("line 2", "seed", "'x'"),
        "r,ls,{},,final,0,test,none,,ece\n": ("line 2", "10", "11"),
        "r,ls,{},,final,0,test,none,,ece,0.1": ("results.csv",),
        "r,ls,{},,final,0,test,none,,ece,0.1\n" * 2 + "r,ls,{},,final,0,test,none,,ece,0.2\n": ("0.1", "0.2"),
    }.items():
        (tmp_path / "results.csv").write_text(f"{head}\n{body}")
        with pytest.raises(ValueError, match=facts(*words)):
            Results.load(tmp_path / "results.csv")
