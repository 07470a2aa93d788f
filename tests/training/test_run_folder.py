"""Folders of runs: strangers' files stay as they are to the nanosecond, and nothing is written through links."""

import json
import os

import pytest

from calibrant.training import load, train
from calibrant.training.run_folder import LOCK, InUseError, RunFolder
from tests.helpers.errors import facts
from tests.training.conftest import state_of

#: What a project of somebody's may hold, some of it under names that a run folder has too.
PROJECT = {
    ".env.local": "SECRET=1",
    ".pre-commit-config.yaml": "repos: []",
    ".lock": "theirs",
    ".git/config": "[core]",
    ".calibrant-part.notes": "ours by no rule",
    "index.html": "<p>mine</p>",
    "log.jsonl": "{}",
    "tables/methods.md": "mine",
}


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"recipe.json": '{"flour": 500}'},
        {"recipe.json": "[1, 2]"},
        {"recipe.json": "not JSON"},
        {"result.json": "{}"},
        {"last.safetensors": "x"},
        {LOCK: "not by us"},
    ],
    ids=lambda more: "-".join(more) or "as it is",
)
@pytest.mark.parametrize("words", [[], ["--resume"]], ids=["new", "resumed"])
def test_a_strangers_folder_stays_as_it_is(more, words, project, recipe, refused, monkeypatch):
    for name, text in more.items():
        (project / name).write_text(text)
    before = state_of(project)
    assert str(project) in refused("train", recipe, "-o", project, *words)
    monkeypatch.chdir(project)
    refused("train", recipe, "-o", ".", *words)
    assert state_of(project) == before


@pytest.mark.parametrize("name", [".env.local", ".lock", "failed.json", LOCK, "recipe.json", "readme"])
def test_a_single_file_of_a_stranger_is_enough(name, tmp_path, recipe, refused):
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / name).write_text("{}")
    before = state_of(folder)
    refused("train", recipe, "-o", folder)
    assert state_of(folder) == before


@pytest.mark.parametrize("kind", ["file", "pipe", "device", "address", "below a file"])
def test_what_is_no_folder_is_refused(kind, tmp_path, recipe, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    path = {"device": "/dev/null", "address": "s3://bucket/run", "below a file": "file/run"}.get(kind, kind)
    before = state_of(tmp_path)
    refused("train", recipe, "-o", path)
    assert state_of(tmp_path) == before


def test_an_empty_folder_of_ones_own_is_taken_and_left(tmp_path, recipe, refused):
    (tmp_path / "mine").mkdir()
    refused("train", recipe, "-o", tmp_path / "mine", "--set", "data.train=nosuch")
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "data.layout=nosuch"],
        ["--set", "data.path=/no/such/folder"],
        ["--data", "/no/such/folder"],
        ["--set", "data.test=nosuch"],
        ["--set", "model.name=nosuch"],
        ["--set", "model.input_size=[3, 9, 9]"],
        ["--set", "model.hidden=[1000000, 1000000]"],
        ["--set", "model.weights=nosuch.pt"],
        ["--set", "loss={name='ce', weight=[1.0, 2.0]}"],
        ["--set", "training.batch_size=5000"],
        ["--set", "optimiser.rates={nosuch=0.1}"],
        ["--set", "data.val="],
        ["--accelerator", "nosuch"],
        ["--devices", "1000"],
    ],
    ids=" ".join,
)
def test_nothing_is_written_before_a_refusal(words, tmp_path, recipe, refused):
    before = state_of(tmp_path)
    refused("train", recipe, "-o", tmp_path / "runs" / "new" / "run", *words)
    assert state_of(tmp_path) == before


def test_leftovers_are_removed_in_our_folders_alone(unfinished):
    ours = unfinished / ".calibrant-part.0123456789ab.abcdefgh.json"
    theirs = [unfinished / name for name in (".env.local", ".a.b.c", ".calibrant-part.x")]
    for path in (ours, *theirs):
        path.write_text("half")
    with RunFolder(unfinished).lock():
        assert not ours.exists()
    assert all(path.exists() for path in theirs)


