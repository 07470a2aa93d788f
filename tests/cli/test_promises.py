"""Promises on the command line, from the fit to the verdict: what is printed is what NumPy counts."""

import json

import numpy as np
import pytest

from calibrant import Policy
from tests.helpers.policies import run, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("promises")
    write(folder, "val.npz")
    write(folder, "broken.npz", seed=2, noise=0.5)
    (folder / "costs.csv").write_text("0,1,1,1\n5,0,1,1\n1,1,0,1\n1,1,1,0\n")
    return folder, write(folder, "new.npz", n=1500, seed=1)


def loud(text):
    return " ".join(text.split())


def test_every_class_at_once(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder[0])
    code, out, _ = run(capsys, "fit", "val.npz", "--target-risk", 0.15, "--by-class", "-o", "class.json")
    assert code == 0
    assert "of the answers of every predicted class are wrong, at once" in loud(out)
    assert "By predicted class" in out
    code, out, _ = run(capsys, "apply", "class.json", "new.npz", "-o", "d.csv", "--json")
    found = json.loads(out)
    answers, _, accept = Policy.load("class.json").decide(folder[1].logits)
    for number, name in enumerate("abcd"):
        own = answers == number
        wrong = own & accept & (answers != folder[1].labels)
        assert found["classes"][name] == {"samples": own.sum(), "accepted": (own & accept).sum(), "errors": wrong.sum()}
    assert found["promise_kept"] in ("yes", "no sign")
    code, out, _ = run(capsys, "apply", "class.json", "broken.npz", "-o", "d.csv", "--fail-on", "broken")
    assert code == 1
    assert "wrong answers of every class is broken beyond chance in a (" in loud(out)
    code, out, _ = run(capsys, "monitor", "class.json", "broken.npz")
    assert code == 1
    assert "% of the answers of broken.npz in a are wrong" in loud(out)
    code, out, _ = run(capsys, "check", "broken.npz", "--policy", "class.json", "--require", "policy.risk <= 0.15")
    assert code == 1
    assert "fails: policy.risk <= 0.15 in class=d" in loud(out)


def test_recall_of_a_class(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder[0])
    assert run(capsys, "fit", "val.npz", "--promise", "recall=b:0.9", "-o", "recall.json", "-q")[0] == 0
    _, out, _ = run(capsys, "apply", "recall.json", "new.npz", "-o", "d.csv")
    answers, _, accept = Policy.load("recall.json").decide(folder[1].logits)
    own = folder[1].labels == 1
    assert (answers[accept] == 1).all()
    assert f"{(own & accept).sum()} of {own.sum()} samples of b are answered as b" in loud(out)
    assert run(capsys, "check", "new.npz", "--policy", "recall.json", "--require", "policy.recall >= 0.8")[0] == 0
    _, out, _ = run(capsys, "audit", "broken.npz", "--policy", "recall.json")
    assert "at least 90% of b are answered as b is broken beyond chance" in loud(out)
    assert "The promised recall needs the labels" in loud(run(capsys, "monitor", "recall.json", "new.npz")[1])


def test_costs(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder[0])
    cost = ["--costs", "costs.csv", "--target-cost", 0.3, "--abstain-cost", 0.5, "-o", "cost.json"]
    assert run(capsys, "fit", "val.npz", *cost, "-q")[0] == 0
    _, out, _ = run(capsys, "apply", "cost.json", "new.npz", "-o", "d.csv", "--json")
    answers, _, accept = Policy.load("cost.json").decide(folder[1].logits)
    matrix = np.loadtxt("costs.csv", delimiter=",")
    mean = matrix[folder[1].labels, answers][accept].mean()
    assert json.loads(out)["promise"]["mean_loss"] * 5 == pytest.approx(mean)
    code, out, _ = run(capsys, "check", "new.npz", "--policy", "cost.json", "--require", "policy.cost <= 0.35")
    assert code == 0
    assert f"{mean:.4f}" in out
    code, out, _ = run(capsys, "apply", "cost.json", "broken.npz", "-o", "d.csv", "--fail-on", "broken")
    assert code == 1
    assert "costs at most 0.3 on average is broken beyond chance" in loud(out)


def test_an_expected_risk(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder[0])
    _, out, _ = run(capsys, "fit", "val.npz", "--promise", "expected-risk:0.1", "-o", "expected.json")
    assert "On average over validation sets, at most 10% of all samples are answered wrongly" in loud(out)
    _, out, _ = run(capsys, "apply", "expected.json", "new.npz", "-o", "d.csv", "--json")
    assert json.loads(out)["promise_kept"] == "no sign"
    assert run(capsys, "apply", "expected.json", "broken.npz", "-o", "d.csv", "--fail-on", "broken")[0] == 1
    assert "An expected risk is an average over fits" in loud(run(capsys, "monitor", "expected.json", "new.npz")[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--promise", "recall=z:0.9"], "no class 'z'"),
        (["--promise", "precision=a:0.9", "--target-risk", 0.1], "--target-risk does not go with"),
        (["--by-class", "--target-coverage", 0.5], "--target-coverage does not go with"),
        (["--costs", "costs.csv"], "costs need"),
        (["--by-class", "--promise", "recall=a:0.9"], "different promises"),
    ],
)
def test_one_sentence_and_exit_2(folder, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(folder[0])
    code, _, err = run(capsys, "fit", "val.npz", *arguments, "-o", "no.json")
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
