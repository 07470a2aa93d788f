"""What a policy remembers of the samples that set its threshold."""

import copy

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.selective.policy import reference
from calibrant.selective.policy.reference import Reference, bin_counts, class_counts, frequent_classes
from calibrant.selective.policy_file.file import from_dict, to_dict
from calibrant.selective.policy_file.policy_entries import read_entries
from calibrant.selective.split import draws
from tests.helpers.policies import drawn


@pytest.fixture(scope="module")
def policy():
    return Policy.fit(Predictions.from_logits(*drawn(1500)), 0.1)


def test_counts_are_of_four_fifths_of_the_samples_for_the_threshold(policy):
    sketch = policy.evidence["reference"]
    rows = sketch["rows"]
    assert rows == policy.threshold.samples - int(0.2 * policy.threshold.samples)
    assert all(sum(sketch[name]["counts"]) == rows for name in ("score", "confidence", "predicted"))
    assert sketch["labels"] == np.bincount(drawn(1500)[1], minlength=6).tolist()


def test_bins_hold_about_the_same_number(policy):
    counts = np.array(policy.evidence["reference"]["score"]["counts"])
    assert len(counts) == reference.BINS
    assert 15 < counts.min() <= counts.max() < 110  # 50 each, of bins that 200 other samples set


def test_what_the_confidence_implies_is_near_what_was_wrong(policy):
    z, _ = drawn(1500)
    rows = draws(0, 0, 1500) >= 1 / 3
    _, confidence, accept = policy.decide(z[rows])
    # The sketch leaves out a fifth of the rows.
    assert policy.evidence["reference"]["implied_risk"] == pytest.approx(1 - confidence[accept].mean(), abs=0.01)


def test_values_at_an_edge_lie_above_it():
    assert bin_counts(np.array([0.0, 1.0, 1.5, 2.0, 9.0]), [1.0, 2.0]).tolist() == [1, 2, 2]


def test_all_but_the_most_frequent_classes_share_a_cell(monkeypatch):
    monkeypatch.setattr(reference, "BINS", 3)
    classes = frequent_classes(np.array([1, 7, 0, 5, 2]))
    assert classes.tolist() == [1, 3]
    assert class_counts(np.array([1, 3, 3, 0, 4, 2]), classes).tolist() == [1, 2, 3]
    assert frequent_classes(np.array([3, 9])).tolist() == [1]


def test_saturated_scores_have_the_bins_that_they_fill():
    rows = Reference(0)
    score = np.repeat([0.5, 1.0], [100, 900])
    rows.add(score, score, np.zeros(1000, int), np.zeros(1000, np.str_))
    sketch = rows.evidence(0.7, np.array([1000, 0]))
    assert sketch["score"]["edges"] == [1.0]
    assert sum(sketch["score"]["counts"]) == 800
    assert sketch["implied_risk"] == 0.0


def test_of_very_many_samples_a_random_part_is_kept(monkeypatch):
    monkeypatch.setattr(reference, "MOST_KEPT", 500)
    rows = Reference(0)
    for start in range(0, 9000, 100):
        values = np.arange(start, start + 100) / 9000
        rows.add(values, values, np.zeros(100, int), np.zeros(100, np.str_))
    sketch = rows.evidence(0.0, np.array([9000, 0]))
    assert 400 < sketch["rows"] <= 800
    assert abs(sketch["implied_risk"] - 0.5) < 0.05  # early and late ones alike


def test_too_few_samples_leave_no_sketch():
    policy = Policy.fit(Predictions.from_logits(*drawn(45)), 0.3)
    assert policy.evidence["reference"] is None
    from_dict(to_dict(policy))


@pytest.mark.parametrize(
    ("entry", "value", "sentence"),
    [
        (("score", "counts"), [1], "evidence.reference.score must have edges that rise"),
        (("predicted", "classes"), [0, 1, 2, 3, 99], "evidence reference.predicted.classes must be different classes"),
        (("labels",), [1, 2], "evidence reference.labels must be 6 counts or null"),
        (("rows",), -1, "evidence.reference.rows must be a whole number"),
    ],
)
def test_a_damaged_sketch_is_refused(policy, entry, value, sentence):
    data = copy.deepcopy(to_dict(policy))
    inner = data["evidence"]["reference"]
    for name in entry[:-1]:
        inner = inner[name]
    inner[entry[-1]] = value
    with pytest.raises(ValueError, match="^" + sentence):
        read_entries(data)
