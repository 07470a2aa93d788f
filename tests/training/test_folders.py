"""Folders that commands write: a stranger's stays as it is to the nanosecond; locks, links, and what is left over."""

import json
import os

import pytest

from calibrant.training import load, train
from calibrant.training.run_folder import LOCK, InUseError, RunFolder
from tests.helpers import box_files
from tests.helpers.box_files import write
from tests.helpers.errors import facts
from tests.training.conftest import state_of

COMMANDS = {
    "train": "train {home}/digits.toml",
    "resume": "train {home}/digits.toml --resume",
    "compare": "compare {home}/digits.toml --losses ce --seeds 1 -q",
    "demo": "demo --quick -q",
    "inspect": "data inspect {home}/source",
    "make-variant": "data make-variant {home}/source context-only",
}
every = pytest.mark.parametrize("program", COMMANDS)

#: What a folder of somebody's may hold, some of it under names that our folders have too.
STRANGE = [
    {".env.local": "SECRET=1", ".git/config": "[core]", "index.html": "<p>mine</p>", "log.jsonl": "{}"},
    {"tables/methods.md": "mine", ".calibrant-part.notes": "ours by no rule"},
    {".lock": "theirs"},
    {"readme": "mine"},
    {"dataset.txt": "mine"},
    {"recipe.json": '{"flour": 500}'},
    {"recipe.json": "[1, 2]", "result.json": "{}"},
    {"recipe.json": "not JSON", "last.safetensors": "x"},
    {".calibrant-lock": "not by us"},
    {"failed.json": "{}"},
    {"runs/notes.txt": "mine", "results.csv": "a,b"},
    {"study.json": "{}"},
    {"study.json": '{"format": "theirs"}', "index.html": "mine"},
    {"study.json": "[" * 10**5},
    {"data.json": "{}", "lens.svg": "mine"},
    {"policy.json": "{}"},
]


@pytest.fixture
def home(tmp_path, recipe):
    """A folder with a recipe and a data set."""
    box_files.coco(tmp_path / "source")
    return tmp_path


def words(home, text):
    return text.format(home=home).split()


@every
@pytest.mark.parametrize("files", STRANGE, ids="-".join)
def test_a_strangers_folder_stays_as_it_is(program, files, home, refused, monkeypatch):
    folder = home / "project"
    for name, text in files.items():
        write(folder / name, text)
    before = state_of(folder)
    assert str(folder) in refused(*words(home, COMMANDS[program]), "-o", folder)
    monkeypatch.chdir(folder)
    refused(*words(home, COMMANDS[program]), "-o", ".")
    assert state_of(folder) == before


@every
@pytest.mark.parametrize("path", ["file", "pipe", "/dev/null", "s3://bucket/run", "hdfs:/x", "file/run"])
def test_what_is_no_folder_is_refused(program, path, home, refused, monkeypatch):
    monkeypatch.chdir(home)
    (home / "file").write_text("mine")
    os.mkfifo(home / "pipe")
    before = state_of(home)
    refused(*words(home, COMMANDS[program]), "-o", path)
    assert state_of(home) == before


@pytest.mark.parametrize(
    ("program", "settings"),
    [
        ("train", "--set data.layout=nosuch"),
        ("train", "--set data.path=/no/such/folder"),
        ("train", "--data /no/such/folder"),
        ("train", "--set data.test=nosuch"),
        ("train", "--set data.val="),
        ("train", "--set model.name=nosuch"),
        ("train", "--set model.input_size=[3,9,9]"),
        ("train", "--set model.hidden=[1000000,1000000]"),
        ("train", "--set model.weights=nosuch.pt"),
        ("train", "--set loss={{name='ce',weight=[1.0,2.0]}}"),
        ("train", "--set training.batch_size=5000"),
        ("train", "--set optimiser.rates={{nosuch=0.1}}"),
        ("train", "--accelerator nosuch"),
        ("train", "--devices 1000"),
        ("compare", "--set model.name=nosuch"),
        ("compare", "--data /no/such/folder"),
        ("compare", "--set training.batch_size=5000"),
        ("compare", "--losses ce,als"),
        ("compare", "--losses ce:nosuch.setting=1"),
        ("compare", "--losses ce:data.hold_out.count=many"),
        ("compare", "--seeds 1000000000"),
        ("compare", "--seeds ,"),
        ("compare", "--trials 1000000000"),
        ("demo", "--data nosuch"),
        ("demo", "--seed 99999999999999999999"),
        ("make-variant", "--fill 1,2"),
        ("make-variant", "--fill 1,2," + "9" * 5000),
        ("make-variant", "--format bmp"),
        ("make-variant", "--split none"),
        ("make-variant", "--layout voc"),
        ("make-variant", "--option classes=5"),
        ("make-variant", "--option layout=voc"),
        ("make-variant", "--option on_error=skip"),
        ("make-variant", "--option rename=" + '{{"a":' * 3000),
        ("make-variant", '--option rename={{"a":"b","a":"c"}}'),
        ("make-variant", "--option classes=[] --option classes=[]"),
        ("make-variant", "--option seed=" + "9" * 5000),
    ],
    ids=lambda text: text[:50],
)
def test_nothing_is_written_before_a_refusal(program, settings, home, refused):
    before = state_of(home)
    refused(*words(home, f"{COMMANDS[program]} {settings}"), "-o", home / "a/b/new")
    assert state_of(home) == before


def test_an_empty_folder_of_ones_own_is_taken_and_left(tmp_path, recipe, refused):
    (tmp_path / "mine").mkdir()
    refused("train", recipe, "-o", tmp_path / "mine", "--set", "data.train=nosuch")
    assert list((tmp_path / "mine").iterdir()) == []


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
