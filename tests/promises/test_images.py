"""Thresholds over images: the test's level, policies of masks."""

import numpy as np
import pytest
import torch

from benchmarks.guarantee import by
from calibrant import Policy, Predictions
from calibrant.promises.images import can_show_risk
from tests.helpers.policies import masks


@pytest.mark.slow
def test_masks_are_guaranteed_over_images(tmp_path):
    z, y = masks(600)
    data = Predictions.from_logits(z, y, kind="segmentation", ignore_index=255)
    found = Policy.fit(data, 0.2)
    assert found.threshold.method == "fixed-sequence over images"
    assert found.threshold.samples == found.evidence["for_threshold"] * 25
    assert not found.abstains
    fresh, truth = masks(400, seed=1)
    labels, confidence, accept = found.decide(fresh)
    assert labels.shape == confidence.shape == accept.shape == truth.shape
    assert (labels != truth)[accept & (truth != 255)].mean() <= 0.2
    found.save(tmp_path / "p.json")
    assert (Policy.load(tmp_path / "p.json").decide(fresh).accept == accept).all()
    module = found.module()(torch.from_numpy(fresh))
    assert (module.accept.numpy() == accept).all()
    assert module.probabilities.shape == fresh.shape
    few = Policy.fit(Predictions.from_logits(z[:20], y[:20], kind="segmentation", ignore_index=255), 0.2)
    assert few.abstains
    assert "images are needed" in few.summary
    assert few.threshold.menu[0].risk > 0.2
    assert "so fit again on fresh images" in few.summary
    with pytest.raises(ValueError, match="sgr assumes independent"):
        Policy.fit(data, 0.2, method="sgr")
    assert Policy.fit(data, 0.2, method="empirical").threshold.confidence is None


def test_masks_are_planned_also_where_nothing_is_chosen():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((120, 3, 4, 4))
    data = Predictions.from_logits(z, z.argmax(1), kind="segmentation")
    for settings in ({}, {"calibrator": "none", "score": "msp"}):
        found = Policy.fit(data, 0.2, **settings)
        assert found.threshold.coverage.value == 1
        assert found.evidence["for_choice"] > 0
    covered = Policy.fit(data, target_coverage=0.5)
    assert covered.threshold.coverage.value == pytest.approx(0.5, abs=0.05)
    assert "none is promised" in covered.summary


DRAWS = 2000


@pytest.mark.slow
def test_images_are_the_draws_of_a_mask():
    """Pixels of an image are wrong together: the test over images holds, one that counts pixels does not."""
    rng = np.random.default_rng(5)
    broken = np.zeros(2)
    for _ in range(DRAWS):
        wrong = rng.binomial(50, rng.beta(0.05, 0.45, size=120)) / 50  # a tenth on average, image by image
        gained = can_show_risk(np.ones((120, 1)), wrong[:, None], 0.0999, 0.1)
        pixels = by("sgr")(np.zeros(6000), np.arange(6000) >= round(50 * wrong.sum()), 0.0999, 0.9)
        broken += bool(gained[0]), pixels < np.inf
    assert broken[0] / DRAWS <= 0.1 + 3 * np.sqrt(0.09 / DRAWS)
    assert broken[1] / DRAWS > 0.2


@pytest.mark.slow
def test_masks_of_which_little_counts():
    """Most images have one labelled pixel, right; a rare one is labelled all over, and wrong: the risk is a fifth."""

    def drawn(rng, images):
        z = rng.standard_normal((images, 2, 8, 8))
        predicted = z.argmax(1)
        y = np.full((images, 8, 8), 255)
        y[:, 0, 0] = predicted[:, 0, 0]
        big = rng.random(images) < 1 / 250
        y[big] = 1 - predicted[big]
        return Predictions.from_logits(z, y, kind="segmentation", ignore_index=255)

    answered = [not Policy.fit(drawn(np.random.default_rng(s), 160), 0.1, seed=s).abstains for s in range(60)]
    assert np.mean(answered) <= 0.05 + 3 * np.sqrt(0.0475 / 60)
