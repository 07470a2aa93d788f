"""Which calibrator and score a fit chooses, by what evidence."""

import numpy as np
import pytest
import torch

from calibrant import Policy, Predictions
from calibrant.policy.selection import CALIBRATORS_TRIED, ORDER_KEEPING
from calibrant.posthoc.scores import Score
from tests.helpers.policies import drawn, smoothed


@pytest.mark.slow
def test_logit_normalisation_is_chosen_where_it_helps():
    found = Policy.fit(Predictions.from_logits(*smoothed(6000)), 0.1, calibrator="none")
    assert found.score.name == "normalised_max_logit"
    rows = {row["name"]: row for row in found.evidence["scores"]}
    chosen = next(row for row in rows.values() if row["chosen"])
    assert chosen["high"] < 0
    assert chosen["value"] < rows["msp"]["value"]


@pytest.mark.slow
def test_plain_msp_remains_when_nothing_helps():
    """Logits that are true: no calibrator and no score has anything to add."""
    kept = 0
    for seed in range(8):
        found = Policy.fit(Predictions.from_logits(*drawn(1500, seed=seed, scale=1.0)), 0.2)
        kept += found.calibrator is None and found.score == Score()
    assert kept >= 7


def test_few_samples_choose_nothing():
    found = Policy.fit(Predictions.from_logits(*drawn(100)), 0.3)
    assert found.calibrator is None
    assert found.score == Score()
    assert found.evidence["for_choice"] == 0
    assert found.threshold.samples == 100


def test_the_calibrators_of_few_samples_change_no_answer():
    z, y = drawn(300)
    kept = {name for name, make in CALIBRATORS_TRIED.items() if make().fit(z, y).keeps_order}
    assert kept == set(ORDER_KEEPING)


SCALES = {
    "msp": 1.0,
    "max_logit": 1e-30,
    "margin": 1e30,
    "negative_entropy": 1.0,
    "energy": 1e30,
    "normalised_max_logit": 1e-30,
}


@pytest.mark.parametrize("calibrator", ["none", "temperature", "ensemble", "isotonic", "vector"])
@pytest.mark.parametrize("score", SCALES)
def test_a_choice_can_be_made_by_name(calibrator, score, tmp_path):
    """And is read back, whatever the scale of the logits."""
    z, y = drawn(700, classes=5, scale=2.0 * SCALES[score])
    found = Policy.fit(Predictions.from_logits(z, y), 0.2, calibrator=calibrator, score=score)
    assert (found.calibrator.name if found.calibrator else "none") == calibrator
    assert found.score.name == score
    found.save(tmp_path / "p.json")
    again = Policy.load(tmp_path / "p.json")
    for a, b in zip(found.decide(z), again.decide(z), strict=True):
        assert (a == b).all()
    assert again.summary == found.summary
    module = found.module()(torch.from_numpy(z))
    assert (module.accept.numpy() == found.decide(z).accept).all()
    assert (module.label.numpy() == found.decide(z).labels).all()
    assert np.isfinite(found.decide(1e4 * np.eye(5)).confidence).all()


@pytest.mark.slow
def test_a_poor_model_is_repaired_on_few_samples():
    """A fifth of 400 samples: too few to show with 95% confidence that a temperature helps, and it does help."""
    seeds = range(8)
    fits = [Policy.fit(Predictions.from_logits(*drawn(400, seed=seed, scale=1.6)), 0.2) for seed in seeds]
    assert sum(policy.calibrator is not None for policy in fits) >= 6
    rows = [policy.evidence["calibrators"] for policy in fits]
    assert any(
        row["chosen"] and row["change"] + 2.5 * (row["high"] - row["change"]) > 0 for own in rows for row in own[1:]
    )


@pytest.mark.slow
def test_a_later_calibrator_must_win_by_its_standard_error():
    """The choice follows from the printed rows: each is compared with the best before it."""
    for seed in range(3):
        policy = Policy.fit(Predictions.from_logits(*drawn(600, seed=seed, scale=1.3)), 0.2)
        best = "none"
        for row in policy.evidence["calibrators"][1:]:
            assert row["against"] == best
            assert row["high"] - row["change"] == pytest.approx(row["change"] - row["low"])
            best = row["name"] if row["high"] < 0 else best
        assert best == (policy.calibrator.name if policy.calibrator else "none")
