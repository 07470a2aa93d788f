"""Files that are traps: bombs, pipes, absurd claims, odd characters; a sentence each, soon, before memory is taken."""

import datetime
import decimal
import gzip
import json
import os
import socket
import struct
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant._validation import closest, listing
from calibrant.predictions import formats, schema
from calibrant.predictions.formats import csv, parquet

SOON = 8  # seconds of CPU time; what is quadratic takes a minute
HEADER = b"logits_0,logits_1,labels\n"
FIXED = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(6)), 6)


def refusal(path, **how):
    start = time.process_time()
    with pytest.raises(ValueError, match=r".") as error:
        for _ in Predictions.open(path, **how).batches(1000):
            pass
    assert time.process_time() - start < SOON
    sentence = str(error.value)
    assert sentence.startswith(f"{path}: ")
    assert "\n" not in sentence
    assert len(sentence) < 1000 + len(str(path))
    return sentence


FILL = {
    "line": (b"0.", b"0" * (1 << 20)),
    "quote": (b'"', b"0" * (1 << 20)),
    "rows": (b"", b"0,1,0\n" * 170_000),
    "long rows": (b"", (b"0." + b"0" * 100_000 + b",1,0\n") * 10),
    "empty lines": (b"", b"\n" * (1 << 20)),
}


@pytest.mark.parametrize("fill", FILL)
@pytest.mark.parametrize("header", [HEADER, b"logits_"])
def test_a_bomb_is_refused_by_its_start(fill, header, monkeypatch, tmp_path):
    """Hundreds of megabytes in less than one, one part after the other."""
    monkeypatch.setattr(formats, "LEAST", 1 << 24)
    start, repeated = FILL[fill]
    part = gzip.compress(repeated * 4, 9)
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(header + start) + part * 80)
    assert "must become at most 100 times as large as its" in refusal(path)


def test_a_bomb_of_full_size(tmp_path):
    """Some 4.5 GB in 4.5 MB."""
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(HEADER) + gzip.compress(bytes(1 << 24), 9) * 280)
    assert "must become at most 100 times as large as its 4," in refusal(path)


@pytest.mark.parametrize("fill", ["line", "quote", "rows"])
def test_a_bomb_behind_an_honest_start_is_refused_on_the_way(fill, monkeypatch, tmp_path):
    monkeypatch.setattr(csv, "SAMPLE", 1 << 10)
    monkeypatch.setattr(formats, "LEAST", 1 << 22)
    rows = np.random.default_rng(0).random((20_000, 2))
    honest = b"".join(b"%.6f,%.6f,1\n" % tuple(row) for row in rows)
    start, repeated = FILL[fill]
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(HEADER + honest + start + repeated * 64))
    assert "at most" in refusal(path)


def test_an_honest_compressed_table_is_streamed(tmp_path):
    rows = 30_000
    body = HEADER + b"0.25,0.75,1\n" * rows
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(body))
    assert sum(len(b) for b in Predictions.open(tmp_path / "a.csv.gz").batches(1000)) == rows


def test_an_archive_that_becomes_far_larger_is_refused(monkeypatch, tmp_path):
    np.savez_compressed(tmp_path / "a.npz", logits=np.zeros((100_000, 2)), labels=np.zeros(100_000, np.int8))
    assert len(Predictions.open(tmp_path / "a.npz")) == 100_000
    monkeypatch.setattr(formats, "LEAST", 1 << 20)
    assert "logits must become at most 100 times as large" in refusal(tmp_path / "a.npz")


@pytest.mark.parametrize("role", ["logits", "labels", "ids"])
@pytest.mark.parametrize("kind", ["fixed", "list", "one long list"])
def test_lists_that_become_far_larger_than_their_file_are_refused(kind, role, monkeypatch, tmp_path):
    """A million zeros in a kilobyte; billions would fit as well."""
    monkeypatch.setattr(formats, "LEAST", 1 << 22)
    size = 1_000_000
    zeros = pa.array(np.zeros(size, np.float16))
    lists = pa.FixedSizeListArray.from_arrays(zeros, size)
    if kind != "fixed":
        lists = pa.ListArray.from_arrays(pa.array([0, *([2] if kind != "list" else []), size]), zeros)
    rows = len(lists)
    columns = {"logits_0": [0.5] * rows, "logits_1": [0.5] * rows, "labels": [0] * rows}
    columns = {"labels": columns["labels"]} if role == "logits" else columns
    pq.write_table(pa.table({**columns, role: lists}), tmp_path / "a.parquet")
    assert f"column '{role}' must become at most 100 times as large as its" in refusal(tmp_path / "a.parquet")


