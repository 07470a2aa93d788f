"""Logits and labels to audit, and what an audit finds."""

import numpy as np


def drawn(size, classes, scale, seed, *, temperature=1.0):
    """Logits that are honest when divided by scale."""
    rng = np.random.default_rng(seed)
    honest = 2 * rng.standard_normal((size, classes))
    labels = (honest / temperature + rng.gumbel(size=honest.shape)).argmax(1)
    return scale * honest, labels


def smoothed(size, seed):
    """Logits as label smoothing leaves them: at equal softmax, wrong predictions have the larger logits."""
    rng = np.random.default_rng(seed)
    honest, labels = drawn(size, 6, 1.0, seed)
    wrong = honest.argmax(1) != labels
    offset = rng.normal(0, 0.5, size) + 3.0 * wrong
    centred = honest - honest.mean(1, keepdims=True)
    return centred + offset[:, None], labels


def titles(found):
    return [finding["title"] for finding in found.models[0]["findings"]]
