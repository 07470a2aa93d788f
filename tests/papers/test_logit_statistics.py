"""SC's look at the logits against loops over samples."""

import math

import numpy as np
import pytest
import torch

from calibrant.papers import max_logit_given_msp, normalised_given_max_logit, sorted_logits
from tests.helpers.errors import facts


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


def slow_windows(msp, height, chosen, middles, width, fewest):
    """Count, mean and standard deviation by a loop over windows, ends included, the ends as decimals."""
    rows = []
    for x in middles:
        low, high = round(x - width / 2, 12), round(x + width / 2, 12)
        held = [h for m, h, c in zip(msp, height, chosen, strict=True) if c and low <= m <= high]
        few = len(held) < fewest
        rows.append((len(held), math.nan if few else np.mean(held), math.nan if few else np.std(held)))
    return (np.array(column) for column in zip(*rows, strict=True))


def msp_sample(seed, size, decimals=None):
    rng = np.random.default_rng(seed)
    msp = rng.beta(3, 1, size)
    msp = msp if decimals is None else msp.round(decimals)
    correct = rng.random(size) < msp
    return msp, 5 + 9 * msp + rng.normal(size=size) - correct, correct


@pytest.mark.parametrize("decimals", [None, 3, 1])
@pytest.mark.parametrize(("width", "points", "fewest"), [(0.05, 201, 10), (0.3, 17, 1), (1.0, 2, 3), (0.001, 41, 2)])
def test_windows(decimals, width, points, fewest):
    msp, height, correct = msp_sample(3, 1237, decimals)
    seen = max_logit_given_msp(msp, height, correct, width=width, points=points, fewest=fewest)
    assert seen.width == width
    np.testing.assert_allclose(seen.msp, [k / (points - 1) for k in range(points)], rtol=1e-15)
    for windows, chosen in ((seen.right, correct), (seen.wrong, ~correct)):
        count, mean, std = slow_windows(msp, height, chosen, seen.msp, width, fewest)
        np.testing.assert_array_equal(windows.count, count)
        np.testing.assert_allclose(windows.mean, mean, rtol=1e-13)
        np.testing.assert_allclose(windows.std, std, rtol=1e-11, atol=1e-14)


def test_middles_in_any_order():
    msp, height, correct = msp_sample(4, 311)
    middles = [0.9, 0.2, 0.9, 0.55]
    seen = max_logit_given_msp(msp, height, correct, points=middles, fewest=2)
    count, mean, _ = slow_windows(msp, height, correct, middles, 0.05, 2)
    np.testing.assert_array_equal(seen.right.count, count)
    np.testing.assert_allclose(seen.right.mean, mean, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, torch.bfloat16])
def test_both_ends_belong_to_a_window_in_every_precision(dtype):
    msp = [0.275, 0.325, 0.26, 0.34]
    msp = torch.tensor(msp, dtype=dtype) if dtype is torch.bfloat16 else np.array(msp, dtype=dtype)
    seen = max_logit_given_msp(msp, [1.0, 3.0, 50.0, 70.0], [1, 1, 1, 1], points=[0.3], fewest=1)
    assert (seen.right.count[0], seen.right.mean[0], seen.right.std[0]) == (2, 2.0, 1.0)
    assert (seen.wrong.count[0], math.isnan(seen.wrong.mean[0])) == (0, True)


def test_narrow_spread_far_from_the_rest():
    """Running sums of squares would lose all of it: a spread of 1e-5 beside values of 1e8."""
    rng = np.random.default_rng(5)
    msp = np.concatenate([rng.uniform(0.1, 0.2, 1000), rng.uniform(0.8, 0.9, 2000)])
    height = np.concatenate([1e8 + rng.normal(size=1000), 1e-5 * rng.normal(size=2000)])
    seen = max_logit_given_msp(msp, height, np.ones(3000), points=[0.15, 0.85], width=0.1).right
    np.testing.assert_allclose(seen.std[0], np.std(height[:1000]), rtol=1e-9)
    np.testing.assert_allclose(seen.std[1], np.std(height[1000:]), rtol=1e-12)


@pytest.mark.parametrize(
    ("measure", "settings", "told"),
    [
        (normalised_given_max_logit, {"edges": [0.5]}, "edges [0.5]"),
        (normalised_given_max_logit, {"edges": [0.5, 0.5]}, "edges"),
        (normalised_given_max_logit, {"width": 0}, "width 0"),
        (normalised_given_max_logit, {"msp": [0.5, 1.5]}, "msp 1.5"),
        (normalised_given_max_logit, {"max_logit": [0.5]}, "[2, 1, 2]"),
        (normalised_given_max_logit, {"normalised": [0.5, math.nan]}, "normalised finite"),
        (max_logit_given_msp, {"msp": [0.5, 1.5]}, "msp 1.5 row 1"),
        (max_logit_given_msp, {"max_logit": [1.0]}, "max_logit [2] [1]"),
        (max_logit_given_msp, {"max_logit": [1.0, np.inf]}, "max_logit inf row 1"),
        (max_logit_given_msp, {"correct": [1]}, "correct [2] [1]"),
        (max_logit_given_msp, {"width": 0.0}, "width 0.0"),
        (max_logit_given_msp, {"points": 1}, "points 2 1"),
        (max_logit_given_msp, {"points": [0.5, 1.5]}, "points 1.5 row 1"),
        (max_logit_given_msp, {"points": []}, "points"),
        (max_logit_given_msp, {"points": "many"}, "points 'many'"),
        (max_logit_given_msp, {"fewest": 0}, "fewest 1 0"),
    ],
)
def test_what_is_refused(measure, settings, told):
    third = {"normalised": [0.3, 0.4]} if measure is normalised_given_max_logit else {"correct": [1, 0]}
    with pytest.raises(ValueError, match=facts(*told.split())):
        measure(**{"msp": [0.5, 0.6], "max_logit": [1.0, 2.0]} | third | settings)
