"""Predictions in files: which files a path means; written, read in every way, and never mixed with a replaced file."""

import csv
import mmap
import multiprocessing
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from calibrant import Policy, Predictions, audit
from calibrant.posthoc import TemperatureScaling
from tests.helpers.errors import facts
from tests.helpers.predictions import (
    FORMATS,
    SOME,
    TEXT,
    C,
    N,
    assert_same,
    make,
    make_numbered,
    numbers_in,
    refusal,
    refused,
    save_again_and_again,
)

READS = 220


def replace_again_and_again(sources, targets, stop):
    while not stop.is_set():
        for files in sources:
            for source, target in zip(files, targets, strict=True):
                shutil.copyfile(source, f"{target}.part")
                os.replace(f"{target}.part", target)


def numbers_or_sentence(path, way):
    try:
        return numbers_in(Predictions.open(path), way)
    except ValueError as error:
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("how", ["replaced", "saved"])
def test_a_file_that_is_replaced_while_it_is_read_is_never_mixed(suffix, how, tmp_path):
    path = tmp_path / f"x_logits{suffix}"
    for number in (2, 4):
        make_numbered(number).save(tmp_path / str(number) / path.name)
    make_numbered(2).save(path)
    names = sorted(file.name for file in (tmp_path / "2").iterdir())
    if how == "replaced":  # by a process, as files of other programs are
        context = multiprocessing.get_context("fork")
        stop = context.Event()
        sources = [[str(tmp_path / str(number) / name) for name in names] for number in (2, 4)]
        targets = [str(tmp_path / name) for name in names]
        writers = [context.Process(target=replace_again_and_again, args=(sources, targets, stop))]
    else:
        stop = threading.Event()
        writers = [threading.Thread(target=save_again_and_again, args=(number, path, stop)) for number in (2, 4)]
    try:
        for writer in writers:
            writer.start()
        for read in range(READS):
            outcome = numbers_or_sentence(path, read % 3)
            assert outcome in ({2}, {4}) or str(outcome).startswith(str(tmp_path))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    make_numbered(2).save(path)  # what writers leave behind can be written over, and read
    assert numbers_in(Predictions.open(path), 0) == {2}


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_change_between_opening_and_reading_is_noticed(suffix, tmp_path):
    """The same size, and the same time of change as well: only the file is another."""
    path, other = tmp_path / f"x_logits{suffix}", tmp_path / "other" / f"x_logits{suffix}"
    make_numbered(2).save(path)
    make_numbered(4).save(other)
    for file in tmp_path.glob("x_*"):
        status = file.stat()
        os.utime(other.with_name(file.name), ns=(status.st_atime_ns, status.st_mtime_ns))
    opened = Predictions.open(path)
    held = opened.logits  # in memory, or a map of the file as it is
    for file in tmp_path.glob("x_*"):
        os.replace(other.with_name(file.name), file)
    assert np.unique(held).tolist() == [2.0]
    for read in (lambda: opened.ids, opened.load, lambda: list(opened.batches(50))):
        with pytest.raises(ValueError, match="the file has changed since it was opened"):
            read()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_that_is_written_to_while_it_is_read_is_noticed(suffix, tmp_path):
    path = tmp_path / f"x_logits{suffix}"
    make_numbered(2, rows=30000 if suffix == ".jsonl" else 300).save(path)  # more than is read at once
    batches = Predictions.open(path).batches(50)
    next(batches)
    time.sleep(0.02)
    with path.open("r+b") as file:
        file.write(file.read(1))
        file.seek(0)
    os.utime(path)
    with pytest.raises(ValueError, match=r"changed since it was opened|damaged"):
        list(batches)


def test_opened_files_travel_without_their_inodes(tmp_path):
    """To a machine that shares the storage and numbers its files otherwise: a copy of the same time and size."""
    path = tmp_path / "a.npz"
    make_numbered(2).save(path)
    packed = pickle.dumps(Predictions.open(path))
    shutil.copy2(path, tmp_path / "copy.npz")
    os.replace(tmp_path / "copy.npz", path)
    assert np.unique(pickle.loads(packed).logits).tolist() == [2.0]
    make_numbered(4).save(path)
    with pytest.raises(ValueError, match="has changed since it was opened"):
        pickle.loads(packed).load()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("what", ["logits", "probabilities", "confidence", "images"])
