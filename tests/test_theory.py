"""The papers' propositions and limit cases, on random logits."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant import losses as L
from tests.catalogue import batch, gradient


def kl_from_uniform(z):
    """KL(u || softmax(z)) per row."""
    return -math.log(z.shape[1]) - z.log_softmax(1).mean(1)


rows = st.lists(st.floats(-30, 30), min_size=2, max_size=12).map(lambda v: torch.tensor([v], dtype=torch.float64))


@given(rows)
def test_mbls_proposition_1(z):
    """KL(u||s) - log K <= mean_k (max z - z_k) <= KL(u||s), both up to the constant log K of the proof."""
    classes = z.shape[1]
    distance = (z.amax(1, keepdim=True) - z).mean(1)
    divergence = kl_from_uniform(z) + math.log(classes)  # the proof drops this constant
    assert (divergence - math.log(classes) <= distance + 1e-12).all()
    assert (distance <= divergence + 1e-12).all()
    penalty = L.MbLS(margin=0.0, strength=1.0).terms(z, torch.tensor([0]))["regulariser"]
    torch.testing.assert_close(penalty, distance.squeeze(0))


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


@given(st.floats(0.01, 0.99), st.floats(-40, 40), st.integers(2, 6), st.integers(0, 10_000))
def test_label_relaxation_is_zero_inside_and_blind_to_the_other_classes(alpha, gap, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    others = 3 * torch.randn(1, classes, generator=generator, dtype=torch.float64)
    others = others - others.logsumexp(1, keepdim=True)
    z, y = torch.cat([torch.tensor([[gap]], dtype=torch.float64), others], 1), torch.tensor([0])
    loss = L.LabelRelaxation(alpha)
    p = torch.sigmoid(torch.tensor(gap, dtype=torch.float64)).item()
    value = loss(z.clone().requires_grad_(), y).item()
    if p >= 1 - alpha + 1e-12:
        assert value == 0
        assert (gradient(loss, z, y) == 0).all()
    elif p <= 1 - alpha - 1e-12:
        assert value > 0
    same_mass = torch.tensor([[gap] + [-math.log(classes)] * classes], dtype=torch.float64)
    assert loss(same_mass, y).item() == pytest.approx(value, rel=1e-9, abs=1e-14)


@settings(max_examples=200)
@given(st.floats(0.01, 0.9), st.floats(0, 1), st.integers(0, 10_000))
def test_label_relaxation_is_convex_in_the_prediction(alpha, t, seed):
    generator = torch.Generator().manual_seed(seed)
    p, q = torch.rand(2, 1, 4, generator=generator, dtype=torch.float64).clamp(min=1e-6)
    p, q = p / p.sum(), q / q.sum()
    loss, y = L.LabelRelaxation(alpha), torch.tensor([1])
    mixed = loss((t * p + (1 - t) * q).log(), y)
    assert mixed <= t * loss(p.log(), y) + (1 - t) * loss(q.log(), y) + 1e-12


@given(rows, st.floats(0, 12))
def test_acls_conditions_of_section_3_3(z, margin):
    """(1) the regulariser never raises p_yhat; (2) it acts only beyond the margin."""
    y, predicted = torch.tensor([0]), int(z.argmax())
    for loss in (
        L.ACLS(margin=margin, variant="paper", gradient="eq12"),
        L.ACLS(margin=margin, variant="paper"),
        L.ACLS(margin=margin),
    ):
        slope = (gradient(loss, z, y) - gradient(L.CrossEntropy(), z, y))[0]
        # A step against the gradient lowers the odds of yhat over k by slope_yhat - slope_k.
        lowering = slope[predicted] - slope
        assert (lowering >= -1e-12).all()
        beyond = z.max() - (z.min() if loss.variant == "paper" else 0.0) > margin
        if not beyond and not (z.max() - z > margin).any():
            assert (slope.abs() < 1e-12).all()
        elif loss.variant == "paper" and z.max() - z.min() > margin + 1e-3:
            assert lowering.max() > 0


def test_acls_smooths_more_as_the_confidence_grows():
    """The point of the linear f against MDCA's parabola: the pull on yhat grows with its logit."""
    y = torch.tensor([0])
    tops = torch.linspace(7, 25, 40, dtype=torch.float64)
    pulls = []
    for top in tops:
        z = torch.tensor([[float(top), 1.0, 0.0, -1.0]], dtype=torch.float64)
        pulls.append((gradient(L.ACLS(margin=6.0), z, y) - gradient(L.CrossEntropy(), z, y))[0, 0])
    assert (torch.stack(pulls).diff() > 0).all()


def test_limits_are_cross_entropy():
    z, y = batch(9, 5)
    expected, slope = L.CrossEntropy()(z, y), gradient(L.CrossEntropy(), z, y)
    for loss in (
        L.Focal(gamma=0.0),
        L.LabelSmoothing(alpha=0.0),
        L.LabelSmoothing(alpha=0.0, spread="others"),
        L.MbLS(margin=1e6),
        L.ACLS(margin=1e6),
        L.ACLS(lambda1=0.0, lambda2=0.0),
        L.ConfidencePenalty(strength=0.0),
        L.MDCA(strength=0.0),
        L.MMCE(strength=0.0),
        L.CPC(lambda1=0.0, lambda2=0.0),
        L.CRL(),
        L.LabelRelaxation(alpha=0.0),
    ):
        torch.testing.assert_close(loss(z, y), expected, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(gradient(loss, z, y), slope, rtol=1e-11, atol=1e-14)


def test_perfectly_fitted_soft_targets_have_no_gradient():
    z, _ = batch(6, 4, scale=1.0)
    q = z.softmax(1)
    assert gradient(L.SoftTargetCrossEntropy(subtract_entropy=True), z, q).abs().max() < 1e-15
    assert abs(L.SoftTargetCrossEntropy(subtract_entropy=True)(z, q)) < 1e-14
