"""Label smoothing against torch's own and SC Eq. 15."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from calibrant import losses as L
from tests.helpers.errors import facts
from tests.helpers.loss_cases import batch, gradient
from tests.reference import losses as R


def test_torch_gives_the_same_cross_entropy_and_label_smoothing_weights_included():
    z, y = batch(11, 6)
    weight = torch.tensor([1.0, 0.5, 2.0, 0.0, 1.5, 3.0], dtype=torch.float64)
    y[2] = y[5] = -100
    for reduction in ("mean", "sum", "none"):
        for alpha in (0.0, 0.2):
            expected = F.cross_entropy(z, y, weight, label_smoothing=alpha, reduction=reduction)
            ours = L.LabelSmoothing(alpha, weight=weight, reduction=reduction)(z, y)
            torch.testing.assert_close(ours, expected, rtol=1e-13, atol=1e-14)
            plain = F.cross_entropy(z, y, label_smoothing=alpha, reduction=reduction)
            torch.testing.assert_close(
                L.LabelSmoothing(alpha, reduction=reduction)(z, y), plain, rtol=1e-13, atol=1e-14
            )
        expected = F.cross_entropy(z, y, weight, reduction=reduction)
        torch.testing.assert_close(
            L.CrossEntropy(weight=weight, reduction=reduction)(z, y), expected, rtol=1e-13, atol=0
        )
    soft = batch(11, 6, seed=4)[0].softmax(1)
    torch.testing.assert_close(L.SoftTargetCrossEntropy()(z, soft), F.cross_entropy(z, soft), rtol=1e-13, atol=0)
    torch.testing.assert_close(
        L.CrossEntropy(weight=weight)(z, soft), F.cross_entropy(z, soft, weight), rtol=1e-13, atol=0
    )


def test_per_sample_alpha():
    z, y = batch(6, 4)
    alpha = torch.linspace(0, 0.5, 6, dtype=torch.float64)
    expected = [L.LabelSmoothing(float(a))(z[i : i + 1], y[i : i + 1]) for i, a in enumerate(alpha)]
    for loss, extra in (
        (L.LabelSmoothing(reduction="none"), {"alpha": alpha}),
        (L.LabelSmoothing(alpha, reduction="none"), {}),
    ):
        torch.testing.assert_close(loss(z, y, **extra), torch.stack(expected), rtol=1e-13, atol=0)
    reference = R.label_smoothing(z.numpy(), y.numpy(), alpha=alpha.numpy(), spread="others")
    ours = L.LabelSmoothing(spread="others")(z.requires_grad_(), y, alpha=alpha)
    assert ours.item() == pytest.approx((reference["fidelity"] + reference["regulariser"]).mean(), rel=1e-12)
    with pytest.raises(ValueError, match=facts("alpha", "[5]")):
        L.LabelSmoothing()(z, y, alpha=alpha[:5])


def kl_from_uniform(z):
    """KL(u || softmax(z)) per row."""
    return -math.log(z.shape[1]) - z.log_softmax(1).mean(1)


rows = st.lists(st.floats(-30, 30), min_size=2, max_size=12).map(lambda v: torch.tensor([v], dtype=torch.float64))


@given(rows, st.floats(0, 1))
def test_label_smoothing_is_cross_entropy_plus_divergence_from_uniform(z, alpha):
    y = torch.tensor([z.shape[1] - 1])
    expected = (1 - alpha) * L.CrossEntropy()(z, y) + alpha * (kl_from_uniform(z).squeeze() + math.log(z.shape[1]))
    torch.testing.assert_close(L.LabelSmoothing(alpha)(z, y), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.3, 1.0])
def test_regularisation_gradient_of_label_smoothing_is_sc_equation_15(alpha):
    """d(LS - CE)/dv_k = alpha (pi_k - 1/K) with pi the true distribution: soft labels, and one-hot ones."""
    z, y = batch(6, 4)
    truth = batch(6, 4, seed=8, scale=1.0)[0].softmax(1)
    one_hot = torch.nn.functional.one_hot(y, 4).double()
    for target, pi in ((truth, truth), (y, one_hot)):
        difference = gradient(L.LabelSmoothing(alpha, reduction="sum"), z, target) - gradient(
            L.CrossEntropy(reduction="sum"), z, target
        )
        torch.testing.assert_close(difference, alpha * (pi - 1 / 4), rtol=1e-11, atol=1e-14)
