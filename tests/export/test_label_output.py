"""Which of the policy's classes the values of a label mean."""

import numpy as np
import pytest

from calibrant.export.label_output import is_label, read_labels
from tests.helpers.exports import make_policy


def policy(*names, classes=3):
    return make_policy(classes=len(names) or classes, calibrator=None, class_names=names or None)


@pytest.mark.parametrize(
    ("names", "values", "listed", "expected"),
    [
        (("no", "yes"), ["yes", "no"], None, [1, 0]),
        (("no", "yes"), [1, 0, 1], None, [1, 0, 1]),  # positions: no name is a number
        (("3", "7", "11"), [11, 3, 7], None, [2, 0, 1]),  # names
        (("2", "0", "1"), [0, 1, 2], None, [1, 2, 0]),  # names, not positions
        (("-1", "1"), [1, -1], None, [1, 0]),
        (("1.0", "2.0"), [2, 1], None, [1, 0]),
        (("False", "True"), [1, 0], None, [1, 0]),
        ((), [2, 0], None, [2, 0]),
        ((), [7, 3], ("3", "7", "11"), [1, 0]),
        ((), ["b", "a"], ("c", "b", "a"), [1, 2]),
        ((), [2, 0], ("2", "1", "0"), [2, 0]),  # by value, whatever the order in the graph
        ((), [7, 3], None, None),
        ((), ["b", "a"], None, None),
    ],
)
def test_labels_are_read_by_name_where_names_allow_it(names, values, listed, expected):
    positions = read_labels(policy(*names), np.array(values), listed)
    assert (None if positions is None else positions.tolist()) == expected


@pytest.mark.parametrize(
    ("names", "values", "listed", "odd"),
    [
        (("no", "yes"), ["yes", "maybe"], None, "maybe"),
        (("no", "yes"), [1, 2], None, "2"),
        (("no", "yes"), [1], ("1", "2"), "2"),  # not among the rows, but in the model's list
        (("3", "7", "11"), [0, 1], None, "0"),
        (("3", "7", "11"), ["3", "x"], None, "x"),
    ],
)
def test_a_label_that_is_no_class_is_an_error(names, values, listed, odd):
    with pytest.raises(ValueError, match=f"'{odd}'"):
        read_labels(policy(*names), np.array(values), listed)


def test_what_a_label_looks_like():
    assert is_label("STRING", "output", "")
    assert is_label("INT64", "output", "ArgMax")
    assert is_label("INT64", "y", "TreeEnsembleClassifier")
    assert is_label("INT32", "predicted_class", "")
    assert not is_label("INT64", "length", "ReduceSum")
    assert not is_label("FLOAT", "label", "ArgMax")
