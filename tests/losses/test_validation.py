"""Losses that learn from validation data after each epoch: CALS's multipliers, AdaFocal's gammas by bins."""

import numpy as np
import pytest
import torch

from calibrant import losses as L
from tests.helpers.errors import facts
from tests.helpers.loss_cases import batch, gradient
from tests.reference import losses as R


def test_losses_that_learn_from_validation_data_say_so():
    learning = {name for name in L.names() if L.get(name).learns_from_validation}
    assert learning == {"calsalm", "adafocal"}
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


@pytest.mark.parametrize("loss", [L.CALS(margin=3.0, rho_step=1), L.AdaFocal(bins=3)], ids=repr)
def test_an_epoch_without_validation_data_changes_nothing(loss):
    z, y = batch(9, 4)
    loss.end_epoch(loss.observe(z, y))
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    loss.end_epoch()
    loss.end_epoch(loss.observe(z, torch.full_like(y, -100)))  # none that counts
    changed = {name for name, value in loss.state_dict().items() if not torch.equal(value, before[name])}
    assert changed <= {"epochs"}


@pytest.mark.parametrize("loss", [L.CALS(margin=3.0, ignore_index=255), L.AdaFocal(ignore_index=255)], ids=repr)
def test_segmentation_gives_the_same_rows_as_its_pixels(loss):
    z, y = batch(24, 5)
    y[3] = 255
    image = z.view(2, 3, 4, 5).permute(0, 3, 1, 2).contiguous()
    torch.testing.assert_close(loss.observe(image, y.view(2, 3, 4)), loss.observe(z, y))


@pytest.mark.parametrize("variant", ["released", "paper"])
@pytest.mark.parametrize("ties", [False, True])
def test_gammas_of_adafocal_follow_the_reference_over_epochs(variant, ties):
    """Eight epochs; gammas of both signs, the switch, both bounds, and empty bins where confidences tie."""
    loss = L.AdaFocal(bins=5, rate=3.0, gamma_min=-1.5, gamma_max=1.8, switch=0.4, variant=variant)
    gammas, seen = [1.0] * 5, set()
    for epoch in range(8):
        z, _ = batch(37, 4, seed=epoch, scale=2.0)
        z = z.round() if ties else z
        luck = torch.rand(37, generator=torch.Generator().manual_seed(epoch)) < (0.9 if epoch < 4 else 0.2)
        y = torch.where(luck, z.argmax(1), (z.argmax(1) + 1) % 4)
        y[11] = -100
        rows = torch.cat([loss.observe(z[:20], y[:20]), loss.observe(z[20:], y[20:])])
        loss.end_epoch(rows)
        counted, confidence = np.arange(37) != 11, rows[:, 0].numpy()
        np.testing.assert_allclose(confidence, R.softmax(z.numpy()).max(1)[counted], rtol=1e-13)
        edges, gaps = R.equal_counts(confidence, luck.numpy()[counted], 5, variant)
        for b in range(5):
            gamma = gammas[b] * np.exp(3.0 * gaps[b] if gammas[b] > 0 else -3.0 * gaps[b])
            if abs(gamma) < 0.4:
                gamma = -0.4 if gamma > 0 else 0.4
                seen.add("switched")
            gammas[b] = min(max(gamma, -1.5), 1.8)
            seen |= {gammas[b] == -1.5 and "lowest", gammas[b] == 1.8 and "highest"}
        assert loss.gammas.tolist() == pytest.approx(gammas, rel=1e-9)
        assert loss.edges.tolist() == pytest.approx(edges, rel=1e-12)
    assert {"switched", "lowest", "highest"} <= seen
    z, y = batch(7, 4, seed=9)
    terms = R.adafocal(z.numpy(), y.numpy(), edges=edges, gammas=gammas)
    assert loss(z, y).item() == pytest.approx(terms["fidelity"].mean(), rel=1e-9)


def test_adafocal_switches_to_the_other_end_and_only_then_cuts():
    """By hand: one bin, half of the samples right at a confidence of 0.9: the gap is 0.4."""
    z = torch.tensor([[np.log(9.0), 0.0]] * 4, dtype=torch.float64)
    z += torch.linspace(0, 1e-9, 4, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.0], dtype=torch.float64)
    y = torch.tensor([0, 1, 0, 1])
    for start, rate, expected in (
        (1.0, 1.0, np.exp(0.4)),  # too sure: more focal
        (-1.0, 1.0, -np.exp(-0.4)),  # too sure: less inverse
        (-0.25, 1.0, 0.2),  # -0.168 is within the switch, and becomes 0.2
        (0.1, 1.0, -0.2),  # 0.149 too
        (15.0, 1.0, 20.0),
    ):
        loss = L.AdaFocal(start, rate=rate, bins=1, variant="paper")
        loss.end_epoch(loss.observe(z, y))
        assert loss.gammas.item() == pytest.approx(expected, rel=1e-8), start
    loss = L.AdaFocal(0.1, bins=1, gamma_min=-0.1, variant="paper")
    loss.end_epoch(loss.observe(z, y))
    assert loss.gammas.item() == -0.1


def test_adafocal_looks_samples_up_by_the_probability_of_their_label():
    loss = L.AdaFocal(bins=2, reduction="none")
    loss.gammas = torch.tensor([3.0, -1.0], dtype=torch.float64)
    p = torch.tensor([[0.8, 0.2], [0.2, 0.8], [0.5, 0.5]], dtype=torch.float64)
    value = loss(p.log(), torch.tensor([0, 0, 0]))
    expected = [-1.8 * np.log(0.8), -(0.8**3) * np.log(0.2), -1.5 * np.log(0.5)]  # 0.5 begins the upper bin
    assert value.tolist() == pytest.approx(expected, rel=1e-12)
