"""Where results go: to files of this machine, checked before the work, and nothing else is written or replaced."""

import os
import signal
import stat
from pathlib import Path

import numpy as np
import pytest

from calibrant import Monitor, Policy, Predictions, audit
from calibrant._files import check_output
from tests.helpers.errors import facts
from tests.helpers.watches import draw

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
    assert address in refuse(*words, address + suffix)
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
    monkeypatch.setattr("calibrant._files._searched", {})  # as the next process has it
    writers[result](path)
    assert path.stat().st_size > 1000
    # What the killed one had begun is gone as well.
    assert sorted(entry.name for entry in here.iterdir() if entry.name.startswith(".")) == []


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    Policy.fit(draw(600, 0), 0.2).save(folder / "policy.json")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "apply policy.json data.npz -o data.npz",
        "apply policy.json shards -o shards/1.parquet",
        "apply policy.json *.npz -o link.npz",
        "audit data.html.npz -o policy.json",
        "fit data.npz --costs costs.json -o costs.json",
        "check data.npz --require 'ece<=1' --policy policy.json --junit policy.json",
        "check data.npz --require 'ece<=1' --baseline data.npz --junit data.npz",
        "export --policy policy.json --onnx model.onnx -o model.onnx",
        "export --policy policy.json --onnx model.onnx --inputs data.npz --expected link.npz.onnx -o link.npz.onnx",
    ],
)
def test_an_input_is_never_overwritten(made, tmp_path, run, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.json").write_bytes((made / "policy.json").read_bytes())
    for name in ("data.npz", "data.html.npz"):
        draw(60, 1).save(tmp_path / name)
    (tmp_path / "shards").mkdir()
    draw(60, 1).save(tmp_path / "shards" / "1.parquet")
    os.link("data.npz", "link.npz")
    os.link("data.npz", "link.npz.onnx")
    (tmp_path / "costs.json").write_text("[[0, 1], [1, 0]]")
    (tmp_path / "model.onnx").write_bytes(b"x")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, _, _ = run(*words.replace("'", "").split())
    assert code == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_set_of_arrays_is_one_output(tmp_path):
    """x_probabilities.npy is written with x_labels.npy, which is read with x_logits.npy."""
    for name in ("logits", "labels"):
        np.save(tmp_path / f"x_{name}.npy", np.zeros(2))
    with pytest.raises(ValueError, match=facts("x_probabilities.npy")):
        check_output(tmp_path / "x_probabilities.npy", inputs=[tmp_path / "x_logits.npy"])
    check_output(tmp_path / "y_probabilities.npy", inputs=[tmp_path / "x_logits.npy"])


def test_weights_of_a_run_and_images_of_a_data_set_are_inputs_however_deep(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for name in ("last.safetensors", "0.png"):
        path = tmp_path / "run" / "checkpoints" / name
        path.write_bytes(b"x")
        with pytest.raises(ValueError, match=name):
            check_output(path, inputs=[tmp_path / "link"])
    check_output(tmp_path / "run" / "checkpoints" / "new.npz", inputs=[tmp_path / "run"])


def test_what_is_not_read_may_be_written_again(tmp_path):
    (tmp_path / "report.html").write_text("an older report")
    (tmp_path / "1.parquet").write_bytes(b"x")
    check_output(tmp_path / "report.html", inputs=[tmp_path, None, "s3://bucket/x.parquet"])
    with pytest.raises(ValueError, match=facts("1.parquet")):
        check_output(tmp_path / "1.parquet", inputs=[f"{tmp_path}/*.parquet"])
