"""Accuracy and means of confidence against the slow ones of tests/reference."""

import numpy as np
import pytest

from calibrant import metrics as M
from tests.helpers.metric_data import CASES, close
from tests.reference import metrics as R

case = pytest.mark.parametrize("data", CASES.values(), ids=CASES.keys())


@case
def test_means(data):
    confidence, correct = data
    assert M.accuracy(correct) == close(R.accuracy(correct))
    assert M.mean_confidence(confidence) == close(R.mean_confidence(confidence))
    assert M.overconfidence(*data) == close(R.overconfidence(*data))
    assert M.underconfidence(*data) == close(R.underconfidence(*data))
    objectness = np.linspace(0, 1, np.size(confidence)).reshape(np.shape(confidence))
    assert M.objectness_deviation(confidence, objectness) == close(R.objectness_deviation(confidence, objectness))
