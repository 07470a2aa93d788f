"""Weighted metrics against plain definitions, repeated rows and scikit-learn."""

import inspect
import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from calibrant import metrics as M
from calibrant.metrics.tables import FUNCTIONS
from tests.helpers.errors import facts

SETTINGS = {"coverage_at_risk": {"risk": 0.3}, "risk_at_coverage": {"coverage": 0.7}}


def draw(size=203):
    """Confidences with ties, whether each is right, and weights of any size."""
    rng = np.random.default_rng(5)
    confidence = np.round(rng.uniform(0.2, 1, size), 2)
    return confidence, rng.random(size) < confidence**2, rng.gamma(0.5, 3.0, size)


CONFIDENCE, CORRECT, WEIGHT = draw()


def call(name, confidence, correct, **keywords):
    function = getattr(M, name)
    columns = {"confidence": confidence, "score": confidence, "correct": correct}
    data = [columns[part] for part in inspect.signature(function).parameters if part in columns]
    return function(*data, **SETTINGS.get(name, {}), **keywords)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("scale", [1, 7.3, 1e-300, 1e300])
def test_constant_weights_change_nothing(name, scale):
    weighted = call(name, CONFIDENCE, CORRECT, weight=np.full(len(CORRECT), scale))
    assert weighted == call(name, CONFIDENCE, CORRECT)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_the_ratios_of_weights_count(name):
    value = call(name, CONFIDENCE, CORRECT, weight=WEIGHT)
    assert call(name, CONFIDENCE, CORRECT, weight=1e9 * WEIGHT) == pytest.approx(value, rel=1e-12)
    assert value != pytest.approx(call(name, CONFIDENCE, CORRECT), rel=1e-4)


#: Metrics in which each row has a place of its own, so that they know a row of weight 2 from two rows.
OF_RANKS = {"aurc", "e_aurc", "augrc", "aece", "risk_at_coverage"}


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - OF_RANKS))
def test_whole_weights_are_repeated_rows(name):
    times = np.random.default_rng(1).integers(0, 5, len(CORRECT))
    repeated = call(name, np.repeat(CONFIDENCE, times), np.repeat(CORRECT, times))
    assert call(name, CONFIDENCE, CORRECT, weight=times) == pytest.approx(repeated, abs=1e-9)


@pytest.mark.parametrize("name", sorted(OF_RANKS))
def test_ranks_of_weights_are_those_of_repeated_rows_up_to_one_row(name):
    times = np.random.default_rng(1).integers(0, 5, len(CORRECT))
    repeated = call(name, np.repeat(CONFIDENCE, times), np.repeat(CORRECT, times))
    assert call(name, CONFIDENCE, CORRECT, weight=times) == pytest.approx(repeated, abs=2 / len(CORRECT))


def test_samples_of_weight_zero_do_not_count():
    kept = WEIGHT > 1
    for name in FUNCTIONS:
        alone = call(name, CONFIDENCE[kept], CORRECT[kept], weight=WEIGHT[kept])
        assert call(name, CONFIDENCE, CORRECT, weight=WEIGHT * kept) == pytest.approx(
            alone, abs=0.02 if name in OF_RANKS else 1e-9
        ), name


def test_sums_by_their_definitions():
    w = WEIGHT / WEIGHT.sum()
    assert M.accuracy(CORRECT, weight=WEIGHT) == pytest.approx(w @ CORRECT)
    assert M.mean_confidence(CONFIDENCE, weight=WEIGHT) == pytest.approx(w @ CONFIDENCE)
    wrong = w * ~CORRECT
    assert M.overconfidence(CONFIDENCE, CORRECT, weight=WEIGHT) == pytest.approx(wrong @ CONFIDENCE / wrong.sum())
    gaps = np.zeros(15)
    np.add.at(gaps, np.clip(np.ceil(CONFIDENCE * 15 - 1e-9).astype(int) - 1, 0, 14), w * (CONFIDENCE - CORRECT))
    assert M.ece(CONFIDENCE, CORRECT, weight=WEIGHT) == pytest.approx(np.abs(gaps).sum())
    distance = np.abs(CONFIDENCE - CONFIDENCE**3)
    assert M.objectness_deviation(CONFIDENCE, CONFIDENCE**3, weight=WEIGHT) == pytest.approx(w @ distance)


