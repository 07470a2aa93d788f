"""Pickled batches are read without being run, and anything else in them is refused."""

import os
import pickle
import struct

import numpy as np
import pytest

from calibrant.data import read, recognise
from calibrant.data.readers._pickle import read_pickle
from calibrant.data.readers.cifar import CIFAR10, cifar10
from tests.helpers.errors import facts
from tests.helpers.reader_data import LABELS, PIXELS, batch


def written_by_python_2(pixels, labels):
    """The opcodes of the official files: protocol 2 of Python 2, whose str are bytes."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    shape = b"M" + struct.pack("<H", len(pixels)) + b"M\x00\x0c\x86"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85U\x01b\x87Rq\x08(K\x01"
        + shape
        + b"cnumpy\ndtype\nq\tU\x02u1K\x00K\x01\x87Rq\n(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<I", pixels.size)
        + pixels.tobytes()
        + b"tb"
    )
    numbers = b"]q\x05(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    names = b"]q\x0b(" + b"".join(text(b"a_%d.png" % i) for i in range(len(labels))) + b"e"
    return (
        b"\x80\x02}q\x01("
        + text(b"batch_label")
        + text(b"testing batch 1 of 1")
        + text(b"labels")
        + numbers
        + text(b"data")
        + array
        + text(b"filenames")
        + names
        + b"u."
    )


FORMS = {f"protocol {p}": pickle.dumps(batch(as_bytes=p == 3), protocol=p) for p in (2, 3, 4, 5)}


FORMS["python 2"] = written_by_python_2(PIXELS, LABELS)


FORMS["numpy 1"] = pickle.dumps(batch(), protocol=2).replace(b"numpy._core.", b"numpy.core.")


FORMS["fortran order"] = pickle.dumps(batch() | {"data": np.asfortranarray(PIXELS)}, protocol=4)


@pytest.mark.parametrize("form", FORMS)
def test_pickled_batches_of_every_protocol(tmp_path, form):
    home = tmp_path / "cifar-10-batches-py"
    home.mkdir()
    (home / "test_batch").write_bytes(FORMS[form])
    assert recognise(tmp_path)[0].name == "cifar-10"
    data = read(tmp_path, "test")
    assert data.labels.tolist() == LABELS
    assert data.classes == CIFAR10
    assert data.ids == ("test_batch/0000", "test_batch/0001", "test_batch/0002")
    image = np.asarray(data[1].input)
    assert image.shape == (32, 32, 3)
    # Row-major planes of red, green and blue.
    assert image[2, 5].tolist() == [PIXELS[1, 69], PIXELS[1, 1024 + 69], PIXELS[1, 2048 + 69]]


def test_python_2_pickles_are_what_this_test_takes_them_for():
    held = pickle.loads(FORMS["python 2"], encoding="bytes")
    assert held[b"labels"] == LABELS
    assert np.array_equal(held[b"data"], PIXELS)


class Hostile:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path, protocol):
    mark = tmp_path / "ran"
    path = tmp_path / "test_batch"
    path.write_bytes(pickle.dumps({"data": Hostile(f"touch {mark}")}, protocol=protocol))
    with pytest.raises(ValueError, match=facts("test_batch")):
        cifar10(tmp_path, "test")
    assert not mark.exists()


TEXT = b"X" + struct.pack("<I", 5000) + b"a" * 5000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"(S'touch x'\nios\nsystem\n.", "opcode INST"),
        (b"\x80\x02cnumpy\ndtype\n)\x81.", "opcode NEWOBJ"),
        (b"Pid\n.", "opcode PERSID"),
        (b"\x80\x02cnumpy.core.multiarray\nscalar\n.", r"names numpy\.core\.multiarray\.scalar"),
        (b"\x80\x02cnumpy\ndtype\nU\x01OK\x00K\x01\x87R.", facts("'O'")),
        (b"\x80\x02cnumpy\nndarray\nK\x01\x85R.", r"calls numpy\.ndarray"),
        (b"\x80\x02]q\x00(c_codecs\nencode\nq\x01" + TEXT + b"q\x02U\x06latin1q\x030" + b"e.", "opcode POP"),
        (
            b"\x80\x02](c_codecs\nencode\nq\x01X\x06\0\0\0latin1q\x02"
            + TEXT
            + b"q\x03"
            + 99 * b"h\x01h\x03h\x02\x86R"
            + b"e.",
            "more bytes than the file has",
        ),
        (FORMS["python 2"].replace(b"M\x00\x0c", b"M\xff\xff"), facts("9216")),
        (FORMS["protocol 4"][:-4000], "truncated or broken"),
        (b"", "truncated or broken"),
        (b"\x80\x02]q\x01.", "should hold a dictionary, and holds list"),
        (b"\x80\x02}(K\x01K\x02u.", "keys are not text"),
        (b"\x80\x02(K\x01K\x02u.", "truncated or broken"),
        (b"\x80\x02)K\x01a.", "fills a tuple as if it were a list"),
        (b"not a pickle", "truncated or broken|opcode"),
    ],
)
def test_pickles_that_are_no_batch(tmp_path, data, message):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ValueError, match=message) as caught:
        read_pickle(tmp_path / "x")
    assert str(tmp_path / "x") in str(caught.value)


@pytest.mark.parametrize("form", ["python 2", "protocol 2", "protocol 5"])
def test_damaged_pickles_give_no_other_error(tmp_path, form):
    rng, whole = np.random.default_rng(3), FORMS[form]
    places = np.r_[0:200, len(whole) - 150 : len(whole)]
    for _ in range(200):
        damaged = bytearray(whole)
        for place in rng.choice(places, 2):
            damaged[place] = rng.integers(256)
        (tmp_path / "test_batch").write_bytes(damaged)
        message = "test_batch"
        try:
            cifar10(tmp_path, "test")
        except (ValueError, OSError) as error:
            message = str(error)
        assert "test_batch" in message
