"""A policy and batches that it answers, made once."""

import pytest

from calibrant import Policy
from tests.helpers.watches import draw


@pytest.fixture(scope="package")
def policy():
    return Policy.fit(draw(2000, 0), 0.1)


@pytest.fixture(scope="package")
def batches():
    return [draw(400 + 10 * seed, seed) for seed in range(1, 5)]
