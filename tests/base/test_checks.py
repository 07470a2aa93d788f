"""Checks of arguments: what passes, and the facts in the refusal of what does not."""

import numpy as np
import pytest

from calibrant.base import checks as check
from tests.helpers.errors import facts


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: check.check_choice("mode", "x", ("a", "b")), "mode|'a', 'b'|'x'"),
        (lambda: check.check_flag("quiet", 1), "quiet|True|False|1"),
        (lambda: check.check_number("alpha", -1, 0.0), "alpha|finite|0|-1"),
        (lambda: check.check_number("alpha", float("inf"), 0.0), "alpha|finite|inf"),
        (lambda: check.check_number("alpha", True, 0.0), "alpha|number|True"),
        (lambda: check.check_integer("bins", 2.5, 1), "bins|whole|at least 1|2.5"),
        (lambda: check.check_integer("bins", 11, 1, 10), "bins|whole|at most 10|11"),
        (lambda: check.check_number("risk", 0, 0, 1, open_low=True), "risk|above 0|at most 1|got 0"),
        (lambda: check.check_numbers("score", ["a"]), "score|numbers|<U1"),
        (lambda: check.check_numbers("score", []), "score|empty|[0]"),
        (lambda: check.check_correct([0, 2]), "correct|True|False|2|row 1"),
        (lambda: check.check_within("c", np.array([[0.5], [1.5]]), 0.0, 1.0), "c|between 0 and 1|1.5|[1, 0]"),
        (lambda: check.check_scores([0.1, 0.2], [True]), "correct|score|[2]|[1]"),
    ],
)
def test_refusals(call, told):
    with pytest.raises(ValueError, match=facts(*told.split("|"))):
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
