"""Types of a policy's entries: one sentence for whatever is wrong, and short excerpts of it."""

import pytest
from pydantic import TypeAdapter, ValidationError

from calibrant.selective.policy_file.entry_types import OpenShare, Text, excerpt


@pytest.mark.parametrize("value", [0.0, 1.0, float("nan"), "0.5", None])
def test_whatever_is_wrong_is_said_in_the_words_of_the_type(value):
    with pytest.raises(ValidationError, match="must be a number between 0 and 1, got"):
        TypeAdapter(OpenShare).validate_python(value, strict=True)


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(ValidationError, match="must be text, got"):
        TypeAdapter(Text).validate_python("\ud800", strict=True)


def test_excerpts_are_short():
    assert excerpt(None) == "nothing"
    assert excerpt("x" * 99) == '"' + "x" * 39 + "..."
