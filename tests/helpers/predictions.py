"""Predictions for the tests of files, and the one sentence that refuses a file."""

import json
import struct
import time
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from calibrant import Predictions

FORMATS = (".npz", ".npy", ".parquet", ".safetensors", ".csv", ".jsonl")
TEXT = {".csv": "a CSV file", ".jsonl": "JSON lines"}  # numbers are written as text, and read as float64
N, C = 11, 3
COLUMNS = ("logits", "probabilities", "confidence", "correct", "labels", "ids", "objectness")
Q = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.125, 0.375, 0.5], [0.25, 0.25, 0.5]])
ROWS = ["0.5,0.25,0.25", "0,1,0", "0.125,0.375,0.5", "0.25,0.25,0.5"]
CLASSES = ("cat", "dog", "bird")
SMALL_RNG = np.random.default_rng(5)
SMALL = Predictions.from_logits(
    SMALL_RNG.standard_normal((7, 3)).astype(np.float32),
    np.arange(7) % 3,
    ids=[f"r{i}" for i in range(7)],
    groups={"site": list("abcabca")},
    objectness=SMALL_RNG.random(7).astype(np.float32),
    class_names=["cat", "dog", "cow"],
    split="val",
)
SOON = 8  # seconds of CPU time; what is quadratic takes a minute
Z = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, -1.0], [3.0, 1.0, 0.5], [0.0, 0.25, 5.0], [1.0, 2.0, 3.0]])
Y = np.array([0, 1, 1, 2, 0])
P = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [0.125, 0.375, 0.5], [0.0, 0.0, 1.0], [0.25, 0.25, 0.5]])
IMAGES = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
PIXELS = np.arange(2 * 4 * 5).reshape(2, 4, 5) % 3
SOME = Predictions.from_logits(
    np.random.default_rng(7).standard_normal((11, 3)),
    np.arange(11) % 3,
    ids=[f"row {i}" for i in range(11)],
    groups={"site": list("abcabcabcab")},
    class_names=["cat", "dog", "cow"],
)


def make_numbered(number, rows=300):
    """Predictions that say in every part which ones they are."""
    return Predictions.from_logits(
        np.full((rows, 3), float(number)),
        np.full(rows, number % 3),
        ids=np.full(rows, number),
        groups={"g": [f"{number}"] * rows},
        class_names=[f"{number}{letter}" for letter in "abc"],
    )


def numbers_in(p, way):
    """The numbers of the predictions that the parts are of, each way of reading by turns."""
    names = p.class_names
    if way == 1:
        p = p.load()
    parts = list(p.batches(77)) if way == 2 else [p]
    found = {int(name[:-1]) for name in names}
    for part in parts:
        found |= {int(n) for array in (part.logits, part.ids, part.groups["g"]) for n in np.unique(array)}
        found |= {4 if label == 1 else 2 for label in np.unique(part.labels)}
    return found


def save_again_and_again(number, path, stop):
    predictions = make_numbered(number)
    while not stop.is_set():
        predictions.save(path)


def make(what, dtype=np.float64):
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


def write_columns(path, columns):
    """A file of columns in the format of its suffix, by other libraries; of ``x.npy`` a set, and its first file."""
    lists = {name: np.asarray(values).tolist() for name, values in columns.items()}
    if path.suffix == ".npz":
        np.savez(path, **columns)
    elif path.suffix == ".npy":
        paths = [path.with_name(f"{path.stem}_{name}.npy") for name in columns]
        for file, values in zip(paths, columns.values(), strict=True):
            np.save(file, values)
        return paths[0]
    elif path.suffix == ".safetensors":
        safetensors.numpy.save_file({name: np.asarray(values) for name, values in columns.items()}, path)
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(lists), path)
    elif path.suffix == ".jsonl":
        rows = zip(*lists.values(), strict=True)
        path.write_text("".join(json.dumps(dict(zip(lists, row, strict=True))) + "\n" for row in rows))
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        rows = [lists, *zip(*lists.values(), strict=True)]
        path.write_text("".join(mark.join(map(str, row)) + "\n" for row in rows))
    return path


def write_table(path, header, labels, rows=ROWS):
    path.write_text("\n".join([header, *(f"{row},{label}" for row, label in zip(rows, labels, strict=True)), ""]))
    return path


def refusal_of(call, *given, **how):
    with pytest.raises(ValueError, match=r".") as error:
        call(*given, **how).load()
    assert "\n" not in str(error.value)
    return str(error.value)


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


def refused(path, message, **how):
    with pytest.raises(ValueError, match=message) as error:
        Predictions.open(path, **how).load()
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text


def npy(descr, shape, data=b"", fortran=False):
    header = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def archive(path, logits, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("logits.npy", logits)
        file.writestr("labels.npy", npy("<i8", (3,), bytes(24)))
