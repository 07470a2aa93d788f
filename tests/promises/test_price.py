"""The price of a promise: shares by hand and by SciPy, constant answers, and what a policy says of them."""

import numpy as np
import pytest
from scipy.stats import binomtest

from calibrant import Policy, Predictions
from calibrant.metrics import Interval
from calibrant.policy import Outcome
from calibrant.policy.evidence import describe_majority
from calibrant.policy.outcome import Counts
from calibrant.promises import Cost, ExpectedRisk, Precision, Recall, Risk
from calibrant.promises.cost import describe_cheapest
from calibrant.promises.price import Answered, ClassAnswers, LossTally
from tests.helpers.policies import drawn

NAMES = ("no", "yes")
COVERAGE, SEEN = Interval(0.3, 0.27, 0.33), LossTally(40, 4.0)
RECALL, PRECISION, EXPECTED = Recall(1, 0.8), Precision(1, 0.8), ExpectedRisk(0.05)
COSTS = [[0.0, 1.0], [20.0, 0.0]]
COST = Cost(0.5, COSTS)
PROMISES = [
    {"target_risk": 0.1}, {"promise": "recall=1:0.8"}, {"promise": "precision=1:0.8"}, {"promise": "expected-risk:0.1"},
    {"costs": [[0, 1], [5, 0]], "target_cost": 0.5}, {"target_risk": 0.2, "by_class": True},
    {"target_risk": 0.2, "group": "site"}, {"target_coverage": 0.5},
]  # fmt: skip


