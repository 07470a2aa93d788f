"""Shares made logits again: rows without any share, and fits in little memory."""

import numpy as np
import pytest
import torch

from calibrant.posthoc import IsotonicCalibration, lookup
from tests.helpers.calibrators import METHODS, Y, Z
from tests.reference import posthoc as reference


def test_a_row_without_any_share_keeps_its_softmax():
    isotonic = IsotonicCalibration()
    isotonic.restore({"lengths": [2, 2, 2], "knots": [0.7, 0.9] * 3, "shares": [0.0, 1.0] * 3}, 3)
    z = np.array([[0.3, 0.2, 0.0]])
    expected = reference.softmax(z[0])
    assert isotonic.predict_proba(z)[0].tolist() == pytest.approx(expected, abs=1e-12)
    flat = IsotonicCalibration()
    flat.restore({"lengths": [1, 1, 1], "knots": [0.5] * 3, "shares": [0.2, 0.2, 0.6]}, 3)
    assert flat.predict_proba(z)[0].tolist() == pytest.approx([0.2, 0.2, 0.6], abs=1e-5)


@pytest.mark.parametrize("make", [METHODS["isotonic"], METHODS["histogram mass"]])
def test_a_small_budget_takes_more_passes_and_changes_nothing(make, monkeypatch):
    expected = make().fit(Z, Y)
    monkeypatch.setattr(lookup, "BUDGET", 2 * 9 * len(Y))
    found = make().fit(Z, Y)
    assert (expected.passes_, found.passes_) == (2, 4)
    assert torch.equal(found.transform(Z), expected.transform(Z))
