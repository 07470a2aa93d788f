"""A run of a second, finished and not, for tests that damage copies of it."""

import os
import shutil
from pathlib import Path

import pytest

from calibrant.cli import main
from calibrant.training import load, train
from tests.helpers.digit_runs import one_thread

RECIPE = """
[data]
layout = "digits"
val = "val"
[model]
name = "mlp"
input_size = [3, 8, 8]
hidden = [8]
[optimiser]
rate = 0.1
[training]
epochs = 2
batch_size = 512
keep = "best"
"""


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with ``digits.toml``, a finished run, and the same before its numbers were written."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "digits.toml").write_text(RECIPE)
    with one_thread():
        train(load(folder / "digits.toml"), folder / "finished")
    shutil.copytree(folder / "finished", folder / "unfinished")
    (folder / "unfinished" / "result.json").unlink()
    return folder


@pytest.fixture
def recipe(tmp_path, request):
    """``digits.toml``, with the RECIPE of the test's module if it has one, else the one above."""
    file = tmp_path / "digits.toml"
    file.write_text(getattr(request.module, "RECIPE", RECIPE))
    return file


@pytest.fixture
def finished(runs, tmp_path):
    return Path(shutil.copytree(runs / "finished", tmp_path / "finished"))


@pytest.fixture
def unfinished(runs, tmp_path):
    return Path(shutil.copytree(runs / "unfinished", tmp_path / "unfinished"))


@pytest.fixture
def command(capsys):
    """Run the command line in this process: its exit code and what it says on standard error."""

    def run(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        return stop.value.code, capsys.readouterr().err

    return run


@pytest.fixture
def refused(command):
    """Run a command that must be refused in one sentence, which is returned."""

    def run(*words):
        code, said = command(*words)
        assert code == 2, said
        assert said.startswith("calibrant: ")
        assert said.count("\n") == 1
        assert "bug" not in said
        return said

    return run


def state_of(folder):
    """Everything about a folder that a command could change: names, kinds, times, links and contents."""
    state = []
    for path in [Path(folder), *sorted(Path(folder).rglob("*"))]:
        about = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        state.append((str(path), about.st_mode, about.st_mtime_ns, about.st_nlink, content))
    return state
