"""The page on two classes: its commands, as a newcomer types them, on files as it describes them."""

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs/binary.md"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """val.csv and test.csv with labels yes and no and a calibrated score, new.csv with scores alone."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    for name in ("val", "test"):
        p = rng.beta(0.5, 3, 900)
        rows = (f"{'yes' if u < s else 'no'},{s:.5f}" for u, s in zip(rng.random(900), p, strict=True))
        Path(f"{name}.csv").write_text("\n".join(["label,score", *rows, ""]))
    Path("new.csv").write_text("score\n0.999\n0.5\n0.001\n")


@pytest.mark.slow
def test_the_commands_of_the_page(files, run):
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    commands = [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]
    assert [command[0] for command in commands] == ["audit", "fit", "apply", "audit"]
    outputs = [run(*command) for command in commands]
    assert [code for code, _, _ in outputs] == [0] * 4, outputs
    assert "P(yes)" in outputs[0][1]
    policy = json.loads(Path("policy.json").read_text())
    assert (policy["class_names"], policy["positive"]) == (["no", "yes"], 1)
    rows = list(csv.DictReader(Path("decisions.csv").read_text().splitlines()))
    assert [row["class_name"] for row in rows][::2] == ["yes", "no"]
    assert [row["accept"] for row in rows] == ["true", "false", "true"]


@pytest.mark.slow
def test_the_way_from_scikit_learn_to_onnx(tmp_path, monkeypatch, run, capsys):
    monkeypatch.chdir(tmp_path)
    way = PAGE.read_text().partition("## From scikit-learn to ONNX")[2]
    (training,) = re.findall(r"^```python\n(.*?)^```", way, re.DOTALL | re.MULTILINE)
    commands, serving = re.findall(r"^```text\n(.*?)^```", way, re.DOTALL | re.MULTILINE)
    exec(training, {})
    for line in commands.splitlines():
        code, _, error = run(*shlex.split(line)[1:])
        assert code == 0, (line, error)
    namespace = {}
    exec(serving, namespace)
    rows = list(csv.DictReader(Path("decisions.csv").read_text().splitlines()))
    accepted = [row["accept"] == "true" for row in rows]
    assert np.mean(accepted) > 0.3
    # The forest computes in float32 in ONNX, so that some of many rows may fall on the other side.
    assert np.mean(namespace["accept"] == accepted) > 0.99
    assert np.mean(namespace["label"] == [int(row["label"]) for row in rows]) > 0.99
    assert json.loads(Path("policy.json").read_text())["class_names"] == ["no", "yes"]
