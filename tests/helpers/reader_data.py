"""Findings and small files that tests of several readers share."""

import io

import numpy as np
import pytest
from PIL import Image

from calibrant.data.files import LINK_NOWHERE as NOWHERE  # noqa: F401
from calibrant.data.files import LINK_OUT as OUT  # noqa: F401
from calibrant.data.readers._boxes import NO_NUMBERS  # noqa: F401
from calibrant.data.readers._folder import NO_ANNOTATION, ROTATED  # noqa: F401

LABELS = [6, 9, 1]


PIXELS = np.random.default_rng(5).integers(0, 256, (3, 3072), dtype=np.uint8)


def skipped_in(data):
    return {f.what: (f.times, f.where) for f in data.report.skipped}


def batch(key="labels", as_bytes=False, labels=LABELS):
    held = {"data": PIXELS, key: list(labels), "batch_label": b"x", "filenames": ["a", "b", "c"]}
    return {k.encode(): v for k, v in held.items()} if as_bytes else held


# fmt: on
MODES = pytest.mark.parametrize("mode", ["raise", "skip"])


def corners(data, index):
    return data.boxes[index].tolist()


INVERTED = "inverted box"


def saved(path, values, **options):
    Image.fromarray(np.array(values)).save(path, **options)
    return path


def picture(path, size=(5, 4), mode="RGB", color=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color if color is not None else 0).save(path)


def mask(path, values, mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.array(values, dtype=np.uint8)
    image = Image.frombytes(mode, array.shape[::-1], array.tobytes())
    if mode == "P":
        image.putpalette([value for i in range(256) for value in (i, 255 - i, 7)])
    image.save(path)


def truncated(path):
    picture(path, size=(64, 64), color=(200, 10, 30))
    path.write_bytes(path.read_bytes()[:-150])


def odd_in(data):
    return {f.what: (f.times, f.where) for f in data.report.odd}


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


MESSAGE = """From: someone@somewhere
Subject: Re: a question

In article <1@x>, other@y writes:
> Is it so?
| Or not?

It is, as he said: yes.
Truly so.

--
Someone, Somewhere"""


def where(findings):
    return {what: places for what, _, places in findings}


def newsgroup_messages(folder):
    """20 Newsgroups by date: other encodings, an empty message, one of headers and quotes alone."""
    files = {
        "20news-bydate-train/sci.space/2": MESSAGE.encode(),
        "20news-bydate-train/sci.space/10": "caf\xe9".encode("latin-1"),
        "20news-bydate-train/alt.atheism/7": "caf\xe9\r\n".encode(),
        "20news-bydate-train/alt.atheism/8": b"",
        "20news-bydate-test/sci.space/3": b"Only: headers\n\n> and quotes",
        "20news-bydate-test/rec.autos/1": b"x",
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder
