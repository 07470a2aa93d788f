"""Confidence penalty by hand and at its limits."""

import math

import pytest
import torch

from calibrant.losses import ConfidencePenalty


def test_the_penalty_of_a_fair_coin_is_its_entropy():
    z, y = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0])
    terms = ConfidencePenalty(strength=0.3).terms(z, y)
    assert terms["regulariser"].item() == pytest.approx(-0.3 * math.log(2), abs=1e-15)
    assert terms["fidelity"].item() == pytest.approx(math.log(2), abs=1e-15)


def test_released_divides_the_entropy_by_the_number_of_classes():
    z, y = torch.tensor([[1.0, -2.0, 0.5, 3.0]], dtype=torch.float64), torch.tensor([3])
    paper, released = (ConfidencePenalty(0.3, v).terms(z, y)["regulariser"] for v in ("paper", "released"))
    assert paper.item() == pytest.approx(4 * released.item(), rel=1e-14)


def test_a_saturated_prediction_has_no_entropy_left_to_reward():
    z, y = torch.tensor([[1e4, 0.0, 0.0]], requires_grad=True), torch.tensor([0])
    loss = ConfidencePenalty(strength=1.0)(z, y)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(z.grad, torch.zeros(1, 3))


def test_the_sign_of_lr_is_flipped_and_makes_predictions_surer():
    z, y = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64, requires_grad=True), torch.tensor([0])
    paper, flipped = (ConfidencePenalty(0.3, v).terms(z, y)["regulariser"] for v in ("paper", "lr"))
    assert flipped.item() == -paper.item()
    (gradient,) = torch.autograd.grad(flipped, z)
    assert gradient[0, 0].item() < 0  # a step against it raises the largest logit
