"""The commands train and predict, and the way from a run to an exported policy."""

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.cli import main
from calibrant.data import read
from calibrant.training import load, train
from tests.helpers.digit_runs import RECIPE
from tests.helpers.errors import facts


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "digits.toml"
    file.write_text(RECIPE)
    return file


def test_tensorboard_says_what_to_install(recipe, tmp_path):
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match=facts("calibrant[tensorboard]")):
            train(load(recipe, ["training.tensorboard=true"]), tmp_path / "run")
    else:
        train(load(recipe, ["training.tensorboard=true", "training.epochs=1"]), tmp_path / "run")
        assert any((tmp_path / "run" / "tensorboard").iterdir())


def run(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def test_from_training_to_an_exported_policy(undisturbed, recipe, tmp_path, capsys):
    """train, audit, fit, export: the graph takes pixels from 0 to 1 and answers as the run's predictions do."""
    import onnxruntime

    policy, graph = tmp_path / "policy.json", tmp_path / "digits.onnx"
    val, test = undisturbed / "val.npz", undisturbed / "test.npz"
    assert run("audit", test, "--val", val, "-o", tmp_path / "r.html", "-q", "--replicates", 20) == 0
    assert run("fit", val, "--target-risk", "0.2", "-o", policy, "-q") == 0
    assert run("export", "--run", undisturbed, "--policy", policy, "-o", graph, "-q") == 0
    images = np.stack([np.asarray(sample.input) for sample in read("digits", "test")])
    pixels = images.transpose(0, 3, 1, 2).astype(np.float32) / 255
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    values = session.run(None, {session.get_inputs()[0].name: pixels})
    answers = dict(zip([output.name for output in session.get_outputs()], values, strict=True))
    expected = Predictions.open(test).logits.argmax(1)
    assert np.array_equal(answers["label"], expected)
    assert 0 < answers["accept"].mean() <= 1
    capsys.readouterr()
    assert run("train", recipe, "-o", undisturbed) == 2
    assert "--resume" in capsys.readouterr().err
    assert run("export", "--run", tmp_path, "--policy", policy, "-o", graph) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_a_dry_run_writes_nothing(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    assert run("train", recipe, "--dry-run") == 0
    out = capsys.readouterr().out
    assert "loss.margin" in out
    assert "24" in out
    assert set(tmp_path.rglob("*")) == before
