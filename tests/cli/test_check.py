import numpy as np
import pytest

from calibrant import Policy, Predictions


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("new.npz --require ece<=0.1", 0),
        ("old.npz --require ece<=0.1", 1),
        ("old.npz --require ece<=0.1 --unknown pass", 1),
        ("new.npz --require accuracy>=71%", 3),
        ("new.npz --require accuracy>=71% --unknown pass", 0),
        ("new.npz --require accuracy>=71% --unknown fail", 1),
        ("new.npz --by-group site --require ece<=0.2", 0),
        ("new.npz --requirements gate.toml --require nll<=9", 0),
        ("new.npz", 1),  # as pyproject.toml asks
    ],
)
def test_exit_codes(folder, monkeypatch, run, words, code):
    monkeypatch.chdir(folder)
    (folder / "gate.toml").write_text('require = ["ece <= 0.1"]')
    (folder / "pyproject.toml").write_text('[tool.calibrant]\nrequire = ["ece <= 0.1", "accuracy >= 0.99"]')
    found, _, err = run("check", *words.split())
    assert found == code
    assert ("pyproject.toml" in err) == (words == "new.npz")


def test_documents_for_machines(folder, monkeypatch, run, tmp_path):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    junit = tmp_path / "check.xml"
    code, out, _ = run("check", "old.npz", "--require", "ece <= 0.1", "--junit", junit)
    assert (code, "::error title=ece <= 0.1::" in out) == (1, True)
    assert 'failures="1"' in junit.read_text()
    _, out, _ = run("check", "new.npz", "--policy", "policy.json", "--require", "policy.risk <= 30%")
    assert "::warning title=calibrant check::" in out, "the policy was fitted on these"


@pytest.mark.slow
def test_audit_and_apply_fail_when_asked_to(folder, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    quick = ("-o", "none", "--replicates", 50, "--quiet")
    for name, code in (("old", 1), ("new", 0)):
        assert run("audit", folder / f"{name}.npz", *quick, "--fail-on", "poor")[0] == code
    assert run("audit", folder / "new.npz", *quick, "--fail-on", "broken")[0] == 2
    wrong = Predictions.open(folder / "new.npz")
    Predictions.from_logits(wrong.logits, (np.asarray(wrong.labels) + 1) % 4).save(tmp_path / "wrong.npz")
    for command in (("audit", "wrong.npz", "--policy", folder / "policy.json", *quick),
                    ("apply", folder / "policy.json", "wrong.npz", "--quiet")):  # fmt: skip
        assert [run(*command, *more)[0] for more in (("--fail-on", "broken"), ())] == [1, 0]
