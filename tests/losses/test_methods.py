"""What is special about each method: its limits, the propositions of its paper, ties, digits at its edges."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._harness import peak_bytes
from calibrant import lens
from calibrant import losses as L
from calibrant.losses import cpc
from calibrant.metrics import brier
from tests.helpers.errors import facts
from tests.helpers.loss_cases import COUNTS, batch, formula_gradient, gradient
from tests.reference import losses as R


def test_limits_are_cross_entropy():
    z, y = batch(9, 5)
    expected, slope = L.CrossEntropy()(z, y), gradient(L.CrossEntropy(), z, y)
    for loss in (
        L.Focal(gamma=0.0),
        L.DualFocal(gamma=0.0),
        L.LabelSmoothing(alpha=0.0),
        L.LabelSmoothing(alpha=0.0, spread="others"),
        L.MbLS(margin=1e6),
        L.CALS(margin=1e6, lambda_min=0.0),
        L.ACLS(margin=1e6),
        L.ACLS(lambda1=0.0, lambda2=0.0),
        L.ConfidencePenalty(strength=0.0),
        L.MDCA(strength=0.0),
        L.MMCE(strength=0.0),
        L.SoftECE(strength=0.0),
        L.ESD(strength=0.0),
        L.CPC(lambda1=0.0, lambda2=0.0),
        L.CRL(),
        L.LabelRelaxation(alpha=0.0),
    ):
        torch.testing.assert_close(loss(z, y), expected, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(gradient(loss, z, y), slope, rtol=1e-11, atol=1e-14)


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


def test_perfectly_fitted_soft_targets_have_no_gradient():
    z, _ = batch(6, 4, scale=1.0)
    q = z.softmax(1)
    assert gradient(L.SoftTargetCrossEntropy(subtract_entropy=True), z, q).abs().max() < 1e-15
    assert abs(L.SoftTargetCrossEntropy(subtract_entropy=True)(z, q)) < 1e-14


def test_brier_score_by_hand_and_as_the_metric():
    z = torch.tensor([[math.log(6.0), math.log(3.0), 0.0]], dtype=torch.float64)  # p = 0.6, 0.3, 0.1
    for scale, expected in (("sum", 0.26), ("half", 0.13), ("mean", 0.26 / 3)):
        assert L.BrierScore(scale)(z, torch.tensor([0])).item() == pytest.approx(expected, rel=1e-14)
    soft = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)
    assert L.BrierScore()(z, soft).item() == pytest.approx(0.01 + 0.04 + 0.01, rel=1e-13)
    weight = torch.tensor([2.0, 4.0, 9.0], dtype=torch.float64)
    weighted = L.BrierScore(weight=weight, reduction="sum")(z, soft)  # the mean weight of the label is 3
    assert weighted.item() == pytest.approx(3 * 0.06, rel=1e-13)
    many, labels = batch(50, 4, scale=1.5)
    for scale in ("sum", "half", "mean"):
        assert L.BrierScore(scale)(many, labels).item() == pytest.approx(brier(many, labels, scale=scale), rel=1e-12)


def test_a_sure_error_has_hardly_a_gradient_by_the_brier_score():
    z, y = torch.tensor([[40.0, 0.0]], dtype=torch.float64), torch.tensor([1])
    assert L.BrierScore()(z, y).item() == pytest.approx(2.0)
    assert gradient(L.BrierScore(), z, y).abs().max() < 1e-16
    assert gradient(L.CrossEntropy(), z, y).abs().max() == pytest.approx(1.0)


def test_adafocal_before_any_validation_is_focal_or_inverse_focal_loss():
    z, y = batch(9, 5)
    torch.testing.assert_close(L.AdaFocal(2.0)(z, y), L.Focal(2.0)(z, y), rtol=1e-13, atol=0)
    p = z.softmax(1).gather(1, y[:, None]).squeeze(1)
    torch.testing.assert_close(L.AdaFocal(-2.0)(z, y), ((1 + p) ** 2 * -p.log()).mean(), rtol=1e-11, atol=0)


def test_dual_focal_looks_strictly_below_the_label():
    """By hand: the label second of three, last of three, and beside an equal class."""
    p = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.2, 0.3], [0.3, 0.3, 0.4]], dtype=torch.float64)
    y = torch.tensor([1, 1, 1])
    base = torch.tensor([1 - 0.3 + 0.2, 1 - 0.2, 1 - 0.3], dtype=torch.float64)
    loss = L.DualFocal(gamma=2.0, reduction="none")
    expected = base**2 * -p[:, 1].log()
    torch.testing.assert_close(loss(p.log(), y), expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(loss(p.log(), y)[1:], L.Focal(2.0, reduction="none")(p.log(), y)[1:])
    leaf = p[:1].log().requires_grad_()
    q = leaf.softmax(1)[0]
    (slope,) = torch.autograd.grad((1 - q[1] + q[2]) ** 2 * -q[1].log(), leaf)  # through the competitor too
    torch.testing.assert_close(gradient(L.DualFocal(2.0), p[:1].log(), y[:1]), slope, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("gamma", [0.3, 1.0, 5.0])
def test_dual_focal_of_tied_and_of_saturated_logits(gamma):
    for seed in range(4):
        steps = torch.randint(-3, 4, (7, 5), generator=torch.Generator().manual_seed(seed)).double()
        y = torch.arange(7) % 5
        for z in (2 * steps, 300 * steps):
            loss = L.DualFocal(gamma)
            assert torch.isfinite(gradient(loss, z, y)).all()
            torch.testing.assert_close(gradient(loss, z, y), formula_gradient(loss, z, y), rtol=1e-9, atol=1e-13)


rows = st.lists(st.floats(-30, 30), min_size=2, max_size=12).map(lambda v: torch.tensor([v], dtype=torch.float64))


@given(rows)
def test_mbls_proposition_1(z):
    """KL(u||s) - log K <= mean_k (max z - z_k) <= KL(u||s), both up to the constant log K of the proof."""
    classes = z.shape[1]
    distance = (z.amax(1, keepdim=True) - z).mean(1)
    divergence = -z.log_softmax(1).mean(1)  # KL(u||s) + log K, which the proof drops
    assert (divergence - math.log(classes) <= distance + 1e-12).all()
    assert (distance <= divergence + 1e-12).all()
    penalty = L.MbLS(margin=0.0, strength=1.0).terms(z, torch.tensor([0]))["regulariser"]
    torch.testing.assert_close(penalty, distance.squeeze(0))


ABLATIONS = [
    *(L.MbLS(margin=4.0, variant=v) for v in ("released", "paper")),
    *(L.CRL(indicator="margin", margin=4.0, score=s) for s in ("msp", "entropy", "margin")),
    *(
        L.ACLS(margin=4.0, variant=v, smoothing=s, indicator=i, gradient=g)
        for v, g in (("released", "eq13"), ("paper", "eq13"), ("paper", "eq12"))
        for s in ("adaptive", "constant")
        for i in ("margin", "none", "ranking")
    ),
]


@pytest.mark.parametrize("loss", ABLATIONS, ids=repr)
def test_closed_forms_of_the_ablations_at_tied_and_at_free_logits(loss):
    extra = {}
    if getattr(loss, "history", None) is not None:
        loss.history.counts, loss.history.epochs = torch.tensor(COUNTS), torch.tensor(5)
        extra = {"ids": torch.arange(7)}
    for seed in range(4):
        steps = torch.randint(-3, 4, (7, 5), generator=torch.Generator().manual_seed(seed))
        for z, y in (batch(seed=seed), (2.0 * steps.double(), torch.arange(7) % 5)):
            torch.testing.assert_close(
                gradient(loss, z, y, **extra), formula_gradient(loss, z, y, **extra), rtol=1e-11, atol=1e-13
            )
            with_grad = loss(z.clone().requires_grad_(), y, **extra).detach()
            torch.testing.assert_close(with_grad, loss(z, y, **extra), rtol=1e-12, atol=1e-14)


def _literal_acls(z, margin=4.0, lambda1=0.1, lambda2=0.01):
    """The released code's steps, one by one, for one batch: value and, by autograd, its gradient."""
    top, _ = z.max(dim=1, keepdim=True)
    is_top = (z.detach() == top.detach()).to(z.dtype)
    above = is_top * torch.relu(top.expand_as(z) - margin) ** 2
    below = (1 - is_top) * torch.relu(top.detach() - z - margin) ** 2
    n, k = z.shape
    return lambda1 * above.sum() / n + lambda2 * below.sum() / (n * (k - 1))


