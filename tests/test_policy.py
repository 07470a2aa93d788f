"""Policies: what is chosen and why, decisions against plain formulas, streaming, groups, masks, files."""

import json
import math

import numpy as np
import pytest
import torch

from calibrant import Policy, Predictions
from calibrant.metrics import ece
from calibrant.selective import policy_thresholds
from calibrant.selective.holdout import draws
from calibrant.selective.scores import Score


def drawn(n, classes=6, seed=0, scale=2.0, spread=3.0):
    """Logits that were true log-probabilities before they were multiplied."""
    rng = np.random.default_rng(seed)
    honest = spread * rng.standard_normal((n, classes))
    return scale * honest, (honest + rng.gumbel(size=honest.shape)).argmax(1)


def smoothed(n, classes=8, seed=0):
    """As label smoothing leaves them: at equal confidence, wrong predictions have the logits of larger norm."""
    rng = np.random.default_rng(seed)
    honest = 2 * rng.standard_normal((n, classes))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    wrong = honest.argmax(1) != labels
    logits = honest.copy()
    logits[np.arange(n), honest.argmin(1)] -= np.where(wrong, 8.0, 0.0)  # the softmax hardly sees it
    return logits, labels


@pytest.fixture(scope="module")
def policy():
    return Policy.fit(Predictions.from_logits(*drawn(4000)), target_risk=0.1)


def test_an_overconfident_model_is_calibrated_and_keeps_its_target(policy):
    assert policy.calibrator.name == "temperature"
    assert policy.calibrator.temperature_ == pytest.approx(2, rel=0.1)
    assert policy.threshold.risk.high <= 0.1
    z, y = drawn(20_000, seed=1)
    labels, confidence, accept = policy.decide(z)
    assert (labels == z.argmax(1)).all()
    assert (labels != y)[accept].mean() <= 0.1
    assert accept.mean() == pytest.approx(policy.threshold.coverage.value, abs=0.05)
    assert ece(confidence, labels == y) < 0.02
    assert (confidence.dtype, accept.dtype, labels.dtype) == (np.float64, np.bool_, np.int64)


def test_decisions_follow_the_formula(policy):
    z, _ = drawn(500, seed=2)
    exps = np.exp(z / policy.calibrator.temperature_ - (z / policy.calibrator.temperature_).max(1, keepdims=True))
    raw = np.exp(z - z.max(1, keepdims=True))
    score = {"logits": 1 / raw.sum(1), "calibrated": 1 / exps.sum(1)}[policy.score.of]
    _, confidence, accept = policy.decide(z)
    assert np.allclose(confidence, (exps / exps.sum(1, keepdims=True)).max(1), rtol=1e-12)
    assert (accept == (score >= policy.threshold.value)).all()


def test_decisions_keep_the_kind_that_came(policy):
    z, _ = drawn(300, seed=3)
    arrays, tensors = policy.decide(z), policy.decide(torch.from_numpy(z))
    predicted = policy.decide(Predictions.from_logits(z, np.zeros(300, dtype=int)))
    for a, b, c in zip(arrays, tensors, predicted, strict=True):
        assert isinstance(b, torch.Tensor)
        assert (a == b.numpy()).all()
        assert (a == c).all()
    half = policy.decide(z.astype(np.float16))
    assert (half.labels == z.astype(np.float16).argmax(1)).all()


def test_the_threshold_is_set_on_samples_that_the_choice_did_not_see():
    """Whatever the labels of the choice's third are, the threshold's samples count as they are."""
    z, y = drawn(1500)
    mine = draws(0, 0, 1500) < 1 / 3
    assert 400 < mine.sum() < 600
    found = Policy.fit(Predictions.from_logits(z, y), 0.1)
    assert found.evidence["for_choice"] == mine.sum()
    assert found.evidence["for_threshold"] == found.threshold.samples == (~mine).sum()
    labels, _, accept = found.decide(z[~mine])
    assert found.threshold.accepted == accept.sum()
    assert found.threshold.errors == (labels != y[~mine])[accept].sum()


