"""The funnel: bad input is one line and exit code 2, a bug is one line, exit code 70 and a file with the traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant import Predictions
from calibrant.cli import BUG, LONGEST, app, main

Z = np.random.default_rng(0).standard_normal((300, 4))


@pytest.fixture
def raising(capsys, tmp_path, monkeypatch):
    """Run a command that raises something; give exit code and standard error."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    commands = list(app.registered_commands)

    def call(error):
        @app.command("fail")
        def fail() -> None:
            raise error

        with pytest.raises(SystemExit) as stop:
            main(["fail"])
        captured = capsys.readouterr()
        assert not captured.out
        return stop.value.code, captured.err

    yield call
    app.registered_commands[:] = commands


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("x.npz: labels must lie in 0..2, got 7"), "x.npz: labels must lie in 0..2, got 7"),
        (OSError(28, "No space left on device", "x.html"), "x.html: No space left on device"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError("Unable to allocate 9 TiB"), "Unable to allocate 9 TiB"),
        (MemoryError(), "memory"),
        (ValueError("a\nb\x1b[2J"), r"a b\x1b[2J"),
        (ValueError("n" * 10_000), "n" * LONGEST + "..."),
    ],
)
def test_bad_input_is_one_line(raising, tmp_path, error, line):
    code, said = raising(error)
    assert code == 2
    assert said.startswith("calibrant: ")
    assert line in said
    assert said.count("\n") == 1
    assert len(said) < LONGEST + 20
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [TypeError("a\x1b[2J"), KeyError("x"), RecursionError("deep"), AssertionError()])
def test_a_bug_is_one_line_and_a_file(raising, tmp_path, error):
    code, line = raising(error)
    assert code == BUG
    assert line.count("\n") == 1
    assert line[:-1].isprintable()
    assert type(error).__name__ in line
    report = Path(re.search(rf"{re.escape(str(tmp_path))}[^\s,;]+", line)[0]).read_text()
    assert "calibrant fail" in report
    assert "Traceback" in report
    assert "in fail" in report


def test_a_bug_is_told_where_no_file_can_be_written(raising, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    code, lines = raising(TypeError("a\x1b[2J"))
    assert code == BUG
    assert "Traceback" in lines
    assert "\x1b" not in lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "limit", "code"),
    [
        *(
            (closed, "0.01%", 1)
            for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "| head -0", "2>&1 | head -0")
        ),
        (">&- 2>&-", "99%", 0),
        ("| head -0", "99%", 0),
    ],
)
def test_the_exit_code_is_the_commands_own_where_nobody_reads_its_output(tmp_path, closed, limit, code):
    Predictions.from_logits(Z, Z.argmax(1)).save(tmp_path / "x.npz")
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = f"{sys.executable} -m calibrant check x.npz --require 'ece <= {limit}' {closed}"
    words = ["bash", "-c", f"set -o pipefail; {command}"]
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (result.returncode, "Traceback" in result.stderr) == (code, False)
    assert not list(tmp_path.glob("calibrant-bug*"))


@pytest.mark.slow
def test_an_error_is_never_printed_where_data_are_expected(tmp_path):
    words = ["bash", "-c", f"{sys.executable} -m calibrant check missing.npz --require 'ece <= 1%' 2>&-"]
    result = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", ["--version", "recipes --json"])
def test_a_full_disk_is_one_sentence(words):
    result = subprocess.run(["bash", "-c", f"{sys.executable} -m calibrant {words} >/dev/full"], capture_output=True)
    assert result.returncode == 2
    assert [line[:10] for line in result.stderr.splitlines()][-1] == b"calibrant:"  # remarks may stand before it
    assert b"Exception" not in result.stderr


def test_the_version(run):
    assert run("--version")[1].split() == ["calibrant", calibrant.__version__]
