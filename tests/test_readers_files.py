"""What is read of an image file, an XML file and a changed folder of Calibrant's; expected values by hand."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from calibrant.data import Findings, ImageFiles, layouts, read
from calibrant.data.files import UnreadableError, printable
from calibrant.data.readers._annotations import parse_annotation, read_json
from calibrant.data.readers._folder import check_image
from tests import box_files as files
from tests.box_files import cut, image, odd, skipped, write, xml

ROTATED = "image with an EXIF rotation, which is not applied"


def saved(path, values, **options):
    Image.fromarray(np.array(values)).save(path, **options)
    return path


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
        with pytest.raises(UnreadableError, match=r"c\.tif: the image holds values from -?\d+ to \d+; 0 to 65535"):
            grey(path)
        with pytest.raises(UnreadableError, match="0 to 65535"):
            check_image(path)
    path = saved(tmp_path / "d.tif", np.array([[0.5]], dtype=np.float32))
    with pytest.raises(UnreadableError, match=r"d\.tif: the image holds floating-point numbers"):
        grey(path)
    with pytest.raises(UnreadableError, match="floating-point"):
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
    assert source[0].size == source.header(0)[0] == check_image(path).size == (4, 9)
    assert not check_image(path).rotated


def test_an_exif_rotation_beside_boxes_and_broken_metadata(tmp_path):
    root = files.cub(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 3
    saved(root / "images/001.Black_Bird/a.jpg", np.zeros((10, 20, 3), dtype=np.uint8), exif=exif)
    assert odd(read(root, "test", on_error="skip").report)[ROTATED] == 1
    saved(root / "images/001.Black_Bird/a.jpg", np.zeros((10, 20, 3), dtype=np.uint8), exif=b"Exif\0\0MM\0*\xff\xff")
    data = read(root, "test", on_error="skip")
    assert len(data) == 2
    assert ROTATED not in odd(data.report)


@pytest.mark.parametrize("suffix", ["bmp", "tif", "gif", "ppm", "webp"])
def test_formats_without_a_mark_at_their_end_are_decoded(tmp_path, suffix):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 50, 3), dtype=np.uint8)
    path = saved(tmp_path / f"a.{suffix}", pixels)
    assert check_image(path) == ((50, 60), False)
    cut(path, 0.8)
    with pytest.raises(UnreadableError, match="the image is truncated or broken"):
        check_image(path)


@pytest.mark.parametrize(
    ("encoding", "declared", "name", "guessed"),
    [
        ("gbk", "GBK", "椅子", False),
        ("shift_jis", "Shift_JIS", "椅子", False),
        ("cp1251", "windows-1251", "стул", False),
        ("latin-1", "ISO-8859-1", "Stühle", False),
        ("utf-16", "utf-16", "椅子", False),
        ("utf-16-le", None, "椅子", False),
        ("utf-8", "utf-16", "椅子", False),  # as Windows writes it
        ("utf-8-sig", None, "椅子", False),
        ("latin-1", None, "Stühle", True),
        ("latin-1", "UTF-8", "Stühle", True),
    ],
)
def test_xml_is_decoded_as_it_declares(tmp_path, encoding, declared, name, guessed):
    head = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    path = write(tmp_path / "a.xml", (head + xml([(name, 1, 1, 2, 2)])).encode(encoding))
    annotation = parse_annotation(path)
    assert (annotation.objects[0][0], annotation.guessed) == (name, guessed)


@pytest.mark.parametrize("declared", ["no-such", "hex", "rot13", "punycode", "unicode_escape", "undefined", "ascii"])
def test_xml_in_encodings_that_are_none(tmp_path, declared):
    text = f'<?xml version="1.0" encoding="{declared}"?>' + xml([("Stühle", 1, 1, 2, 2)])
    with pytest.raises(UnreadableError, match=r"a\.xml: the file is not XML"):
        parse_annotation(write(tmp_path / "a.xml", text))


def test_a_guessed_encoding_is_odd(tmp_path):
    root = files.voc(tmp_path)
    write(root / "Annotations/a.xml", xml([("Stühle", 1, 1, 2, 2)], "a.jpg"), "latin-1")
    assert odd(read(root, "train").report)["annotation that is not UTF-8, read as latin-1"] == 1


def test_json_with_a_key_twice(tmp_path):
    path = write(tmp_path / "a.json", '{"x": [{"box": 1, "id": 2, "box": 3}]}')
    with pytest.raises(UnreadableError, match=r"a\.json: the key 'box' occurs twice in one object$"):
        read_json(path)
    assert read_json(write(path, '{"x": [{"box": 1, "id": 2}]}'), drop="box") == {"x": [{"id": 2}]}


def test_findings_keep_the_reason_and_can_be_printed():
    findings = Findings("skip")
    findings.skip("a\nb.jpg", "inverted box", "9 > 3\x1b[2J")
    findings.leave_out("c\rd", "hidden file")
    assert [f.where for f in findings.report().skipped] == [("a\\nb.jpg (9 > 3\\x1b[2J)",), ("c\\rd",)]
    assert findings.reasons() == "inverted box (1), hidden file (1)"
    assert findings.reasons(1) == "inverted box (1), ..."
    assert printable("椅子\u3000" + "x" * 400) == "椅子\\u3000" + "x" * 297 + "..."


# Calibrant's own folders


def folder(root, **changes):
    corners = pa.list_(pa.list_(pa.float64(), 4))
    columns = {
        "id": pa.array(["p", "q", "r"]),
        "file": pa.array(["train/p.png", "train/q.png", "train/r.png"]),
        "label": pa.array([0, 1, -1]),
        "boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], [[0, 0, 20, 10]], []], corners),
        "box_labels": pa.array([[0, -1], [1], []], pa.list_(pa.int64())),
        "crowd": pa.array([[False, True], [False], []], pa.list_(pa.bool_())),
        "context": pa.array([False, False, True]),
        "group": pa.array(["x", "y", ""]),
        "soft": pa.array([[1, 0], [0.25, 0.75], [0.5, 0.5]], pa.list_(pa.float64(), 2)),
    }
    for name in "pqr":
        image(root / f"train/{name}.png")
    description = {"format": "calibrant-dataset", "version": 1, "name": "made", "classes": ["cat", "dog"]}
    write(root / "dataset.json", json.dumps(description))
    columns = {k: v for k, v in (columns | changes).items() if v is not None}
    pq.write_table(pa.table(columns), root / "train.parquet")
    return root


@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_calibrant_s_own_folder(tmp_path, mode):
    data = read(folder(tmp_path), on_error=mode)
    assert (data.name, data.ids, data.labels.tolist()) == ("made", ("p", "q", "r"), [0, 1, -1])
    assert data.boxes.corners.tolist() == [[1, 1, 5, 5], [2, 2, 4, 4], [0, 0, 20, 10]]
    assert (data.boxes.counts.tolist(), data.boxes.labels.tolist()) == ([2, 1, 0], [0, -1, 1])
    assert data.boxes.crowd.tolist() == [False, True, False]
    assert (data.groups, data.context.tolist()) == (("x", "y", ""), [False, False, True])
    assert data.soft.tolist() == [[1, 0], [0.25, 0.75], [0.5, 0.5]]


CORNERS = pa.list_(pa.list_(pa.float64()))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"id": pa.array(["p", None, "r"])}, "row without a value"),
        ({"id": pa.array(["p", "p", "r"])}, "id that occurs twice"),
        ({"file": pa.array(["train/p.png", None, "train/r.png"])}, "row without a value"),
        ({"file": pa.array(["train/p.png", "../q.png", "train/r.png"])}, "file name that leads out of the data folder"),
        ({"file": pa.array(["train/p.png", "train/s.png", "train/r.png"])}, "image that is missing"),
        ({"label": pa.array([0, 2, -1])}, "label outside the classes"),
        ({"label": pa.array([0, -2, -1])}, "label outside the classes"),
        ({"label": pa.array([0, None, -1])}, "row without a value"),
        ({"boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], [[9, 0, 2, 1]], []], CORNERS)}, "inverted box"),
        (
            {"boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], [[0, 0, float("nan"), 1]], []], CORNERS)},
            "box that is not made of numbers",
        ),
        ({"boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], [None], []], CORNERS)}, "box that is not made of numbers"),
        ({"boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], None, []], CORNERS)}, "row without a value"),
        (
            {"boxes": pa.array([[[1, 1, 5, 5], [2, 2, 4, 4]], [], []], CORNERS)},
            "boxes, box_labels and crowd of different lengths",
        ),
        ({"box_labels": pa.array([[0, -1], [2], []])}, "box with a label outside the classes"),
        ({"box_labels": pa.array([[0, -1], [None], []])}, "box with a label outside the classes"),
        ({"crowd": pa.array([[False, True], [None], []])}, "row without a value"),
        ({"context": pa.array([False, None, True])}, "row without a value"),
        ({"group": pa.array(["x", None, "y"])}, "row without a value"),
        ({"soft": pa.array([[1.0, 0.0], [0.5, 0.6], [0.5, 0.5]])}, "soft labels that are no probabilities"),
        ({"soft": pa.array([[1.0, 0.0], [1.5, -0.5], [0.5, 0.5]])}, "soft labels that are no probabilities"),
        ({"soft": pa.array([[1.0, 0.0], [1.0], [0.5, 0.5]])}, "soft labels that are no probabilities"),
        ({"soft": pa.array([[1.0, 0.0], [1.0, None], [0.5, 0.5]])}, "soft labels that are no probabilities"),
    ],
)
def test_rows_of_calibrant_s_own_folder_that_are_broken(tmp_path, changes, what):
    root = folder(tmp_path, **changes)
    with pytest.raises(ValueError, match=what):
        read(root)
    data = read(root, on_error="skip")
    assert (data.ids, skipped(data.report)) == (("p", "r"), {what: 1})
    assert data.boxes.counts.tolist() == [2, 0]


@pytest.mark.parametrize(
    "changes",
    [
        {"id": pa.array([1, 2, 3])},
        {"label": pa.array([0.0, 1.0, 0.5])},
        {"label": None},
        {"crowd": None},
        {"boxes": pa.array([[1.0], [2.0], []])},
        {"context": pa.array([0, 0, 1])},
    ],
)
@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_tables_of_calibrant_s_own_folder_that_are_broken(tmp_path, changes, mode):
    with pytest.raises(ValueError, match=rf"train\.parquet: .*{next(iter(changes))!r}"):
        read(folder(tmp_path, **changes), on_error=mode)


def test_calibrant_s_own_folder_with_broken_files(tmp_path):
    root = folder(tmp_path)
    cut(root / "train/q.png")
    assert skipped(read(root, on_error="skip").report) == {"image that cannot be read": 1}
    write(root / "train.parquet", b"PAR1 no")
    with pytest.raises(UnreadableError, match=r"train\.parquet: the file cannot be read"):
        read(root)
    for text in ("", "[]", "{}", '{"format": "calibrant-dataset", "version": 1, "name": "x", "classes": ["a", "a"]}'):
        write(root / "dataset.json", text)
        with pytest.raises(UnreadableError, match=r"dataset\.json: "):
            read(root)


@pytest.mark.parametrize("name", layouts())
@pytest.mark.parametrize("path", ["x" * 5000, "nul\0", "file", "locked"])
def test_splits_never_raise(tmp_path, name, path):
    write(tmp_path / "file", "x")
    (tmp_path / "locked").mkdir(mode=0)
    assert layouts()[name].splits(tmp_path / path) == ()
