"""Runs on this machine: threads, locks, kills, errors."""

import contextlib
import os
import signal

import pytest

from calibrant.experiments import Local, compare
from calibrant.experiments.engines.job import FAILED, Job, Stage, perform
from calibrant.experiments.results.evaluation import NUMBERS
from calibrant.training.run_folder import RunFolder
from tests.helpers.digit_studies import recipe, study


def test_threads_do_not_depend_on_what_is_left(tmp_path, monkeypatch):
    """A sweep that goes on with its last run has as many threads for it as it had for the others."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads_of_runs(Local(2), (1, 3), tmp_path, monkeypatch) == [2] * 4


@pytest.mark.parametrize(
    ("setting", "jobs", "threads"), [("1", 1, 1), ("3", 1, 3), ("64", 1, 4), ("3", 4, 1), ("many", 1, 4)]
)
def test_a_run_takes_no_more_threads_than_omp_num_threads_says(tmp_path, monkeypatch, setting, jobs, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert threads_of_runs(Local(jobs), (1,), tmp_path, monkeypatch) == [threads]


def test_threads_that_are_named_go_before_omp_num_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert threads_of_runs(Local(1, threads=2), (1,), tmp_path, monkeypatch) == [2]


def threads_of_runs(engine, numbers, folder, monkeypatch):
    """The threads of every run that an engine would start on a machine of four cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    counts = []
    monkeypatch.setattr(Local, "_start", lambda self, context, job, threads: counts.append(threads))
    for number in numbers:
        engine.run([Job("k", {}, str(folder), None, "")] * number, Stage("testing", number, number))
    return counts


def test_a_run_that_another_command_does_is_waited_for(tmp_path):
    short = recipe(training={"max_steps": 1})
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


def test_a_killed_run_is_recorded_and_done_on_the_next_try(tmp_path):
    plan = study(["ce"], seeds=(0,), recipe=recipe(training={"epochs": 30, "batch_size": 32}))

    def kill(what, done, total):
        for lock in tmp_path.glob("runs/*/.calibrant-lock") if what.endswith("%") and done else ():
            os.kill(int(lock.read_text().split()[1]), signal.SIGKILL)

    found = compare(plan, tmp_path, engine=Local(1), progress=kill)
    assert [f.error for f in found.failures] == ["the process was ended by SIGKILL"]
    (job,) = (Job.of(run.recipe, tmp_path / "runs", None, "") for run in found.planned)
    assert job.failure["lasting"] is False
    again = compare(plan, tmp_path, engine=Local(1))
    assert not again.failures
    assert not (tmp_path / "runs" / job.key / FAILED).exists()
    assert (tmp_path / "runs" / job.key / NUMBERS).exists()


def test_errors_of_one_process_are_recorded(tmp_path):
    broken = recipe(data={"layout": "image-folder", "path": str(tmp_path / "nowhere")})
    job = Job.of(broken, tmp_path, None, "nowhere")
    assert perform(job, 1) is False
    assert "nowhere" in job.failure["error"]
    assert not job.failure["lasting"]  # nothing had begun: the folder may be put right
