"""The command line as a user types it, and files for it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from calibrant import Policy, Predictions

NAMES = ["cat", "dog", "owl"]

# A module of a user's, with a network of four numbers and five classes, and what is no network.
FACTORY = """
import torch
from torch import nn
from sklearn.dummy import DummyClassifier

dummy = DummyClassifier()

class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.first, self.last = nn.Linear(4, width), nn.Linear(width, 5)

    def forward(self, x):
        return self.last(nn.functional.dropout(self.first(x).relu(), 0.5, self.training))

def fails():
    raise RuntimeError("no such\\nbackbone")

def number():
    return 3

value = 3
"""


@pytest.fixture
def refuse(run):
    """Run a command that must fail: one line, exit code 2, nothing written or lost in this folder; gives the line."""

    def state():
        folder = Path.cwd()
        files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size < 10**6]
        return sorted(map(str, folder.rglob("*"))), {path: path.read_bytes() for path in files}

    def call(*arguments):
        before = state()
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), (arguments, err)
        assert err.startswith("calibrant: ")
        assert err.count("\n") == 1, err
        assert state() == before
        return err.strip()

    return call


@pytest.fixture(scope="module")
def drawn():
    """Logits of three classes, and labels; tests read them only."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((300, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    for shared in (logits, labels):
        shared.setflags(write=False)
    return logits, labels


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, drawn):
    """The files of `here`, written once."""
    folder = tmp_path_factory.mktemp("prepared")
    for name, class_names in (("named", NAMES), ("plain", None)):
        predictions = Predictions.from_logits(*drawn, class_names=class_names)
        predictions.save(folder / f"{name}.npz")
        Policy.fit(predictions, 0.3, calibrator="none", score="msp").save(folder / f"{name}.json")
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch, prepared):
    """A folder with predictions (named.npz, plain.npz) and policies fitted on them (named.json, plain.json)."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return tmp_path
