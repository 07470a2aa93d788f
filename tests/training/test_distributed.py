"""Runs in several processes: shares of a batch, readers, interrupts from a terminal, and one line of output."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant import Predictions
from calibrant.data import Batches
from calibrant.training import train
from calibrant.training.recipe import check_recipe
from tests.helpers import digit_runs

RECIPE = """
[data]
layout = "digits"
hold_out = {count = 101}
[model]
name = "mlp"
input_size = [3, 8, 8]
hidden = [32]
[optimiser]
rate = 0.1
[training]
batch_size = 61
epochs = 2
"""


def command(recipe, folder, *words, quiet=True):
    words = [*words, "-q"] if quiet else words
    return [sys.executable, "-m", "calibrant", "train", str(recipe), "--accelerator", "cpu", "-o", str(folder), *words]


def ran(words, tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(words, check=True, env=environment, cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.parametrize("size", [1, 2, 3], ids=lambda size: f"{size} left")
def test_processes_are_in_step_and_miss_nothing(size):
    """The last batch may be smaller than the number of processes."""
    world, number = 3, 12 + size
    shuffled = [list(Batches(number, 6, world=world, rank=rank)) for rank in range(world)]
    assert len({len(batches) for batches in shuffled}) == 1
    assert all(batch for batches in shuffled for batch in batches)
    seen = [i for batches in shuffled for batch in batches for _, i in batch]
    assert len(seen) == len(set(seen)) == (number if size == world else 12)
    plain = [list(Batches(number, 6, world=world, rank=rank, shuffle=False)) for rank in range(world)]
    assert sorted(i for batches in plain for batch in batches for _, i in batch) == list(range(number))
    assert all(batch for batches in plain for batch in batches)


def test_batches_that_do_not_share_out_evenly(recipe, tmp_path):
    """Odd batches, a smaller last one, in parts, and a loss with a memory: two processes as one."""
    settings = ["loss={name='crl', strength=0.0}", "training.accumulate=3", "training.drop_last=false"]
    words = [word for setting in settings for word in ("--set", setting)]
    ran(command(recipe, tmp_path / "one", *words), tmp_path)
    found = ran(command(recipe, tmp_path / "two", *words, "--devices", "2", quiet=False), tmp_path)
    assert found.stdout.count("accuracy") == 1  # one of the two speaks
    assert found.stderr.count("epoch 1:") == 1
    (a, one), (b, two) = digit_runs.tensors(tmp_path / "one"), digit_runs.tensors(tmp_path / "two")
    assert torch.equal(a["loss/history.counts"], b["loss/history.counts"])
    assert one["step"] == two["step"]
    for name in a:
        if name.startswith("model/"):
            assert torch.allclose(a[name], b[name], atol=2e-5), name
    assert one["history"][-1]["val_nll"] == pytest.approx(two["history"][-1]["val_nll"], abs=1e-4)


def test_readers_change_nothing(recipe, tmp_path):
    plain = {
        "data": {"layout": "digits", "train_steps": [{"step": "random_crop", "size": 8, "padding": 1}]},
        "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [16]},
    }
    for workers in (0, 2):
        settings = {"batch_size": 64, "epochs": 2, "workers": workers}
        train(check_recipe(plain | {"training": settings}, "readers"), tmp_path / str(workers))
    one, two = (Predictions.open(tmp_path / workers / "test.npz").logits for workers in ("0", "2"))
    assert np.array_equal(one, two)


def test_ctrl_c_in_a_terminal_reaches_readers_too(recipe, tmp_path):
    """SIGINT goes to the whole group of processes; the run is saved all the same, and can go on."""
    folder = tmp_path / "run"
    words = command(recipe, folder, "--set", "training.workers=2", "--set", "training.epochs=2000", quiet=False)
    process = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    for line in process.stderr:
        if line.startswith("epoch 2"):
            break
    time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; continue with: calibrant train" in errors
    assert "Traceback" not in errors
    assert digit_runs.tensors(folder)[1]["epoch"] >= 2


def refused(words, tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    found = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
    return found.stderr.strip()


def test_several_processes_fail_with_one_sentence(recipe, tmp_path):
    """A folder that cannot be had, and a loss that is no number."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("not a run")
    said = refused(command(recipe, tmp_path / "other", "--devices", "2"), tmp_path)
    assert said.count("\n") == 0
    assert "is not a run folder: it holds mine.txt" in said
    diverging = ["--set", "optimiser.rate=1e6", "--set", "optimiser.weight_decay=1e6"]
    said = refused(command(recipe, tmp_path / "y", "--devices", "2", *diverging), tmp_path)
    assert said.count("the loss is") == 1


