"""Counts of prediction sets, against hand-worked numbers and SciPy's distributions."""

import numpy as np
import pytest
from scipy import stats

from calibrant.selective.set_counts import SetCounts, mean_of_sizes


def counts():
    members = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=bool)
    accept = np.array([True, False, True, False, True])
    total = SetCounts(3)
    total.add(members[:2], accept[:2], np.array([0, 2]))
    total.add(members[2:], accept[2:], np.array([1, 1, 0]))
    return total


def test_sizes_and_coverage_by_hand():
    total = counts()
    assert total.samples == 5
    assert total.sizes.tolist() == [1, 2, 1, 1]
    assert total.abstained.tolist() == [0, 0, 1, 1]
    assert total.coverage.value == pytest.approx(2 / 5)
    assert [total.class_coverage(k).value for k in range(3)] == [1 / 2, 1 / 2, 0.0]
    assert total.abstained_covered == 1
    assert total.empty.value == 1 / 5
    facts = total.to_dict(["a", "b", "c"])
    assert facts["where_abstained"]["one_or_two"]["value"] == 1 / 2
    assert [row["class"] for row in facts["classes"]] == ["a", "b", "c"]


def test_the_intervals_are_those_of_scipy():
    total = counts()
    exact = stats.binomtest(2, 5).proportion_ci(0.95)
    assert (total.coverage.low, total.coverage.high) == pytest.approx((exact.low, exact.high))
    values = np.repeat(np.arange(4), [10, 20, 30, 5])
    size = mean_of_sizes(np.array([10, 20, 30, 5]))
    assert size.value == pytest.approx(values.mean())
    assert size.high - size.value == pytest.approx(1.959964 * stats.sem(values), rel=1e-6)


def test_without_labels_only_sizes_are_known():
    total = SetCounts(2)
    total.add(np.array([[True, False]]), np.array([True]), None)
    assert np.isnan(total.coverage.value)
    assert total.to_dict(None)["classes"] == []
    assert len(total.sentences(None)) == 1


def test_ignored_labels_do_not_count():
    total = SetCounts(2)
    total.add(np.ones((3, 2), bool), np.ones(3, bool), np.array([0, 255, 1]), 255)
    assert total.samples == 2
