"""Predictions in other storage, by an object store that speaks S3."""

import io
import pickle

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.predictions.files import Remote
from tests.helpers.errors import facts
from tests.helpers.object_store import serving

pytestmark = pytest.mark.slow

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
    ("where", "numbers"),
    [
        ("runs/a/*.parquet", [2, 9, 10]),
        ("runs/a", [2, 9, 10]),
        ("runs/a/part?.parquet", [2, 9]),
        ("*/a/*.parquet", [2, 9, 10]),
        ("runs/**/part1*.parquet", [10, 1]),
    ],
)
def test_shards_are_those_of_the_machine(where, numbers, store, uploaded):
    """In natural order, whatever else lies in the bucket; copied to another process, which opens them anew."""
    opened = pickle.loads(pickle.dumps(Predictions.open(f"s3://lake/{where}{store[1]}")))
    assert [Remote(file).name for file in opened.files] == [f"part{number}.parquet" for number in numbers]
    size = dict(zip((2, 9, 10, 1), (*SIZES, SIZES[1]), strict=True))
    assert len(opened) == sum(size[number] for number in numbers)
    if numbers[0] == 2:
        assert np.array_equal(opened.logits, uploaded[1][: len(opened)])
        assert np.array_equal(opened.labels, uploaded[2][: len(opened)])


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
    with pytest.raises(ValueError, match=facts("nowhere://bucket/x.parquet")):
        Predictions.open("nowhere://bucket/x.parquet")
    with pytest.raises(ValueError, match=facts("credentials")):
        Predictions.open("s3://me:secret@lake/x.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=facts("s3://lake/x.parquet")):
        Predictions.open(uploaded[0] / "part2.parquet").save("s3://lake/x.parquet")
    assert not list(tmp_path.iterdir())
    assert len(Predictions.open((uploaded[0] / "part2.parquet").as_uri())) == SIZES[0]  # a file URI is a file
