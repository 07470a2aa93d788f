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

from calibrant.base.checks import LARGEST_LOGIT, LARGEST_SEED
from calibrant.metrics import Interval
from calibrant.policy.prediction_sets import SetCounts
from calibrant.posthoc import CALIBRATORS
from calibrant.predictions import FLOOR
from calibrant.promises.promise import KINDS, LARGEST_COST, MOST_COSTED, LossTally, Promise
from calibrant.promises.sets import LARGEST_PENALTY, METHODS, PredictionSets
from calibrant.promises.thresholds import ClassThreshold, Offer, Threshold

VERSION = 1
MOST_CLASSES = 10**6
MOST_SAMPLES = 2**62
_REACH = 2 * LARGEST_LOGIT
_MOST = 10**12  # of a count of sets: a million of them still add up in 64 bits
_HIGHEST = 1e10  # quantile: more than any penalty times any rank

#: Infinite thresholds, which JSON has no number for, by what they accept.
WORDS = {math.inf: "nothing", -math.inf: "everything"}
EVERY_SET = "all"  # an infinite quantile, likewise


class Entries(BaseModel):
    """An object of a file: its entries have the types they say, and there are no others."""

    model_config = ConfigDict(strict=True, extra="forbid")


def refusal(message: str) -> PydanticCustomError:
    """The error of an entry, with its sentence."""
    return PydanticCustomError("policy", "{message}", {"message": message})


