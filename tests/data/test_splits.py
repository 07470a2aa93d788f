"""Splits by id: the papers' hold-outs, disjoint and independent of order."""

import numpy as np
import pytest

from calibrant.data import Dataset, Rows, by_ids, disjoint, hold_out, resample
from tests.helpers.errors import facts


def rows(number, classes=3, prefix=""):
    labels = np.arange(number) % classes
    ids = tuple(f"{prefix}{i}" for i in range(number))
    return Dataset("toy", prefix or "train", tuple("abcdefgh"[:classes]), ids, labels, Rows(np.arange(number)[:, None]))


def test_hold_outs_of_the_papers():
    data = rows(600)
    train, val = hold_out(data, fraction=1 / 6, seed=3)
    assert (len(train), len(val)) == (500, 100)
    assert set(train.ids) | set(val.ids) == set(data.ids)
    assert not set(train.ids) & set(val.ids)
    assert [int(v.input[0]) for v in val] == [int(i) for i in val.ids]  # inputs go with their ids
    assert hold_out(data, fraction=1 / 6, seed=3)[1].ids == val.ids
    assert hold_out(data, fraction=1 / 6, seed=4)[1].ids != val.ids
    assert len(hold_out(data, count=45)[1]) == 45
    assert hold_out(data, per_class=50)[1].counts.tolist() == [50, 50, 50]


def test_hold_outs_do_not_depend_on_the_order_of_samples():
    data = rows(90)
    shuffled = data.take(np.random.default_rng(0).permutation(90))
    assert set(hold_out(data, count=30)[1].ids) == set(hold_out(shuffled, count=30)[1].ids)
    assert set(hold_out(data, per_class=5)[1].ids) == set(hold_out(shuffled, per_class=5)[1].ids)


def test_held_out_samples_are_drawn_evenly():
    """Over 400 seeds each of 12 samples is held out a third of the time (5 standard errors)."""
    times = np.zeros(12)
    for seed in range(400):
        times[[int(i) for i in hold_out(rows(12), count=4, seed=seed)[1].ids]] += 1
    assert np.abs(times / 400 - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 400)


def test_merge_and_resample():
    train, test = rows(40, prefix="train"), rows(13, prefix="test")
    one, two = resample(train, test, seed=1), resample(train, test, seed=2)
    for new_train, new_test in (one, two):
        assert (len(new_train), len(new_test)) == (40, 13)
        assert set(new_train.ids) | set(new_test.ids) == set(train.ids + test.ids)
        for sample in new_test:
            assert int(sample.input[0]) == int(sample.id.removeprefix("train").removeprefix("test"))
    assert one[1].ids != two[1].ids
    assert [part.split for part in one] == ["train", "test"]
    order = list(train.ids + test.ids)
    assert all(list(part.ids) == sorted(part.ids, key=order.index) for part in one)
    assert {i.rstrip("0123456789") for i in one[1].ids} == {"train", "test"}
    with pytest.raises(ValueError, match=facts("train0")):
        resample(train, train, seed=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: hold_out(d), facts("none", "per_class")),
        (lambda d: hold_out(d, count=1, fraction=0.5), "got fraction, count"),
        (lambda d: hold_out(d, count=12), facts("12")),
        (lambda d: hold_out(d, fraction=1.0), "between 0 and 1"),
        (lambda d: hold_out(d, per_class=4), facts("'a'", "4")),
        (lambda d: by_ids(d, {"a": ["1"], "b": ["2", "1"]}), facts("'1'", "'a'", "'b'")),
        (lambda d: by_ids(d, {"a": ["99"]}), facts("99")),
        (lambda d: disjoint(d, d.take([3])), facts("'3'")),
    ],
)
def test_splits_refuse_overlap_and_nonsense(call, message):
    with pytest.raises(ValueError, match=message):
        call(rows(12))
