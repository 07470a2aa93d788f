"""Tests of outcome."""

import numpy as np

from calibrant import Policy, Predictions
from calibrant.selective.policy.outcome import Counts, Outcome


def test_a_promise_kept_in_every_group_is_seldom_called_broken():
    """A true risk that is the target, in 40 small groups: many have no error at all, and one or two have some."""
    policy = Policy.fit(Predictions.from_logits(*honest(900), groups={"g": np.arange(900) % 40}), 0.01, group="g")
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(300):
        counts = {str(k): Counts(20, 20, int(rng.binomial(20, 0.01))) for k in range(40)}
        called += Outcome(policy, 800, 800, True, 8, 8, counts).promise_kept == "no"
    assert called / 300 <= 0.05 + 3 * np.sqrt(0.0475 / 300)


def honest(n):
    rng = np.random.default_rng(1)
    z = 3 * rng.standard_normal((n, 4))
    return z, (z + rng.gumbel(size=z.shape)).argmax(1)
