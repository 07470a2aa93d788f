"""Tests of two processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from calibrant.training import checkpoints

RECIPE = """
title = "digits"
[data]
layout = "digits"
val = "val"
train_steps = [{step = "random_crop", size = 8, padding = 1}]
[model]
name = "mlp"
input_size = [3, 8, 8]
hidden = [64]
[loss]
name = "acls"
margin = 6.0
[optimiser]
rate = 0.2
nesterov = true
[schedule]
name = "cosine"
warmup = 0.5
[training]
epochs = 3
batch_size = 128
checkpoint_seconds = 1e-6
"""


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "digits.toml"
    file.write_text(RECIPE)
    return file


def tensors(folder):
    parts, state = checkpoints.load(Path(folder) / "last.safetensors")
    return {f"{part}/{name}": value for part, members in parts.items() for name, value in members.items()}, state


def test_two_processes_train_as_one(recipe, tmp_path):
    """Each takes half of every batch; gradients are averaged, CRL's history and the sketches are shared.

    With strength 0, since CRL's pairs are neighbours in a process's own batch: the history is recorded all the same.
    """
    changes = ["training.epochs=2", "loss={name='crl', strength=0.0}", "training.checkpoint_seconds=60"]
    words = [w for change in changes for w in ("--set", change)]
    command = [sys.executable, "-m", "calibrant", "train", str(recipe), "--accelerator", "cpu", "-q", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "-o", str(tmp_path / "one")], check=True, env=environment, cwd=tmp_path)
    subprocess.run([*command, "-o", str(tmp_path / "two"), "--devices", "2"], check=True, env=environment, cwd=tmp_path)
    (a, one), (b, two) = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    assert torch.equal(a["loss/history.counts"], b["loss/history.counts"])
    for name in a:
        if name.startswith("model/"):
            assert torch.allclose(a[name], b[name], atol=2e-5), name
    assert one["history"][-1]["val_accuracy"] == pytest.approx(two["history"][-1]["val_accuracy"], abs=0.01)
