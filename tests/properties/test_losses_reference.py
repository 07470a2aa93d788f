"""Every loss against its slow NumPy version, and its closed form against autograd."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from calibrant import losses as L
from tests.helpers.loss_cases import CASES, batch, formula_gradient, gradient


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_value_and_gradient_match_the_numpy_reference(case, seed):
    z, y = batch(seed=seed)
    terms, extra = case.reference_terms(z, y), case.extra()
    for name, value in case.make().terms(z, y, **extra).items():
        assert value.item() == pytest.approx(terms[name].mean(), rel=1e-12, abs=1e-13), name
    total = terms["fidelity"] + terms["regulariser"]
    assert case.make()(z.clone().requires_grad_(), y, **extra).item() == pytest.approx(total.mean(), rel=1e-12)
    np.testing.assert_allclose(case.make(reduction="none")(z, y, **extra).numpy(), total, rtol=1e-11, atol=1e-13)
    slope = gradient(case.make(reduction="sum"), z, y, **extra).numpy()
    np.testing.assert_allclose(slope, case.reference_gradient(z, y), rtol=0, atol=2e-7)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("scale", [0.1, 1.0, 6.0, 40.0])
def test_closed_form_equals_autograd_of_the_formula(case, scale):
    for seed in range(4):
        z, y = batch(seed=seed, scale=scale)
        loss, extra = case.make(), case.extra()
        torch.testing.assert_close(
            gradient(loss, z, y, **extra), formula_gradient(loss, z, y, **extra), rtol=1e-9, atol=1e-14
        )
        with_grad, without = loss(z.clone().requires_grad_(), y, **extra), loss(z, y, **extra)
        torch.testing.assert_close(with_grad.detach(), without, rtol=1e-12, atol=1e-14)


def test_every_method_is_in_the_catalogue_with_every_variant():
    for name in L.names():
        method = L.describe(name)
        mine = [c for c in CASES if c.loss is method.loss]
        assert mine, f"{name} is in no case of tests/catalogue.py"
        if "variant" in method.defaults():
            others = {"lr"} if name == "ecp" else set()  # LR's published baseline has the entropy's sign flipped
            assert {c.parameters["variant"] for c in mine} == {"released", "paper"} | others, name


@pytest.mark.parametrize("case", [c for c in CASES if c.shift_invariant], ids=str)
def test_a_common_offset_costs_no_digits_in_float32(case):
    z, y = batch(scale=3.0)
    z = (256 * z).round() / 256  # exact in float32 with the offset added, too
    expected = case.make()(z, y, **case.extra())
    far = (z + 8192.0).float()
    assert torch.equal(far.double() - 8192.0, z)
    for leaf in (far, far.clone().requires_grad_()):
        value = case.make()(leaf, y, **case.extra()).double().detach()
        torch.testing.assert_close(value, expected, rtol=2e-6, atol=2e-6)


def test_hard_labels_as_one_hot_rows_give_the_same_loss():
    z, y = batch()
    soft = F.one_hot(y, z.shape[1]).double()
    for case in CASES:
        if case.loss.method.soft and not case.remembers:
            for loss in (case.make(), case.make(reduction="sum")):
                leaf = z.clone().requires_grad_()
                torch.testing.assert_close(loss(leaf, soft), loss(leaf, y), rtol=1e-10, atol=1e-12, msg=str(case))
                torch.testing.assert_close(
                    gradient(loss, z, soft), gradient(loss, z, y), rtol=1e-8, atol=1e-12, msg=str(case)
                )