def test_logit_normalisation_is_chosen_where_it_helps():
    found = Policy.fit(Predictions.from_logits(*smoothed(6000)), 0.1, calibrator="none")
    assert found.score.name == "normalised_max_logit"
    rows = {row["name"]: row for row in found.evidence["scores"]}
    chosen = next(row for row in rows.values() if row["chosen"])
    assert chosen["high"] < 0
    assert chosen["value"] < rows["msp"]["value"]


def test_plain_msp_remains_when_nothing_helps_beyond_chance():
    """Logits that are true: no calibrator and no score has anything to add."""
    kept = 0
    for seed in range(8):
        found = Policy.fit(Predictions.from_logits(*drawn(900, seed=seed, scale=1.0)), 0.2)
        kept += found.calibrator is None and found.score == Score()
    assert kept >= 7


def test_few_samples_choose_nothing():
    found = Policy.fit(Predictions.from_logits(*drawn(100)), 0.3)
    assert found.calibrator is None
    assert found.score == Score()
    assert found.evidence["for_choice"] == 0
    assert found.threshold.samples == 100


@pytest.mark.parametrize("calibrator", ["none", "temperature", "ensemble", "isotonic", "vector"])
@pytest.mark.parametrize("score", ["msp", "max_logit", "margin", "negative_entropy", "energy", "normalised_max_logit"])
def test_a_choice_can_be_made_by_name(calibrator, score, tmp_path):
    z, y = drawn(700, classes=5)
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


def test_probabilities_are_taken_as_such():
    z, y = drawn(2500)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    by_logits = Policy.fit(Predictions.from_logits(z, y), 0.1, score="msp")
    found = Policy.fit(Predictions.from_probabilities(p, y), 0.1, score="msp")
    assert found.takes == "probabilities"
    assert found.calibrator.temperature_ == pytest.approx(by_logits.calibrator.temperature_, rel=1e-6)
    assert (found.decide(p).accept == by_logits.decide(z).accept).mean() > 0.999
    with pytest.raises(ValueError, match="takes probabilities"):
        found.decide(z)
    with pytest.raises(ValueError, match="takes probabilities, got logits"):
        found.decide(Predictions.from_logits(z, y))


def test_a_target_coverage():
    found = Policy.fit(Predictions.from_logits(*drawn(3000)), target_coverage=0.4)
    assert found.threshold.coverage.value == pytest.approx(0.4, abs=1e-3)
    assert found.target_risk is None
    assert "at most" in found.summary


def test_groups_have_thresholds_of_their_own(tmp_path):
    z, y = drawn(6000)
    rng = np.random.default_rng(7)
    site = rng.choice(["good", "bad"], 6000)
    y = np.where((site == "bad") & (rng.random(6000) < 0.06), (y + 1) % 6, y)
    found = Policy.fit(Predictions.from_logits(z, y, groups={"site": site}), 0.15, group="site")
    assert found.group_names == ("bad", "good")
    assert found.groups["bad"].value > found.groups["good"].value
    found.save(tmp_path / "p.json")
    found = Policy.load(tmp_path / "p.json")
    _, _, good = found.decide(z, ["good"] * 6000)
    _, _, bad = found.decide(z, ["bad"] * 6000)
    _, _, unknown = found.decide(z, ["elsewhere"] * 6000)
    assert good.mean() > bad.mean() > 0 == unknown.sum()
    for one, wrong in ((None, "groups are needed"), (["good"], "one for each sample")):
        with pytest.raises(ValueError, match=wrong):
            found.decide(z, one)
    module = found.module()(torch.from_numpy(z), torch.zeros(6000, dtype=torch.int64))
    assert (module.accept.numpy() == bad).all()
    with pytest.raises(ValueError, match="group is needed"):
        found.module()(torch.from_numpy(z))
    with pytest.raises(ValueError, match="do not hold"):
        found.decide(Predictions.from_logits(z, y))


