"""Files on disk: written aside and renamed, nobody else's touched, nothing read that is not a bounded regular file."""

import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

from calibrant._files import (
    DEEPEST,
    PART,
    check_output,
    open_regular,
    parse_json,
    parse_toml,
    read_json,
    read_regular,
    remove_leftovers,
    write_json,
    written_aside,
)

STRANGERS = [".env.local", ".pre-commit-config.yaml", ".lock", f"{PART}notes", f"{PART}0123456789ab.mine.too.txt"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole_with_the_usual_permissions(tmp_path):
    path = tmp_path / "new" / "x.json"
    write_json(path, {"a": 1})
    before = path.stat().st_ino
    write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert path.stat().st_ino != before
    assert names(path.parent) == ["x.json"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_a_write_that_fails_leaves_the_old_file_and_no_new_folder(tmp_path, error):
    path = tmp_path / "x.json"
    path.write_text("old")

    def fail_to_write(path):
        with written_aside(path) as aside:
            aside.write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail_to_write(path)
    assert path.read_text() == "old"
    with pytest.raises(type(error)) as raised:
        fail_to_write(tmp_path / "a" / "b" / "x.json")
    assert names(tmp_path) == ["x.json"]
    if isinstance(error, OSError):
        assert raised.value.filename == str(tmp_path / "a" / "b" / "x.json")


def test_names_of_any_length_can_be_written(tmp_path):
    path = tmp_path / ("n" * 250 + ".json")
    write_json(path, 1)
    assert names(tmp_path) == [path.name]


def test_files_and_folders_are_synced_before_and_after_the_rename(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda handle: (events.append(os.readlink(f"/proc/self/fd/{handle}")), fsync(handle))
    )
    monkeypatch.setattr(os, "replace", lambda *paths: (events.append("rename"), replace(*paths)))
    write_json(tmp_path / "x.json", 1)
    assert PART in events[0]
    assert events[1:] == ["rename", str(tmp_path)]


def write_and_wait(path):
    """A process that has begun to write a file, and will never end by itself."""
    code = ("import sys, time; from calibrant._files import written_aside\n"
            "with written_aside(sys.argv[1]) as aside:\n"
            "    aside.write_text('half'); print('ready', flush=True); time.sleep(600)")  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def test_what_a_killed_write_left_goes_with_the_next_one_and_a_living_write_stays(tmp_path):
    for name in STRANGERS:
        (tmp_path / name).write_text("mine")
    (tmp_path / f"{PART}0123456789ab.abcdefgh.json").write_text("of another file")
    killed, living = write_and_wait(tmp_path / "x.json"), write_and_wait(tmp_path / "x.json")
    try:
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert len(names(tmp_path)) == len(STRANGERS) + 3
        write_json(tmp_path / "x.json", 1)
        assert len(names(tmp_path)) == len(STRANGERS) + 3  # the killed one's is gone, x.json is there
        remove_leftovers(tmp_path)
        assert len(names(tmp_path)) == len(STRANGERS) + 2
    finally:
        living.kill()
        living.communicate()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted([*STRANGERS, "x.json"])
    assert all((tmp_path / name).read_text() == "mine" for name in STRANGERS)


def test_leftovers_that_are_links_lead_nowhere(tmp_path):
    (tmp_path / "precious").write_text("mine")
    link = tmp_path / "folder" / f"{PART}0123456789ab.abcdefgh.json"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "precious")
    remove_leftovers(link.parent)
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.fixture(params=["pipe", "folder", "socket", "link to a device", "s3", "gs", "file"])
def no_output(request, tmp_path):
    path = tmp_path / "x"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "socket":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.close()
    elif request.param == "link to a device":
        path.symlink_to("/dev/null")
    else:
        path = f"{request.param}://bucket/x.npz"
    return path


def test_nothing_is_written_over_what_is_no_file(no_output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = names(tmp_path)
    for path in (no_output, type(tmp_path)(no_output)):  # as text and as a path, which folds the slashes of an address
        with pytest.raises(ValueError, match=r"expected a file to write to, got a|results are written to this machine"):
            check_output(path)
        with pytest.raises(ValueError, match="x"), written_aside(path):
            pass
    assert names(tmp_path) == before
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_folder_to_write_to_is_no_file(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(ValueError, match="expected a folder to write to, got a file"):
        check_output(tmp_path / "x", folder=True)
    check_output(tmp_path, folder=True)
    check_output(tmp_path / "new", folder=True)


def test_only_regular_files_are_read_and_no_more_than_allowed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    start = time.monotonic()
    for path, what in ((tmp_path / "pipe", "a named pipe"), ("/dev/zero", "a device"), (tmp_path, "a folder")):
        with pytest.raises(ValueError, match=f"expected a file, got {what}"):
            open_regular(path)
    assert time.monotonic() - start < 5
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="expected at most 1,000 bytes, got 1,099,511,627,776"):
        read_regular(tmp_path / "sparse", 1000)
    (tmp_path / "small").write_bytes(b"x" * 1000)
    assert len(read_regular(tmp_path / "small", 1000)) == 1000
    with pytest.raises(ValueError, match="at most 999 bytes"):
        read_regular(tmp_path / "small", 999)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "nested deeper than 64 levels"),
        ('{"a":' * 100_000, "nested deeper than 64 levels"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "nested deeper than 64 levels"),
        ('{"a": 1, "b": 2, "a": 3}', "the name 'a' appears twice"),
        ('{"x": NaN}', "NaN is not a number in JSON"),
        ("-Infinity", "-Infinity is not a number in JSON"),
        ("1e999", "1e999 is too large a number"),
        ("9" * 100_000, "a number has too many digits"),
        ('{"a": 1,}', "in line 1"),
        (b"\xff\xfe{}", "the text is not UTF-8"),
        ("", "Expecting value in line 1"),
    ],
)
def test_json_that_is_refused(text, reason, tmp_path):
    with pytest.raises(ValueError, match=reason) as raised:
        parse_json(text, "a policy")
    assert str(raised.value).startswith("not a policy: ")
    path = tmp_path / "x.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=reason) as raised:
        read_json(path, 1 << 20, "a policy")
    assert str(raised.value).startswith(f"{path}: not a policy: ")


def test_json_with_many_names_takes_linear_time():
    text = json.dumps({str(number): 0 for number in range(200_000)})
    start = time.process_time()
    with pytest.raises(ValueError, match="the name '7' appears twice"):
        parse_json(text[:-1] + ', "7": 1}', "a policy")
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = " + "[" * 100_000, "nested deeper than 64 levels"),
        ("a = " + "{b=" * 100_000, "nested deeper than 64 levels"),
        ("a." * 200_000 + "b = 1", "nested deeper than 64 levels"),
        ('"a b" . ' * 200_000 + "b = 1", "nested deeper than 64 levels"),
        ("[" + "a." * 200_000 + "b]", "nested deeper than 64 levels"),
        ("a." * 70 + "b = 1", "nested deeper than 64 levels"),
        ("a = " + "1" * 10_000, "a number has too many digits"),
        ("a = 1\na = 2", "in TOML"),
        (b"\xff", "UTF-8"),
    ],
)
def test_toml_that_is_refused(text, reason):
    start = time.process_time()
    with pytest.raises(ValueError, match=reason):
        parse_toml(text, "a recipe")
    assert time.process_time() - start < 5


def test_toml_with_dots_in_its_strings_is_read():
    dots = ".".join("abc" * 60)
    assert parse_toml(f'a = "{dots}"\nb.c = 1', "a recipe") == {"a": dots, "b": {"c": 1}}
