"""Arrays in files, as .npz, .npy and .safetensors: of NumPy and torch, damaged, bombs, and hostile headers."""

import dataclasses
import io
import json
import re
import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from calibrant import Predictions
from calibrant.predictions import files
from calibrant.predictions.files import open_first
from calibrant.predictions.formats.arrays import StoredArray, parse_header
from tests.helpers.errors import facts
from tests.helpers.predictions import SMALL, C, N, archive, make, npy, refusal, refused


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_archives_of_numpy(compressed, order, dtype, tmp_path):
    p = make("images", np.float32)
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


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_data_of_an_archive_are_compared_with_its_checksum(write, order, tmp_path):
    """Oracle: zlib's CRC-32 in the archive; a byte of the data is changed, and the rest read as it was."""
    path = tmp_path / "a.npz"
    logits = np.asarray(np.random.default_rng(0).standard_normal((500, 3)), order=order)
    write(path, logits=logits, labels=np.arange(500) % 3)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("logits.npy")
        assert zlib.crc32(archive.read(info)) == info.CRC
    whole = bytearray(path.read_bytes())
    end = info.header_offset + 30 + len(info.filename) + 20 + info.compress_size
    whole[end - 100] ^= 1
    path.write_bytes(whole)
    opened = Predictions.open(path)
    assert opened.labels.tolist() == [i % 3 for i in range(500)]
    for read in (lambda: opened.logits, lambda: list(opened.batches(100)), opened.load):
        with pytest.raises(ValueError, match=r"a\.npz: "):
            read()


def test_an_archive_whose_directory_and_members_disagree(tmp_path):
    path = tmp_path / "a.npz"
    SMALL.save(path)
    whole = path.read_bytes()
    directory = whole.index(b"PK\x01\x02")
    for old, new in ((b"ids.npy", b"idz.npy"), (b"group.site.npy", b"group.sita.npy"), (b"split.npy", b"splat.npy")):
        path.write_bytes(whole[:directory] + whole[directory:].replace(old, new))
        with pytest.raises(ValueError, match=facts("a.npz", "directory")):
            Predictions.open(path)


def test_members_that_overlap_or_are_too_many(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, logits=np.eye(3), labels=np.arange(3), ids=np.arange(3))
    whole = bytearray(path.read_bytes())
    entries = [i for i in range(len(whole)) if whole[i : i + 4] == b"PK\x01\x02"]
    whole[entries[1] + 42 : entries[1] + 46] = whole[entries[2] + 42 : entries[2] + 46]  # where a member starts
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"a\.npz: the archive is damaged: .* (overlaps|disagree)"):
        Predictions.open(path)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(10_001):
            archive.writestr(f"{number}.npy", b"")
    with pytest.raises(ValueError, match=facts("10,000", "10,001")):
        Predictions.open(path)


def test_an_archive_that_becomes_far_larger_is_refused(monkeypatch, tmp_path):
    np.savez_compressed(tmp_path / "a.npz", logits=np.zeros((100_000, 2)), labels=np.zeros(100_000, np.int8))
    assert len(Predictions.open(tmp_path / "a.npz")) == 100_000
    monkeypatch.setattr(files, "LEAST", 1 << 20)
    assert re.search(facts("logits", "100 times"), refusal(tmp_path / "a.npz"))


def test_zip_bombs(tmp_path):
    """A member that declares far more than deflate can make of its bytes; and an honest one is streamed."""
    archive(tmp_path / "a.npz", npy("<f8", (3, 3), bytes(72)), zipfile.ZIP_DEFLATED)
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", whole, whole.index(signature) + place, 2**31)
    (tmp_path / "b.npz").write_bytes(whole)
    refused(tmp_path / "b.npz", "logits.*2,147,483,648")
    rows = 1 << 20
    np.savez_compressed(tmp_path / "c.npz", logits=np.zeros((rows, 4)), labels=np.zeros(rows, np.int8))
    assert (tmp_path / "c.npz").stat().st_size < rows / 10
    assert sum(len(b) for b in Predictions.open(tmp_path / "c.npz").batches(1000)) == rows


def test_files_of_two_sets_are_told_apart(tmp_path):
    other = Predictions.from_logits(
        SMALL.logits + 1,
        SMALL.labels,
        ids=SMALL.ids,
        groups=SMALL.groups,
        objectness=SMALL.objectness,
        class_names=SMALL.class_names,
        split="val",
    )
    SMALL.save(tmp_path / "x_logits.npy")
    other.save(tmp_path / "y_logits.npy")
    for name in ("logits", "labels", "ids"):
        SMALL.save(tmp_path / "x_logits.npy")
        (tmp_path / f"x_{name}.npy").write_bytes((tmp_path / f"y_{name}.npy").read_bytes())
        if name == "logits":
            with pytest.raises(ValueError, match=facts("x_logits.npy", "damaged")):
                Predictions.open(tmp_path / "x_logits.npy").load()
        else:  # the same bytes
            Predictions.open(tmp_path / "x_logits.npy").load()
    (tmp_path / "x_ids.npy").unlink()
    with pytest.raises(ValueError, match=facts("x_logits.npy", "x_ids.npy", "missing")):
        Predictions.open(tmp_path / "x_logits.npy")
    (tmp_path / "x_checksums.npy").unlink()
    assert Predictions.open(tmp_path / "x_logits.npy").ids is None


