"""Predictions in other storage, by an object store that speaks S3."""

import io
import json
import pickle

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.cli import main
from calibrant.predictions.files import Remote, is_remote
from tests.helpers.object_store import serving

SIZES = (40, 7, 23)


@pytest.fixture(scope="module")
def store():
    with serving() as found:
        yield found


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="module")
def uploaded(store, tmp_path_factory):
    """Shards 2, 9 and 10 in a bucket with other things, and the same samples in memory."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((sum(SIZES), 5))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    folder, start = tmp_path_factory.mktemp("shards"), 0
    for number, size in zip((2, 9, 10), SIZES, strict=True):
        rows = slice(start, start + size)
        Predictions.from_logits(logits[rows], labels[rows]).save(folder / f"part{number}.parquet")
        store[0].put(f"lake/runs/a/part{number}.parquet", (folder / f"part{number}.parquet").read_bytes())
        start += size
    store[0].put("lake/runs/a/_SUCCESS", b"")
    store[0].put("lake/runs/b/notes.txt", b"nothing")
    store[0].put("lake/runs/b/deep/part1.parquet", (folder / "part9.parquet").read_bytes())
    return folder, logits, labels


@pytest.mark.parametrize(
    "where", ["runs/a/*.parquet", "runs/a", "runs/a/part?.parquet", "runs/a/part*.parquet", "*/a/*.parquet"]
)
def test_shards_are_those_of_the_machine(where, store, uploaded):
    _, logits, labels = uploaded
    opened = Predictions.open(f"s3://lake/{where}{store[1]}")
    number = SIZES[0] + SIZES[1] if "?" in where else len(labels)
    assert len(opened) == number
    assert np.array_equal(opened.logits, logits[:number])  # in natural order: 2, 9, 10
    assert np.array_equal(opened.labels, labels[:number])


def test_any_number_of_folders(store, uploaded):
    opened = Predictions.open(f"s3://lake/runs/**/part1*.parquet{store[1]}")
    assert [Remote(file).name for file in opened.files] == ["part10.parquet", "part1.parquet"]


def test_an_audit_is_that_of_the_machine(store, uploaded, capsys):
    folder, *_ = uploaded
    found = []
    for path in (f"s3://lake/runs/a/*.parquet{store[1]}", str(folder / "*.parquet")):
        with pytest.raises(SystemExit) as ended:
            main(["audit", path, "-o", "none", "--json", "-q", "--replicates", "50"])
        assert not ended.value.code
        document = json.loads(capsys.readouterr().out)
        found.append([one["metrics"] for one in document["models"]])
    assert found[0] == found[1]


def test_opening_reads_the_end_alone(store, tmp_path):
    """The footer lies there; data are read when they are asked for."""
    logits = np.random.default_rng(1).standard_normal((40_000, 5))
    Predictions.from_logits(logits, np.zeros(len(logits), int)).save(tmp_path / "x.parquet")
    body = (tmp_path / "x.parquet").read_bytes()
    store[0].put("lake/large.parquet", body)
    store[0].asked.clear()
    opened = Predictions.open(f"s3://lake/large.parquet{store[1]}")
    spans = [span for command, _, span in store[0].asked if command == "GET"]
    assert spans
    assert min(int(span.removeprefix("bytes=").partition("-")[0]) for span in spans) > len(body) // 2
    assert np.array_equal(opened.logits, logits)


def test_opened_files_travel(store, uploaded):
    """To another process, which opens them anew."""
    opened = pickle.loads(pickle.dumps(Predictions.open(f"s3://lake/runs/a/*.parquet{store[1]}")))
    assert np.array_equal(opened.labels, uploaded[2])


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("lake/runs/a/part3.parquet", "no such file"),
        ("lake/runs/c/*.parquet", "the pattern matches no predictions"),
        ("lake/runs/b", "the folder holds no predictions"),
        ("lake/broken.parquet", "cannot read predictions"),
        ("lake/empty.parquet", "the file is empty"),
        ("lake/x.npz", "from remote storage"),
        ("lake/model.pt", "got '.pt'"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(where, said, store, uploaded):
    store[0].put("lake/broken.parquet", b"PAR1" + bytes(100))
    store[0].put("lake/empty.parquet", b"")
    buffer = io.BytesIO()
    np.savez(buffer, logits=np.zeros((2, 2)), labels=np.zeros(2, int))
    store[0].put("lake/x.npz", buffer.getvalue())
    with pytest.raises(ValueError, match=said) as caught:
        Predictions.open(f"s3://{where}{store[1]}")
    assert str(caught.value).startswith(f"s3://{where}")
    assert "\n" not in str(caught.value)


def test_a_file_that_changes_is_refused(store, uploaded):
    folder, *_ = uploaded
    store[0].put("lake/now.parquet", (folder / "part2.parquet").read_bytes())
    opened = Predictions.open(f"s3://lake/now.parquet{store[1]}")
    store[0].put("lake/now.parquet", (folder / "part2.parquet").read_bytes(), written=1_700_000_100)
    with pytest.raises(ValueError, match="has changed since it was opened"):
        len(opened.labels)


def test_unknown_storage_and_writing_are_one_sentence(uploaded, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"nowhere://bucket/x\.parquet: cannot read predictions"):
        Predictions.open("nowhere://bucket/x.parquet")
    with pytest.raises(ValueError, match="credentials belong in the environment"):
        Predictions.open("s3://me:secret@lake/x.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="written to this machine alone"):
        Predictions.open(uploaded[0] / "part2.parquet").save("s3://lake/x.parquet")
    assert not list(tmp_path.iterdir())


def test_a_file_uri_is_a_file(uploaded):
    assert len(Predictions.open((uploaded[0] / "part2.parquet").as_uri())) == SIZES[0]


def test_what_a_uri_is():
    assert is_remote("s3://b/x.parquet")
    assert not is_remote("runs/x.parquet")
    assert not is_remote("C://x.parquet")
    assert Remote("s3://b/x?.csv.gz?region=a").suffixes == [".csv", ".gz"]
