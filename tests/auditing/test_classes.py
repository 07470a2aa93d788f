"""Every class on its own: hand-worked counts, exact limits, and no alarms about calibrated models."""

import re

import numpy as np
import pytest
from scipy.stats import binomtest

from calibrant import Predictions, audit
from calibrant.auditing.classes import FAIR_FROM, check_classes
from calibrant.auditing.collect import collect
from tests.helpers.errors import facts


def check(p, labels, **how):
    return check_classes(collect(Predictions.from_probabilities(p, labels, **how)), 0.95)


def calibrated(seed, n, shift, scale):
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-(shift + scale * rng.standard_normal(n))))
    return p, (rng.random(n) < p).astype(int)


def test_counts_and_limits_by_hand():
    # 900 samples at 0.02, of which 9 happen; 100 at 0.9, of which 40 happen.
    p = np.repeat([0.02, 0.9], [900, 100])
    labels = np.concatenate([np.arange(900) < 9, np.arange(100) < 40]).astype(int)
    classes = check(p, labels)
    row = classes.rows[1]
    assert (row.labels, row.predicted, row.correct, classes.tested) == (49, 100, 40, 2)
    assert row.claimed == pytest.approx((900 * 0.02 + 100 * 0.9) / 1000)
    high = binomtest(40, 100).proportion_ci(1 - 0.05 / 2, method="exact").high
    low, top = binomtest(9, 900).proportion_ci(1 - 0.05 / 2, method="exact")
    assert low < 0.02
    expected = (100 * (0.9 - high) + 900 * max(0.0, 0.02 - top)) / (900 * 0.02 + 100 * 0.9)
    assert row.misplaced == pytest.approx(expected, rel=1e-9)
    assert (row.worst.count, row.worst.claimed, row.worst.happened.value) == (100, pytest.approx(0.9), 0.4)


def test_the_majority_and_mcnemar_by_hand():
    p = np.repeat([0.02, 0.9], [900, 100])
    labels = np.concatenate([np.arange(900) < 9, np.arange(100) < 40]).astype(int)
    majority = check(p, labels).majority
    assert (majority.name, majority.errors, majority.model_errors) == ("0", 49, 69)
    # Where only one is right: 40 positives found by the model, 60 negatives by the constant answer.
    assert majority.p_value == pytest.approx(binomtest(40, 100, 0.5).pvalue)
    findings = audit(Predictions.from_probabilities(p, labels), replicates=50).models[0]["findings"]
    assert any(re.search(facts("49", "69", "1,000"), finding["evidence"]) for finding in findings)


def test_a_rare_class_caps_the_verdict():
    rng = np.random.default_rng(0)
    n = 20_000
    happens = np.where(np.arange(n) < 2000, 0.002, 0.0005)
    says = np.where(np.arange(n) < 2000, 0.08, 0.0005)
    document = audit(Predictions.from_probabilities(says, (rng.random(n) < happens).astype(int)), replicates=50).models[
        0
    ]
    assert document["verdict"]["level"] == "poor"
    assert all(fact in document["verdict"]["headline"] for fact in ("class 1", "8.00%", "0.20%"))
    levels = [finding["level"] for finding in document["findings"]]
    assert levels == sorted(levels, key=["poor", "fair", "info", "good"].index), "the worst is first"
    assert "class 1" in document["findings"][0]["title"]


def test_two_brier_scores_have_two_names():
    rng = np.random.default_rng(0)
    says = rng.random(500)
    model = audit(Predictions.from_probabilities(says, (rng.random(500) < says).astype(int)), replicates=20).models[0]
    whole = next(row for row in model["metrics"] if row["name"] == "brier")
    of_positive = next(row for row in model["positive"]["metrics"] if row["label"].startswith("Brier"))
    assert whole["value"] == pytest.approx(2 * of_positive["value"])
    assert whole["label"] != "Brier score"
    assert whole["label"] != of_positive["label"]


def test_a_class_among_several_caps_the_verdict():
    rng = np.random.default_rng(1)
    n = 6000
    z = 2 * rng.standard_normal((n, 4)) + [4, 0, 0, -1]
    labels = (z + rng.gumbel(size=z.shape)).argmax(1)
    assert check_classes(collect(Predictions.from_logits(z, labels)), 0.95).worst is None
    z[:, 3] += 2.5  # says far more of the rare class than happens
    worst = check_classes(collect(Predictions.from_logits(z, labels)), 0.95).worst
    assert worst.name == "3"
    assert worst.misplaced > FAIR_FROM


@pytest.mark.parametrize(("shift", "scale"), [(-5, 2), (0, 3)])
def test_calibrated_models_raise_no_alarm(shift, scale):
    alarms = [check(*calibrated(seed, 1500, shift, scale)).worst for seed in range(40)]
    assert sum(row is not None for row in alarms) <= 6  # at most 5% are allowed; more than 6 of 40 are with p < 0.002
    assert all(row is None or row.misplaced < FAIR_FROM for row in alarms)


