"""The majority class beside a policy: hand-worked shares, and policies on one column."""

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.selective.majority import describe_majority, majority_words
from calibrant.selective.policy_file import from_dict, to_dict


def test_the_words_by_hand():
    majority = describe_majority(np.array([97, 3]))
    assert majority == {"class": 0, "error": pytest.approx(0.03)}
    names = ("no", "yes")
    said = "Always answering no would be wrong in 3.00% of all samples."
    assert majority_words(majority, names, 0.01, 0.005) == said
    assert majority_words(majority, names, 0.05, 0.005).startswith(f"Warning: {said} The promise of at most 5%")
    assert majority_words(majority, names, None, 0.03).endswith("answers are wrong no less often, 3.00%.")
    assert majority_words(describe_majority(np.array([2, 2, 2])), None, 0.7, 0.7) == ""
    assert majority_words({"error": "x"}, None, 0.7, 0.7) == ""


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal(1200)
    return z, np.where(rng.random(1200) < 1 / (1 + np.exp(-z)), "yes", "no")


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_a_policy_on_one_column_decides_as_on_two(kind, drawn):
    z, truth = drawn
    values = z if kind == "logits" else 1 / (1 + np.exp(-z))
    both = np.stack([0 * z if kind == "logits" else 1 - values, values], 1)
    make = getattr(Predictions, f"from_{kind}")
    policy = Policy.fit(make(values, truth, positive="yes"), target_risk=0.1, calibrator="none", score="msp")
    assert (policy.positive, policy.positive_name) == (1, "yes")
    for one in (values, values[:, None]):
        for column, expected in zip(policy.decide(one), policy.decide(both), strict=True):
            assert np.array_equal(column, expected)
    assert from_dict(to_dict(policy)).positive == 1
    entries = to_dict(policy)
    del entries["positive"], entries["checksum"]  # as files had it before: custom does not know yes and no
    assert from_dict(entries).positive is None
    two = Policy.fit(make(both, truth, class_names=["no", "yes"]), target_risk=0.1, calibrator="none", score="msp")
    with pytest.raises(ValueError, match="does not say of which one column is: give both"):
        two.decide(values)
