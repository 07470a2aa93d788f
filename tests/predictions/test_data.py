"""What predictions hold: logits, probabilities and scores, each with what serves as logits."""

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.predictions import FLOOR, Logits, Probabilities, Scores
from tests.helpers.predictions import P, Y, Z


def test_each_knows_what_serves_as_logits():
    """Oracle: NumPy's logarithm; a zero counts as half of the last decimal place, of two other classes."""
    logits = Predictions.from_logits(Z.astype(np.float16), Y)
    assert (logits.data_type, type(logits.data)) == (Logits, Logits)
    np.testing.assert_array_equal(logits.data.logits(), Z.astype(np.float16).astype(np.float32), strict=True)
    assert Logits.find_floor(logits) == FLOOR
    probabilities = Predictions.from_probabilities(np.round(P, 3), Y)
    floor = probabilities.data_type.find_floor(probabilities)
    assert (probabilities.data_type, floor) == (Probabilities, pytest.approx(0.0005 / 2))
    np.testing.assert_allclose(probabilities.data.logits(floor), np.log(np.maximum(P, floor)), rtol=1e-14)
    scores = Predictions.from_confidence([0.5, 0.75], [1, 0])
    assert (type(scores.data), scores.data.values.tolist()) == (Scores, [0.5, 0.75])
    with pytest.raises(ValueError, match="confidences alone"):
        scores.data.logits()


def test_the_type_of_opened_data_is_known_before_they_are_read(tmp_path, monkeypatch):
    Predictions.from_logits(Z, Y).save(tmp_path / "a.csv")
    opened = Predictions.open(tmp_path / "a.csv")
    monkeypatch.setattr(type(opened._store), "blocks", None)
    assert opened.data_type is Logits
    assert (opened.data_type.name, opened.data_type.truth, opened.data_type.has_classes) == ("logits", "labels", True)
