"""CIFAR's batches, which are read without being run; CIFAR-10H's votes, MNIST wherever it lies, the embedded sets."""

import gzip
import os
import pickle
import struct
import time

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from calibrant.data import read, recognise
from calibrant.data.readers._folder import BAD_LABEL
from calibrant.data.readers.cifar import CIFAR10, CIFAR100, SUPERCLASSES, cifar10, cifar10h, cifar100
from calibrant.data.readers.mnist import FASHION, mnist
from tests.helpers.errors import facts
from tests.helpers.reader_data import LABELS, PIXELS, batch, npy, picture, skipped_in


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": PIXELS.astype(np.int64)}, facts("[3, 3072]", "data")),
        ({"data": PIXELS[:, :9]}, facts("[3, 9]")),
        ({"data": None}, facts("data")),
        ({"labels": [1, 2]}, facts("2", "labels")),
        ({"labels": [1, 2, "3"]}, facts("labels", "3")),
        ({"labels": [1, 2, 10**30]}, facts("labels", "3")),
        ({"labels": [1, 2, 10]}, facts("test_batch", "0002")),
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
    assert skipped_in(data)[BAD_LABEL][0] == 5
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
    with pytest.raises(ValueError, match=facts("9221", "3074")):
        cifar100(binary, "test")


def test_cifar_10_binary(tmp_path):
    rows = np.concatenate([np.array(LABELS, dtype=np.uint8)[:, None], PIXELS], axis=1)
    (tmp_path / "test_batch.bin").write_bytes(rows.tobytes())
    (tmp_path / "batches.meta.txt").write_text("\n".join(CIFAR10[:9]))
    with pytest.raises(ValueError, match=facts("batches.meta.txt", "10", "9")):
        cifar10(tmp_path, "test")
    (tmp_path / "batches.meta.txt").unlink()
    assert cifar10(tmp_path, "test").labels.tolist() == LABELS


def test_cifar_10_in_folders_has_the_official_order(tmp_path):
    for name in CIFAR10:
        picture(tmp_path / "test" / name / "0000.jpg", size=(32, 32))
    picture(tmp_path / "test" / "airplane" / "0001.jpg", size=(32, 32))
    assert recognise(tmp_path)[0].name == "cifar-10"
    data = cifar10(tmp_path, "test")
    assert data.labels.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert data.ids[:3] == ("test/airplane/0000.jpg", "test/airplane/0001.jpg", "test/automobile/0000.jpg")
    with pytest.raises(ValueError, match=facts("train")):
        cifar10(tmp_path, "train")


# The list that is passed around for CIFAR-100: the superclass of each of the hundred classes.
# fmt: off
COARSE = [
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7,
    6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10,
    16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16,
    12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
]


def test_cifar_100_in_folders(tmp_path):
    assert len(CIFAR100) == 100
    assert CIFAR100[:3] == ("apple", "aquarium_fish", "baby")
    for name in CIFAR100:
        picture(tmp_path / "train" / name / "1.png", size=(32, 32))
    assert recognise(tmp_path)[0].name == "cifar-100"
    assert cifar100(tmp_path, "train").labels.tolist() == list(range(100))
    coarse = cifar100(tmp_path, "train", labels="coarse")
    assert coarse.labels.tolist() == COARSE
    assert coarse.classes == tuple(SUPERCLASSES) == tuple(sorted(SUPERCLASSES))
    with pytest.raises(ValueError, match=facts("medium", "fine", "coarse")):
        cifar100(tmp_path, "train", labels="medium")


COUNTS = np.array([[0] * 3 + [40, 0, 10] + [0] * 4, [50] + [0] * 9, [1] * 8 + [42, 0]])


@pytest.fixture
def humans(tmp_path):
    root = tmp_path / "cifar10h"
    root.mkdir()
    np.save(root / "cifar10h-counts.npy", COUNTS)
    np.save(root / "cifar10h-probs.npy", COUNTS / 50)
    (root / "jpeg_index.csv").write_text(
        "cifar10_test_set_idx,label,path\n0,3,test/cat/0000.jpg\n1,0,test/airplane/0000.jpg\n2,8,test/ship/0000.jpg\n"
    )
    return root


