"""Policies and sketches whose entries are anything that their format can say: a value, or a sentence."""

import functools
import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from calibrant import Policy
from tests.fuzz.engine import flaw_of
from tests.fuzz.targets import POLICIES, data_for_policies

quickly = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


@functools.cache
def written_policies():
    return [json.dumps(Policy.fit(data_for_policies(), **how).document) for how in POLICIES.values()]


def attempt(load, content):
    """What a loader gives, or None if it refuses as it should."""
    try:
        return load(content)
    except ValueError as error:
        if flaw_of(error):
            raise AssertionError(flaw_of(error)) from error
    return None


numbers = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([10**400, -(10**400), 5e-324])
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=6), st.sampled_from(["msp", "logits", "nothing"])),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.integers(0, len(POLICIES) - 1), st.data(), values)
@example(1, None, 5e-324)
@quickly
def test_entries_of_any_value(tmp_path_factory, which, data, value):
    """Any entry of a policy replaced by anything that JSON can say."""
    fields = json.loads(written_policies()[which])
    del fields["checksum"]
    inner, name = fields, "calibrator" if data is None else data.draw(st.sampled_from(sorted(fields)))
    while data is not None and isinstance(inner[name], dict) and inner[name] and data.draw(st.booleans()):
        inner = inner[name]
        name = data.draw(st.sampled_from(sorted(inner)))
    inner[name] = value
    policy = attempt(Policy.from_document, fields)
    if policy is not None:
        path = tmp_path_factory.getbasetemp() / "again.json"
        policy.save(path)
        assert Policy.load(path).document == policy.document


@given(values)
@quickly
def test_values_that_are_no_policies(value):
    assert attempt(Policy.from_document, value) is None
