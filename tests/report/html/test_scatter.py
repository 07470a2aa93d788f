"""Where the axes of a scatter end, and what stands at their borders: worked out by hand."""

import re

import pytest

from calibrant.report.html.comparison_charts import looks
from calibrant.report.html.scatter import clamped, limits, scatter

NEAR = {"a": [[0.80, 0.10], [0.81, 0.11]], "b": [[0.82, 0.12]], "c": [[0.84, 0.20]]}


def drawn(points):
    groups = [{"name": name, "points": own} for name, own in points.items()]
    return scatter("chart", groups, looks(list(points)))


@pytest.mark.parametrize(
    ("groups", "ends"),
    [
        ([[0.1, 0.11], [0.12], [0.2]], (0.093, 0.207)),  # 7% of 0.1 on either side
        ([[0.1, 0.11], [0.12], [0.2], [0.9]], (0.093, 0.207)),  # 0.1 is less than a quarter of 0.8: the last is out
        ([[0.1], [0.12], [0.2], [0.3]], (0.086, 0.314)),  # 0.1 is half of 0.2: nobody is
        ([[0.1], [0.1], [0.9]], (0.044, 0.956)),  # of three methods none is the odd one
        ([[0.1], [0.12], [0.88], [0.9]], (0.044, 0.956)),  # nor of two pairs
        ([[0.5], [0.5], [0.5], [0.9]], (0.475, 0.525)),  # a range of nothing: a twentieth of the value
    ],
)
def test_one_method_does_not_squeeze_the_others(groups, ends):
    assert limits(groups) == pytest.approx(ends)


def test_a_value_beyond_the_end_is_drawn_at_it():
    assert [clamped(value, (0.2, 0.4)) for value in (0.1, 0.3, 0.9)] == [0.2, 0.3, 0.4]


def test_an_arrow_names_what_lies_outside():
    chart = drawn(NEAR | {"far": [[0.83, 0.90], [0.82, 0.95]]})
    assert re.findall(r">(↑[^<]*)<", chart) == ["↑ far: ECE 90.00% to 95.00%"]
    assert "far: accuracy 83.00%, ECE 90.00%" in chart  # the tip keeps the true value
    assert "points to runs outside" in chart


def test_two_outside_have_labels_of_their_own():
    chart = drawn(NEAR | {"c": [[0.84, 0.12]], "far": [[0.83, 0.20]], "further": [[0.83, 0.99]]})
    rows = re.findall(r'y="([\d.]+)">↑', chart)
    assert len(set(rows)) == 2


def test_without_an_odd_one_there_is_no_arrow():
    assert not re.search("[↑↓←→]", drawn(NEAR))
