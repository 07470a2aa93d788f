"""Policies on disk: versioned JSON that a person can read, checked from end to end when it is loaded.

The last entry is a checksum of all others, as JSON with sorted names and no white space: a damaged file is not taken
for another policy. A policy that was written or edited by hand may do without: remove the line ``"checksum"`` after a
change that is meant.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrant._files import parse_json, read_regular, written_aside
from calibrant._validation import LARGEST_LOGIT
from calibrant.metrics import Interval
from calibrant.posthoc import CALIBRATORS, Calibrator
from calibrant.selective.formula import Score
from calibrant.selective.policy import Policy
from calibrant.selective.threshold import Threshold
from calibrant.selective.words import method_sentence

FORMAT, VERSION = "calibrant.policy", 1
LARGEST = 2**26  # bytes of a file
MOST_CLASSES = 10**6
MOST_SAMPLES = 2**62
EXTREME = 1e4  # logits that every policy has a finite answer to

#: Infinite thresholds, which JSON has no number for, by what they accept.
_WORDS = {math.inf: "nothing", -math.inf: "everything"}


def write_policy(policy: Policy, path: str | Path) -> None:
    """Write a policy."""
    if Path(path).suffix.lower() != ".json":
        raise ValueError(f"{path}: a policy is written as .json, got {Path(path).suffix!r}")
    text = json.dumps(to_dict(policy), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    with written_aside(path) as aside:
        # Half a surrogate pair, which evidence may hold, becomes the escape that JSON has for it.
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")


def check_policy(policy: Policy) -> None:
    """Raise unless a policy could be read back after it was written."""
    from_dict(to_dict(policy))


def checksum(fields: Mapping[str, Any]) -> str:
    """The checksum of a policy as plain data; one that is among the data does not count."""
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def to_dict(policy: Policy) -> dict[str, Any]:
    """A policy as plain data."""
    fields = _fields(policy)
    return {**fields, "checksum": checksum(fields)}


def _fields(policy: Policy) -> dict[str, Any]:
    from calibrant import __version__

    calibrator = policy.calibrator
    return {
        "format": FORMAT,
        "version": VERSION,
        "calibrant": __version__,
        "summary": policy.summary,
        "how": method_sentence(policy),
        "takes": policy.takes,
        "kind": policy.kind,
        "classes": policy.num_classes,
        "class_names": None if policy.class_names is None else list(policy.class_names),
        "target_risk": policy.target_risk,
        "confidence": policy.confidence,
        "calibrator": None if calibrator is None else {"name": calibrator.name, **calibrator.state()},
        "score": policy.score.to_dict(),
        "threshold": _threshold(policy.threshold),
        "group": policy.group,
        "groups": None if policy.groups is None else {k: _threshold(v) for k, v in policy.groups.items()},
        "evidence": _clean(dict(policy.evidence)),
    }


def _threshold(found: Threshold) -> dict[str, Any]:
    value: float | str | None = _WORDS.get(found.value, found.value)
    return {
        "accept_from": None if isinstance(value, float) and math.isnan(value) else value,
        "method": found.method,
        "target_risk": found.target_risk,
        "confidence": found.confidence,
        "samples": found.samples,
        "accepted": found.accepted,
        "errors": found.errors,
        "coverage": _clean(vars(found.coverage)),
        "risk": _clean(vars(found.risk)),
        "needed": found.needed,
        "reason": found.reason,
    }


def _clean(value: Any) -> Any:
    """NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {key: _clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_policy(path: str | Path) -> Policy:
    """Read a policy; whatever is wrong with the file is a ValueError that names it and the place."""
    data = read_regular(path, LARGEST)
    try:
        return from_dict(parse_json(data, "a policy"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def from_dict(found: Any) -> Policy:
    """A policy out of plain data, checked."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"not a policy: expected an object with format {FORMAT!r}")
    if found.get("version") != VERSION or isinstance(found["version"], bool):
        raise ValueError(f"policies of version {VERSION} are read, got version {_shown(found.get('version'))}")
    top = _Fields(found, "")
    top.only("format version calibrant summary how takes kind classes class_names target_risk confidence calibrator "
             "score threshold group groups evidence checksum")  # fmt: skip
    classes = top.whole("classes", 2, MOST_CLASSES)
    target = top.number("target_risk", 0, 1, optional=True)
    policy = Policy(
        num_classes=classes,
        class_names=_names(top.get("class_names"), classes),
        takes=top.word("takes", ("logits", "probabilities")),
        kind=top.word("kind", ("classification", "segmentation")),
        calibrator=_calibrator(top.get("calibrator"), classes),
        score=_score(top.get("score")),
        threshold=_read_threshold(top.get("threshold"), "threshold", unset=top.get("groups") is not None),
        groups=_groups(top.get("groups")),
        group=top.text("group", optional=True),
        target_risk=target,
        confidence=top.number("confidence", 0, 1) or 0.0,
        evidence=_evidence(top.get("evidence")),
    )
    _check_together(policy)
    if "checksum" in found and found["checksum"] != checksum(found):
        raise ValueError(
            "the checksum is of other contents: the file is damaged, or was edited; if the change was meant, remove "
            'the line "checksum"'
        )
    return policy


def _check_together(policy: Policy) -> None:
    """What no field can say alone: that they agree with each other, and that the policy works."""
    for name, share in (("confidence", policy.confidence), ("target_risk", policy.target_risk)):
        if share is not None and not 0 < share < 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {share:g}")
    if (policy.groups is None) != (policy.group is None):
        raise ValueError("group and groups go together: one is null and the other is not")
    if policy.score.of == "calibrated" and policy.calibrator is None:
        raise ValueError("score is of calibrated logits, but there is no calibrator")
    if policy.groups is not None and policy.kind == "segmentation":
        raise ValueError("groups go with classification, and this policy is for segmentation")
    _check_threshold("threshold", policy.threshold, policy)
    for name, one in (policy.groups or {}).items():
        _check_threshold(f"groups.{name[:40]}", one, policy)
    size = (3, policy.num_classes) if policy.kind == "classification" else (3, policy.num_classes, 1, 1)
    probe = np.zeros(size)
    probe[0, 0], probe[1], probe[2, -1] = 1.0, 1 / policy.num_classes, 1.0
    if policy.takes == "logits":
        probe[0, 0], probe[2, -1] = EXTREME, -EXTREME
    groups = None if policy.groups is None else list(policy.groups)[:1] * 3
    if not np.isfinite(policy.decide(probe, groups).confidence).all():
        raise ValueError("calibrator gives probabilities that are not finite")


def _score_range(score: Score, classes: int) -> tuple[float, float]:
    """Between what a score lies, and so a threshold, with room for rounding."""
    ranges = {"msp": (0.0, 1.0), "margin": (0.0, 1.0), "negative_entropy": (-math.log(classes), 0.0)}
    ranges |= {"max_logit": (-LARGEST_LOGIT, LARGEST_LOGIT), "energy": (-LARGEST_LOGIT, LARGEST_LOGIT)}
    low, high = ranges.get(score.name, (-1.0, 1.0))
    return low - 1e-9, high + 1e-9


def _check_threshold(where: str, one: Threshold, policy: Policy) -> None:
    low, high = _score_range(policy.score, policy.num_classes)
    if math.isfinite(one.value) and not low <= one.value <= high:
        asked = f"from {low:g} to {high:g}, as {policy.score.name} is"
        raise ValueError(f"{where}.accept_from must be a number {asked}, got {one.value:g}")
    if not one.errors <= one.accepted <= one.samples:
        counts = f"{one.errors}, {one.accepted} and {one.samples}"
        raise ValueError(f"{where}: errors, accepted and samples must not fall, got {counts}")
    if one.target_risk != policy.target_risk:
        raise ValueError(f"{where}.target_risk must be the policy's {policy.target_risk}, got {one.target_risk}")
    if one.confidence is not None and not policy.confidence <= one.confidence < 1:
        raise ValueError(f"{where}.confidence must be the policy's {policy.confidence} at least, got {one.confidence}")
    shares = {"coverage": (one.coverage, one.accepted, one.samples), "risk": (one.risk, one.errors, one.accepted)}
    for name, (given, part, of) in shares.items():
        if of and not math.isclose(given.value, part / of, rel_tol=1e-9, abs_tol=1e-12):
            raise ValueError(f"{where}.{name}.value must be {part} of {of}, got {given.value}")
        # A limit that is to hold in less than half of the cases may lie below what was seen.
        limited = name != "risk" or policy.confidence >= 0.5
        if limited and (given.low > given.value + 1e-12 or given.high < given.value - 1e-12):
            raise ValueError(f"{where}.{name} must lie between its limits, got {given}")
    promised = one.confidence is not None and policy.target_risk is not None and one.accepted > 0
    if promised and not math.isnan(one.value) and one.risk.high > (policy.target_risk or 0) + 1e-9:
        raise ValueError(f"{where}.risk.high must be at most the target {policy.target_risk}, got {one.risk.high}")


class _Fields:
    """Values of an object by name, each asked for with what it must be."""

    def __init__(self, found: Any, where: str) -> None:
        if not isinstance(found, dict):
            raise ValueError(f"{where} must be an object, got {_shown(found)}")
        self.found, self.where = found, f"{where}." if where else ""

    def only(self, names: str) -> None:
        unknown = [name for name in self.found if name not in names.split()]
        if unknown:
            raise ValueError(f"{self.where}{unknown[0][:40]} is not known in a policy of version {VERSION}")

    def get(self, name: str) -> Any:
        if name not in self.found:
            raise ValueError(f"{self.where}{name} is missing")
        return self.found[name]

    def number(self, name: str, low: float, high: float, *, optional: bool = False) -> float | None:
        value = self.get(name)
        if value is None and optional:
            return None
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not low <= value <= high:
            raise ValueError(f"{self.where}{name} must be a number from {low:g} to {high:g}, got {_shown(value)}")
        return float(value)

    def whole(self, name: str, low: int, high: int) -> int:
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{self.where}{name} must be a whole number from {low} to {high:,}, got {_shown(value)}")
        return value

    def text(self, name: str, *, optional: bool = False) -> Any:
        value = self.get(name)
        if not _is_text(value) and not (optional and value is None):
            raise ValueError(f"{self.where}{name} must be text, got {_shown(value)}")
        return value

    def word(self, name: str, words: tuple[str, ...]) -> str:
        value = self.get(name)
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"{self.where}{name} must be one of {', '.join(words)}, got {_shown(value)}")
        return value

    def interval(self, name: str) -> Interval:
        inner = _Fields(self.get(name), f"{self.where}{name}")
        inner.only("value low high")
        read = [inner.number(key, 0, 1, optional=True) for key in ("value", "low", "high")]
        return Interval(*(math.nan if one is None else one for one in read))


def _read_threshold(found: Any, where: str, *, unset: bool = False) -> Threshold:
    fields = _Fields(found, where)
    fields.only("accept_from method target_risk confidence samples accepted errors coverage risk needed reason")
    given = fields.get("accept_from")
    words = {word: value for value, word in _WORDS.items()}
    if isinstance(given, str) and given in words:
        value = words[given]
    elif given is None and unset:
        value = math.nan
    else:
        value = fields.number("accept_from", -2 * LARGEST_LOGIT, 2 * LARGEST_LOGIT) or 0.0
    needed = None if fields.get("needed") is None else fields.whole("needed", 1, MOST_SAMPLES)
    return Threshold(
        value,
        fields.text("method"),
        fields.number("target_risk", 0, 1, optional=True),
        fields.number("confidence", 0, 1, optional=True),
        fields.whole("samples", 0, MOST_SAMPLES),
        fields.whole("accepted", 0, MOST_SAMPLES),
        fields.whole("errors", 0, MOST_SAMPLES),
        fields.interval("coverage"),
        fields.interval("risk"),
        needed,
        fields.text("reason"),
    )


def _groups(found: Any) -> dict[str, Threshold] | None:
    if found is None:
        return None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"groups must be an object with a threshold for each, or null, got {_shown(found)}")
    odd = [name for name in found if not _is_text(name)]
    if odd:
        raise ValueError(f"groups must have names of text, got {_shown(odd[0])}")
    return {name: _read_threshold(one, f"groups.{name[:40]}") for name, one in found.items()}


def _names(found: Any, classes: int) -> tuple[str, ...] | None:
    if found is None:
        return None
    if not isinstance(found, list) or len(found) != classes or not all(_is_text(one) for one in found):
        raise ValueError(f"class_names must be {classes} names or null")
    name, count = Counter(found).most_common(1)[0]
    if count > 1:
        raise ValueError(f"class_names must differ, got {_shown(name)} {count} times")
    return tuple(found)


def _evidence(found: Any) -> dict[str, Any]:
    fields = _Fields(found, "evidence")
    if fields.found.get("ignore_index") is not None:
        fields.whole("ignore_index", -(2**63), 2**63 - 1)
    if fields.found.get("fingerprint") is not None:
        fields.text("fingerprint")
    return fields.found


def _calibrator(found: Any, classes: int) -> Calibrator | None:
    if found is None:
        return None
    fields = _Fields(found, "calibrator")
    made = CALIBRATORS[fields.word("name", tuple(CALIBRATORS))]()
    state = {key: value for key, value in found.items() if key != "name"}
    try:
        made.restore(state, classes)
        unknown = set(state) - set(made.state())
    except ValueError as error:
        raise ValueError(f"calibrator: {error}") from None
    if unknown:
        raise ValueError(f"calibrator.{min(unknown)[:40]} is not known for {made.name}")
    return made


def _score(found: Any) -> Score:
    fields = _Fields(found, "score")
    fields.only("name of p centre")
    given = dict(found)
    if not isinstance(given.get("name"), str) or not isinstance(given.get("of"), str):
        raise ValueError("score must have a name and say what it is of")
    if given.get("p") is not None:
        fields.whole("p", 1, 1000)
    if not isinstance(given.get("centre", True), bool):
        raise ValueError(f"score.centre must be true or false, got {_shown(given['centre'])}")
    try:
        return Score(**given)
    except ValueError as error:
        raise ValueError(f"score: {error}") from None


def _is_text(value: Any) -> bool:
    """Whether a value is text that can be written: half a surrogate pair, which JSON can name, is none."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:40]}..."
