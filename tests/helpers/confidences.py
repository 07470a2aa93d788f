"""Confidences of a known law, and the summary of them."""

import torch

from calibrant.metrics import ConfidenceSketch


def draw(rng, size):
    """Confidences from a beta distribution; right with probability c^1.5."""
    c = rng.beta(5, 1.5, size)
    return c, rng.random(size) < c**1.5


def sketch_of(c, correct):
    sketch = ConfidenceSketch()
    sketch.update_confidence(torch.from_numpy(c), torch.from_numpy(correct))
    return sketch.summary()
