"""Logit normalisation: scores worked by hand, and p by the lowest AURC."""

import math

import numpy as np
import pytest
import torch

from calibrant.metrics import top_label
from calibrant.posthoc import LogitNorm, best_norm, fit_best_norm, scores_by_reading
from tests.helpers.calibrators import drawn
from tests.reference import metrics as metrics_reference


def test_two_classes_cannot_be_ranked_by_a_norm():
    z, y = drawn(300, 2, 9)
    assert LogitNorm().fit(z, y).fell_back_
    with pytest.raises(ValueError, match="powers"):
        LogitNorm(powers=[]).fit(z, y)


def test_normalised_score_by_hand():
    """v = (3, 0, -3) after centring; norms: p = 1: 6, p = 2: sqrt(18)."""
    z = torch.tensor([[4.0, 1.0, -2.0], [4.0, 1.0, -2.0]])
    norm = LogitNorm(powers=[1])
    norm.p_, norm.fell_back_ = 1, False
    assert norm.score(z).tolist() == pytest.approx([0.5, 0.5])
    norm.p_ = 2
    assert norm.score(z + 100).tolist() == pytest.approx([3 / math.sqrt(18)] * 2)
    plain = LogitNorm(powers=[2], centre=False)
    plain.p_, plain.fell_back_ = 2, False
    assert plain.score(z)[0].item() == pytest.approx(4 / math.sqrt(21))


def test_p_is_the_one_with_the_lowest_aurc():
    z, y = drawn(600, 6, 3)
    wrong = z.argmax(1) != y
    z = z * torch.where(wrong, 1.8, 1.0)[:, None].double()
    norm = LogitNorm().fit(z, y)
    v = z - z.mean(1, keepdim=True)
    correct = (~wrong).numpy()
    expected = {}
    for p in range(1, 11):
        score = v.amax(1) / v.abs().pow(p).sum(1).pow(1 / p)
        expected[p] = metrics_reference.aurc(score.numpy(), correct)
        assert norm.aurc_[p] == pytest.approx(expected[p], abs=1e-12)
    assert norm.p_ == min(expected, key=expected.get)
    assert not norm.fell_back_


def test_falls_back_to_the_softmax_when_no_p_beats_it():
    z, y = drawn(800, 6, 4)
    norm = LogitNorm(powers=[1]).fit(z, y)
    assert norm.fell_back_
    assert norm.p_ is None
    torch.testing.assert_close(norm.score(z), z.softmax(1).amax(1), rtol=1e-15, atol=0)


def test_rows_without_direction_score_lowest():
    norm = LogitNorm(powers=[2])
    norm.p_, norm.fell_back_ = 2, False
    assert norm.score(torch.tensor([[5.0, 5.0, 5.0], [1.0, 0.0, 0.0]]))[0] == 0


def test_of_both_readings_the_one_with_the_lower_area_is_chosen():
    """The offset of a row says whether it is wrong: centring takes it away, SC's Eq. 17 sees it."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal((700, 6))
    y = np.where(rng.random(700) < 0.3, (z.argmax(1) + 1) % 6, z.argmax(1))
    shifted = z + np.where(y == z.argmax(1), 0.0, 4.0)[:, None]  # wrong ones have the larger norm: a lower score
    centred, plain = (LogitNorm(centre=centre).fit(shifted, y) for centre in (True, False))
    assert plain.aurc_[plain.p_] < centred.aurc_[centred.p_] - 0.05
    best = fit_best_norm(shifted, y)
    assert (best.centre, best.p_, best.aurc_) == (False, plain.p_, plain.aurc_)
    assert best_norm(*_judged(shifted, y)).p_ == plain.p_


def test_readings_that_tie_are_taken_as_centred():
    rng = np.random.default_rng(4)
    z = 5.0 * rng.integers(-9, 10, (500, 5))
    z -= z.mean(1, keepdims=True)  # whole numbers about 0: both readings are the same, without rounding
    y = np.where(rng.random(500) < 0.3, (z.argmax(1) + 1) % 5, z.argmax(1))
    z *= np.where(y == z.argmax(1), 1.0, 2.0)[:, None]
    best = fit_best_norm(z, y)
    assert best.p_ is not None
    assert best.centre


def _judged(z, y):
    plain, _, correct = top_label(z, y)
    return plain, scores_by_reading(z), correct


@pytest.mark.parametrize("centre", [True, False])
def test_a_reading_that_is_asked_for_is_the_only_one(centre):
    rng = np.random.default_rng(5)
    z = rng.standard_normal((300, 6)) + rng.standard_normal((300, 1))
    y = np.where(rng.random(300) < 0.4, (z.argmax(1) + 1) % 6, z.argmax(1))
    alone = LogitNorm(centre=centre).fit(z, y)
    asked = fit_best_norm(z, y, centre=centre)
    assert (asked.centre, asked.p_, asked.aurc_) == (centre, alone.p_, alone.aurc_)
    scores = scores_by_reading(z, centre)
    assert list(scores) == [centre]
    v = z - z.mean(1, keepdims=True) if centre else z
    np.testing.assert_allclose(scores[centre][3], v.max(1) / (abs(v) ** 3).sum(1) ** (1 / 3))
