"""What counts say: alarms where there is something wrong, shares of alpha, and what cannot be tested."""

import json
import math
import re

import numpy as np
import pytest

from calibrant import Monitor, Policy, Predictions
from calibrant.base.numbers import percent
from calibrant.monitoring.evidence import EvidenceProcess, rate_ratios, restart_share, start_weight
from calibrant.monitoring.watch import changed_looks
from tests.helpers.errors import facts
from tests.helpers.watches import draw


@pytest.fixture(scope="module")
def quiet(policy, batches):
    monitor = Monitor(policy, by_group="site")
    for batch in batches:
        monitor.update(batch)
    return monitor


def test_shares_of_alpha_sum_to_alpha_at_most(quiet):
    shares = [test.alpha for test in quiet.watch.tests]
    coverage = next(test.alpha for test in quiet.watch.tests if test.name == "coverage")
    # The coverage spends as much again on its limits at the fit; groups that may still come have the rest.
    unseen = 0.05 / 4 * (1 - start_weight(1) - start_weight(2))
    first = restart_share(1)  # what is left is for the starts after alarms that are acknowledged
    assert sum(shares) + coverage + unseen * first == pytest.approx(0.05 * first)
    assert sum(restart_share(k) for k in range(1, 10_000)) == pytest.approx(1, abs=1e-4)


def test_the_evidence_is_that_of_the_counts(quiet):
    evidence = EvidenceProcess(24)
    for part in quiet.state.labels:
        evidence.update(rate_ratios(part.errors, part.answers, 0.1))
    assert quiet.watch.overall.test.evidence[-1] == pytest.approx(float(evidence.log_value) / math.log(10))


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
    batch = draw(900, 60, known=0.0)
    flat = Predictions.from_logits(batch.logits / 3, batch.labels, class_names=batch.class_names)
    names = {test.name for test in Monitor(policy).update(flat).watch.alarms}
    assert {"coverage", "score", "confidence"} <= names


def test_a_policy_without_a_sketch_says_what_cannot_be_tested(policy, batches):
    evidence = {name: value for name, value in policy.evidence.items() if name != "reference"}
    old = policy.model_copy(update={"evidence": evidence})
    monitor = Monitor(old).update(batches[0])
    watch = monitor.watch
    assert monitor.document["label_shift"] is None
    assert [test.name for test in watch.tests] == ["promise", "coverage"]
    assert any("sketch" in text for text in watch.untested)


def test_a_policy_without_a_promise_is_watched_without_a_test(batches):
    policy = Policy.fit(draw(800, 0), 0.1, method="empirical")
    watch = Monitor(policy).update(batches[0]).watch
    assert watch.overall.test is None
    assert watch.overall.limits
    assert watch.untested


@pytest.mark.slow
def test_false_alarms_of_whole_watches_are_rare(policy):
    """30 watches of three batches on new samples; 5% may raise an alarm, and so 5 or more of 30 by a chance of 2%."""
    alarms = sum(
        Monitor(policy).update(draw(300, 3 * k + 1000)).update(draw(300, 3 * k + 1001)).alarm for k in range(30)
    )
    assert alarms <= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_of",
    [
        {"target_risk": 0.1, "by_class": True},
        {"promise": "precision=b:0.9"},
        {"promise": "recall=b:0.9"},
        {"costs": 1 - np.eye(4), "target_cost": 0.1},
        {"promise": "expected-risk:0.05"},
    ],
    ids=["by class", "precision", "recall", "cost", "expected risk"],
)
def test_whatever_is_promised_the_same_distribution_is_no_change(request_of):
    policy = Policy.fit(draw(4000, 0), **request_of)
    watching = Monitor(policy).update(draw(4000, 1)).update(draw(4000, 2))
    assert not watching.watch.alarms
    assert watching.watch.implied == pytest.approx(policy.evidence["reference"]["implied_risk"], abs=0.02)
    assert Monitor(policy).update(draw(4000, 1, shift=2.0)).alarm  # more of the first class


def test_costs_of_one_are_watched_as_errors_are():
    by_cost = Policy.fit(draw(2000, 0), costs=1 - np.eye(4), target_cost=0.1)
    watching = Monitor(by_cost)
    assert not watching.update(draw(800, 1)).alarm
    arrival = watching.state.labels[0]
    assert arrival.cost == arrival.errors > 0
    evidence = EvidenceProcess(24)
    evidence.update(rate_ratios(arrival.errors, arrival.answers, 0.1))
    assert watching.watch.overall.test.evidence == pytest.approx([float(evidence.log_value) / math.log(10)])
    assert watching.update(draw(800, 2, noise=0.4)).alarm
    document = watching.document
    assert document["cost"]["promised"] == 0.1
    assert "0.1" in document["alarms"][0]["text"]
    assert watching.watch.untested == []


def test_a_mean_cost_that_is_kept_seldom_raises_an_alarm():
    # Costs of 0, 0.2 and 1 whose mean is the promised 0.1, or one and a half times that; 30 looks at 1,500 streams.
    rng = np.random.default_rng(0)
    for shares, is_kept in (([0.65, 0.3125, 0.0375], True), ([0.475, 0.46875, 0.05625], False)):
        evidence, highest = EvidenceProcess(24, (1500,)), np.full(1500, -np.inf)
        for _ in range(30):
            paid = rng.choice([0.0, 0.2, 1.0], size=(1500, 40), p=shares).sum(1)
            evidence.update(rate_ratios(paid, np.full(1500, 40), 0.1))
            highest = np.maximum(highest, evidence.log_value)
        alarms = (highest >= math.log(1 / 0.1)).mean()
        assert alarms <= 0.1 if is_kept else alarms > 0.5


