"""Tests of components."""

import math

import pytest

from calibrant.training import load, train

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


@pytest.mark.parametrize(
    "changes",
    [
        ["optimiser.sam=0.05"],
        ["mixing={name='cutmix'}", "loss={name='ce'}"],
        ["loss={name='crl'}"],
        ["loss={name='mdca'}", "training.accumulate=4", "optimiser.clip=1.0"],
        ["optimiser.name=adamw", "optimiser.rate=0.003", "training.keep=best", "training.best_by=nll"],
        ["data.blanking={name='cutout', size=3}", "data.colouring={brightness=0.2}", "loss={name='ls'}"],
    ],
    ids=lambda c: c[0],
)
def test_every_kind_of_setting_trains(changes, recipe, tmp_path):
    result = train(load(recipe, [*changes, "training.epochs=1", "training.checkpoint_seconds=60"]), tmp_path / "run")
    assert result["sets"]["val"]["accuracy"] > 0.3
    assert math.isfinite(result["sets"]["test"]["nll"])
