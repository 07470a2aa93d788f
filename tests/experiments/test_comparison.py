"""Comparisons: failures, repeats, interruptions, data that changed; and their folders, where strangers' files stay."""

import csv
import json

import pytest
from PIL import Image

from calibrant.experiments import Contender, Local, Results, Study, compare
from calibrant.experiments.comparison import check_folder
from calibrant.experiments.engines import Job, perform
from tests.experiments.conftest import Nobody, study
from tests.helpers import digit_studies
from tests.training.conftest import state_of


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
    found = compare(Study(digit_studies.study(["ce"]).recipe, named, (0,)), tmp_path, engine=Local(2))
    assert found.twins == [("mbls", "ce")]


def test_running_it_again_computes_nothing(sweep):
    plan, found, _ = sweep
    events = []
    again = compare(plan, found.folder, engine=Local(2), progress=lambda *event: events.append(event))
    assert events == [("testing: 6 runs, 6 of them on disk", 6, 6)]
    assert again.results == found.results == Results.load(found.folder)


def test_other_data_are_not_taken_for_these(tmp_path):
    model = {"name": "mlp", "input_size": [3, 8, 8], "hidden": [8]}
    training = {"epochs": 1, "batch_size": 4}
    given = digit_studies.recipe(data={"layout": "image-folder"}, model=model, training=training)
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
    plan = digit_studies.study(["ce", "ls"], seeds=(0,))

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
    late = digit_studies.recipe(data={"layout": "digits", "options": {"seed": 0}}, training={"max_steps": 1})
    job = Job.of(late, tmp_path, None, "late")
    job.fail("the process was ended by SIGKILL", lasting=False)
    assert perform(job, 1) is True
    assert job.is_done
    assert job.failure is None


COMMANDS = {"compare": ["--losses", "ce", "--seeds", "1", "-q"], "demo": ["--quick", "-q"]}
WORKS = {"compare": "comparison", "demo": "demonstration"}


def words_of(command, recipe, folder):
    return [command, *([recipe] if command == "compare" else []), "-o", folder, *COMMANDS[command]]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "files",
    [
        {"index.html": "<p>mine</p>", "results.csv": "a,b", ".env.local": "SECRET"},
        {"runs/notes.txt": "mine"},
        {"tables/methods.md": "mine"},
        {"study.json": "{}"},
        {"study.json": '{"format": "theirs"}', "index.html": "mine"},
        {"study.json": "not JSON"},
        {"study.json": "[" * 10**5},
        {"data.json": "{}"},
        {".pre-commit-config.yaml": "x"},
        {"lens.svg": "mine"},
        {"policy.json": "{}"},
    ],
    ids=lambda files: "-".join(files),
)
def test_a_strangers_folder_stays_as_it_is(command, files, tmp_path, recipe, refused, monkeypatch):
    folder = tmp_path / "project"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    before = state_of(folder)
    assert f"is not the folder of a {WORKS[command]}" in refused(*words_of(command, recipe, folder))
    monkeypatch.chdir(folder)
    assert f"is not the folder of a {WORKS[command]}" in refused(*words_of(command, recipe, "."))
    assert state_of(folder) == before


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("path", ["file", "/dev/null", "s3://bucket/x", "file/below"])
def test_what_is_no_folder_is_refused(command, path, tmp_path, recipe, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    before = state_of(tmp_path)
    refused(*words_of(command, recipe, path))
    assert state_of(tmp_path) == before


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "data.layout=nosuch"],
        ["--set", "data.layout=image-folder"],
        ["--data", "/no/such/folder"],
        ["--set", "data.test=nosuch"],
        ["--set", "model.name=nosuch"],
        ["--set", "model.name=no_such_module:make"],
        ["--set", "model.input_size=[3, 9, 9]"],
        ["--set", "model.hidden=[1000000, 1000000]"],
        ["--set", "training.batch_size=5000"],
        ["--set", "training.keep=best"],
        ["--losses", "ce,als"],
        ["--losses", "ls:alpha=often"],
        ["--losses", "ce:nosuch.setting=1"],
        ["--losses", "ce:optimiser.rate.deeper=1"],
        ["--losses", "ce:data.hold_out.count=many"],
        ["--accelerator", "nosuch"],
        ["--engine", "nosuch"],
        ["--seeds", "1000000000"],
        ["--seeds", "99999999999999999999,1"],
        ["--seeds", "-1,1"],
        ["--seeds", ","],
        ["--trials", "1000000000"],
        ["--jobs", "1000000000"],
    ],
    ids=" ".join,
)
def test_nothing_is_written_before_a_refusal(words, tmp_path, recipe, refused):
    before = state_of(tmp_path)
    refused("compare", recipe, "-o", tmp_path / "a" / "b" / "new", "-q", *words)
    assert state_of(tmp_path) == before


@pytest.mark.parametrize("words", [["--data", "nosuch"], ["--seed", "-1"], ["--seed", "99999999999999999999"]])
def test_a_refused_demonstration_leaves_nothing(words, tmp_path, refused):
    before = state_of(tmp_path)
    refused("demo", "-o", tmp_path / "a" / "new", "-q", *words)
    assert state_of(tmp_path) == before


def test_a_strangers_folder_among_the_runs_stays_as_it_is(compared, tmp_path):
    plan = study("ce", "focal")
    theirs = compared / "runs" / plan.final("focal", {}, 0, "").key
    theirs.mkdir()
    (theirs / "notes.txt").write_text("mine")
    before = state_of(theirs)
    with pytest.raises(ValueError, match=r"is not a run folder: it holds notes\.txt"):
        compare(plan, compared, engine=Nobody())
    assert state_of(theirs) == before


def test_tables_are_not_written_through_a_link(compared, tmp_path, recipe, refused):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "methods.md").write_text("mine")
    (compared / "tables").symlink_to(theirs)
    words = ["--losses", "ce,ls", "--seeds", "1", "-q"]
    assert "is a link" in refused("compare", recipe, "-o", compared, *words)
    assert [path.name for path in theirs.iterdir()] == ["methods.md"]


def test_a_folder_of_ours_is_known_by_its_study(compared, tmp_path):
    assert check_folder(compared)
    assert not check_folder(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    assert not check_folder(tmp_path / "empty")
    assert json.loads((compared / "study.json").read_text())["format"] == "calibrant.study"


def test_progress_begins_when_the_folder_is_ours(compared):
    heard = []
    compare(study(), compared, engine=Nobody(), progress=lambda *event: heard.append((event, check_folder(compared))))
    assert heard == [(("testing: 2 runs, 2 of them on disk", 2, 2), True)]
