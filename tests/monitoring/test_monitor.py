"""A watch over batches, days and machines."""

import hashlib
import json

import numpy as np
import pytest

import calibrant
from calibrant import Monitor, Policy, Predictions
from calibrant.monitoring.state import policy_fingerprint
from calibrant.monitoring.watch import advance
from tests.helpers.errors import facts
from tests.helpers.policies import masks
from tests.helpers.watches import draw


def watched(policy, batches, **options):
    monitor = Monitor(policy, **options)
    for name, batch in batches:
        monitor.update(batch, name)
    return monitor


@pytest.fixture(scope="module")
def named(batches):
    return [(f"week {k}", batch) for k, batch in enumerate(batches)]


def test_two_states_merged_are_one_state_of_all_batches(policy, named):
    both = watched(policy, named[:2], by_group="site").merge(watched(policy, named[2:], by_group="site"))
    alone = watched(policy, named, by_group="site")
    assert both.state == alone.state
    assert both.document == alone.document


def test_batches_that_both_have_count_once(policy, named, tmp_path):
    other = watched(policy, named[1:3])
    other.save(tmp_path / "b.json")
    both = watched(policy, named[:2]).merge(tmp_path / "b.json")
    assert both.state == watched(policy, named[:3]).state
    assert both.merge(tmp_path / "b.json").state == watched(policy, named[:3]).state


def test_late_labels_are_added_once(policy, named):
    name, batch = named[0]
    rng = np.random.default_rng(0)
    part = np.where(rng.random(len(batch)) < 0.3, batch.labels, -100)
    hidden, some = (
        Predictions.from_logits(batch.logits, labels, ids=batch.ids, class_names=batch.class_names)
        for labels in (np.full(len(batch), -100), part)
    )
    monitor = watched(policy, [(name, hidden), (name, some), (name, batch), (name, batch)])
    assert len(monitor.state.batches) == 1
    assert len(monitor.state.labels) == 2
    whole = watched(policy, named[:1])
    assert monitor.watch.overall.limits[-1] == whole.watch.overall.limits[-1]
    assert len(monitor.remarks) == 3  # one for each time that the batch came again


def test_labels_that_have_changed_are_not_counted(policy, named):
    name, batch = named[0]
    labels = (batch.labels + 1) % 4
    other = Predictions.from_logits(batch.logits, labels, ids=batch.ids, class_names=batch.class_names)
    monitor = watched(policy, [(name, batch), (name, other)])
    assert monitor.state == watched(policy, named[:1]).state
    assert name in monitor.remarks[0]


def test_a_labelled_sample_counts_for_the_promise_alone(policy, named):
    monitor = watched(policy, named[:1])
    monitor.update(named[1][1], "sample", labels_only=True)
    alone = watched(policy, named[:1])
    assert monitor.watch.coverage == alone.watch.coverage
    assert monitor.watch.sizes == alone.watch.sizes
    assert monitor.watch.overall.answers > alone.watch.overall.answers


def test_a_watch_is_continued_with_its_own_settings(policy, named, tmp_path):
    path = tmp_path / "watch.json"
    watched(policy, named[:2], alpha=0.1).save(path)
    monitor = Monitor.load(policy, path)
    assert monitor.state.alpha == 0.1
    assert monitor.update(named[2][1], named[2][0]).state == watched(policy, named[:3], alpha=0.1).state
    with pytest.raises(ValueError, match=facts("alpha", "0.1", "0.2")):
        Monitor.load(policy, path, alpha=0.2)
    with pytest.raises(ValueError, match=facts("group", "None", "'site'")):
        Monitor.load(policy, path, by_group="site")
    with pytest.raises(ValueError, match=facts("alpha")):
        Monitor(policy).merge(path)
    with pytest.raises(ValueError, match=facts("policy")):
        Monitor.load(Policy.fit(draw(500, 5), 0.2), path)


def test_what_cannot_be_watched_is_refused(policy):
    with pytest.raises(ValueError, match=facts("Policy", "str")):
        Monitor("policy.json")
    with pytest.raises(ValueError, match=facts("colour", "site")):
        Monitor(policy, by_group="colour").update(draw(30, 1))
    logits, labels = masks(60)
    pixels = Policy.fit(Predictions.from_logits(logits, labels, kind="segmentation", ignore_index=255), 0.3)
    with pytest.raises(ValueError, match=facts("segmentation")):
        Monitor(pixels)


def test_the_function_is_the_class(policy, batches):
    monitor = calibrant.monitor(policy, *batches[:2], by_group="site")
    assert [batch.name for batch in monitor.state.batches] == ["batch 1", "batch 2"]
    assert monitor.state.by_group == "site"


def relabelled(batch, labels, rows=None, logits=None):
    """The same samples with other labels (None: unknown ones), in another order, or with other logits."""
    rows = np.arange(len(batch)) if rows is None else rows
    labels = np.full(len(batch), -100) if labels is None else labels
    return Predictions.from_logits(
        (batch.logits if logits is None else logits)[rows],
        np.asarray(labels)[rows],
        ids=batch.ids[rows],
        class_names=batch.class_names,
        groups={"site": batch.groups["site"][rows]},
    )


