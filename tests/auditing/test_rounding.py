"""Audits of rounded probabilities and of forests: close to those of the full numbers, and plainly said."""

import json
import math

import numpy as np
import pytest

from calibrant import Policy, Predictions, audit


def softmax(z):
    exps = np.exp(z - z.max(1, keepdims=True))
    return exps / exps.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def overconfident():
    rng = np.random.default_rng(0)
    honest = 3 * rng.standard_normal((2000, 5))
    return softmax(2.5 * honest), (honest + rng.gumbel(size=honest.shape)).argmax(1)


@pytest.fixture(scope="module")
def audits(overconfident):
    p, y = overconfident
    votes = np.array([np.random.default_rng(i).multinomial(300, row) for i, row in enumerate(p)]) / 300
    versions = {"full": p, "rounded": np.round(p, 4), "forest": votes}
    options = {"replicates": 50}
    return {name: audit(Predictions.from_probabilities(q, y), **options) for name, q in versions.items()}


def finding(result, word):
    return next(f for f in result.models[0]["findings"] if word in f["title"])


def test_it_is_said_first(audits):
    assert "decimal" not in json.dumps(audits["full"].document)
    assert "floor" not in json.dumps(audits["full"].document)
    first = audits["rounded"].models[0]["findings"][0]
    assert first["title"] == "Probabilities have only 4 decimal places, some are 0"
    assert "a 0 counts as 1.3e-05" in first["text"]
    assert audits["forest"].models[0]["findings"][0]["title"] == "Some probabilities are exactly 0"
    assert "one in twice the samples, shared by the 4 other classes" in audits["forest"].advice[0]


def test_the_nll_is_finite_and_its_floor_named(audits, overconfident):
    p, y = overconfident
    floor = 5e-5 / 4
    expected = -np.log(np.maximum(np.round(p, 4)[np.arange(len(y)), y], floor))
    result = audits["rounded"]
    assert result.metrics["nll"] == pytest.approx(expected.mean(), rel=1e-12)
    low, high = result.intervals["nll"]
    assert (high - low) / 2 == pytest.approx(1.959964 * expected.std() / math.sqrt(len(y)), rel=1e-6)
    note = next(metric["note"] for metric in result.models[0]["metrics"] if metric["name"] == "nll")
    assert "label probability 0, counted as 1.3e-05" in note


def test_temperature_scaling_is_that_of_the_full_numbers(audits):
    full, rounded, forest = (finding(audits[name], "Temperature")["title"] for name in audits)
    assert full == rounded == forest == "Temperature scaling helps"
    fitted = {name: finding(audits[name], "Temperature")["evidence"] for name in audits}
    temperatures = {name: float(text.split("T from ")[1].split()[0]) for name, text in fitted.items()}
    assert temperatures["rounded"] == pytest.approx(temperatures["full"], rel=0.1)
    assert temperatures["forest"] == pytest.approx(temperatures["full"], rel=0.1)


def test_two_rounded_models_are_compared_without_a_warning(overconfident):
    p, y = overconfident
    models = {name: Predictions.from_probabilities(np.round(p, places), y) for name, places in (("a", 4), ("b", 3))}
    result = audit(models, replicates=50)
    (comparison,) = result.document["comparisons"]
    assert "nll" not in [row["name"] for row in comparison["rows"]]
    assert any("labels of probability 0 count differently" in note for note in result.models[1]["notes"])


def test_a_policy_keeps_its_floor(overconfident, tmp_path):
    p, y = overconfident
    rounded = Predictions.from_probabilities(np.round(p, 4), y)
    policy = Policy.fit(rounded, target_risk=0.2)
    assert policy.floor == pytest.approx(5e-5 / 4)
    policy.save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    assert loaded.floor == policy.floor
    for a, b in zip(policy.decide(rounded), loaded.decide(rounded), strict=True):
        np.testing.assert_array_equal(a, b)
    zero = np.array([[1.0, 0.0, 0.0, 0.0, 0.0]])
    expected = softmax(np.log(np.maximum(zero, policy.floor)) / policy.calibrator.temperature_).max()
    if policy.calibrator.name == "temperature":
        assert loaded.decide(zero).confidence[0] == pytest.approx(expected)
    full = Policy.fit(Predictions.from_probabilities(p, y), target_risk=0.2)
    full.save(tmp_path / "full.json")
    assert full.floor == 1e-30
    assert "floor" not in json.loads((tmp_path / "full.json").read_text())
    judged = audit(rounded, policy=loaded, replicates=50)
    assert judged.document["policy"]["kept"] in ("yes", "no sign", "unclear")
