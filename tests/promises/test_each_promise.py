"""Promises: losses, tests and words by hand; as people write them, read or refused in one sentence."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import betabinom, binom

from calibrant import Predictions
from calibrant.posthoc import NumpyOps
from calibrant.promises import Cost, ExpectedRisk, Precision, Recall, Risk, parse_promises
from calibrant.promises.cost import check_costs
from calibrant.promises.price import LossTally
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
    assert counted(Risk()) == (3, 2.0)
    assert counted(Precision(0, 0.9)) == (3, 2.0)
    assert counted(Recall(1, 0.9)) == (2, 1.0)
    assert counted(ExpectedRisk(0.1)) == (5, 2.0)
    rows, paid = counted(Cost(1.0, costs))
    assert (rows, round(paid * 9, 12)) == (3, 0 + 2 + 4)


def test_the_answer_is_the_class_of_the_least_expected_cost():
    rng = np.random.default_rng(0)
    costs = rng.integers(0, 9, (4, 4)).astype(float)
    probabilities = rng.dirichlet(np.ones(4), 50)
    promise = Cost(1.0, costs)
    ranked, score = promise.rank(NumpyOps(), np.log(probabilities), probabilities)
    for row, own, best in zip(probabilities, ranked.argmax(1), score[:, 0], strict=True):
        expected = [sum(row[label] * costs[label, answer] for label in range(4)) for answer in range(4)]
        assert own == int(np.argmin(expected))
        assert np.isclose(-best, min(expected))


def test_what_is_promised():
    assert Risk().is_plain
    assert not Risk(0.1, by_class=True).is_plain
    precision = Precision(2, 0.95)
    assert precision.risks == {2: 0.05}
    assert Recall(1, 0.9).mean_loss == 0.1
    assert Cost(2.0, [[0, 8], [1, 0]]).mean_loss == 0.25
    assert np.isnan(LossTally().mean)


@pytest.mark.parametrize("promise", [Risk(), Risk(0.1, by_class=True), Recall(0, 0.9)])
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
    promise = ExpectedRisk(0.1, tally=LossTally(199, 19))
    for loss in (10, 20, 30):
        assert promise.break_p_value(LossTally(150, loss), 0.1) == pytest.approx(betabinom.sf(loss - 1, 150, 20, 180))
    assert not promise.is_shown(LossTally(10**6, 0.0), 0.1, 0.05)


def test_a_cost_that_is_kept_is_seldom_called_broken():
    rng = np.random.default_rng(0)
    promise = Cost(0.5, [[0, 1], [5, 0]])
    paid = rng.choice([0.0, 0.2, 1.0], size=(2000, 60), p=[0.8, 0.125, 0.075])  # a mean of 0.1
    p = np.array([promise.break_p_value(LossTally(60, float(row.sum())), 0.1) for row in paid])
    assert (p < 0.05).mean() <= 0.05
    assert (p < 0.3).any()
    assert promise.break_p_value(LossTally(60, 20.0), 0.1) < 1e-4


NAMES = ("cat", "dog")
COSTS = ((0.0, 1.0), (5.0, 0.0))
SEEN_RECALL = Recall(shares=[{"class": 0, "share": 0.9}], seen={"rows": 50, "loss": 2.0})


def fitted(**more):
    facts = {"threshold": at(0.5), "groups": None, "class_thresholds": (), "group": None}
    return SimpleNamespace(**facts | {"class_names": NAMES, "confidence": 0.95} | more)


@pytest.mark.parametrize(
    ("promise", "facts", "title"),
    [
        (Risk(0.1, by_class=True), ["10%", "every predicted class"], ["10%", "every class"]),
        (Precision(1, 0.95), ["95%", "dog"], ["95%", "dog"]),
        (
            Recall(shares=[{"class": 0, "share": 0.9}], seen={"rows": 50, "loss": 2.0}),
            ["90%", "cat", "96.00% of 50"],
            ["90%", "cat"],
        ),
        (Cost(0.4, COSTS, tally=LossTally(100, 6.0)), ["0.4", "0.3000", "100"], ["0.4"]),
        (ExpectedRisk(0.05, tally=LossTally(100, 4)), ["5%", "4.00% of 100"], ["5%"]),
    ],
)
def test_sentences(promise, facts, title):
    text = promise.words(fitted())
    assert all(fact in text for fact in facts), text
    assert all(fact in promise.subject(NAMES, 0.1) for fact in title)


@pytest.mark.parametrize(
    ("promise", "goal", "options"),
    [
        (Risk(0.1, by_class=True), ["risk", "at most 5%"], ["--by-class", "--target-risk", "0.05"]),
        (Precision(1, 0.99), ["precision", "at least 95%"], ["--promise", "precision=dog:0.95"]),
        (Recall(0, 0.99), ["recall", "at least 95%"], ["--promise", "recall=cat:0.95"]),
        (Cost(0.1, COSTS), ["at most 0.25"], ["--costs", "COSTS", "--target-cost", "0.25"]),
        (ExpectedRisk(0.01), ["expected risk", "at most 5%"], ["--promise", "expected-risk:0.05"]),
    ],
)
def test_another_loss_is_asked_for_in_the_terms_of_the_promise(promise, goal, options):
    text = promise.terms(NAMES).goal(0.05)
    assert all(word in text for word in goal)
    assert promise.options(0.05, NAMES) == options


def test_a_class_that_is_never_answered_is_named():
    parts = (ClassThreshold(0, "north", at(0.5)), ClassThreshold(1, "north", abstaining_threshold("best", 0.1, 0.99)))
    text = Risk(0.1, by_class=True).words(fitted(class_thresholds=parts, group="site"))
    assert "in every site" in text
    assert text.endswith("It never answers north: dog.")


def bound(texts):
    data = Predictions.from_logits(np.eye(2), np.arange(2), class_names=CLASSES)
    return parse_promises(texts).bind(data)


@pytest.mark.parametrize(
    ("texts", "promise"),
    [
        (["precision[cat] >= 95%", "precision=cat:95%"], Precision(0, 0.95)),
        (["recall[dog: small] >= 0.9", " recall [ dog: small ] > 90 %", " recall = dog: small : 0.9 "], Recall(1, 0.9)),
        (["expected-risk <= 0.05", "expected_risk <= 5%", "expected-risk:0.05"], ExpectedRisk(0.05)),
        (["risk <= 5%", "risk < 0.05", "risk:5%"], Risk(0.05)),
    ],
)
def test_spellings(texts, promise):
    assert [bound(text) for text in texts] == [promise] * len(texts)


def test_several_of_precision_and_a_cost():
    both = parse_promises(["precision[0] >= 0.9", "precision=2:0.8", Precision(1, 0.7)])
    assert [(share.label, share.share) for share in both.shares] == [("0", 0.9), ("2", 0.8), (1, 0.7)]
    assert parse_promises("cost <= 0.4", costs=COSTS, abstain_cost=2.0) == Cost(0.4, COSTS, abstain_cost=2.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("precision:0.9", "precision[CLASS] SHARE"),
        ("precision[cat] <= 0.9", "precision[CLASS] >= SHARE"),
        ("accuracy=cat:0.9", "precision recall"),
        ("expected-risk=cat:0.1", "expected-risk"),
        ("expected-risk >= 0.1", "expected-risk <= SHARE"),
        ("precision=cat", "precision[CLASS] SHARE"),
        (3, "3"),
        ([], "nothing"),
        ("recall=cats:0.9", "'cats' 'cat'"),
        ("recall[cat] >= high", "high"),
        ("recall=cat:1", "0 1"),
        ("recall[cat] >= 90", "0 1 90"),
        ("recall=cat:nan", "nan"),
        ("cost <= 0.4", "costs"),
        (["recall=cat:0.9", "precision=cat:0.9"], "several"),
        (["precision=cat:0.9", "precision=cat:0.8"], "twice"),
        (["precision=cat:0.9", Precision(0, 0.8)], "twice"),
        (Recall(2, 0.9), "2"),
        (Cost(0.4, [[0, 1, 1], [1, 0, 1], [1, 1, 0]]), "[2, 2] [3, 3]"),
    ],
)
def test_what_is_refused(text, told):
    with pytest.raises(ValueError, match=error_facts(*told.split())) as error:
        bound(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Risk(5), "target_risk 0 1 5"),
        (lambda: Risk(0.1, by_class=1), "by_class true false 1"),
        (lambda: Risk(0.1, group="site"), "group risk"),
        (lambda: Risk(target=7), "target_risk 7"),
        (lambda: Recall("cat", 0.9, colour="red"), "colour recall"),
        (lambda: Recall(label="cat"), "share nothing"),
        (lambda: Recall("cat", 1.0), "share 0 1 1.0"),
        (lambda: Precision(-1, 0.9), "class -1"),
        (lambda: ExpectedRisk(0.0), "target 0.0"),
        (lambda: ExpectedRisk(float("nan")), "target NaN"),
        (lambda: Cost(0.4, [[0, -1], [1, 0]]), "costs -1"),
        (lambda: Cost(0.4), "costs"),
    ],
)
def test_what_cannot_be_promised(make, told):
    with pytest.raises(ValueError, match=error_facts(*told.split())) as error:
        make()
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
