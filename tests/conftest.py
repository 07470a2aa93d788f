"""Settings of the whole suite."""

import gc
import os

# Some virtual machines promise AMX and then kill the process that computes in bf16 with it; read when torch starts.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
from hypothesis import settings

# The same examples on every run, and no time limit on a loaded machine.
settings.register_profile("calibrant", deadline=None, derandomize=True)
settings.load_profile("calibrant")


def pytest_collection_finish():
    """Leave what all the modules have made, some million objects, out of every later search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With several processes, tests that share a fixture run in one of them."""
    from tests.helpers.scheduling import SharedFixtureScheduling

    return SharedFixtureScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture
def run(capsys):
    """Run a command: exit code, standard output, standard error."""
    from calibrant.cli import main

    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return call


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The folder of a run on digits that nothing interrupted; tests read it only."""
    from calibrant.training import load, train
    from tests.helpers.digit_runs import RECIPE, one_thread

    folder = tmp_path_factory.mktemp("runs")
    (folder / "digits.toml").write_text(RECIPE)
    with one_thread():
        train(load(folder / "digits.toml"), folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def mask_runs(tmp_path_factory):
    """Folders of finished runs on drawn scenes with masks, by the names of their methods; tests read them only."""
    from tests.helpers.mask_runs import trained_runs

    return trained_runs(tmp_path_factory.mktemp("masks"))
