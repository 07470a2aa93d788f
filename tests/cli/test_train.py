"""The commands train and predict, and the way from a run to an exported policy."""

import json
import os
import signal
import tomllib

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.data import read
from calibrant.recipes import FOLDER
from calibrant.training import checkpoints, load, train
from tests.helpers.digit_runs import RECIPE, one_thread
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


@pytest.mark.slow
def test_from_training_to_an_exported_policy(undisturbed, recipe, tmp_path, run):
    """train, audit, fit, export: the graph takes pixels from 0 to 1 and answers as the run's predictions do."""
    import onnxruntime

    policy, graph = tmp_path / "policy.json", tmp_path / "digits.onnx"
    val, test = undisturbed / "val.npz", undisturbed / "test.npz"
    assert run("audit", test, "--val", val, "-o", tmp_path / "r.html", "-q", "--replicates", 20)[0] == 0
    assert run("fit", val, "--target-risk", "0.2", "-o", policy, "-q")[0] == 0
    assert run("export", "--run", undisturbed, "--policy", policy, "-o", graph, "-q")[0] == 0
    images = np.stack([np.asarray(sample.input) for sample in read("digits", "test")])
    pixels = images.transpose(0, 3, 1, 2).astype(np.float32) / 255
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    values = session.run(None, {session.get_inputs()[0].name: pixels})
    answers = dict(zip([output.name for output in session.get_outputs()], values, strict=True))
    expected = Predictions.open(test).logits.argmax(1)
    assert np.array_equal(answers["label"], expected)
    assert 0 < answers["accept"].mean() <= 1
    assert run("predict", undisturbed, "--split", "val", "-o", tmp_path / "val.npz", "-q")[0] == 0
    assert np.array_equal(Predictions.open(tmp_path / "val.npz").logits, Predictions.open(val).logits)
    for words, told in (
        (("train", recipe, "-o", undisturbed), "--resume"),
        (("export", "--run", tmp_path, "--policy", policy, "-o", graph), str(tmp_path)),
    ):
        code, _, err = run(*words)
        assert (code, told in err) == (2, True)


def test_ctrl_c_saves_after_the_step_that_it_came_in(recipe, tmp_path):
    def interrupt(event, numbers):
        if event == "step" and numbers["step"] == 6:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), one_thread():
        train(load(recipe, ["training.checkpoint_seconds=1e6"]), tmp_path / "run", event_log=interrupt)
    assert checkpoints.load(tmp_path / "run" / "last.safetensors")[1]["step"] == 6


def test_a_dry_run_writes_nothing(recipe, tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    code, out, _ = run("train", recipe, "--dry-run")
    assert (code, "loss.margin" in out, "24" in out) == (0, True, True)
    assert set(tmp_path.rglob("*")) == before


def test_the_list_has_every_file(run):
    code, out, _ = run("recipes", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert set(rows) == {str(file.relative_to(FOLDER))[: -len(".toml")] for file in FOLDER.rglob("*.toml")}
    assert rows["acls_cifar10_resnet50"]["paper"] == "ACLS"
    assert rows["acls_cifar10_resnet50"]["table"] == "Table 3"
    code, out, _ = run("recipes")
    assert "small/scenes" in out


def test_a_recipe_is_printed_as_it_stands(run):
    text = (FOLDER / "small/scenes.toml").read_text(encoding="utf-8")
    assert run("recipes", "small/scenes")[1] == text
    assert json.loads(run("recipes", "small/scenes", "--json")[1]) == tomllib.loads(text)
    assert run("recipes", "small/scenes", "--quiet")[1] == ""


@pytest.mark.slow
def test_train_takes_a_name_and_another_loss_trains_on_labels(run):
    settings = ["--set", "data.options={samples=200}", "--set", "training.epochs=1", "--dry-run", "--json"]
    for words, loss, targets in (
        ([], "ce", "adaptive"),
        (["--loss", "acls"], "acls", "hard"),
        (["--loss", "acls", "--set", "targets.name=adaptive"], "acls", "adaptive"),
    ):
        code, out, _ = run("train", "small/scenes", *words, *settings)
        assert code == 0
        recipe = json.loads(out)["recipe"]
        assert (recipe["loss"]["name"], recipe["targets"]["name"]) == (loss, targets)
