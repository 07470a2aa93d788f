"""Progress is told after each item, and never touches the items."""

import pytest

from calibrant.base.progress import silent, track


def test_items_pass_as_they_are_and_the_end_is_told():
    calls = []
    items = [object(), object(), object()]
    assert list(track(items, "reading", 3, lambda *call: calls.append(call))) == items
    assert calls == [("reading", 0, 3), ("reading", 1, 3), ("reading", 2, 3), ("reading", 3, 3)]


def test_an_item_is_done_when_the_next_one_is_asked_for():
    calls = []
    batches = track(iter("ab"), "reading", None, lambda what, done, total: calls.append(done))
    assert next(batches) == "a"
    assert calls == [0]
    next(batches)
    assert calls == [0, 1]


def test_an_error_of_the_items_is_passed_on():
    def broken():
        yield 1
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError, match="disk"):
        list(track(broken(), "reading", 2, silent))