def joined(*batches):
    columns = {name: np.concatenate([getattr(b, name) for b in batches]) for name in ("logits", "labels", "ids")}
    groups = {"site": np.concatenate([b.groups["site"] for b in batches])}
    return Predictions.from_logits(**columns, groups=groups, class_names=batches[0].class_names)


def test_a_sample_counts_once_whatever_it_comes_in(policy, named):
    (name, first), (other, second) = named[:2]
    order = np.random.default_rng(0).permutation(len(first))
    monitor = watched(policy, [(name, first)], by_group="site")
    evidence = monitor.watch.overall.test.evidence
    for copy in (relabelled(first, first.labels, order), relabelled(first, first.labels, None, first.logits.round(1))):
        monitor.update(copy, "copy")
        assert monitor.watch.overall.test.evidence == evidence
    monitor.update(joined(first, second), "both weeks")
    one_by_one = watched(policy, [(name, first), (other, second)], by_group="site")
    assert monitor.state.batches[1].samples == len(second)
    assert monitor.watch.overall.errors == one_by_one.watch.overall.errors
    assert monitor.watch.overall.test.evidence == one_by_one.watch.overall.test.evidence
    assert monitor.watch.coverage == one_by_one.watch.coverage


def test_repeated_ids_in_a_batch_are_refused(policy, named):
    _, batch = named[0]
    twice = joined(batch, batch.samples(slice(7, 10)))
    with pytest.raises(ValueError, match=facts("--repeats first", f"3 of {len(twice)}")):
        Monitor(policy).update(twice)
    assert Monitor(policy).update(twice, repeats="first").state.batches[0].samples == len(batch)


def test_late_labels_need_no_batch(policy, named, tmp_path):
    (name, batch), (_, other) = named[:2]
    monitor = watched(policy, [(name, relabelled(batch, None)), ("other", other)], by_group="site")
    assert monitor.watch.overall.answers == watched(policy, [("other", other)]).watch.overall.answers
    monitor.save(tmp_path / "watch.json")
    monitor = Monitor.load(policy, tmp_path / "watch.json")
    labels = {str(name): int(label) for name, label in zip(batch.ids, batch.labels, strict=True)} | {"nobody": 1}
    assert monitor.add_labels(labels) == len(batch)
    assert monitor.document["late_labels"] == {"labels": len(batch) + 1, "matched": len(batch), "unmatched": 1}
    at_once = watched(policy, [("other", other), (name, batch)], by_group="site")
    assert monitor.watch.overall.errors == at_once.watch.overall.errors
    for group, rate in at_once.watch.groups.items():
        assert (monitor.watch.groups[group].answers, monitor.watch.groups[group].errors) == (rate.answers, rate.errors)
    monitor.add_labels(labels)
    assert monitor.watch.overall.answers == at_once.watch.overall.answers
    with pytest.raises(ValueError, match=facts("ids")):
        Monitor(policy).add_labels(labels)


def test_batches_without_ids_are_told_apart_by_name_alone(policy):
    """300 samples one by one, all answered alike and all wrongly: each is evidence."""
    logits = np.array([[9.0, 0.0, 0.0, 0.0]])
    monitor = Monitor(policy)
    for number in range(30):
        wrong = Predictions.from_logits(logits, [1], class_names=["a", "b", "c", "d"])
        monitor.update(wrong, f"call {number}")
    assert monitor.watch.overall.answers == monitor.watch.overall.errors == 30
    assert "promise" in {test.name for test in monitor.watch.alarms}
    monitor.update(wrong, "call 3")
    assert monitor.watch.overall.answers == 30
    with pytest.raises(ValueError, match="--name"):
        monitor.update(Predictions.from_logits(-logits, [1], class_names=["a", "b", "c", "d"]), "call 3")


def test_an_acknowledged_alarm_starts_its_test_anew(policy, named, tmp_path):
    monitor = watched(policy, named[:1])
    with pytest.raises(ValueError, match=facts("alarm")):
        monitor.acknowledge("nothing")
    monitor.update(draw(800, 30, noise=0.2), "bad")
    before = {test.name: test.limit for test in monitor.watch.tests}
    assert {test.name for test in monitor.watch.alarms} == {"promise"}
    monitor.acknowledge("the labels were mended")
    assert not monitor.alarm
    after = {test.name: test.limit for test in monitor.watch.tests}
    assert after["promise"] == pytest.approx(before["promise"] + np.log10(4))  # a quarter of alpha is left
    assert {name: limit for name, limit in after.items() if name != "promise"} == {
        name: limit for name, limit in before.items() if name != "promise"
    }
    monitor.save(tmp_path / "watch.json")
    monitor = Monitor.load(policy, tmp_path / "watch.json")
    assert monitor.document["acknowledged"][0]["text"] == "the labels were mended"
    monitor.update(named[1][1], "good")
    assert not monitor.alarm
    assert monitor.watch.overall.answers == monitor.state.labels[-1].answers  # counted from then on
    assert monitor.update(draw(800, 31, noise=0.2), "bad again").alarm
    assert monitor.watch.alarms[0].since == "bad again"


