"""CPC: memory, two classes, fast blocks against the formula."""

import pytest
import torch

from benchmarks._harness import peak_bytes
from calibrant import lens
from calibrant import losses as L
from calibrant.losses import cpc
from tests.helpers.loss_cases import batch, formula_gradient, gradient
from tests.reference import losses as R


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


@pytest.mark.parametrize("spread", [1.0, 100.0, 400.0, 5000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cpc_fast_blocks_agree_with_the_formula_at_any_range(spread, dtype):
    z, y = batch(9, 6, scale=spread)
    loss = L.CPC(variant="paper")
    expected = formula_gradient(loss, z, y)
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 2e-5}
    torch.testing.assert_close(gradient(loss, z.to(dtype), y).double(), expected, **tolerance)
