"""What each entry of a policy's file must be, and the sentence that says what is wrong with one."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from calibrant.metrics import Interval
from calibrant.posthoc import CALIBRATORS
from calibrant.predictions import FLOOR
from calibrant.selective.policy_file.entry_types import (
    Classes,
    Count,
    Entries,
    Flag,
    Floor,
    Kind,
    Label,
    Limit,
    Needed,
    OpenShare,
    Position,
    Power,
    Share,
    Takes,
    Text,
    excerpt,
    must_be,
    refusal,
)
from calibrant.selective.policy_file.promise_entries import ClassEntry, PromiseEntries
from calibrant.selective.policy_file.set_entries import SetEntries
from calibrant.selective.thresholds.menu import Offer
from calibrant.selective.thresholds.risk import ClassThreshold, Threshold

VERSION = 1

#: Infinite thresholds, which JSON has no number for, by what they accept.
WORDS = {math.inf: "nothing", -math.inf: "everything"}


def _not_empty(groups: Any) -> Any:
    if groups is not None and (not isinstance(groups, dict) or not groups):
        raise refusal(f"must be an object with a threshold for each, or null, got {excerpt(groups)}")
    return groups


class _Interval(Entries):
    value: Share | None
    low: Share | None
    high: Share | None

    def restore(self) -> Interval:
        return Interval(*(math.nan if limit is None else limit for limit in (self.value, self.low, self.high)))


class _Offer(Entries):
    risk: OpenShare
    coverage: Share


class _Threshold(Entries):
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
    menu: list[_Offer] = Field(default_factory=list)

    @field_validator("accept_from", mode="wrap")
    @classmethod
    def _accept_words(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        infinite = [number for number, word in WORDS.items() if value == word]
        return infinite[0] if infinite else handler(value)

    def restore(self) -> Threshold:
        entries = dict(self)
        value = entries.pop("accept_from")
        entries["menu"] = tuple(Offer(offer.risk, offer.coverage) for offer in self.menu)
        intervals = {"coverage": self.coverage.restore(), "risk": self.risk.restore()}
        return Threshold(math.nan if value is None else value, **{**entries, **intervals})


class _ClassThreshold(ClassEntry):
    threshold: _Threshold

    def restore(self) -> ClassThreshold:
        return ClassThreshold(self.label, self.group, self.threshold.restore())


class _Score(Entries):
    name: Text
    of: Text
    p: Power | None = None
    centre: Flag = True


class _Calibrator(Entries):
    model_config = ConfigDict(extra="allow")
    name: Annotated[str, must_be(f"one of {', '.join(CALIBRATORS)}")] = Field(pattern=f"^({'|'.join(CALIBRATORS)})$")


class _Bins(Entries):
    edges: list[Limit]
    counts: list[Count]

    @model_validator(mode="after")
    def _check_bins(self) -> Self:
        if len(self.counts) != len(self.edges) + 1 or any(a >= b for a, b in pairwise(self.edges)):
            raise refusal("must have edges that rise, and one count more than edges")
        return self


class _Cells(Entries):
    classes: list[Count]
    counts: list[Count]

    @model_validator(mode="after")
    def _check_cells(self) -> Self:
        if not self.classes or len(self.counts) != len(self.classes) + 1:
            raise refusal("must have a count for every class, and one for all others")
        return self


class _Reference(Entries):
    rows: Count
    score: _Bins
    confidence: _Bins
    predicted: _Cells
    labels: list[Count] | None
    implied_risk: Share | None

    @model_validator(mode="after")
    def _check_sums(self) -> Self:
        if not self.rows or any(
            sum(part.counts) != self.rows for part in (self.score, self.confidence, self.predicted)
        ):
            raise refusal("must count the same rows, at least one, in score, confidence and predicted")
        return self


class _Evidence(Entries):
    model_config = ConfigDict(extra="allow")
    ignore_index: Label | None = None
    fingerprint: Text | None = None
    reference: _Reference | None = None


class PolicyEntries(Entries):
    """All entries of a file, each checked on its own."""

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
    sets: SetEntries | None = None
    promise: PromiseEntries | None = None
    class_thresholds: list[_ClassThreshold] | None = None
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
            raise refusal(f"must be {classes} names or null")
        name, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise refusal(f"must differ, got {excerpt(name)} {count} times")
        return names

    @field_validator("evidence")
    @classmethod
    def _check_classes(cls, evidence: _Evidence, info: ValidationInfo) -> _Evidence:
        classes, reference = info.data.get("classes"), evidence.reference
        if classes is not None and reference is not None:
            listed = reference.predicted.classes
            if len(set(listed)) != len(listed) or max(listed) >= classes:
                raise refusal(f"reference.predicted.classes must be different classes below {classes}")
            if reference.labels is not None and len(reference.labels) != classes:
                raise refusal(f"reference.labels must be {classes} counts or null")
        return evidence


def read_entries(data: dict[str, Any]) -> PolicyEntries:
    """The entries of a file, checked; a ValueError names the first that is wrong."""
    try:
        return PolicyEntries.model_validate(data)
    except ValidationError as error:
        raise ValueError(_sentence(error.errors(include_url=False)[0])) from None


def _sentence(error: ErrorDetails) -> str:
    """What pydantic found wrong."""
    *outer, last = [str(part)[:40] for part in error["loc"]]
    name = ".".join([*outer, last]) if last != "[key]" else ".".join(outer[:-1])
    name = json.dumps(name, ensure_ascii=not name.isprintable())[1:-1]
    if last == "[key]":
        return f"{name} must have names of text, got {excerpt(error['input'])}"
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "extra_forbidden":
        return f"{name} is not known in a policy of version {VERSION}"
    if error["type"] == "policy":
        return f"{name} {error['msg']}"
    return f"{name} must be an object, got {excerpt(error['input'])}"
