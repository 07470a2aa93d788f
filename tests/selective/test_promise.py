"""What a promise counts and how it ranks, against tables worked by hand."""

import numpy as np

from calibrant.posthoc import NumpyOps
from calibrant.selective.promise import ClassThreshold, LossTally, Promise, part_name
from tests.helpers.exports import at

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


def test_parts_have_names():
    assert part_name("north", 0, ("cat", "dog")) == "north: cat"
    assert ClassThreshold(1, None, at(0.5)).name(None) == "1"
