"""Tests that share a fixture run in one process."""

from pathlib import Path

import pytest

pytest.importorskip("xdist")
from tests.helpers.scheduling import group_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("tests/experiments/engines/test_ray.py", "ray"),
        ("tests/test_ray.py", "ray"),
        ("tests/experiments/papers/test_sc.py", "tests/experiments/papers"),
        ("tests/experiments/engines/test_local.py", "tests/experiments"),
        ("tests/cli/test_imports.py", "tests/cli/test_imports.py"),
        ("tests/metrics/test_ties.py", None),
        ("src/calibrant/metrics/ties.py", None),
    ],
)
def test_the_group_of_a_file(file, group):
    assert group_of(ROOT, file) == group
