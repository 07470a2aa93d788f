"""CUB's tables, sound and broken."""

import pytest

from calibrant.data import read
from tests.helpers import box_files as files
from tests.helpers.box_files import image, odd, skipped, write
from tests.helpers.reader_data import INVERTED, MODES, NO_ANNOTATION, one_sentence, where


@MODES
def test_cub(tmp_path, mode):
    root = files.cub(tmp_path)
    data = read(root, "test", on_error=mode)
    assert data.classes == ("Black Bird", "Red Bird")
    assert data.ids == ("images/001.Black_Bird/a.jpg", "images/002.Red_Bird/c.jpg")
    assert data.labels.tolist() == [0, 1]
    assert data.boxes.corners.tolist() == [[2, 1, 7.5, 5], [18, 0, 23, 5]]
    assert odd(data.report) == ({"box that leaves the image": 1} if mode == "skip" else {})  # the size is in no file
    assert read(root, "train", on_error=mode).ids == ("images/002.Red_Bird/b.jpg",)


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        ("train_test_split.txt", "1 0\n2 1\n3 yes\n", "image of no split"),
        ("image_class_labels.txt", "1 1\n2 2\n3 7\n", "image without a class that classes.txt lists"),
        ("bounding_boxes.txt", "1 2 1 5.5 4\n2 0 0 20 10\n3 18 0 -5 5\n", INVERTED),
        ("images.txt", "1 001.Black_Bird/a.jpg\n2 002.Red_Bird/b.jpg\n3 002.Red_Bird/d.jpg\n", "image that is missing"),
    ],
)
def test_broken_lines_of_cub(tmp_path, file, content, what):
    root = files.cub(tmp_path)
    write(root / file, content)
    with pytest.raises(ValueError, match=what) as error:
        read(root, "test")
    one_sentence(error, "images/002.Red_Bird/")
    data = read(root, "test", on_error="skip")
    others = {"image without an annotation": 1} if file == "images.txt" else {}  # c.jpg, now that d.jpg has its line
    assert (data.ids, skipped(data.report)) == (("images/001.Black_Bird/a.jpg",), {what: 1} | others)


def test_tables_of_cub_that_are_not_tables(tmp_path):
    root = files.cub(tmp_path)
    write(root / "bounding_boxes.txt", "1 2 1 5.5 4\n2 0 0 20 10\n3\n")
    with pytest.raises(ValueError, match=r"bounding_boxes\.txt, line 3: line without a value for its id"):
        read(root, "test")
    data = read(root, "test", on_error="skip")
    assert data.ids == ("images/001.Black_Bird/a.jpg",)
    assert list(skipped(data.report).values()) == [1, 1]  # the line, and the image that has no box now
    write(root / "classes.txt", "1 001.Black_Bird\n1 002.Red_Bird\n")
    with pytest.raises(ValueError, match=r"classes\.txt, line 2: .* an id that was there before"):
        read(root, "test", on_error="skip")


def test_cub_images_that_no_line_lists(tmp_path):
    root = files.cub(tmp_path)
    image(root / "images/002.Red_Bird/u.jpg")
    for split in ("train", "test"):
        assert where(read(root, split).report.skipped) == {NO_ANNOTATION: ("images/002.Red_Bird/u.jpg",)}
