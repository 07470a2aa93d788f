"""Runs in several processes: shares of a batch, readers, interrupts from a terminal, and one line of output."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from calibrant import Predictions
from calibrant.data import Batches
from calibrant.training import checkpoints, train
from calibrant.training.recipe import check

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


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "digits.toml"
    file.write_text(RECIPE)
    return file


def command(recipe, folder, *words, quiet=True):
    words = [*words, "-q"] if quiet else words
    return [sys.executable, "-m", "calibrant", "train", str(recipe), "--accelerator", "cpu", "-o", str(folder), *words]


def ran(words, tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(words, check=True, env=environment, cwd=tmp_path, capture_output=True, text=True)


def weights(folder):
    parts, state = checkpoints.load(folder / "last.safetensors")
    return {f"{part}/{name}": value for part, members in parts.items() for name, value in members.items()}, state


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
    (a, one), (b, two) = weights(tmp_path / "one"), weights(tmp_path / "two")
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
        train(check(plain | {"training": settings}, "readers"), tmp_path / str(workers))
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
    assert "interrupted; go on with: calibrant train" in errors
    assert "Traceback" not in errors
    assert weights(folder)[1]["epoch"] >= 2
