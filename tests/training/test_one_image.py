"""One image of a run's data: the picture and mask that were drawn, and the logits of the run's own predictions."""

import numpy as np
import pytest

from calibrant.data import read
from calibrant.training import check_recipe, predict_image, predict_run, train
from calibrant.training.one_image import index_of
from tests.helpers.digit_runs import DIGITS
from tests.helpers.mask_runs import PLAIN, trained_runs


def test_the_image_is_the_one_that_was_asked_for(tmp_path):
    run = trained_runs(tmp_path)["ce"]
    seen = predict_image(run, "test-0-000007")
    data = read("scene-masks", "test", **PLAIN["data"]["options"], samples=40)
    assert np.array_equal(seen.picture, np.asarray(data.inputs[7]))
    assert np.array_equal(seen.mask, np.asarray(data.masks[7]))
    whole = predict_run(run, whole_maps=True)
    assert whole.logits.shape == (40, 3, 16, 16)
    assert np.asarray(seen.predictions.logits)[0] == pytest.approx(np.asarray(whole.logits)[7], abs=1e-5)
    with pytest.raises(ValueError, match=r"no image 'test-0-900000'"):
        predict_image(run, "test-0-900000")


def test_ids_are_found_by_their_ends():
    ids = ("test/a/01.png", "test/b/01.png", "test/b/02.png")
    assert [index_of(ids, name, "d") for name in ("test/b/01.png", "b/01.png", "02", "2.png")] == [1, 1, 2, 2]
    with pytest.raises(ValueError, match=r"d: 2 images end with '01': test/a/01\.png and test/b/01\.png|2 images end"):
        index_of(ids, "01", "d")


def test_maps_are_for_masks(tmp_path):
    train(check_recipe(DIGITS | {"training": {"max_steps": 1, "batch_size": 20}}, "digits"), tmp_path / "run")
    with pytest.raises(ValueError, match="maps are for data sets with masks"):
        predict_image(tmp_path / "run", "digits/0001")
