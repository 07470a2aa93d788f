"""Files that hold something else, too little, or a trap: one sentence that starts with the path, no allocation."""

import json
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions

FORMATS = (".npz", ".npy", ".parquet", ".safetensors", ".csv")
SOME = Predictions.from_logits(
    np.random.default_rng(7).standard_normal((11, 3)),
    np.arange(11) % 3,
    ids=[f"row {i}" for i in range(11)],
    groups={"site": list("abcabcabcab")},
    class_names=["cat", "dog", "cow"],
)


def refused(path, message, **how):
    with pytest.raises(ValueError, match=message) as error:
        Predictions.open(path, **how).load()
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text


def test_missing_and_ambiguous_columns_say_what_there_is(tmp_path):
    z, y = np.eye(3), np.arange(3)
    np.savez(tmp_path / "a.npz", scores=z, truth=y)
    refused(
        tmp_path / "a.npz",
        r"no logits, probabilities or confidence, expected .*; it holds scores, truth: .* --column logits=NAME ",
    )
    refused(
        tmp_path / "a.npz",
        r"no labels; it holds scores, truth: .* --column labels=truth ",
        columns={"logits": "scores"},
    )
    refused(
        tmp_path / "a.npz",
        r"no column 'y' \(given as labels\); it holds scores, truth$",
        columns={"logits": "scores", "labels": "y"},
    )
    refused(
        tmp_path / "a.npz",
        "no column 'site' .given as group.; it holds scores, truth$",
        columns={"logits": "scores", "labels": "truth"},
        groups=["site"],
    )
    np.savez(tmp_path / "b.npz", logits=z, probabilities=z, labels=y)
    refused(
        tmp_path / "b.npz",
        r'holds logits and probabilities: .* --column logits=logits \(in Python columns=\{"logits": "logits"\}\)$',
    )
    assert Predictions.open(tmp_path / "b.npz", columns={"probabilities": "probabilities"}).holds == "probabilities"
    (tmp_path / "a.csv").write_text("logits_0,logits_1,logits.a,logits.b,labels\n1,2,1,2,0\n")
    refused(tmp_path / "a.csv", r"holds logits_\* and logits\.\*: choose")
    (tmp_path / "b.csv").write_text("logits_1,logits_2,labels\n1,2,0\n")
    refused(
        tmp_path / "b.csv", r"labels must be among the numbers of the classes, 1, 2, got 0 in line 2 \(the labels are 0"
    )
    (tmp_path / "c.csv").write_text("confidence;correct\n0.5;1\n")
    refused(tmp_path / "c.csv", r"expected columns separated by commas, the header line has ';'$")
    (tmp_path / "d.csv").write_text("confidence,correct,correct\n0.5,1,1\n")
    refused(tmp_path / "d.csv", r"column names must differ, got 'correct' 2 times$")
    (tmp_path / "e.csv").write_text("logits,labels\n0.5,1\n")
    refused(tmp_path / "e.csv", r"logits must be one column per class, logits_0, logits_1, \.\.\., got logits$")
    for bad, message in (
        ({"truth": "labels"}, "expected logits, .* group.NAME, got 'truth'"),
        ({"labels": ["a", "b"]}, r"one name for labels, got \['a', 'b'\]"),
        ({"logits": "a", "confidence": "b"}, "choose one of .* got logits, confidence"),
    ):
        with pytest.raises(ValueError, match=message):
            Predictions.open(tmp_path / "a.npz", columns=bad)


def test_values_that_do_not_belong_in_a_table(tmp_path):
    def parquet(message, **columns):
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        refused(tmp_path / "a.parquet", message)

    y = [0, 1, 0]
    parquet(
        r"column 'logits' must be lists of 2 numbers, got 3 in row 2 .counted from 0.$",
        logits=[[1.0, 2.0], [3.0, 4.0], [1.0, 2.0, 3.0]],
        labels=y,
    )
    parquet("column 'logits' has no value in row 1 .counted from 0.$", logits=[[1.0, 2.0], None, [1.0, 2.0]], labels=y)
    parquet(
        "column 'logits' has no value in the list of row 2 .counted from 0.$",
        logits=[[1.0, 2.0], [1.0, 2.0], [1.0, None]],
        labels=y,
    )
    parquet("column 'logits' must be floating point, got .*string", logits=[["1", "2"]] * 3, labels=y)
    parquet("column 'logits' must be lists, got double$", logits=[0.5] * 3, labels=y)
    parquet("column 'labels' has no value in row 2 .counted from 0.$", logits=[[1.0, 2.0]] * 3, labels=[0, 1, None])
    parquet(
        "labels must be whole numbers, or text with class names given, got 'a' in row 0 .*class_names=.*--class-names",
        logits=[[1.0, 2.0]] * 3,
        labels=["a"] * 3,
    )
    parquet(
        r"column 'correct' must be numbers, got list<.* in row 0 .counted from 0.$", confidence=[0.5], correct=[[1]]
    )
    parquet(
        r"confidence must be floating point \[N\] with N >= 1 .* got float64 \[0\]",
        confidence=pa.array([], pa.float64()),
        correct=y[:0],
    )

    def text(message, body):
        (tmp_path / "a.csv").write_text(body)
        refused(tmp_path / "a.csv", message)

    text(r"column 'logits_1' must be a number, got 'x' in line 3$", "logits_0,logits_1,labels\n1,2,0\n1,x,0\n")
    text(r"column 'logits_0' must be a number, got '' in line 2$", "logits_0,logits_1,labels\n,2,0\n1,3,0\n")
    text(r"line 3 has 2 fields, expected 3$", "logits_0,logits_1,labels\n1,2,0\n1,3\n")
    text(r"logits must be finite, got nan in line 3, class 0$", "logits_0,logits_1,labels\n1,2,0\nnan,3,1\n")
    text(
        r"labels must be whole numbers, or text with class names given, got '1.0' in line 3 \(use \.astype\(int\)\)$",
        "logits_0,logits_1,labels\n1,2,0\n2,3,1.0\n",
    )
    text(
        r"column 'correct' must be true or false, or 0 or 1, got '2' in line 3$", "confidence,correct\n1,true\n0.5,2\n"
    )
    long = "logits_0,logits_1,labels\n" + "1,2,0\n" * 300_000
    text(r"column 'labels' must be a whole number, got 'cat' in line 300002$", long + "1,2,cat\n")
    text(r"no rows after the header line$", "confidence,correct\n")
    text(r"expected text in UTF-8", "confidence,correct\n0.5,1\n".encode("utf-16").decode("latin-1"))


