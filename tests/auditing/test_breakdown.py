"""Tests of breakdown."""

import json

import numpy as np
import pytest

from calibrant import Predictions, audit
from calibrant.auditing import confidence_by_objectness
from calibrant.auditing.breakdown import ObjectSizes
from tests.helpers.audits import drawn, titles


@pytest.mark.slow
def test_a_bad_group_and_a_bad_class_are_named():
    z, y = drawn(6000, 5, 1.0, 6)
    rng = np.random.default_rng(6)
    site = rng.choice(["A", "B", "C"], 6000)
    z[site == "B"] *= 4
    found = audit(Predictions.from_logits(z, y, groups={"site": site}), replicates=50)
    rows = {row["name"]: row for row in found.models[0]["groups"][0]["rows"]}
    assert [name for name, row in rows.items() if row["flag"]] == ["B"]
    assert any("site" in title for title in titles(found))
    z, y = drawn(6000, 5, 1.0, 7)
    z[:, 2] += 2.0  # class 2 is predicted far too often
    flagged = [row["name"] for row in audit(Predictions.from_logits(z, y), replicates=50).models[0]["classes_table"]
               if row["flag"]]  # fmt: skip
    assert "2" in flagged


@pytest.mark.slow
def test_nothing_is_flagged_without_cause():
    """20 groups and 5 classes of a calibrated model, ten times: Holm's procedure flags one of all 5% of the time."""
    flagged = 0
    for seed in range(10):
        z, y = drawn(2000, 5, 1.0, 100 + seed)
        group = np.random.default_rng(seed).integers(0, 20, 2000)
        found = audit(Predictions.from_logits(z, y, groups={"g": group}), replicates=20)
        flagged += any(row["flag"] for row in found.models[0]["groups"][0]["rows"])
        flagged += any(row["flag"] for row in found.models[0]["classes_table"])
    assert flagged <= 3  # of 20


@pytest.mark.slow
def test_many_small_classes_of_a_calibrated_model_are_left_alone():
    flagged = 0
    for seed in range(2):
        z, y = drawn(3000, 300, 1.0, 60 + seed)
        table = audit(Predictions.from_logits(z, y), replicates=20).models[0]["classes_table"]
        flagged += any(row["flag"] for row in table)
    assert flagged == 0


@pytest.fixture
def predictions():
    random = np.random.default_rng(5)
    logits, labels = random.normal(0, 2, (523, 4)), random.integers(0, 4, 523)
    return Predictions.from_logits(logits, labels, objectness=random.uniform(0, 1, 523))


def confidence(predictions):
    p = np.exp(predictions.logits)
    return (p / p.sum(1, keepdims=True)).max(1)


def test_an_audit_shows_confidence_by_object_size(predictions, tmp_path):
    result = audit(predictions, replicates=50)
    sure, size = confidence(predictions), np.asarray(predictions.objectness)
    gaps = np.abs(sure - size)
    assert result.metrics["objectness_deviation"] == pytest.approx(gaps.mean())
    low, high = result.intervals["objectness_deviation"]
    assert (high - low) / 2 == pytest.approx(1.959964 * gaps.std(ddof=1) / np.sqrt(523), rel=1e-5)
    part = json.loads(result.to_json())["models"][0]["objects"]
    right = predictions.logits.argmax(1) == predictions.labels
    for k in range(10):
        inside = (size >= k / 10) & (size < (k + 1) / 10)
        assert part["count"][k] == inside.sum()
        assert part["confidence"][k] == pytest.approx(sure[inside].mean())
        assert part["accuracy"][k] == pytest.approx(right[inside].mean())
    result.to_html(tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert "Objectness deviation" in page


def test_parts_add_up_and_the_largest_object_is_in_the_last_bin():
    random = np.random.default_rng(6)
    size, sure = np.append(random.uniform(0, 1, 40), 1.0), np.append(random.uniform(0, 1, 40), 0.5)
    whole, parts = ObjectSizes(), ObjectSizes()
    whole.add(size, sure, sure > 0.5)
    parts.add(size[:17], sure[:17], sure[:17] > 0.5)
    parts.add(size[17:], sure[17:], sure[17:] > 0.5)
    for name, value in vars(whole).items():
        np.testing.assert_allclose(getattr(parts, name), value)
    assert whole.counts[-1] == (size >= 0.9).sum()
    with pytest.raises(ValueError, match="objectness"):
        whole.add(np.array([1.2]), np.array([0.5]))


def test_means_of_bins_are_those_of_their_samples():
    part = confidence_by_objectness([0.2, 0.4, 0.9], [0.0, 0.49, 0.5], bins=2)
    assert part["count"].tolist() == [2, 1]
    np.testing.assert_allclose(part["confidence"], [0.3, 0.9])
    np.testing.assert_allclose(part["objectness"], [0.245, 0.5])
