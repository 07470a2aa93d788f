"""Policy files: what is written can be read by people and by us, and nothing else is believed."""

import contextlib
import functools
import hashlib
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.posthoc import VectorScaling
from calibrant.selective.policy.file import check_consistent, from_dict, to_dict


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


def edited(path, places, *, stale=False):
    """Change entries of a policy's file by their place, as a person would: without the checksum, unless it is stale."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    for place, value in places.items():
        inner = fields
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
    if not stale:
        del fields["checksum"]
    path.write_text(json.dumps(fields), encoding="utf-8")


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
        (["calibrator", "temperature"], -1, "temperature must lie between 1e-50 and 1e\\+50, got -1"),
        (["calibrator", "temperature"], "2", "must be numbers"),
        (["calibrator", "temperature"], [2.0], "must be a finite number"),
        (["calibrator", "temperature"], None, "temperature"),
        (["calibrator", "extra"], 1, "calibrator.extra is not known"),
        (["calibrator"], [], "calibrator must be an object"),
        (["score"], {"name": "msp"}, "score.of is missing"),
        (["score", "name"], "os.system", "score must be one of"),
        (["score", "p"], 3, "p is only for"),
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
        (["class_names"], ["a", "b", "c", "a"], 'class_names must differ, got "a" 2 times'),
        (["class_names"], ["a", "b", "c", "\ud800"], "class_names must be 4 names"),
        (["evidence", "ignore_index"], 2**70, "evidence.ignore_index must be a whole number"),
        (["evidence", "fingerprint"], [1], "evidence.fingerprint must be text"),
    ],
)
def test_every_part_is_checked(saved, place, value, message):
    edited(saved, {tuple(place): value}, stale=message is not None)
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
        ({("calibrator", "temperature"): 5e-324}, "temperature must lie between"),
        ({("calibrator", "temperature"): 1e-200}, "temperature must lie between"),
        ({("calibrator", "temperature"): 1e308}, "temperature must lie between"),
        ({("calibrator", "temperature"): 10**400}, "too large"),
        ({("calibrator", "temperature"): 10**4200}, "too large"),
        ({("threshold", "accept_from"): 10**400}, "accept_from must be a number from"),
        ({("threshold", "accept_from"): 1e300}, "accept_from must be a number from"),
        ({("threshold", "accept_from"): 1.5}, "accept_from must be a number from .* as msp is, got 1.5"),
        ({("threshold", "accept_from"): -0.5}, "accept_from must be a number from"),
        ({("threshold", "accept_from"): 0.5, ("score", "name"): "negative_entropy"}, "as negative_entropy is"),
        ({("threshold", "accept_from"): -1.4, ("score", "name"): "negative_entropy"}, "as negative_entropy is"),
        ({("threshold", "accept_from"): 1.1, ("score",): {"name": "normalised_max_logit", "of": "logits", "p": 2}},
         "as normalised_max_logit is"),
        ({("threshold", "accept_from"): -1e150, ("score", "name"): "energy"}, "accept_from must be a number from"),
        ({("version",): True}, "version 1 are read"),
        ({("evidence",): [1]}, "evidence must be an object"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_parts_must_agree(saved, places, message):
    edited(saved, places, stale=True)
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
        with pytest.raises(ValueError, match=rf"{word} is not a number|{word} is too large"):
            Policy.load(saved)


@pytest.mark.parametrize("calibrator", ["ensemble", "isotonic", "vector"])
def test_hostile_numbers_of_every_calibrator(tmp_path, calibrator):
    path = tmp_path / "p.json"
    fitted(calibrator).save(path)
    found = json.loads(path.read_text(encoding="utf-8"))
    for key in [key for key in found["calibrator"] if key != "name"]:
        for value in ("x", None, [[[1]]], {"a": 1}, [1, [2]], [True], -5, [], 1e300, [1e300] * 4, [10**400] * 4):
            changed = json.loads(json.dumps(found))
            del changed["checksum"]
            changed["calibrator"][key] = value
            path.write_text(json.dumps(changed), encoding="utf-8")
            refusal = None
            try:
                loaded = Policy.load(path)
            except ValueError as error:
                refusal = str(error)
            if refusal is None:  # where a value is allowed it must also work
                assert np.isfinite(loaded.decide(1e4 * np.eye(4)).confidence).all()
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


# ---- the checksum ----------------------------------------------------------------------------------------------------
def test_the_last_entry_is_a_checksum_of_the_others(saved):
    """Computed here from what the module's docstring says, not by its code."""
    fields = json.loads(saved.read_text(encoding="utf-8"))
    assert list(fields)[-1] == "checksum"
    given = fields.pop("checksum")
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert given == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_an_edit_is_refused_until_the_checksum_is_removed(saved):
    edited(saved, {("target_risk",): 0.3, ("threshold", "target_risk"): 0.3}, stale=True)
    with pytest.raises(ValueError, match=r'damaged, or was edited; .* remove the line "checksum"'):
        Policy.load(saved)
    edited(saved, {})
    assert Policy.load(saved).target_risk == 0.3


@pytest.mark.parametrize("value", [None, 7, "", "sha256:", "md5:00", "sha256:" + 64 * "0", ["sha256"]])
def test_no_other_checksum_will_do(saved, value):
    edited(saved, {("checksum",): value}, stale=True)
    with pytest.raises(ValueError, match="the checksum is of other contents"):
        Policy.load(saved)


