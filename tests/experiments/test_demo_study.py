"""What the demonstration says of the papers' claims: hand-worked differences, intervals by scipy."""

import numpy as np
import pytest
from scipy import stats

from calibrant.experiments.demo_study import effects
from calibrant.experiments.results import ResultRow, Results


def numbers(method, metric, values, posthoc="none"):
    return [
        ResultRow(f"{method}{seed}", method, "{}", "", "final", seed, "test", posthoc, float("nan"), metric, value)
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("ls", "verdict"),
    [
        ((0.02, 0.025, 0.03), "holds"),
        ((0.08, 0.085, 0.09), "does not hold"),
        ((0.02, 0.09, 0.055), "within noise"),
        ((0.02,), "within noise"),  # one seed proves nothing
    ],
)
def test_a_lower_ece(ls, verdict):
    ce = (0.05, 0.052, 0.056)[: len(ls)]
    (found,) = effects(Results(numbers("ce", "ece", ce) + numbers("ls", "ece", ls)))
    assert found["claim"] == "Label smoothing lowers the ECE"
    assert found["verdict"] == verdict
    gaps = np.subtract(ls, ce)
    assert found["values"] == pytest.approx(gaps.tolist())
    assert found["mean"] == pytest.approx(gaps.mean())
    if len(ls) > 1:
        interval = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
        assert (found["low"], found["high"]) == pytest.approx(tuple(interval))
        assert (interval.high < 0) == (verdict == "holds")
    else:
        assert np.isnan([found["low"], found["high"]]).all()


def test_a_higher_aurc():
    """The claim is that it is above: the same signs mean the opposite."""
    ce, ls = (0.010, 0.011, 0.012), (0.020, 0.021, 0.023)
    worse = effects(Results(numbers("ce", "aurc", ce) + numbers("ls", "aurc", ls)))
    better = effects(Results(numbers("ce", "aurc", ls) + numbers("ls", "aurc", ce)))
    assert [(one["verdict"], one["unit"]) for one in worse + better] == [
        ("holds", "number"),
        ("does not hold", "number"),
    ]


def test_what_has_no_numbers_is_not_claimed():
    assert effects(Results(numbers("ce", "ece", (0.1, 0.2)))) == []