def test_a_sample_that_is_larger_than_its_file_can_hold_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(parquet, "LEAST_SAMPLE", 1 << 22)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1_000_000)), 1_000_000)
    pq.write_table(pa.table({"logits": lists, "labels": [0]}), tmp_path / "a.parquet")
    assert "a sample must be at most 100 times as large as the file" in refusal(tmp_path / "a.parquet")


MANY = 150_000
TWICE = [f"c{i}" for i in range(MANY - 1)] + ["c0"]


def test_very_many_names_take_no_time(tmp_path):
    start = time.process_time()
    with pytest.raises(ValueError, match="class_names must differ, got 'c0' twice"):
        Predictions.from_logits(np.zeros((1, MANY)), [0], class_names=TWICE)
    with pytest.raises(ValueError, match="class_names must differ, got 'c1' 3 times"):
        Predictions.from_logits(np.zeros((1, MANY)), [0], class_names=[*TWICE[:-2], "c1", "c1"])
    assert time.process_time() - start < SOON
    np.savez(tmp_path / "a.npz", logits=np.zeros((1, MANY), np.float16), labels=[0], class_names=TWICE)
    assert "must differ, got 'c0' twice" in refusal(tmp_path / "a.npz")
    (tmp_path / "a.csv").write_text(",".join(f"logits.{name}" for name in TWICE) + ",labels\n")
    assert "must differ, got 'logits.c0' 2 times" in refusal(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text(",".join(f"logitx.{i}" for i in range(MANY)) + ",labls\n")
    assert "it holds logitx.0, logitx.1" in refusal(tmp_path / "b.csv")
    assert "no column 'logitx_7'" in refusal(tmp_path / "b.csv", columns={"logits": ["logitx.1", "logitx_7"]})
    (tmp_path / "c.csv").write_text(",".join(f"group.{i}" for i in range(MANY)) + ",confidence,correct\n")
    assert "at most 1,000 groups" in refusal(tmp_path / "c.csv")
    names = [f"logits.{i}" for i in range(20_000)]
    (tmp_path / "d.csv").write_text(",".join([*names, "labels"]) + "\n" + "0," * 19_999 + "x,0\n")
    assert "column 'logits.19999' must be a number, got 'x' in line 2" in refusal(tmp_path / "d.csv")
    assert closest("lables", (f"label{i}" for i in range(10**9))) is not None  # the first are looked at
    assert listing(["x" * 500] * 50).endswith("... and 30 more")


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("logits_0,logits_1,labels\n1,{digits}x,0\n", "in line 2"),
        ("logits_0,logits_1,labels\n1,2,{digits}\n", "(use .astype(int))"),
        ("logits_0,logits_1,labels\n1,2,{digits}x\n", "--class-names)"),
        ("confidence,predicted,labels\n0.5,{digits}x,{digits}\n", "got text and numbers"),
        ("confidence,correct\n0.5,{digits}\n", "in line 2"),
        ("logits_0,logits_1,labels,note\n1,x,0,{digits}{digits}\n", "has more than 131,072 characters"),
        ("logits_0,logits_1,labels,note\n1,nan,0,{digits}{digits}\n", "got nan in row 0 (counted from 0), class 1"),
        ("logits_0,logits_1,labels,{digits}{digits}\n1,2,0,1\n", "has more than 131,072 characters"),
        ("logits_{digits},logits_1,labels\n1,2,0\n", ""),
    ],
)
def test_fields_of_very_many_digits(body, end, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(body.format(digits="9" * 131_000))
    assert refusal(path).endswith(end)


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.npz", "x_logits.npy", "x.parquet", "x.safetensors"])
def test_what_is_no_file_is_refused_at_once(name, tmp_path):
    path = tmp_path / name
    np.save(tmp_path / "x_labels.npy", np.zeros(3, int))
    os.mkfifo(path)
    assert refusal(path).endswith("expected a file, got a named pipe")
    path.unlink()
    path.symlink_to("/dev/zero")
    assert refusal(path).endswith("expected a file, got a device")
    path.unlink()
    path.mkdir()
    assert "the folder holds no predictions" in refusal(path)
    path.rmdir()
    path.symlink_to(path)
    refusal(path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))
        refusal(path)


