"""Where inputs come from: samples stay in place when some are taken, and when sources are joined."""

import numpy as np
import pytest
from PIL import Image

from calibrant.data import ImageArray, ImageFiles, Rows, TextFiles
from calibrant.data.sources import JoinedInputs
from tests.helpers.errors import facts


def test_files_are_taken_by_position(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"text {number}")
        Image.new("L", (4 + number, 2), number).save(tmp_path / f"{number}.png")
    texts = TextFiles(tmp_path, ("0.txt", "1.txt", "2.txt")).take(np.array([2, 0]))
    assert (len(texts), texts[0], texts.where(1)) == (2, "text 2", str(tmp_path / "0.txt"))
    masks = ImageFiles(tmp_path, ("0.png", "1.png", "2.png"), mode=None, max_pixels=100).take(np.array([1]))
    assert (masks.mode, masks.max_pixels, masks.header(0)) == (None, 100, ((5, 2), "L"))
    assert np.asarray(masks[0]).tolist() == [[1] * 5] * 2


def test_joined_sources_keep_their_order():
    first, second = (ImageArray(np.full((n, 2, 3), n, np.uint8), f"set {n}") for n in (2, 3))
    joined = JoinedInputs.of(first, second).take(np.array([3, 0, 1]))
    assert (len(joined), joined.kind) == (3, "image")
    assert [joined.where(i) for i in range(3)] == ["set 3[1]", "set 2[0]", "set 2[1]"]
    assert [int(np.asarray(joined[i]).max()) for i in range(3)] == [3, 2, 2]
    assert joined.header(0) == ((3, 2), "L")
    with pytest.raises(ValueError, match="cannot join sources of different kinds: image, array"):
        JoinedInputs.of(first, Rows(np.zeros((2, 2))))


def test_arrays_that_hold_no_images():
    with pytest.raises(ValueError, match=facts("[2, 4]")):
        ImageArray(np.zeros((2, 4)))
