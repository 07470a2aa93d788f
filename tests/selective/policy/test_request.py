"""What is asked for, in words and in numbers: read, or refused in one sentence."""

import numpy as np
import pytest

from calibrant import Policy, Predictions
from calibrant.selective.policy.request import (
    check_compatible,
    check_costs,
    parse_promises,
    read_promise,
    read_set_target,
)
from calibrant.selective.promise import Promise
from tests.helpers.policies import drawn, masks

NAMES = ("cat", "dog: small")


def test_spellings():
    assert parse_promises("precision=cat:95%", NAMES, 2) == Promise("precision", shares=((0, 0.95),))
    assert parse_promises(" recall = dog: small : 0.9 ", NAMES, 2) == Promise("recall", shares=((1, 0.9),))
    assert parse_promises(["precision=0:0.9", "precision=2:0.8"], None, 3).shares == ((0, 0.9), (2, 0.8))
    assert parse_promises("expected-risk:0.05", None, 3) == Promise("expected-risk", target=0.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("precision:0.9", "promise must be precision=CLASS:SHARE"),
        ("accuracy=cat:0.9", "promise must be"),
        ("expected-risk=cat:0.1", "promise must be"),
        ("precision=cat", "promise must be"),
        (3, "promise must be"),
        ([], "got nothing"),
        ("recall=cats:0.9", "did you mean 'cat'"),
        ("recall=cat:high", "must end in a share"),
        ("recall=cat:1", "above 0 and below 1"),
        ("recall=cat:nan", "must be a number"),
        (["recall=cat:0.9", "precision=cat:0.9"], "several promises at once"),
        (["precision=cat:0.9", "precision=cat:0.8"], "promised twice"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(ValueError, match=message) as error:
        parse_promises(text, NAMES, 2)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([[0, 1]], r"costs must be \[2, 2\], by label and answer"),
        ([[0, -1], [1, 0]], "between 0 and"),
        ([[0, np.nan], [1, 0]], "between 0 and"),
        ([[0, 0], [0, 0]], "some above 0"),
        ([["a", 1], [1, 0]], "costs must be numbers"),
        ([[0, 1], [1]], "costs must be numbers"),
        (None, "costs must be"),
    ],
)
def test_costs_that_are_refused(costs, message):
    with pytest.raises(ValueError, match=message):
        check_costs(costs, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"promise": "recall=cat:0.9", "by_class": True}, "different promises"),
        ({"target_cost": 1.0}, "target_cost goes with a cost matrix"),
        ({"costs": [[0, 1], [1, 0]]}, "costs need target_cost"),
        ({"costs": [[0, 1], [1, 0]], "target_cost": 1.0}, "below 1"),
        ({"costs": [[0, 1], [1, 0]], "target_cost": 0.5, "abstain_cost": -1}, "abstain_cost must be"),
        ({"by_class": 1}, "by_class must be True or False"),
    ],
)
def test_requests_that_are_refused(arguments, message):
    data = Predictions.from_logits(np.zeros((3, 2)), [0, 1, 1], class_names=["cat", "dog"])
    with pytest.raises(ValueError, match=message):
        read_promise(data, **arguments)


def test_masks_have_the_risk_of_all_pixels():
    data = Predictions.from_logits(np.zeros((2, 2, 3, 3)), np.zeros((2, 3, 3), int), kind="segmentation")
    with pytest.raises(ValueError, match="for segmentation the risk of all pixels"):
        read_promise(data, by_class=True)


@pytest.mark.parametrize(
    ("promise", "change", "message"),
    [
        (Promise(by_class=True), {"target_coverage": 0.5}, "target_coverage does not go with thresholds by class"),
        (Promise(by_class=True), {"method": "sgr"}, "has a test of its own"),
        (Promise("recall", shares=((0, 0.9),)), {"target_risk": 0.1}, "target_risk does not go with"),
        (Promise("recall", shares=((0, 0.9),)), {"score": "margin"}, "ranks answers by the probability of the class"),
        (Promise("expected-risk", target=0.1), {"group": "site"}, "thresholds by group are for"),
        (Promise("expected-risk", target=0.1), {"method": "fixed-sequence"}, "has a test of its own"),
    ],
)
def test_what_does_not_go_together(promise, change, message):
    others = {"target_risk": None, "target_coverage": None, "method": "best", "score": "auto", "group": None}
    check_compatible(promise, **others)
    with pytest.raises(ValueError, match=message):
        check_compatible(promise, **(others | change))


def test_what_cannot_be_fitted_on_is_refused():
    z, y = drawn(200)
    with pytest.raises(ValueError, match="marked split='test'"):
        Policy.fit(Predictions.from_logits(z, y, split="test"))
    with pytest.raises(ValueError, match="confidences alone"):
        Policy.fit(Predictions.from_confidence(np.full(200, 0.5), y == 0))
    with pytest.raises(ValueError, match="fitted on Predictions, got ndarray"):
        Policy.fit(z)


def test_sets_are_asked_for_by_their_level():
    data = Predictions.from_logits(*drawn(20))
    assert read_set_target(data, None, "lac", None, None, False, 0) is None
    assert read_set_target(data, 0.9, "aps", None, None, True, 3).seed == 3
    with pytest.raises(ValueError, match="go with a level"):
        read_set_target(data, None, "aps", None, None, False, 0)
    pixels = Predictions.from_logits(*masks(3), kind="segmentation", ignore_index=255)
    with pytest.raises(ValueError, match="prediction sets are for classification"):
        read_set_target(pixels, 0.9, "lac", None, None, False, 0)
