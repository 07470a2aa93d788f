"""The network of a finished run predicts as the run did, and is exported."""

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.export import export_onnx
from calibrant.training import load_model, predict_run, train
from calibrant.training.finished_run import example_inputs
from calibrant.training.recipe import check_recipe
from tests.helpers.digit_runs import DIGITS
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
