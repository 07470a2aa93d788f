"""Averages against a loop over the members, and against the exact mean over all masks of a small layer."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from calibrant import Predictions
from calibrant.cli import main
from calibrant.training import predict_mean, predict_run, train
from calibrant.training.averaging import DropoutPasses, dropout_layers
from calibrant.training.recipe import check_recipe
from tests.helpers.digit_runs import DIGITS


def softmax(logits):
    exps = np.exp(logits - logits.max(1, keepdims=True))
    return exps / exps.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of a network with dropout, and one of a network without."""
    folder = tmp_path_factory.mktemp("runs")
    for name, seed, dropout in (("a", 0, 0.4), ("b", 1, 0.4), ("plain", 0, 0.0)):
        model = DIGITS["model"] | ({"dropout": dropout} if dropout else {})
        recipe = DIGITS | {"seed": seed, "model": model, "training": {"batch_size": 128, "epochs": 1}}
        train(check_recipe(recipe, name), folder / name)
    return folder


def test_an_ensemble_is_the_mean_of_the_probabilities(runs):
    members = [np.asarray(predict_run(runs / name).logits, np.float64) for name in ("a", "b", "plain")]
    mean = predict_mean([runs / "a", runs / "b", runs / "plain"])
    expected = sum(softmax(logits) for logits in members) / 3
    np.testing.assert_allclose(softmax(np.asarray(mean.logits)), expected, rtol=1e-5)
    own = Predictions.open(runs / "a" / "test.npz")
    assert np.array_equal(np.asarray(mean.labels), np.asarray(own.labels))
    assert mean.class_names == own.class_names


def test_passes_are_seeded_and_differ_by_seed(runs):
    first, again, other = (
        np.asarray(predict_mean([runs / "a"], dropout_passes=3, seed=seed).logits) for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    plain = np.asarray(predict_run(runs / "a").logits)
    assert not np.allclose(softmax(first), softmax(plain), atol=1e-3)


def test_many_passes_come_near_the_mean_over_all_masks():
    torch.manual_seed(0)
    linear = nn.Linear(4, 3)
    inputs = torch.randn(2, 4)
    expected = torch.zeros(2, 3)
    for mask in itertools.product([0.0, 2.0], repeat=4):  # each of 16 with the same probability
        expected += linear(inputs * torch.tensor(mask)).softmax(1).detach() / 16
    passes = DropoutPasses(nn.Sequential(nn.Dropout(0.5), linear), 4000, seed=0).eval()
    with torch.inference_mode():
        mean = passes(inputs).exp()
    assert torch.allclose(mean.float(), expected, atol=0.02)  # five standard errors
    assert not any(layer.training for layer in dropout_layers(passes))


def test_the_stream_of_random_numbers_is_its_own():
    passes = DropoutPasses(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3)), 2).eval()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    passes(torch.ones(1, 4))
    assert torch.equal(torch.rand(3), expected)


def test_what_cannot_be_averaged_is_refused(runs, tmp_path):
    with pytest.raises(ValueError, match="need a network with dropout"):
        predict_mean([runs / "plain"], dropout_passes=2)
    with pytest.raises(ValueError, match="at least one run"):
        predict_mean([])
    other = DIGITS | {"data": DIGITS["data"] | {"test_share": 0.2}, "training": {"batch_size": 512, "epochs": 1}}
    train(check_recipe(other, "other"), tmp_path / "other")
    with pytest.raises(ValueError, match="cannot be averaged with"):
        predict_mean([runs / "a", tmp_path / "other"])


def test_the_command_averages(runs, tmp_path, capsys):
    for words, expected in (
        ([runs / "a", runs / "b"], predict_mean([runs / "a", runs / "b"])),
        ([runs / "a", "--dropout-passes", 2, "--seed", 3], predict_mean([runs / "a"], dropout_passes=2, seed=3)),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["predict", *map(str, words), "-o", str(tmp_path / "mean.npz"), "--quiet"])
        assert stop.value.code == 0
        written = np.asarray(Predictions.open(tmp_path / "mean.npz").logits)
        np.testing.assert_allclose(written, np.asarray(expected.logits), rtol=1e-6)
    with pytest.raises(SystemExit) as stop:
        main(["predict", str(runs / "plain"), "--dropout-passes", "2", "-o", str(tmp_path / "x.npz")])
    assert stop.value.code == 2
    assert "model.dropout=0.1" in capsys.readouterr().err
