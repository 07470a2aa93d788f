"""Checks of arguments: what passes, and the one sentence of what does not."""

import numpy as np
import pytest

from calibrant import _validation as check


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check.check_choice("mode", "x", ("a", "b")), "mode must be one of 'a', 'b', got 'x'"),
        (lambda: check.check_flag("quiet", 1), "quiet must be True or False, got 1"),
        (lambda: check.check_number("alpha", -1, 0.0), "alpha must be finite and at least 0, got -1"),
        (lambda: check.check_number("alpha", float("inf"), 0.0), "alpha must be finite and at least 0, got inf"),
        (lambda: check.check_number("alpha", True, 0.0), "alpha must be a number, got True"),
        (lambda: check.check_integer("bins", 2.5, 1), "bins must be a whole number of at least 1, got 2.5"),
        (lambda: check.check_integer("bins", 11, 1, 10), "bins must be a whole number of at most 10, got 11"),
        (
            lambda: check.check_number("risk", 0, 0, 1, open_low=True),
            "risk must be a number above 0 and at most 1, got 0",
        ),
        (lambda: check.check_numbers("score", ["a"]), "score must be real numbers, got <U1"),
        (lambda: check.check_numbers("score", []), r"score must not be empty, got shape \[0\]"),
        (lambda: check.check_correct([0, 2]), "correct must be True and False or 1 and 0, got 2 in row 1"),
        (
            lambda: check.check_within("c", np.array([[0.5], [1.5]]), 0.0, 1.0),
            r"c must be between 0 and 1, got 1.5 at position \[1, 0\]",
        ),
        (lambda: check.check_scores([0.1, 0.2], [True]), r"correct must have the shape of score \[2\], got \[1\]"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_what_passes_comes_back_as_asked():
    assert check.check_number("alpha", np.float32(0.5), 0.0) == 0.5
    assert check.check_integer("bins", np.int64(3), 1) == 3
    numbers, right = check.check_scores([[0.1, 0.9]], [[0, 1]], name="confidence")
    assert numbers.values.shape == right.shape == (2,)
    assert right.dtype == bool


def test_long_values_are_cut_in_messages():
    assert len(check.short("x" * 1000)) < 70
    assert check.short(10**100) == "a number of over 60 digits"
    assert "and" in check.listing([str(i) for i in range(50)], 3)
    long = [f"{i:060d}" for i in range(20)]
    assert check.listing(long) == ", ".join(long[:6]) + " and 14 more"  # 6 x 62 characters, a seventh would pass 400
    assert check.listing([long[0] * 9], characters=5) == long[0][:57] + "..."  # the first is named in any case
