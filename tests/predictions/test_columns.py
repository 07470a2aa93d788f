"""What the caller says about columns: refused before a file is opened where it contradicts itself."""

import pytest

from calibrant import Predictions


def test_mappings_that_cannot_be(tmp_path):
    for bad, message in (
        ({"truth": "labels"}, "expected logits, .* group.NAME, got 'truth'"),
        ({"labels": ["a", "b"]}, r"one name for labels, got \['a', 'b'\]"),
        ({"logits": "a", "confidence": "b"}, "choose one of .* got logits, confidence"),
    ):
        with pytest.raises(ValueError, match=message):
            Predictions.open(tmp_path / "a.npz", columns=bad)
