"""A batch counted, and labels that came later."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from calibrant import Monitor, Policy, Predictions
from calibrant.monitoring.batch import BatchFingerprint, correct_predictions, count_batch, read_labels
from tests.helpers.watches import draw


def test_counts_are_those_of_the_decisions(policy):
    batch = draw(700, 9, known=0.4)
    counts = count_batch(policy, batch, by_group="site")
    labels, confidence, accept = policy.decide(batch)
    known = accept & (batch.labels != -100)
    wrong = known & (labels != batch.labels)
    assert (counts.samples, counts.accepted) == (700, accept.sum())
    assert counts.implied_errors == pytest.approx((1 - confidence[accept]).sum())
    assert (counts.labelled.answers, counts.labelled.errors) == (known.sum(), wrong.sum())
    for name in ("north", "south"):
        inside = batch.groups["site"] == name
        own = counts.groups[name]
        assert (own.answers, own.errors) == ((known & inside).sum(), (wrong & inside).sum())
    edges = policy.evidence["reference"]["confidence"]["edges"]
    expected = np.histogram(confidence, bins=[-1, *edges, 2])[0]  # a value at an edge lies above it in both
    assert counts.sketch["confidence"].tolist() == expected.tolist()
    assert all(part.sum() == 700 for part in counts.sketch.values())


def test_thresholds_by_group_decide_as_the_policy_does():
    policy = Policy.fit(draw(3000, 0), 0.1, group="site")
    batch = draw(500, 3)
    assert count_batch(policy, batch).accepted == policy.decide(batch).accept.sum()


def test_thresholds_by_class_are_counted_by_class_and_group():
    policy = Policy.fit(draw(3000, 0), 0.3, group="site", by_class=True)
    batch = draw(600, 3, known=0.5)
    counts = count_batch(policy, batch)
    labels, _, accept = policy.decide(batch)
    assert counts.accepted == accept.sum() > 0
    for name, own in counts.groups.items():
        site, _, letter = name.partition(": ")
        inside = accept & (batch.groups["site"] == site) & (labels == "abcd".index(letter)) & (batch.labels != -100)
        assert (own.answers, own.errors) == (inside.sum(), (inside & (labels != batch.labels)).sum())
    assert sum(own.answers for own in counts.groups.values()) == counts.labelled.answers
    watching = Monitor(policy).update(batch)
    assert not watching.alarm
    assert Monitor(policy).update(draw(600, 3, noise=0.9)).alarm
    with pytest.raises(ValueError, match="thresholds by class, which are watched"):
        Monitor(policy, by_group="ward")


def test_labels_that_came_later_are_matched_by_id(policy):
    batch = draw(300, 5)
    hidden = Predictions.from_logits(batch.logits, np.full(300, -100), ids=batch.ids, class_names=batch.class_names)
    assert count_batch(policy, hidden).labelled.answers == 0
    late = {str(name): int(label) for name, label in zip(batch.ids, batch.labels, strict=True)}
    assert count_batch(policy, hidden, labels=late).labelled == count_batch(policy, batch).labelled
    with pytest.raises(ValueError, match="matched by id, and the predictions have no ids"):
        count_batch(policy, draw(50, 1, ids=False), labels=late)


def fingerprint(predictions, size=None):
    digest = BatchFingerprint()
    assert sum(map(len, digest.of(predictions.batches(size)))) == len(predictions)
    return str(digest)


def test_the_fingerprint_is_of_values_and_not_of_labels():
    batch = draw(60, 2)
    other = Predictions.from_logits(batch.logits, (batch.labels + 1) % 4, ids=batch.ids)
    assert fingerprint(batch) == fingerprint(other) == fingerprint(batch, 7)
    assert fingerprint(batch) != fingerprint(batch.samples(slice(0, 59)))
    assert fingerprint(batch) != fingerprint(draw(60, 2, ids=False))


def test_probabilities_are_corrected_by_the_ratio_of_priors():
    policy = Policy.fit(draw(2000, 0), 0.1, calibrator="temperature")
    batch = draw(90, 7, known=0.5)
    counts = count_batch(policy, batch)
    corrected = correct_predictions(policy, batch, counts.shift)
    plain = np.exp(batch.logits / policy.calibrator.temperature_)
    expected = plain * counts.shift.priors / counts.shift.before
    np.testing.assert_allclose(corrected.probabilities, expected / expected.sum(1, keepdims=True), rtol=1e-6)
    assert corrected.labels.tolist() == batch.labels.tolist()
    assert corrected.ids.tolist() == batch.ids.tolist()


def test_an_unknown_group_column_is_refused(policy):
    with pytest.raises(ValueError, match="no group column 'colour'; there are site"):
        count_batch(policy, draw(30, 1), by_group="colour")


def write(path, text):
    path.write_text(text)
    return path


def test_names_numbers_and_gaps(tmp_path):
    named = write(tmp_path / "a.csv", "id,label\nx1,dog\nx2,\n7,cat\n")
    assert read_labels(named, 2, ("cat", "dog")) == {"x1": 1, "7": 0}
    assert read_labels(write(tmp_path / "b.csv", "labels,ids\n2,1\n0,2\n"), 3, None) == {"1": 2, "2": 0}
    pa.parquet.write_table(pa.table({"id": [5], "label": [1]}), tmp_path / "c.parquet")
    assert read_labels(tmp_path / "c.parquet", 2, ("cat", "dog")) == {"5": 1}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,label\n1,cow\n", "the label 'cow' is none of 2 classes"),
        ("id,label\n1,5\n", "the label 5 is none of 2 classes"),
        ("id,label\n1,cat\n1,dog\n", "the id 1 has two labels"),
        ("id,truth\n1,cat\n", "expected a column 'label', got id, truth"),
        ("id,label\n1,\n", "there are no labels"),
        ("", "not a table of labels"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path, text, sentence):
    path = write(tmp_path / "labels.csv", text)
    with pytest.raises(ValueError, match=sentence) as error:
        read_labels(path, 2, ("cat", "dog"))
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"read from \.csv or \.parquet, got '\.txt'"):
        read_labels(write(tmp_path / "labels.txt", "id,label"), 2, None)
