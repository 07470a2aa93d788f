"""Policy files: what is written can be read by people and by us, and nothing else is believed."""

import json
import os
import stat

import numpy as np
import pytest

from calibrant import Policy, Predictions


def fitted(calibrator="temperature", **settings):
    rng = np.random.default_rng(0)
    honest = 3 * rng.standard_normal((800, 4))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    groups = {"site": rng.choice(["a", "b"], 800)}
    data = Predictions.from_logits(2 * honest, labels, class_names=["w", "x", "y", "zü"], groups=groups)
    return Policy.fit(data, 0.2, calibrator=calibrator, **settings)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "policy.json"
    fitted().save(path)
    return path


def test_a_person_can_read_it(saved):
    found = json.loads(saved.read_text(encoding="utf-8"))
    assert found["format"] == "calibrant.policy"
    assert found["version"] == 1
    assert found["class_names"] == ["w", "x", "y", "zü"]
    assert found["calibrator"]["name"] == "temperature"
    assert "Answers" in found["summary"]
    assert found["summary"] == Policy.load(saved).summary
    assert "zü" in saved.read_text(encoding="utf-8")


def test_saving_twice_gives_the_same_bytes(saved, tmp_path):
    Policy.load(saved).save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == saved.read_bytes()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["format"], "other", "not a policy"),
        (["version"], 2, "version 1 are read, got version 2"),
        (["version"], None, "got version nothing"),
        (["classes"], 5, "class_names must be 5"),
        (["classes"], 1000000000, "classes must be a whole number"),
        (["classes"], 4.0, "classes must be a whole number"),
        (["classes"], True, "classes must be a whole number"),
        (["takes"], "vibes", "takes must be one of"),
        (["takes"], ["logits"], "takes must be one of"),
        (["kind"], 7, "kind must be one of"),
        (["calibrator", "name"], "pickle", "calibrator.name must be one of"),
        (["calibrator", "temperature"], -1, "above 0"),
        (["calibrator", "temperature"], "2", "must be numbers"),
        (["calibrator", "temperature"], [2.0], "must be a finite number"),
        (["calibrator", "temperature"], None, "temperature"),
        (["calibrator", "extra"], 1, "calibrator.extra is not known"),
        (["calibrator"], [], "calibrator must be an object"),
        (["score"], {"name": "msp"}, "score must have a name"),
        (["score", "name"], "os.system", "score must be one of"),
        (["score", "p"], 3, "p goes with"),
        (["score", "of"], "calibrated", None),
        (["threshold", "accept_from"], "some", "accept_from"),
        (["threshold", "accept_from"], None, "accept_from"),
        (["threshold", "accept_from"], "nothing", None),
        (["threshold", "samples"], -4, "threshold.samples"),
        (["threshold", "coverage"], 0.5, "coverage must be an object"),
        (["threshold", "coverage", "low"], 7, "from 0 to 1"),
        (["threshold", "hook"], 1, "threshold.hook is not known"),
        (["groups"], {}, "groups must be"),
        (["groups"], {"a": 1}, "groups.a must be an object"),
        (["group"], "site", "go together"),
        (["confidence"], "high", "confidence must be a number"),
        (["confidence"], 1.5, "confidence must be a number"),
        (["__class__"], "x", "not known"),
        (["class_names"], ["a", "b", "c", 4], "class_names must be"),
    ],
)
def test_every_part_is_checked(saved, place, value, message):
    found = json.loads(saved.read_text(encoding="utf-8"))
    inner = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    saved.write_text(json.dumps(found), encoding="utf-8")
    if message is None:
        Policy.load(saved)
        return
    with pytest.raises(ValueError, match=message) as error:
        Policy.load(saved)
    assert "\n" not in str(error.value)
    assert str(saved) in str(error.value)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({("target_risk",): 0.01}, "threshold.target_risk must be the policy's 0.01"),
        ({("target_risk",): 0}, "between 0 and 1"),
        ({("confidence",): 1}, "between 0 and 1"),
        ({("threshold", "errors"): 10**9}, "must not fall"),
        ({("threshold", "samples"): 0}, "must not fall"),
        ({("threshold", "coverage", "value"): 0.9999}, "coverage.value must be"),
        ({("threshold", "coverage", "low"): 1.0}, "between its limits"),
        ({("threshold", "risk", "value"): None}, "risk.value must be"),
        ({("threshold", "risk", "high"): 0.9}, "at most the target"),
        ({("threshold", "confidence"): 0.5}, "policy's 0.95 at least"),
        ({("calibrator", "temperature"): 5e-324}, "not finite"),
        ({("calibrator", "temperature"): 10**400}, "too large"),
        ({("threshold", "accept_from"): 10**400}, "too large"),
        ({("version",): True}, "version 1 are read"),
        ({("evidence",): [1]}, "evidence must be an object"),
    ],
    ids=str,
)
def test_parts_must_agree(saved, places, message):
    found = json.loads(saved.read_text(encoding="utf-8"))
    for place, value in places.items():
        inner = found
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
    saved.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        Policy.load(saved)


@pytest.mark.parametrize("key", ["classes", "calibrator", "score", "threshold", "groups", "evidence", "takes"])
def test_nothing_may_be_missing(saved, key):
    found = json.loads(saved.read_text(encoding="utf-8"))
    del found[key]
    saved.write_text(json.dumps(found), encoding="utf-8")
    with pytest.raises(ValueError, match=f"{key} is missing"):
        Policy.load(saved)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"null", b"3", b'{"format": "calibrant.policy"', b"\xff\xfe{}", b"PK\x03\x04zip",
        b"[" * 100_000, b'{"a":' * 50_000, b'{"format": "calibrant.policy", "format": "calibrant.policy"}', b"NaN",
        b'{"format": "calibrant.policy", "version": ' + b"9" * 5000 + b"}",
    ],
    ids=range(13),
)  # fmt: skip
def test_files_that_are_no_policies(tmp_path, text):
    path = tmp_path / "p.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"p\.json") as error:
        Policy.load(path)
    assert len(str(error.value)) < 300


def test_numbers_that_json_does_not_have(saved):
    text = saved.read_text(encoding="utf-8")
    at = text.index('"temperature": ') + len('"temperature": ')
    for word in ("NaN", "Infinity", "1e999"):
        saved.write_text(text[:at] + word + text[text.index("\n", at) :], encoding="utf-8")
        with pytest.raises(ValueError, match=r"NaN|Infinity|infinity"):
            Policy.load(saved)


@pytest.mark.parametrize("calibrator", ["ensemble", "isotonic", "vector"])
def test_hostile_numbers_of_every_calibrator(tmp_path, calibrator):
    path = tmp_path / "p.json"
    fitted(calibrator).save(path)
    found = json.loads(path.read_text(encoding="utf-8"))
    for key in [key for key in found["calibrator"] if key != "name"]:
        for value in ("x", None, [[[1]]], {"a": 1}, [1, [2]], [True], -5, []):
            changed = json.loads(json.dumps(found))
            changed["calibrator"][key] = value
            path.write_text(json.dumps(changed), encoding="utf-8")
            refusal = None
            try:
                loaded = Policy.load(path)
            except ValueError as error:
                refusal = str(error)
            if refusal is None:  # where a value is allowed it must also work
                assert np.isfinite(loaded.decide(np.eye(4)).confidence).all()
            else:
                assert "\n" not in refusal


def test_groups_survive(tmp_path):
    found = fitted(group="site")
    found.save(tmp_path / "p.json")
    again = Policy.load(tmp_path / "p.json")
    assert again.groups == found.groups
    assert again.group == "site"


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


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Policy.load(tmp_path / "none.json")
