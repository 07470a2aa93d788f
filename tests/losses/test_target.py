"""Parameters of losses: whatever is given, the sentence is about the parameter."""

import pytest
import torch

from calibrant.losses import CRL, CrossEntropy, describe, get, names
from calibrant.losses.registry import COMMON

ODD = [
    "x",
    "",
    None,
    [],
    {},
    object(),
    1 + 2j,
    b"x",
    float("nan"),
    float("inf"),
    10**400,
    -(10**400),
    "9" * 5000,
    (1, 2),
]
#: Words of Python and PyTorch, which say nothing to a user.
JARGON = (
    "iterable",
    "unexpected keyword",
    "has no attribute",
    "unhashable",
    "dtype of",
    "invalid data type",
    "argument",
)


@pytest.mark.parametrize("name", names())
def test_every_parameter_refuses_in_words(name):
    for parameter in (*describe(name).defaults(), *COMMON):
        for value in ODD:
            try:
                get(name, **{parameter: value})
            except ValueError as error:
                text = str(error)
            else:
                continue
            assert text.startswith(parameter), (parameter, value)
            assert not any(word in text for word in JARGON), text
            assert len(text) < 250, text


@pytest.mark.parametrize("name", names())
def test_unknown_parameters_are_named_with_those_that_are_known(name):
    with pytest.raises(ValueError, match=f"loss '{name}' has no parameter 'foo': expected one of .*reduction"):
        get(name, foo=1)


def test_class_weights():
    assert torch.equal(CrossEntropy(weight=[1.0, 2.0]).weight, torch.tensor([1.0, 2.0]))
    for bad in ("x", 5, [[1.0]], [-1.0], [float("nan")], {"a": 1}, [1, "x"], [1 + 1j]):
        with pytest.raises(ValueError, match="weight must be one finite, non-negative number per class, got"):
            CrossEntropy(weight=bad)


def test_a_history_is_bounded_before_memory_is_taken():
    for many in (10**8 + 1, 10**12, 1e18):
        with pytest.raises(ValueError, match="num_samples must be between 0 and 1e"):
            CRL(num_samples=many)


def test_labels_have_64_bits():
    with pytest.raises(ValueError, match="ignore_index must be a whole number of 64 bits, got 18446744073709551616"):
        CrossEntropy(ignore_index=2**64)
