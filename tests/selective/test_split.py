"""Tests of the split: its shares, and random numbers that depend on nothing but the seed."""

import numpy as np
import pytest

from calibrant.selective.split import draw_uniform, share_for_choice


def test_of_few_samples_a_third_chooses_and_of_no_number_fewer_than_of_a_smaller_one():
    count = [share_for_choice(samples) * samples for samples in range(150, 2000)]
    assert count[0] == pytest.approx(50)
    assert (np.diff(count) >= -1e-9).all()


def test_draws_do_not_depend_on_batches():
    whole = draw_uniform(3, 0, 200_000)
    assert (draw_uniform(3, 65_000, 1500) == whole[65_000:66_500]).all()
    assert (draw_uniform(4, 0, 10) != whole[:10]).all()


def test_draws_are_not_those_that_made_the_samples():
    for seed in (0, 1, 7):
        users = np.random.default_rng(seed).random(5000)
        assert abs(np.corrcoef(draw_uniform(seed, 0, 5000), users)[0, 1]) < 0.06