@pytest.mark.parametrize("suffix", FORMATS)
def test_what_is_written_is_read_and_converted_unchanged(suffix, what, dtype, tmp_path):
    p = make(what, dtype)
    path = tmp_path / f"a_{p.holds}{suffix}"
    if suffix in TEXT and what == "images":
        with pytest.raises(ValueError, match=facts("images", TEXT[suffix], ".parquet", ".npz", ".npy", ".safetensors")):
            p.save(path)
        return
    exact = suffix not in TEXT
    p.save(path)
    assert suffix == ".npy" or [f.name for f in tmp_path.iterdir()] == [path.name]
    opened = Predictions.open(path)
    assert_same(opened, p, exact)
    assert_same(Predictions.open(str(path)).load(), p, exact)
    assert [len(b) for b in opened.batches(4)] == [4, 4, 3]
    for size in (1, 4, 100):
        for ours, theirs in zip(Predictions.open(path).batches(size), p.batches(size), strict=True):
            assert_same(ours, theirs, exact)
    assert_same(Predictions.open(path).samples([3, 1, -1, 3]), p.samples([3, 1, -1, 3]), exact)
    assert_same(Predictions.open(path).samples(slice(7, 2, -2)), p.samples(slice(7, 2, -2)), exact)
    for other in FORMATS:
        if other not in TEXT or what != "images":
            there = tmp_path / f"b_{suffix[1:]}_{p.holds}{other}"
            Predictions.open(path).save(there)
            assert_same(Predictions.open(there), p, exact and other not in TEXT)


def test_arrays_of_files_are_fixed_and_batches_are_for_torch(tmp_path):
    for suffix in FORMATS:
        p = make("logits", np.float32)
        p.save(tmp_path / f"x_logits{suffix}")
        opened = Predictions.open(tmp_path / f"x_logits{suffix}")
        assert not opened.logits.flags.writeable
        assert not opened.load().labels.flags.writeable
        assert opened.logits is opened.logits
        assert opened.logits.flags.aligned
        if suffix in (".npz", ".npy"):
            assert isinstance(opened.logits.base.base, mmap.mmap)  # nothing was read into memory
        for b in opened.batches(3):
            assert torch.from_numpy(b.logits).shape[1] == C  # warns, so fails here, if it cannot be written to
            assert torch.from_numpy(b.labels).dtype == torch.int64


def test_other_programs_read_what_is_written(tmp_path):
    p, q, s = make("logits", np.float32), make("confidence"), make("images", np.float32)
    p.save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as file:
        assert np.array_equal(file["logits"], p.logits)
        assert file["class_names"].tolist() == list(p.class_names)
    p.save(tmp_path / "p_logits.npy")
    assert np.array_equal(np.load(tmp_path / "p_logits.npy"), p.logits)
    assert np.array_equal(np.load(tmp_path / "p_group.site.npy"), p.groups["site"])
    p.save(tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.field("logits").type.list_size == C
    assert table["logits"].to_pylist() == p.logits.tolist()
    assert table["group.a, b"].to_pylist() == p.groups["a, b"].tolist()
    s.save(tmp_path / "s.safetensors")
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "s.safetensors")["logits"], s.logits)
    for one, name in ((p, "p.csv"), (q, "q.csv")):
        one.save(tmp_path / name)
        with (tmp_path / name).open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        data = {"logits": ["logits.cat", 'logits.d,o"g', "logits.x y"], "confidence": ["confidence"]}[one.holds]
        assert np.array_equal([[float(row[c]) for c in data] for row in rows], getattr(one, one.holds).reshape(N, -1))


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_errors_in_a_stream_name_the_file_and_its_row(suffix, tmp_path):
    p = make("probabilities")
    for number in (1, 2):
        broken = p.probabilities.copy()
        broken[9, 1] += number - 1
        if suffix == "npz":
            np.savez(tmp_path / f"{number}.npz", probabilities=broken, labels=p.labels)
        else:
            columns = {f"probabilities_{j}": broken[:, j] for j in range(C)}
            pq.write_table(pa.table({**columns, "labels": p.labels}), tmp_path / f"{number}.parquet")
    opened = Predictions.open(str(tmp_path / f"*.{suffix}"))
    assert np.array_equal(opened.labels, np.tile(p.labels, 2))  # the broken column is not touched
    batches = opened.batches(4)
    assert sum(len(next(batches)) for _ in range(2)) == 8
    with pytest.raises(ValueError, match=facts(f"{tmp_path}/2.{suffix}", "probabilities", "row 9", "class 1")):
        list(batches)


