"""Files of predictions, written and read by NumPy, Arrow, safetensors and Python's csv module as outside oracles."""

import csv
import io
import mmap
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from calibrant import Policy, Predictions, audit
from calibrant.posthoc import TemperatureScaling

N, C = 11, 3
FORMATS = (".npz", ".npy", ".parquet", ".safetensors", ".csv")
COLUMNS = ("logits", "probabilities", "confidence", "correct", "labels", "ids", "objectness")


def made(what, dtype=np.float64):
    """Predictions of every make, with everything on that they can carry."""
    rng = np.random.default_rng(7)
    z, y = rng.standard_normal((N, C)).astype(dtype), rng.integers(0, C, N)
    if what == "logits":
        groups = {"site": rng.integers(-3, 3, N), "a, b": ["ä\nb", 'c"d'] * 5 + ["e;f"]}
        names = ["cat", 'd,o"g', "x y"]
        ids = [f"row {i}" for i in range(N)]
        return Predictions.from_logits(
            z, y, ids=ids, groups=groups, objectness=rng.random(N).astype("f4"), class_names=names
        )
    if what == "probabilities":
        p = np.exp(z.astype(np.float64))
        p = (p / p.sum(1, keepdims=True)).astype(dtype)
        return Predictions.from_probabilities(p, y, ids=np.arange(N) + 2**40)
    if what == "confidence":
        return Predictions.from_confidence(rng.random(N).astype(dtype), rng.random(N) < 0.5, groups={"g": ["u"] * N})
    image, labels = rng.standard_normal((N, C, 4, 5)).astype(dtype), rng.integers(0, C, (N, 4, 5))
    return Predictions.from_logits(image, labels, kind="segmentation", ignore_index=2, split="test", ids=["i"] * N)


def assert_same(a, b, dtypes=True):
    assert (a.holds, a.kind, len(a), a.class_names) == (b.holds, b.kind, len(b), b.class_names)
    pairs = [(getattr(a, name), getattr(b, name)) for name in COLUMNS]
    assert set(a.groups) == set(b.groups)
    pairs += [(a.groups[name], b.groups[name]) for name in a.groups]
    for x, y in pairs:
        assert (x is None) == (y is None)
        if x is not None:
            assert np.array_equal(x, y)
            assert x.dtype == y.dtype or not dtypes
    assert (a.ignore_index, a.split) == (b.ignore_index, b.split) or not dtypes


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("what", ["logits", "probabilities", "confidence", "images"])
@pytest.mark.parametrize("suffix", FORMATS)
def test_what_is_written_is_read_and_converted_unchanged(suffix, what, dtype, tmp_path):
    p = made(what, dtype)
    path = tmp_path / f"a_{p.holds}{suffix}"
    if (suffix, what) == (".csv", "images"):
        with pytest.raises(ValueError, match=r"images do not fit a CSV file: write \.npz"):
            p.save(path)
        return
    exact = suffix != ".csv"
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
        if (other, what) != (".csv", "images"):
            there = tmp_path / f"b_{suffix[1:]}_{p.holds}{other}"
            Predictions.open(path).save(there)
            assert_same(Predictions.open(there), p, exact and other != ".csv")


def test_arrays_of_files_are_fixed_and_batches_are_for_torch(tmp_path):
    for suffix in FORMATS:
        p = made("logits", np.float32)
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
    p, q, s = made("logits", np.float32), made("confidence"), made("images", np.float32)
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


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_archives_of_numpy(compressed, order, dtype, tmp_path):
    p = made("images", np.float32)
    write = np.savez_compressed if compressed else np.savez
    arrays = {"logits": np.asarray(p.logits, dtype, order=order), "label": p.labels.astype("u1"), "other": np.eye(2)}
    write(tmp_path / "a.npz", meta=np.array([{"a": 1}], object), id=np.arange(N, dtype=">i4"), **arrays)
    opened = Predictions.open(tmp_path / "a.npz", kind="segmentation", ignore_index=2)
    assert np.array_equal(np.concatenate([b.logits for b in opened.batches(4)]), p.logits)
    assert opened.logits.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(opened.labels, p.labels)
    assert opened.ids.tolist() == list(range(N))
    for b in opened.batches(5):
        assert b.logits.flags.c_contiguous
        assert b.logits.flags.aligned
    with pytest.raises(ValueError, match=r'a\.npz: logits must be floating point \[N, C\].*kind="segmentation"'):
        Predictions.open(tmp_path / "a.npz")


