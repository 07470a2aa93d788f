"""Files that change while they are read: all of one, all of another, or a sentence; never some of both."""

import multiprocessing
import os
import pickle
import shutil
import threading
import time

import numpy as np
import pytest

from calibrant import Predictions

FORMATS = (".npz", ".npy", ".parquet", ".safetensors", ".csv")
READS = 220


def made(number, rows=300):
    """Predictions that say in every part which ones they are."""
    return Predictions.from_logits(
        np.full((rows, 3), float(number)),
        np.full(rows, number % 3),
        ids=np.full(rows, number),
        groups={"g": [f"{number}"] * rows},
        class_names=[f"{number}{letter}" for letter in "abc"],
    )


def numbers_in(p, way):
    """The numbers of the predictions that the parts are of, each way of reading by turns."""
    names = p.class_names
    if way == 1:
        p = p.load()
    parts = list(p.batches(77)) if way == 2 else [p]
    found = {int(name[:-1]) for name in names}
    for part in parts:
        found |= {int(n) for array in (part.logits, part.ids, part.groups["g"]) for n in np.unique(array)}
        found |= {4 if label == 1 else 2 for label in np.unique(part.labels)}
    return found


def replace_again_and_again(sources, targets, stop):
    while not stop.is_set():
        for files in sources:
            for source, target in zip(files, targets, strict=True):
                shutil.copyfile(source, f"{target}.part")
                os.replace(f"{target}.part", target)


def save_again_and_again(number, path, stop):
    predictions = made(number)
    while not stop.is_set():
        predictions.save(path)


def numbers_or_sentence(path, way):
    try:
        return numbers_in(Predictions.open(path), way)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("how", ["replaced", "saved"])
def test_a_file_that_is_replaced_while_it_is_read_is_never_mixed(suffix, how, tmp_path):
    path = tmp_path / f"x_logits{suffix}"
    for number in (2, 4):
        made(number).save(tmp_path / str(number) / path.name)
    made(2).save(path)
    names = sorted(file.name for file in (tmp_path / "2").iterdir())
    if how == "replaced":  # by a process, as files of other programs are
        context = multiprocessing.get_context("fork")
        stop = context.Event()
        sources = [[str(tmp_path / str(number) / name) for name in names] for number in (2, 4)]
        targets = [str(tmp_path / name) for name in names]
        writers = [context.Process(target=replace_again_and_again, args=(sources, targets, stop))]
    else:
        stop = threading.Event()
        writers = [threading.Thread(target=save_again_and_again, args=(number, path, stop)) for number in (2, 4)]
    try:
        for writer in writers:
            writer.start()
        for read in range(READS):
            outcome = numbers_or_sentence(path, read % 3)
            assert outcome in ({2}, {4}) or str(outcome).startswith(str(tmp_path))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    made(2).save(path)  # what writers leave behind can be written over, and read
    assert numbers_in(Predictions.open(path), 0) == {2}


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_change_between_opening_and_reading_is_noticed(suffix, tmp_path):
    """The same size, and the same time of change as well: only the file is another."""
    path, other = tmp_path / f"x_logits{suffix}", tmp_path / "other" / f"x_logits{suffix}"
    made(2).save(path)
    made(4).save(other)
    for file in tmp_path.glob("x_*"):
        status = file.stat()
        os.utime(other.with_name(file.name), ns=(status.st_atime_ns, status.st_mtime_ns))
    opened = Predictions.open(path)
    held = opened.logits  # in memory, or a map of the file as it is
    for file in tmp_path.glob("x_*"):
        os.replace(other.with_name(file.name), file)
    assert np.unique(held).tolist() == [2.0]
    for read in (lambda: opened.ids, opened.load, lambda: list(opened.batches(50))):
        with pytest.raises(ValueError, match="the file has changed since it was opened"):
            read()


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_that_is_written_to_while_it_is_read_is_noticed(suffix, tmp_path):
    path = tmp_path / f"x_logits{suffix}"
    made(2).save(path)
    batches = Predictions.open(path).batches(50)
    next(batches)
    time.sleep(0.02)
    with path.open("r+b") as file:
        file.write(file.read(1))
        file.seek(0)
    os.utime(path)
    with pytest.raises(ValueError, match=r"changed since it was opened|damaged"):
        list(batches)


def test_opened_files_travel_without_their_inodes(tmp_path):
    """To a machine that shares the storage and numbers its files otherwise: a copy of the same time and size."""
    path = tmp_path / "a.npz"
    made(2).save(path)
    packed = pickle.dumps(Predictions.open(path))
    shutil.copy2(path, tmp_path / "copy.npz")
    os.replace(tmp_path / "copy.npz", path)
    assert np.unique(pickle.loads(packed).logits).tolist() == [2.0]
    made(4).save(path)
    with pytest.raises(ValueError, match="has changed since it was opened"):
        pickle.loads(packed).load()


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
