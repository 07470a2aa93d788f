"""MbLS Proposition 1."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrant import losses as L


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