def test_safetensors_of_torch_in_bfloat16(tmp_path):
    z = torch.randn(N, C, generator=torch.Generator().manual_seed(0)).bfloat16()
    tensors = {"logits": z, "labels": torch.arange(N, dtype=torch.int32) % C, "float8": z.to(torch.float8_e4m3fn)}
    safetensors.torch.save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    opened = Predictions.open(tmp_path / "a.safetensors")
    assert opened.logits.dtype == np.float32
    assert np.array_equal(opened.logits, z.float().numpy())
    with pytest.raises(ValueError, match=r"float8 must be numbers that NumPy has, or bfloat16, got F8_E4M3"):
        Predictions.open(tmp_path / "a.safetensors", columns={"logits": "float8"})


def tables(p):
    """The same logits in every layout that tables have."""
    flat, z = pa.array(p.logits.reshape(-1)), p.logits
    fixed = pa.FixedSizeListArray.from_arrays(flat, C)
    order = [2, 0, 1]
    return {
        "fixed": {"logits": fixed},
        "list": {"logits": pa.array(z.tolist(), pa.list_(pa.float64()))},
        "large": {"logits": fixed.cast(pa.large_list(pa.float64()))},
        "tensor": {"logits": pa.FixedShapeTensorArray.from_numpy_ndarray(z)},
        "numbered": {f"logits_{j}": z[:, j] for j in order},
        "padded": {f"logits_{j:03d}": z[:, j] for j in order},
        "dotted": {f"logits.{j}": z[:, j] for j in order},
        "named": {f"logits.{name}": z[:, j] for j, name in enumerate(("cat", "dog", "cow"))},
    }


