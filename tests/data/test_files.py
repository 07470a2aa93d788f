"""What is no file, or too large, is refused at once: pipes are not waited for, and no memory is taken."""

import os
import socket
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from calibrant.data import ImageFiles, Vocabulary, files, read, read_glove, recognise
from calibrant.data.files import MAX_IMAGE, MAX_TEXT, UnreadableError, files_below, read_bytes, read_json
from tests.helpers.box_files import write
from tests.helpers.data_trees import TREES, files_of, image_folder
from tests.helpers.errors import facts


def a_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # an address has 107 characters at most
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


KINDS = {
    "named pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
    "socket": a_socket,
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_files_are_read(tmp_path, kind):
    path = tmp_path / "x.jpg"
    KINDS[kind](path)
    for look in (
        lambda: read_bytes(path),
        lambda: ImageFiles(tmp_path, ("x.jpg",))[0],
        lambda: read_glove(path, Vocabulary.build(["a"]), 2),
    ):
        with pytest.raises(UnreadableError, match=facts("x.jpg", kind)):
            look()
    KINDS[kind](tmp_path / "a.npz")
    for layout in (None, "arrays") if kind != "folder" else ():
        with pytest.raises(ValueError, match=facts("a.npz", kind)):
            recognise(tmp_path / "a.npz", layout)


def sparse(path):
    """A file of zeros that claims three gigabytes."""
    path.write_bytes(b"")
    os.truncate(path, 3_000_000_000)


@pytest.mark.parametrize("instead", [os.mkfifo, sparse], ids=["pipe", "sparse"])
@pytest.mark.parametrize("case", TREES)
def test_no_pipe_is_waited_for_and_no_claim_believed(tmp_path, case, instead):
    make, layout, split, options = TREES[case]
    root = make(tmp_path / "set")
    for path in files_of(root):
        content = path.read_bytes()
        path.unlink()
        instead(path)
        try:
            data = read(root, split, layout=layout, on_error="skip", **options)
        except ValueError as error:
            said = str(error)
        else:
            said = ""
            assert str(path) not in {data.inputs.where(i) for i in range(len(data))}
        assert "\n" not in said
        path.unlink()
        path.write_bytes(content)


def test_pipes_among_images_are_skipped_and_counted(tmp_path):
    root = image_folder(tmp_path / "set")
    os.mkfifo(root / "train/cat/pipe.png")
    with pytest.raises(ValueError, match=facts("train/cat/pipe.png")):
        read(root, "train")
    data = read(root, "train", on_error="skip")
    assert [(f.what, f.where) for f in data.report.skipped] == [(files.NO_FILE, ("train/cat/pipe.png",))]
    assert list(files_below(root / "train/dog"))[:1] == ["0.jpg"]


def test_limits_are_said(tmp_path):
    path = write(tmp_path / "x.txt", "")
    os.truncate(path, MAX_TEXT + 1)
    with pytest.raises(UnreadableError, match=facts(str(MAX_TEXT + 1), str(MAX_TEXT))):
        read_bytes(path)
    (tmp_path / "x.webp").write_bytes(b"RIFF\xff\xff\xff\x7fWEBPVP8 ")
    os.truncate(tmp_path / "x.webp", MAX_IMAGE + 1)
    with pytest.raises(UnreadableError, match=facts(str(MAX_IMAGE))):
        ImageFiles(tmp_path, ("x.webp",)).header(0)


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.png", png(100_000, 100_000), facts("x.png")),
        ("x.png", png(2**31 - 1, 1), facts("x.png")),
        ("x.png", png(0, 5), facts("x.png")),
        ("x.png", png(9_000, 10_000), facts("9000", "10000", "89478485")),
        ("x.ppm", b"P6 9000 10000 255 ", facts("9000", "10000")),
        ("x.ppm", b"P6 #" + b"a" * 3_000_000, facts("x.ppm")),
        ("x.ppm", b"P3" + b" " * 3_000_000, facts("x.ppm")),
        ("x.ppm", b"P6 " + b"9" * 5000 + b" 1 255 ", facts("x.ppm")),
        ("x.jpg", b"not an image", facts("x.jpg")),
        ("x.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 5\n", facts("x.eps")),
    ],
    ids=range(10),
)
def test_images_that_lie(tmp_path, name, content, message):
    write(tmp_path / name, content)
    with pytest.raises(UnreadableError, match=message):
        ImageFiles(tmp_path, (name,))[0]


def test_images_that_claim_more_than_the_memory(tmp_path, monkeypatch):
    def short_of_memory(*words, **options):
        raise MemoryError

    write(tmp_path / "x.png", png(5, 6))
    monkeypatch.setattr(Image, "open", short_of_memory)
    with pytest.raises(UnreadableError, match=facts("x.png", "memory")):
        ImageFiles(tmp_path, ("x.png",))[0]


def test_comments_in_headers_are_read(tmp_path):
    write(tmp_path / "x.ppm", b"P6 # made by\n# nobody\n2 #\n1 255\n" + bytes(range(6)))
    assert np.asarray(ImageFiles(tmp_path, ("x.ppm",))[0]).tolist() == [[[0, 1, 2], [3, 4, 5]]]


def test_folders_that_may_not_be_looked_into(tmp_path, monkeypatch):
    """A file system's lost+found beside the data must not be in the way."""
    root = image_folder(tmp_path / "set")
    (root / "lost+found").mkdir()
    scandir = os.scandir

    def refusing(path="."):
        if str(path).endswith("lost+found"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert recognise(root)[0].name == "image-folder"


def test_json_with_a_key_twice(tmp_path):
    path = write(tmp_path / "a.json", '{"x": [{"box": 1, "id": 2, "box": 3}]}')
    with pytest.raises(UnreadableError, match=facts("a.json", "box")):
        read_json(path)
    assert read_json(write(path, '{"x": [{"box": 1, "id": 2}]}'), drop="box") == {"x": [{"id": 2}]}