def npy(descr, shape, data=b"", fortran=False):
    header = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def archive(path, logits, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("logits.npy", logits)
        file.writestr("labels.npy", npy("<i8", (3,), bytes(24)))


def test_headers_that_promise_what_is_not_there(tmp_path):
    huge = 10**12
    for number, (descr, shape) in enumerate(
        [("<f8", (huge, 3)), ("<f4", (3, huge)), ("<f8", (2**62, 4)), ("<f8", (3, 4))]
    ):
        claim = npy(descr, shape, bytes(72))
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            archive(tmp_path / "a.npz", claim, method)
            refused(tmp_path / "a.npz", "header claims .* bytes, but the file holds 72$")
        (tmp_path / f"{number}_logits.npy").write_bytes(claim)
        np.save(tmp_path / f"{number}_labels.npy", np.zeros(3, int))
        refused(tmp_path / f"{number}_logits.npy", "header claims .* bytes, but the file holds 72$")
    for descr, shape, message in (
        ("|O", (3, 3), r"nothing is unpickled, got '\|O'"),
        ([("a", "<f8")], (3, 3), "nothing is unpickled"),
        ("<U0", (huge,), "nothing is unpickled"),
        ("<f8", (-3, -3), "has no shape"),
        ("<f8", "3", "has no shape"),
    ):
        archive(tmp_path / "a.npz", npy(descr, shape, bytes(72)))
        refused(tmp_path / "a.npz", message)
    archive(tmp_path / "a.npz", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535)
    refused(tmp_path / "a.npz", "at most 10000 bytes")
    np.savez(tmp_path / "a.npz", logits=np.array([{"a": 1}], dtype=object), labels=np.zeros(1, dtype=int))
    refused(tmp_path / "a.npz", "nothing is unpickled")
    header = json.dumps({"logits": {"dtype": "F32", "shape": [huge, 3], "data_offsets": [0, 12 * huge]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(36))
    refused(tmp_path / "a.safetensors", "not a whole safetensors file")
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    refused(tmp_path / "a.safetensors", "not a whole safetensors file")
    table = pa.table({"logits": [[1.0] * 6], "labels": [[0] * 2]})
    pq.write_table(
        table.replace_schema_metadata({"calibrant": json.dumps({"kind": "segmentation", "shape": [huge, huge, 2]})}),
        tmp_path / "a.parquet",
    )
    refused(
        tmp_path / "a.parquet",
        "column 'logits' must be lists of 2000000000000000000000000 numbers, got 6 in row 0 .counted from 0.$",
    )


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


def test_paths_that_lead_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "_SUCCESS").write_text("")
    (tmp_path / "folder" / ".hidden.npz").write_text("")
    (tmp_path / "notes.txt").write_text("x")
    refused("missing.npz", "^missing.npz: no such file$")
    for suffix in FORMATS:
        refused(f"no/logits{suffix}", "no such file$")
    refused("folder", "^folder: the folder holds no predictions, expected files that end in .csv")
    refused("runs/*.parquet", "the pattern matches no predictions")
    refused("notes.txt", "files that end in .*, got '.txt'$")
    np.save("array.npy", np.eye(3))
    refused("array.npy", "must say what it holds: end it in logits or probabilities or confidence$")
    p = SOME
    for name in ("mix/a.npz", "mix/b.csv", "two/x_logits.npy"):
        p.save(name)
    np.save("two/x_probabilities.npy", np.eye(3))
    refused("mix", r"holds \.csv and \.npz files: choose with a pattern such as \*\.csv$")
    refused("two", r"holds x_\w+\.npy and x_\w+\.npy: choose with a pattern")
    assert Predictions.open("two/*_logits.npy").holds == Predictions.open("two/x_logits.npy").holds == "logits"
    for bad, message in (
        ([], "at least one file, got an empty list"),
        (7, "got int"),
        (["mix/a.npz"] * 2, "listed twice"),
    ):
        with pytest.raises(ValueError, match=message):
            Predictions.open(bad)
    with pytest.raises(ValueError, match=r"^a\.txt: predictions are written as \.csv"):
        p.save("a.txt")
    with pytest.raises(ValueError, match=r"written as NAME_logits\.npy, got a\.npy"):
        p.save("a.npy")
    with pytest.raises(ValueError, match=r"x_class_names\.npy is there already and would be read as part of it"):
        Predictions.from_logits(np.eye(3), np.arange(3)).save("two/x_logits.npy")
    Predictions.from_logits(p.logits, p.labels, class_names=["1", "0", "2"]).save("digits.npz")
    with pytest.raises(ValueError, match=r"class names that are numbers must be 0\.\.2$"):
        Predictions.open("digits.npz").save("digits.csv")
