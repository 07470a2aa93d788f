"""Prediction sets in a policy's file: read as they were written, and refused in one sentence where they are wrong."""

import copy
import json

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.selective.policy.file import from_dict, to_dict
from tests.helpers.policies import drawn


def policy(method="raps", **options):
    data = Predictions.from_logits(*drawn(300), class_names=list("abcdef"))
    return Policy.fit(data, 0.3, **{"sets": 0.9, "set_method": method, **options})


@pytest.fixture(scope="module")
def entries():
    return to_dict(policy())


@pytest.mark.parametrize(
    ("method", "options"),
    [("lac", {}), ("aps", {"set_randomised": True, "seed": 3}), ("raps", {}), ("class-conditional", {"sets": 0.99})],
)
def test_a_policy_with_sets_is_read_as_it_was_written(tmp_path, method, options):
    written = policy(method, **options)
    written.save(tmp_path / "policy.json")
    read, z = Policy.load(tmp_path / "policy.json"), drawn(200, seed=9)[0]
    np.testing.assert_array_equal(read.predict_sets(z), written.predict_sets(z))
    assert read.sets.quantiles == written.sets.quantiles
    assert read.sets.counts.to_dict(None) == written.sets.counts.to_dict(None)
    assert json.loads((tmp_path / "policy.json").read_text())["sets"]["level"] == read.sets.level


def test_a_file_from_before_sets_is_read(entries):
    old = {name: value for name, value in entries.items() if name not in ("sets", "checksum")}
    assert from_dict(old).sets is None


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (("level",), 1.0, "sets.level must be a number between 0 and 1, got 1.0"),
        (("method",), "best", "sets.method must be one of lac, aps, raps, class-conditional, got"),
        (("method",), "class-conditional", "sets.quantiles must have 6 entries, got 1"),
        (("quantiles",), [], "sets.quantiles must be a list of numbers, or"),
        (("quantiles",), 0.5, "sets.quantiles must be a list of numbers, or"),
        (("quantiles",), ["all"], "sets.quantiles must be a number for"),
        (("quantiles",), [1e300], "sets.quantiles must be a list of numbers, or"),
        (("samples",), [3], 'sets.quantiles must be "all" for 3 samples'),
        (("samples",), [2**70], "sets.samples must be a list of whole numbers"),
        (("penalty",), -1.0, "sets.penalty must be a number from 0 to 1000, got -1.0"),
        (("free_ranks",), 7, "sets.free_ranks must be at most 6, got 7"),
        (("randomised",), 1, "sets.randomised must be true or false, got 1"),
        (("colour",), "red", "sets.colour is not known in a policy of version 1"),
        (("counts", "class_samples"), [1], "sets.counts: class_samples must add up to the"),
        (("counts", "sizes"), [0] * 9, "sets.counts.sizes must have 7 entries at most, got 9"),
        (("counts", "abstained_covered"), 10**9, "sets.counts: what is abstained on must be at most all"),
    ],
)
def test_wrong_entries_are_named_in_one_sentence(entries, place, value, sentence):
    data = copy.deepcopy(entries)
    inner = data["sets"]
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    with pytest.raises(ValueError, match="^" + sentence) as error:
        from_dict(data)
    assert "\n" not in str(error.value)


def test_sets_of_masks_and_settings_of_other_methods_are_refused(entries):
    data = copy.deepcopy(entries)
    data["sets"] |= {"method": "aps"}
    with pytest.raises(ValueError, match=r"^sets.penalty and sets.free_ranks are for raps, got aps"):
        from_dict(data)
    data = copy.deepcopy(entries)
    data["kind"] = "segmentation"
    with pytest.raises(ValueError, match=r"^sets are for classification, but this policy is for segmentation"):
        from_dict(data)