def test_votes_without_images(humans):
    data = read(humans)
    assert (data.name, data.classes, data.labels.tolist()) == ("cifar-10h", CIFAR10, [3, 0, 8])
    assert data.soft[0].tolist() == [0, 0, 0, 0.8, 0, 0.2, 0, 0, 0, 0]
    assert data[2].input.tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 42, 0]
    (humans / "cifar10h-probs.npy").unlink()
    assert np.array_equal(cifar10h(humans, "test").soft, COUNTS / 50)
    (humans / "jpeg_index.csv").unlink()
    assert cifar10h(humans, "test").labels.tolist() == [-1, -1, -1]


def test_votes_for_the_official_batch(humans, tmp_path):
    batch = {"data": np.zeros((3, 3072), dtype=np.uint8), "labels": [3, 0, 8]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch))
    data = cifar10h(humans, "test", images=tmp_path)
    assert (data.kind, data.ids[2], data.labels.tolist()) == ("image", "test_batch/0002", [3, 0, 8])
    assert np.array_equal(data.soft, COUNTS / 50)
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch | {"labels": [3, 8, 0]}))
    with pytest.raises(ValueError, match=facts("test_batch", "0001")):
        cifar10h(humans, "test", images=tmp_path)
    assert cifar10h(humans, "test", images=tmp_path, on_error="skip").ids == ("test_batch/0000",)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({"data": batch["data"][:2], "labels": [3, 0]}))
    with pytest.raises(ValueError, match=facts("3", "2")):
        cifar10h(humans, "test", images=tmp_path)


def test_votes_for_images_in_folders(humans, tmp_path):
    for name in CIFAR10:
        (tmp_path / "test" / name).mkdir(parents=True)
    for name in ("cat", "airplane", "ship"):
        Image.new("RGB", (32, 32)).save(tmp_path / "test" / name / "0000.jpg")
    data = cifar10h(humans, "test", images=tmp_path)
    assert data.ids == ("test/airplane/0000.jpg", "test/cat/0000.jpg", "test/ship/0000.jpg")
    assert np.array_equal(data.soft, COUNTS[[1, 0, 2]] / 50)
    Image.new("RGB", (32, 32)).save(tmp_path / "test" / "ship" / "0001.jpg")
    with pytest.raises(ValueError, match=facts("0001")):
        cifar10h(humans, "test", images=tmp_path)
    (humans / "jpeg_index.csv").unlink()
    with pytest.raises(ValueError, match=facts("jpeg_index.csv")):
        cifar10h(humans, "test", images=tmp_path)


