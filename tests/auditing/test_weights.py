"""An audit and a check of samples with weights: numbers of weighted samples, and what they do not do with weights."""

import numpy as np
import pytest

from calibrant import Policy, Predictions, audit, check, metrics
from calibrant.auditing.collect import collect
from tests.helpers.errors import facts

RNG = np.random.default_rng(4)
LOGITS = 2 * RNG.normal(size=(1203, 4))
LABELS = (LOGITS / 2 + RNG.gumbel(size=LOGITS.shape)).argmax(1)
SITE = np.where(np.arange(len(LABELS)) % 3 == 0, "a", "b")
TIMES = RNG.integers(0, 4, len(LABELS))
PLAIN = {"level": 0.9, "replicates": 60}


def predictions(weight=None, rows=None, **more):
    rows = slice(None) if rows is None else rows
    return Predictions.from_logits(LOGITS[rows], LABELS[rows], groups={"site": SITE[rows]}, weight=weight, **more)


REPEATED = np.repeat(np.arange(len(LABELS)), TIMES)


def test_numbers_are_those_of_repeated_rows_with_wider_intervals():
    weighted = audit(predictions(TIMES.astype(float)), **PLAIN)
    repeated = audit(predictions(rows=REPEATED), **PLAIN)
    for name, value in repeated.metrics.items():
        exact = name in ("accuracy", "nll", "brier", "classwise_ece", "auroc", "overconfidence") or "ece_1" in name
        assert weighted.metrics[name] == pytest.approx(value, abs=1e-9 if exact else 2e-3), name
    (before, after) = (dict(repeated.intervals), dict(weighted.intervals))
    for name in ("accuracy", "nll", "brier", "mean_confidence", "auroc"):
        widths = [high - low for low, high in (after[name], before[name])]
        # 1,203 rows of different weights say less than 1,800 rows that are all different.
        assert widths[0] > 1.1 * widths[1], name


def test_weights_that_are_all_alike_change_nothing():
    weighted, plain = (audit(predictions(w), **PLAIN) for w in (np.full(len(LABELS), 3.0), None))
    assert weighted.metrics == pytest.approx(plain.metrics, rel=1e-12)
    assert weighted.verdict == plain.verdict
    for name, limits in plain.intervals.items():
        assert weighted.intervals[name] == pytest.approx(limits, rel=1e-9, nan_ok=True), name


def test_tables_of_classes_and_groups_are_weighted():
    model = audit(predictions(TIMES.astype(float)), **PLAIN).document["models"][0]
    repeated = audit(predictions(rows=REPEATED), **PLAIN).document["models"][0]
    for ours, theirs in zip(model["groups"][0]["rows"], repeated["groups"][0]["rows"], strict=True):
        for name in ("accuracy", "confidence", "gap", "ece"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-9)
        assert ours["count"] == int((ours["name"] == SITE).sum())
    for ours, theirs in zip(model["classes_table"], repeated["classes_table"], strict=True):
        assert ours["classwise_ece"] == pytest.approx(theirs["classwise_ece"], rel=1e-9)
    for ours, theirs in zip(model["labels_table"], repeated["labels_table"], strict=True):
        assert ours["claimed"] == pytest.approx(theirs["claimed"], rel=1e-9)
    effective = TIMES.sum() ** 2 / (TIMES**2).sum()
    assert sum(row["labels"] for row in model["labels_table"]) == pytest.approx(effective, abs=4)
    assert any(f"{effective:,.0f}" in note for note in model["notes"])


def test_a_class_that_is_only_heavy_is_the_majority():
    weight = np.where(LABELS == 2, 20.0, 1.0)
    model = audit(predictions(weight), **PLAIN).document["models"][0]
    assert model["majority"]["name"] == "2"
    assert model["labels_table"][-1]["name"] == "2"


def test_a_check_is_of_the_weighted_samples():
    weight = np.where(metrics.top_label(LOGITS, LABELS)[2], 1.0, 0.001)  # hardly an error counts
    assert check(predictions(weight), "accuracy >= 0.99").passed
    assert not check(predictions(), "accuracy >= 0.99").passed
    assert check(predictions(weight), "accuracy >= 0.99", groups="site").passed


def test_policies_are_not_judged_by_weighted_samples():
    policy = Policy.fit(predictions(), target_risk=0.3)
    for judge in (lambda p: audit(p, policy=policy), lambda p: check(p, "policy.risk <= 0.5", policy=policy)):
        with pytest.raises(ValueError, match=facts("weight")):
            judge(predictions(np.arange(1.0, len(LABELS) + 1)))


def test_the_next_step_leaves_weights_out():
    result = audit(predictions(TIMES.astype(float)), val=predictions(rows=np.arange(600), split="val"), **PLAIN)
    assert "unweighted()" in str(result.document["next"])


