"""Tests that share a fixture run in one process; a test that crashes or hangs fails, and the others go on."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xdist")
from tests.helpers.scheduling import group_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("tests/experiments/test_ray_engine.py", "ray"),
        ("tests/experiments/papers/test_sc.py", "tests/experiments/papers"),
        ("tests/experiments/test_engines.py", "tests/experiments"),
        ("tests/cli/test_imports.py", "tests/cli/test_imports.py"),
        ("tests/metrics/test_tables.py", None),
        ("src/calibrant/metrics/tables.py", None),
    ],
)
def test_the_group_of_a_file(file, group):
    assert group_of(ROOT, file) == group


CRASHING = """
import os, time
import pytest

@pytest.mark.parametrize("i", range(30))
def test_each(i):
    if i == 7:
        os._exit(3)
    if i == 20:
        time.sleep(600)
"""
SETTINGS = """
from tests.helpers.scheduling import SharedFixtureScheduling

def pytest_xdist_make_scheduler(config, log):
    return SharedFixtureScheduling(config, log)
"""


@pytest.mark.slow
def test_crashes_and_hangs_fail_once_and_the_others_pass(tmp_path):
    """xdist's own scheduler by groups waits for ever after a crash."""
    (tmp_path / "test_crashing.py").write_text(CRASHING)
    (tmp_path / "conftest.py").write_text(SETTINGS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfaulthandler_timeout = 3\nfaulthandler_exit_on_timeout = true\n")
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "2 failed, 28 passed" in done.stdout
    assert "crashed while running 'test_crashing.py::test_each[7]'" in done.stdout
    assert "crashed while running 'test_crashing.py::test_each[20]'" in done.stdout
    assert "in test_each" in done.stderr, "where it hung"
