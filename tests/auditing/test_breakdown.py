"""Tests of breakdown."""

import numpy as np

from calibrant import Predictions, audit
from tests.helpers.audits import drawn, titles


def test_a_bad_group_and_a_bad_class_are_named():
    z, y = drawn(6000, 5, 1.0, 6)
    rng = np.random.default_rng(6)
    site = rng.choice(["A", "B", "C"], 6000)
    z[site == "B"] *= 4
    found = audit(Predictions.from_logits(z, y, groups={"site": site}), replicates=50)
    rows = {row["name"]: row for row in found.models[0]["groups"][0]["rows"]}
    assert [name for name, row in rows.items() if row["flag"]] == ["B"]
    assert any("groups of site" in title for title in titles(found))
    z, y = drawn(6000, 5, 1.0, 7)
    z[:, 2] += 2.0  # class 2 is predicted far too often
    flagged = [row["name"] for row in audit(Predictions.from_logits(z, y), replicates=50).models[0]["classes_table"]
               if row["flag"]]  # fmt: skip
    assert "2" in flagged


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


def test_many_small_classes_of_a_calibrated_model_are_left_alone():
    flagged = 0
    for seed in range(4):
        z, y = drawn(3000, 300, 1.0, 60 + seed)
        table = audit(Predictions.from_logits(z, y), replicates=20).models[0]["classes_table"]
        flagged += any(row["flag"] for row in table)
    assert flagged <= 1
