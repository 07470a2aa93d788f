"""The next command: with the user's own files and options, quoted for the shell, and it runs."""

import json
import shlex

import numpy as np
import pytest

from calibrant import Predictions, audit
from calibrant.auditing.next_step import CommandWords, next_step
from tests.helpers.audits import drawn
from tests.helpers.policies import run


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    z, y = drawn(600, 3, 2.0, 0)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    lines = ["a,b,c,my truth", *(",".join(map(repr, [*row.tolist(), int(k)])) for row, k in zip(p, y, strict=True))]
    (tmp_path / "my predictions.csv").write_text("\n".join(lines))
    return tmp_path


def test_the_next_command_has_the_options_of_the_audit_and_runs(table, capsys):
    reading = ["--column", "labels=my truth", "--column", "probabilities=a,b,c"]
    code, out, err = run(capsys, "audit", "my predictions.csv", *reading, "--json", "--replicates", 50)
    assert code == 0, err
    command = json.loads(out)["next"]["command"]
    assert shlex.split(command) == ["calibrant", "fit", "my predictions.csv", *reading]
    assert command in (table / "report.html").read_text(encoding="utf-8").replace("&#x27;", "'")
    code, _, err = run(capsys, *shlex.split(command)[1:])
    assert code == 0, err
    code, out, _ = run(capsys, "audit", "my predictions.csv", *reading, "--replicates", 50, "-o", "none")
    assert out.rstrip().endswith(command)


def test_what_comes_next_depends_on_what_there_is():
    words = CommandWords({"m": "m.npz"}, val=None, policy="p.json", reading=["--segmentation"])
    facts = {"holds": "logits", "split": None, "level": "poor"}
    kept = {"menu": [], "kept": "yes"}
    assert next_step(words, "m", **facts, policy=kept)["command"] == "calibrant apply p.json m.npz --segmentation"
    broken = {"menu": [], "kept": "no"}
    assert next_step(words, "m", **facts, policy=broken)["command"] == "calibrant fit m.npz --segmentation"
    silent = {"menu": [{"risk": 0.15, "coverage": 0.1}], "kept": "nothing"}
    step = next_step(words, "m", **facts, policy=silent)
    assert step["command"] == "calibrant fit m.npz --segmentation --target-risk 0.15"
    assert next_step(words, "m", **facts | {"holds": "confidence"}, policy=None)["command"] is None
    test = next_step(words, "m", **facts | {"split": "test"}, policy=None)
    assert test["command"] == "calibrant fit VALIDATION --segmentation"
    both = next_step(CommandWords({"m": "m.npz"}, val="v.npz"), "m", **facts, policy=None)
    assert both["command"] == "calibrant fit v.npz && calibrant audit m.npz --policy policy.json"


def test_in_python_it_is_a_line_of_python():
    step = audit(Predictions.from_logits(*drawn(300, 4, 2.0, 1)), replicates=20).document["next"]
    assert step["command"] == "Policy.fit(predictions, target_risk=0.05)"
