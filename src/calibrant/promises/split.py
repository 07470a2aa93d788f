"""Which samples choose and plan, and which are tested.

A random split by the seed says which samples choose calibrator and score, and plan the tests, and which others set the
threshold. Of few samples some choose a calibrator that changes no answer, and all set the threshold of a score that was
fixed beforehand: what is tested does not depend on the choice.
"""

from __future__ import annotations

import numpy as np

from calibrant.metrics import Doubles

SHARE = 0.2  # of the samples, for the choice, where that is enough of them
PLAN_SHARE = 0.1  # where there is nothing to choose, and they only plan the tests
ENOUGH, PLAN_ENOUGH = 50, 20  # samples
MOST_SHARE = 1 / 3
FEWEST_FOR_CHOICE = 150  # samples, below which nothing is chosen and all are for the threshold
FEWEST_FOR_SCORE = 400  # samples, below which a calibrator may be chosen, but neither score nor answers depend on it
BLOCK = 2**16  # samples whose random numbers are drawn together
_STREAM = 0x5BA51C  # any number that no one takes for a seed


def share_for_choice(samples: int, *, plans_only: bool = False) -> float:
    """The share of the samples that calibrator, score and the order of the tests are chosen on.

    Example:
        >>> (
        ...     [round(share_for_choice(samples), 2) for samples in (150, 200, 1000)],
        ...     share_for_choice(1000, plans_only=True),
        ... )
        ([0.33, 0.25, 0.2], 0.1)
    """
    share, enough = (PLAN_SHARE, PLAN_ENOUGH) if plans_only else (SHARE, ENOUGH)
    return max(share, min(MOST_SHARE, enough / samples))


def draw_uniform(seed: int, start: int, count: int) -> Doubles:
    """Uniform random numbers of samples ``start`` to ``start + count``, the same whatever the batches are.

    They are of a stream of their own: ``default_rng(seed)`` may have made the samples, which the split must not follow.
    """
    first_block, last_block = start // BLOCK, (start + count - 1) // BLOCK
    blocks = [np.random.default_rng([_STREAM, seed, k]).random(BLOCK) for k in range(first_block, last_block + 1)]
    return np.concatenate(blocks)[start - first_block * BLOCK :][:count]


def count_for_threshold(seed: int, count: int, share: float) -> int:
    """How many of the first ``count`` samples are for the threshold, where a ``share`` is for the choice."""
    return sum(int((draw_uniform(seed, s, min(BLOCK, count - s)) >= share).sum()) for s in range(0, count, BLOCK))