@pytest.mark.parametrize("layout", ["fixed", "list", "large", "tensor", "numbered", "padded", "dotted", "named"])
@pytest.mark.parametrize("size", [2, 4, 1000])
def test_parquet_of_arrow_in_every_layout(layout, size, tmp_path):
    p = made("probabilities")
    p = Predictions.from_logits(p.probabilities, p.labels)
    columns = tables(p)[layout]
    table = pa.table(
        {
            "split": ["x"] * N,
            **columns,
            "label": p.labels.astype(np.int8),
            "id": pa.array([f"i{i % 4}" for i in range(N)]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    opened = Predictions.open(tmp_path / "a.parquet")
    assert len(opened) == N
    assert np.array_equal(np.concatenate([b.logits for b in opened.batches(size)]), p.logits)
    assert np.array_equal(opened.logits, p.logits)
    assert np.array_equal(opened.labels, p.labels)
    assert opened.ids.tolist() == [f"i{i % 4}" for i in range(N)]
    assert opened.class_names == {"named": ("cat", "dog", "cow"), "dotted": ("0", "1", "2")}.get(layout)
    assert opened.split is None


def test_parquet_of_arrow_tensors_as_images(tmp_path):
    p = made("images")
    for z in (p.logits, np.ascontiguousarray(p.logits.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)):
        columns = {"logits": z, "labels": np.array(p.labels)}
        table = {name: pa.FixedShapeTensorArray.from_numpy_ndarray(array) for name, array in columns.items()}
        pq.write_table(pa.table(table), tmp_path / f"{z.flags.c_contiguous}.parquet")
    opened = Predictions.open(tmp_path / "True.parquet", kind="segmentation")
    assert np.array_equal(opened.logits, p.logits)
    assert np.array_equal(opened.labels, p.labels)
    with pytest.raises(ValueError, match="column 'logits' must be tensors in C order"):
        Predictions.open(tmp_path / "False.parquet", kind="segmentation")


def test_names_of_classes_label_the_rows_of_a_table(tmp_path):
    p = made("probabilities")
    names = np.array(["cat", "dog", "cow"])
    columns = {name: p.probabilities[:, j] for j, name in enumerate(names)}
    pq.write_table(
        pa.table({**columns, "truth": names[p.labels], "site": ["x"] * N, "no": [None] * N}), tmp_path / "a.parquet"
    )
    mapped = {"labels": "truth", "probabilities": ["cow", "cat", "dog"]}
    opened = Predictions.open(tmp_path / "a.parquet", columns=mapped, groups=["site"])
    assert opened.class_names == ("cow", "cat", "dog")
    assert np.array_equal(opened.probabilities, p.probabilities[:, [2, 0, 1]])
    assert np.array_equal(np.array(opened.class_names)[opened.labels], names[p.labels])
    assert opened.groups["site"].tolist() == ["x"] * N
    again = Predictions.open(tmp_path / "a.parquet", columns=mapped, class_names=["a", "b", "c"])
    with pytest.raises(
        ValueError,
        match=r"a\.parquet: labels \(column 'truth'\) must be among the class names a, b, c, got '\w+' in row 0 ",
    ):
        again.load()
    text = "\r\n".join(
        ["\ufeffid,truth,p_1,p_0,p_2,note", '7,dog,0.5,0.25,0.25,"a\r\nb"', "08,cat,0,1,0,", "9,dog,1e-1,.4,0.5,x", ""]
    )
    (tmp_path / "a.csv").write_text(text, newline="")
    opened = Predictions.open(
        tmp_path / "a.csv", columns={"labels": "truth", "probabilities": "p_*"}, class_names=["cat", "dog", "cow"]
    )
    assert opened.probabilities.tolist() == [[0.25, 0.5, 0.25], [1, 0, 0], [0.4, 0.1, 0.5]]
    assert opened.labels.tolist() == [1, 0, 1]
    assert opened.ids.tolist() == ["7", "08", "9"]
    assert len(opened) == 3
    made("probabilities").save(tmp_path / "b.csv")
    assert repr(Predictions.open(tmp_path / "b.csv")).startswith(f"Predictions({tmp_path}")  # no pass to count rows


def test_shards_come_in_natural_order_and_must_agree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    p = made("logits", np.float32)
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
            assert_same(opened, p, suffix != ".csv")
            assert [len(b) for b in Predictions.open(path).batches(4)] == [4, 4, 3]
            assert_same(opened.samples([9, 2, 5]), p.samples([9, 2, 5]), suffix != ".csv")
    reverse = Predictions.open(["npz/part_2_logits.npz", "npz/part_1_logits.npz"])
    assert np.array_equal(reverse.logits, p.logits[[3, 4, 5, 6, 0, 1, 2]])
    narrow = Predictions.from_logits(p.logits[:, :2], p.labels % 2, ids=p.ids, groups=p.groups, objectness=p.objectness)
    narrow.save("npz/part_3.npz")
    with pytest.raises(
        ValueError, match=r"^npz/part_3\.npz: shards must hold the same, got shape \(2,\) where npz/part_1"
    ):
        Predictions.open("npz")
    texts = Predictions.from_logits(p.logits, p.labels, class_names=p.class_names, ids=["x"] * N)
    numbers = Predictions.from_logits(p.logits, p.labels, class_names=p.class_names, ids=np.arange(N))
    texts.save("kinds/1.csv")
    numbers.save("kinds/2.csv")
    with pytest.raises(ValueError, match=r"^kinds/2\.csv: shards must hold the same, got ids int64 after text$"):
        list(Predictions.open("kinds").batches(4))
    Predictions.from_logits(p.logits, p.labels, class_names=p.class_names).save("csv/part_3.csv")
    with pytest.raises(ValueError, match=r"^csv/part_3\.csv: shards must hold the same, got columns"):
        Predictions.open("csv")


def test_errors_in_a_stream_name_the_file_and_its_row(tmp_path):
    p = made("probabilities")
    for number in (1, 2):
        broken = p.probabilities.copy()
        broken[9, 1] += number - 1
        table = pa.table({**{f"probabilities_{j}": broken[:, j] for j in range(C)}, "labels": p.labels})
        pq.write_table(table, tmp_path / f"{number}.parquet")
        np.savez(tmp_path / f"{number}.npz", probabilities=broken, labels=p.labels)
    for suffix in ("parquet", "npz"):
        opened = Predictions.open(str(tmp_path / f"*.{suffix}"))
        assert np.array_equal(opened.labels, np.tile(p.labels, 2))  # the broken column is not touched
        batches = opened.batches(4)
        assert sum(len(next(batches)) for _ in range(2)) == 8
        with pytest.raises(
            ValueError,
            match=rf"^{tmp_path}/2\.{suffix}: probabilities must lie in 0..1, got 1\.\d+ in row 9 .*, class 1$",
        ):
            list(batches)


def test_a_file_that_changes_under_its_reader_is_noticed(tmp_path):
    made("logits").save(tmp_path / "a.npz")
    opened = Predictions.open(tmp_path / "a.npz")
    made("images").save(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"a\.npz: the file has changed since it was opened"):
        opened.load()


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


def test_predictions_of_the_first_version_still_open(tmp_path):
    """What np.savez wrote before there were other formats: logits, labels and perhaps ids."""
    out = io.BytesIO()
    np.savez(out, logits=np.eye(3), labels=np.arange(3), ids=np.arange(3))
    (tmp_path / "a.npz").write_bytes(out.getvalue())
    opened = Predictions.open(tmp_path / "a.npz")
    assert (len(opened), opened.num_classes, opened.ids.tolist()) == (3, 3, [0, 1, 2])


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
