"""What every reader shares: options, sound images, reasons."""

import inspect
import re
import sys
import textwrap
import typing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.base.checks import printable
from calibrant.data import ImageFiles, layouts, read
from calibrant.data.dataset import Findings
from calibrant.data.files import UnreadableError
from calibrant.data.layouts import check_options
from calibrant.data.readers._folder import BAD_LABEL, HIDDEN, MISSING, NAME_OUT, check_image
from tests.helpers import box_files as files
from tests.helpers.box_files import cut, image, odd, write
from tests.helpers.errors import facts
from tests.helpers.reader_data import ROTATED, saved


def test_check_image(tmp_path):
    for name, mode in (("a.jpg", "RGB"), ("b.png", "L"), ("c.jpg", "CMYK")):
        path = image(tmp_path / name, (40, 30), mode)
        assert check_image(path)[0] == (40, 30)
        path.write_bytes(path.read_bytes() + bytes(3000))  # cameras append data; the image is whole
        assert check_image(path)[0] == (40, 30)
        with pytest.raises(UnreadableError, match=facts("1000")):
            check_image(path, 1000)
    for name in ("d.jpg", "e.png"):
        path = tmp_path / name
        pixels = np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8)
        files.Image.fromarray(pixels).save(path)
        cut(path, 0.8)
        with pytest.raises(UnreadableError, match=facts(name)):
            check_image(path)
    with pytest.raises(UnreadableError, match=facts("f.jpg")):
        check_image(write(tmp_path / "f.jpg", b""))
    with pytest.raises(FileNotFoundError):
        check_image(tmp_path / "gone.jpg")


def grey(path):
    """The one channel of an image that is grey."""
    pixels = np.asarray(ImageFiles(path.parent, (path.name,))[0])
    assert (pixels == pixels[..., :1]).all()
    return pixels[..., 0].tolist()


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_grey_images_of_16_bits_become_8(tmp_path, suffix):
    bright = saved(tmp_path / f"a.{suffix}", np.array([[0, 255, 256], [513, 40000, 65535]], dtype=np.uint16))
    assert grey(bright) == [[0, 0, 1], [2, 156, 255]]  # the upper byte
    dark = saved(tmp_path / f"b.{suffix}", np.array([[0, 7, 255]], dtype=np.uint16))
    assert grey(dark) == [[0, 7, 255]]  # 8 bits in a larger box
    assert ImageFiles(tmp_path, (bright.name,), mode=None)[0].mode == "I;16"  # a mask stays as it is


def test_grey_images_of_32_bits(tmp_path):
    assert grey(saved(tmp_path / "a.tif", np.array([[0, 257, 65535]], dtype=np.int32))) == [[0, 1, 255]]
    assert grey(saved(tmp_path / "b.tif", np.array([[0, 7, 255]], dtype=np.int32))) == [[0, 7, 255]]
    for values in ([[0, 65536]], [[-1, 7]]):
        path = saved(tmp_path / "c.tif", np.array(values, dtype=np.int32))
        with pytest.raises(UnreadableError, match=facts("0", "65535")):
            grey(path)
        with pytest.raises(UnreadableError, match=facts("0", "65535")):
            check_image(path)
    path = saved(tmp_path / "d.tif", np.array([[0.5]], dtype=np.float32))
    with pytest.raises(UnreadableError, match=facts("d.tif")):
        grey(path)
    with pytest.raises(UnreadableError, match=facts("d.tif")):
        check_image(path)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_an_exif_rotation_is_reported_and_not_applied(tmp_path, suffix):
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    saved(tmp_path / f"a/1.{suffix}", np.zeros((4, 9, 3), dtype=np.uint8), exif=exif)
    saved(tmp_path / f"b/2.{suffix}", np.zeros((4, 9, 3), dtype=np.uint8))
    data = read(tmp_path, on_error="skip")
    assert odd(data.report) == {ROTATED: 1}
    assert data.report.odd[0].where == (f"a/1.{suffix}",)
    assert data[0].input.size == (9, 4)


def test_the_orientation_of_tiff_is_the_same_in_header_and_pixels(tmp_path):
    path = saved(tmp_path / "a.tif", np.zeros((4, 9, 3), dtype=np.uint8), tiffinfo={0x0112: 6})
    source = ImageFiles(tmp_path, (path.name,))
    assert source[0].size == source.header(0)[0] == (4, 9)
    assert check_image(path) == ((4, 9), False)  # not to be rotated again


@pytest.mark.parametrize("suffix", ["bmp", "tif", "gif", "ppm", "webp"])
def test_formats_without_a_mark_at_their_end_are_decoded(tmp_path, suffix):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 50, 3), dtype=np.uint8)
    path = saved(tmp_path / f"a.{suffix}", pixels)
    assert check_image(path) == ((50, 60), False)
    cut(path, 0.8)
    with pytest.raises(UnreadableError, match=facts(f"a.{suffix}")):
        check_image(path)


