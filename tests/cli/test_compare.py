"""The command compare: tuned tables, mistakes, failed runs, a killed sweep."""

import html
import json
import os
import shlex
import signal
import time

import pytest

from calibrant.experiments import Results
from tests.helpers.processes import Command

pytestmark = pytest.mark.slow

BROKEN = "ce:optimiser.rate=1e6:optimiser.weight_decay=1e6"  # weights are infinite after a few steps


RECIPE = (
    'title = "Digits"\n[data]\nlayout = "digits"\nhold_out = {count = 200}\n[model]\nname = "mlp"\n'
    "input_size = [3, 8, 8]\nhidden = [16]\n[optimiser]\nrate = 0.1\n[training]\nepochs = 1\nbatch_size = 128\n"
    "[search.ls]\nalpha = [0.05, 0.3]\n[[expected]]\nmethod = 'ce'\nvalues = {accuracy = 0.9}\n"
)


@pytest.fixture
def written(tmp_path):
    (tmp_path / "digits.toml").write_text(RECIPE)
    return tmp_path / "digits.toml"


def test_tuned_tables_and_a_page(written, tmp_path, run):
    folder = tmp_path / "out"
    words = ["compare", written, "--losses", "ce,ls", "--seeds", "2", "--tune", "ece", "--tune", "accuracy"]
    words = [*map(str, words), "-o", str(folder), "--expected"]
    assert run(*words)[0] == 0
    for name in ("methods", "repairs", "ranks", "expected"):
        for suffix in ("md", "tex", "csv", "html"):
            assert (folder / "tables" / f"{name}.{suffix}").stat().st_size > 50
    page = (folder / "index.html").read_text()
    assert "Digits" in page
    assert html.escape(shlex.join(["calibrant", *words])) in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    results = Results.load(folder)
    assert results.where(stage="search").column("set") == ["val", "test"]
    assert json.loads((folder / "study.json").read_text())["tune"] == ["ece", "accuracy"]


def test_a_failed_run_and_a_failed_reference_leave_tables(written, tmp_path, run):
    """The exit code tells that something is missing, and a row does."""
    words = ("compare", written, "--losses", f"{BROKEN},ls", "--seeds", "2", "-o", tmp_path / "out")
    code, _, err = run(*words, "--reference", BROKEN)
    assert (code, "--retry-failed" in err) == (1, True)
    assert (tmp_path / "out" / "index.html").exists()
    assert f"CE{BROKEN[2:]}".replace("_", "\\_") in (tmp_path / "out" / "tables" / "methods.md").read_text()


@pytest.mark.slow
def test_a_sweep_that_is_killed_ends_as_one_that_is_not(written, tmp_path, run):
    """Killed as soon as one of its runs has a checkpoint; run again, it has the same numbers."""
    words = ["compare", str(written), "--losses", "ce,ls", "--seeds", "2", "--set", "training.epochs=6",
             "--set", "training.checkpoint_seconds=1e-6", "-q", "-o"]  # fmt: skip
    command = Command(*words, tmp_path / "cut", folder=tmp_path, new_session=True)
    until = time.monotonic() + 120
    while not any(tmp_path.glob("cut/runs/*/last.safetensors")) and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(command.pid, signal.SIGKILL)
    assert command.communicate().returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("cut/runs/*/result.json"))) < 4
    for name in ("cut", "whole"):
        assert run(*words, tmp_path / name)[0] == 0
    cut, whole = (Results.load(tmp_path / name) for name in ("cut", "whole"))
    assert len(whole.column("run")) == 4
    assert cut == whole


def test_one_reading_of_logit_normalisation(written, tmp_path, run):
    words = ["compare", str(written), "--losses", "ce", "--seeds", "1", "-o", str(tmp_path / "out"), "-q"]
    for option, sign in (("--no-centre", -1), ("--centre", 1)):
        assert run(*words, option)[0] == 0
        rows = Results.load(tmp_path / "out").where(stage="final", set="test", posthoc="logit-norm")
        assert all(row.parameter * sign > 0 or row.parameter != row.parameter for row in rows)
