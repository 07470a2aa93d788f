"""Predictions from damaged files: whatever bytes come in, predictions come out or an error in a sentence, and soon."""

import gzip
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrant import Predictions
from tests.helpers.damage import changes

#: Bytes that mean something to one parser or another.
TOKENS = [
    b"\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"-1", b"1e999", b"9" * 5000, b"nan",
    b"\xed\xa0\x80", b"\n", b",", b'"', b"{", b"[" * 2000, b"\\ud800", b"class_names", b"logits", b".npy", b"labels",
    b"PK\x05\x06", b"PK\x01\x02", b"PAR1", b"\x93NUMPY", b"'shape': (9223372036854775807,)", b"\x1f\x8b", b"A" * 70_000,
]  # fmt: skip
CHANGES = changes(TOKENS)
PATIENCE = 5.0  # seconds of CPU time for a tiny file; a busy machine takes one
HOW = (
    {},
    {"kind": "segmentation"},
    {"columns": {"logits": "p_*"}},
    {"class_names": ["cat", "dog", "cow"]},
    {"class_names": ["1", "2", "3"]},
    {"unlabelled": True, "ignore_index": 1},
)


def tried(examples):
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=checks)


RNG = np.random.default_rng(3)
LOGITS, LABELS = RNG.standard_normal((9, 3)), np.arange(9) % 3
NAMED = Predictions.from_logits(
    LOGITS, LABELS, ids=[f"r{i}" for i in range(9)], groups={"g": list("abcabcabc")}, class_names=["cat", "dog", "cow"]
)
CODED = Predictions.from_logits(LOGITS, LABELS, class_names=["10", "20", "30"], objectness=RNG.random(9))
SURE = Predictions.from_confidence(RNG.random(9), LABELS == 1)


def table(path):
    columns = {"p_1": LOGITS[:, 0], "p_2": LOGITS[:, 1], "labels": ["1", "2", "1"] * 3}
    pq.write_table(pa.table(columns), path, row_group_size=4)


def zipped_table(path):
    path.write_bytes(gzip.compress(b"logits_0,logits_1,labels,ids\n" + b'0.5,0.25,1,"a"\n' * 9))


#: Writer, and whether everything in the file has a checksum.
SEEDS = {
    "a_logits.npz": (NAMED.save, True),
    "b_logits.npz": (CODED.save, True),
    "c_logits.npz": (lambda path: np.savez_compressed(path, logits=LOGITS, labels=LABELS), True),
    "d_logits.npz": (lambda path: np.savez(path, logits=np.asfortranarray(LOGITS), labels=LABELS), True),
    "a_logits.npy": (NAMED.save, True),
    "b_logits.npy": (lambda path: [np.save(path, LOGITS), np.save(path.with_name("b_labels.npy"), LABELS)], False),
    "a_logits.safetensors": (NAMED.save, True),
    "b_confidence.safetensors": (SURE.save, True),
    "a_logits.parquet": (NAMED.save, True),
    "b_confidence.parquet": (SURE.save, True),
    "c_logits.parquet": (table, False),
    "a_logits.csv": (CODED.save, False),
    "b_confidence.csv": (SURE.save, False),
    "c_logits.csv.gz": (zipped_table, True),
}


def contents(p):
    columns = [p.logits, p.probabilities, p.confidence, p.correct, p.labels, p.ids, p.objectness, *p.groups.values()]
    values = [None if column is None else (column.dtype.str, column.tolist()) for column in columns]
    return values, p.holds, p.class_names, p.kind, p.ignore_index, p.split, p.group_names


def read(path, **how):
    """What is in a file, or None if a sentence says why it is not read; either soon."""
    start = time.process_time()
    try:
        return contents(Predictions.open(path, **how).load())
    except ValueError as error:
        text = str(error)
    finally:
        assert time.process_time() - start < PATIENCE
    assert text.startswith(str(path.parent))
    assert "\n" not in text
    assert len(text) < 1000 + len(str(path))
    return None


@pytest.fixture(scope="module", params=SEEDS)
def seed(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("seed") / request.param
    write, summed = SEEDS[request.param]
    write(path)
    return path, path.read_bytes(), summed


def test_the_seeds_are_sound(seed):
    path, _, _ = seed
    how = {"columns": {"logits": "p_*"}} if path.name == "c_logits.parquet" else {}
    assert read(path, **how) is not None


@tried(50)
@given(changes=CHANGES, how=st.sampled_from(HOW))
def test_a_damaged_file_is_read_or_refused(seed, changes, how):
    path, whole, _ = seed
    data = whole
    for share, token, replaced in changes:
        at = int(share * len(data))
        data = data[:at] + token + data[at + replaced :]
    path.write_bytes(data)
    try:
        read(path, **how)
    finally:
        path.write_bytes(whole)


@tried(25)
@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_never_changes_what_has_a_checksum(seed, share, bit):
    path, whole, summed = seed
    expected = read(path)
    damaged = bytearray(whole)
    damaged[int(share * len(whole))] ^= 1 << bit
    path.write_bytes(damaged)
    try:
        assert read(path) in (None, expected) or not summed
    finally:
        path.write_bytes(whole)


@tried(15)
@given(
    data=st.binary(max_size=2000),
    start=st.sampled_from([b"", b"PK\x03\x04", b"PAR1", b"\x93NUMPY\x01\x00", b"\x1f\x8b"]),
)
def test_random_bytes_are_refused(seed, data, start):
    path, whole, _ = seed
    path.write_bytes(start + data)
    try:
        assert read(path) is None or path.name.endswith(".csv")
    finally:
        path.write_bytes(whole)
