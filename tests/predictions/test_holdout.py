"""Both parts together are the whole, rows that belong together stay so, and nothing depends on where the rows lie."""

import numpy as np
import pytest

from calibrant import Policy, Predictions


def drawn(n=101, classes=3, **columns):
    rng = np.random.default_rng(0)
    return Predictions.from_logits(rng.standard_normal((n, classes)), rng.integers(0, classes, n), **columns)


def test_the_parts_are_the_whole_in_order():
    whole = drawn()
    fit, judge = whole.holdout(0.3)
    assert (len(fit), len(judge)) == (30, 71)
    first = {row.tobytes() for row in fit.logits}
    in_fit = np.array([row.tobytes() in first for row in whole.logits])
    assert np.array_equal(whole.logits[in_fit], fit.logits)
    assert np.array_equal(whole.logits[~in_fit], judge.logits)
    assert np.array_equal(whole.labels[~in_fit], judge.labels)


def test_the_seed_draws():
    first, second, other = (drawn().holdout(seed=seed)[0].logits for seed in (1, 1, 2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_the_rows_of_an_id_stay_together():
    ids = np.arange(101) // 2
    fit, judge = drawn(ids=ids).holdout()
    assert not set(fit.ids) & set(judge.ids)
    assert len(set(fit.ids)) in (25, 26)


@pytest.mark.parametrize("values", [["ann", "bob", "cyd", "dan"], [3, 1, 7, 5]])
def test_the_rows_of_a_group_stay_together(values):
    patients = np.array(values)[np.arange(101) % 4]
    whole = drawn(groups={"patient": patients, "site": np.arange(101) % 2})
    fit, judge = whole.holdout(0.25, by="patient")
    assert len(set(fit.groups["patient"])) == 1
    assert not set(fit.groups["patient"]) & set(judge.groups["patient"])
    assert set(fit.group_names) == {"patient", "site"}
    with pytest.raises(ValueError, match="no group column 'doctor'"):
        whole.holdout(by="doctor")


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".safetensors", ".csv", ".jsonl"])
def test_files_are_divided_as_arrays_are(tmp_path, suffix):
    ids = np.array([f"s{k // 3}" for k in range(101)])
    whole = drawn(ids=ids, groups={"site": np.arange(101) % 2}, class_names=["a", "b", "c"])
    expected = whole.holdout(0.4, seed=3)
    whole.save(tmp_path / f"all{suffix}")
    opened = Predictions.open(tmp_path / f"all{suffix}", groups=["site"] if suffix in (".csv", ".jsonl") else None)
    for name, part, memory in zip(("fit", "judge"), opened.holdout(0.4, seed=3), expected, strict=True):
        part.save(tmp_path / f"{name}{suffix}")
        again = Predictions.open(tmp_path / f"{name}{suffix}")
        assert len(again) == len(memory)
        assert np.allclose(again.logits, memory.logits)
        assert again.ids.tolist() == memory.ids.tolist()
        assert again.class_names == ("a", "b", "c")
        assert again.split in (memory.split, None)  # text may not say it


def test_shards_are_divided_as_one(tmp_path):
    whole = drawn(ids=np.arange(101))
    for k, rows in enumerate((slice(0, 40), slice(40, 101))):
        whole.samples(rows).save(tmp_path / f"shard{k}.npz")
    parts = Predictions.open(tmp_path).holdout(seed=5)
    assert [part.ids.tolist() for part in parts] == [part.ids.tolist() for part in whole.holdout(seed=5)]


def test_masks_are_divided_by_images(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (9, 4, 5))
    labels[0] = 255
    masks = Predictions.from_logits(rng.standard_normal((9, 3, 4, 5)), labels, kind="segmentation", ignore_index=255)
    masks.save(tmp_path / "masks.npz")
    for source in (masks, Predictions.open(tmp_path / "masks.npz")):
        fit, judge = source.holdout()
        fit.save(tmp_path / "fit.npz")
        again = Predictions.open(tmp_path / "fit.npz")
        assert (again.kind, again.ignore_index, len(again) + len(judge)) == ("segmentation", 255, 9)


def test_nothing_is_fitted_on_the_part_that_judges():
    fit, judge = drawn(300).holdout()
    assert (fit.split, judge.split) == ("val", "test")
    Policy.fit(fit, 0.5)
    with pytest.raises(ValueError, match="test"):
        Policy.fit(judge, 0.5)
    with pytest.raises(ValueError, match="test"):
        judge.holdout()


@pytest.mark.parametrize("share", [0, 1, 50, -0.5, float("nan"), "half"])
def test_a_share_leaves_something_for_both(share):
    with pytest.raises(ValueError, match="share must be"):
        drawn().holdout(share)


def test_both_parts_have_samples_however_few_there_are():
    assert [len(part) for part in drawn(2).holdout(0.01)] == [1, 1]
    assert [len(part) for part in drawn(3).holdout(0.99)] == [2, 1]
    with pytest.raises(ValueError, match="one id"):
        drawn(5, ids=np.zeros(5, int)).holdout()
