"""Tokens of a language model: sequences as samples, -100 ignored, and intervals that draw sequences.

Oracles: the same tokens as plain samples for every number, and the bootstrap over sequences written out for intervals.
"""

import re

import numpy as np
import pytest

from calibrant import Predictions, audit
from calibrant.losses import get
from calibrant.metrics import accuracy, ece
from calibrant.posthoc import TemperatureScaling
from tests.helpers.errors import facts

B, T, V = 40, 7, 5


def tokens(seed=0, copies=1):
    """Logits [B, T, V] and labels [B, T], some of them -100; with ``copies`` the tokens of a sequence repeat."""
    rng = np.random.default_rng(seed)
    logits = np.repeat(2 * rng.standard_normal((B, T // copies if copies > 1 else T, V)), copies, axis=1)
    labels = (logits / 2 + np.repeat(rng.gumbel(size=(B, logits.shape[1] // copies, V)), copies, 1)).argmax(2)
    if copies == 1:
        labels[rng.random(labels.shape) < 0.2] = -100
    return logits, labels


@pytest.mark.parametrize("suffix", ["t.npz", "t_logits.npy", "t.safetensors"])
def test_files_have_the_classes_last_and_are_known_by_their_shape(tmp_path, suffix):
    logits, labels = tokens()
    given = Predictions.from_logits(logits, labels, kind="tokens")
    given.save(tmp_path / suffix)
    opened = Predictions.open(tmp_path / suffix).load()
    for predictions in (given, opened):
        assert (predictions.kind, predictions.num_classes, len(predictions)) == ("tokens", V, B)
        np.testing.assert_array_equal(predictions.logits, logits.transpose(0, 2, 1))
        np.testing.assert_array_equal(predictions.labels, labels)
        assert predictions.ignore_index == -100
    if suffix == "t.npz":
        with np.load(tmp_path / suffix) as file:
            np.testing.assert_array_equal(file["logits"], logits)
    np.savez(tmp_path / "plain.npz", logits=logits, labels=labels)
    assert Predictions.open(tmp_path / "plain.npz").kind == "tokens"


def test_numbers_are_those_of_the_tokens_that_count():
    logits, labels = tokens()
    result = audit(Predictions.from_logits(logits, labels, kind="tokens"), replicates=50)
    z, y = logits.reshape(-1, V), labels.reshape(-1)
    z, y = z[y != -100], y[y != -100]
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    right = p.argmax(1) == y
    assert result.metrics["accuracy"] == accuracy(right)
    assert result.metrics["ece"] == pytest.approx(ece(p.max(1), right), abs=1e-12)
    (model,) = result.models
    assert (model["unit"], model["samples"]) == ("tokens", len(y))
    assert re.search(facts(f"{B} sequences", f"{len(y)} tokens", f"{B * T - len(y)} of {B * T}"), str(model["notes"]))
    assert re.fullmatch(r"token \d", model["errors"][0]["place"])


def test_intervals_draw_sequences():
    """Seven copies of each token say no more than one: the interval is as wide as that of the originals."""
    logits, labels = tokens(copies=7)
    wide = audit(Predictions.from_logits(logits, labels, kind="tokens"), replicates=200).intervals["accuracy"]
    one = audit(Predictions.from_logits(logits[:, 0], labels[:, 0]), replicates=200).intervals["accuracy"]
    flat = audit(Predictions.from_logits(logits.reshape(-1, V), labels.reshape(-1)), replicates=200)
    low, high = flat.intervals["accuracy"]
    assert wide[1] - wide[0] == pytest.approx(one[1] - one[0], rel=0.25)
    assert wide[1] - wide[0] > 2 * (high - low)


def test_a_repair_keeps_the_layout():
    logits, labels = tokens()
    given = Predictions.from_logits(logits, labels, kind="tokens")
    scaling = TemperatureScaling().fit(given)
    flat = TemperatureScaling().fit(logits.reshape(-1, V), labels.reshape(-1), ignore_index=-100)
    assert scaling.temperature_ == pytest.approx(flat.temperature_, rel=1e-9)
    repaired = scaling.transform(given)
    np.testing.assert_allclose(repaired.logits, given.logits / scaling.temperature_)
    assert repaired.kind == "tokens"


def test_what_is_unclear_or_not_offered_is_said(tmp_path):
    logits, labels = tokens()
    with pytest.raises(ValueError, match=facts("[B, T, V]", 'kind="tokens"')):
        Predictions.from_logits(logits, labels)
    np.savez(tmp_path / "square.npz", logits=logits[:, :V], labels=labels[:, :V])
    with pytest.raises(ValueError, match=facts('kind="tokens"')):
        Predictions.open(tmp_path / "square.npz")
    assert Predictions.open(tmp_path / "square.npz", kind="tokens").num_classes == V
    for suffix in ("csv", "jsonl", "parquet"):
        with pytest.raises(ValueError, match=facts(".npz", ".npy", ".safetensors")):
            Predictions.from_logits(logits, labels, kind="tokens").save(tmp_path / f"x.{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == ["square.npz"]
    broken = logits.copy()
    broken[2, 3, 1] = np.nan
    with pytest.raises(ValueError, match=facts("row 2", "class 1", "token 3")):
        Predictions.from_logits(broken, labels, kind="tokens")


def test_losses_and_predictions_ignore_the_same_label():
    logits, labels = np.eye(3), np.array([0, -100, 2])
    assert get("ce").ignore_index == Predictions.from_logits(logits, labels).ignore_index == -100
    result = audit(Predictions.from_logits(np.tile(logits, (20, 1)), np.tile(labels, 20)), replicates=20)
    assert result.models[0]["samples"] == 40
    assert re.search(facts("20 of 60 samples"), str(result.models[0]["notes"]))
    with pytest.raises(ValueError, match=facts("0..2", "-100")):
        Predictions.from_logits(logits, labels, ignore_index=None)


def test_a_class_that_is_called_so_is_not_ignored(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("labels,logits.-100,logits.7\n-100,2,1\n7,1,3\n")
    assert Predictions.open(path).labels.tolist() == [0, 1]
