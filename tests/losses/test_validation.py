"""Losses that learn from validation data after each epoch: CALS's multipliers."""

import numpy as np
import pytest
import torch

from calibrant import losses as L
from tests.helpers.errors import facts
from tests.helpers.loss_cases import batch, gradient
from tests.reference import losses as R


def test_losses_that_learn_from_validation_data_say_so():
    learning = {name for name in L.names() if L.get(name).learns_from_validation}
    assert learning == {"calsalm"}
    with pytest.raises(TypeError, match=facts("CrossEntropy")):
        L.CrossEntropy().observe(*batch())


@pytest.mark.parametrize("variant", ["released", "paper"])
def test_multipliers_of_cals_follow_the_reference_over_epochs(variant):
    """Five epochs with a renewal of the penalties every second one; each in two batches, one label ignored."""
    settings = {"margin": 3.0, "lambda_min": 0.2, "lambda_max": 4.0, "rho": 1.0}
    loss = L.CALS(**settings, rho_max=1.5, rho_step=2, gamma=1.3, tau=0.8, variant=variant)
    multipliers, penalties, before = [0.2] * 4, [1.0] * 4, None
    for epoch, scale in enumerate((1.0, 3.0, 4.0, 3.0, 1.0)):
        z, y = batch(9, 4, seed=epoch, scale=scale)
        y[5] = -100
        loss.end_epoch(torch.cat([loss.observe(z[:4], y[:4]), loss.observe(z[4:], y[4:])]))
        counted = [i for i in range(9) if i != 5]
        h = np.array([[(float(z[i].max()) - float(z[i, k])) / 3.0 - 1.0 for k in range(4)] for i in counted])
        for k in range(4):
            slopes = [R.augmented(float(v), penalties[k], multipliers[k])[1] for v in h[:, k]]
            if variant == "released":
                slopes = [min(max(slope, 0.2), 4.0) for slope in slopes]
            multipliers[k] = min(max(sum(slopes) / len(slopes), 0.2), 4.0)
        now = h.mean(0)
        if (epoch + 1) % 2 == 0 and before is not None:
            for k in range(4):
                if now[k] > 0.8 * max(0.0, before[k]):
                    penalties[k] = min(1.3 * penalties[k], 1.5)
        before = now
        assert loss.multipliers.tolist() == pytest.approx(multipliers, rel=1e-12)
        assert loss.penalties.tolist() == pytest.approx(penalties, rel=1e-12)
    assert len({round(value, 6) for value in penalties}) > 1
    assert 0.2 < max(multipliers) < 4.0
    z, y = batch(7, 4, seed=9)
    learned = {"multipliers": multipliers, "penalties": penalties}
    terms = R.cals(z.numpy(), y.numpy(), margin=3.0, variant=variant, **learned)
    assert loss.terms(z, y)["regulariser"].item() == pytest.approx(terms["regulariser"].mean(), rel=1e-12)


def test_cals_cuts_the_slope_of_each_sample_where_it_was_released():
    """By hand: margin 1, a class 3 below one prediction and 0.5 below the other: h = 2, -0.5; P' = 2 + l, 0."""
    z, y = torch.tensor([[3.0, 0.0], [0.5, 0.0]], dtype=torch.float64), torch.tensor([0, 0])
    for variant, expected in (("released", (2.25 + 0.25) / 2), ("paper", 2.25 / 2)):
        loss = L.CALS(margin=1.0, lambda_min=0.25, variant=variant)
        loss.end_epoch(loss.observe(z, y))
        assert loss.multipliers[1] == pytest.approx(expected)


def test_what_cals_has_learned_is_saved_and_fits_its_classes_only():
    z, y = batch(9, 4)
    loss = L.CALS(margin=3.0)
    plain = loss(z, y)
    loss.end_epoch(loss.observe(z, y))
    assert loss(z, y) != plain
    resumed = L.CALS(margin=3.0)
    resumed.load_state_dict(loss.state_dict())
    assert torch.equal(gradient(resumed, z, y), gradient(loss, z, y))
    with pytest.raises(ValueError, match=facts("CALS", "4", "5")):
        loss(*batch(7, 5))


def test_an_epoch_without_validation_data_leaves_cals_as_it_was():
    z, y = batch(9, 4)
    loss = L.CALS(margin=3.0, rho_step=1)
    loss.end_epoch(loss.observe(z, y))
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    loss.end_epoch()
    loss.end_epoch(loss.observe(z, torch.full_like(y, -100)))  # none that counts
    changed = {name for name, value in loss.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"epochs"}


def test_segmentation_gives_the_same_rows_as_its_pixels():
    z, y = batch(24, 4)
    y[3] = 255
    loss = L.CALS(margin=3.0, ignore_index=255)
    image = z.view(2, 3, 4, 4).permute(0, 3, 1, 2).contiguous()
    torch.testing.assert_close(loss.observe(image, y.view(2, 3, 4)), loss.observe(z, y))
