"""Readers of CIFAR's batches and of MNIST's idx files, sound and hostile; expected values by hand."""

import gzip
import os
import pickle
import struct

import numpy as np
import pytest

from calibrant.data import read, recognise
from calibrant.data.readers._pickle import read_pickle
from calibrant.data.readers.cifar import CIFAR10, CIFAR100, SUPERCLASSES, cifar10, cifar100
from calibrant.data.readers.mnist import FASHION, mnist

LABELS = [6, 9, 1]
PIXELS = np.random.default_rng(5).integers(0, 256, (3, 3072), dtype=np.uint8)


def skipped(data):
    return {f.what: (f.times, f.where) for f in data.report.skipped}


# CIFAR's batches


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


def batch(key="labels", as_bytes=False, labels=LABELS):
    held = {"data": PIXELS, key: list(labels), "batch_label": b"x", "filenames": ["a", "b", "c"]}
    return {k.encode(): v for k, v in held.items()} if as_bytes else held


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
    with pytest.raises(ValueError, match=r"test_batch: the pickle names \w+\.system, .* it was not run"):
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
        (b"\x80\x02cnumpy\ndtype\nU\x01OK\x00K\x01\x87R.", "array of type 'O'"),
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
        (FORMS["python 2"].replace(b"M\x00\x0c", b"M\xff\xff"), "9216 bytes for an array of shape"),
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": PIXELS.astype(np.int64)}, r"'data' should be a uint8 array \[N, 3072\], got int64 \[3, 3072\]"),
        ({"data": PIXELS[:, :9]}, r"got uint8 \[3, 9\]"),
        ({"data": None}, "got NoneType"),
        ({"labels": [1, 2]}, "'labels' should be 3 integers, got a list of 2"),
        ({"labels": [1, 2, "3"]}, "'labels' should be 3 integers"),
        ({"labels": [1, 2, 10**30]}, "'labels' should be 3 integers"),
        ({"labels": [1, 2, 10]}, "test_batch/0002: label outside the classes"),
    ],
)
def test_batches_with_the_wrong_contents(tmp_path, change, message):
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch() | change))
    with pytest.raises(ValueError, match=message):
        cifar10(tmp_path, "test")


def test_cifar_10_train_is_five_batches_in_order_and_names_come_from_the_meta_file(tmp_path):
    for i in range(1, 6):
        (tmp_path / f"data_batch_{i}").write_bytes(pickle.dumps(batch(labels=[i, -1, 0])))
    names = [b"plane", *(name.encode() for name in CIFAR10[1:])]
    (tmp_path / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}))
    data = cifar10(tmp_path, "train", on_error="skip")
    assert data.labels.tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    assert data.ids[:3] == ("data_batch_1/0000", "data_batch_1/0002", "data_batch_2/0000")
    assert data.classes[0] == "plane"
    assert skipped(data)["label outside the classes"][0] == 5
    assert np.array_equal(np.asarray(data[3].input)[..., 2].ravel(), PIXELS[2, 2048:])
    (tmp_path / "data_batch_4").unlink()
    with pytest.raises(OSError, match="data_batch_4"):
        cifar10(tmp_path, "train", on_error="skip")


def test_cifar_100_has_fine_and_coarse_labels_in_both_official_forms(tmp_path):
    python, binary = tmp_path / "cifar-100-python", tmp_path / "cifar-100-binary"
    python.mkdir()
    binary.mkdir()
    fine, coarse = [99, 0, 41], [13, 4, 19]
    (python / "test").write_bytes(pickle.dumps(batch("fine_labels", labels=fine) | {"coarse_labels": coarse}))
    (python / "meta").write_bytes(
        pickle.dumps({"fine_label_names": list(CIFAR100), "coarse_label_names": list(SUPERCLASSES)})
    )
    rows = np.concatenate([np.array([coarse, fine], dtype=np.uint8).T, PIXELS], axis=1)
    (binary / "test.bin").write_bytes(rows.tobytes())
    (binary / "fine_label_names.txt").write_text("\n".join(CIFAR100) + "\n\n")
    (binary / "coarse_label_names.txt").write_text("\n".join(SUPERCLASSES))
    for home, name in ((python, "test"), (binary, "test.bin")):
        data = cifar100(home, "test")
        assert data.labels.tolist() == fine
        assert data.classes == CIFAR100
        assert data.ids[2] == f"{name}/0002"
        assert np.array_equal(np.asarray(data[2].input)[..., 0].ravel(), PIXELS[2, :1024])
        assert cifar100(home, "test", labels="coarse").labels.tolist() == coarse
    (binary / "test.bin").write_bytes(rows.tobytes()[:-1])
    with pytest.raises(ValueError, match=r"test\.bin: 9221 bytes are not a whole number of rows of 3074"):
        cifar100(binary, "test")


