"""Sentences and plain values of a watch."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from calibrant import Monitor, Predictions
from calibrant._numbers import percent
from calibrant.monitoring.watch import changed_looks
from tests.helpers.errors import facts
from tests.helpers.watches import draw


@pytest.fixture(scope="module")
def quiet(policy, batches):
    return Monitor(policy, by_group="site").update(batches[0], "monday").update(batches[1], "tuesday")


def test_numbers_and_sentences_agree(quiet):
    document = quiet.document
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["status"] == "quiet"
    known = quiet.state.labels
    risk = sum(part.errors for part in known) / sum(part.answers for part in known)
    assert document["risk"]["value"] == pytest.approx(risk)
    assert f"{100 * risk:.2f}%" in " ".join(document["sentences"])
    assert [row["name"] for row in document["batches"]] == ["monday", "tuesday"]
    assert {part["group"] for part in document["groups"]} == {"north", "south"}


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


def test_nothing_is_offered_where_nothing_has_changed(quiet):
    shift = quiet.document["label_shift"]
    assert not shift["offered"]


def test_an_empty_watch_has_a_document(policy):
    document = Monitor(policy).document
    assert document["risk"]["value"] is None


def test_a_policy_without_a_sketch_offers_no_correction(policy, batches):
    old = replace(policy, evidence={k: v for k, v in policy.evidence.items() if k != "reference"})
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
