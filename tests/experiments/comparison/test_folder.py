"""Folders of comparisons and of the demonstration: strangers' files stay, and nothing is left by what is refused."""

import json

import pytest

from calibrant.experiments import compare
from calibrant.experiments.comparison.folder import check_folder
from tests.experiments.conftest import Nobody, study
from tests.training.conftest import state_of

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
