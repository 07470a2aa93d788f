"""Types of the entries of a policy's file, each with the words that say what it must be."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from calibrant._validation import LARGEST_LOGIT
from calibrant.predictions import FLOOR

MOST_CLASSES = 10**6
MOST_SAMPLES = 2**62


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


_REACH = 2 * LARGEST_LOGIT
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