def rare(n, seed, rate=0.2, gap=2.0):
    """Two classes, the second one rare, and a score that tells them apart by the gap."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < rate).astype(int)
    logit = np.log(rate / (1 - rate)) + gap * (rng.standard_normal(n) + gap * labels) - gap**2 / 2
    return Predictions.from_logits(np.stack([-logit / 2, logit / 2], 1), labels, groups={"site": np.arange(n) % 3})


def answered(accepted=300, errors=264, tally=SEEN, of_class=(40, 300, 36)):
    return Answered(1000, accepted, errors, COVERAGE, tally, (ClassAnswers(1, *of_class),))


def shares(price):
    return {measure.name: measure.share for measure in price.measures}


def test_shares_have_exact_limits():
    precision = shares(RECALL.price(answered(), NAMES, 0.9))["precision"]
    exact = binomtest(36, 300).proportion_ci(0.9, method="exact")
    assert (precision.low, precision.high) == pytest.approx((exact.low, exact.high))
    assert shares(PRECISION.price(answered(of_class=(40, 10, 9)), NAMES))["recall"].value == 9 / 40
    errors = shares(COST.price(answered(errors=30), NAMES))
    assert (errors["coverage"], errors["error rate"].value) == (COVERAGE, 0.1)
    assert list(shares(Risk().price(answered(), NAMES))) == ["coverage"]


@pytest.mark.parametrize("promise", [RECALL, PRECISION, COST, Risk(), EXPECTED])
def test_nothing_answered_is_no_error(promise):
    nothing = Answered(0, 0, 0, Interval(np.nan, np.nan, np.nan), LossTally(), (ClassAnswers(1, 0, 0, 0),))
    assert promise.price(nothing, NAMES).result == ""


def test_answering_a_class_always_keeps_its_recall():
    def words(of_class):
        return RECALL.constant(answered(of_class=of_class), {}, None, NAMES)

    assert not words((40, 300, 36)).startswith("Warning")  # 12% of these answers are right, 4% of all samples are
    assert words((40, 900, 36)).startswith("Warning")  # 4%, as chance has it
    assert "4.00%" in words((40, 900, 36))
    assert words((0, 0, 0)) == ""


def test_a_precision_below_the_share_of_the_class_asks_for_nothing():
    def words(share, of_class):
        promise = Precision(1, share)
        return promise.constant(answered(of_class=of_class), {}, None, NAMES)

    assert words(0.8, (850, 300, 290)).startswith("Warning")
    assert not words(0.9, (850, 300, 290)).startswith("Warning")


def test_the_cheapest_constant_answer():
    counts = np.array([970, 30])  # a yes that is missed costs 20, a no that is not 1
    cheapest = describe_cheapest(counts, COST.cost_matrix)
    assert cheapest == {"class": 0, "cost": pytest.approx(0.6)}

    def words(target, tally):
        promise = Cost(target, COSTS)
        return promise.constant(answered(tally=tally), {"cheapest": cheapest}, None, NAMES)

    assert words(0.7, LossTally(300, 1.0)).startswith("Warning")
    assert words(0.5, LossTally(300, 15.0)).startswith("Warning")  # an answer costs 1
    assert not words(0.5, LossTally(300, 1.0)).startswith("Warning")
    assert COST.constant(answered(), {"cheapest": {"cost": "x"}}, None, NAMES) == ""


def test_an_expected_risk_that_the_majority_class_keeps():
    evidence = {"majority": describe_majority(np.array([97, 3]))}
    kept = answered(accepted=1000, errors=10)
    assert EXPECTED.constant(kept, evidence, None, NAMES).startswith("Warning")
    assert not ExpectedRisk(0.02).constant(kept, evidence, None, NAMES).startswith("Warning")


@pytest.mark.parametrize("asked", PROMISES)
def test_every_policy_says_its_price(asked):
    """In Python, in print, in the file and after it was read again; and the limits hold the share of new samples."""
    policy = Policy.fit(rare(3000, 1), **asked)
    assert policy.price is not None
    assert policy.price_summary in str(policy)
    entries = policy.document
    assert [row["name"] for row in entries["price"]["measures"]] == [row.name for row in policy.price.measures]
    again = Policy.from_document(entries)
    assert (again.price, again.price_summary) == (policy.price, policy.price_summary)
    new = rare(20_000, 2)
    outcome = Outcome(policy)
    outcome.add(new, policy.decide(new))
    for seen, later in zip(policy.price.measures, outcome.price.measures, strict=True):
        width = seen.share.high - seen.share.low
        assert seen.share.low - width / 2 < later.share.value < seen.share.high + width / 2


@pytest.mark.slow
def test_new_samples_are_judged_in_the_terms_of_the_promise():
    new = rare(5000, 3)
    for promise in ("recall=1:0.8", "precision=1:0.8"):
        policy = Policy.fit(rare(3000, 1), promise=promise)
        outcome = Outcome(policy)
        outcome.add(new, policy.decide(new))
        labels, _, accept = policy.decide(new.logits)
        says, is_one = accept & (labels == 1), new.labels == 1
        values = {row.name: row.share.value for row in (*outcome.price.measures, *outcome.price.promised)}
        assert values["precision"] == pytest.approx((is_one & says).sum() / says.sum())
        assert values["recall"] == pytest.approx((is_one & says).sum() / is_one.sum())
        judged = outcome.sentences()[1]
        assert promise.partition("=")[0] in judged


@pytest.mark.slow
def test_a_promise_kept_in_every_group_is_seldom_called_broken():
    """A true risk that is the target, in 40 small groups: many have no error at all, and one or two have some."""
    groups = {"g": np.arange(900) % 40}
    policy = Policy.fit(Predictions.from_logits(*drawn(900, 4, scale=1.0), groups=groups), 0.01, group="g")
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(300):
        counts = {str(k): Counts(20, 20, int(rng.binomial(20, 0.01))) for k in range(40)}
        called += Outcome(policy, 800, 800, True, 8, 8, counts).promise_kept == "no"
    assert called / 300 <= 0.05 + 3 * np.sqrt(0.0475 / 300)


def test_a_score_without_information_is_warned_of():
    """With 1.3% positives every promise of recall can be kept by answering always; nothing else is left here."""
    rng = np.random.default_rng(3)
    logit = rng.standard_normal(8000) - 4
    labels = (rng.random(8000) < 0.013).astype(int)
    data = Predictions.from_logits(np.stack([-logit, logit], 1), labels)
    policy = Policy.fit(data, promise="recall=1:0.8", calibrator="none")
    assert policy.price.measures[0].share.value < 0.02
    assert policy.majority_summary.startswith("Warning")
    informed = Policy.fit(rare(8000, 3, rate=0.013), promise="recall=1:0.8", calibrator="none")
    assert not informed.majority_summary.startswith("Warning")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "label"),
    [({"target_risk": 0.1}, 0), ({"promise": "precision=0:0.9"}, 0), ({"target_risk": 0.1, "by_class": True}, 0)],
)
def test_a_group_in_which_a_constant_answer_keeps_the_promise_is_warned_of(asked, label):
    """2% positives at one site and half at the other: over both, the majority class is wrong in 18%."""
    few, many = rare(4000, 6, rate=0.02), rare(2000, 7, rate=0.5)
    logits, labels = (np.concatenate([getattr(part, name) for part in (few, many)]) for name in ("logits", "labels"))
    site = np.repeat(["rural", "urban"], [4000, 2000])
    policy = Policy.fit(Predictions.from_logits(logits, labels, groups={"site": site}), group="site", **asked)
    ((entry,), warning) = policy.evidence["idle"], policy.majority_summary
    assert (entry["group"], entry["class"]) == ("rural", label)
    assert entry["error"] == pytest.approx(few.labels.mean(), abs=0.005)
    assert warning.startswith("Warning")
    assert "rural" in warning
    assert "urban" not in warning
    assert Policy.from_document(policy.document).majority_summary == warning
    strict = {**asked, "target_risk": 0.01} if "target_risk" in asked else {"promise": "precision=0:0.99"}
    data = Predictions.from_logits(logits, labels, groups={"site": site})
    assert not Policy.fit(data, group="site", **strict).evidence["idle"]


def test_classes_that_are_never_predicted_are_said_to_be_so():
    rng = np.random.default_rng(8)
    logits = rng.standard_normal((900, 3)) + 6 * np.eye(3)[0]
    data = Predictions.from_logits(logits, rng.choice(3, 900, p=[0.9, 0.05, 0.05]), class_names=["ja", "nein", "evtl"])
    policy = Policy.fit(data, promise=["precision=nein:0.5", "precision=evtl:0.5"], calibrator="none")
    assert policy.abstains
    assert "predicted" in policy.summary
    assert "close" not in policy.summary  # as if error rates had been seen


@pytest.mark.parametrize(
    ("asked", "goal"),
    [
        ({"promise": "precision=1:0.999"}, "precision of at least 99.9%"),
        ({"promise": ["precision=1:0.999", "precision=0:0.9995"]}, "precision of at least 99.95%"),
        ({"promise": "recall=1:0.999"}, "recall of at least 99.9%"),
        ({"costs": [[0, 1], [5, 0]], "target_cost": 0.001}, "mean cost of at most 0.001"),
        ({"promise": "expected-risk:0.0001"}, "expected risk of at most 0.01%"),
        ({"target_risk": 0.0005, "by_class": True}, "risk of at most 0.05%"),
        ({"target_risk": 0.0005, "group": "site"}, "risk of at most 0.05%"),
    ],
)
def test_what_cannot_be_kept_says_why_and_what_could_be(asked, goal):
    policy = Policy.fit(rare(1200, 5), **asked)
    assert policy.abstains
    assert policy.price is None
    assert goal in policy.summary
    assert "Accepts 0" not in policy.summary
    menus = [policy.threshold.menu, *(part.threshold.menu for part in policy.classes or ())]
    assert any(menus)
    for offer in policy.threshold.menu:
        assert offer.risk > 0.0005
        assert 0 < offer.coverage <= 1
    assert Policy.from_document(policy.document).summary == policy.summary


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked", [{"promise": "precision=1:0.999"}, {"promise": "recall=1:0.999"}, {"promise": "expected-risk:0.0001"}]
)
def test_an_offer_can_be_had(asked):
    """Asked for on the same samples, the best offer is answered as it says; slightly better ones are not to be had."""
    data = rare(1200, 5)
    policy = Policy.fit(data, **asked)
    offer = policy.threshold.menu[0]
    option, text = policy.promise.options(offer.risk, None)
    again = Policy.fit(data, promise=text)
    assert option == "--promise"
    assert again.threshold.coverage.value == pytest.approx(offer.coverage)


def test_a_group_that_is_never_answered_has_an_offer():
    data = rare(3000, 1)
    site = np.where(np.arange(3000) < 2960, "large", "small")
    data = Predictions.from_logits(data.logits, data.labels, groups={"site": site})
    policy = Policy.fit(data, 0.08, group="site")
    assert policy.groups["small"].abstains
    assert policy.groups["small"].menu
    assert not policy.abstains