def test_another_layout_of_the_same_contents_is_the_same_policy(saved):
    expected = Policy.load(saved).evidence
    fields = json.loads(saved.read_text(encoding="utf-8"))
    saved.write_text(json.dumps(dict(reversed(fields.items())), ensure_ascii=True), encoding="utf-8")
    assert Policy.load(saved).evidence == expected


def test_no_flipped_bit_is_read_as_another_policy(saved):
    data, expected = saved.read_bytes(), to_dict(Policy.load(saved))
    rng = np.random.default_rng(0)
    for bit in rng.choice(8 * len(data), 400, replace=False):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        saved.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            assert to_dict(Policy.load(saved)) == expected, bit


# ---- bounds ----------------------------------------------------------------------------------------------------------
def test_a_file_of_zeros_is_not_read(tmp_path):
    path = tmp_path / "policy.json"
    with open(path, "wb") as file:
        file.truncate(800_000_000)
    with pytest.raises(ValueError, match="at most 67,108,864 bytes, got 800,000,000"):
        Policy.load(path)


def test_a_pipe_is_not_waited_for(tmp_path):
    path = tmp_path / "policy.json"
    os.mkfifo(path)
    with pytest.raises(ValueError, match="expected a file, got a named pipe"):
        Policy.load(path)


@pytest.mark.parametrize("scale", [1e-300, 1e-80])
@pytest.mark.parametrize("calibrator", ["temperature", "ensemble", "vector"])
def test_what_could_not_be_read_back_is_not_fitted(scale, calibrator):
    with pytest.raises(ValueError, match=r"no policy can be made of these predictions: calibrator: .* must lie"):
        fitted(calibrator, scale=scale)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("score", ["auto", "msp", "max_logit", "margin", "negative_entropy", "energy"])
@pytest.mark.parametrize("calibrator", ["none", "temperature", "ensemble", "vector", "isotonic"])
def test_whatever_is_fitted_is_read_back(tmp_path, scale, score, calibrator):
    policy = fitted(calibrator, score=score, scale=scale)
    policy.save(tmp_path / "p.json")
    assert Policy.load(tmp_path / "p.json").summary == policy.summary
    assert np.isfinite(policy.decide(1e4 * np.eye(4)).confidence).all()


# ---- several writers -------------------------------------------------------------------------------------------------
def test_two_writers_leave_a_whole_policy(saved):
    """Each of two processes replaces the file again and again; whoever reads finds one of the two, whole."""
    other = saved.with_name("other.json")
    fitted("none").save(other)
    known = {saved.read_bytes(), other.read_bytes()}
    code = (
        "import sys; from calibrant import Policy\npolicy = Policy.load(sys.argv[1])\nprint('ready', flush=True)\n"
        "for _ in range(30): policy.save(sys.argv[2])"
    )
    copy = saved.with_name("copy.json")
    copy.write_bytes(saved.read_bytes())
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(source), str(saved)], stdout=subprocess.PIPE, text=True)
        for source in (copy, other)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    while any(writer.poll() is None for writer in writers):
        assert saved.read_bytes() in known
    assert [writer.wait() for writer in writers] == [0, 0]
    for writer in writers:
        writer.stdout.close()
    assert saved.read_bytes() in known
    assert sorted(path.name for path in saved.parent.iterdir()) == ["copy.json", "other.json", "policy.json"]


# ---- files of earlier versions ---------------------------------------------------------------------------------------
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
    assert policy.summary == (  # its numbers, with the digits of today: that release had 26.0% (18.4% to 35.4%), 20.0%
        "Answers 26.00% of samples (18.40% to 35.37%) and abstains on the rest. With 95% confidence at most 20% of the "
        "answers are wrong (seen: 3.85% of 26)."
    )
    assert policy.limits.tolist() == [0.9996189364865417]
    assert to_dict(policy)["threshold"] == json.loads(FIRST_RELEASE)["threshold"]


@pytest.fixture(scope="module")
def rule():
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((300, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    fitted = Policy.fit(Predictions.from_logits(logits, labels), 0.2, calibrator="temperature", score="msp")
    return from_dict(to_dict(fitted))


def test_a_fitted_policy_is_consistent(rule):
    check_consistent(rule)


def test_what_contradicts_is_named(rule):
    threshold = rule.threshold
    for changed, sentence in (
        (replace(rule, group="site"), "group and groups go together"),
        (replace(rule, score=replace(rule.score, of="calibrated"), calibrator=None), "there is no calibrator"),
        (replace(rule, threshold=replace(threshold, value=1.5)), "threshold.accept_from must be a number from"),
        (replace(rule, threshold=replace(threshold, errors=threshold.accepted + 1)), "must not fall"),
        (replace(rule, target_risk=0.1), "target_risk must be the policy's 0.1, got 0.2"),
        (replace(rule, confidence=0.99), "confidence must be the policy's 0.99 at least"),
        (replace(rule, threshold=replace(threshold, samples=2 * threshold.samples)), "coverage.value must be"),
    ):
        with pytest.raises(ValueError, match=sentence):
            check_consistent(changed)


def test_a_calibrator_without_finite_answers_is_refused(rule):
    endless = VectorScaling()
    endless.weight_, endless.bias_, endless.n_classes_ = np.full(4, 1e305), np.zeros(4), 4
    with pytest.raises(ValueError, match="not finite"), np.errstate(all="ignore"):
        check_consistent(replace(rule, calibrator=endless))
