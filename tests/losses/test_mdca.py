"""MDCA by hand: the gap of mean probability and frequency of each class."""

import math

import pytest
import torch

from calibrant.losses import MDCA, Focal, LabelSmoothing


def test_two_samples_by_hand():
    # Probabilities (3/4, 1/4) twice, labels 0 and 1: mean (3/4, 1/4) against (1/2, 1/2), so 1/4 + 1/4.
    z, y = torch.tensor([[math.log(3.0), 0.0]] * 2, dtype=torch.float64), torch.tensor([0, 1])
    assert MDCA(variant="paper").terms(z, y)["regulariser"].item() == pytest.approx(0.5, rel=1e-14)
    assert MDCA(variant="released").terms(z, y)["regulariser"].item() == pytest.approx(0.25, rel=1e-14)


def test_its_base_may_be_another_loss():
    z, y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 4
    for base, plain in (("focal", Focal(2.0)), ("ls", LabelSmoothing(0.1))):
        loss = MDCA(base=base, gamma=2.0, alpha=0.1)
        torch.testing.assert_close(loss.terms(z, y)["fidelity"], plain(z, y))
