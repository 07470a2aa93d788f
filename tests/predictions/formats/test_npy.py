"""Sets of .npy files."""

import threading
import time

import pytest

from calibrant import Predictions
from tests.helpers.predictions import SMALL, numbers_in, save_again_and_again


def test_sets_written_by_two_at_once_end_as_one(tmp_path):
    path, stop = tmp_path / "x_logits.npy", threading.Event()
    writers = [threading.Thread(target=save_again_and_again, args=(number, path, stop)) for number in (2, 4)]
    for writer in writers:
        writer.start()
    time.sleep(0.5)
    stop.set()
    for writer in writers:
        writer.join()
    assert numbers_in(Predictions.open(path), 0) in ({2}, {4})


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
            with pytest.raises(ValueError, match=r"x_logits\.npy: the file is damaged, or of another set"):
                Predictions.open(tmp_path / "x_logits.npy").load()
        else:  # the same bytes
            Predictions.open(tmp_path / "x_logits.npy").load()
    (tmp_path / "x_ids.npy").unlink()
    with pytest.raises(ValueError, match=r"x_logits\.npy: x_ids\.npy is missing, which was written with it$"):
        Predictions.open(tmp_path / "x_logits.npy")
    (tmp_path / "x_checksums.npy").unlink()
    assert Predictions.open(tmp_path / "x_logits.npy").ids is None