def must_be(words: str) -> WrapValidator:
    """Describe whatever is wrong with an entry in these words."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise refusal(f"must be {words}, got {excerpt(value)}") from None

    return WrapValidator(check)


def _text(value: str) -> str:
    """Text that can be written: half a surrogate pair, which JSON can name, cannot."""
    value.encode("utf-8")
    return value


def excerpt(value: Any) -> str:
    """The beginning of a value as JSON, for an error."""
    text = "nothing" if value is None else json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:40]}..."


Share = Annotated[float, Field(ge=0, le=1), must_be("a number from 0 to 1")]
OpenShare = Annotated[float, Field(gt=0, lt=1), must_be("a number between 0 and 1")]
Limit = Annotated[float, Field(ge=-_REACH, le=_REACH), must_be(f"a number from {-_REACH:g} to {_REACH:g}")]
Floor = Annotated[float, Field(ge=FLOOR, le=0.5), must_be(f"a number from {FLOOR:g} to 0.5")]
Count = Annotated[int, Field(ge=0, le=MOST_SAMPLES), must_be(f"a whole number from 0 to {MOST_SAMPLES:,}")]
Needed = Annotated[int, Field(ge=1, le=MOST_SAMPLES), must_be(f"a whole number from 1 to {MOST_SAMPLES:,}")]
Classes = Annotated[int, Field(ge=2, le=MOST_CLASSES), must_be(f"a whole number from 2 to {MOST_CLASSES:,}")]
Position = Annotated[int, Field(ge=0, le=1), must_be("0, 1 or null")]
Power = Annotated[int, Field(ge=1, le=1000), must_be("a whole number from 1 to 1,000")]
Label = Annotated[int, Field(ge=-(2**63), lt=2**63), must_be("a whole number from -2**63 to 2**63 - 1")]
Text = Annotated[str, AfterValidator(_text), must_be("text")]
Takes = Annotated[Literal["logits", "probabilities"], must_be("one of logits, probabilities")]
Kind = Annotated[Literal["classification", "segmentation"], must_be("one of classification, segmentation")]
Flag = Annotated[bool, must_be("true or false")]
PromiseKind = Annotated[
    Literal["risk", "precision", "recall", "cost", "expected-risk"], must_be(f"one of {', '.join(KINDS)}")
]
ClassNumber = Annotated[int, Field(ge=0, lt=MOST_CLASSES), must_be("the number of a class")]
Cost = Annotated[float, Field(ge=0, le=LARGEST_COST), must_be(f"a number from 0 to {LARGEST_COST:g}")]
Loss = Annotated[float, Field(ge=0, le=2.0**62), must_be("a number from 0 on")]
CostRow = Annotated[list[Cost], Field(min_length=2, max_length=MOST_COSTED), must_be("a list of numbers from 0 on")]
Quantile = Annotated[float, Field(ge=-1 - 1e-9, le=_HIGHEST), must_be(f"a number from -1 to {_HIGHEST:g}")]
Quantiles = Annotated[list[Quantile], Field(min_length=1), must_be('a list of numbers, or "all" for one of them')]
SetMethod = Annotated[Literal["lac", "aps", "raps", "class-conditional"], must_be(f"one of {', '.join(METHODS)}")]
Penalty = Annotated[float, Field(ge=0, le=LARGEST_PENALTY), must_be(f"a number from 0 to {LARGEST_PENALTY:g}")]
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED), must_be("a whole number from 0 to 2**63 - 1")]
SetCount = Annotated[int, Field(ge=0, le=_MOST), must_be(f"a whole number from 0 to {_MOST:,}")]
SetCounters = Annotated[list[SetCount], Field(min_length=1), must_be(f"a list of whole numbers from 0 to {_MOST:,}")]


class _Share(Entries):
    label: ClassNumber = Field(alias="class")
    name: Any = None
    share: OpenShare
    samples: Count | None = None


class _Seen(Entries):
    rows: Count
    loss: Loss


class PromiseEntries(Entries):
    """The entries of a promise, each checked on its own."""

    of: PromiseKind
    by_class: Flag = False
    shares: list[_Share] = Field(default_factory=list)
    target: Loss | None = None
    costs: list[CostRow] | None = None
    abstain_cost: Cost | None = None
    seen: _Seen | None = None

    def restore(self) -> Promise:
        """The promise of a policy."""
        return Promise(
            of=self.of,
            by_class=self.by_class,
            shares=tuple((share.label, share.share) for share in self.shares),
            class_samples=tuple(share.samples for share in self.shares if share.samples is not None),
            target=self.target,
            costs=None if self.costs is None else tuple(map(tuple, self.costs)),
            abstain_cost=self.abstain_cost,
            tally=None if self.seen is None else LossTally(self.seen.rows, self.seen.loss),
        )


class _Counts(Entries):
    sizes: SetCounters
    abstained: SetCounters
    class_samples: SetCounters
    class_covered: SetCounters
    abstained_covered: SetCount


class SetEntries(Entries):
    """The entries of prediction sets, each checked on its own; what the sets say of themselves is not read."""

    level: OpenShare
    method: SetMethod
    quantiles: Quantiles
    samples: SetCounters
    penalty: Penalty = 0.0
    free_ranks: SetCount = 0
    randomised: Flag = False
    seed: Seed = 0
    counts: _Counts | None = None
    summary: Any = None
    seen: Any = None

    @field_validator("quantiles", mode="wrap")
    @classmethod
    def _accept_word(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, list):
            return handler(value)
        finite = [0.0 if quantile == EVERY_SET else quantile for quantile in value]
        numbers = handler(finite)
        return [math.inf if entry == EVERY_SET else number for entry, number in zip(value, numbers, strict=True)]

    def restore(self, num_classes: int) -> PredictionSets:
        """The sets of a policy for that many classes."""
        counts = None
        if self.counts is not None:
            for name, extra in (("sizes", 1), ("abstained", 1), ("class_samples", 0), ("class_covered", 0)):
                length, most = len(getattr(self.counts, name)), num_classes + extra
                if length > most:
                    raise ValueError(f"sets.counts.{name} must have {most} entries at most, got {length}")
            counts = SetCounts(num_classes, **dict(self.counts))
        entries = {name: value for name, value in dict(self).items() if name not in ("counts", "summary", "seen")}
        entries |= {"quantiles": tuple(self.quantiles), "samples": tuple(self.samples), "counts": counts}
        return PredictionSets(**entries)


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
        infinite = next((number for number, word in WORDS.items() if value == word), None)
        return handler(value) if infinite is None else infinite

    def restore(self) -> Threshold:
        entries = dict(self)
        value = entries.pop("accept_from")
        entries["menu"] = tuple(Offer(offer.risk, offer.coverage) for offer in self.menu)
        intervals = {"coverage": self.coverage.restore(), "risk": self.risk.restore()}
        return Threshold(math.nan if value is None else value, **{**entries, **intervals})


class _ClassThreshold(Entries):
    label: ClassNumber = Field(alias="class")
    name: Any = None
    group: Text | None = None
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


class _ByClass(Entries):
    score: list[list[Count]]
    confidence: list[list[Count]]
    predicted: list[list[Count]]


class _Reference(Entries):
    rows: Count
    score: _Bins
    confidence: _Bins
    predicted: _Cells
    by_class: _ByClass | None = None
    labels: list[Count] | None
    implied_risk: Share | None

    @model_validator(mode="after")
    def _check_sums(self) -> Self:
        totals = {sum(part.counts) for part in (self.score, self.confidence, self.predicted)}
        if not self.rows or totals != {self.rows}:
            raise refusal("must count the same rows, at least one, in score, confidence and predicted")
        for name, rows in () if self.by_class is None else self.by_class:
            whole = getattr(self, name).counts
            if not rows or any(len(row) != len(whole) for row in rows) or [*map(sum, zip(*rows, strict=True))] != whole:
                raise refusal("must count the same rows by class")
        return self


class _IdlePromise(Entries):
    group: Text
    label: ClassNumber = Field(alias="class")
    error: Share


class _Evidence(Entries):
    model_config = ConfigDict(extra="allow")
    idle: list[_IdlePromise] = []
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
    price: Any = None
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
            if any(len(rows) != classes for _, rows in reference.by_class or ()):
                raise refusal(f"reference.by_class must have {classes} rows each")
        return evidence


def read_entries(data: dict[str, Any]) -> PolicyEntries:
    """The entries of a file, checked; a ValueError names the first that is wrong."""
    try:
        return PolicyEntries.model_validate(data)
    except ValidationError as error:
        raise ValueError(_sentence(error.errors(include_url=False)[0])) from None


def _sentence(error: ErrorDetails) -> str:
    """What pydantic found wrong."""
    *outer, innermost = [str(part)[:40] for part in error["loc"]]
    name = ".".join([*outer, innermost]) if innermost != "[key]" else ".".join(outer[:-1])
    name = json.dumps(name, ensure_ascii=not name.isprintable())[1:-1]
    if innermost == "[key]":
        return f"{name} must have names of text, got {excerpt(error['input'])}"
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "extra_forbidden":
        return f"{name} is not known in a policy of version {VERSION}"
    if error["type"] == "policy":
        return f"{name} {error['msg']}"
    return f"{name} must be an object, got {excerpt(error['input'])}"