@pytest.mark.parametrize("point", [0x110000, 0xD800, 0xDFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("role", ["ids", "labels", "class_names", "kind", "split", "group.g", "predicted"])
def test_characters_that_do_not_exist(role, point, tmp_path):
    odd = np.array([point, 65, 66], np.uint32).view("<U1")
    arrays = {"logits": np.eye(3), "labels": np.arange(3)}
    if role == "predicted":
        arrays = {"confidence": np.full(3, 0.5), "labels": odd}
    if role == "labels":
        arrays["class_names"] = np.array(["A", "B", "C"])
    arrays[role] = odd[:1] if role in ("kind", "split") else odd
    np.savez(tmp_path / "a.npz", **arrays)
    assert "character that does not exist" in refusal(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", **arrays | {role: arrays[role].byteswap().view(">U1")})
    assert "character that does not exist" in refusal(tmp_path / "b.npz")


def test_text_that_formats_could_not_keep_is_refused_in_memory_as_well():
    for bad in ("\ud800", "a\0"):
        with pytest.raises(ValueError, match="class_names must be text"):
            Predictions.from_logits(np.eye(2), [0, 1], class_names=[bad, "b"])
    with pytest.raises(ValueError, match="ids must be text, got a character that does not exist, 0xd800"):
        Predictions.from_logits(np.eye(2), [0, 1], ids=["\ud800", "b"])
    with pytest.raises(ValueError, match=r"class_names must have at most 1000 characters, got 1001: 'x{57}"):
        Predictions.from_logits(np.eye(2), [0, 1], class_names=["x" * 1001, "b"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_one_long_text_does_not_blow_up_all_others(suffix, monkeypatch, tmp_path):
    """Each value takes as much memory as the longest: a megabyte of file would be gigabytes."""
    path, rows = tmp_path / f"a{suffix}", 200_000
    ids = ["a"] * (rows - 1) + ["b" * 20_000]
    if suffix == ".csv":
        path.write_text("confidence,correct,ids\n" + "".join(f"0.5,1,{name}\n" for name in ids))
    else:
        pq.write_table(pa.table({"confidence": np.full(rows, 0.5), "correct": np.ones(rows, bool), "ids": ids}), path)
    assert "must be short text, got a value of 20,000 characters" in refusal(path)
    assert Predictions.open(path).confidence.sum() == rows / 2
    ids = ["a"] * 1000 + ["b" * 100]
    columns = {"confidence": np.full(1001, 0.5), "correct": np.ones(1001, bool), "ids": ids}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    pq.write_table(pa.table(columns).slice(1000), tmp_path / "c.parquet")
    monkeypatch.setattr(schema, "TEXT_BYTES", 400 * 1001)
    parts = Predictions.open([tmp_path / "b.parquet", tmp_path / "c.parquet"])
    assert sum(len(batch) for batch in parts.batches(500)) == 1002
    with pytest.raises(ValueError, match=r"b\.parquet: ids must be short text"):
        parts.load()


METADATA = {
    "deep": "[" * 100_000,
    "deep names": '{"a":' * 5000 + "1" + "}" * 5000,
    "twice": '{"kind": "classification", "kind": "segmentation"}',
    "not JSON": "{",
    "not UTF-8": b"\xff",
    "a list": "[]",
    "null": "null",
    "names 5": '{"class_names": 5}',
    "names by name": '{"class_names": {"a": 1}}',
    "a name null": '{"class_names": ["a", null, "b", "c", "d", "e"]}',
    "a surrogate": '{"class_names": ["\\ud800", "b", "c", "d", "e", "f"]}',
    "kind 5": '{"kind": 5}',
    "split": '{"split": {}}',
    "infinite": '{"ignore_index": 1e400}',
    "NaN": '{"ignore_index": NaN}',
    "digits": '{"ignore_index": ' + "9" * 5000 + "}",
    "wide": '{"ignore_index": 18446744073709551616}',
    "labels are": '{"labels_are": [1]}',
    "shape of text": '{"shape": ["3"]}',
    "shape true": '{"shape": [true]}',
    "shape 10^400": json.dumps({"shape": [10**400]}),
    "shape 10^12": json.dumps({"shape": [10**12]}),
    "shape 6 of 10^12": json.dumps({"kind": "segmentation", "shape": [10**12, 10**12, 10**12]}),
    "shape of none": json.dumps({"kind": "segmentation", "shape": [2, 3]}),
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata_that_nobody_wrote(case, tmp_path):
    odd = METADATA[case]
    table = pa.table({"logits": FIXED, "labels": [0]}).replace_schema_metadata({"calibrant": odd})
    pq.write_table(table, tmp_path / "a.parquet")
    refusal(tmp_path / "a.parquet")
    if "shape" in case or isinstance(odd, bytes):
        return
    entries = {
        "__metadata__": {"calibrant": odd},
        "logits": {"dtype": "F32", "shape": [1, 6], "data_offsets": [0, 24]},
        "labels": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]},
    }
    header = json.dumps(entries).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(32))
    refusal(tmp_path / "a.safetensors")


def entries(count):
    return b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(count))


LARGE = {
    "numbers": lambda: b'{"a": [' + b"1.5," * 3_500_000 + b"1]}",
    "arrays": lambda: b"{" + entries(20_000) + b"}",
    "names": lambda: b"{" + b",".join(b'"%d":1' % i for i in range(1_200_000)) + b"}",
    "lists": lambda: b'{"a": ["x"' + b",[]" * 4_000_000 + b"]}",
    "deep": lambda: b'{"a":' * 100_000,
    "too long": lambda: b"{}" + b" " * (1 << 24),
}
HEADERS = {
    "list": b"[]",
    "no entry": b'{"logits": 5}',
    "no shape": b'{"logits": {"dtype": "F32", "data_offsets": [0, 0]}}',
    "negative": b'{"logits": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}}',
    "wide": b'{"logits": {"dtype": "F32", "shape": [1180591620717411303424], "data_offsets": [0, 0]}}',
    "dtype 5": b'{"logits": {"dtype": 5, "shape": [0], "data_offsets": [0, 0]}}',
    "true": b'{"logits": {"dtype": "F32", "shape": [0], "data_offsets": [false, false]}}',
    "gap": b'{"logits": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
    "short": b'{"logits": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}',
    "metadata 5": b'{"__metadata__": 5}',
    "metadata of 5": b'{"__metadata__": {"calibrant": 5}}',
    "levels": b'{"__metadata__": {"calibrant": "{\\"levels\\": {\\"ids\\": [1]}}"}}',
    "twice": b'{"a": 1, "a": 2}',
}


@pytest.mark.parametrize("case", [*LARGE, *HEADERS])
def test_headers_of_safetensors(case, tmp_path):
    header = LARGE[case]() if case in LARGE else HEADERS[case]
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    refusal(tmp_path / "a.safetensors")


KINDS = {
    "decimal": pa.array([decimal.Decimal("1"), decimal.Decimal("0")]),
    "timestamp": pa.array([datetime.datetime(2020, 1, 1)] * 2),
    "date": pa.array([1, 2], pa.date32()),
    "late date": pa.array([2**31 - 1, 2], pa.date32()),
    "duration": pa.array([1, 2], pa.duration("s")),
    "null": pa.nulls(2),
    "struct": pa.array([{"a": 1}] * 2),
    "map": pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int64())),
    "bytes": pa.array([b"a", b"\xff"]),
    "list": pa.array([[1], [2]]),
    "zeros": pa.array(["a\0", "a"]),
}


