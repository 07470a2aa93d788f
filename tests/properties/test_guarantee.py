"""The guarantee by simulation: 2000 data sets for every setting, populations whose true risk is an integral."""

import numpy as np
import pytest

from benchmarks.guarantee import METHODS, Outcome, Setting, by, clairvoyant, simulate
from calibrant import Policy, Predictions
from calibrant.promises import threshold_for_coverage, thresholds

DRAWS = 2000


GUARANTEED = {name: METHODS[name] for name in ("fixed-sequence", "sgr", "planned")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [
        Setting("flat", "continuous", 400, 0.1, 0.9),
        Setting("flat", "saturated", 300, 0.1, 0.9),
        Setting("edge", "ten values", 300, 0.2, 0.8),
        Setting("rising", "continuous", 200, 0.1, 0.8),
        Setting("wavy", "ten values", 500, 0.2, 0.9),
    ],
    ids=str,
)
def test_violations_are_as_rare_as_promised(setting, monkeypatch):
    # What is said where nothing is accepted takes longer than the thresholds, and is tested elsewhere.
    monkeypatch.setattr(thresholds, "_explain_abstention", lambda *_: ("Always abstains.", None))
    for name, outcome in simulate(setting, GUARANTEED, DRAWS, seed=20261116).items():
        assert outcome.holds(setting.confidence), (name, outcome)


def test_the_simulation_notices_a_threshold_without_a_guarantee():
    setting = Setting("rising", "continuous", 400, 0.1, 0.9)
    assert not simulate(setting, {"empirical": by("empirical")}, 300, seed=1)["empirical"].holds(0.9)
    assert Outcome(2000, 0.11, 0.5, 0).holds(0.9)
    assert not Outcome(2000, 0.13, 0.5, 0).holds(0.9)


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "least"), [(300, 0.6), (1000, 0.85)])
def test_a_policy_covers_nearly_what_a_clairvoyant_does(samples, least):
    """Who knows the best threshold tests it once; 80 draws have a standard error of some 0.1 of his coverage."""
    setting = Setting("rising", "continuous", samples, 0.05, 0.95)
    covered = simulate(setting, {"planned": METHODS["planned"]}, 80, seed=11)["planned"].coverage
    assert covered >= least * clairvoyant(setting, 60)


def test_the_true_risk_of_the_simulation_by_counting():
    setting = Setting("wavy", "ten values", 400_000, 0.2, 0.9)
    score, coverage, risk = setting.population()
    drawn, correct = setting.draw(np.random.default_rng(0))
    for value, covered, wrong in zip(score, coverage, risk, strict=True):
        held = drawn >= value
        assert held.mean() == pytest.approx(covered, abs=0.005)
        assert (~correct[held]).mean() == pytest.approx(wrong, abs=0.01)


@pytest.mark.slow
def test_a_whole_policy_keeps_its_promise():
    """Choice, calibration and threshold together, on three classes; the risk is counted on a large fresh set."""

    def drawn(rng, n):
        honest = 2 * rng.standard_normal((n, 3))
        return 2 * honest, (honest + rng.gumbel(size=honest.shape)).argmax(1)

    fresh, truth = drawn(np.random.default_rng(99), 30_000)
    broken, answered, draws = 0, [], 100
    for seed in range(draws):
        data = Predictions.from_logits(*drawn(np.random.default_rng(seed), 450))
        policy = Policy.fit(data, 0.1, 0.8, calibrator="temperature", seed=seed)
        labels, _, accept = policy.decide(fresh)
        answered.append(accept.mean())
        broken += bool(accept.any()) and (labels != truth)[accept].mean() > 0.1
    assert broken / draws <= 0.2 + 3 * np.sqrt(0.16 / draws)
    assert np.mean(answered) > 0.15


@pytest.mark.slow
def test_the_limit_at_a_coverage_with_a_tie_at_the_border():
    """Which of two values ends the accepted set is decided by the data; the limit holds all the same."""
    rng = np.random.default_rng(11)
    broken = 0
    for _ in range(DRAWS):
        top = rng.random(400) < 0.5
        correct = np.where(top, rng.random(400) >= 0.9, True)
        found = threshold_for_coverage(top.astype(float), correct, 0.48)
        broken += (0.9 if found.value > 0 else 0.45) > found.risk.high
    assert broken / DRAWS <= 0.05 + 3 * np.sqrt(0.0475 / DRAWS)
