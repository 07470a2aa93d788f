"""Recipes for runs on the embedded digits, and what two such runs are compared by."""

import contextlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from calibrant import Predictions
from calibrant.training import checkpoints
from calibrant.training.recipe import check_recipe

#: Some seconds, with steps, a margin, warm-up, momentum and a checkpoint after every step.
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

DIGITS = {
    "data": {"layout": "digits", "hold_out": {"count": 100}},
    "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [16]},
    "optimiser": {"rate": 0.1},
    "training": {"batch_size": 128},
}


def digits(**data):
    return check_recipe(DIGITS | {"data": DIGITS["data"] | data}, "digits")


def tensors(folder):
    parts, state = checkpoints.load(Path(folder) / "last.safetensors")
    return {f"{part}/{name}": value for part, members in parts.items() for name, value in members.items()}, state


def assert_same(one, two):
    (a, state_a), (b, state_b) = tensors(one), tensors(two)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert state_a == state_b
    for name in ("val", "test"):
        assert np.array_equal(
            Predictions.open(one / f"{name}.npz").logits, Predictions.open(two / f"{name}.npz").logits
        )


def folder_of_classes(root, size=(8, 8)):
    for label in ("cat", "dog"):
        (root / label).mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (size[0] + i % 2, size[1]), (20 * i, 0, 99)).save(root / label / f"{i}.png")
    return root


@contextlib.contextmanager
def one_thread():
    """Numbers to the last bit depend on how many threads add them up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
