"""Where results go: to files of this machine, checked before the work, and nothing else is written or replaced."""

import contextlib
import os
import signal
import stat
from pathlib import Path

import pytest

from calibrant import Monitor, Policy, Predictions, audit
from calibrant.base.files import check_output
from tests.helpers.errors import facts

COMMANDS = {
    "audit": (["audit", "plain.npz", "--replicates", "20", "-o"], ".html"),
    "fit": (["fit", "plain.npz", "-o"], ".json"),
    "apply csv": (["apply", "plain.json", "plain.npz", "-o"], ".csv"),
    "apply parquet": (["apply", "plain.json", "plain.npz", "-o"], ".parquet"),
    "apply npz": (["apply", "plain.json", "plain.npz", "-o"], ".npz"),
    "lens": (["lens", "-o"], ".png"),
    "export": (["export", "--policy", "plain.json", "--logits-only", "-o"], ".onnx"),
}


@pytest.fixture(params=COMMANDS)
def command(request):
    return COMMANDS[request.param]


@pytest.fixture
def unread(monkeypatch):
    """Reading predictions is an error: outputs must be refused before."""

    def read(*_, **__):
        raise AssertionError("predictions are read before the output is checked")

    monkeypatch.setattr("calibrant.predictions.Predictions.open", read)
    monkeypatch.setattr("calibrant.cli.lens.look", read)
    monkeypatch.setattr("calibrant.cli.export.export_onnx", read)


@pytest.mark.parametrize("address", ["s3://bucket/x", "gs://bucket/a/x", "https://host/x", "file:///tmp/x", "abfs://x"])
def test_other_storage_is_refused_before_the_work(here, refuse, unread, command, address):
    words, suffix = command
    assert address.split("/")[0] in refuse(*words, address + suffix)
    assert not (here / f"{address.split(':')[0]}:").exists()


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_nothing_but_files_is_replaced(here, refuse, unread, command, kind):
    words, suffix = command
    target = here / f"x{suffix}"
    if kind == "folder":
        target.mkdir()
    elif kind == "pipe":
        os.mkfifo(target)
    else:
        target.symlink_to("/dev/null")
    assert kind in refuse(*words, target)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("suffix", ["", ".txt", ".exe"])
def test_other_suffixes_are_refused_before_the_work(here, refuse, unread, command, suffix):
    words, allowed = command
    assert allowed in refuse(*words, here / f"x{suffix}")


def killed(write, moment, monkeypatch):
    """Fork; the child writes, and kills itself when it has written half, or when it is about to rename."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    try:
        if moment == "half":
            whole = Path.write_text
            monkeypatch.setattr(Path, "write_text", lambda path, text, **more: (
                whole(path, text[: len(text) // 2], **more), os.kill(os.getpid(), signal.SIGKILL)
            ))  # fmt: skip
        else:
            monkeypatch.setattr(os, "replace", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        write()
    finally:
        os._exit(1)


@pytest.mark.parametrize("moment", ["half", "renaming"])
@pytest.mark.parametrize("result", ["policy.json", "report.html", "audit.json", "watch.json"])
def test_a_kill_while_writing_leaves_the_old_file(here, monkeypatch, result, moment):
    policy, predictions = Policy.load("plain.json"), Predictions.open("plain.npz")
    found = audit(predictions, replicates=20) if result in ("report.html", "audit.json") else None
    writers = {
        "policy.json": policy.save,
        "watch.json": Monitor(policy).update(predictions).save,
        "report.html": found and found.to_html,
        "audit.json": found and found.to_json,
    }
    path = here / result
    path.write_bytes(b"what was there before")
    assert killed(lambda: writers[result](path), moment, monkeypatch)
    assert path.read_bytes() == b"what was there before"
    monkeypatch.setattr("calibrant.base.files._searched", {})  # as the next process has it
    writers[result](path)
    assert path.stat().st_size > 1000
    # What the killed one had begun is gone as well.
    assert sorted(entry.name for entry in here.iterdir() if entry.name.startswith(".")) == []


@pytest.mark.parametrize(
    "words",
    [
        "apply plain.json plain.npz -o plain.npz",
        "apply plain.json shards -o shards/1.parquet",
        "apply plain.json *.npz -o link.npz",
        "fit plain.npz --costs costs.json -o costs.json",
        "check plain.npz --require ece<=1% --policy plain.json --junit plain.json",
        "check plain.npz --require ece<=1% --baseline plain.npz --junit plain.npz",
        "export --policy plain.json --onnx model.onnx -o model.onnx",
        "export --policy plain.json --onnx model.onnx --inputs plain.npz --expected link.npz.onnx -o link.npz.onnx",
    ],
)
def test_an_input_is_never_overwritten(here, refuse, words):
    (here / "shards").mkdir()
    Predictions.open("plain.npz").save("shards/1.parquet")
    for name in ("link.npz", "link.npz.onnx"):
        os.link("plain.npz", name)
    (here / "costs.json").write_text("[[0, 1, 1], [1, 0, 1], [1, 1, 0]]")
    (here / "model.onnx").write_bytes(b"x")
    refuse(*words.split())


@pytest.mark.parametrize(
    ("output", "read", "is_input"),
    [
        ("x_probabilities.npy", ["x_logits.npy"], True),  # its labels are those of x_logits.npy
        ("y_probabilities.npy", ["x_logits.npy"], False),
        ("run/checkpoints/last.safetensors", ["link"], True),
        ("run/checkpoints/0.png", ["link"], True),
        ("run/checkpoints/new.npz", ["run"], False),
        ("report.html", ["", None, "s3://bucket/x.parquet"], False),
        ("1.parquet", ["*.parquet"], True),
    ],
)
def test_what_is_an_input(tmp_path, output, read, is_input):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for name in ("x_logits.npy", "x_labels.npy", "run/checkpoints/last.safetensors", "run/checkpoints/0.png",
                 "report.html", "1.parquet"):  # fmt: skip
        (tmp_path / name).write_bytes(b"x")
    inputs = [f"{tmp_path}/{name}" if name is not None and "://" not in name else name for name in read]
    with pytest.raises(ValueError, match=facts(output.rpartition("/")[2])) if is_input else contextlib.nullcontext():
        check_output(tmp_path / output, inputs=inputs)
