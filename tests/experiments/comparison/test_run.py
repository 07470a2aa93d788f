"""Comparisons: failures, repeats, interruptions, data that changed."""

import csv

import pytest
from PIL import Image

from calibrant.experiments import Contender, Local, Results, Study, compare
from calibrant.experiments.engines.job import Job, perform
from tests.helpers.digit_studies import recipe, study


def test_one_failure_does_not_stop_the_rest(sweep):
    _, found, events = sweep
    assert {f.method for f in found.failures} == {"broken"}
    assert all("the loss is" in f.error for f in found.failures)
    assert set(found.results.column("method")) == {"ce", "ls"}
    ends = [what.split()[-1] for what, *_ in events if what.endswith((" done", " failed"))]
    assert sorted(ends) == ["done"] * 4 + ["failed"] * 2
    assert events[0] == ("testing: 6 runs", 0, 6)
    assert events[-1][1:] == (6, 6)
    with (found.folder / "runs.csv").open() as file:
        states = [(row["method"], row["state"]) for row in csv.DictReader(file)]
    assert states == [(m, s) for m, s in (("ce", "done"), ("ls", "done"), ("broken", "failed")) for _ in range(2)]


def test_a_method_that_never_acts_is_named(tmp_path):
    """MbLS with a margin that no logits reach is cross-entropy."""
    named = {"ce": Contender("ce", {}), "ls": Contender("ls", {}), "mbls": Contender("mbls", {"margin": 1e6})}
    found = compare(Study(study(["ce"]).recipe, named, (0,)), tmp_path, engine=Local(2))
    assert found.twins == [("mbls", "ce")]


def test_running_it_again_computes_nothing(sweep):
    plan, found, _ = sweep
    events = []
    again = compare(plan, found.folder, engine=Local(2), progress=lambda *event: events.append(event))
    assert events == [("testing: 6 runs, 6 of them on disk", 6, 6)]
    assert again.results == found.results == Results.load(found.folder)


def test_other_data_are_not_taken_for_these(tmp_path):
    given = recipe(data={"layout": "image-folder"}, model={"name": "mlp", "input_size": [3, 8, 8], "hidden": [8]},
                   training={"epochs": 1, "batch_size": 4})  # fmt: skip
    for name, shade in (("one", 10), ("moved", 10), ("other", 11)):
        for split in ("train", "test"):
            for label in ("a", "b"):
                folder = tmp_path / name / split / label
                folder.mkdir(parents=True)
                for i in range(6):
                    Image.new("RGB", (8, 8), (shade * i, 0, 99 * (label == "a"))).save(folder / f"{i}.png")
    plan = Study(given, {"ce": Contender("ce", {})}, (0,))
    first = compare(plan, tmp_path / "out", data=str(tmp_path / "one"), engine=Local(1))
    assert not first.failures
    again = compare(plan, tmp_path / "out", data=str(tmp_path / "moved"), engine=Local(1))
    assert again.results == first.results
    with pytest.raises(ValueError, match=r"moved \(24 samples\), and those of .*other \(24 samples\) are different"):
        compare(plan, tmp_path / "out", data=str(tmp_path / "other"), engine=Local(1))
    with pytest.raises(ValueError, match="nowhere"):
        compare(plan, tmp_path / "out", data=str(tmp_path / "nowhere"), engine=Local(1))
    als = Study(given, {"als": Contender("als", {})}, (0,))
    with pytest.raises(ValueError, match="adaptive targets are for data of images with one class each and boxes"):
        compare(als, tmp_path / "new", data=str(tmp_path / "one"), engine=Local(1))


def test_what_is_finished_is_in_the_table_when_a_sweep_is_interrupted(tmp_path):
    plan = study(["ce", "ls"], seeds=(0,))

    def stop(what, done, total):
        if what.endswith(" done"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(plan, tmp_path, engine=Local(1), progress=stop)
    assert Results.load(tmp_path).column("method") == ["ce"]


def test_what_would_fail_again_is_not_tried_again(sweep):
    plan, found, _ = sweep
    events = []
    compare(plan, found.folder, engine=Local(2), retry=True, progress=lambda *event: events.append(event))
    assert events[0][0] == "testing: 6 runs, 4 of them on disk"
    ends = [what for what, *_ in events if what.endswith((" done", " failed"))]
    assert sorted(ends) == ["testing: broken 0 failed", "testing: broken 1 failed"]  # asked for, they are


def test_a_run_that_failed_before_it_began_can_be_tried_again(tmp_path):
    """Its folder holds why it failed, and nothing else."""
    late = recipe(data={"layout": "digits", "options": {"seed": 0}}, training={"max_steps": 1})
    job = Job.of(late, tmp_path, None, "late")
    job.fail("the process was ended by SIGKILL", lasting=False)
    assert perform(job, 1) is True
    assert job.is_done
    assert job.failure is None
