"""The network of a finished run predicts as the run did, also one image, and is exported."""

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.data import read
from calibrant.export import export_onnx
from calibrant.training import load_model, predict_image, predict_run, train
from calibrant.training.finished_run import example_inputs, index_of
from calibrant.training.recipe import check_recipe
from tests.helpers.digit_runs import DIGITS
from tests.helpers.mask_runs import PLAIN, trained_runs
from tests.helpers.recipe_data import written


def test_the_model_that_was_kept_predicts(tmp_path):
    plain = DIGITS | {"optimiser": {"rate": 0.1}, "loss": {"name": "ls", "alpha": 0.5}}
    plain["training"] = {"batch_size": 128, "epochs": 4, "keep": "best", "best_by": "ece"}  # it falls, then rises
    result = train(check_recipe(plain, "best"), tmp_path / "run")
    scores = [entry["val_ece"] for entry in result["history"]]
    assert min(scores) < scores[-1]  # else there is nothing to tell apart
    own = Predictions.open(tmp_path / "run" / "test.npz").logits
    assert np.array_equal(predict_run(tmp_path / "run").logits, own)
    assert np.array_equal(predict_run(tmp_path / "run", checkpoint="best").logits, own)
    assert not np.array_equal(predict_run(tmp_path / "run", checkpoint="last").logits, own)
    assert result["sets"]["val"]["ece"] == pytest.approx(min(scores))


def test_a_run_on_texts_is_exported(tmp_path):
    home = written("newsgroups", tmp_path)
    plain = {
        "data": {"layout": "newsgroups", "text": {"vocabulary": 500, "length": 40, "dimensions": 16}},
        "model": {"name": "gpcn"},
        "training": {"max_steps": 2, "batch_size": 2},
    }
    train(check_recipe(plain, "texts"), tmp_path / "run", data=str(home))
    policy = Policy.fit(Predictions.open(tmp_path / "run" / "test.npz"), target_coverage=0.5)
    model, shape, names = load_model(tmp_path / "run")
    assert (shape, names) == ([40], list(policy.class_names))
    words = example_inputs(tmp_path / "run")
    done = export_onnx(policy, tmp_path / "texts.onnx", model=model, input_shape=shape, inputs=words)
    assert done.rows >= len(words)
    assert "int64" in str(done.inputs[0].kind).lower()


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