def test_findings_keep_the_reason_and_can_be_printed():
    findings = Findings("skip")
    findings.skip("a\nb.jpg", "inverted box", "9 > 3\x1b[2J")
    findings.leave_out("c\rd", HIDDEN)
    assert [f.where for f in findings.report().skipped] == [("a\\nb.jpg (9 > 3\\x1b[2J)",), ("c\\rd",)]
    assert findings.reasons() == "inverted box (1), hidden file (1)"
    assert findings.reasons(1) == "inverted box (1), ..."
    assert printable("椅子\u3000" + "x" * 400) == "椅子\\u3000" + "x" * 297 + "..."


@pytest.mark.parametrize("name", layouts())
@pytest.mark.parametrize("path", ["x" * 5000, "nul\0", "file", "locked"])
def test_splits_never_raise(tmp_path, name, path):
    write(tmp_path / "file", "x")
    (tmp_path / "locked").mkdir(mode=0)
    assert layouts()[name].splits(tmp_path / path) == ()


def test_the_recipe_of_contributing_makes_a_reader(tmp_path, monkeypatch):
    text = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text()
    code = textwrap.dedent(re.search(r"( *)```python\n( *\"\"\"Flowers.*?)```", text, re.DOTALL)[2])
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["calibrant.data.layouts"], "_LAYOUTS", {})
        exec(compile(code, "flowers.py", "exec"), {"__name__": "flowers"})
        for name in "ab":
            image(tmp_path / f"images/{name}.png")
        write(tmp_path / "labels.txt", "a.png tulip\nb.png rose\n../c.png rose\nb.png oak\nd.png rose\n")
        data = read(tmp_path, layout="flowers", on_error="skip")
        assert (data.ids, data.labels.tolist()) == (("images/a.png", "images/b.png"), [1, 0])
        assert {finding.what for finding in data.report.skipped} == {
            NAME_OUT, MISSING, BAD_LABEL
        }  # fmt: skip
        with pytest.raises(ValueError, match=facts("labels.txt", "../c.png")):
            read(tmp_path, layout="flowers")


DEEP: list = []
for _ in range(100_000):
    DEEP = [DEEP]
STRANGE = [
    5, -1, 2.5, True, "x", "", [], {}, [1], [None], {"a": 1}, {"a": {}}, {1: "a"}, None, object(), b"x", 10**5000, DEEP,
]  # fmt: skip
OPTIONS = [
    (name, parameter.name)
    for name, layout in layouts().items()
    for parameter in inspect.signature(layout.read).parameters.values()
    if parameter.kind is parameter.KEYWORD_ONLY and parameter.name != "on_error"
]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_every_option_takes_what_its_annotation_says(name, option):
    reader = layouts()[name].read
    hint = typing.get_type_hints(reader)[option]
    assert hint is not typing.Any, "an option whose kind nobody stated is not checked"
    refused = 0
    for value in STRANGE:
        try:
            assert check_options(name, reader, {option: value}) == {option: value}
        except ValueError as error:
            refused += 1
            said = str(error)
            assert name in said
            assert option in said
            assert len(said) < 300
    assert refused > len(STRANGE) / 2
    default = inspect.signature(reader).parameters[option].default
    assert check_options(name, reader, {option: default}) == {option: default}


def test_numbers_of_numpy_and_tuples_are_taken():
    kinds = layouts()
    assert check_options("digits", kinds["digits"].read, {"seed": np.int64(3)}) == {"seed": 3}
    assert check_options("voc", kinds["voc"].read, {"classes": ("a", "b")}) == {"classes": ("a", "b")}
    for remove in (("headers",), ["headers"], {"quotes"}, frozenset({"footers"})):
        assert check_options("newsgroups", kinds["newsgroups"].read, {"remove": remove}) == {"remove": remove}
    with pytest.raises(ValueError, match=facts("seed", "9223372036854775808")):
        check_options("digits", kinds["digits"].read, {"seed": 2**63})
    with pytest.raises(ValueError, match=facts("context", "nan")):
        check_options("scenes", kinds["scenes"].read, {"context": float("nan")})


def test_more_scenes_than_memory_are_refused():
    with pytest.raises(ValueError, match=facts("1000000000000", "32")):
        read("scenes", "val", samples=10**12)


def test_the_table_of_the_docs_has_every_layout():
    text = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    names = {name for cell in first for name in re.findall(r"`([\w-]+)`", cell)}
    assert set(layouts()) <= names, "add it to the table of docs/data.md"
