"""Archives: of NumPy, damaged, and bombs."""

import struct
import zipfile
import zlib

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.predictions import files
from tests.helpers.predictions import SMALL, N, archive, make, npy, refusal, refused


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
    """Oracle: zlib's CRC-32 in the archive; the last byte of the data is changed, and the rest read as it was."""
    path = tmp_path / "a.npz"
    logits = np.asarray(np.random.default_rng(0).standard_normal((500, 3)), order=order)
    write(path, logits=logits, labels=np.arange(500) % 3)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("logits.npy")
        assert zlib.crc32(archive.read(info)) == info.CRC
    whole = bytearray(path.read_bytes())
    end = info.header_offset + 30 + len(info.filename) + 20 + info.compress_size
    whole[end - 2] ^= 1
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
        with pytest.raises(ValueError, match=r"a\.npz: the archive is damaged: .* and the directory disagree$"):
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
    with pytest.raises(ValueError, match=r"at most 10,000 arrays, got 10,001$"):
        Predictions.open(path)


def test_an_archive_that_becomes_far_larger_is_refused(monkeypatch, tmp_path):
    np.savez_compressed(tmp_path / "a.npz", logits=np.zeros((100_000, 2)), labels=np.zeros(100_000, np.int8))
    assert len(Predictions.open(tmp_path / "a.npz")) == 100_000
    monkeypatch.setattr(files, "LEAST", 1 << 20)
    assert "logits must become at most 100 times as large" in refusal(tmp_path / "a.npz")


def test_zip_bombs(tmp_path):
    """A member that declares far more than deflate can make of its bytes; and an honest one is streamed."""
    archive(tmp_path / "a.npz", npy("<f8", (3, 3), bytes(72)), zipfile.ZIP_DEFLATED)
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    for signature, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", whole, whole.index(signature) + place, 2**31)
    (tmp_path / "b.npz").write_bytes(whole)
    refused(tmp_path / "b.npz", "logits declares 2147483648 bytes, more than .* can hold$")
    rows = 1 << 20
    np.savez_compressed(tmp_path / "c.npz", logits=np.zeros((rows, 4)), labels=np.zeros(rows, np.int8))
    assert (tmp_path / "c.npz").stat().st_size < rows / 10
    assert sum(len(b) for b in Predictions.open(tmp_path / "c.npz").batches(1000)) == rows
