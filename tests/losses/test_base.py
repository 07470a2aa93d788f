"""What every loss shares: parameters, several gradients at once."""

import pytest
import torch

from calibrant import losses as L
from tests.helpers.loss_cases import batch, gradient


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: L.LabelSmoothing(1.5), "alpha must be a number between 0 and 1, got 1.5"),
        (lambda: L.Focal(-1.0), "gamma must be finite and at least 0, got -1.0"),
        (lambda: L.ACLS(variant="papr"), "variant must be one of 'released', 'paper', got 'papr'"),
        (lambda: L.ACLS(gradient="eq12"), "gradient='eq12' is the printed gradient: it goes with variant='paper'"),
        (lambda: L.MbLS(margin=-1.0), "margin must be finite and at least 0, got -1.0"),
        (lambda: L.CrossEntropy(reduction="avg"), "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
        (
            lambda: L.CrossEntropy(weight=torch.tensor([-1.0])),
            "weight must be one finite, non-negative number per class",
        ),
        (lambda: L.MMCE(weighted="no"), "weighted must be True or False, got 'no'"),
        (lambda: L.MbLS(strength=float("inf")), "strength must be finite and at least 0, got inf"),
        (lambda: L.CrossEntropy(ignore_index=1.5), "ignore_index must be a whole number, got 1.5"),
        (
            lambda: L.LabelSmoothing(torch.tensor([2.0, 0.1]))(*batch(2, 5)),
            "alpha must be between 0 and 1, got 0.1 to 2",
        ),
        (lambda: L.SoftTargetCrossEntropy(True, weight=torch.ones(5)), "it takes no class weights"),
        (lambda: L.get("nope"), "unknown loss 'nope': expected one of ce, ls"),
        (lambda: L.get("acls", margn=3), "loss 'acls' has no parameter 'margn': expected one of margin, lambda1"),
        (lambda: L.CrossEntropy(weight=torch.ones(3))(*batch()), "has weights for 3 classes, the logits have 5"),
    ],
)
def test_bad_parameters(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_several_upstream_gradients_at_once():
    z, y = batch()
    upstream = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    for name in ("ls", "acls", "mdca"):
        leaf = z.clone().requires_grad_()
        (stacked,) = torch.autograd.grad(L.get(name)(leaf, y), leaf, upstream, is_grads_batched=True)
        torch.testing.assert_close(stacked[2], 3 * gradient(L.get(name), z, y))


def test_classes_that_are_last_are_said_to_be_moved():
    """The sentence's own remedy gives torch's cross-entropy."""
    logits, labels = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    with pytest.raises(ValueError, match=r"pass logits\.transpose\(1, 2\)$"):
        L.get("ce")(logits, labels)
    with pytest.raises(ValueError, match=r"pass logits\.movedim\(-1, 1\)$"):
        L.get("ce")(torch.randn(2, 3, 5, 7), torch.randint(7, (2, 3, 5)))
    expected = torch.nn.functional.cross_entropy(logits.reshape(-1, 7), labels.reshape(-1))
    torch.testing.assert_close(L.get("ce")(logits.transpose(1, 2), labels), expected)