STREAM = """
import resource, sys
from calibrant import Predictions

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 2**20

list(Predictions.open(sys.argv[2]).batches(1 << 14))
before = most = resident()
rows = 0
for batch in Predictions.open(sys.argv[1]).batches(1 << 14):
    rows += len(batch)
    most = max(most, resident())
print(rows, most - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".csv"])
def test_streaming_holds_a_batch_not_the_file(suffix, tmp_path):
    """Resident memory, as the system counts it: 136 to 170 MB of arrays (one row group) pass through."""
    rows, few, most = (10_000_000, 50_000, 60) if suffix != ".csv" else (8_000_000, 50_000, 100)
    right = np.arange(rows) % 3 == 0
    table = {
        "confidence": np.tile(np.arange(1000) / 1000, rows // 1000),
        "correct": right,
        "group.g": np.zeros(rows, int),
    }
    for name, count in ((f"small{suffix}", few), (f"large{suffix}", rows)):
        cut = {key: values[:count] for key, values in table.items()}
        if suffix == ".parquet":
            pq.write_table(pa.table(cut), tmp_path / name, row_group_size=rows, use_dictionary=False)
        elif suffix == ".npz":
            np.savez(tmp_path / name, **cut)
        else:
            Predictions.from_confidence(cut["confidence"], cut["correct"], groups={"g": cut["group.g"]}).save(
                tmp_path / name
            )
    command = [sys.executable, "-c", STREAM, str(tmp_path / f"large{suffix}"), str(tmp_path / f"small{suffix}")]
    count, grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(count) == rows
    assert int(grown) < most  # megabytes


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".parquet", ".safetensors", ".csv"])
def test_labels_may_be_missing_only_where_that_is_said(tmp_path, suffix):
    logits = np.random.default_rng(0).standard_normal((7, 3))
    path = tmp_path / f"x{'_logits' if suffix == '.npy' else ''}{suffix}"
    if suffix == ".npz":
        np.savez(path, logits=logits)
    elif suffix == ".npy":
        np.save(path, logits)
    elif suffix == ".safetensors":
        safetensors.numpy.save_file({"logits": logits}, path)
    else:
        table = pa.table({f"logits_{k}": logits[:, k] for k in range(3)})
        pq.write_table(table, path) if suffix == ".parquet" else pa.csv.write_csv(table, path)
    with pytest.raises(ValueError, match="no labels"):
        Predictions.open(path)
    opened = Predictions.open(path, unlabelled=True)
    assert opened.labels is None
    assert np.allclose(np.concatenate([batch.logits for batch in opened.batches(2)]), logits)
    assert len(opened) == 7
    assert not opened.labelled
    for needs_labels in (audit, Policy.fit, TemperatureScaling().fit):
        with pytest.raises(ValueError, match="label"):
            needs_labels(opened)


def test_shards_come_in_natural_order_and_must_agree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    p = make("logits", np.float32)
    parts = {10: slice(7, N), 2: slice(3, 7), 1: slice(0, 3)}
    for number, rows in parts.items():
        for suffix in FORMATS:
            p.samples(rows).save(f"{suffix[1:]}/part_{number}_logits{suffix}")
    for suffix in FORMATS:
        for path in (
            suffix[1:],
            f"{suffix[1:]}/part_*{suffix}",
            [f"{suffix[1:]}/part_{n}_logits{suffix}" for n in (1, 2, 10)],
        ):
            opened = Predictions.open(path)
            assert len(opened) == N
            assert_same(opened, p, suffix not in TEXT)
            assert [len(b) for b in Predictions.open(path).batches(4)] == [4, 4, 3]
            assert_same(opened.samples([9, 2, 5]), p.samples([9, 2, 5]), suffix not in TEXT)
    reverse = Predictions.open(["npz/part_2_logits.npz", "npz/part_1_logits.npz"])
    assert np.array_equal(reverse.logits, p.logits[[3, 4, 5, 6, 0, 1, 2]])
    narrow = Predictions.from_logits(p.logits[:, :2], p.labels % 2, ids=p.ids, groups=p.groups, objectness=p.objectness)
    narrow.save("npz/part_3.npz")
    with pytest.raises(ValueError, match=facts("npz/part_3.npz", "(2,)", "npz/part_1")):
        Predictions.open("npz")
    texts = Predictions.from_logits(p.logits, p.labels, class_names=p.class_names, ids=["x"] * N)
    numbers = Predictions.from_logits(p.logits, p.labels, class_names=p.class_names, ids=np.arange(N))
    texts.save("kinds/1.csv")
    numbers.save("kinds/2.csv")
    with pytest.raises(ValueError, match=facts("kinds/2.csv", "ids", "int64", "text")):
        list(Predictions.open("kinds").batches(4))
    Predictions.from_logits(p.logits, p.labels, class_names=p.class_names).save("csv/part_3.csv")
    with pytest.raises(ValueError, match=facts("csv/part_3.csv", "columns")):
        Predictions.open("csv")


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


def test_paths_that_lead_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "_SUCCESS").write_text("")
    (tmp_path / "folder" / ".hidden.npz").write_text("")
    (tmp_path / "notes.txt").write_text("x")
    np.save("array.npy", np.eye(3))
    for name in ("mix/a.npz", "mix/b.csv", "two/x_logits.npy"):
        SOME.save(name)
    np.save("two/x_probabilities.npy", np.eye(3))
    for path, told in (
        ("missing.npz", "no such file"),
        *((f"no/logits{suffix}", "no such file") for suffix in FORMATS),
        ("folder", "folder|.csv"),
        ("runs/*.parquet", "pattern"),
        ("notes.txt", "'.txt'|.csv"),
        *((f"x{suffix}", f"'{suffix}'|np.savez|pickle") for suffix in (".pt", ".pth", ".pkl")),
        ("array.npy", "logits|probabilities|confidence"),
        ("mix", ".csv and .npz|*.csv"),
        ("two", "x_logits.npy|x_probabilities.npy"),
    ):
        refused(path, facts(*told.split("|")))
    assert Predictions.open("two/*_logits.npy").holds == Predictions.open("two/x_logits.npy").holds == "logits"
    for bad, told in (([], "empty"), (7, "int"), (["mix/a.npz"] * 2, "twice"), ("C://x.parquet", "no such file")):
        with pytest.raises(ValueError, match=facts(told)):
            Predictions.open(bad)
    for name, told in (("a.txt", "a.txt|.csv"), ("a.tsv", ".tsv"), ("a.npy", "NAME_logits.npy|a.npy")):
        with pytest.raises(ValueError, match=facts(*told.split("|"))):
            SOME.save(name)
    with pytest.raises(ValueError, match=facts("x_class_names.npy")):
        Predictions.from_logits(np.eye(3), np.arange(3)).save("two/x_logits.npy")
    Predictions.from_logits(SOME.logits, SOME.labels, class_names=["1", "0", "2"]).save("digits.npz")
    with pytest.raises(ValueError, match=facts("0..2")):
        Predictions.open("digits.npz").save("digits.csv")