@pytest.mark.parametrize("role", ["labels", "ids", "group.g", "objectness", "logits", "confidence", "correct"])
@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_other_types(kind, role, tmp_path):
    columns = {"logits_0": [1.0, 2.0], "logits_1": [0.0, 1.0], "labels": [0, 1]}
    if role == "logits":
        columns = {"labels": [0, 1]}
    elif role in ("confidence", "correct"):
        columns = {"confidence": [0.5, 0.5], "correct": [1, 0]}
    columns[role] = KINDS[kind]
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert f"'{role}'" in refusal(tmp_path / "a.parquet")


def test_tables_with_nothing_in_them(tmp_path):
    pq.write_table(pa.table({}), tmp_path / "a.parquet")
    assert "the table has no columns" in refusal(tmp_path / "a.parquet")
    schema = pa.schema({"logits": pa.list_(pa.float64(), 2), "labels": pa.int64()})
    with pq.ParquetWriter(tmp_path / "b.parquet", schema) as writer:
        for rows in (0, 2, 0, 1, 0):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * rows)), 2)
            writer.write_table(pa.table({"logits": lists, "labels": pa.array([0] * rows, pa.int64())}))
    assert len(Predictions.open(tmp_path / "b.parquet").labels) == 3
    np.savez(tmp_path / "a.npz", logits=np.eye(3), labels=np.arange(3), class_names=np.array([], "U1"))
    assert "class_names must be a list" in refusal(tmp_path / "a.npz")


@pytest.mark.parametrize("target", ["s3://bucket/x.npz", "file:///tmp/x.npz", "gs://b/x_logits.npy"])
def test_nothing_is_written_to_other_storage(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (target, Path(target)):
        with pytest.raises(ValueError, match="written to this machine alone"):
            Predictions.from_logits(np.eye(2), [0, 1]).save(path)
    assert not list(tmp_path.iterdir())