def test_two_models_are_compared_on_weighted_samples():
    weight = np.where(np.arange(len(LABELS)) % 2, 1.0, 5.0)
    other = predictions(weight, rows=None)
    sharper = Predictions.from_logits(3 * LOGITS, LABELS, weight=weight)
    rows = {row["name"]: row for row in audit(other, sharper, **PLAIN).document["comparisons"][0]["rows"]}
    for name, metric in (("nll", metrics.nll), ("brier", metrics.brier)):
        difference = metric(3 * LOGITS, LABELS, weight=weight) - metric(LOGITS, LABELS, weight=weight)
        assert rows[name]["difference"] == pytest.approx(difference, rel=1e-9)
        assert rows[name]["low"] < difference < rows[name]["high"]


def test_labels_of_probability_zero_weigh_what_their_samples_do():
    p = np.array([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75]] * 40)
    y, weight = np.array([0, 1, 1] * 40), np.array([1.0, 3.0, 2.0] * 40)
    collected = collect(Predictions.from_probabilities(p, y, weight=weight))
    floored = np.where(p == 0, collected.floor, p)[np.arange(120), y]
    expected = np.average(-np.log(floored), weights=weight)
    assert collected.summary().measure("nll") == pytest.approx(expected, rel=1e-12)


def test_images_have_weights(tmp_path):
    z = RNG.normal(size=(12, 3, 4, 5))
    y = RNG.integers(0, 3, (12, 4, 5))
    weight = RNG.gamma(1.0, 1.0, 12)
    result = audit(Predictions.from_logits(z, y, weight=weight, kind="segmentation"), **PLAIN)
    assert result.metrics["nll"] == pytest.approx(metrics.nll(z, y, weight=weight), rel=1e-9)
    assert result.metrics["mean_iou"] == pytest.approx(metrics.mean_iou(z, y, classes=3, weight=weight), rel=1e-9)
    low, high = result.intervals["accuracy"]
    assert low < result.metrics["accuracy"] < high


def test_one_heavy_sample_supports_no_claim():
    weight = np.where(np.arange(len(LABELS)) == 5, 1e6, 1.0)
    result = audit(predictions(weight), **PLAIN)
    assert result.models[0]["verdict"]["level"] == "unknown"
    assert "1 sample" in result.verdict
    assert all(np.isnan(limits).all() for limits in result.intervals.values())
    assert not any(finding["level"] in ("poor", "fair") for finding in result.models[0]["findings"])


def test_shares_of_classes_are_not_rounded_to_counts():
    weight = np.where(np.arange(len(LABELS)) % 5 == 0, 40.0, 1.0)
    result = audit(predictions(weight), **PLAIN).models[0]
    _, predicted, correct = metrics.top_label(LOGITS, LABELS)
    for row in result["labels_table"]:
        k = int(row["name"])
        assert row["happened"] == pytest.approx(np.average(k == LABELS, weights=weight), rel=1e-9)
        assert row["precision"]["value"] == pytest.approx(
            np.average(correct[predicted == k], weights=weight[predicted == k]), rel=1e-9
        )
        assert row["recall"]["value"] == pytest.approx(
            np.average(correct[k == LABELS], weights=weight[k == LABELS]), rel=1e-9
        )
        assert isinstance(row["labels"], int)
        assert isinstance(row["precision"]["of"], int)
    assert result["majority"]["model_error"] == pytest.approx(1 - np.average(correct, weights=weight), rel=1e-9)


def test_only_the_ratios_of_weights_of_images_count():
    z = RNG.normal(size=(23, 3, 4, 5))
    y = RNG.integers(0, 3, (23, 4, 5))
    weight = RNG.gamma(1.0, 1.0, 23)
    small, large = (
        audit(Predictions.from_logits(z, y, weight=scale * weight, kind="segmentation"), **PLAIN).intervals
        for scale in (1e-3, 1e3)
    )
    for name, limits in small.items():
        assert limits == pytest.approx(large[name], rel=1e-9, nan_ok=True), name


def test_models_are_compared_with_the_same_weights_only():
    weight = RNG.gamma(1.0, 1.0, len(LABELS))
    first = predictions(weight)
    for other in (predictions(weight[::-1]), predictions()):
        result = audit(first, other, **PLAIN)
        assert result.document["comparisons"] == []
        assert any("weights are not the same" in note for note in result.models[1]["notes"])
        with pytest.raises(ValueError, match=facts("baseline", "weights")):
            check(first, "ece no worse by 0.01", baseline=other)
    assert audit(first, predictions(2 * weight), **PLAIN).document["comparisons"]


def test_a_group_without_weight_is_not_judged():
    weight = np.where(SITE == "a", 0.0, RNG.gamma(1.0, 1.0, len(LABELS)))
    judged = check(predictions(weight), "accuracy >= 0.01", groups="site").requirements
    assert [judgement.group for judgement in judged] == ["", "site=b"]
