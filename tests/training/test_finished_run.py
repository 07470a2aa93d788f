"""The network of a finished run predicts as the run did, also one image, and is exported."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from calibrant import Policy, Predictions
from calibrant.cli import main
from calibrant.data import read
from calibrant.export import export_onnx
from calibrant.training import last_epoch, load_model, predict_image, predict_mean, predict_run, train
from calibrant.training.finished_run import DropoutPasses, dropout_layers, example_inputs
from calibrant.training.recipe import check_recipe, replace_settings
from tests.helpers.digit_runs import DIGITS
from tests.helpers.errors import facts
from tests.helpers.mask_runs import PLAIN
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


@pytest.mark.slow
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


def test_the_image_is_the_one_that_was_asked_for(mask_runs):
    run = mask_runs["ce"]
    seen = predict_image(run, "test-0-000007")
    data = read("scene-masks", "test", **PLAIN["data"]["options"], samples=40)
    assert np.array_equal(seen.picture, np.asarray(data.inputs[7]))
    assert np.array_equal(seen.mask, np.asarray(data.masks[7]))
    whole = predict_run(run, whole_maps=True)
    assert whole.logits.shape == (40, 3, 16, 16)
    assert np.asarray(seen.predictions.logits)[0] == pytest.approx(np.asarray(whole.logits)[7], abs=1e-5)
    with pytest.raises(ValueError, match=facts("test-0-900000")):
        predict_image(run, "test-0-900000")


REMEMBERED = {
    "data": {"layout": "digits", "val": None, "hold_out": {"fraction": 0.2}},
    "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [8]},
    "loss": {"name": "crl"},
    "optimiser": {"rate": 0.1},
    "training": {"epochs": 2, "batch_size": 100, "drop_last": False},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "crl"
    train(check_recipe(REMEMBERED, "here"), folder, accelerator="cpu")
    return folder


def test_the_memory_of_the_loss_comes_back(run):
    epoch = last_epoch(run)
    assert int(epoch.loss.history.epochs) == 2
    counts = epoch.loss.history.counts
    assert len(counts) == len(epoch.labels) == len(epoch.logits)
    assert 0 < int(counts.sum()) <= 2 * len(counts)
    terms = epoch.loss.terms(epoch.logits[:50], epoch.labels[:50], ids=torch.arange(50))
    assert float(terms["regulariser"]) > 0
    # Correctness as the released code normalises it, by hand.
    c = (counts - counts.min()).double() / max(1, 2 - int(counts.min()))
    torch.testing.assert_close(epoch.loss.history.correctness(torch.arange(len(counts))), c)


def test_every_training_sample_is_in_one_batch_of_the_last_epoch(run):
    epoch = last_epoch(run)
    order = torch.cat(epoch.order)
    assert sorted(order.tolist()) == list(range(len(epoch.labels)))
    assert order.tolist() != list(range(len(epoch.labels)))
    sizes = {len(ids) for ids in epoch.order[:-1]}
    assert sizes == {100}
    for z, labels, ids in epoch.batches():
        assert torch.equal(z, epoch.logits[ids])
        assert torch.equal(labels, epoch.labels[ids])


def test_logits_are_those_of_the_last_checkpoint(run):
    epoch = last_epoch(run)
    train_logits = epoch.logits.numpy()
    whole = predict_run(run, split="train", checkpoint="last")
    known = {row.tobytes() for row in np.round(np.asarray(whole.logits), 4)}
    assert all(row.tobytes() in known for row in np.round(train_logits, 4)[:20])


def test_a_memory_of_another_loss_is_refused(run, tmp_path):
    import shutil

    folder = shutil.copytree(run, tmp_path / "copy")
    other = replace_settings(check_recipe(REMEMBERED, "here"), {"loss": {"name": "ce"}})
    (folder / "recipe.json").write_text(other.model_dump_json())
    with pytest.raises(ValueError, match=facts("last.safetensors")):
        last_epoch(folder)
    with pytest.raises(ValueError, match=facts(str(tmp_path))):
        last_epoch(tmp_path)
    with pytest.raises(ValueError, match=facts("masks")):
        predict_image(run, "digits/0001")


def softmax(logits):
    exps = np.exp(logits - logits.max(1, keepdims=True))
    return exps / exps.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """Two runs of a network with dropout, and one of a network without."""
    folder = tmp_path_factory.mktemp("runs")
    for name, seed, dropout in (("a", 0, 0.4), ("b", 1, 0.4), ("plain", 0, 0.0)):
        model = DIGITS["model"] | ({"dropout": dropout} if dropout else {})
        recipe = DIGITS | {"seed": seed, "model": model, "training": {"batch_size": 128, "epochs": 1}}
        train(check_recipe(recipe, name), folder / name)
    return folder


def test_an_ensemble_is_the_mean_of_the_probabilities(averaged):
    members = [np.asarray(predict_run(averaged / name).logits, np.float64) for name in ("a", "b", "plain")]
    mean = predict_mean([averaged / "a", averaged / "b", averaged / "plain"])
    expected = sum(softmax(logits) for logits in members) / 3
    np.testing.assert_allclose(softmax(np.asarray(mean.logits)), expected, rtol=1e-5)
    own = Predictions.open(averaged / "a" / "test.npz")
    assert np.array_equal(np.asarray(mean.labels), np.asarray(own.labels))
    assert mean.class_names == own.class_names


def test_passes_are_seeded_and_differ_by_seed(averaged):
    first, again, other = (
        np.asarray(predict_mean([averaged / "a"], dropout_passes=3, seed=seed).logits) for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    plain = np.asarray(predict_run(averaged / "a").logits)
    assert not np.allclose(softmax(first), softmax(plain), atol=1e-3)


def test_many_passes_come_near_the_mean_over_all_masks():
    torch.manual_seed(0)
    linear = nn.Linear(4, 3)
    inputs = torch.randn(2, 4)
    expected = torch.zeros(2, 3)
    for mask in itertools.product([0.0, 2.0], repeat=4):  # each of 16 with the same probability
        expected += linear(inputs * torch.tensor(mask)).softmax(1).detach() / 16
    passes = DropoutPasses(nn.Sequential(nn.Dropout(0.5), linear), 2000, seed=0).eval()
    with torch.inference_mode():
        mean = passes(inputs).exp()
    assert torch.allclose(mean.float(), expected, atol=0.03)  # five standard errors
    assert not any(layer.training for layer in dropout_layers(passes))


def test_the_stream_of_random_numbers_is_its_own():
    passes = DropoutPasses(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)), 2).eval()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    passes(torch.ones(1, 4))
    assert torch.equal(torch.rand(3), expected)


def test_what_cannot_be_averaged_is_refused(averaged, tmp_path):
    with pytest.raises(ValueError, match=facts("dropout")):
        predict_mean([averaged / "plain"], dropout_passes=2)
    with pytest.raises(ValueError, match=r"."):
        predict_mean([])
    other = DIGITS | {"data": DIGITS["data"] | {"test_share": 0.2}, "training": {"batch_size": 512, "epochs": 1}}
    train(check_recipe(other, "other"), tmp_path / "other")
    with pytest.raises(ValueError, match=facts("other")):
        predict_mean([averaged / "a", tmp_path / "other"])


def test_the_command_averages(averaged, tmp_path, capsys):
    def predict(*words):
        with pytest.raises(SystemExit) as stop:
            main(["predict", *map(str, words), "-o", str(tmp_path / "mean.npz"), "--quiet"])
        return stop.value.code

    runs = [averaged / "a", averaged / "b"]
    assert predict(*runs, "--dropout-passes", 2, "--seed", 3) == 0
    written = np.asarray(Predictions.open(tmp_path / "mean.npz").logits)
    expected = predict_mean(runs, dropout_passes=2, seed=3)
    np.testing.assert_allclose(written, np.asarray(expected.logits), rtol=1e-6)
    assert predict(averaged / "plain", "--dropout-passes", "2") == 2
    assert "model.dropout" in capsys.readouterr().err
