"""Batches for watches: calibrated but for a factor, with labels that may be noisy, missing or of other priors."""

import numpy as np

from calibrant import Predictions


def draw(n, seed, *, noise=0.0, known=1.0, shift=0.0, ids=True):
    """Labels are wrong at a share ``noise`` and there at a share ``known``; ``shift`` is added to the first logit."""
    rng = np.random.default_rng(seed)
    honest = 3 * rng.standard_normal((n, 4))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    labels = np.where(rng.random(n) < noise, (labels + 1) % 4, labels)
    labels = np.where(rng.random(n) < known, labels, -100)
    honest[:, 0] += shift
    groups = {"site": rng.choice(["north", "south"], n)}
    names = [f"{seed}-{i}" for i in range(n)] if ids else None
    return Predictions.from_logits(2 * honest, labels, class_names=["a", "b", "c", "d"], groups=groups, ids=names)
