"""Parameters of losses: whatever is given, the sentence is about the parameter."""

import pytest
import torch

from calibrant.losses import CrossEntropy


def test_class_weights():
    assert torch.equal(CrossEntropy(weight=[1.0, 2.0]).weight, torch.tensor([1.0, 2.0]))
    for bad in ("x", 5, [[1.0]], [-1.0], [float("nan")], {"a": 1}, [1, "x"], [1 + 1j]):
        with pytest.raises(ValueError, match="weight must be one finite, non-negative number per class, got"):
            CrossEntropy(weight=bad)


def test_labels_have_64_bits():
    with pytest.raises(ValueError, match="ignore_index must be a whole number of 64 bits, got 18446744073709551616"):
        CrossEntropy(ignore_index=2**64)
