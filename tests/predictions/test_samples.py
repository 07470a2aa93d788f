"""What the first values of a column look like: properties worked out by hand."""

import re

import numpy as np
import pytest

from calibrant.predictions.hints import SampledColumn, as_sample, describe, find_mistakes, rows_to_peek
from tests.helpers.errors import facts

N = 24


def looks(values):
    column = SampledColumn("x", np.asarray(values))
    names = ("is_id", "is_share", "is_log_share", "is_logit", "is_class", "is_pair", "is_verdict")
    return {name for name in names if getattr(column, name)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.arange(N), {"is_id"}),
        ([f"row {j}" for j in range(N)], {"is_id"}),
        (np.arange(N) % 2, {"is_class", "is_pair", "is_verdict"}),
        (np.arange(N) % 2 == 0, {"is_class", "is_pair", "is_verdict"}),
        ((np.arange(N) % 2).astype(float), {"is_class", "is_pair", "is_verdict"}),
        (["Yes", "no"] * 12, {"is_class", "is_pair", "is_verdict"}),
        (["cat", "dog"] * 12, {"is_class", "is_pair"}),
        (np.arange(N) % 3, {"is_class"}),
        (np.linspace(0, 1, N), {"is_share"}),
        (np.linspace(-5, 0, N), {"is_log_share"}),
        (np.linspace(-5, 5, N), {"is_logit"}),
        (np.linspace(5, 50, N), set()),
        (np.full(N, 0.5), set()),
        (np.full(N, 1), {"is_verdict"}),
        ([np.nan, 0.25, 0.5] * 8, {"is_share"}),
        ([np.nan, 1.0, 0.0] * 8, {"is_class", "is_pair", "is_verdict"}),
        (np.eye(N), set()),
    ],
)
def test_kinds_of_columns(values, expected):
    assert looks(values) == expected


def test_samples_of_python_values():
    assert as_sample([1, None, 2.5]).tolist()[::2] == [1, 2.5]
    assert as_sample([1, 2]).dtype == np.int64
    assert as_sample([True, False]).dtype == np.bool_
    assert as_sample(["a", None]).tolist() == ["a", ""]
    assert as_sample([[1, 2], [3, 4]]).shape == (2, 2)
    for values in ([], [None], [[1], [1, 2]], [{}, {}], [[1, "a"]], ["a", 1]):
        assert as_sample(values) is None


def test_columns_are_described_by_what_they_hold():
    columns = {
        "id": np.arange(N),
        "logprob": np.linspace(-5.2, -0.1, N),
        "score": np.linspace(0, 100, N),
        "topic": np.array(["a", "b", "c", "d"] * 6),
    }
    assert re.search(
        facts("id (", "from -5.2 to -0.1", "topic (text, 4", "unread"), describe(columns, [*columns, "unread"])
    )
    assert re.search(facts("logprob", "exp()", "score", "100"), find_mistakes(columns))
    assert find_mistakes({"age": np.linspace(0, 90, N)}) == ""
    assert rows_to_peek(10**9) == 1
