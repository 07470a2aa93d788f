"""What a promise counts and how it ranks, against tables worked by hand; p-values against SciPy's distributions."""

import numpy as np
import pytest
from scipy.stats import betabinom, binom

from calibrant.posthoc import NumpyOps
from calibrant.selective.promise import LossTally, Promise

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
