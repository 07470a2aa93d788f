"""Tests of findings."""

import json
import math
import re

import numpy as np
import pytest

from calibrant import Policy, Predictions, audit
from tests.helpers.audits import drawn, smoothed, titles
from tests.helpers.errors import facts


@pytest.fixture(scope="module")
def overconfident():
    z, y = drawn(4000, 7, 2.5, 1)
    return z, y, audit(Predictions.from_logits(z, y), replicates=100)


def test_overconfidence_is_found_and_temperature_scaling_advised(overconfident):
    *_, found = overconfident
    assert found.document["verdict"]["level"] == "poor"
    assert "overconfident" in found.verdict.lower()
    fix = found.models[0]["fixes"][0]
    assert fix["high"] < 0
    assert "T from 2." in fix["fitted"] or "T = 2." in fix["fitted"]
    assert any("Temperature scaling" in line for line in found.advice)


@pytest.mark.parametrize(
    ("size", "classes", "heat", "seed", "level", "word"),
    [
        (4000, 7, 1.0, 2, "good", ""),
        (3000, 7, 0.4, 3, "poor", "underconfident"),
        *((size, 6, 2.0, seed, "poor", "overconfident") for size in (200, 400, 1500) for seed in (40, 41)),
        (150, 6, 1.0, 50, "unknown", ""),  # calibrated, but too few to be called so
        (30, 4, 3.0, 8, "unknown", ""),
        (1, 4, 3.0, 8, "unknown", ""),
    ],
)
def test_verdicts(size, classes, heat, seed, level, word):
    found = audit(Predictions.from_logits(*drawn(size, classes, heat, seed)), replicates=50)
    assert found.document["verdict"]["level"] == level
    assert word in found.verdict.lower()
    assert level != "good" or found.intervals["ece_15"][0] == 0


def test_the_trace_of_label_smoothing_is_found():
    z, y = smoothed(6000, 4)
    found = audit(Predictions.from_logits(z, y), replicates=100)
    assert any("logit" in title for title in titles(found))
    norm = found.models[0]["logits"]
    assert len(norm["msp"]) == len(norm["right_mean"]) == len(norm["wrong_mean"])


@pytest.mark.parametrize("right", [True, False])
def test_all_right_and_all_wrong(right):
    z, _ = drawn(300, 4, 2.0, 9)
    y = z.argmax(1) if right else z.argmin(1)
    found = audit(Predictions.from_logits(z, y), replicates=50)
    json.loads(found.to_json())
    assert found.metrics["accuracy"] == float(right)
    assert math.isnan(found.metrics["overconfidence" if right else "underconfidence"])


def test_labels_of_one_class_cannot_judge_a_model():
    p = np.random.default_rng(0).uniform(0.05, 0.95, 400)
    found = audit(Predictions.from_probabilities(p, ["no"] * 400, positive="yes"), replicates=50)
    assert " no" in found.verdict
    assert found.document["verdict"]["level"] == "unknown"


def test_a_column_of_the_other_class_is_suspected_first():
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 0.5, 600)
    labels = np.where(rng.random(600) < p, "yes", "no")
    right = audit(Predictions.from_probabilities(p, labels, positive="yes"), replicates=50)
    assert "--positive yes" not in json.dumps(right.models[0]["findings"])
    wrong = audit(Predictions.from_probabilities(p, labels, positive="no"), replicates=50)
    assert wrong.document["verdict"]["level"] == "poor"
    assert "--positive yes" in wrong.models[0]["findings"][0]["text"]
    assert max(row["misplaced"] for row in wrong.models[0]["labels_table"]) <= 1


def softmax(z):
    exps = np.exp(z - z.max(1, keepdims=True))
    return exps / exps.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def full_probabilities():
    rng = np.random.default_rng(0)
    honest = 3 * rng.standard_normal((2000, 5))
    return softmax(2.5 * honest), (honest + rng.gumbel(size=honest.shape)).argmax(1)


@pytest.fixture(scope="module")
def audits(full_probabilities):
    p, y = full_probabilities
    votes = np.array([np.random.default_rng(i).multinomial(300, row) for i, row in enumerate(p)]) / 300
    versions = {"full": p, "rounded": np.round(p, 4), "forest": votes}
    options = {"replicates": 50}
    return {name: audit(Predictions.from_probabilities(q, y), **options) for name, q in versions.items()}


def finding(result, word):
    return next(f for f in result.models[0]["findings"] if word in f["title"])


def test_rounding_is_the_first_of_the_notes(audits):
    first, of_forest = (
        next(finding for finding in audits[name].models[0]["findings"] if finding["level"] == "info")
        for name in ("rounded", "forest")
    )
    assert re.search(facts("4", "0"), first["title"])
    assert re.search(facts("1.3e-05"), first["text"]), "the floor"
    assert "0" in of_forest["title"]
    assert "1.3e-05" not in json.dumps(audits["full"].document)


def test_temperature_scaling_is_that_of_the_full_numbers(audits):
    full, rounded, forest = (finding(audits[name], "Temperature")["title"] for name in audits)
    assert full == rounded == forest
    fitted = {name: finding(audits[name], "Temperature")["evidence"] for name in audits}
    temperatures = {name: float(text.split("T from ")[1].split()[0]) for name, text in fitted.items()}
    assert temperatures["rounded"] == pytest.approx(temperatures["full"], rel=0.1)
    assert temperatures["forest"] == pytest.approx(temperatures["full"], rel=0.1)


@pytest.mark.slow
def test_two_rounded_models_are_compared_without_a_warning(full_probabilities):
    p, y = full_probabilities
    models = {name: Predictions.from_probabilities(np.round(p, places), y) for name, places in (("a", 4), ("b", 3))}
    result = audit(models, replicates=50)
    (comparison,) = result.document["comparisons"]
    assert "nll" not in [row["name"] for row in comparison["rows"]]
    assert result.models[1]["notes"]


@pytest.mark.slow
def test_a_policy_keeps_its_floor(full_probabilities, tmp_path):
    p, y = full_probabilities
    rounded = Predictions.from_probabilities(np.round(p, 4), y)
    policy = Policy.fit(rounded, target_risk=0.2)
    assert policy.floor == pytest.approx(5e-5 / 4)
    policy.save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    assert loaded.floor == policy.floor
    full = Policy.fit(Predictions.from_probabilities(p, y), target_risk=0.2)
    full.save(tmp_path / "full.json")
    assert full.floor == 1e-30
    assert "floor" not in json.loads((tmp_path / "full.json").read_text())
    judged = audit(rounded, policy=loaded, replicates=50)
    assert judged.document["policy"]["kept"] in ("yes", "no sign", "unclear")