def test_votes_that_are_wrong(humans):
    probs, index = humans / "cifar10h-probs.npy", humans / "jpeg_index.csv"
    np.save(probs, COUNTS / 49)
    with pytest.raises(ValueError, match=facts("0", "cifar10h-probs.npy")):
        cifar10h(humans, "test")
    (humans / "cifar10h-counts.npy").unlink()
    with pytest.raises(
        ValueError, match=facts("cifar10h-probs.npy", "[0]", "1.02041")
    ):
        cifar10h(humans, "test")
    np.save(probs, np.stack([COUNTS[0] / 50, COUNTS[1] / 50, np.full(10, np.nan)]))
    assert cifar10h(humans, "test", on_error="skip").ids == ("test/00000", "test/00001")
    for data in (
        b"",
        npy(np.eye(9)),
        npy(np.array([{}])),
        pickle.dumps(3),
        npy(COUNTS)[:-1],
        npy(np.eye(10) + 0j),
        npy(COUNTS).replace(b"{", b"\xbb"),
    ):
        probs.write_bytes(data)
        with pytest.raises(ValueError, match=r"cifar10h-probs\.npy"):
            cifar10h(humans, "test", on_error="skip")
    np.save(probs, COUNTS / 50)
    long = '0,3,"' + "a" * 200_000 + '"', "9" * 131_000 + ",3,a.jpg"
    wrong = ("0,3,other.jpg", "9,3,other.jpg", "1", "a,b,c", "0,-3,a.jpg", "\u0660,3,a.jpg", "2,8,test/cat/0000.jpg")
    for line in (*wrong, *long):
        index.write_text(f"0,3,test/cat/0000.jpg\n{line}\n")
        with pytest.raises(ValueError, match=facts("jpeg_index.csv", "2")) as error:
            cifar10h(humans, "test")
        assert len(str(error.value)) < 400


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
    assert skipped_in(data)[BAD_LABEL][0] == 1
    with pytest.raises(ValueError, match=facts("[2]", "9", "8")):
        mnist(tmp_path, "test", classes=list("abcdefgh"))


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (b"", ()),
        (gzip.compress(b"\0\0\x08\x03"), ()),
        (gzip.compress(idx(DIGITS) + bytes(99)), ("0x00000803", "0x00000801")),
        (gzip.compress(idx(DRAWN)[:-1]), ("[4, 3, 2]", "23")),
        (gzip.compress(idx(DRAWN))[:-9], ()),
        (b"no gzip at all", ()),
        (gzip.compress(struct.pack(">4I", 0x803, 2, 2, 2) + bytes(10**6)), ("[2, 2, 2]",)),
        (gzip.compress(struct.pack(">4I", 0x803, 2**20, 2**10, 2**10)), ()),
        (gzip.compress(struct.pack(">4I", 0x803, 0, 28, 28)), ()),
        (gzip.compress(idx(DRAWN[:3])), ("3", "4", "train-labels-idx1-ubyte")),
    ],
    ids=range(10),
)
def test_idx_files_that_lie(tmp_path, images, words):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(images)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(DIGITS))
    with pytest.raises(ValueError, match=facts("train-images-idx3-ubyte.gz", *words)):
        mnist(tmp_path, "train", on_error="skip")


def test_mnist_beside_fashion_mnist_is_not_guessed(tmp_path):
    for folder in ("MNIST/raw", "FashionMNIST/raw"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "train-images-idx3-ubyte").write_bytes(idx(DRAWN))
        (tmp_path / folder / "train-labels-idx1-ubyte").write_bytes(idx(DIGITS))
    with pytest.raises(ValueError, match=facts("MNIST", "FashionMNIST")):
        read(tmp_path, "train")
    assert mnist(tmp_path / "MNIST", "train").name == "mnist"


def test_digits_are_those_of_scikit_learn_each_in_one_split():
    parts = [read("digits", split) for split in ("train", "val", "test")]
    assert [len(part) for part in parts] == [1047, 300, 450]
    rows = [int(name.removeprefix("digits/")) for part in parts for name in part.ids]
    assert sorted(rows) == list(range(1797))
    bunch = load_digits()
    assert np.concatenate([part.labels for part in parts]).tolist() == bunch.target[rows].tolist()
    pixels = np.asarray(parts[2][0].input)[..., 0]
    assert np.array_equal(pixels, np.round(bunch.images[rows[1347]] * 255 / 16))
    assert read("digits", "test", seed=1).ids != parts[2].ids




def test_a_folder_of_the_name_goes_before_the_embedded_set(tmp_path, monkeypatch):
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=facts("digits")):
        read("digits", "test")


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
FORMS["label by label"] = FORMS["python 2"].replace(
    b"(" + b"".join(b"K" + bytes([label]) for label in LABELS) + b"e",
    b"".join(b"K" + bytes([label]) + b"a" for label in LABELS),
)


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


@pytest.mark.slow
@pytest.mark.parametrize("case", PICKLES)
def test_pickles_that_are_no_batch(tmp_path, case):
    (tmp_path / "test_batch").write_bytes(PICKLES[case])
    start = time.process_time()
    with pytest.raises(ValueError, match=facts(str(tmp_path / "test_batch"))) as caught:
        cifar10(tmp_path, "test")
    assert time.process_time() - start < 10  # a tenth of it on a busy machine
    assert len(str(caught.value)) < 500 + len(str(tmp_path))
