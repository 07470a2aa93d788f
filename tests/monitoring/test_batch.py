"""A batch counted; EM for new priors, against values worked by hand and a stream whose priors are known."""

import math

import numpy as np
import pytest

from calibrant import Monitor, Policy, Predictions
from calibrant.monitoring.batch import (
    BatchFingerprint,
    correct_predictions,
    count_batch,
    estimate_label_shift,
    mixture_p_value,
    reference_priors,
)
from tests.helpers.errors import facts
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


@pytest.mark.slow
def test_thresholds_by_group_decide_as_the_policy_does():
    policy = Policy.fit(draw(3000, 0), 0.1, group="site")
    batch = draw(500, 3)
    assert count_batch(policy, batch).accepted == policy.decide(batch).accept.sum()


@pytest.mark.slow
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
    with pytest.raises(ValueError, match=facts("class")):
        Monitor(policy, by_group="ward")


def test_labels_that_came_later_are_matched_by_id(policy):
    batch = draw(300, 5)
    hidden = Predictions.from_logits(batch.logits, np.full(300, -100), ids=batch.ids, class_names=batch.class_names)
    assert count_batch(policy, hidden).labelled.answers == 0
    late = {str(name): int(label) for name, label in zip(batch.ids, batch.labels, strict=True)}
    assert count_batch(policy, hidden, labels=late).labelled == count_batch(policy, batch).labelled
    with pytest.raises(ValueError, match=facts("ids")):
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


HALF = np.array([0.5, 0.5])


def test_two_kinds_of_rows_by_hand():
    """7 rows say (0.8, 0.2), 3 the reverse: 7 log(0.4 + 1.2 q) + 3 log(1.6 - 1.2 q) is largest at q = 10/12."""
    rows = np.array([[0.8, 0.2]] * 7 + [[0.2, 0.8]] * 3)
    shift = estimate_label_shift(rows, HALF)
    assert shift.priors[0] == pytest.approx(10 / 12, abs=1e-4)
    gain = 0.7 * math.log(0.4 + 1.2 * 10 / 12) + 0.3 * math.log(1.6 - 1.2 * 10 / 12)
    assert shift.gain == pytest.approx(gain, abs=1e-6)
    # Twice the gain of all ten rows, of a chi squared with one degree of freedom.
    assert shift.p_value == pytest.approx(math.erfc(math.sqrt(10 * gain)), rel=1e-4)


def test_known_priors_are_recovered_and_the_correction_helps():
    rng = np.random.default_rng(0)
    priors = np.array([0.7, 0.2, 0.1])
    labels = rng.choice(3, 4000, p=priors)
    x = rng.standard_normal((4000, 3)) + 1.5 * np.eye(3)[labels]
    probabilities = np.exp(1.5 * x)  # the posterior under equal priors
    probabilities /= probabilities.sum(1, keepdims=True)
    shift = estimate_label_shift(probabilities, np.full(3, 1 / 3), labels)
    np.testing.assert_allclose(shift.priors, priors, atol=0.03)
    assert shift.p_value < 1e-6
    assert shift.nll_after < shift.nll_before - 0.05


def test_nothing_is_seen_where_nothing_has_changed():
    """The posterior under its own priors; p is then uniform."""
    rng = np.random.default_rng(3)
    logits = 2 * rng.standard_normal((3000, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    shift = estimate_label_shift(probabilities, probabilities.mean(0), np.full(3000, -1))
    assert shift.gain < 1e-6
    assert math.isnan(shift.nll_before)


def test_a_class_that_never_came_has_a_prior():
    assert reference_priors(np.array([9, 0])).tolist() == [0.95, 0.05]


PARTS = np.array([[400, 80, 20], [30, 300, 70], [10, 40, 450]])


def test_a_mixture_of_the_parts_fits_and_another_distribution_does_not():
    rng = np.random.default_rng(0)
    shares = PARTS / PARTS.sum(1, keepdims=True)
    weights = np.array([0.1, 0.2, 0.7])
    p = [mixture_p_value(PARTS, weights, rng.multinomial(300, weights @ shares)) for _ in range(40)]
    assert np.mean(np.array(p) < 0.1) < 0.25
    assert mixture_p_value(PARTS, weights, np.array([150, 0, 150])) < 0.01
    assert mixture_p_value(PARTS, np.array([0.7, 0.2, 0.1]), rng.multinomial(300, weights @ shares)) < 0.01


def test_few_samples_of_a_class_are_no_proof_against_a_mixture():
    few = PARTS.copy()
    few[0] = [4, 0, 0]
    drawn = np.array([220, 60, 20])
    assert mixture_p_value(few, np.array([1.0, 0.0, 0.0]), drawn) > mixture_p_value(
        100 * few, np.array([1.0, 0.0, 0.0]), drawn
    )


def gaussian(n, seed, priors, spread=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, n, p=priors)
    inputs = 2.2 * np.eye(4)[labels] + spread * rng.standard_normal((n, 4))
    return Predictions.from_logits(2.2 * inputs, labels)


@pytest.mark.slow
def test_only_label_shift_is_called_label_shift():
    even = np.full(4, 0.25)
    policy = Policy.fit(gaussian(3000, 0, even), 0.1)

    def offered(batch):
        hidden = Predictions.from_logits(batch.logits, np.full(len(batch), -100))
        return Monitor(policy).update(hidden, "x").document["label_shift"]["offered"]

    assert offered(gaussian(1500, 1, [0.5, 0.3, 0.1, 0.1]))
    assert not offered(gaussian(1500, 2, even))
    assert not offered(gaussian(1500, 3, [0.5, 0.3, 0.1, 0.1], spread=1.8))