def test_what_only_one_process_meets_is_said_by_the_first(tmp_path):
    """The first batch of one class is all the second process's; one of its images is none."""
    for split, number in (("train", 8), ("test", 2)):
        for name in ("cat", "dog"):
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for i in range(number):
                Image.new("RGB", (8, 8), (i * 20, 0, 0)).save(folder / f"{i}.png")
    mine = next(iter(Batches(16, 16, seed=0, rank=1, world=2)))
    index = next(i for _, i in mine if i > 1)  # those before are looked at by all processes beforehand
    broken = tmp_path / "images" / "train" / ("cat" if index < 8 else "dog") / f"{index % 8}.png"
    broken.write_bytes(b"no image")
    file = tmp_path / "images.toml"
    file.write_text(
        """
        [data]
        layout = "image-folder"
        path = "images"
        steps = [{step = "resize", size = 8}]
        [model]
        name = "mlp"
        input_size = [3, 8, 8]
        hidden = [8]
        [optimiser]
        rate = 0.1
        [training]
        batch_size = 16
        epochs = 1
        """
    )
    said = refused(command(file, tmp_path / "run", "--devices", "2"), tmp_path)
    assert said.count("\n") == 0
    assert broken.name in said
    assert "another process of this run has ended" in said


def test_running_means_are_those_of_the_first_process(recipe, tmp_path):
    """What validation says at the end of the last epoch is what the saved model gives."""
    words = ["--set", "model={name='small_cnn'}", "--set", "training.epochs=1", "--devices", "2"]
    ran(command(recipe, tmp_path / "run", *words), tmp_path)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["sets"]["val"]["nll"] == pytest.approx(result["history"][-1]["val_nll"], rel=1e-6)


@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
def test_a_process_that_is_killed_ends_the_others(which, recipe, tmp_path):
    words = command(recipe, tmp_path / "run", "--devices", "2", "--set", "training.epochs=5000", quiet=False)
    process = subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    for line in process.stderr:
        if line.startswith("epoch 2"):  # the first has been saved
            break
    children = (Path(f"/proc/{process.pid}/task/{process.pid}/children")).read_text().split()
    os.kill(process.pid if which == 0 else int(children[0]), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    if which == 1:
        assert process.returncode == 2
        assert "another process of this run has ended; --resume continues" in errors
        assert "Traceback" not in errors
    assert digit_runs.tensors(tmp_path / "run")[1]["epoch"] >= 1


def test_the_way_to_go_on_is_the_whole_command(recipe, tmp_path):
    settings = ["--loss", "ls", "--set", "loss.alpha=0.3", "--set", "training.epochs=5000"]
    words = command(recipe, tmp_path / "run", *settings, quiet=False)
    process = subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    for line in process.stderr:
        if line.startswith("epoch 1"):
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    (hint,) = [line for line in errors.splitlines() if "continue with: " in line]
    again = shlex.split(hint.partition("continue with: ")[2])
    assert again == ["calibrant", *words[3:], "--resume"]


def test_two_processes_train_as_one(tmp_path):
    """Each takes half of every batch; gradients are averaged, CRL's history and the sketches are shared.

    With strength 0, since CRL's pairs are neighbours in a process's own batch: the history is recorded all the same.
    """
    recipe = tmp_path / "digits.toml"
    recipe.write_text(digit_runs.RECIPE)
    changes = ["training.epochs=2", "loss={name='crl', strength=0.0}", "training.checkpoint_seconds=60"]
    words = [w for change in changes for w in ("--set", change)]
    command = [sys.executable, "-m", "calibrant", "train", str(recipe), "--accelerator", "cpu", "-q", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "-o", str(tmp_path / "one")], check=True, env=environment, cwd=tmp_path)
    subprocess.run([*command, "-o", str(tmp_path / "two"), "--devices", "2"], check=True, env=environment, cwd=tmp_path)
    (a, one), (b, two) = digit_runs.tensors(tmp_path / "one"), digit_runs.tensors(tmp_path / "two")
    assert torch.equal(a["loss/history.counts"], b["loss/history.counts"])
    for name in a:
        if name.startswith("model/"):
            assert torch.allclose(a[name], b[name], atol=2e-5), name
    assert one["history"][-1]["val_accuracy"] == pytest.approx(two["history"][-1]["val_accuracy"], abs=0.01)