def test_the_positive_class_as_said_by_custom_or_the_rarer():
    p, labels = calibrated(0, 300, -2, 1)
    words = np.array(["no", "yes"])[labels]
    both = {"class_names": ["no", "yes"]}
    assert check(p, labels).positive == 1
    assert check(np.stack([1 - p, p], 1), labels, **both).rows[1].name == "yes"
    assert check(p, words, positive="no").positive == 1  # the second, as the column is of it
    part = audit(Predictions.from_probabilities(p, words, positive="yes"), replicates=50).models[0]["positive"]
    assert part["name"] == "yes"
    assert sum(part["reliability"]["count"]) == 300
    values = {row["label"]: row["value"] for row in part["metrics"]}
    assert values["Brier score of P"] == pytest.approx(np.mean((p - labels) ** 2))
    assert values["Log loss"] == pytest.approx(-np.log(np.where(labels, p, 1 - p)).mean())
    assert values["Recall"] == pytest.approx((p[labels == 1] > 0.5).mean())
    assert values["Precision"] == pytest.approx(labels[p > 0.5].mean())


def test_the_log_loss_of_impossible_events_names_its_floor():
    """A probability of 0 for what happened: the number is finite, and its note says what it rests on."""
    says, happens = np.repeat([0.0, 0.25, 0.5], 400), np.tile([0, 0, 0, 1], 300)
    positive = audit(Predictions.from_probabilities(says, happens), replicates=50).models[0]["positive"]
    row = next(row for row in positive["metrics"] if row["label"] == "Log loss")
    assert np.isfinite(row["value"])
    assert all(fact in row["note"] for fact in ("100 samples", "0.005", "infinite"))


def test_confidences_with_classes_have_a_table(tmp_path):
    rng = np.random.default_rng(0)
    sure, predicted = rng.uniform(0.5, 1.0, 300), np.array(["cat", "dog"])[rng.integers(0, 2, 300)]
    labels = np.where(rng.random(300) < sure, predicted, "fox")
    given = Predictions.from_confidence(sure, predicted=predicted, labels=labels)
    given.save(tmp_path / "x.parquet")
    for predictions in (given, Predictions.open(tmp_path / "x.parquet")):
        model = audit(predictions, replicates=20).models[0]
        counts = {row["name"]: row["count"] for row in model["classes_table"]}
        assert counts == {name: int((predicted == name).sum()) for name in ("cat", "dog")}
        accuracy = {row["name"]: row["accuracy"] for row in model["classes_table"]}
        assert accuracy["cat"] == pytest.approx((labels == predicted)[predicted == "cat"].mean())


def test_errors_of_confidences_have_both_classes(tmp_path):
    predicted, labels = np.array(["cat", "dog", "cat", "fox"] * 30), np.array(["cat", "cat", "eel", "fox"] * 30)
    sure = np.linspace(0.5, 0.99, 120)
    given = Predictions.from_confidence(sure, predicted=predicted, labels=labels)
    given.save(tmp_path / "saved.parquet")
    rows = "\n".join(f"{c:.4f},{p},{y}" for c, p, y in zip(sure, predicted, labels, strict=True))
    (tmp_path / "given.csv").write_text(f"confidence,predicted,label\n{rows}\n", encoding="utf-8")
    numbers = Predictions.from_confidence(sure, predicted=np.arange(120) % 4, labels=np.arange(120) % 2)
    for predictions in (given, *(Predictions.open(tmp_path / name) for name in ("saved.parquet", "given.csv"))):
        model = audit(predictions, replicates=20).models[0]
        assert [(e["id"], e["label"], e["predicted"]) for e in model["errors"][:2]] == [
            (118, "eel", "cat"), (117, "cat", "dog"),
        ]  # fmt: skip
        assert (model["errors_in_all"], len(model["errors"])) == (60, 50)
    first = audit(numbers, replicates=20).models[0]["errors"][0]
    assert (first["label"], first["predicted"]) == ("1", "3")


def test_models_without_names():
    z, y = np.random.default_rng(1).standard_normal((120, 3)), np.arange(120) % 3
    a, b = Predictions.from_logits(z, y), Predictions.from_logits(2 * z, y)
    assert [model["name"] for model in audit(a, b, replicates=20).models] == ["model 1", "model 2"]
    with pytest.raises(ValueError, match=facts("both")):
        audit({"a": a}, b)


def test_several_labels_are_refused_plainly():
    p = np.full((6, 3), 1 / 3)
    with pytest.raises(ValueError, match=facts("labels", "binary")):
        Predictions.from_probabilities(p, np.array([[1, 1, 0]] * 6))
    with pytest.raises(ValueError, match=facts(".argmax(1)")):
        Predictions.from_probabilities(p, np.eye(3, dtype=int)[[0, 1, 2, 0, 1, 2]])
