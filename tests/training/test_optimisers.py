"""Optimisers and schedules against torch's own."""

import pytest
import torch
from torch import nn

from calibrant.training.optimisers import OptimiserSettings, Schedule, climb_weights
from tests.helpers.errors import facts


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        (Schedule(name="multistep", milestones=[3, 7], gamma=0.2),
         lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [3, 7], 0.2)),
        (Schedule(name="step", every=4, gamma=0.5), lambda o: torch.optim.lr_scheduler.StepLR(o, 4, 0.5)),
        (Schedule(name="cosine"), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10)),
        (Schedule(name="poly", power=0.9), lambda o: torch.optim.lr_scheduler.PolynomialLR(o, 10, 0.9)),
    ],
    ids=["multistep", "step", "cosine", "poly"],
)  # fmt: skip
def test_schedules_are_those_of_torch(schedule, theirs):
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = theirs(optimiser)
    for epoch in range(10):
        assert schedule.factor(epoch, 10) == pytest.approx(optimiser.param_groups[0]["lr"], abs=1e-12)
        optimiser.step()
        scheduler.step()


def test_warm_up_is_linear():
    schedule = Schedule(name="cosine", warmup=2, warmup_start=0.1)
    assert [schedule.factor(e, 12) for e in (0, 1, 2)] == pytest.approx([0.1, 0.55, 1.0])
    assert schedule.factor(7, 12) == pytest.approx(0.5)


def test_groups_have_their_own_rates():
    model = nn.ModuleDict({"backbone": nn.Linear(2, 3), "head": nn.Linear(3, 2)})
    settings = OptimiserSettings(rate=0.5, rates={"backbone": 0.1}, weight_decay=0.01, decay_matrices_only=True)
    groups = {
        (g["lr"], g["weight_decay"]): sum(p.numel() for p in g["params"]) for g in settings.build(model).param_groups
    }
    assert groups == {(0.05, 0.01): 6, (0.05, 0.0): 3, (0.5, 0.01): 6, (0.5, 0.0): 2}
    with pytest.raises(ValueError, match=facts("bakbone")):
        OptimiserSettings(rates={"bakbone": 0.1}).build(model)


def test_sharpness_aware_steps_by_hand():
    """On f(w) = w.A.w / 2 the gradient at w + rho g / |g| is A (w + rho A w / |A w|)."""
    A = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    w = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    start = w.detach().clone()
    (w @ A @ w / 2).backward()
    with climb_weights([w], rho=0.3):
        w.grad = None
        (w @ A @ w / 2).backward()
    g = A @ start
    assert torch.allclose(w.grad, A @ (start + 0.3 * g / g.norm()), atol=1e-12)
    assert torch.equal(w.detach(), start)


def test_the_rate_falls_with_every_step_as_in_keras():
    schedule = Schedule(name="multistep", milestones=[2], gamma=0.1, decay=1e-2)
    assert schedule.factor(1.0, 4, step=100) == pytest.approx(1 / (1 + 1e-2 * 100))
    assert schedule.factor(3.0, 4, step=300) == pytest.approx(0.1 / (1 + 1e-2 * 300))
