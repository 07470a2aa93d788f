"""Logits and labels to fit policies on, and commands to do it with."""

import numpy as np

from tests.helpers.watches import draw


def drawn(n, classes=6, seed=0, scale=2.0, spread=3.0):
    """Logits that were true log-probabilities before they were multiplied."""
    rng = np.random.default_rng(seed)
    honest = spread * rng.standard_normal((n, classes))
    return scale * honest, (honest + rng.gumbel(size=honest.shape)).argmax(1)


def smoothed(n, classes=8, seed=0):
    """As label smoothing leaves them: at equal confidence, wrong predictions have the logits of larger norm."""
    rng = np.random.default_rng(seed)
    honest = 2 * rng.standard_normal((n, classes))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    wrong = honest.argmax(1) != labels
    logits = honest.copy()
    logits[np.arange(n), honest.argmin(1)] -= np.where(wrong, 8.0, 0.0)  # the softmax hardly sees it
    return logits, labels


def masks(images, seed=0, scale=2.0):
    rng = np.random.default_rng(seed)
    honest = 3 * rng.standard_normal((images, 4, 6, 5)) + rng.standard_normal((images, 4, 1, 1))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    labels[:, 0] = 255
    return scale * honest, labels


def write(folder, name, n=3000, seed=0, noise=0.0):
    """A file of what `draw` draws, without ids."""
    data = draw(n, seed, noise=noise, ids=False)
    data.save(folder / name)
    return data
