"""Runs on this machine: threads, locks, kills, errors."""

import contextlib
import os
import signal

from calibrant.experiments import Local, compare
from calibrant.experiments.engines.job import FAILED, Job, Stage, perform
from calibrant.experiments.results.evaluation import NUMBERS
from calibrant.training.run_folder import RunFolder
from tests.helpers.digit_studies import recipe, study


def test_threads_do_not_depend_on_what_is_left(tmp_path, monkeypatch):
    """A sweep that goes on with its last run has as many threads for it as it had for the others."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    seen = []
    monkeypatch.setattr(Local, "_start", lambda self, context, job, threads: seen.append(threads))
    for number in (1, 3):
        Local(2).run([Job("k", {}, str(tmp_path), None, "")] * number, Stage("testing", number, number))
    assert seen == [2] * 4


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
