"""Types of the entries of a document, and the sentence that says what is wrong with one.

Models of documents are pydantic's. An entry's type says what it may be and how that is called; whatever a model refuses
becomes one sentence, which begins with the entry's name.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from calibrant.base.checks import LARGEST_LOGIT, LARGEST_SEED

MOST_CLASSES = 10**6
MOST_SAMPLES = 2**62
_REACH = 2 * LARGEST_LOGIT
MOST_COUNTED = 10**12  # of a count of sets: a million of them still add up in 64 bits

#: Of a dataclass that a document holds: entries by the names of the document, and no others.
ENTRIES = ConfigDict(extra="forbid", populate_by_name=True, revalidate_instances="always")


def refusal(message: str) -> PydanticCustomError:
    """The error of an entry, with what follows its name in the sentence."""
    return PydanticCustomError("entry", "{message}", {"message": message})


def must_be(words: str) -> WrapValidator:
    """Describe whatever is wrong with an entry in these words."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise refusal(f"must be {words}, got {excerpt(value)}") from None

    return WrapValidator(check)


def excerpt(value: Any) -> str:
    """The beginning of a value as JSON, for an error."""
    text = "nothing" if value is None else json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _text(value: str) -> str:
    """Text that can be written: half a surrogate pair, which JSON can name, cannot."""
    value.encode("utf-8")
    return value


def _plain(value: Any) -> Any:
    """A number of NumPy as Python's own, which alone is strictly a number."""
    return value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 else value


def nan_for_nothing(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """NaN for null, which stands for it in a file."""
    return math.nan if value is None or (isinstance(value, float) and math.isnan(value)) else handler(value)


NUMBER = (BeforeValidator(_plain), Field(strict=True))

Share = Annotated[float, *NUMBER, Field(ge=0, le=1), must_be("a number from 0 to 1")]
OpenShare = Annotated[float, *NUMBER, Field(gt=0, lt=1), must_be("a number between 0 and 1")]
Limit = Annotated[float, *NUMBER, Field(ge=-_REACH, le=_REACH), must_be(f"a number from {-_REACH:g} to {_REACH:g}")]
Loss = Annotated[float, *NUMBER, Field(ge=0, le=2.0**62), must_be("a number from 0 on")]
Count = Annotated[int, *NUMBER, Field(ge=0, le=MOST_SAMPLES), must_be(f"a whole number from 0 to {MOST_SAMPLES:,}")]
Needed = Annotated[int, *NUMBER, Field(ge=1, le=MOST_SAMPLES), must_be(f"a whole number from 1 to {MOST_SAMPLES:,}")]
Classes = Annotated[int, *NUMBER, Field(ge=2, le=MOST_CLASSES), must_be(f"a whole number from 2 to {MOST_CLASSES:,}")]
ClassNumber = Annotated[int, *NUMBER, Field(ge=0, lt=MOST_CLASSES), must_be("the number of a class")]
Label = Annotated[int, *NUMBER, Field(ge=-(2**63), lt=2**63), must_be("a whole number from -2**63 to 2**63 - 1")]
Seed = Annotated[int, *NUMBER, Field(ge=0, le=LARGEST_SEED), must_be("a whole number from 0 to 2**63 - 1")]
SetCount = Annotated[int, *NUMBER, Field(ge=0, le=MOST_COUNTED), must_be(f"a whole number from 0 to {MOST_COUNTED:,}")]
Text = Annotated[str, Field(strict=True), AfterValidator(_text), must_be("text")]
Flag = Annotated[bool, Field(strict=True), must_be("true or false")]


def without(*names: str) -> BeforeValidator:
    """Leave out entries of an object, or of each object of a list, that are for readers and follow from the rest."""

    def leave_out(value: Any) -> Any:
        if isinstance(value, list):
            return [leave_out(part) if isinstance(part, dict) else part for part in value]
        return {name: part for name, part in value.items() if name not in names} if isinstance(value, dict) else value

    return BeforeValidator(leave_out)


class Entries(BaseModel):
    """An object of a document, or a document: frozen, and known by the entries that it has.

    Whatever is wrong with its entries is a ValueError of one sentence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, arbitrary_types_allowed=True)

    def __init__(self, **entries: Any) -> None:
        try:
            super().__init__(**entries)
        except ValidationError as error:
            raise ValueError(sentence(error, self._document())) from None

    @classmethod
    def _document(cls) -> str:
        """What an unknown entry is not known in."""
        raise NotImplementedError


def sentence(error: ValidationError, document: str) -> str:
    """What pydantic found wrong first; ``document`` is what an entry is unknown or missing in."""
    errors = error.errors(include_url=False)
    unknown = (error for error in errors if error["type"] in _UNKNOWN)  # before what is missing because of it
    return _sentence(next(unknown, errors[0]), document)


def _sentence(error: ErrorDetails, document: str) -> str:
    if error["type"] == "value_error":  # of a check of ours, whose sentence names the entry
        return str(error["ctx"]["error"])
    *outer, innermost = [str(part)[:40] for part in error["loc"]]
    name = ".".join([*outer, innermost]) if innermost != "[key]" else ".".join(outer[:-1])
    name = json.dumps(name, ensure_ascii=not name.isprintable())[1:-1]
    if innermost == "[key]":
        return f"{name} must have names of text, got {excerpt(error['input'])}"
    if error["type"] == "missing":
        return f"{name} is missing in {document}"
    if error["type"] in _UNKNOWN:
        return f"{name} is not known in {document}"
    if error["type"] == "entry":
        return f"{name} {error['msg']}"
    return f"{name} must be {_EXPECTED.get(error['type'], 'an object')}, got {excerpt(error['input'])}"


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_EXPECTED = {"list_type": "a list", "tuple_type": "a list"}
