"""The task of the examples: scikit-learn's handwritten digits under heavy noise, with 600 of them to train on.

Cross-entropy ends overconfident here: a small network can learn 600 noisy images by heart, and does.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor


def noisy_digits(seed: int) -> list[Tensor]:
    """Images ``[N, 64]`` to train on and to test on, and the labels of both."""
    images, digits = load_digits(return_X_y=True)
    pixels = torch.from_numpy(images).float() / 16
    pixels += 0.4 * torch.randn(pixels.shape, generator=torch.Generator().manual_seed(seed))
    x, x_test, y, y_test = train_test_split(pixels.numpy(), digits, train_size=600, random_state=seed, stratify=digits)
    return [torch.from_numpy(array) for array in (x, x_test, y, y_test)]