def masks(images, seed=0, scale=2.0):
    rng = np.random.default_rng(seed)
    honest = 3 * rng.standard_normal((images, 4, 6, 5)) + rng.standard_normal((images, 4, 1, 1))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    labels[:, 0] = 255
    return scale * honest, labels


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
    with pytest.raises(ValueError, match="sgr counts independent"):
        Policy.fit(data, 0.2, method="sgr")
    assert Policy.fit(data, 0.2, method="empirical").threshold.confidence is None


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".csv"])
def test_files_are_read_a_batch_at_a_time(tmp_path, suffix):
    z, y = drawn(900)
    data = Predictions.from_logits(z, y)
    data.save(tmp_path / f"val{suffix}")
    opened = Predictions.open(tmp_path / f"val{suffix}")
    whole, parts = Policy.fit(data, 0.1), Policy.fit(opened, 0.1)
    assert parts.threshold.accepted == whole.threshold.accepted
    assert parts.threshold.value == pytest.approx(whole.threshold.value, rel=1e-12)


def test_of_very_many_samples_a_part_chooses(monkeypatch):
    monkeypatch.setattr("calibrant.selective.holdout.MOST_ROWS", 1000)
    found = Policy.fit(Predictions.from_logits(*drawn(9000)), 0.1)
    assert found.evidence["for_choice"] <= 2000
    assert found.threshold.samples == (draws(0, 0, 9000) >= 1 / 3).sum()


def test_draws_do_not_depend_on_batches():
    whole = draws(3, 0, 200_000)
    assert (draws(3, 65_000, 1500) == whole[65_000:66_500]).all()
    assert (draws(4, 0, 10) != whole[:10]).all()


def test_an_honest_abstention():
    found = Policy.fit(Predictions.from_logits(*drawn(300)), 0.01)
    assert found.abstains
    assert found.summary.startswith("Abstain always")
    assert not found.decide(drawn(50)[0]).accept.any()
    json.loads(json.dumps(found.evidence))
    assert math.isinf(found.threshold.value)


def test_an_empirical_threshold_promises_nothing():
    z, y = drawn(900)
    data = Predictions.from_logits(z, y, groups={"s": np.arange(900) % 2})
    for found in (Policy.fit(data, 0.2, method="empirical"), Policy.fit(data, 0.2, group="s", method="empirical")):
        assert "nothing is promised" in found.summary
        assert "confidence" not in found.summary
        assert found.threshold.confidence is None
    with pytest.raises(ValueError, match="method is for a target risk"):
        Policy.fit(data, target_coverage=0.5, method="empirical")


def test_what_is_needed_is_more_than_there_was():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = int(rng.choice([40, 200, 500]))
        found = Policy.fit(Predictions.from_logits(*drawn(n, seed=seed)), float(rng.choice([0.01, 0.05, 0.2])))
        assert found.threshold.needed is None or found.threshold.needed > n


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


def test_numbers_of_numpy_are_numbers(tmp_path):
    data = Predictions.from_logits(*drawn(400))
    found = Policy.fit(data, np.float32(0.2), np.float32(0.9), seed=np.int64(3))
    found.save(tmp_path / "p.json")
    assert Policy.load(tmp_path / "p.json").target_risk == pytest.approx(0.2)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        Policy.fit(data, 0.2, seed=1.5)


def test_too_few_to_choose_or_to_count():
    z, y = drawn(12)
    with pytest.raises(ValueError, match="too few"):
        Policy.fit(Predictions.from_logits(z[:3], y[:3]), 0.2, calibrator="temperature")
    with pytest.raises(ValueError, match=r"too few|counts"):
        Policy.fit(Predictions.from_logits(z, np.full(12, -1), ignore_index=-1), 0.2)


