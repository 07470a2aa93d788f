"""The embedded sets, asked for by name instead of by a path."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from calibrant.data import read
from tests.helpers.errors import facts


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


def test_scenes_take_their_options():
    scenes = read("scenes", "val", samples=7, seed=3)
    assert (len(scenes), scenes.split) == (7, "val")
    with pytest.raises(ValueError, match=facts("paint", "texture", "sketch")):
        read("scenes", "val", shift="paint")


def test_a_folder_of_the_name_goes_before_the_embedded_set(tmp_path, monkeypatch):
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="digits: no known layout"):
        read("digits", "test")
