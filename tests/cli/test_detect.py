"""The command ``detect``: tables of two backbones, continued after a kill -9, and refusals in one sentence."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.drawn_objects import RECIPE, drawn_voc, weights_file
from tests.helpers.errors import facts
from tests.helpers.processes import run_ranks


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detect")
    drawn_voc(folder / "voc", train=16, val=4)
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "classifier.toml").write_text('[data]\nlayout = "digits"\n[model]\nname = "mlp"\n')
    for seed, name in enumerate(("hard", "als")):
        weights_file(folder / f"{name}.safetensors", seed=seed)
    return folder


def words_of(home, out, *more):
    backbones = [w for name in ("hard", "als") for w in ("--backbone", f"{name}={home / f'{name}.safetensors'}")]
    return ["detect", home / "recipe.toml", *backbones, "--data", home / "voc", "-o", out, *more]


@pytest.mark.slow
def test_killed_and_run_again_it_goes_on_and_compares(home, tmp_path, run):
    out = tmp_path / "out"
    words = [str(w) for w in words_of(home, out, "--seeds", "1", "--set", "training.epochs=40", "--set",
                                      "training.checkpoint_seconds=0.001", "--quiet")]  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", "calibrant", *words], env=os.environ | {"OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 300
    while not list(out.glob("runs/*/last.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    (begun,) = (out / "runs").iterdir()
    assert not (begun / "result.json").exists()
    code, text, err = run(*words[:-1])
    assert (code, "step" in err, "hard" in text) == (0, True, True), err
    assert {"index.html", "results.csv", "precision.md", "paired.md", "runs"} <= set(os.listdir(out))
    code, text, _ = run(*words, "--json")
    document = json.loads(text)
    assert code == 0
    assert set(document["backbones"]) == {"hard", "als"}
    assert 0 <= document["backbones"]["als"]["test"]["ap50"]["0"] <= 1


@pytest.mark.slow
def test_two_processes_train_as_one(home, tmp_path, run):
    """Each takes one image of two; one process takes them as two parts of a batch, whose gradients it adds up.

    All regions and anchors are trained on, so that nothing is drawn.
    """
    backbone = f"hard={home / 'hard.safetensors'}"
    words = ["detect", home / "recipe.toml", "--backbone", backbone, "--data", home / "voc", "--seeds", "0,", "-q",
             "--accelerator", "cpu", "--set", "detection.regions=200", "--set", "training.batch_size=2"]  # fmt: skip
    one, two = tmp_path / "one", tmp_path / "two"
    assert run(*words, "-o", one, "--set", "training.accumulate=2")[0] == 0
    outputs = run_ranks(*words, "-o", two, folder=tmp_path)
    assert [output.returncode for output in outputs] == [0, 0], outputs
    assert [(output.stdout, output.stderr) for output in outputs] == [("", "")] * 2
    (alone,), (shared,) = (
        [load_file(path) for path in folder.glob("runs/*/model.safetensors")] for folder in (one, two)
    )
    start = load_file(home / "hard.safetensors")["trunk.stages.1.0.conv1.weight"]
    assert not torch.allclose(alone["model/backbone.stages.1.0.conv1.weight"], start, atol=1e-3)  # it has learned
    for name in alone:
        assert torch.allclose(alone[name], shared[name], atol=2e-5), name
    code, text, _ = run(*words, "-o", two, "--json")  # what is finished is only read
    assert code == 0
    assert set(json.loads(text)["backbones"]["hard"]["test"]["ap50"]) == {"0"}


BOTH = "detect recipe.toml --backbone hard=hard.safetensors --backbone als=als.safetensors --data voc"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("detect classifier.toml --backbone a=als.safetensors", "classifier.toml"),
        ("detect recipe.toml --data voc", "backbone"),
        ("detect recipe.toml --backbone a=nowhere --data voc", "nowhere"),
        ("detect nothing.toml --backbone a=b", "nothing.toml"),
        (f"{BOTH} -o voc", "voc"),
        (f"{BOTH} --reference ls", "ls hard, als"),
        (f"{BOTH} --devices 2", "one"),
        ("detect recipe.toml --backbone a=als.safetensors --set data.layout=digits", "boxes"),
        ("train recipe.toml --data voc", "calibrant detect"),
    ],
)
def test_bad_input_is_one_sentence(home, monkeypatch, refuse, words, told):
    monkeypatch.chdir(home)
    output = [] if " -o " in words else ["-o", "new"]
    assert re.search(facts(*told.split()), refuse(*words.split(), *output, "--quiet"))


def test_a_missing_extra_is_named(home, monkeypatch, refuse):
    import importlib.util

    monkeypatch.chdir(home)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "pycocotools" else find(name, *a))
    assert re.search(facts("pycocotools", "calibrant[detection]"), refuse(*BOTH.split(), "-o", "new", "--quiet"))