def test_energy_needs_logits():
    z, y = drawn(600)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    data = Predictions.from_probabilities(p, y)
    with pytest.raises(ValueError, match="energy is of logits"):
        Policy.fit(data, 0.2, score="energy")
    assert "energy" not in {row["name"] for row in Policy.fit(data, 0.2).evidence["scores"]}


def test_ignored_samples_count_nowhere():
    z, y = drawn(3000)
    y = y.copy()
    y[::3] = -1
    found = Policy.fit(Predictions.from_logits(z, y, ignore_index=-1), 0.1)
    held = (draws(0, 0, 3000) >= 1 / 3) & (y != -1)
    assert found.threshold.samples == held.sum()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_risk": 0.0}, "target_risk"), ({"target_risk": 0.1, "target_coverage": 0.5}, "not for both"),
        ({"target_coverage": 0}, "target_coverage"), ({"confidence": 1.0}, "confidence"), ({"method": "x"}, "method"),
        ({"calibrator": "magic"}, "calibrator must be"), ({"score": "magic"}, "score must be"),
        ({"group": "site"}, "not among the predictions' groups"), ({"target_coverage": 0.5, "group": "g"}, "by group"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(change, message):
    data = Predictions.from_logits(*drawn(300), groups={"g": np.arange(300) % 2})
    with pytest.raises(ValueError, match=message):
        Policy.fit(data, **change)


def test_what_cannot_be_fitted_on_is_refused():
    z, y = drawn(200)
    with pytest.raises(ValueError, match="marked split='test'"):
        Policy.fit(Predictions.from_logits(z, y, split="test"))
    with pytest.raises(ValueError, match="confidences alone"):
        Policy.fit(Predictions.from_confidence(np.full(200, 0.5), y == 0))
    with pytest.raises(ValueError, match="fitted on Predictions, got ndarray"):
        Policy.fit(z)


def test_what_cannot_be_decided_about_is_refused(policy):
    z, y = drawn(20)
    for bad, message in (
        (z[:, :5], "for 6 classes"), (z[0], "logits must be"), (np.where(z > 1, np.nan, z), "finite"),
        (z[:, :, None], "for classification"), (z.astype(int), "floating point"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            policy.decide(bad)
    with pytest.raises(ValueError, match="one threshold for all"):
        policy.decide(z, ["a"] * 20)
    named = Policy.fit(Predictions.from_logits(*drawn(300), class_names=list("abcdef")), 0.2)
    with pytest.raises(ValueError, match="the policy's classes are a, b, c, d, e, those of the predictions a, b,"):
        named.decide(Predictions.from_logits(z, y, class_names=list("abcdfe")))


def test_a_module_never_answers_what_is_not_finite():
    policy = Policy.fit(Predictions.from_logits(*drawn(400, classes=3)), target_coverage=1.0, score="max_logit")
    assert policy.limits.tolist() == [-math.inf]
    odd = torch.tensor([[1.0, 2.0, 3.0], [math.nan, 0.0, 1.0], [math.inf, 0.0, 1.0]])
    assert policy.module()(odd).accept.tolist() == [True, False, False]


def test_rounding_of_a_calibrator_makes_no_ties():
    """Two logits an ulp apart stay in order, whatever the temperature."""
    z = np.array([[1.0, np.nextafter(1.0, 2.0)]])
    policy = Policy.fit(Predictions.from_logits(*drawn(400, classes=2)), 0.4, calibrator="temperature")
    policy.calibrator.temperature_ = 3.0
    assert policy.decide(z).labels.tolist() == [1]


def test_planning_is_on_other_samples(monkeypatch):
    """The order of the tests must not depend on the samples that are tested."""
    seen = []
    real = policy_thresholds.plan_tests
    watch = lambda score, *rest: seen.append(len(score)) or real(score, *rest)  # noqa: E731
    monkeypatch.setattr(policy_thresholds, "plan_tests", watch)
    found = Policy.fit(Predictions.from_logits(*drawn(1200)), 0.1)
    assert seen == [found.evidence["for_choice"]]
