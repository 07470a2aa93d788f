"""Entries of a policy's file: the first that is wrong is named in one sentence."""

import copy

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from calibrant import Policy, Predictions
from calibrant.selective.policy.file import to_dict
from calibrant.selective.policy.file_entries import OpenShare, Text, excerpt, read_entries


@pytest.fixture(scope="module")
def entries():
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((300, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    return to_dict(Policy.fit(Predictions.from_logits(logits, labels), 0.2, calibrator="temperature"))


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (("confidence",), 1, "confidence must be a number between 0 and 1, got 1"),
        (("classes",), True, "classes must be a whole number from 2 to 1,000,000, got true"),
        (("class_names",), ["a", "b", "b", "c"], 'class_names must differ, got "b" 2 times'),
        (("threshold", "errors"), -1, "threshold.errors must be a whole number from 0 to"),
        (("threshold", "colour"), "red", "threshold.colour is not known in a policy of version 1"),
        (("groups",), {}, "groups must be an object with a threshold for each, or null, got {}"),
        (("score",), 3, "score must be an object, got 3"),
    ],
)
def test_the_sentence_names_the_entry(entries, place, value, sentence):
    data = copy.deepcopy(entries)
    inner = data
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    with pytest.raises(ValueError, match="^" + sentence.replace("{}", r"\{\}")):
        read_entries(data)


def test_a_missing_entry_is_named(entries):
    with pytest.raises(ValueError, match=r"^takes is missing$"):
        read_entries({name: value for name, value in entries.items() if name != "takes"})


def test_thresholds_that_json_has_no_number_for(entries):
    data = copy.deepcopy(entries)
    data["threshold"]["accept_from"] = "nothing"
    assert read_entries(data).threshold.restore().value == np.inf
    assert read_entries(entries).takes == "logits"


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
