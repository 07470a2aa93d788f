"""Runs whose numbers are damaged are failed, not done, and never computed on; threads, locks, kills, errors."""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from calibrant.experiments import Contender, Local, Study, compare
from calibrant.experiments.engines import FAILED, Job, Stage, perform
from calibrant.experiments.evaluation import NUMBERS
from calibrant.training.recipe import check_recipe
from calibrant.training.run_folder import RunFolder
from tests.experiments.conftest import PLAIN, Nobody, study
from tests.helpers import digit_studies
from tests.helpers.errors import facts
from tests.training.conftest import state_of

pytestmark = pytest.mark.slow


@pytest.fixture
def job(compared):
    plan = study()
    return Job.of(plan.final("ce", {}, 0, "").recipe, compared / "runs", None, "ce 0")


def damages(path):
    """Ways in which a JSON file of numbers may be wrong, from no JSON to one digit."""
    text = path.read_text()
    yield from ("", "{", "[]", "null", "5", '"x"', "[[]]", "[" * 10**5, text[: len(text) // 2])
    digit = text.index('"accuracy"') + len('"accuracy": 0.')
    yield text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :]
    yield text.replace("accuracy", "acuracy", 1)
    yield text.replace('"test"', '"../test"', 1)
    yield text.replace("0.", "7.", 1)


@pytest.mark.parametrize("name", ["result.json", "numbers.json"])
def test_damaged_numbers_are_a_failure_with_a_reason(name, job, compared):
    path = Path(job.folder) / name
    whole = path.read_text()
    assert job.is_done
    for text in damages(path):
        path.write_text(text)
        assert not job.is_done, text[:60]
        assert job.failure["lasting"]
        assert str(path) in job.failure["error"]
        assert "\n" not in job.failure["error"]
        path.write_text(whole)
    assert job.is_done
    path.write_text("{")
    found = compare(study(), compared, engine=Nobody())  # it is not computed over, and the others count
    assert [failure.method for failure in found.failures] == ["ce"]
    assert str(path) in found.failures[0].error
    assert found.results.column("method") == ["ls"]
    assert path.read_text() == "{"


def test_what_was_deleted_is_computed_again(job, compared):
    before = {name: (Path(job.folder) / name).read_text() for name in ("result.json", "numbers.json")}
    for name in before:
        (Path(job.folder) / name).unlink()
        assert not job.is_done
        assert job.failure is None
        assert perform(job, 1) is True
        assert (Path(job.folder) / name).read_text() == before[name]


@pytest.mark.parametrize("text", ["", "5", "{}", '{"error": 3, "lasting": true}', "[" * 10**5])
def test_a_damaged_reason_is_no_reason_not_to_try(text, job):
    for name in ("result.json", "numbers.json"):
        (Path(job.folder) / name).unlink()
    (Path(job.folder) / "failed.json").write_text(text)
    assert job.failure["lasting"] is False
    assert "failed.json" in job.failure["error"]


@pytest.mark.parametrize("text", ["", "5", '{"x": 5}', '{"x": {"where": "a", "samples": 1}}', "[" * 10**5])
def test_a_damaged_record_of_the_data_is_named(text, compared):
    (compared / "data.json").write_text(text)
    before = state_of(compared)
    with pytest.raises(ValueError, match=facts("data.json")):
        compare(study("ce", "focal"), compared, engine=Nobody())
    assert state_of(compared) == before


OWN = """
from pathlib import Path
from torch import nn
Path(__file__).with_name("imported").touch()
def make(num_classes): return nn.Sequential(nn.Flatten(), nn.Linear(192, num_classes))
def leave(num_classes): raise SystemExit(0)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_networks.py").write_text(OWN)
    yield tmp_path / "imported"
    sys.modules.pop("own_networks", None)


def test_processes_of_a_comparison_inherit_the_decision(own, tmp_path):
    plan = study("ce", plain=PLAIN | {"model": {"name": "own_networks:make"}})
    with pytest.raises(ValueError, match=facts("--trust-code")):
        compare(plan, tmp_path / "out", engine=Local(1))
    assert not own.exists()
    assert not (tmp_path / "out").exists()
    found = compare(plan, tmp_path / "out", engine=Local(1), trust_code=True)
    assert not found.failures
    assert own.exists()


def test_code_in_a_search_needs_trust_too(own, tmp_path):
    plain = PLAIN | {"search": {"ls": {"model.name": ["mlp", "own_networks:make"]}}}
    plan = Study(check_recipe(plain, "digits"), {"ls": Contender("ls", {})}, (0,), ("ece",))
    assert {model.name for model in plan.models} == {"mlp", "own_networks:make"}
    with pytest.raises(ValueError, match=facts("own_networks")):
        compare(plan, tmp_path / "out", engine=Nobody())
    assert not own.exists()


def test_a_job_that_is_not_trusted_imports_nothing(own, tmp_path):
    job = Job.of(check_recipe(PLAIN | {"model": {"name": "own_networks:make"}}, "here"), tmp_path, None, "own")
    assert perform(job, 1) is False
    assert "--trust-code" in job.failure["error"]
    assert not own.exists()
    assert json.loads((Path(job.folder) / "failed.json").read_text())["lasting"] is False


def test_a_run_that_another_command_does_is_waited_for(tmp_path):
    short = digit_studies.recipe(training={"max_steps": 1})
    job = Job.of(short, tmp_path, None, "short")
    waited = []
    with contextlib.ExitStack() as held:
        held.enter_context(RunFolder(job.folder).lock())

        def report(what, step, steps):
            waited.append((step, steps))
            if len(waited) == 3:
                held.close()

        assert perform(job, 1, report) is True
    assert waited[:3] == [(0, None)] * 3
    assert job.is_done


@pytest.mark.slow
def test_a_killed_run_is_recorded_and_done_on_the_next_try(tmp_path):
    plan = digit_studies.study(
        ["ce"], seeds=(0,), recipe=digit_studies.recipe(training={"epochs": 30, "batch_size": 32})
    )

    def kill(what, done, total):
        for lock in tmp_path.glob("runs/*/.calibrant-lock") if what.endswith("%") and done else ():
            os.kill(int(lock.read_text().split()[1]), signal.SIGKILL)

    found = compare(plan, tmp_path, engine=Local(1), progress=kill)
    assert ["SIGKILL" in f.error for f in found.failures] == [True]
    (job,) = (Job.of(run.recipe, tmp_path / "runs", None, "") for run in found.planned)
    assert job.failure["lasting"] is False
    again = compare(plan, tmp_path, engine=Local(1))
    assert not again.failures
    assert not (tmp_path / "runs" / job.key / FAILED).exists()
    assert (tmp_path / "runs" / job.key / NUMBERS).exists()


@pytest.mark.parametrize(
    ("engine", "variable", "numbers", "threads"),
    [
        (
            Local(2),
            None,
            (1, 3),
            [2] * 4,
        ),  # a sweep that goes on with its last run has as many for it as for the others
        (Local(1), "3", (1,), [3]),
        (Local(1), "64", (1,), [4]),
        (Local(4), "3", (1,), [1]),
        (Local(1), "many", (1,), [4]),
        (Local(1, threads=2), "1", (1,), [2]),
    ],
)
def test_threads_of_a_run_on_four_cores(engine, variable, numbers, threads, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    counts = []
    monkeypatch.setattr(Local, "_start", lambda self, context, job, threads: counts.append(threads))
    for number in numbers:
        engine.run([Job("k", {}, str(tmp_path), None, "")] * number, Stage("testing", number, number))
    assert counts == threads


def test_a_model_that_leaves_is_a_failure(own, tmp_path):
    recipe = check_recipe(PLAIN | {"model": {"name": "own_networks:leave"}}, "here")
    job = Job.of(recipe, tmp_path, None, "leaves", True)
    assert perform(job, 1) is False
    assert "SystemExit: 0" in job.failure["error"]
