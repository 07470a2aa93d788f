import json

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Predictions of a calibrated and of an overconfident model, and a policy."""
    path = tmp_path_factory.mktemp("check")
    rng = np.random.default_rng(0)
    logits = 2 * rng.standard_normal((2000, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    sites = {"site": np.where(np.arange(2000) % 2, "a", "b")}
    Predictions.from_logits(logits, labels, groups=sites).save(path / "new.npz")
    Predictions.from_logits(4 * logits, labels, groups=sites).save(path / "old.npz")
    Policy.fit(Predictions.from_logits(logits, labels), target_risk=0.2, confidence=0.9).save(path / "policy.json")
    return path


def run(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("new.npz", "--require", "ece <= 0.1"), 0),
        (("old.npz", "--require", "ece <= 0.1"), 1),
        (("old.npz", "--require", "ece <= 0.1", "--unknown", "pass"), 1),
        (("new.npz", "--require", "accuracy >= 71%"), 3),
        (("new.npz", "--require", "accuracy >= 71%", "--unknown", "pass"), 0),
        (("new.npz", "--require", "accuracy >= 71%", "--unknown", "fail"), 1),
        (("new.npz", "--baseline", "old.npz", "--require", "ece no worse"), 0),
        (("new.npz", "--policy", "policy.json", "--require", "policy.risk <= 30%"), 0),
        (("new.npz", "--by-group", "site", "--require", "ece <= 0.2"), 0),
    ],
)
def test_exit_codes(folder, monkeypatch, words, code):
    monkeypatch.chdir(folder)
    assert run("check", *words) == code


def test_requirements_lie_in_a_file(folder, monkeypatch, tmp_path, capsys):
    (tmp_path / "gate.toml").write_text('require = ["ece <= 0.1"]')
    (tmp_path / "pyproject.toml").write_text('[tool.calibrant]\nrequire = ["ece <= 0.1", "accuracy >= 0.99"]')
    monkeypatch.chdir(tmp_path)
    assert run("check", folder / "new.npz", "--requirements", "gate.toml", "--require", "nll <= 9") == 0
    assert run("check", folder / "new.npz") == 1
    assert "pyproject.toml" in capsys.readouterr().err


def test_documents_for_machines(folder, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    junit = tmp_path / "check.xml"
    assert run("check", folder / "old.npz", "--require", "ece <= 0.1", "--junit", junit) == 1
    out = capsys.readouterr().out
    assert "ece <= 0.1" in out
    assert "::error title=ece <= 0.1::" in out
    assert 'failures="1"' in junit.read_text()
    assert run("check", folder / "old.npz", "--require", "ece <= 0.1", "--json") == 1
    assert json.loads(capsys.readouterr().out)["requirements"][0]["status"] == "fail"


def test_the_policys_own_data_are_said(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert run("check", "new.npz", "--policy", "policy.json", "--require", "policy.risk <= 30%") == 0
    assert "::warning title=calibrant check::" in capsys.readouterr().out


def test_audit_and_apply_fail_when_asked_to(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("audit", folder / "old.npz", "-o", "none", "--replicates", 50, "--quiet", "--fail-on", "poor") == 1
    assert run("audit", folder / "new.npz", "-o", "none", "--replicates", 50, "--quiet", "--fail-on", "poor") == 0
    assert run("audit", folder / "new.npz", "-o", "none", "--fail-on", "broken") == 2
    wrong = Predictions.open(folder / "new.npz")
    Predictions.from_logits(wrong.logits, (np.asarray(wrong.labels) + 1) % 4).save(tmp_path / "wrong.npz")
    for command in (("audit", "wrong.npz", "--policy", folder / "policy.json", "-o", "none", "--replicates", 50),
                    ("apply", folder / "policy.json", "wrong.npz")):  # fmt: skip
        assert run(*command, "--quiet", "--fail-on", "broken") == 1
        assert run(*command, "--quiet") == 0
