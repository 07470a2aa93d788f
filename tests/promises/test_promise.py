"""Promises: losses, tests and words by hand; as people write them, read or refused in one sentence."""

import numpy as np
import pytest
from scipy.stats import betabinom, binom

from calibrant.posthoc import NumpyOps
from calibrant.promises.promise import LossTally, Promise, check_costs, parse_promises
from calibrant.promises.thresholds import ClassThreshold, abstaining_threshold
from tests.helpers.errors import facts as error_facts
from tests.helpers.exports import at

CLASSES = ("cat", "dog: small")
LABELS = np.array([0, 0, 1, 1, 2])
ANSWERS = np.array([0, 1, 1, 0, 0])
ACCEPT = np.array([True, True, False, True, False])


def counted(promise):
    rows, losses = promise.losses(LABELS, ANSWERS, ACCEPT)
    return int(rows.sum()), float(losses[rows].sum())


def test_losses_by_hand():
    costs = ((0.0, 2.0, 9.0), (4.0, 0.0, 9.0), (9.0, 9.0, 8.0))
    assert counted(Promise()) == (3, 2.0)
    assert counted(Promise("precision", shares=((0, 0.9),))) == (3, 2.0)
    assert counted(Promise("recall", shares=((1, 0.9),))) == (2, 1.0)
    assert counted(Promise("expected-risk", target=0.1)) == (5, 2.0)
    rows, paid = counted(Promise("cost", target=1.0, costs=costs))
    assert (rows, round(paid * 9, 12)) == (3, 0 + 2 + 4)


def test_the_answer_is_the_class_of_the_least_expected_cost():
    rng = np.random.default_rng(0)
    costs = rng.integers(0, 9, (4, 4)).astype(float)
    probabilities = rng.dirichlet(np.ones(4), 50)
    promise = Promise("cost", target=1.0, costs=tuple(map(tuple, costs.tolist())))
    ranked, score = promise.rank(NumpyOps(), np.log(probabilities), probabilities)
    for row, own, best in zip(probabilities, ranked.argmax(1), score[:, 0], strict=True):
        expected = [sum(row[label] * costs[label, answer] for label in range(4)) for answer in range(4)]
        assert own == int(np.argmin(expected))
        assert np.isclose(-best, min(expected))


def test_what_is_promised():
    assert Promise().is_plain
    assert not Promise(by_class=True).is_plain
    precision = Promise("precision", shares=((2, 0.95),))
    assert (precision.risk_of(2), precision.risk_of(0)) == (0.05, None)
    assert Promise("recall", shares=((1, 0.9),)).mean_loss == 0.1
    assert Promise("cost", target=2.0, costs=((0.0, 8.0), (1.0, 0.0))).mean_loss == 0.25
    assert np.isnan(LossTally().mean)


@pytest.mark.parametrize("promise", [Promise(), Promise(by_class=True), Promise("recall", shares=((0, 0.9),))])
def test_shares_are_binomial(promise):
    for rows, loss in ((30, 3), (200, 35), (1, 1)):
        assert promise.break_p_value(LossTally(rows, float(loss)), 0.1) == pytest.approx(binom.sf(loss - 1, rows, 0.1))
    for rows, loss in ((30, 1), (200, 12)):
        level = binom.cdf(loss, rows, 0.1)
        assert promise.is_shown(LossTally(rows, float(loss)), 0.1, level * 1.001)
        assert not promise.is_shown(LossTally(rows, float(loss)), 0.1, level * 0.999)
    assert promise.break_p_value(LossTally(), 0.1) == 1.0


def test_an_expected_risk_is_beta_binomial():
    # Of 199 samples 19 errors may be answered: the share of a fit is Beta(20, 180), with mean 0.1.
    promise = Promise("expected-risk", target=0.1, tally=LossTally(199, 19))
    for loss in (10, 20, 30):
        assert promise.break_p_value(LossTally(150, loss), 0.1) == pytest.approx(betabinom.sf(loss - 1, 150, 20, 180))
    assert not promise.is_shown(LossTally(10**6, 0.0), 0.1, 0.05)


def test_a_cost_that_is_kept_is_seldom_called_broken():
    rng = np.random.default_rng(0)
    promise = Promise("cost", target=0.5, costs=((0.0, 1.0), (5.0, 0.0)))
    paid = rng.choice([0.0, 0.2, 1.0], size=(2000, 60), p=[0.8, 0.125, 0.075])  # a mean of 0.1
    p = np.array([promise.break_p_value(LossTally(60, float(row.sum())), 0.1) for row in paid])
    assert (p < 0.05).mean() <= 0.05
    assert (p < 0.3).any()
    assert promise.break_p_value(LossTally(60, 20.0), 0.1) < 1e-4