def test_released_acls_at_ties_and_exact_margins():
    z = torch.tensor(
        [[9.0, 9, 1, 5], [4, 0, 0, 4], [7, 3, 2.9999999, 7], [1, 1, 1, 1], [8, 4, 4, 0]], dtype=torch.float64
    )
    y, loss = torch.tensor([0, 3, 1, 2, 0]), L.ACLS(margin=4.0)
    leaf = z.clone().requires_grad_()
    expected = F.cross_entropy(leaf, y) + _literal_acls(leaf)
    (slope,) = torch.autograd.grad(expected, leaf)
    assert loss(z.clone().requires_grad_(), y).item() == pytest.approx(expected.item(), rel=1e-13)
    torch.testing.assert_close(gradient(loss, z, y), slope, rtol=1e-12, atol=1e-15)


def test_paper_variant_takes_the_first_of_tied_extremes():
    z, y = torch.tensor([[9.0, 1.0, 9.0, 1.0]], dtype=torch.float64), torch.tensor([0])
    loss = L.ACLS(margin=4.0, variant="paper")
    slope = gradient(loss, z, y) - gradient(L.CrossEntropy(), z, y)
    # relu = 4: 2*0.1*4 at the first maximum and minimum, 2*0.01*4 for each of the two small ones.
    torch.testing.assert_close(
        slope, torch.tensor([[0.96, -0.88, 0.0, -0.08]], dtype=torch.float64), atol=1e-14, rtol=0
    )
    torch.testing.assert_close(gradient(loss, z, y), formula_gradient(loss, z, y), atol=1e-14, rtol=0)


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


