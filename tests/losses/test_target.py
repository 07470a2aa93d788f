"""Parameters of losses: whatever is given, the sentence is about the parameter."""

import pytest
import torch

from calibrant import losses
from calibrant.losses import CrossEntropy, Target


def test_class_weights():
    assert torch.equal(CrossEntropy(weight=[1.0, 2.0]).weight, torch.tensor([1.0, 2.0]))
    for bad in ("x", 5, [[1.0]], [-1.0], [float("nan")], {"a": 1}, [1, "x"], [1 + 1j]):
        with pytest.raises(ValueError, match="weight must be one finite, non-negative number per class, got"):
            CrossEntropy(weight=bad)


def test_labels_have_64_bits():
    with pytest.raises(ValueError, match="ignore_index must be a whole number of 64 bits, got 18446744073709551616"):
        CrossEntropy(ignore_index=2**64)


@pytest.mark.parametrize("name", [name for name in losses.names() if losses.describe(name).soft])
def test_soft_targets_must_be_distributions(name):
    loss, z = losses.get(name), torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    q = torch.full_like(z, 0.25)
    assert torch.isfinite(loss(z, q))
    too_much, negative, hot = q.clone(), q.clone(), torch.zeros_like(q)
    too_much[2, 1, 3] = 0.5
    with pytest.raises(ValueError, match=r"sum to 1 over the classes.*, got a sum of 1.25 at position \[2, 3\]$"):
        loss(z, too_much)
    negative[0, 0, 0], negative[0, 1, 0] = -0.25, 0.75
    with pytest.raises(ValueError, match=r"soft targets that are not negative and sum to 1 .*, got -0.25$"):
        loss(z, negative)
    hot[:, :2] = 1
    with pytest.raises(ValueError, match=r"got a sum of 2 at position \[0, 0\] \(several classes at once are not supp"):
        loss(z, hot)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_soft_targets_may_be_off_by_the_rounding_of_their_type(dtype):
    generator = torch.Generator().manual_seed(1)
    q = torch.rand(6, 1000, generator=generator, dtype=torch.float64).softmax(1).to(dtype)
    assert torch.isfinite(CrossEntropy()(torch.randn(6, 1000, generator=generator), q))
    with pytest.raises(ValueError, match=r"got a sum of 1\.0[45]"):
        CrossEntropy()(torch.randn(6, 1000, generator=generator), 1.05 * q)


def test_the_label_as_a_distribution_works_inside_vmap():
    """One-hot rows by hand; a warning that vmap has no rule for an operation is an error here."""
    z, labels = torch.zeros(3, 4), torch.tensor([2, 0, 3])

    def row(z, label):
        return Target(label.unsqueeze(0)).distribution(z.unsqueeze(0))[0]

    expected = [[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    assert torch.func.vmap(row)(z, labels).tolist() == expected
