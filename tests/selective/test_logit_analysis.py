"""SC's look at the logits against loops over samples."""

import math

import numpy as np
import pytest

from calibrant.selective import normalised_given_max_logit, sorted_logits


@pytest.mark.parametrize("power", [1, 4, 5])
def test_sorted_logits(power):
    logits = np.random.default_rng(0).normal(size=(137, 6)).astype(np.float32)
    statistics = sorted_logits(logits, power)
    ordered = [sorted((float(v) for v in row), reverse=True) for row in logits]
    forms = {"plain": lambda v: v, "powered": lambda v: v**power, "exponential": math.exp}
    for name, form in forms.items():
        columns = [[form(row[k]) for row in ordered] for k in range(6)]
        np.testing.assert_allclose(getattr(statistics, name).mean, [np.mean(c) for c in columns], atol=1e-12)
        np.testing.assert_allclose(getattr(statistics, name).std, [np.std(c) for c in columns], atol=1e-12)


def test_sorted_logits_of_masks_are_those_of_their_positions():
    logits = np.random.default_rng(1).normal(size=(3, 5, 2, 7))
    rows = logits.transpose(0, 2, 3, 1).reshape(-1, 5)
    np.testing.assert_allclose(sorted_logits(logits).plain.mean, sorted_logits(rows).plain.mean)


def sample(size=911):
    rng = np.random.default_rng(2)
    msp, top = rng.uniform(0.1, 1, size), rng.normal(8, 1.5, size)
    return msp, top, 0.9 - 0.03 * top + 0.1 * msp + rng.normal(0, 0.02, size)


def test_bins_of_similar_confidence():
    msp, top, normalised = sample()
    bins = normalised_given_max_logit(msp, top, normalised, edges=[0.3, 0.5, 0.9], width=0.7, points=11, fewest=12)
    assert [(part.low, part.high) for part in bins] == [(0.3, 0.5), (0.5, 0.9)]
    for part in bins:
        inside = [k for k in range(len(msp)) if part.low < msp[k] <= part.high]
        middle, reach = np.mean(top[inside]), 2 * np.std(top[inside])
        near = [k for k in inside if abs(top[k] - middle) <= reach]
        assert part.count == len(near) < len(inside)
        np.testing.assert_allclose(part.max_logit, [middle + reach * (k / 5 - 1) for k in range(11)])
        assert part.slope == pytest.approx(np.polyfit(top[near], normalised[near], 1)[0])
        for at, count, mean, std in zip(part.max_logit, *vars(part.normalised).values(), strict=True):
            window = [normalised[k] for k in near if at - 0.35 <= top[k] <= at + 0.35]
            assert count == len(window)
            assert (mean, std) == pytest.approx((np.mean(window), np.std(window))) if count >= 12 else math.isnan(mean)


def test_bins_without_samples_are_left_out():
    (part,) = normalised_given_max_logit([0.9, 0.95], [3.0, 3.0], [0.5, 0.7])
    assert (part.low, part.high, part.count) == (0.8, 1.0, 2)
    assert math.isnan(part.slope)  # one largest logit has no slope


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edges": [0.5]}, r"edges must be at least two rising shares, got \[0.5\]"),
        ({"edges": [0.5, 0.5]}, "edges must be at least two rising shares"),
        ({"width": 0}, "width must be a number above 0"),
        ({"msp": [0.5, 1.5]}, "msp must be"),
        ({"max_logit": [0.5]}, r"must be equally long, got \[2, 1, 2\]"),
        ({"normalised": [0.5, math.nan]}, "normalised must be finite"),
    ],
)
def test_bins_that_cannot_be(settings, message):
    arguments = {"msp": [0.5, 0.6], "max_logit": [1.0, 2.0], "normalised": [0.3, 0.4]} | settings
    with pytest.raises(ValueError, match=message):
        normalised_given_max_logit(**arguments)
