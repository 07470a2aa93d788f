"""Files: written aside and renamed, only bounded regular files read, and headers of ``.npy`` arrays not evaluated."""

import errno
import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

from calibrant.base.files import (
    CHUNK,
    DEEPEST,
    LONGEST_HEADER,
    MAGIC,
    PART,
    check_output,
    open_regular,
    parse_json,
    parse_toml,
    read_header,
    read_json,
    read_regular,
    read_values,
    remove_leftovers,
    write_json,
    written_aside,
)
from tests.helpers.errors import facts

STRANGERS = [".env.local", ".pre-commit-config.yaml", ".lock", f"{PART}notes", f"{PART}0123456789ab.mine.too.txt"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole_with_the_usual_permissions(tmp_path):
    path = tmp_path / "new" / ("n" * 250 + ".json")  # a name of any length
    write_json(path, {"a": 1})
    before = path.stat().st_ino
    write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert path.stat().st_ino != before
    assert names(path.parent) == [path.name]
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
    code = ("import sys, time; from calibrant.base.files import written_aside\n"
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
        with pytest.raises(ValueError, match=facts("x")):
            check_output(path)
        with pytest.raises(ValueError, match="x"), written_aside(path):
            pass
    assert names(tmp_path) == before
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_folder_to_write_to_is_no_file(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(ValueError, match=facts("a file")):
        check_output(tmp_path / "x", folder=True)
    check_output(tmp_path, folder=True)
    check_output(tmp_path / "new", folder=True)


def test_only_regular_files_are_read_and_no_more_than_allowed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    start = time.monotonic()
    for path, what in ((tmp_path / "pipe", "a named pipe"), ("/dev/zero", "a device"), (tmp_path, "a folder")):
        with pytest.raises(ValueError, match=facts(str(path), what)):
            open_regular(path)
    assert time.monotonic() - start < 5
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=facts("1,099,511,627,776")):
        read_regular(tmp_path / "sparse", 1000)
    (tmp_path / "small").write_bytes(b"x" * 1000)
    assert len(read_regular(tmp_path / "small", 1000)) == 1000
    with pytest.raises(ValueError, match=facts("999")):
        read_regular(tmp_path / "small", 999)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, "64"),
        ('{"a":' * 100_000, "64"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), "64"),
        ('{"a": 1, "b": 2, "a": 3}', "'a'"),
        ('{"x": NaN}', "NaN JSON"),
        ("-Infinity", "JSON"),
        ("1e999", "1e999"),
        ("9" * 100_000, "digits"),
        ('{"a": 1,}', "line 1"),
        (b"\xff\xfe{}", "UTF-8"),
        ("", "line 1"),
    ],
)
def test_json_that_is_refused(text, told, tmp_path):
    with pytest.raises(ValueError, match=facts("policy", *told.split())):
        parse_json(text, "a policy")
    path = tmp_path / "x.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=facts(str(path), *told.split())):
        read_json(path, 1 << 20, "a policy")


