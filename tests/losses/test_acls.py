"""ACLS by hand, at ties and margins, and its ablations against autograd."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from calibrant import losses as L
from tests.helpers.loss_cases import COUNTS, batch, formula_gradient, gradient

ABLATIONS = [
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
    if loss.history is not None:
        loss.history.counts, loss.history.epochs = torch.tensor(COUNTS), torch.tensor(5)
        extra = {"ids": torch.arange(7)}
    for seed in range(8):
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


def _literal_mbls(z, margin=4.0, strength=0.1):
    top = z.max(dim=1, keepdim=True).values.expand_as(z)
    return strength * torch.relu(top - z - margin).mean()


@pytest.mark.parametrize(
    ("loss", "literal"),
    [(L.ACLS(margin=4.0), _literal_acls), (L.MbLS(margin=4.0), _literal_mbls)],
    ids=["acls", "mbls"],
)
def test_released_variants_at_ties_and_exact_margins(loss, literal):
    z = torch.tensor(
        [
            [9.0, 9.0, 1.0, 5.0],
            [4.0, 0.0, 0.0, 4.0],
            [7.0, 3.0, 2.9999999, 7.0],
            [1.0, 1.0, 1.0, 1.0],
            [8.0, 4.0, 4.0, 0.0],
        ],
        dtype=torch.float64,
    )
    y = torch.tensor([0, 3, 1, 2, 0])
    leaf = z.clone().requires_grad_()
    expected = F.cross_entropy(leaf, y) + literal(leaf)
    (slope,) = torch.autograd.grad(expected, leaf)
    assert loss(z.clone().requires_grad_(), y).item() == pytest.approx(expected.item(), rel=1e-13)
    torch.testing.assert_close(gradient(loss, z, y), slope, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(formula_gradient(loss, z, y), slope, rtol=1e-12, atol=1e-15)


def test_acls_by_hand():
    # z = (15, 3, 6), M = 10: released 0.1 (15-10)^2 + 0.01/2 (15-3-10)^2 = 2.52;
    # paper 0.1 (15-3-10)^2 + 0.01 (15-3-10)^2 = 0.44; Eq. 12: 0.1*2 at yhat, -0.01*2 at j.
    z, y = torch.tensor([[15.0, 3.0, 6.0]], dtype=torch.float64), torch.tensor([0])
    assert L.ACLS().terms(z, y)["regulariser"].item() == pytest.approx(2.52, abs=1e-12)
    assert L.ACLS(variant="paper").terms(z, y)["regulariser"].item() == pytest.approx(0.44, abs=1e-12)
    slope = gradient(L.ACLS(variant="paper", gradient="eq12"), z, y) - gradient(L.CrossEntropy(), z, y)
    torch.testing.assert_close(slope, torch.tensor([[0.2, -0.02, 0.0]], dtype=torch.float64), atol=1e-14, rtol=0)
    slope = gradient(L.ACLS(variant="paper"), z, y) - gradient(L.CrossEntropy(), z, y)
    torch.testing.assert_close(slope, torch.tensor([[0.44, -0.44, 0.0]], dtype=torch.float64), atol=1e-14, rtol=0)


def test_paper_variant_takes_the_first_of_tied_extremes():
    z, y = torch.tensor([[9.0, 1.0, 9.0, 1.0]], dtype=torch.float64), torch.tensor([0])
    loss = L.ACLS(margin=4.0, variant="paper")
    slope = gradient(loss, z, y) - gradient(L.CrossEntropy(), z, y)
    # relu = 4: 2*0.1*4 at the first maximum and minimum, 2*0.01*4 for each of the two small ones.
    torch.testing.assert_close(
        slope, torch.tensor([[0.96, -0.88, 0.0, -0.08]], dtype=torch.float64), atol=1e-14, rtol=0
    )
    torch.testing.assert_close(gradient(loss, z, y), formula_gradient(loss, z, y), atol=1e-14, rtol=0)


rows = st.lists(st.floats(-30, 30), min_size=2, max_size=12).map(lambda v: torch.tensor([v], dtype=torch.float64))


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


def test_acls_with_the_ranking_condition():
    """Where a neighbour is ranked the wrong way round the squares act without relu; elsewhere nothing does."""
    z, y = batch()
    loss = L.ACLS(margin=4.0, indicator="ranking")
    loss.history.counts, loss.history.epochs = torch.tensor(COUNTS), loss.history.epochs + 5
    ids = torch.arange(7)
    c, k = torch.tensor(COUNTS) / 5, z.softmax(1).amax(1)
    wrong = (c - c.roll(-1)) * (k - k.roll(-1)) < 0
    assert 0 < wrong.sum() < 7
    free = L.ACLS(margin=4.0, indicator="none", reduction="none").terms(z, y)["regulariser"]
    mine = loss.terms(z, y, ids=ids)["regulariser"]
    torch.testing.assert_close(mine, torch.where(wrong, free, 0.0).mean())
