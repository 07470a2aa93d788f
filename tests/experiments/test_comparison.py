"""Comparisons: failures, repeats, interruptions, data that changed; and their folders, where strangers' files stay."""

import csv

import pytest
from PIL import Image

from calibrant.experiments import Contender, Local, Results, Study, compare
from calibrant.experiments.comparison import check_folder
from calibrant.experiments.engines import Job, perform
from tests.experiments.conftest import Here, Nobody, study
from tests.helpers import digit_studies
from tests.helpers.errors import facts
from tests.training.conftest import state_of


def test_one_failure_does_not_stop_the_rest(sweep):
    _, found, events = sweep
    assert {f.method for f in found.failures} == {"broken"}
    assert all("the loss is" in f.error for f in found.failures)
    assert found.twins == [("mbls", "ce")]
    assert set(found.results.column("method")) == {"ce", "ls", "mbls"}
    ends = [what.split()[-1] for what, *_ in events if what.endswith((" done", " failed"))]
    assert sorted(ends) == ["done"] * 6 + ["failed"] * 2
    assert events[0][1:] == (0, 8)
    assert events[-1][1:] == (8, 8)
    with (found.folder / "runs.csv").open() as file:
        states = [(row["method"], row["state"]) for row in csv.DictReader(file)]
    ended = (("ce", "done"), ("ls", "done"), ("broken", "failed"), ("mbls", "done"))
    assert states == [(method, state) for method, state in ended for _ in range(2)]


def test_running_it_again_computes_nothing(sweep):
    plan, found, _ = sweep
    events = []
    again = compare(plan, found.folder, engine=Here(), progress=lambda *event: events.append(event))
    assert [event[1:] for event in events] == [(8, 8)]
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
    first = compare(plan, tmp_path / "out", data=str(tmp_path / "one"), engine=Here())
    assert not first.failures
    again = compare(plan, tmp_path / "out", data=str(tmp_path / "moved"), engine=Here())
    assert again.results == first.results
    with pytest.raises(ValueError, match=facts("moved", "other", "24")):
        compare(plan, tmp_path / "out", data=str(tmp_path / "other"), engine=Here())
    with pytest.raises(ValueError, match=facts("nowhere")):
        compare(plan, tmp_path / "out", data=str(tmp_path / "nowhere"), engine=Here())
    als = Study(given, {"als": Contender("als", {})}, (0,))
    with pytest.raises(ValueError, match=facts("adaptive", "boxes")):
        compare(als, tmp_path / "new", data=str(tmp_path / "one"), engine=Here())


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
    compare(plan, found.folder, engine=Here(), retry=True, progress=lambda *event: events.append(event))
    assert events[0][1:] == (6, 8)
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


def words_of(program, recipe, folder):
    return [program, *([recipe] if program == "compare" else []), "-o", folder, *COMMANDS[program]]


STRANGE = [
    {"index.html": "<p>mine</p>", "results.csv": "a,b", ".env.local": "SECRET"},
    {"runs/notes.txt": "mine"},
    {"tables/methods.md": "mine"},
    {"study.json": "{}"},
    {"study.json": '{"format": "theirs"}', "index.html": "mine"},
    {"study.json": "[" * 10**5},
    {"data.json": "{}"},
    {"lens.svg": "mine"},
    {"policy.json": "{}"},
]


@pytest.mark.parametrize(
    ("program", "files"),
    [*(("compare", files) for files in STRANGE), *(("demo", STRANGE[k]) for k in (0, 4, -1))],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_strangers_folder_stays_as_it_is(program, files, tmp_path, recipe, refused, monkeypatch):
    folder = tmp_path / "project"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    before = state_of(folder)
    assert str(folder) in refused(*words_of(program, recipe, folder))
    monkeypatch.chdir(folder)
    refused(*words_of(program, recipe, "."))
    assert state_of(folder) == before


@pytest.mark.parametrize("program", COMMANDS)
@pytest.mark.parametrize("path", ["file", "/dev/null", "s3://bucket/x"])
def test_what_is_no_folder_is_refused(program, path, tmp_path, recipe, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    before = state_of(tmp_path)
    refused(*words_of(program, recipe, path))
    assert state_of(tmp_path) == before


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "data.layout=nosuch"],
        ["--data", "/no/such/folder"],
        ["--set", "data.test=nosuch"],
        ["--set", "model.name=nosuch"],
        ["--set", "model.hidden=[1000000, 1000000]"],
        ["--set", "training.batch_size=5000"],
        ["--set", "training.keep=best"],
        ["--losses", "ce,als"],
        ["--losses", "ce:nosuch.setting=1"],
        ["--losses", "ce:data.hold_out.count=many"],
        ["--accelerator", "nosuch"],
        ["--engine", "nosuch"],
        ["--seeds", "1000000000"],
        ["--seeds", ","],
        ["--trials", "1000000000"],
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
    with pytest.raises(ValueError, match=facts("notes.txt")):
        compare(plan, compared, engine=Nobody())
    assert state_of(theirs) == before


def test_tables_are_not_written_through_a_link(compared, tmp_path, recipe, refused):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "methods.md").write_text("mine")
    (compared / "tables").symlink_to(theirs)
    words = ["--losses", "ce,ls", "--seeds", "1", "-q"]
    assert "tables" in refused("compare", recipe, "-o", compared, *words)
    assert [path.name for path in theirs.iterdir()] == ["methods.md"]


def test_progress_begins_when_the_folder_is_ours(compared):
    heard = []
    compare(study(), compared, engine=Nobody(), progress=lambda *event: heard.append((event, check_folder(compared))))
    assert [(event[1:], ours) for event, ours in heard] == [((2, 2), True)]
