"""Promises on the command line, from the fit to the verdict: what is printed is what NumPy counts."""

import csv
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from calibrant import Policy
from tests.helpers.errors import facts
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
    code, out, _ = run(capsys, "monitor", "class.json", "broken.npz")
    assert code == 1
    assert re.search(facts("broken.npz", " a "), out)
    code, out, _ = run(capsys, "check", "broken.npz", "--policy", "class.json", "--require", "policy.risk <= 0.15")
    assert code == 1
    assert re.search(facts("policy.risk <= 0.15", "class=d"), out)


def test_recall_of_a_class(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder[0])
    assert run(capsys, "fit", "val.npz", "--promise", "recall=b:0.9", "-o", "recall.json", "-q")[0] == 0
    _, out, _ = run(capsys, "apply", "recall.json", "new.npz", "-o", "d.csv")
    answers, _, accept = Policy.load("recall.json").decide(folder[1].logits)
    own = folder[1].labels == 1
    assert (answers[accept] == 1).all()
    assert f"{(own & accept).sum()} of {own.sum()}" in loud(out)
    assert run(capsys, "check", "new.npz", "--policy", "recall.json", "--require", "policy.recall >= 0.8")[0] == 0
    _, out, _ = run(
        capsys, "audit", "broken.npz", "--policy", "recall.json", "-o", "none", "--json", "--replicates", 20
    )
    assert json.loads(out)["policy"]["kept"] == "no"
    assert json.loads(run(capsys, "monitor", "recall.json", "new.npz", "--json")[1])["untested"]


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


def test_an_expected_risk(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder[0])
    _, out, _ = run(capsys, "fit", "val.npz", "--promise", "expected-risk:0.1", "-o", "expected.json")
    assert "10%" in out
    for name, code in (("new.npz", 0), ("broken.npz", 1)):
        assert run(capsys, "apply", "expected.json", name, "-o", "d.csv", "--fail-on", "broken")[0] == code
    _, out, _ = run(capsys, "monitor", "expected.json", "new.npz", "--json")
    assert json.loads(out)["untested"]


def test_every_fit_prints_its_price(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder[0])
    code, out, _ = run(capsys, "fit", "val.npz", "--promise", "recall=b:0.9", "-o", "price.json")
    policy = Policy.load("price.json")
    precision, coverage = policy.price.measures
    assert code == 0
    assert (precision.name, coverage.name) == ("precision", "coverage")
    assert loud(policy.price_summary) in loud(out)
    assert f"{precision.part:,} of {precision.total:,}" in loud(out)
    _, out, _ = run(capsys, "fit", "val.npz", "--promise", "precision=b:0.9", "-o", "price.json", "--json")
    (recall, *_), (share, *_) = json.loads(out)["price"]["measures"], json.loads(out)["promise"]["shares"]
    assert (recall["name"], recall["class"], recall["of"]) == ("recall", "b", share["samples"])
    assert recall["low"] < recall["value"] < recall["high"]
    _, out, _ = run(capsys, "apply", "price.json", "new.npz", "-o", "d.csv", "--json")
    (recall, *_) = json.loads(out)["price"]
    answers, _, accept = Policy.load("price.json").decide(folder[1].logits)
    own = folder[1].labels == 1
    assert (recall["count"], recall["of"]) == ((own & accept & (answers == 1)).sum(), own.sum())


def test_an_audit_shows_the_price_and_what_could_be_promised(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder[0])
    run(capsys, "fit", "val.npz", "--promise", "recall=b:0.9", "-o", "recall.json", "-q")
    quick = ["--replicates", 20, "-o", "report.html"]
    _, out, _ = run(capsys, "audit", "new.npz", "--policy", "recall.json", *quick)
    assert loud(Policy.load("recall.json").price_summary) in loud(out)
    page = (folder[0] / "report.html").read_text(encoding="utf-8")
    assert "Precision of b" in page
    assert "Recall of b" in page
    run(capsys, "fit", "val.npz", "--promise", "precision=b:0.9999", "-o", "silent.json", "-q")
    menu = Policy.load("silent.json").threshold.menu
    _, out, _ = run(capsys, "audit", "new.npz", "--policy", "silent.json", *quick, "--json")
    document = json.loads(out)
    assert [offer["risk"] for offer in document["policy"]["menu"]] == [offer.risk for offer in menu]
    assert document["policy"]["menu"][0]["options"] == ["--promise", f"precision=b:{1 - menu[0].risk:g}"]
    assert f"precision=b:{1 - menu[0].risk:g}" in document["next"]["command"]


def test_prediction_sets_are_written_with_their_members_by_name(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder[0])
    assert run(capsys, "fit", "val.npz", "--target-risk", 0.1, "--sets", 0.95, "-o", "sets.json", "-q")[0] == 0
    for suffix in (".csv", ".parquet", ".npz"):
        assert run(capsys, "apply", "sets.json", "new.npz", "-o", f"d{suffix}", "-q") == (0, "", "")
    members = Policy.load("sets.json").predict_sets(folder[1])
    expected = [[name for name, inside in zip("abcd", row, strict=True) if inside] for row in members.tolist()]
    with open("d.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [json.loads(row["set"]) for row in rows] == expected
    assert [int(row["set_size"]) for row in rows] == members.sum(1).tolist()
    assert pq.read_table("d.parquet")["set"].to_pylist() == expected
    with np.load("d.npz") as arrays:
        np.testing.assert_array_equal(arrays["set"], members)
    for name, hold, broken in (("new.npz", "no sign", 0), ("broken.npz", "no", 1)):
        code, out, _ = run(capsys, "apply", "sets.json", name, "-o", "d.csv", "--json", "--fail-on", "broken")
        assert (code, json.loads(out)["sets"]["hold"]) == (broken, hold)
