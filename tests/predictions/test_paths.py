"""Which files a path means."""

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from calibrant import Predictions
from tests.helpers.predictions import FORMATS, SOME, TEXT, N, assert_same, make, refusal, refused


def test_shards_come_in_natural_order_and_must_agree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    p = make("logits", np.float32)
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
            assert_same(opened, p, suffix not in TEXT)
            assert [len(b) for b in Predictions.open(path).batches(4)] == [4, 4, 3]
            assert_same(opened.samples([9, 2, 5]), p.samples([9, 2, 5]), suffix not in TEXT)
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


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.npz", "x_logits.npy", "x.parquet", "x.safetensors"])
def test_what_is_no_file_is_refused_at_once(name, tmp_path):
    path = tmp_path / name
    np.save(tmp_path / "x_labels.npy", np.zeros(3, int))
    os.mkfifo(path)
    assert refusal(path).endswith("expected a file, got a named pipe")
    path.unlink()
    path.symlink_to("/dev/zero")
    assert refusal(path).endswith("expected a file, got a device")
    path.unlink()
    path.mkdir()
    assert "the folder holds no predictions" in refusal(path)
    path.rmdir()
    path.symlink_to(path)
    refusal(path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))
        refusal(path)


@pytest.mark.parametrize("target", ["s3://bucket/x.npz", "file:///tmp/x.npz", "gs://b/x_logits.npy"])
def test_nothing_is_written_to_other_storage(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (target, Path(target)):
        with pytest.raises(ValueError, match="written to this machine alone"):
            Predictions.from_logits(np.eye(2), [0, 1]).save(path)
    assert not list(tmp_path.iterdir())


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
    refused("notes.txt", "files that end in .*, got '.txt' .if it has columns, name it .csv")
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
