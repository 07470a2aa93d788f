"""Damaged files: a flipped bit ends in a sentence or changes nothing. Oracle: what was written."""

import random
import zipfile
import zlib

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from calibrant import Predictions

RNG = np.random.default_rng(5)
SOME = Predictions.from_logits(
    RNG.standard_normal((7, 3)).astype(np.float32),
    np.arange(7) % 3,
    ids=[f"r{i}" for i in range(7)],
    groups={"site": list("abcabca")},
    objectness=RNG.random(7).astype(np.float32),
    class_names=["cat", "dog", "cow"],
    split="val",
)


def contents(p):
    columns = {"logits": p.logits, "labels": p.labels, "ids": p.ids, "objectness": p.objectness, **p.groups}
    arrays = {name: None if array is None else (array.dtype.str, array.tolist()) for name, array in columns.items()}
    return arrays, p.class_names, p.kind, p.ignore_index, p.split


def compressed(path):
    arrays = {"logits": SOME.logits, "labels": SOME.labels, "ids": SOME.ids, "objectness": SOME.objectness}
    facts = {"class_names": np.array(SOME.class_names), "split": np.array("val")}
    np.savez_compressed(path, **arrays, **facts, **{"group.site": SOME.groups["site"]})


def contents_or_sentence(path, read):
    try:
        return contents(read(Predictions.open(path)))
    except ValueError as error:
        return str(error)


WRITERS = {
    ".npz": SOME.save,
    "compressed.npz": compressed,
    ".npy": SOME.save,
    ".safetensors": SOME.save,
    ".parquet": SOME.save,
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
    SOME.save(path)
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


def test_files_of_two_sets_are_told_apart(tmp_path):
    other = Predictions.from_logits(
        SOME.logits + 1,
        SOME.labels,
        ids=SOME.ids,
        groups=SOME.groups,
        objectness=SOME.objectness,
        class_names=SOME.class_names,
        split="val",
    )
    SOME.save(tmp_path / "x_logits.npy")
    other.save(tmp_path / "y_logits.npy")
    for name in ("logits", "labels", "ids"):
        SOME.save(tmp_path / "x_logits.npy")
        (tmp_path / f"x_{name}.npy").write_bytes((tmp_path / f"y_{name}.npy").read_bytes())
        if name == "logits":
            with pytest.raises(ValueError, match=r"x_logits\.npy: the file is damaged, or of another set"):
                Predictions.open(tmp_path / "x_logits.npy").load()
        else:  # the same bytes
            Predictions.open(tmp_path / "x_logits.npy").load()
    (tmp_path / "x_ids.npy").unlink()
    with pytest.raises(ValueError, match=r"x_logits\.npy: x_ids\.npy is missing, which was written with it$"):
        Predictions.open(tmp_path / "x_logits.npy")
    (tmp_path / "x_checksums.npy").unlink()
    assert Predictions.open(tmp_path / "x_logits.npy").ids is None


def test_files_of_other_programs_have_no_checksums_and_are_read(tmp_path):
    safetensors.numpy.save_file({"logits": SOME.logits, "labels": SOME.labels}, tmp_path / "a.safetensors")
    np.save(tmp_path / "a_logits.npy", SOME.logits)
    np.save(tmp_path / "a_labels.npy", SOME.labels)
    SOME.save(tmp_path / "b.parquet")
    table = pq.read_table(tmp_path / "b.parquet")
    pq.write_table(table.drop(["ids"]), tmp_path / "a.parquet")  # keeps our metadata
    for name in ("a.safetensors", "a_logits.npy", "a.parquet"):
        assert np.array_equal(Predictions.open(tmp_path / name).logits, SOME.logits)
    assert safetensors.numpy.load_file(tmp_path / "a.safetensors").keys() == {"logits", "labels"}
    SOME.save(tmp_path / "c.safetensors")
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "c.safetensors")["logits"], SOME.logits)
