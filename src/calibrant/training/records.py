"""Schemas of the JSON files of a run folder: a file that does not match its schema is refused.

Undefined numbers (the overconfidence of a model without errors) are null in the files and NaN in memory.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from calibrant.base.checks import short
from calibrant.base.files import parse_json, read_regular
from calibrant.metrics import describe
from calibrant.training.settings import MOST_STEPS, Number, SetName, Whole

#: Largest size of such a file, in bytes.
LARGEST_RECORD = 2**26

# Records up to this many bytes are cached.
_MOST_CACHED = 2**18

#: Numbers in one input of a model: an image of 16,384 x 16,384 pixels.
LARGEST_INPUT = 2**28

# Rounding may exceed the bounds of a metric a little.
_SLACK = 1e-6

# Python writes NaN like this, and so did earlier versions of Calibrant.
_NAN = re.compile(rb"(?<=: )NaN(?=\s*[,}\]])")

_KINDS = {
    "int_type": "a whole number", "int_from_float": "a whole number", "int_parsing": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "bool_type": "true or false", "string_type": "text",
    "tuple_type": "a list", "list_type": "a list", "dict_type": "a table", "model_type": "a table",
    "model_attributes_type": "a table", "finite_number": "a finite number",
}  # fmt: skip

Value = Number | None
Step = Annotated[Whole, Field(ge=0, le=MOST_STEPS)]


class DamagedError(ValueError):
    """A file of a run folder does not match its schema."""


def check_metric(name: str, value: float | None) -> None:
    """Raise unless a metric exists and the value is within its bounds."""
    try:
        low, high = describe(name).bounds
    except ValueError:
        raise ValueError(f"no metric is called {short(name)}") from None
    if value is not None and not low - _SLACK <= value <= high + _SLACK:
        raise ValueError(f"{name} must be from {low:g} to {high:g}, got {value:g}")


def _check_metrics(values: dict[str, float | None]) -> dict[str, float | None]:
    for name, value in values.items():
        check_metric(name, value)
    return values


def _check_epoch(entry: dict[str, Any]) -> dict[str, Any]:
    for name, value in entry.items():
        if name in ("epoch", "step"):
            if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MOST_STEPS:
                raise ValueError(f"{name} must be a whole number above 0, got {short(value)}")
        elif name.startswith("val_"):
            check_metric(name.removeprefix("val_"), value)
        else:
            raise ValueError(f"unknown name {short(name)}")
    if not {"epoch", "step"} <= entry.keys():
        raise ValueError("an epoch must have the keys epoch and step")
    return entry


Metrics = Annotated[dict[str, Value], AfterValidator(_check_metrics)]
#: The validation after an epoch: its number, the step, and the metrics, such as ``val_ece``.
Epoch = Annotated[dict[str, Whole | Number | None], AfterValidator(_check_epoch)]


class Record(BaseModel):
    """The contents of one file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Checked(Record):
    """The contents of a file with a checksum; files of earlier versions have none."""

    @model_validator(mode="before")
    @classmethod
    def _check_checksum(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "checksum" not in values:
            return values
        contents = {name: value for name, value in values.items() if name != "checksum"}
        if with_checksum(contents)["checksum"] != values["checksum"]:
            raise ValueError("its contents do not match its checksum")
        return contents


def with_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values with their checksum."""
    text = json.dumps(values, sort_keys=True)
    return {**values, "checksum": hashlib.sha256(text.encode()).hexdigest()[:16]}


class Result(Checked):
    """``result.json``: the metrics of a finished run by set, and the validation after each epoch."""

    sets: dict[SetName, Metrics]
    steps: Annotated[Whole, Field(ge=1, le=MOST_STEPS)]
    history: list[Epoch]

    @model_validator(mode="after")
    def _check_test_set(self) -> Self:
        if "test" not in self.sets:
            raise ValueError("the numbers of the test set are missing")
        return self


class ModelFacts(Checked):
    """``model.json``: the inputs and classes of the model, and the number of samples of each set of the run."""

    classes: Annotated[list[str], Field(min_length=2)]
    input_shape: Annotated[list[Annotated[Whole, Field(ge=1, le=10**7)]], Field(min_length=1, max_length=8)]
    images: Annotated[bool, Field(strict=True)]
    input_dtype: Literal["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
    vocabulary_size: Annotated[Whole, Field(ge=1, le=10**7 + 2)] | None
    samples: dict[Literal["train", "val", "test"], Annotated[Whole, Field(ge=1)]] = {}  # empty in older runs

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if math.prod(self.input_shape) > LARGEST_INPUT:
            raise ValueError(f"input_shape must have at most {LARGEST_INPUT} numbers, got {self.input_shape}")
        if self.images and len(self.input_shape) != 3:
            raise ValueError(f"the input_shape of images must be three numbers, got {self.input_shape}")
        return self


class State(Record):
    """The numbers in a checkpoint: the progress of the run."""

    epoch: Step
    batch: Step
    step: Step
    best: Value = None
    history: list[Epoch]
    scaler: dict[str, Whole | Number] | None = None


class Failed(Record):
    """``failed.json``: why a run of a comparison failed, and whether a retry would fail too."""

    error: str
    lasting: Annotated[bool, Field(strict=True)]
    time: Number = 0.0
    machine: str = ""


class Entry(BaseModel):
    """A line of the log; further fields depend on the loss."""

    model_config = ConfigDict(extra="allow", frozen=True)

    event: str = ""
    step: Step = 0
    epoch: Step = 0


R = TypeVar("R", bound=BaseModel)


def read_record(path: Path, kind: type[R], advice: str) -> R:
    """The contents of a file, which must not be changed, as they may be cached; FileNotFoundError if there is none.

    ``advice`` says what to do if the file is damaged.
    """
    try:
        text = read_regular(path, LARGEST_RECORD)
        return _check_cached(text, kind) if len(text) <= _MOST_CACHED else check_record(parse_values(text), kind)
    except ValueError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise DamagedError(f"{path} is damaged ({reason}); {advice}") from None


@functools.lru_cache(maxsize=256)
def _check_cached(text: bytes, kind: type[R]) -> R:
    """As `check_record`, cached: a comparison reads the same files many times."""
    return check_record(parse_values(text), kind)


def parse_values(text: bytes) -> Any:
    """The plain values of a text in JSON."""
    return parse_json(_NAN.sub(b"null", text), "JSON")


def check_record(value: Any, kind: type[R]) -> R:
    """Validate plain values as the contents of a file; the error is one sentence."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ValueError(sentence_of(first_error(error))) from None


def first_error(error: ValidationError) -> ErrorDetails:
    """The most helpful error: for a setting that takes text or a table, the one about the given kind."""
    errors = error.errors(include_url=False)
    tables = [e for e in errors if isinstance(e["input"], str) or not any(map(_is_literal, e["loc"]))]
    return (tables or errors)[0]


def name_of(error: ErrorDetails) -> str:
    """The setting as for ``--set``, without pydantic's names for the members of a union."""
    parts = [part for part in error["loc"] if isinstance(part, int) or not _is_inner(part)]
    if "[key]" in error["loc"]:
        parts = parts[:-1]
    return ".".join(map(str, parts))


def sentence_of(error: ErrorDetails) -> str:
    """An error in words."""
    name, kind = name_of(error), error["type"]
    if kind == "value_error":  # one of ours
        message = str(error["ctx"]["error"]).rstrip(".")
        return f"{name}: {message}" if name else message
    if kind == "missing":
        return f"the key {name!r} is missing"
    if kind in ("too_long", "too_short"):
        most = "at most" if kind == "too_long" else "at least"
        limit = error["ctx"].get("max_length", error["ctx"].get("min_length"))
        return f"{name} must have {most} {limit} members, got {len(error['input'])}"
    words = _KINDS.get(kind) or error["msg"].removeprefix("Input should be ")
    return f"{name or 'it'} must be {words}, got {short(error['input'])}"


def _is_literal(part: Any) -> bool:
    return isinstance(part, str) and part.startswith("literal[")


def _is_inner(part: str) -> bool:
    return part in ("[key]", "constrained-int", "int", "float") or _is_literal(part) or part.endswith("Settings")