@pytest.mark.slow
def test_json_with_many_names_takes_linear_time():
    text = json.dumps({str(number): 0 for number in range(200_000)})
    start = time.process_time()
    with pytest.raises(ValueError, match=facts("'7'")):
        parse_json(text[:-1] + ', "7": 1}', "a policy")
    assert time.process_time() - start < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = " + "[" * 100_000, facts("64")),
        ("a = " + "{b=" * 100_000, facts("64")),
        ("a." * 200_000 + "b = 1", facts("64")),
        ('"a b" . ' * 200_000 + "b = 1", facts("64")),
        ("[" + "a." * 200_000 + "b]", facts("64")),
        ("a." * 70 + "b = 1", facts("64")),
        ("a = " + "1" * 10_000, facts("digits")),
        ("a = 1\na = 2", facts("TOML")),
        (b"\xff", facts("UTF-8")),
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


def npy(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def with_header(text, version=1):
    body = text.encode("latin-1")
    return MAGIC + bytes([version, 0]) + len(body).to_bytes(2 if version == 1 else 4, "little") + body


def header_of(descr="'<f4'", order="False", shape="(2, 3)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


ARRAYS = {
    "float64": np.arange(12.0).reshape(4, 3),
    "columns": np.arange(12.0).reshape(4, 3).T,
    "three axes by column": np.asfortranarray(np.arange(24).reshape(2, 3, 4)),
    "float16": np.arange(6, dtype=np.float16),
    "other byte order": np.arange(6, dtype=">i4"),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "text": np.array(["a", "bc", "\u00e9"]),
    "bytes": np.array([b"a", b"bc"]),
    "dates": np.array(["2020-01-01", "2021-02-03"], dtype="M8[D]"),
    "single number": np.array(3.5),
    "no rows": np.empty((0, 3), np.float32),
    "several reads": np.arange(CHUNK, dtype=np.int64),
}


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("name", ARRAYS)
def test_what_numpy_writes_is_read(name, version):
    array = ARRAYS[name]
    data = npy(array, version)
    file = io.BytesIO(data)
    header = read_header(file)
    assert (header.dtype, header.shape, header.kind) == (array.dtype, array.shape, array.dtype.kind)
    assert header.size == file.tell() == len(data) - header.data_size
    values = read_values(file, header)
    theirs = np.load(io.BytesIO(data))
    np.testing.assert_array_equal(values, theirs, strict=True)
    assert values.dtype == theirs.dtype
    assert values.flags.writeable
    assert values.flags.f_contiguous == theirs.flags.f_contiguous


@pytest.mark.filterwarnings("ignore:.*Python 2:UserWarning")
def test_lengths_of_python_2_are_read():
    assert read_header(io.BytesIO(with_header(header_of(shape="(3L, 4L)")))).shape == (3, 4)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", facts(".npy")),
        (MAGIC, facts(".npy")),
        (b"PK\3\4" + bytes(20), facts(".npy")),
        (with_header(header_of(), 9), facts("9.0")),
        (with_header(header_of())[:-5], facts("header")),
        (MAGIC + b"\1\0", facts("header")),
        (with_header(header_of() + " " * LONGEST_HEADER), facts("10000")),
        (with_header(header_of(), 2)[:8] + b"\xff" * 4, facts("4294967295")),
        (with_header(header_of()[:-1]), facts("header")),
        (with_header(header_of(order="1")), facts("header")),
        (with_header("{'descr': " + "[" * 3000), facts("header")),
        (with_header(header_of(shape="(-2, -3)")), facts("shape")),
        (with_header(header_of(shape="(2.0, 3)")), facts("shape")),
        (with_header(header_of(shape=f"({'9' * 5000},)")), facts("shape")),
        (with_header(header_of(shape="(" * 3000 + ")" * 3000)), facts("shape")),
    ],
)
def test_headers_that_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        read_header(io.BytesIO(data))


@pytest.mark.parametrize(
    ("descr", "code"),
    [("'|O'", "|O"), ("'<U0'", "<U0"), ("'|V8'", "|V8"), ("'<f4,<f4'", "|V8"), ("[('a', '<f4')]", "|V4")],
)
def test_types_that_are_never_made(descr, code):
    header = read_header(io.BytesIO(with_header(header_of(descr))))
    assert (header.kind, header.code) == ("V", code)
    with pytest.raises(ValueError, match=facts(code)) as error:
        read_values(io.BytesIO(bytes(100)), header)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("descr", ["__import__('os').abort()", "'M8[" + "9" * 99 + "s]'", "'<f5'"])
def test_types_that_numpy_does_not_have(descr):
    with pytest.raises(ValueError, match=facts("header", descr[:9])) as error:
        read_header(io.BytesIO(with_header(header_of(descr))))
    assert len(str(error.value)) < 200


def test_a_file_that_ends_early():
    file = io.BytesIO(npy(np.arange(5.0))[:-1])
    header = read_header(file)
    with pytest.raises(ValueError, match=facts("array")):
        read_values(file, header)
