"""Pickled batches are read without being run, and anything else in them is refused."""

import os
import pickle
import struct
import time

import numpy as np
import pytest

from calibrant.data import read, recognise
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


FORMS = {f"protocol {p}": pickle.dumps(batch(as_bytes=p == 3), protocol=p) for p in (2, 3, 4, 5)} | {
    "python 2": written_by_python_2(PIXELS, LABELS),
    "numpy 1": pickle.dumps(batch(), protocol=2).replace(b"numpy._core.", b"numpy.core."),
    "fortran order": pickle.dumps(batch() | {"data": np.asfortranarray(PIXELS)}, protocol=4),
}


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


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path, protocol):
    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    (tmp_path / "test_batch").write_bytes(pickle.dumps({"data": Hostile()}, protocol=protocol))
    with pytest.raises(ValueError, match=facts("test_batch")):
        cifar10(tmp_path, "test")
    assert not (tmp_path / "ran").exists()


TEXT = b"X" + struct.pack("<I", 5000) + b"a" * 5000
SOME = b"\x80\x02}U\x06labels"
#: Opcodes that run something, that make much of little, or that do not fit together.
PICKLES = {
    "an instance": b"(S'touch x'\nios\nsystem\n.",
    "a new object": b"\x80\x02cnumpy\ndtype\n)\x81.",
    "a persistent id": b"Pid\n.",
    "a persistent number": b"Px\n.",
    "an extension": b"\x82\x01.",
    "an object": b"(icollections\nOrderedDict\n.",
    "another function": b"\x80\x02cnumpy.core.multiarray\nscalar\n.",
    "objects in an array": b"\x80\x02cnumpy\ndtype\nU\x01OK\x00K\x01\x87R.",
    "a call of a type": b"\x80\x02cnumpy\nndarray\nK\x01\x85R.",
    "text thrown away": b"\x80\x02]q\x00(c_codecs\nencode\nq\x01" + TEXT + b"q\x02U\x06latin1q\x030" + b"e.",
    "text again and again": b"\x80\x02](c_codecs\nencode\nq\x01X\x06\0\0\0latin1q\x02" + TEXT + b"q\x03"
    + 99 * b"h\x01h\x03h\x02\x86R" + b"e.",
    "another size": FORMS["python 2"].replace(b"M\x00\x0c", b"M\xff\xff"),
    "cut off": FORMS["protocol 4"][:-4000],
    "nothing": b"",
    "a list": b"\x80\x02]q\x01.",
    "keys that are no text": b"\x80\x02}(K\x01K\x02u.",
    "a mark too many": b"\x80\x02(K\x01K\x02u.",
    "a tuple that is filled": b"\x80\x02)K\x01a.",
    "no pickle": b"not a pickle",
    "tuples in tuples": b"\x80\x02N" + b"\x85" * 300_000 + b".",
    "lists in lists": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
    "a list in itself": SOME + b"]q\x00h\x00as.",
    "a dictionary in itself": b"}q\x00U\x01ah\x00s.",
    "opcodes": b"\x80\x02(" + b"N" * 1_000_001 + b"t.",
    "digits": b"I" + b"9" * 131_000 + b"\n.",
    "a long number": b"\x8b" + struct.pack("<i", 10**6) + b"\x7f" * 10**6 + b".",
    "a long label": SOME + b"]\x8b" + struct.pack("<i", 10**6) + b"\x7f" * 10**6 + b"as.",
    "a huge count": b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
    "a count below zero": b"\x8b\xff\xff\xff\xff.",
    "a memory that is empty": b"h\x07.",
    "a mark that is missing": b"]e.",
    "a stack that is empty": b"R.",
    "a shape of tuples": b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR("
    + b"K\x01N" + b"\x85" * 200_000 + b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR\x89U\x00tbu.",
}  # fmt: skip


@pytest.mark.parametrize("case", PICKLES)
def test_pickles_that_are_no_batch(tmp_path, case):
    (tmp_path / "test_batch").write_bytes(PICKLES[case])
    start = time.process_time()
    with pytest.raises(ValueError, match=facts(str(tmp_path / "test_batch"))) as caught:
        cifar10(tmp_path, "test")
    assert time.process_time() - start < 10  # a tenth of it on a busy machine
    assert len(str(caught.value)) < 500 + len(str(tmp_path))
