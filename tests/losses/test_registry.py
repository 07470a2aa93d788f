"""Tests of registry."""

import pytest
import torch

from calibrant import losses as L
from calibrant.losses import describe, get, names
from calibrant.losses.registry import COMMON


def test_registry_tells_paper_equation_and_directions():
    assert L.names() == ("ce", "ls", "focal", "flsd", "ecp", "mmce", "mdca", "cpc", "mbls", "crl", "acls", "lr", "soft")
    for name in L.names():
        method = L.describe(name)
        assert method.paper
        assert method.equation
        assert set(method.hyper) == set(method.defaults())
        assert isinstance(L.get(name), method.loss)
    assert repr(L.get("acls", margin=6.0, reduction="sum")) == "ACLS(margin=6.0, reduction='sum')"
    assert repr(L.CrossEntropy(weight=torch.ones(3))) == "CrossEntropy(weight=[3 values])"


def test_defaults_are_those_of_the_published_tables():
    expected = {
        "acls": {"margin": 10, "lambda1": 0.1, "lambda2": 0.01, "variant": "released", "gradient": "eq13"},
        "mbls": {"margin": 10, "strength": 0.1, "variant": "released"},
        "flsd": {"gamma": 3, "variant": "released"},
        "mmce": {"strength": 1, "kernel_width": 0.4, "weighted": True, "variant": "released"},
        "ecp": {"strength": 0.1, "variant": "paper"},
        "mdca": {"strength": 1, "base": "ce", "variant": "released"},
        "cpc": {"lambda1": 0.1, "lambda2": 1.0, "variant": "released"},
        "crl": {"strength": 1, "score": "msp", "variant": "released"},
        "lr": {"alpha": 0.1},
        "ls": {"alpha": 0.05, "spread": "all"},
        "focal": {"gamma": 3},
    }
    for name, parameters in expected.items():
        assert parameters.items() <= L.describe(name).defaults().items(), name


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
