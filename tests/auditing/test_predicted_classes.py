"""Confidences with predicted and true classes have tables by class; several models need no names."""

import numpy as np
import pytest

from calibrant import Predictions, audit
from tests.helpers.errors import facts


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
