"""Tests of policy check."""

import numpy as np
import pytest

from calibrant import Policy, Predictions, audit
from tests.helpers.audits import drawn
from tests.helpers.policies import run, write


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "val.npz")
    return tmp_path


def honest(n):
    rng = np.random.default_rng(1)
    z = 3 * rng.standard_normal((n, 4))
    return z, (z + rng.gumbel(size=z.shape)).argmax(1)


def test_the_audit_of_a_policy(here, capsys):
    run(capsys, "fit", "val.npz", "--target-risk", 0.1)
    test = write(here, "test.npz", seed=6)
    code, out, _ = run(capsys, "audit", "test.npz", "--policy", "policy.json")
    assert code == 0
    assert "\nPolicy: " in out
    assert "breaks its promise" not in out.replace("No sign that the policy breaks its promise", "")
    assert "test.npz, calibrated" in out
    policy = Policy.load("policy.json")
    found = audit(test, policy=policy, replicates=50).document
    labels, _, accept = policy.decide(test.logits)
    answered, wrong, everything = (row["value"] for row in found["policy"]["rows"])
    assert answered == accept.mean()
    assert wrong == (labels != test.labels)[accept].mean()
    assert everything == (labels != test.labels).mean()
    plain, calibrated = ({m["name"]: m["value"] for m in model["metrics"]} for model in found["models"])
    assert calibrated["ece_15"] < plain["ece_15"] / 3
    assert calibrated["accuracy"] == plain["accuracy"]
    with pytest.raises(ValueError, match="for 4 classes, got 3"):
        audit(Predictions.from_logits(np.zeros((5, 3)), [0] * 5), policy=policy)


def test_the_audit_of_a_policy_on_probabilities(here):
    rng = np.random.default_rng(8)
    honest = 2 * rng.standard_normal((2500, 3))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    p = np.exp(2.5 * honest)
    data = Predictions.from_probabilities(p / p.sum(1, keepdims=True), labels)
    found = audit(data, policy=Policy.fit(data, 0.2), replicates=50).document
    assert [model["holds"] for model in found["models"]] == ["probabilities", "probabilities"]
    assert found["policy"]["kept"] in ("yes", "no sign")
    assert "fitted on" in found["policy"]["text"]  # the same samples


def test_a_policy_that_never_answers_shows_what_could_be_promised(tmp_path):
    honest, y = drawn(1500, 4, 1.0, 3)
    policy = Policy.fit(Predictions.from_logits(honest, y), 0.01)
    assert policy.abstains
    result = audit(Predictions.from_logits(*drawn(1200, 4, 1.0, 4)), policy=policy, replicates=50)
    part = result.document["policy"]
    assert part["title"].startswith("The policy never answers")
    assert "The lowest risk that could be promised" in part["text"]
    assert [(offer["risk"], offer["coverage"]) for offer in part["menu"]] == list(policy.threshold.menu)
    result.to_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "What could be promised (estimates)" in page
    assert f"at most {100 * policy.threshold.menu[0].risk:.6g}% wrong" in page


def test_prediction_sets_are_part_of_the_audit(here, capsys):
    run(capsys, "fit", "val.npz", "--target-risk", 0.1, "--sets", 0.9)
    test = write(here, "test.npz", n=1500, seed=6)
    policy = Policy.load("policy.json")
    audited = audit(test, policy=policy, replicates=50)
    sets = audited.document["policy"]["sets"]
    members = policy.predict_sets(test.logits)
    inside = members[np.arange(1500), test.labels]
    assert sets["rows"][0]["value"] == inside.mean()
    assert sets["rows"][1]["value"] == members.sum(1).mean()
    assert sets["hold"] == "no sign"
    assert {row["name"]: row["value"] for row in sets["classes"]} == {
        name: inside[test.labels == k].mean() for k, name in enumerate("abcd")
    }
    audited.to_html(here / "page.html")
    assert "<h3>Prediction sets</h3>" in (here / "page.html").read_text(encoding="utf-8")
    write(here, "changed.npz", n=1500, seed=6, noise=0.3)
    code, out, _ = run(capsys, "audit", "changed.npz", "--policy", "policy.json", "--fail-on", "broken")
    assert code == 1
    assert "Sets: The prediction sets hold fewer true classes than promised." in out
