"""What holds for all formats: damage is noticed, or changes nothing."""

import json
import random
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from calibrant import Predictions
from tests.helpers.predictions import FORMATS, SMALL, SOME, refusal, refused


def contents(p):
    columns = {"logits": p.logits, "labels": p.labels, "ids": p.ids, "objectness": p.objectness, **p.groups}
    arrays = {name: None if array is None else (array.dtype.str, array.tolist()) for name, array in columns.items()}
    return arrays, p.class_names, p.kind, p.ignore_index, p.split


def compressed(path):
    arrays = {"logits": SMALL.logits, "labels": SMALL.labels, "ids": SMALL.ids, "objectness": SMALL.objectness}
    facts = {"class_names": np.array(SMALL.class_names), "split": np.array("val")}
    np.savez_compressed(path, **arrays, **facts, **{"group.site": SMALL.groups["site"]})


def contents_or_sentence(path, read):
    try:
        return contents(read(Predictions.open(path)))
    except ValueError as error:
        return str(error)


WRITERS = {
    ".npz": SMALL.save,
    "compressed.npz": compressed,
    ".npy": SMALL.save,
    ".safetensors": SMALL.save,
    ".parquet": SMALL.save,
}


@pytest.mark.parametrize("case", WRITERS)
def test_a_flipped_bit_is_noticed_or_changes_nothing(case, tmp_path):
    """A sample of all bits of all files; each way of reading, as each has its own check."""
    path = tmp_path / f"x_logits.{case.rpartition('.')[2]}"
    WRITERS[case](path)
    expected, rng = contents(Predictions.open(path).load()), random.Random(1)
    noticed, files = 0, sorted(tmp_path.iterdir())
    for file in files:
        whole = file.read_bytes()
        for bit in rng.sample(range(8 * len(whole)), 120 // len(files)):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            for read in (Predictions.load, lambda p: p, lambda p: p.samples(slice(None))):
                outcome = contents_or_sentence(path, read)
                assert outcome == expected or str(outcome).startswith(str(tmp_path)), (file.name, bit, outcome)
                noticed += outcome != expected
        file.write_bytes(whole)
    assert noticed > 50
    assert contents(Predictions.open(path).load()) == expected


def test_files_of_other_programs_have_no_checksums_and_are_read(tmp_path):
    safetensors.numpy.save_file({"logits": SMALL.logits, "labels": SMALL.labels}, tmp_path / "a.safetensors")
    np.save(tmp_path / "a_logits.npy", SMALL.logits)
    np.save(tmp_path / "a_labels.npy", SMALL.labels)
    SMALL.save(tmp_path / "b.parquet")
    table = pq.read_table(tmp_path / "b.parquet")
    pq.write_table(table.drop(["ids"]), tmp_path / "a.parquet")  # keeps our metadata
    for name in ("a.safetensors", "a_logits.npy", "a.parquet"):
        assert np.array_equal(Predictions.open(tmp_path / name).logits, SMALL.logits)
    assert safetensors.numpy.load_file(tmp_path / "a.safetensors").keys() == {"logits", "labels"}
    SMALL.save(tmp_path / "c.safetensors")
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "c.safetensors")["logits"], SMALL.logits)


FIXED = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(6)), 6)
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


@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_files_never_end_otherwise_than_in_a_sentence(suffix, tmp_path):
    p = SOME
    p.save(tmp_path / f"whole_logits{suffix}")
    whole = (tmp_path / f"whole_logits{suffix}").read_bytes()
    path = tmp_path / f"x_logits{suffix}"
    np.save(tmp_path / "x_labels.npy", p.labels)
    cuts = [whole[: len(whole) * share // 100] for share in (0, 1, 5, 30, 60, 99)]
    for body in [*cuts, b"hello\n", b"\n\n", bytes(500)]:
        path.write_bytes(body)
        refused(path, ".")
    rng = np.random.default_rng(3)
    for _ in range(150):
        noisy = bytearray(whole)
        for place in rng.integers(0, len(whole), rng.integers(1, 6)):
            noisy[place] = rng.integers(0, 256)
        path.write_bytes(noisy)
        error = None
        try:
            Predictions.open(path).load()
        except ValueError as raised:
            error = str(raised)
        assert error is None or error.startswith(f"{path}: ")