def test_late_labels_of_a_time_that_was_acknowledged_raise_no_alarm(policy, named):
    bad = draw(1600, 30, noise=0.3)
    late = dict(zip(bad.ids.tolist(), bad.labels.tolist(), strict=True))
    half = np.where(np.arange(1600) < 800, bad.labels, -100)
    monitor = Monitor(policy).update(relabelled(bad, half), "bad")
    monitor.acknowledge("the camera was cleaned")
    assert monitor.add_labels(late) == 1600
    assert not monitor.alarm
    assert monitor.watch.overall.answers == 0
    assert monitor.document["batches"][0]["answers_labelled"] == monitor.state.batches[0].accepted
    assert monitor.update(draw(800, 31, noise=0.3), "bad again").alarm


def test_an_alarm_outlives_a_merge_with_a_watch_whose_alarm_was_acknowledged(policy):
    own = Monitor(policy).update(draw(800, 30, noise=0.3), "here")
    other = Monitor(policy).update(draw(800, 31, noise=0.3), "there")
    other.acknowledge("repaired there")
    assert own.merge(other).alarm
    assert own.document["acknowledged"][0]["text"] == "repaired there"
    own.acknowledge("repaired here")
    assert not own.alarm


def test_a_merge_says_which_batches_without_ids_are_in_both(policy):
    own, other = (Monitor(policy).update(draw(5, 1, ids=False), "call 1") for _ in range(2))
    own.merge(other)
    assert len(own.state.batches) == 1
    assert "call 1" in own.remarks[0]


def test_evidence_is_carried_on_and_is_that_of_all_batches_at_once(policy, named, tmp_path):
    path = tmp_path / "watch.json"
    alone = watched(policy, named, by_group="site")
    for number, (name, batch) in enumerate(named):
        monitor = Monitor.load(policy, path) if number else Monitor(policy, by_group="site")
        monitor.update(batch, name).save(path)
    assert Monitor.load(policy, path).document == alone.document
    again = alone.state.model_copy(deep=True)
    again.running = type(again.running)()
    advance(policy, again)
    assert again == alone.state


def test_what_two_machines_both_saw_counts_once(policy, named):
    (name, first), (other, second) = named[:2]
    own = watched(policy, [(name, relabelled(first, None))])
    third = watched(policy, [(name, first), ("both", joined(first, second))])
    own.merge(third)  # the first batch of both, now with labels, and what is new in the second
    assert own.watch.overall.errors == watched(policy, [(name, first), (other, second)]).watch.overall.errors
    whole = watched(policy, [("both", joined(first, second))])
    own = watched(policy, [(name, first)]).merge(whole)
    assert [batch.name for batch in own.state.batches] == [name]
    assert "both" in own.remarks[0]


def test_a_state_of_the_first_version_is_read(policy, named, tmp_path):
    """As it was written before ids were kept: batches are known again by their values, and take their ids then."""
    name, batch = named[0]
    hidden = relabelled(batch, None)
    counts = Monitor(policy).count(hidden)
    entries = {
        "format": "calibrant.watch", "version": 1, "policy": policy_fingerprint(policy),
        "by_group": None, "alpha": 0.05,
        "batches": [{
            "name": name, "fingerprint": counts.looks, "added": "2025-01-01", "samples": counts.samples,
            "accepted": counts.accepted, "implied_errors": counts.implied_errors, "shift": None, "labels_only": False,
            "sketch": {key: value.tolist() for key, value in counts.sketch.items()},
        }],
        "labels": [],
    }  # fmt: skip
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    entries["checksum"] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    (tmp_path / "watch.json").write_text(json.dumps(entries, indent=1))
    monitor = Monitor.load(policy, tmp_path / "watch.json")
    assert monitor.watch.coverage == watched(policy, [(name, hidden)]).watch.coverage
    assert monitor.watch.tests[-1].evidence
    monitor.update(batch, name)
    assert len(monitor.state.batches) == 1
    assert monitor.watch.overall.errors == watched(policy, [(name, batch)]).watch.overall.errors
    monitor.save(tmp_path / "watch.json")
    assert Monitor.load(policy, tmp_path / "watch.json").state == monitor.state


def test_a_class_that_seems_to_be_gone_can_still_be_labelled(policy):
    """EM drives the share of the last class to nothing; the one sample of it must not make the batch impossible."""
    logits = np.full((200, 4), 0.0)
    logits[np.arange(200), np.arange(200) % 3] = 40.0
    labels = np.arange(200) % 3
    labels[0] = 3
    batch = Predictions.from_logits(logits, labels, class_names=["a", "b", "c", "d"])
    shift = Monitor(policy).update(batch).state.batches[0].shift
    assert min(shift.priors) > 0
    assert shift.nll_after > shift.nll_before > 0
