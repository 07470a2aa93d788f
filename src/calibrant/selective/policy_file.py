"""Policies on disk: versioned JSON that a person can read, checked from end to end when it is loaded.

The last entry is a checksum of all others, as JSON with sorted names and no white space: a damaged file is not taken
for another policy. A policy that was written or edited by hand may do without: remove the line ``"checksum"`` after a
change that is meant.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from calibrant._files import parse_json, read_regular, written_aside
from calibrant._validation import LARGEST_LOGIT
from calibrant.metrics import Interval
from calibrant.posthoc import CALIBRATORS, Calibrator, NumpyOps
from calibrant.predictions import FLOOR, customary_positive
from calibrant.selective.menu import Offer
from calibrant.selective.rule import Rule, decision
from calibrant.selective.scores import Score
from calibrant.selective.thresholds import Threshold

FORMAT, VERSION = "calibrant.policy", 1
LARGEST = 2**26  # bytes of a file
MOST_CLASSES = 10**6
MOST_SAMPLES = 2**62
EXTREME = 1e4  # logits that every policy has a finite answer to

#: Infinite thresholds, which JSON has no number for, by what they accept.
_WORDS = {math.inf: "nothing", -math.inf: "everything"}


def write_policy(rule: Rule, path: str | Path) -> None:
    """Write a policy."""
    if Path(path).suffix.lower() != ".json":
        raise ValueError(f"{path}: a policy is written as .json, got {Path(path).suffix!r}")
    text = json.dumps(to_dict(rule), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    with written_aside(path) as aside:
        # Half a surrogate pair, which evidence may hold, becomes the escape that JSON has for it.
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")


def read_policy(path: str | Path) -> Rule:
    """Read a policy; whatever is wrong with the file is a ValueError that names it and the entry."""
    data = read_regular(path, LARGEST)
    try:
        return from_dict(parse_json(data, "a policy"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def checksum(entries: Mapping[str, Any]) -> str:
    """The checksum of a policy as plain data; one that is among the data does not count."""
    rest = {name: value for name, value in entries.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def to_dict(rule: Rule) -> dict[str, Any]:
    """A policy as plain data."""
    from calibrant import __version__

    calibrator = rule.calibrator
    entries = {
        "format": FORMAT,
        "version": VERSION,
        "calibrant": __version__,
        "summary": rule.summary,
        "how": rule.method_summary,
        "takes": rule.takes,
        "kind": rule.kind,
        "classes": rule.num_classes,
        "class_names": None if rule.class_names is None else list(rule.class_names),
        "positive": rule.positive,
        "target_risk": rule.target_risk,
        "confidence": rule.confidence,
        "calibrator": None if calibrator is None else {"name": calibrator.name, **calibrator.state()},
        "score": rule.score.to_dict(),
        "threshold": _threshold_dict(rule.threshold),
        "group": rule.group,
        "groups": None if rule.groups is None else {k: _threshold_dict(v) for k, v in rule.groups.items()},
        "evidence": _without_nan(dict(rule.evidence)),
    }
    if rule.floor != FLOOR:
        entries["floor"] = rule.floor
    return {**entries, "checksum": checksum(entries)}


def _threshold_dict(threshold: Threshold) -> dict[str, Any]:
    entries = dict(vars(threshold))
    value = entries.pop("value")
    if menu := [offer._asdict() for offer in entries.pop("menu")]:
        entries["menu"] = menu
    intervals = {name: vars(entries[name]) for name in ("coverage", "risk")}
    return _without_nan({"accept_from": _WORDS.get(value, value), **entries, **intervals})


def _without_nan(value: Any) -> Any:
    """NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {key: _without_nan(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- what an entry of a file must be -------------------------------------------------------------------------------
def _refusal(message: str) -> PydanticCustomError:
    return PydanticCustomError("policy", "{message}", {"message": message})


def _must_be(words: str) -> WrapValidator:
    """Have whatever is wrong with an entry said in these words."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise _refusal(f"must be {words}, got {_excerpt(value)}") from None

    return WrapValidator(check)


def _text(value: str) -> str:
    """Text that can be written: half a surrogate pair, which JSON can name, cannot."""
    value.encode("utf-8")
    return value


def _not_empty(groups: Any) -> Any:
    if groups is not None and (not isinstance(groups, dict) or not groups):
        raise _refusal(f"must be an object with a threshold for each, or null, got {_excerpt(groups)}")
    return groups


_REACH = 2 * LARGEST_LOGIT
Share = Annotated[float, Field(ge=0, le=1), _must_be("a number from 0 to 1")]
OpenShare = Annotated[float, Field(gt=0, lt=1), _must_be("a number between 0 and 1")]
Limit = Annotated[float, Field(ge=-_REACH, le=_REACH), _must_be(f"a number from {-_REACH:g} to {_REACH:g}")]
Floor = Annotated[float, Field(ge=FLOOR, le=0.5), _must_be(f"a number from {FLOOR:g} to 0.5")]
Count = Annotated[int, Field(ge=0, le=MOST_SAMPLES), _must_be(f"a whole number from 0 to {MOST_SAMPLES:,}")]
Needed = Annotated[int, Field(ge=1, le=MOST_SAMPLES), _must_be(f"a whole number from 1 to {MOST_SAMPLES:,}")]
Classes = Annotated[int, Field(ge=2, le=MOST_CLASSES), _must_be(f"a whole number from 2 to {MOST_CLASSES:,}")]
Position = Annotated[int, Field(ge=0, le=1), _must_be("0, 1 or null")]
Power = Annotated[int, Field(ge=1, le=1000), _must_be("a whole number from 1 to 1,000")]
Label = Annotated[int, Field(ge=-(2**63), lt=2**63), _must_be("a whole number from -2**63 to 2**63 - 1")]
Text = Annotated[str, AfterValidator(_text), _must_be("text")]
Takes = Annotated[Literal["logits", "probabilities"], _must_be("one of logits, probabilities")]
Kind = Annotated[Literal["classification", "segmentation"], _must_be("one of classification, segmentation")]
Flag = Annotated[bool, _must_be("true or false")]


class _Entries(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Interval(_Entries):
    value: Share | None
    low: Share | None
    high: Share | None

    def restore(self) -> Interval:
        return Interval(*(math.nan if limit is None else limit for limit in (self.value, self.low, self.high)))


class _Offer(_Entries):
    risk: OpenShare
    coverage: Share


class _Threshold(_Entries):
    accept_from: Limit | None
    method: Text
    target_risk: Share | None
    confidence: Share | None
    samples: Count
    accepted: Count
    errors: Count
    coverage: _Interval
    risk: _Interval
    needed: Needed | None
    reason: Text
    menu: list[_Offer] = []

    @field_validator("accept_from", mode="wrap")
    @classmethod
    def _accept_words(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        infinite = [number for number, word in _WORDS.items() if value == word]
        return infinite[0] if infinite else handler(value)

    def restore(self) -> Threshold:
        entries = dict(self)
        value = entries.pop("accept_from")
        entries["menu"] = tuple(Offer(offer.risk, offer.coverage) for offer in self.menu)
        intervals = {"coverage": self.coverage.restore(), "risk": self.risk.restore()}
        return Threshold(math.nan if value is None else value, **{**entries, **intervals})


class _Score(_Entries):
    name: Text
    of: Text
    p: Power | None = None
    centre: Flag = True


class _Calibrator(_Entries):
    model_config = ConfigDict(extra="allow")
    name: Annotated[str, _must_be(f"one of {', '.join(CALIBRATORS)}")] = Field(pattern=f"^({'|'.join(CALIBRATORS)})$")


class _Evidence(_Entries):
    model_config = ConfigDict(extra="allow")
    ignore_index: Label | None = None
    fingerprint: Text | None = None


class _File(_Entries):
    format: Any
    version: Any
    calibrant: Any = None
    summary: Any = None
    how: Any = None
    takes: Takes
    kind: Kind
    classes: Classes
    class_names: list[Text] | None
    positive: Position | None = None
    target_risk: OpenShare | None
    confidence: OpenShare
    calibrator: _Calibrator | None
    score: _Score
    threshold: _Threshold
    group: Text | None
    groups: Annotated[dict[Text, _Threshold] | None, BeforeValidator(_not_empty)]
    evidence: _Evidence
    floor: Floor = FLOOR
    checksum: Any = None

    @field_validator("class_names", mode="wrap")
    @classmethod
    def _check_names(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        classes = info.data.get("classes")
        if value is None or classes is None:
            return None
        try:
            names = handler(value)
        except ValidationError:
            names = []
        if len(names) != classes:
            raise _refusal(f"must be {classes} names or null")
        name, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise _refusal(f"must differ, got {_excerpt(name)} {count} times")
        return names


def from_dict(data: Any) -> Rule:
    """A policy out of plain data, checked."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"not a policy: expected an object with format {FORMAT!r}")
    if data.get("version") != VERSION or isinstance(data["version"], bool):
        raise ValueError(f"policies of version {VERSION} are read, got version {_excerpt(data.get('version'))}")
    try:
        file = _File.model_validate(data)
    except ValidationError as error:
        raise ValueError(_sentence(error.errors(include_url=False)[0])) from None
    rule = Rule(
        num_classes=file.classes,
        class_names=None if file.class_names is None else tuple(file.class_names),
        positive=_positive(file),
        takes=file.takes,
        kind=file.kind,
        calibrator=_restored_calibrator(file),
        score=Score(**dict(file.score)),
        threshold=file.threshold.restore(),
        groups=None if file.groups is None else {name: entries.restore() for name, entries in file.groups.items()},
        group=file.group,
        target_risk=file.target_risk,
        confidence=file.confidence,
        evidence=data["evidence"],
        floor=file.floor,
    )
    _check_consistent(rule)
    if "checksum" in data and data["checksum"] != checksum(data):
        raise ValueError(
            "the checksum is of other contents: the file is damaged, or was edited; if the change was meant, remove "
            'the line "checksum"'
        )
    return rule


def _positive(file: _File) -> int | None:
    """The positive class of two; files that do not say so have that of custom."""
    if file.classes != 2:
        if file.positive is not None:
            raise ValueError(f"positive is for two classes, got {file.positive} with {file.classes}")
        return None
    names = None if file.class_names is None else tuple(file.class_names)
    return customary_positive(names) if file.positive is None else file.positive


def _sentence(error: ErrorDetails) -> str:
    """What pydantic found wrong."""
    *outer, last = [str(part)[:40] for part in error["loc"]]
    name = ".".join([*outer, last]) if last != "[key]" else ".".join(outer[:-1])
    name = json.dumps(name, ensure_ascii=not name.isprintable())[1:-1]
    if last == "[key]":
        return f"{name} must have names of text, got {_excerpt(error['input'])}"
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "extra_forbidden":
        return f"{name} is not known in a policy of version {VERSION}"
    if error["type"] == "policy":
        return f"{name} {error['msg']}"
    return f"{name} must be an object, got {_excerpt(error['input'])}"


def _restored_calibrator(file: _File) -> Calibrator | None:
    if file.calibrator is None:
        return None
    calibrator, state = CALIBRATORS[file.calibrator.name](), file.calibrator.model_extra or {}
    try:
        calibrator.restore(state, file.classes)
        unknown = set(state) - set(calibrator.state())
    except ValueError as error:
        raise ValueError(f"calibrator: {error}") from None
    if unknown:
        raise ValueError(f"calibrator.{min(unknown)[:40]} is not known for {calibrator.name}")
    return calibrator


# ---- that the entries agree ----------------------------------------------------------------------------------------
def _check_consistent(rule: Rule) -> None:
    """What no entry can say alone: that they agree with each other, and that the policy works."""
    if (rule.groups is None) != (rule.group is None):
        raise ValueError("group and groups go together: one is null and the other is not")
    if rule.score.of == "calibrated" and rule.calibrator is None:
        raise ValueError("score is of calibrated logits, but there is no calibrator")
    if rule.groups is not None and rule.kind == "segmentation":
        raise ValueError("groups are for classification, but this policy is for segmentation")
    _check_threshold("threshold", rule.threshold, rule)
    for name, threshold in (rule.groups or {}).items():
        _check_threshold(f"groups.{name[:40]}", threshold, rule)
    extremes = np.zeros((3, rule.num_classes))
    extremes[0, 0], extremes[1], extremes[2, -1] = 1.0, 1 / rule.num_classes, 1.0
    if rule.takes == "logits":
        extremes[0, 0], extremes[2, -1] = EXTREME, -EXTREME
    group = None if rule.groups is None else np.zeros((3, 1))
    if not np.isfinite(decision(rule, NumpyOps(), extremes, group).confidence).all():
        raise ValueError("calibrator gives probabilities that are not finite")


def _score_range(score: Score, classes: int) -> tuple[float, float]:
    """Between what a score lies, and so a threshold, with room for rounding."""
    ranges = {"msp": (0.0, 1.0), "margin": (0.0, 1.0), "negative_entropy": (-math.log(classes), 0.0)}
    ranges |= {"max_logit": (-LARGEST_LOGIT, LARGEST_LOGIT), "energy": (-LARGEST_LOGIT, LARGEST_LOGIT)}
    low, high = ranges.get(score.name, (-1.0, 1.0))
    return low - 1e-9, high + 1e-9


def _check_threshold(where: str, threshold: Threshold, rule: Rule) -> None:
    low, high = _score_range(rule.score, rule.num_classes)
    is_unset = math.isnan(threshold.value) and (rule.groups is None or where != "threshold")
    if is_unset or (math.isfinite(threshold.value) and not low <= threshold.value <= high):
        asked = f"from {low:g} to {high:g}, as {rule.score.name} is"
        value = "nothing" if is_unset else f"{threshold.value:g}"
        raise ValueError(f"{where}.accept_from must be a number {asked}, got {value}")
    if not threshold.errors <= threshold.accepted <= threshold.samples:
        counts = f"{threshold.errors}, {threshold.accepted} and {threshold.samples}"
        raise ValueError(f"{where}: errors, accepted and samples must not fall, got {counts}")
    if threshold.target_risk != rule.target_risk:
        raise ValueError(f"{where}.target_risk must be the policy's {rule.target_risk}, got {threshold.target_risk}")
    if threshold.confidence is not None and not rule.confidence <= threshold.confidence < 1:
        least = f"the policy's {rule.confidence} at least"
        raise ValueError(f"{where}.confidence must be {least}, got {threshold.confidence}")
    for name, part, total in (
        ("coverage", threshold.accepted, threshold.samples),
        ("risk", threshold.errors, threshold.accepted),
    ):
        share: Interval = getattr(threshold, name)
        if total and not math.isclose(share.value, part / total, rel_tol=1e-9, abs_tol=1e-12):
            raise ValueError(f"{where}.{name}.value must be {part} of {total}, got {share.value}")
        # A limit that is to hold in less than half of the cases may lie below what was seen.
        is_limited = name != "risk" or rule.confidence >= 0.5
        if is_limited and (share.low > share.value + 1e-12 or share.high < share.value - 1e-12):
            raise ValueError(f"{where}.{name} must lie between its limits, got {share}")
    if threshold.confidence is None or rule.target_risk is None or not threshold.accepted:
        return
    if not math.isnan(threshold.value) and threshold.risk.high > rule.target_risk + 1e-9:
        raise ValueError(f"{where}.risk.high must be at most the target {rule.target_risk}, got {threshold.risk.high}")


def _excerpt(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:40]}..."