def test_safetensors_of_torch_in_bfloat16(tmp_path):
    z = torch.randn(N, C, generator=torch.Generator().manual_seed(0)).bfloat16()
    tensors = {"logits": z, "labels": torch.arange(N, dtype=torch.int32) % C, "float8": z.to(torch.float8_e4m3fn)}
    safetensors.torch.save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    opened = Predictions.open(tmp_path / "a.safetensors")
    assert opened.logits.dtype == np.float32
    assert np.array_equal(opened.logits, z.float().numpy())
    with pytest.raises(ValueError, match=facts("float8", "bfloat16", "F8_E4M3")):
        Predictions.open(tmp_path / "a.safetensors", columns={"logits": "float8"})


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


@pytest.mark.slow
@pytest.mark.parametrize("case", [*LARGE, *HEADERS])
def test_headers_of_safetensors(case, tmp_path):
    header = LARGE[case]() if case in LARGE else HEADERS[case]
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    refusal(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("descr", "shape"), [("<f8", (10**12, 3)), ("<f4", (3, 10**12)), ("<f8", (2**62, 4)), ("<f8", (3, 4))]
)
def test_headers_that_promise_what_is_not_there(descr, shape, tmp_path):
    claim = npy(descr, shape, bytes(72))
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        archive(tmp_path / "a.npz", claim, method)
        refused(tmp_path / "a.npz", facts("header", "72"))
    (tmp_path / "x_logits.npy").write_bytes(claim)
    np.save(tmp_path / "x_labels.npy", np.zeros(3, int))
    refused(tmp_path / "x_logits.npy", facts("header", "72"))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (npy("|O", (3, 3), bytes(72)), "unpickled |O"),
        (npy([("a", "<f8")], (3, 3), bytes(72)), "unpickled"),
        (npy("<U0", (10**12,), bytes(72)), "unpickled"),
        (npy("<f8", (-3, -3), bytes(72)), "shape"),
        (npy("<f8", "3", bytes(72)), "shape"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "10000"),
    ],
)
def test_headers_that_are_refused(body, told, tmp_path):
    archive(tmp_path / "a.npz", body)
    refused(tmp_path / "a.npz", facts(*told.split()))


def test_shapes_of_metadata_are_bounded(tmp_path):
    huge = 10**12
    header = json.dumps({"logits": {"dtype": "F32", "shape": [huge, 3], "data_offsets": [0, 12 * huge]}}).encode()
    for data in (struct.pack("<Q", len(header)) + header + bytes(36), struct.pack("<Q", 2**62) + b"{}"):
        (tmp_path / "a.safetensors").write_bytes(data)
        refused(tmp_path / "a.safetensors", facts("safetensors"))
    table = pa.table({"logits": [[1.0] * 6], "labels": [[0] * 2]})
    metadata = {"calibrant": json.dumps({"kind": "segmentation", "shape": [huge, huge, 2]})}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", facts("'logits'", f"{2 * huge**2}", "6", "row 0"))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["plain", "summed", "stored", "deflated"])
def test_rows_are_numpys(order, kind, tmp_path):
    """Oracle: `numpy.load`; with bytes before the array, which its checksum knows or not."""
    array = np.asarray(np.random.default_rng(0).standard_normal((7, 3)), order=order)
    buffer = io.BytesIO()
    np.save(buffer, array)
    whole, path = buffer.getvalue(), tmp_path / "array"
    header = parse_header(io.BytesIO(whole), len(whole))
    if kind in ("plain", "summed"):
        path.write_bytes(b"before" + whole)
        crc = zlib.crc32(whole) if kind == "summed" else None
        where = {"start": 6 + header.size, "crc": crc, "summed": 6}
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if kind == "deflated" else zipfile.ZIP_STORED) as file:
            file.writestr("a.npy", whole)
        where = {"start": 30 + len("a.npy") + header.size if kind == "stored" else None, "member": "a.npy"}
    with open_first(path) as (file, _):
        pass
    stored = StoredArray(file, header.dtype, header.shape, fortran=order == "F", **where)
    np.testing.assert_array_equal(np.concatenate(list(stored.blocks(2))), np.load(io.BytesIO(whole)))
    assert [len(block) for block in stored.blocks(3)] == [3, 3, 1]
    if kind == "deflated":
        assert stored.mapped() is None
    if kind == "summed":
        other = dataclasses.replace(stored, crc=zlib.crc32(whole) ^ 1)
        with pytest.raises(ValueError, match="damaged"):
            list(other.blocks(2))


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
