"""What a policy is not fitted on, each with its sentence."""

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.selective.fit_checks import read_set_target
from tests.helpers.policies import drawn, masks


def test_what_cannot_be_fitted_on_is_refused():
    z, y = drawn(200)
    with pytest.raises(ValueError, match="marked split='test'"):
        Policy.fit(Predictions.from_logits(z, y, split="test"))
    with pytest.raises(ValueError, match="confidences alone"):
        Policy.fit(Predictions.from_confidence(np.full(200, 0.5), y == 0))
    with pytest.raises(ValueError, match="fitted on Predictions, got ndarray"):
        Policy.fit(z)


def test_sets_are_asked_for_by_their_level():
    data = Predictions.from_logits(*drawn(20))
    assert read_set_target(data, None, "lac", None, None, False, 0) is None
    assert read_set_target(data, 0.9, "aps", None, None, True, 3).seed == 3
    with pytest.raises(ValueError, match="go with a level"):
        read_set_target(data, None, "aps", None, None, False, 0)
    pixels = Predictions.from_logits(*masks(3), kind="segmentation", ignore_index=255)
    with pytest.raises(ValueError, match="prediction sets are for classification"):
        read_set_target(pixels, 0.9, "lac", None, None, False, 0)