def test_cifar_10_binary(tmp_path):
    rows = np.concatenate([np.array(LABELS, dtype=np.uint8)[:, None], PIXELS], axis=1)
    (tmp_path / "test_batch.bin").write_bytes(rows.tobytes())
    (tmp_path / "batches.meta.txt").write_text("\n".join(CIFAR10[:9]))
    with pytest.raises(ValueError, match=r"batches\.meta\.txt: 10 class names are expected, got 9"):
        cifar10(tmp_path, "test")
    (tmp_path / "batches.meta.txt").unlink()
    assert cifar10(tmp_path, "test").labels.tolist() == LABELS


# MNIST


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


DRAWN = np.random.default_rng(7).integers(0, 256, (4, 3, 2), dtype=np.uint8)
DIGITS = np.array([7, 0, 9, 3], dtype=np.uint8)


@pytest.mark.parametrize(
    ("folder", "dot", "packed"),
    [("", "-", False), ("MNIST/raw", "-", True), ("raw", ".", False), ("FashionMNIST/raw", ".", True)],
)
def test_mnist_wherever_it_is(tmp_path, folder, dot, packed):
    home = tmp_path / folder
    home.mkdir(parents=True, exist_ok=True)
    for name, array in (("images", DRAWN), ("labels", DIGITS)):
        data = gzip.compress(idx(array)) if packed else idx(array)
        (home / f"t10k-{name}{dot}idx{array.ndim}-ubyte{'.gz' if packed else ''}").write_bytes(data)
    data = mnist(tmp_path, "test")
    fashion = folder.startswith("Fashion")
    assert (data.name, data.classes) == (("fashion-mnist", FASHION) if fashion else ("mnist", tuple("0123456789")))
    assert data.labels.tolist() == [7, 0, 9, 3]
    assert data.ids == ("test/00000", "test/00001", "test/00002", "test/00003")
    assert np.asarray(data[2].input).tolist() == np.repeat(DRAWN[2, :, :, None], 3, axis=2).tolist()
    assert recognise(tmp_path)[0].splits(tmp_path) == ("test",)
    data = mnist(tmp_path, "test", on_error="skip", classes=list("abcdefgh"))
    assert data.ids == ("test/00000", "test/00001", "test/00003")
    assert skipped(data)["label outside the classes"][0] == 1
    with pytest.raises(ValueError, match=r"\[2\]: label outside the classes \(9 of 8\)"):
        mnist(tmp_path, "test", classes=list("abcdefgh"))


BOMB = gzip.compress(struct.pack(">4I", 0x803, 2, 2, 2) + bytes(10**6))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (b"", "ends inside its header"),
        (gzip.compress(b"\0\0\x08\x03"), "ends inside its header"),
        (gzip.compress(idx(DIGITS) + bytes(99)), "begins with 0x00000803, and this one with 0x00000801"),
        (gzip.compress(idx(DRAWN)[:-1]), r"announces \[4, 3, 2\], and the file has 23 bytes"),
        (gzip.compress(idx(DRAWN))[:-9], "truncated or broken|bytes after it"),
        (b"no gzip at all", "truncated or broken"),
        (BOMB, r"announces \[2, 2, 2\], and the file has more bytes"),
        (gzip.compress(struct.pack(">4I", 0x803, 2**20, 2**10, 2**10)), "more than .* bytes can hold"),
        (gzip.compress(struct.pack(">4I", 0x803, 0, 28, 28)), "without entries"),
        (gzip.compress(idx(DRAWN[:3])), "3 images, but train-labels-idx1-ubyte has 4 labels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_idx_files_that_lie(tmp_path, images, message):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(images)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(DIGITS))
    with pytest.raises(ValueError, match=message) as caught:
        mnist(tmp_path, "train", on_error="skip")
    assert "train-images-idx3-ubyte.gz" in str(caught.value)


def test_mnist_beside_fashion_mnist_is_not_guessed(tmp_path):
    for folder in ("MNIST/raw", "FashionMNIST/raw"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "train-images-idx3-ubyte").write_bytes(idx(DRAWN))
        (tmp_path / folder / "train-labels-idx1-ubyte").write_bytes(idx(DIGITS))
    with pytest.raises(ValueError, match="give one of them"):
        read(tmp_path, "train")
    assert mnist(tmp_path / "MNIST", "train").name == "mnist"