def test_the_area_under_weighted_risks_is_its_closed_form():
    """A tie of weight n with errors e adds the sum over i = 1..n of (E + i e/n) / (N + i), by digamma for real n."""
    from scipy.special import digamma

    weight = WEIGHT / WEIGHT.mean()
    total, before, errors = 0.0, 0.0, 0.0
    for level in sorted(set(CONFIDENCE), reverse=True):
        tied = level == CONFIDENCE
        n, e = weight[tied].sum(), weight[tied & ~CORRECT].sum()
        inverse = digamma(before + n + 1) - digamma(before + 1)
        total += errors * inverse + e / n * (n - before * inverse)
        before, errors = before + n, errors + e
    assert M.aurc(CONFIDENCE, CORRECT, weight=WEIGHT) == pytest.approx(total / before, rel=1e-10)


def test_scikit_learn_weighs_alike():
    assert M.auroc(CONFIDENCE, CORRECT, weight=WEIGHT) == pytest.approx(
        roc_auc_score(CORRECT, CONFIDENCE, sample_weight=WEIGHT)
    )
    assert M.aupr_errors(CONFIDENCE, CORRECT, weight=WEIGHT) == pytest.approx(
        average_precision_score(~CORRECT, -CONFIDENCE, sample_weight=WEIGHT)
    )
    assert M.auroc(CONFIDENCE, CORRECT) == pytest.approx(roc_auc_score(CORRECT, CONFIDENCE))
    assert M.aupr_errors(CONFIDENCE, CORRECT) == pytest.approx(average_precision_score(~CORRECT, -CONFIDENCE))


def test_the_least_fpr_among_thresholds():
    weight = WEIGHT / WEIGHT.sum()
    right, wrong = weight * CORRECT, weight * ~CORRECT
    accepted = [level <= CONFIDENCE for level in set(CONFIDENCE)]
    shares = [wrong[rows].sum() / wrong.sum() for rows in accepted if right[rows].sum() >= 0.95 * right.sum()]
    assert M.fpr_at_tpr(CONFIDENCE, CORRECT, weight=WEIGHT) == pytest.approx(min(shares))


@pytest.mark.parametrize("name", ["auroc", "fpr_at_tpr", "aupr_errors"])
def test_without_errors_nothing_can_be_detected(name):
    assert math.isnan(call(name, CONFIDENCE, np.ones_like(CORRECT)))


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.ones(3), ("weight", "203", "3")),
        (np.zeros(203), ("weight", "0")),
        (-np.ones(203), ("weight", "-1")),
        (np.full(203, np.nan), ("weight", "nan")),
        (["a"] * 203, ("weight",)),
    ],
)
def test_weights_that_are_none(weight, words):
    with pytest.raises(ValueError, match=facts(*words)):
        M.ece(CONFIDENCE, CORRECT, weight=weight)


@pytest.mark.parametrize("ties", ["together", "expected"])
@pytest.mark.parametrize("seed", range(40))
def test_a_risk_that_is_reached_exactly_is_within_the_limit(ties, seed):
    """Sums of weights of mean 1 are rounded, counts of repeated rows are not."""
    rng = np.random.default_rng(seed)
    size = rng.integers(5, 60)
    confidence = rng.integers(1, 30, size) / 30
    correct, times = rng.random(size) < 0.85, rng.integers(0, 5, size)
    times[0] += 1
    repeated = np.repeat(confidence, times), np.repeat(correct, times)
    curve = M.risk_coverage_curve(*repeated)
    for risk in {*curve.risk.tolist(), 0.05, 0.1}:
        coverage = M.coverage_at_risk(*repeated, risk, ties=ties)
        weighted = M.coverage_at_risk(confidence, correct, risk, ties=ties, weight=times)
        assert weighted == pytest.approx(coverage, abs=1e-9 if ties == "together" else 1 / times.sum())


def test_context_reliance_has_the_weighted_metrics():
    row = M.context_reliance(CONFIDENCE, CORRECT, weight=WEIGHT)
    names = ("accuracy", "overconfidence", "underconfidence", "mean_confidence")
    assert list(row) == [call(name, CONFIDENCE, CORRECT, weight=WEIGHT) for name in names]
