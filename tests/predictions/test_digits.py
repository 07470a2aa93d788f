"""How finely probabilities were written: against text that was printed with so many digits, and hand-worked floors."""

import numpy as np
import pytest

from calibrant.predictions import FLOOR, Digits, log_probabilities


def probabilities(rows=40, classes=3, scale=2.0, seed=0):
    exps = np.exp(scale * np.random.default_rng(seed).standard_normal((rows, classes)))
    return exps / exps.sum(1, keepdims=True)


def digits_of(*parts):
    digits = Digits(parts[0].shape[1])
    for part in parts:
        digits.add(part)
    return digits


@pytest.mark.parametrize("places", [1, 2, 4, 6])
def test_places_are_those_of_the_text(places):
    printed = np.array([[float(f"{p:.{places}f}") for p in row] for row in probabilities()])
    assert digits_of(printed).places == places
    first, second = printed[:1], printed[1:]
    assert digits_of(first, second).places == places
    assert digits_of(printed, probabilities()).places is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_places_of_every_type(dtype):
    assert digits_of(np.round(probabilities(), 2).astype(dtype)).places == 2
    assert digits_of(probabilities().astype(dtype)).places is None


def test_one_minus_a_rounded_number_is_rounded_too():
    p = np.round(probabilities(classes=2)[:, 0], 4)
    assert digits_of(np.stack([1 - p, p], 1)).places == 4


def test_a_sure_model_was_not_rounded():
    p = 10.0 ** -np.linspace(8, 20, 30)
    digits = digits_of(np.stack([1 - p, p], 1))
    assert digits.places is None
    assert digits.ones > 0
    assert digits.floor == FLOOR


def test_floors():
    # Four decimal places, three classes: half of the last place, 0.00005, for two other classes.
    assert digits_of(np.array([[0.0, 0.1234, 0.8766]])).floor == pytest.approx(2.5e-5)
    # A forest of 3 trees and 2 samples: the smaller of 1/3 and 1/4, for two other classes.
    forest = digits_of(np.array([[1 / 3, 2 / 3, 0.0], [0.0, 1.0, 0.0]]))
    assert (forest.places, forest.zeros, forest.ones, forest.least) == (None, 3, 1, 1 / 3)
    assert forest.floor == pytest.approx(1 / 8)
    # Underflow: the least number above 0 is what a zero is below, however many samples there are.
    assert digits_of(np.array([[1.0, 1e-20], [1.0, 0.0], [0.7, 0.3]])).floor == pytest.approx(1e-20)
    assert digits_of(np.array([[1.0, 0.0], [0.0, 1.0]])).places == 0
    assert digits_of(probabilities()).floor == FLOOR
    assert Digits(3).floor == FLOOR  # nothing was seen


def test_parts_add_up():
    whole, parts = np.round(probabilities(), 3), digits_of(np.round(probabilities(), 3)[:7])
    parts.absorb(digits_of(whole[7:]))
    assert vars(parts) == vars(digits_of(whole))
    parts.absorb(digits_of(probabilities()))
    assert parts.places is None


def test_logarithms_begin_at_the_floor():
    z = log_probabilities(np.array([[0.0, 0.5, 1.0]], np.float32), 1e-4)
    np.testing.assert_allclose(z, [[np.log(1e-4), np.log(0.5), 0.0]])