def test_costs_survive_and_merge(tmp_path):
    policy = Policy.fit(draw(2000, 0), costs=5 * (1 - np.eye(4)), target_cost=0.6)
    first, second = Monitor(policy).update(draw(300, 1)), Monitor(policy).update(draw(300, 2))
    first.save(tmp_path / "watch.json")
    again = Monitor.load(policy, tmp_path / "watch.json").merge(second)
    assert [arrival.cost for arrival in again.state.labels] == [first.state.labels[0].cost, second.state.labels[0].cost]
    hidden = Monitor(policy).update(draw(300, 1, known=0.0))
    assert hidden.update(draw(300, 1)).state.labels[0].cost == first.state.labels[0].cost


def test_a_broken_promise_is_the_headline(policy, batches):
    monitor = Monitor(policy).update(batches[0]).update(draw(900, 30, noise=0.2), "friday")
    document = monitor.document
    assert document["status"] == "alarm"
    assert document["alarms"][0]["since"] == "friday"
    alarm = document["alarms"][0]
    assert alarm["breaking"]["batches"] == ["friday"]
    errors, answers = alarm["breaking"]["errors"], alarm["breaking"]["answers"]
    assert errors / answers > document["risk"]["value"]  # of all answers fewer are wrong
    assert re.search(facts(f"{100 * errors / answers:.2f}%", "friday"), alarm["text"])


def test_a_class_without_a_cell_of_its_own_is_named(policy):
    """The least frequent class of the fit is counted as all others; of four classes there is one."""
    (rest,) = set(range(4)) - set(policy.evidence["reference"]["predicted"]["classes"])
    batch = draw(2000, 80)
    moved = batch.samples(np.flatnonzero((batch.logits.argmax(1) == rest) | (np.arange(2000) % 4 == 0)))
    alarms = Monitor(policy).update(moved).document["alarms"]
    (text,) = (alarm["text"] for alarm in alarms if alarm["name"] == "predicted")
    assert f"class {'abcd'[rest]}" in text


def test_label_shift_is_offered_where_it_helps(policy, batches):
    batch = draw(3000, 70)
    rows = np.flatnonzero((batch.labels != 0) | (np.arange(3000) % 4 == 0))  # three quarters of class a left out
    shifted = Monitor(policy).update(batch.samples(rows)).document["label_shift"]
    assert shifted["offered"]
    assert shifted["classes"][0]["name"] == "a"
    assert shifted["classes"][0]["after"] == pytest.approx(np.mean(batch.labels[rows] == 0), abs=0.04)
    assert shifted["nll_after"] < shifted["nll_before"]


def test_an_empty_watch_has_a_document(policy):
    document = Monitor(policy).document
    assert document["risk"]["value"] is None


def test_numbers_and_sentences_agree(policy, batches):
    quiet = Monitor(policy, by_group="site").update(batches[0], "monday").update(batches[1], "tuesday")
    document = quiet.document
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["status"] == "quiet"
    known = quiet.state.labels
    risk = sum(part.errors for part in known) / sum(part.answers for part in known)
    assert document["risk"]["value"] == pytest.approx(risk)
    assert f"{100 * risk:.2f}%" in " ".join(document["sentences"])
    assert [row["name"] for row in document["batches"]] == ["monday", "tuesday"]
    assert {part["group"] for part in document["groups"]} == {"north", "south"}


def test_nothing_is_offered_where_nothing_has_changed(quiet):
    shift = quiet.document["label_shift"]
    assert not shift["offered"]


def test_a_policy_without_a_sketch_offers_no_correction(policy, batches):
    old = policy.model_copy(update={"evidence": {k: v for k, v in policy.evidence.items() if k != "reference"}})
    assert Monitor(old).update(batches[0]).document["label_shift"] is None


def test_a_change_is_described_by_the_batches_that_raised_its_alarm(policy):
    """Of three samples each, one batch alone would not say how many are predicted to be of a class."""
    monitor = Monitor(policy)
    quiet, shifted = draw(600, 40), draw(300, 41, shift=6.0)
    monitor.update(quiet, "quiet")
    for k in range(100):
        rows = slice(3 * k, 3 * k + 3)
        names = {"ids": shifted.ids[rows], "class_names": shifted.class_names}
        monitor.update(Predictions.from_logits(shifted.logits[rows], shifted.labels[rows], **names), f"three {k}")
    (test,) = [test for test in monitor.watch.alarms if test.name == "predicted"]
    looks = changed_looks(test)
    assert 3 < len(looks) < 100
    first, last = looks[0] - 1, looks[-1] - 1
    share = np.mean(shifted.logits[3 * first : 3 * last + 3].argmax(1) == 0)
    (text,) = [alarm["text"] for alarm in monitor.document["alarms"] if alarm["name"] == "predicted"]
    assert re.search(facts(f"three {first}", f"three {last}", percent(share)), text)