NAMES = (
    LOCK, ".lock", "recipe.json", "log.jsonl", "environment.json", "result.json", "last.safetensors",
    "best.safetensors", "model.safetensors", "model.json", "test.npz", "val.npz", "tensorboard", "failed.json",
)  # fmt: skip


@pytest.fixture
def secrets(tmp_path):
    """A file, a folder, and a place where there is nothing yet: where links lead to."""
    folder = tmp_path / "secrets"
    (folder / "folder").mkdir(parents=True)
    (folder / "file").write_text("precious")
    return folder


@pytest.mark.parametrize(
    ("name", "target"),
    [*((name, "file") for name in NAMES), *((name, "nothing yet") for name in (LOCK, "log.jsonl", "result.json"))],
)
def test_nothing_is_written_through_a_link(name, target, unfinished, secrets, recipe, command):
    (unfinished / name).unlink(missing_ok=True)
    (unfinished / name).symlink_to(secrets / target)
    before = state_of(secrets)
    code, said = command("train", recipe, "-o", unfinished, "--resume", "-q", "--accelerator", "cpu")
    assert code in (0, 2), said
    assert state_of(secrets) == before


def test_a_lock_that_is_a_link_is_refused_in_a_new_folder(secrets, tmp_path, recipe, refused):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(secrets / "file")
    refused("train", recipe, "-o", tmp_path / "run")
    assert (secrets / "file").read_text() == "precious"


def test_a_lock_with_another_name_elsewhere_is_no_lock(unfinished, secrets, recipe, refused):
    """A hard link: what is written into one is in the other."""
    (unfinished / LOCK).unlink(missing_ok=True)
    os.link(secrets / "file", unfinished / LOCK)
    assert LOCK in refused("train", recipe, "-o", unfinished, "--resume")
    assert (secrets / "file").read_text() == "precious"


@pytest.mark.parametrize("name", [LOCK, "recipe.json", "log.jsonl", "result.json", "last.safetensors", "test.npz"])
def test_pipes_are_not_waited_for(name, unfinished, recipe, command):
    (unfinished / name).unlink(missing_ok=True)
    os.mkfifo(unfinished / name)
    code, said = command("train", recipe, "-o", unfinished, "--resume", "-q")
    assert code in (0, 2), said


def test_a_second_process_is_refused_and_changes_nothing(tmp_path, recipe):
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        assert folder.is_locked
        holder = (tmp_path / "run" / LOCK).read_text()
        assert holder.startswith(f"process {os.getpid()} on ")
        with pytest.raises(InUseError, match=facts(str(os.getpid()))):
            train(load(recipe), tmp_path / "run")
        assert (tmp_path / "run" / LOCK).read_text() == holder
    assert not (tmp_path / "run").exists()  # nothing was written


def test_a_lock_ends_with_its_process(tmp_path):
    child = os.fork()
    if child == 0:
        with RunFolder(tmp_path / "run").lock():
            os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert (tmp_path / "run" / LOCK).read_text().startswith(f"process {child} on ")
    with RunFolder(tmp_path / "run").lock():
        assert (tmp_path / "run" / LOCK).read_text().startswith(f"process {os.getpid()} on ")
    assert not (tmp_path / "run" / LOCK).exists()


def test_damaged_lines_of_the_log_are_left_out(unfinished):
    good = {"event": "step", "step": 3, "epoch": 1, "loss": 0.5}
    lines = [
        "5", "[]", "null", '"text"', "{", '{"step": "x"}', '{"step": -1}', '{"step": 1e99}', '{"epoch": []}',
        '{"event": 3}', "[" * 10**5, '{"a":' * 10**5, "\x00\x01", '{"step": 1, "step": 2}', "x" * 10**6,
    ]  # fmt: skip
    text = "\n".join([json.dumps(good), *lines, json.dumps(good | {"step": 4}), '{"event": "step", "ste'])
    (unfinished / "log.jsonl").write_text(text)
    folder = RunFolder(unfinished)
    assert folder.entries() == [good, good | {"step": 4}]
    folder.forget_after(3, 1)
    assert folder.entries() == [good]
