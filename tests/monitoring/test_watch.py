"""What counts say: alarms where there is something wrong, shares of alpha, and what cannot be tested."""

import math
from dataclasses import replace

import numpy as np
import pytest

from calibrant import Monitor, Policy
from calibrant.monitoring.evidence import EvidenceProcess, rate_ratios, start_weight
from tests.helpers.watches import draw


@pytest.fixture(scope="module")
def quiet(policy, batches):
    monitor = Monitor(policy, by_group="site")
    for batch in batches:
        monitor.update(batch)
    return monitor


def test_nothing_is_raised_where_nothing_is_wrong(quiet):
    watch = quiet.watch
    assert not watch.alarms
    assert watch.overall.answers == sum(part.answers for part in quiet.state.labels)
    assert watch.implied == pytest.approx(quiet.policy.evidence["reference"]["implied_risk"], abs=0.02)


def test_shares_of_alpha_sum_to_alpha_at_most(quiet):
    shares = [test.alpha for test in quiet.watch.tests]
    coverage = next(test.alpha for test in quiet.watch.tests if test.name == "coverage")
    # The coverage spends as much again on its limits at the fit; groups that may still come have the rest.
    unseen = 0.05 / 4 * (1 - start_weight(1) - start_weight(2))
    assert sum(shares) + coverage + unseen == pytest.approx(0.05)


def test_the_evidence_is_that_of_the_counts(quiet):
    evidence = EvidenceProcess(24)
    for part in quiet.state.labels:
        evidence.update(rate_ratios(part.errors, part.answers, 0.1))
    assert quiet.watch.overall.test.evidence[-1] == pytest.approx(float(evidence.log_value) / math.log(10))


def test_a_broken_promise_is_an_alarm_and_says_since_when(policy, batches):
    monitor = Monitor(policy)
    monitor.update(batches[0], "good").update(draw(800, 30, noise=0.15), "bad").update(draw(800, 31), "good again")
    (alarm,) = monitor.watch.alarms
    assert (alarm.name, alarm.since) == ("promise", "bad")


def test_a_break_in_one_group_is_seen_there(policy, batches):
    monitor = Monitor(policy, by_group="site")
    for seed in range(40, 43):
        batch = draw(900, seed, noise=0.25)
        north = np.flatnonzero(batch.groups["site"] == "north")
        monitor.update(batch.samples(north))
        monitor.update(draw(900, seed + 100).samples(np.flatnonzero(draw(900, seed + 100).groups["site"] == "south")))
    groups = {test.group for test in monitor.watch.alarms if test.group}
    assert groups == {"north"}


def test_changes_need_no_labels(policy, batches):
    monitor = Monitor(policy).update(batches[0])
    for seed in (50, 51):
        monitor.update(draw(600, seed, shift=2.0, known=0.0))
    names = {test.name for test in monitor.watch.alarms}
    assert names == {"predicted"}
    assert monitor.watch.sizes["predicted"].low > 0.02


def test_a_fallen_coverage_is_seen(policy, batches):
    """Logits of a third of their size: almost nothing is answered."""
    from calibrant import Predictions

    batch = draw(900, 60, known=0.0)
    flat = Predictions.from_logits(batch.logits / 3, batch.labels, class_names=batch.class_names)
    names = {test.name for test in Monitor(policy).update(flat).watch.alarms}
    assert {"coverage", "score", "confidence"} <= names


def test_a_policy_without_a_sketch_says_what_cannot_be_tested(policy, batches):
    evidence = {name: value for name, value in policy.evidence.items() if name != "reference"}
    old = replace(policy, evidence=evidence)
    watch = Monitor(old).update(batches[0]).watch
    assert [test.name for test in watch.tests] == ["promise", "coverage"]
    assert any("has no sketch" in text for text in watch.untested)


def test_a_policy_without_a_promise_is_watched_without_a_test(batches):
    policy = Policy.fit(draw(800, 0), 0.1, method="empirical")
    watch = Monitor(policy).update(batches[0]).watch
    assert watch.overall.test is None
    assert watch.overall.limits
    assert any("promises no error rate" in text for text in watch.untested)


def test_false_alarms_of_whole_watches_are_rare(policy):
    """30 watches of three batches on new samples; 5% may raise an alarm, and so 5 or more of 30 by a chance of 2%."""
    alarms = sum(
        Monitor(policy).update(draw(300, 3 * k + 1000)).update(draw(300, 3 * k + 1001)).alarm for k in range(30)
    )
    assert alarms <= 4
