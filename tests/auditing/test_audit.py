"""The audit: numbers as the exact functions give them, findings for planted faults, streaming, files and command."""

import html
import re

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from calibrant import Predictions, audit, check
from tests.helpers.audits import drawn
from tests.helpers.errors import facts


def test_segmentation_pools_pixels_and_ignores_void():
    rng = np.random.default_rng(11)
    z = 3 * rng.standard_normal((4, 3, 8, 9))
    y = z.argmax(1)
    y[rng.random(y.shape) < 0.4] = 0
    y[:, :2] = 255
    found = audit(Predictions.from_logits(z, y, kind="segmentation", ignore_index=255), replicates=50)
    keep = y != 255
    flat = audit(Predictions.from_logits(np.moveaxis(z, 1, -1)[keep], y[keep]), replicates=50)
    assert found.models[0]["samples"] == keep.sum()
    for name, value in flat.metrics.items():
        assert found.metrics[name] == pytest.approx(value, abs=1e-9, nan_ok=True), name
    assert "mean_iou" not in flat.metrics
    table = confusion_matrix(y[keep], z.argmax(1)[keep])
    iou = np.diag(table) / (table.sum(0) + table.sum(1) - np.diag(table))
    assert found.metrics["mean_iou"] == pytest.approx(iou.mean())
    assert found.metrics["accuracy"] == pytest.approx(np.diag(table).sum() / table.sum())


@pytest.mark.slow
def test_models_are_compared_on_the_same_samples_only():
    z, y = drawn(1500, 5, 2.0, 13)
    same = {"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(z / 2, y)}
    comparison = audit(same, replicates=100).document["comparisons"][0]
    rows = {row["label"]: row for row in comparison["rows"]}
    assert rows["Accuracy"]["difference"] == 0
    assert rows["ECE (15 bins)"]["high"] < 0
    other = {"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(z, np.roll(y, 1))}
    found = audit(other, replicates=50)
    assert found.document["comparisons"] == []
    assert any("labels" in note for note in found.models[1]["notes"])
    shorter = {"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(z[1:], y[1:])}
    assert any("1,499" in note for note in audit(shorter, replicates=50).models[1]["notes"])


@pytest.mark.slow
def test_repeated_ids_are_said_first_and_can_be_left_out(tmp_path):
    """Every sample twice: numbers as of one copy, intervals as of twice the evidence, until the copies are left out."""
    z, y = drawn(800, 4, 1.0, 5)
    ids = [f"s{i}" for i in range(800)]
    once = Predictions.from_logits(z, y, ids=ids)
    twice = Predictions.from_logits(np.r_[z, z], np.r_[y, y], ids=ids * 2)
    results = [audit(once, replicates=50), audit(twice, replicates=50), audit(twice, repeats="first", replicates=50)]
    single, double, first = results
    assert single.document["warnings"] == first.document["warnings"] == []
    (warning,) = double.document["warnings"]
    assert re.search(facts("800", "1,600", "--repeats first"), warning)
    assert double.metrics["accuracy"] == single.metrics["accuracy"]
    assert double.intervals["accuracy"] != single.intervals["accuracy"]
    assert (first.metrics, first.intervals) == (single.metrics, single.intervals)
    assert re.search(facts("800", "1,600"), first.models[0]["notes"][0])
    for result, is_there in ((double, True), (single, False)):
        result.to_html(tmp_path / "r.html")
        page = (tmp_path / "r.html").read_text()
        assert (html.escape(warning) in page) == is_there
    both = audit({"a": once, "b": twice}, val=twice, replicates=50).document["warnings"]
    assert {"b", "Held-out predictions"} <= {text.partition(":")[0] for text in both}
    with pytest.raises(ValueError, match="'last'"):
        audit(twice, repeats="last")


def test_values_of_another_meaning_are_said_first():
    z, y = drawn(300, 4, 1.0, 5)
    shares = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    (warning,) = audit(Predictions.from_logits(shares, y), replicates=20).document["warnings"]
    assert "softmax" in warning
    assert check(Predictions.from_logits(shares, y), "ece <= 0.5").notes == (warning,)
    assert check(Predictions.from_logits(z, y), "ece <= 0.5").notes == ()


def test_images_not_pixels_are_drawn():
    """20 images, right or wrong as a whole: as much is known of the accuracy as from 20 samples."""
    rng = np.random.default_rng(70)
    z = np.zeros((20, 2, 6, 6))
    z[:, 0] = 1.0
    y = np.repeat(rng.integers(0, 2, 20), 36).reshape(20, 6, 6)
    low, high = audit(Predictions.from_logits(z, y, kind="segmentation"), replicates=200).intervals["accuracy"]
    assert high - low > 0.3
