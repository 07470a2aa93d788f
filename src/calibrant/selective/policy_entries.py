"""What each entry of a policy's file must be, and the sentence that says what is wrong with one."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

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
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from calibrant._validation import LARGEST_LOGIT
from calibrant.metrics import Interval
from calibrant.posthoc import CALIBRATORS
from calibrant.predictions import FLOOR
from calibrant.selective.menu import Offer
from calibrant.selective.thresholds import Threshold

VERSION = 1
MOST_CLASSES = 10**6
MOST_SAMPLES = 2**62

#: Infinite thresholds, which JSON has no number for, by what they accept.
WORDS = {math.inf: "nothing", -math.inf: "everything"}


def _refusal(message: str) -> PydanticCustomError:
    return PydanticCustomError("policy", "{message}", {"message": message})


def _must_be(words: str) -> WrapValidator:
    """Have whatever is wrong with an entry said in these words."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise _refusal(f"must be {words}, got {excerpt(value)}") from None

    return WrapValidator(check)


def _text(value: str) -> str:
    """Text that can be written: half a surrogate pair, which JSON can name, cannot."""
    value.encode("utf-8")
    return value


def _not_empty(groups: Any) -> Any:
    if groups is not None and (not isinstance(groups, dict) or not groups):
        raise _refusal(f"must be an object with a threshold for each, or null, got {excerpt(groups)}")
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
        infinite = [number for number, word in WORDS.items() if value == word]
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


class _Bins(_Entries):
    edges: list[Limit]
    counts: list[Count]

    @model_validator(mode="after")
    def _check_bins(self) -> Self:
        if len(self.counts) != len(self.edges) + 1 or any(a >= b for a, b in pairwise(self.edges)):
            raise _refusal("must have edges that rise, and one count more than edges")
        return self


class _Cells(_Entries):
    classes: list[Count]
    counts: list[Count]

    @model_validator(mode="after")
    def _check_cells(self) -> Self:
        if not self.classes or len(self.counts) != len(self.classes) + 1:
            raise _refusal("must have a count for every class, and one for all others")
        return self


class _Reference(_Entries):
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
            raise _refusal("must count the same rows, at least one, in score, confidence and predicted")
        return self


class _Evidence(_Entries):
    model_config = ConfigDict(extra="allow")
    ignore_index: Label | None = None
    fingerprint: Text | None = None
    reference: _Reference | None = None


class PolicyEntries(_Entries):
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
            raise _refusal(f"must differ, got {excerpt(name)} {count} times")
        return names

    @field_validator("evidence")
    @classmethod
    def _check_classes(cls, evidence: _Evidence, info: ValidationInfo) -> _Evidence:
        classes, reference = info.data.get("classes"), evidence.reference
        if classes is not None and reference is not None:
            listed = reference.predicted.classes
            if len(set(listed)) != len(listed) or max(listed) >= classes:
                raise _refusal(f"reference.predicted.classes must be different classes below {classes}")
            if reference.labels is not None and len(reference.labels) != classes:
                raise _refusal(f"reference.labels must be {classes} counts or null")
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


def excerpt(value: Any) -> str:
    """The beginning of a value as JSON, for an error."""
    text = "nothing" if value is None else json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:40]}..."
