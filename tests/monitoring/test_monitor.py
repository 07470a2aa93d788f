"""A watch over batches, days and machines."""

import numpy as np
import pytest

import calibrant
from calibrant import Monitor, Policy, Predictions
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


def test_the_same_batch_again_is_skipped_and_said(policy, named):
    monitor = watched(policy, [named[0], ("copy", named[0][1])])
    assert monitor.state == watched(policy, named[:1]).state
    (remark,) = monitor.remarks
    assert "copy" in remark
    assert "seen before" in remark


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
    assert "labels of answers are new" in monitor.remarks[0]


def test_labels_that_have_changed_are_not_counted(policy, named):
    name, batch = named[0]
    labels = (batch.labels + 1) % 4
    other = Predictions.from_logits(batch.logits, labels, ids=batch.ids, class_names=batch.class_names)
    monitor = watched(policy, [(name, batch), (name, other)])
    assert monitor.state == watched(policy, named[:1]).state
    assert "seen before" in monitor.remarks[0]


def test_labels_of_both_machines_for_one_batch(policy, named):
    name, batch = named[0]
    hidden = Predictions.from_logits(
        batch.logits, np.full(len(batch), -100), ids=batch.ids, class_names=batch.class_names
    )
    both = watched(policy, [(name, hidden)]).merge(watched(policy, [(name, batch)]))
    assert both.watch.overall.answers == watched(policy, [(name, batch)]).watch.overall.answers


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
    with pytest.raises(ValueError, match=r"the watch has alpha 0\.1, which cannot change, got 0\.2"):
        Monitor.load(policy, path, alpha=0.2)
    with pytest.raises(ValueError, match="the watch is by group None, got 'site'"):
        Monitor.load(policy, path, by_group="site")
    with pytest.raises(ValueError, match="same alpha"):
        Monitor(policy).merge(path)
    with pytest.raises(ValueError, match="the watch is for another policy"):
        Monitor.load(Policy.fit(draw(500, 5), 0.2), path)


def test_what_cannot_be_watched_is_refused():
    with pytest.raises(ValueError, match="watches a Policy, got str"):
        Monitor("policy.json")
    logits, labels = masks(60)
    pixels = Policy.fit(Predictions.from_logits(logits, labels, kind="segmentation", ignore_index=255), 0.3)
    with pytest.raises(ValueError, match="for classification, whose samples are independent, got segmentation"):
        Monitor(pixels)


def test_the_function_is_the_class(policy, batches):
    monitor = calibrant.monitor(policy, *batches[:2], by_group="site")
    assert [batch.name for batch in monitor.state.batches] == ["batch 1", "batch 2"]
    assert monitor.state.by_group == "site"
