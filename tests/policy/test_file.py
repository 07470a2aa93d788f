"""Policy files: what is written can be read by people and by us, and nothing else is believed."""

import functools
import hashlib
import json
import os
import re
import stat

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.posthoc import VectorScaling
from tests.helpers.errors import facts


@functools.cache
def fitted(calibrator="temperature", scale=1.0, **settings):
    rng = np.random.default_rng(0)
    honest = 3 * rng.standard_normal((800, 4))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    groups = {"site": rng.choice(["a", "b"], 800)}
    data = Predictions.from_logits(2 * scale * honest, labels, class_names=["w", "x", "y", "zü"], groups=groups)
    return Policy.fit(data, 0.2, calibrator=calibrator, **settings)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "policy.json"
    fitted().save(path)
    return path


def test_a_person_can_read_it(saved):
    found = json.loads(saved.read_text(encoding="utf-8"))
    assert (found["format"], found["version"]) == ("calibrant.policy", 1)
    assert found["class_names"] == ["w", "x", "y", "zü"]
    assert found["calibrator"]["name"] == "temperature"
    assert found["summary"] == Policy.load(saved).summary
    assert "zü" in saved.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"PK\x03\x04zip", b"[" * 100_000, b'{"version": ' + b"9" * 5000])
def test_files_that_are_no_policies(tmp_path, text):
    path = tmp_path / "p.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"p\.json") as error:
        Policy.load(path)
    assert len(str(error.value)) < 300


def test_a_failed_write_leaves_what_was_there(saved, monkeypatch):
    before = saved.read_bytes()
    with pytest.raises(ValueError, match=r"written as \.json"):
        Policy.load(saved).save(saved.with_suffix(".txt"))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        fitted("none").save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["policy.json"]
    assert stat.S_IMODE(saved.stat().st_mode) & 0o444


def test_the_last_entry_is_a_checksum_of_the_others(saved):
    """Computed here from what the module's docstring says, not by its code."""
    fields = json.loads(saved.read_text(encoding="utf-8"))
    assert list(fields)[-1] == "checksum"
    given = fields.pop("checksum")
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert given == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_an_edit_is_refused_until_the_checksum_is_removed(saved):
    """Another order of the entries is no edit."""
    fields = json.loads(saved.read_text(encoding="utf-8"))
    saved.write_text(json.dumps(dict(reversed(fields.items())), ensure_ascii=True), encoding="utf-8")
    assert Policy.load(saved).target_risk == 0.2
    fields["target_risk"] = fields["threshold"]["target_risk"] = 0.3
    for checksum in (fields.pop("checksum"), None, 7, "", "sha256:", "md5:00", "sha256:" + 64 * "0", ["sha256"]):
        saved.write_text(json.dumps(fields | {"checksum": checksum}), encoding="utf-8")
        with pytest.raises(ValueError, match=facts("checksum")):
            Policy.load(saved)
    saved.write_text(json.dumps(fields), encoding="utf-8")
    assert Policy.load(saved).target_risk == 0.3


def test_a_file_of_zeros_or_a_pipe_is_not_read(tmp_path):
    path = tmp_path / "policy.json"
    with open(path, "wb") as file:
        file.truncate(800_000_000)
    with pytest.raises(ValueError, match=facts("67,108,864", "800,000,000")):
        Policy.load(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=facts("pipe")):
        Policy.load(path)


@pytest.mark.parametrize("scale", [1e-300, 1e-80])
@pytest.mark.parametrize("calibrator", ["temperature", "ensemble", "vector"])
def test_what_could_not_be_read_back_is_not_fitted(scale, calibrator):
    with pytest.raises(ValueError, match=facts("calibrator")):
        fitted(calibrator, scale=scale)


#: As the first release wrote it.
FIRST_RELEASE = (
    '{"format": "calibrant.policy", "version": 1, "calibrant": "0.1.0", "summary": "Answers 26.0% of samples (18.4%'
    " to 35.4%) and abstains on the rest. With 95% confidence at most 20.0% of the answers are wrong (seen: 3.85% "
    'of 26).", "how": "Confidence not calibrated; answers ranked by msp.", "takes": "logits", "kind": '
    '"classification", "classes": 3, "class_names": ["k0", "k1", "k2"], "target_risk": 0.2, "confidence": 0.95, '
    '"calibrator": null, "score": {"name": "msp", "of": "logits"}, "threshold": {"accept_from": 0.9996189364865417,'
    ' "method": "fixed-sequence", "target_risk": 0.2, "confidence": 0.95, "samples": 100, "accepted": 26, "errors":'
    ' 1, "coverage": {"value": 0.26, "low": 0.18404698464748134, "high": 0.35370989449187173}, "risk": {"value": '
    '0.038461538461538464, "low": 0.0009732878933350311, "high": 0.16983122300038342}, "needed": null, "reason": '
    '"Accepts 26 of 100 samples, 1 of them wrong."}, "group": null, "groups": null, "evidence": {"created": '
    '"2026-11-17", "samples": 100, "for_choice": 0, "for_threshold": 100, "seed": 0, "fingerprint": "100:fd0cec34",'
    ' "ignore_index": null, "calibrators": [], "scores": []}, "checksum": '
    '"sha256:3bd512eb62b4da8b798391164eedcf3064674bb6b67d920958a503ffdab86f1a"}'
)


def test_a_file_of_the_first_release_is_read(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text(FIRST_RELEASE, encoding="utf-8")
    policy = Policy.load(path)
    assert re.search(facts("26.00%", "18.40%", "35.37%", "95%", "20%", "3.85% of 26"), policy.summary)
    assert policy.limits.tolist() == [0.9996189364865417]
    assert policy.document["threshold"] == json.loads(FIRST_RELEASE)["threshold"]


def test_a_calibrator_without_finite_answers_is_refused():
    endless = VectorScaling()
    endless.weight_, endless.bias_, endless.n_classes_ = np.full(4, 1e305), np.zeros(4), 4
    with pytest.raises(ValueError, match=facts("finite")), np.errstate(all="ignore"):
        fitted().model_copy(update={"calibrator": endless})._check_formula()