def test_cpc_needs_memory_linear_in_its_input_on_every_road():
    """One array of all pairs would be 300 times the logits here."""
    z, y = batch(40, 300)
    weight = torch.ones(300, dtype=torch.float64)
    leaf = z.clone().requires_grad_()
    for step in (
        lambda: L.CPC()(z, y),
        lambda: L.CPC().terms(leaf, y),
        lambda: L.CPC(reduction="none")(leaf, y).sum().backward(),
        lambda: L.CPC(weight=weight)(leaf, y).backward(),
        lambda: L.CPC()(leaf, y).backward(),
        lambda: lens(L.CPC(), z, y),
    ):
        step()
        # A block of pairs is of fixed size: 2 ** 20 entries and a few temporaries of it.
        assert peak_bytes(step) < 40 * z.nbytes + 4 * 8 * cpc.BLOCK


def test_cpc_with_two_classes_has_no_pairs_of_others():
    z, y = batch(5, 2)
    for variant in ("released", "paper"):
        expected = R.cpc(z.numpy(), y.numpy(), variant=variant)
        loss = L.CPC(variant=variant)
        assert loss.terms(z, y)["regulariser"].item() == pytest.approx(expected["regulariser"].mean(), rel=1e-12)
        torch.testing.assert_close(gradient(loss, z, y), formula_gradient(loss, z, y), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("spread", [1.0, 400.0, 5000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cpc_fast_blocks_agree_with_the_formula_at_any_range(spread, dtype):
    z, y = batch(9, 6, scale=spread)
    loss = L.CPC(variant="paper")
    expected = formula_gradient(loss, z, y)
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 2e-5}
    torch.testing.assert_close(gradient(loss, z.to(dtype), y).double(), expected, **tolerance)


def test_mmce_released_is_zero_without_both_groups_and_finite_where_its_root_is_undefined():
    z = torch.tensor([[3.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    for labels in ([0, 0], [1, 1]):
        terms = L.MMCE().terms(z, torch.tensor(labels))
        assert terms["regulariser"] == 0
        assert torch.isfinite(gradient(L.MMCE(), z, torch.tensor(labels))).all()
    same = torch.tensor([[math.log(10.0), 0.0]] * 11, dtype=torch.float64)
    labels = torch.tensor([0] + [1] * 10)
    assert torch.isfinite(gradient(L.MMCE(), same, labels)).all()
    expected = R.mmce(same.numpy(), labels.numpy())["regulariser"][0]
    assert L.MMCE().terms(same, labels)["regulariser"].item() == pytest.approx(expected, abs=1e-9)


def test_mmce_with_equal_confidences_matches_the_pairwise_sum():
    z = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0], [1.0, 0.0, 0.0]] * 3, dtype=torch.float64)
    y = torch.tensor([0, 1, 0, 0, 2, 1, 2, 1, 0, 1, 1, 0])
    for weighted in (True, False):
        for variant in ("released", "paper"):
            loss = L.MMCE(weighted=weighted, variant=variant)
            expected = R.mmce(z.numpy(), y.numpy(), weighted=weighted, variant=variant)["regulariser"][0]
            assert loss.terms(z, y)["regulariser"].item() == pytest.approx(expected, rel=1e-12)


def test_soft_ece_in_one_bin_and_in_hard_bins():
    """One bin: the gap of the means, or the spread around the accuracy. Low temperature: the ECE of squared gaps."""
    z, y = batch(40, 4, scale=1.5)
    r, c = z.softmax(1).amax(1), (z.argmax(1) == y).double()
    for reading, expected in (
        ("binned", (r.mean() - c.mean()).abs()),
        ("labels", (c.mean() - r).square().mean()),
        ("esd", (c.mean() - r).square().mean().sqrt()),
    ):
        value = L.SoftECE(bins=1, reading=reading).terms(z, y)["regulariser"]
        torch.testing.assert_close(value, expected, rtol=1e-10, atol=0)
    position, square = (5 * r).long(), 0.0
    for b in range(5):
        inside = position == b
        if inside.any():
            square += inside.double().mean() * (r[inside].mean() - c[inside].mean()) ** 2
    hard = L.SoftECE(bins=5, temperature=1e-6).terms(z, y)["regulariser"]
    torch.testing.assert_close(hard, square**0.5, rtol=1e-6, atol=0)


@pytest.mark.parametrize("reading", ["binned", "labels", "esd"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_soft_ece_of_a_saturated_batch_that_is_all_right_has_no_gradient(reading, dtype):
    z, y = 1e3 * torch.eye(4, dtype=dtype), torch.arange(4)
    loss = L.SoftECE(reading=reading)
    assert loss(z, y) == 0
    assert (gradient(loss, z, y) == 0).all()
    assert (formula_gradient(loss, z, y) == 0).all()


def esd_of(confidence, right):
    """The released code's steps, one by one, on confidences alone."""
    n = len(confidence)
    values = (right - confidence).view(1, n).expand(n, n)
    below = (confidence.view(1, n) <= confidence.view(n, 1)).double()
    others = 1 - torch.eye(n, dtype=torch.float64)
    g = values * below * others
    mean = g.sum(1) / (n - 1)
    variance = g.square().sum(1) / (n - 2) - (n - 1) / (n - 2) * mean.square()
    return (mean.square() - variance / (n - 1)).sum() / n


@pytest.mark.parametrize("size", [3, 4, 40])
def test_esd_with_tied_confidences_as_it_was_released(size):
    generator = torch.Generator().manual_seed(size)
    r = torch.randint(1, 8, (size,), generator=generator).double() / 8
    right = torch.randint(0, 2, (size,), generator=generator).double()
    leaf = r.clone().requires_grad_()
    expected = esd_of(leaf, right)
    value, slope = L.ESD().penalty(r, right.bool())
    assert value.item() == pytest.approx(expected.item(), rel=1e-12, abs=1e-16)
    torch.testing.assert_close(slope, torch.autograd.grad(expected, leaf)[0], rtol=1e-11, atol=1e-15)


def test_esd_by_hand_may_be_negative_and_leaves_the_sample_itself_out():
    """Three samples: for the surest the others' errors 0.5 and -0.5, for the rest no pair: E = 2 (0.5 * -0.5) / 6."""
    value, slope = L.ESD().penalty(torch.tensor([0.5, 0.6, 0.9]).double(), torch.tensor([True, False, True]))
    assert value.item() == pytest.approx(2 * 0.5 * -0.6 / 6)
    assert slope.tolist() == pytest.approx([2 * 0.6 / 6, -2 * 0.5 / 6, 0.0])


def test_esd_of_fewer_than_three_samples_is_cross_entropy_and_has_no_lens():
    z, y = batch(4, 5)
    marked = torch.where(torch.arange(4) < 2, y, -100)
    for logits, labels in ((z[:1], y[:1]), (z[:2], y[:2]), (z, marked)):
        loss = L.ESD(strength=7.0)
        torch.testing.assert_close(loss(logits, labels), L.CrossEntropy()(logits, labels), rtol=1e-14, atol=0)
        torch.testing.assert_close(gradient(loss, logits, labels), gradient(L.CrossEntropy(), logits, labels))
        with pytest.raises(ValueError, match=facts("ESD", "3", str(min(2, len(logits))))):
            lens(loss, logits, labels)
    assert lens(L.ESD(), z[:3], y[:3]).active.any()


def test_esd_needs_memory_linear_in_the_samples():
    z, y = batch(3000, 3)
    leaf = z.clone().requires_grad_()
    for step in (lambda: L.ESD()(leaf, y).backward(), lambda: L.ESD(reduction="none")(leaf, y).sum().backward()):
        step()
        assert peak_bytes(step) < 100 * z.nbytes  # one array of all pairs would be 1000 times the logits


def test_a_saturated_prediction_has_no_entropy_left_to_reward():
    z, y = torch.tensor([[1e4, 0.0, 0.0]], requires_grad=True), torch.tensor([0])
    loss = L.ConfidencePenalty(strength=1.0)(z, y)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(z.grad, torch.zeros(1, 3))


@pytest.mark.parametrize("offset", [0.0, 1.0, 3.0, 1e3])
@pytest.mark.parametrize(("classes", "gamma"), [(5, 3.0), (5, 2.0), (2, 2.0)])
@pytest.mark.parametrize("variant", ["released", "paper"])
def test_flsd_at_exact_thresholds(offset, classes, gamma, variant):
    """Equal logits put p exactly on 0.2 or 0.5, which belongs to the range above; an offset changes nothing."""
    z, y = torch.full((3, classes), offset, dtype=torch.float64), torch.arange(3) % classes
    exponent = 3.0 if (classes == 5 and variant == "released") else gamma
    expected = (1 - 1 / classes) ** exponent * math.log(classes)
    loss = L.FLSD(gamma, variant)
    assert loss(z, y).item() == pytest.approx(expected, rel=1e-14)
    assert loss(z.clone().requires_grad_(), y).item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("alpha", [1e-10, 1e-3, 0.1, 0.4])
@pytest.mark.parametrize("distance", [1e-14, 1e-9, 1e-5, 1e-2])
def test_label_relaxation_keeps_its_digits_near_the_border(alpha, distance):
    """Two classes with 1 - p_y = alpha (1 + distance): KL by its Taylor series in delta, good to delta^4."""
    rest = alpha * (1 + distance)
    z = torch.tensor([[math.log1p(-rest) - math.log(rest), 0.0]], dtype=torch.float64)
    rest = float(torch.sigmoid(-z[0, 0]))  # what the rounded logit really says
    delta = rest - alpha
    series = sum(delta**k / k * ((1 - alpha) ** (1 - k) - (-1) ** (k + 1) * alpha ** (1 - k)) for k in range(2, 9))
    value = L.LabelRelaxation(alpha)(z.clone().requires_grad_(), torch.tensor([0])).item()
    if delta > 1e-15 * alpha:
        # delta itself carries the rounding of the logit's sigmoid, a few ulp of alpha.
        slack = 8e-16 * alpha / delta
        assert value == pytest.approx(series, rel=2 * slack + 1e-9, abs=1e-300)
    slope = gradient(L.LabelRelaxation(alpha), z, torch.tensor([0]))
    assert slope[0, 0].item() == pytest.approx(-max(delta, 0.0), rel=1e-9, abs=4e-16 * alpha)


def test_label_relaxation_with_vanishing_probability():
    # p_y = e^-2000 underflows; the loss is (1-a)(log(1-a) + 2000) + a log a to all digits.
    z, y, a = torch.tensor([[-2000.0, 0.0, -900.0]], dtype=torch.float64), torch.tensor([0]), 0.1
    expected = (1 - a) * (math.log(1 - a) + 2000) + a * math.log(a)
    assert L.LabelRelaxation(a)(z.clone().requires_grad_(), y).item() == pytest.approx(expected, rel=1e-15)
    torch.testing.assert_close(gradient(L.LabelRelaxation(a), z, y)[0, :2], z.new_tensor([-0.9, 0.9]))


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


@pytest.mark.parametrize("variant", ["released", "paper"])
def test_deep_gamblers_in_logarithms(variant):
    """p_y = e^-2000 and e^-900 reserved: the loss is 900 + log o, by the paper's variant log o less."""
    z, y = torch.tensor([[-2000.0, 0.0, -900.0]], dtype=torch.float64), torch.tensor([0])
    offset = math.log(3.0) if variant == "released" else 0.0
    loss = L.DeepGamblers(3.0, variant=variant)
    assert loss(z.clone().requires_grad_(), y).item() == pytest.approx(900 + offset, rel=1e-15)
    assert loss(z, y).item() == pytest.approx(900 + offset, rel=1e-15)
    torch.testing.assert_close(gradient(loss, z, y), z.new_tensor([[0.0, 1.0, -1.0]]))


def test_deep_gamblers_bets_where_the_payoff_is_worth_it():
    """The gradient with respect to the probabilities: at p_y = 1 and nothing reserved, log 1; else by hand."""
    z = torch.tensor([[math.log(0.5), math.log(0.2), math.log(0.3)]], dtype=torch.float64)
    loss = L.DeepGamblers(payoff=1.5)
    assert loss(z, torch.tensor([1])).item() == pytest.approx(-math.log(0.2 + 0.3 / 1.5))
    seen = lens(loss, z, torch.tensor([1]))
    torch.testing.assert_close(seen.effective, z.new_tensor([[0.0, 0.5, 0.5]]))  # 1.5 * 0.2 against 0.3
    assert loss(torch.tensor([[0.0, 800.0, 0.0]], dtype=torch.float64), torch.tensor([1])).item() == 0.0
    with pytest.raises(ValueError, match=facts("DeepGamblers", "1", "2")):
        loss(z, torch.tensor([2]))  # the last logit is no class
    with pytest.raises(ValueError, match=facts("DeepGamblers", "abstaining", "[1, 2]")):
        loss(z[:, :2], torch.tensor([0]))
    weight = torch.tensor([1.0, 3.0], dtype=torch.float64)
    weighted = L.DeepGamblers(1.5, weight=weight, reduction="sum")(z, torch.tensor([1]))
    torch.testing.assert_close(weighted, 3 * loss(z, torch.tensor([1])))


def test_deep_gamblers_pretrains_without_the_logit_of_abstaining():
    z, y = batch(9, 5)
    y = y % 4
    loss = L.DeepGamblers(pretraining=2, reduction="sum")
    for _ in range(2):
        torch.testing.assert_close(loss(z, y), L.CrossEntropy(reduction="sum")(z[:, :4], y), rtol=1e-13, atol=0)
        slope = gradient(loss, z, y)
        assert (slope[:, 4] == 0).all()
        torch.testing.assert_close(slope[:, :4], gradient(L.CrossEntropy(reduction="sum"), z[:, :4], y))
        loss.end_epoch()
    torch.testing.assert_close(loss(z, y), L.DeepGamblers(reduction="sum")(z, y), rtol=1e-13, atol=0)
    resumed = L.DeepGamblers(pretraining=2)
    resumed.load_state_dict(loss.state_dict())
    assert resumed(z, y) == L.DeepGamblers()(z, y)


#: As the papers and their code set them; what was published with other values names them itself.
DEFAULTS = {
    "acls": {"margin": 10, "lambda1": 0.1, "lambda2": 0.01},
    "mbls": {"margin": 10, "strength": 0.1},
    "calsalm": {
        "margin": 10,
        "lambda_min": 1e-6,
        "lambda_max": 1e6,
        "rho": 1,
        "rho_max": 10,
        "rho_step": 10,
        "gamma": 1.2,
        "tau": 0.9,
        "variant": "released",
    },
    "flsd": {"gamma": 3},
    "focal": {"gamma": 3},
    "dual_focal": {"gamma": 5},
    "adafocal": {
        "gamma": 1,
        "rate": 1,
        "bins": 15,
        "gamma_min": -2,
        "gamma_max": 20,
        "switch": 0.2,
        "variant": "released",
    },
    "brier": {"scale": "sum"},
    "mmce": {"strength": 1, "kernel_width": 0.4, "weighted": True},
    "soft_ece": {"strength": 1, "bins": 15, "temperature": 0.01, "reading": "binned"},
    "esd": {"strength": 1},
    "sat": {"momentum": 0.9, "start": 60, "selective": False},
    "deep_gamblers": {"payoff": 2.2, "pretraining": 0, "variant": "released"},
    "ecp": {"strength": 0.1},
    "mdca": {"strength": 1, "base": "ce"},
    "cpc": {"lambda1": 0.1, "lambda2": 1.0},
    "crl": {"strength": 1, "score": "msp", "margin": 10},
    "lr": {"alpha": 0.1},
    "ls": {"alpha": 0.05, "spread": "all"},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_of_the_papers(name):
    loss = L.get(name)
    assert {part: getattr(loss, part) for part in DEFAULTS[name]} == DEFAULTS[name]