NAMES = ("cat", "dog")
COSTS = ((0.0, 1.0), (5.0, 0.0))


@pytest.mark.parametrize(
    ("promise", "facts", "title"),
    [
        (Promise(by_class=True), ["10%", "every predicted class"], ["10%", "every class"]),
        (Promise("precision", shares=((1, 0.95),)), ["95%", "dog"], ["95%", "dog"]),
        (Promise("recall", shares=((0, 0.9),), tally=LossTally(50, 2)), ["90%", "cat", "96.00% of 50"], ["90%", "cat"]),
        (Promise("cost", target=0.4, costs=COSTS, tally=LossTally(100, 6.0)), ["0.4", "0.3000", "100"], ["0.4"]),
        (Promise("expected-risk", target=0.05, tally=LossTally(100, 4)), ["5%", "4.00% of 100"], ["5%"]),
    ],
)
def test_sentences(promise, facts, title):
    text = promise.words((), at(0.5), NAMES, None, 0.1, 0.95)
    assert all(fact in text for fact in facts), text
    assert all(fact in promise.title(NAMES, 0.1) for fact in title)


@pytest.mark.parametrize(
    ("promise", "goal", "options"),
    [
        (Promise(by_class=True), ["risk", "at most 5%"], ["--by-class", "--target-risk", "0.05"]),
        (Promise("precision", shares=((1, 0.99),)), ["precision", "at least 95%"], ["--promise", "precision=dog:0.95"]),
        (Promise("recall", shares=((0, 0.99),)), ["recall", "at least 95%"], ["--promise", "recall=cat:0.95"]),
        (Promise("cost", target=0.1, costs=COSTS), ["at most 0.25"], ["--costs", "COSTS", "--target-cost", "0.25"]),
        (Promise("expected-risk", target=0.01), ["expected risk", "at most 5%"], ["--promise", "expected-risk:0.05"]),
    ],
)
def test_another_loss_is_asked_for_in_the_terms_of_the_promise(promise, goal, options):
    text = promise.terms(NAMES).goal(0.05)
    assert all(word in text for word in goal)
    assert promise.options(0.05, NAMES) == options


def test_a_class_that_is_never_answered_is_named():
    parts = (ClassThreshold(0, "north", at(0.5)), ClassThreshold(1, "north", abstaining_threshold("best", 0.1, 0.99)))
    text = Promise(by_class=True).words(parts, at(0.5), NAMES, "site", 0.1, 0.95)
    assert "in every site" in text
    assert text.endswith("It never answers north: dog.")


def test_spellings():
    assert parse_promises("precision=cat:95%", CLASSES, 2) == Promise("precision", shares=((0, 0.95),))
    assert parse_promises(" recall = dog: small : 0.9 ", CLASSES, 2) == Promise("recall", shares=((1, 0.9),))
    assert parse_promises(["precision=0:0.9", "precision=2:0.8"], None, 3).shares == ((0, 0.9), (2, 0.8))
    assert parse_promises("expected-risk:0.05", None, 3) == Promise("expected-risk", target=0.05)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("precision:0.9", "precision=CLASS:SHARE"),
        ("accuracy=cat:0.9", "precision recall"),
        ("expected-risk=cat:0.1", "expected-risk"),
        ("precision=cat", "precision=CLASS:SHARE"),
        (3, "3"),
        ([], "nothing"),
        ("recall=cats:0.9", "'cats' 'cat'"),
        ("recall=cat:high", "high"),
        ("recall=cat:1", "0 1"),
        ("recall=cat:nan", "nan"),
        (["recall=cat:0.9", "precision=cat:0.9"], "several"),
        (["precision=cat:0.9", "precision=cat:0.8"], "twice"),
    ],
)
def test_what_is_refused(text, told):
    with pytest.raises(ValueError, match=error_facts(*told.split())) as error:
        parse_promises(text, CLASSES, 2)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("costs", "told"),
    [
        ([[0, 1]], "[2, 2]"), ([[0, -1], [1, 0]], "0"), ([[0, np.nan], [1, 0]], "0"), ([[0, 0], [0, 0]], "above 0"),
        ([["a", 1], [1, 0]], "numbers"), ([[0, 1], [1]], "numbers"), (None, "[]"),
    ],
)  # fmt: skip
def test_costs_that_are_refused(costs, told):
    with pytest.raises(ValueError, match=error_facts("costs", *told.split())):
        check_costs(costs, 2)
