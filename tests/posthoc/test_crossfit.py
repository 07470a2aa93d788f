"""Cross-fitting against loops written out by hand, and audit, fit and compare against each other."""

import json

import numpy as np
import pytest

from calibrant import Policy, Predictions, audit
from calibrant.experiments.evaluation import numbers
from calibrant.metrics import aurc, nll
from calibrant.posthoc import (
    EnsembleTemperatureScaling,
    LogitNorm,
    TemperatureScaling,
    VectorScaling,
    scores_by_reading,
)
from calibrant.posthoc.crossfit import assign_folds, crossfit, crossfit_all, crossfit_ranks
from calibrant.training import check_recipe


@pytest.fixture
def data():
    """Logits whose length says nothing, so that normalising them ranks better."""
    rng = np.random.default_rng(3)
    honest = 2 * rng.standard_normal((1003, 12))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    return (honest * rng.uniform(0.1, 1.5, (1003, 1))).astype(np.float32), labels


def test_samples_are_dealt_by_turns_and_images_stay_together():
    np.testing.assert_array_equal(assign_folds(np.array([7, 7, 9, 12, 30, 31, 40, 40])), [0, 0, 1, 2, 3, 4, 0, 0])


def test_each_row_is_scaled_by_a_temperature_that_was_fitted_on_the_others(data):
    z, y = data
    folds = np.arange(len(y)) % 5
    repaired = crossfit(TemperatureScaling, z, y, folds)
    assert len(repaired.fitted) == 5
    for k in range(5):
        slope = []
        for t in (repaired.fitted[k].temperature_ * step for step in (0.999, 1.001)):  # on either side of the minimum
            slope.append(nll((z[folds != k] / t).astype(np.float64), y[folds != k]))
        assert min(slope) > nll(z[folds != k] / repaired.fitted[k].temperature_, y[folds != k])
        np.testing.assert_allclose(
            repaired.logits[folds == k], z[folds == k] / repaired.fitted[k].temperature_, rtol=1e-6
        )


def test_calibrators_that_share_a_temperature_are_those_fitted_alone(data):
    z, y = data
    folds = np.arange(len(y)) % 5
    makes = {"ensemble": EnsembleTemperatureScaling, "temperature": TemperatureScaling, "vector": VectorScaling}
    for name, repaired in crossfit_all(makes, z, y, folds).items():
        for k, calibrator in enumerate(repaired.fitted):
            alone = makes[name]().fit(z[folds != k], y[folds != k])
            assert calibrator.state() == alone.state()
            np.testing.assert_array_equal(repaired.logits[folds == k], alone.transform(z[folds == k]))


def by_hand(z, y):
    """Ranks of both scores inside each fold, with the p and the reading of the least AURC on the others."""
    readings = {True: z.astype(np.float64) - z.mean(1, keepdims=True, dtype=np.float64), False: z.astype(np.float64)}
    e = np.exp(z - z.max(1, keepdims=True).astype(np.float64))
    plain, correct = 1 / e.sum(1), z.argmax(1) == y
    scores = {
        (p, centre): v.max(1) / (np.abs(v) ** p).sum(1) ** (1 / p)
        for centre, v in readings.items()
        for p in range(1, 11)
    }
    before, after, powers = np.empty(len(y)), np.empty(len(y)), []
    for k in range(5):
        held, rest = np.arange(len(y)) % 5 == k, np.arange(len(y)) % 5 != k
        p = min(scores, key=lambda p: aurc(scores[p][rest], correct[rest]))
        assert aurc(scores[p][rest], correct[rest]) < aurc(plain[rest], correct[rest])
        for out, score in ((before, plain), (after, scores[p])):
            out[held] = [(score[held] <= one).mean() for one in score[held]]
        powers.append(p)
    return plain, correct, before, after, powers


def test_scores_are_ranked_inside_the_folds(data):
    z, y = data
    plain, correct, before, after, powers = by_hand(z, y)
    ranked = crossfit_ranks(plain, scores_by_reading(z), correct, np.arange(len(y)) % 5)
    assert [(norm.p_, norm.centre) for norm in ranked.norms] == powers
    np.testing.assert_allclose(ranked.plain, before, atol=1e-12)
    np.testing.assert_allclose(ranked.normalised, after, atol=1e-12)


def test_where_no_power_is_better_nothing_changes():
    z = np.random.default_rng(0).standard_normal((200, 2))  # of two classes the score is the same for all
    plain, correct = np.abs(z[:, 0] - z[:, 1]), z[:, 0] > 0
    ranked = crossfit_ranks(plain, {True: LogitNorm().scores(z)}, correct, np.arange(200) % 5)
    assert [norm.p_ for norm in ranked.norms] == [None] * 5
    np.testing.assert_array_equal(ranked.plain, ranked.normalised)


@pytest.mark.slow
def test_audit_fit_and_compare_agree(data, tmp_path):
    z, y = data
    predictions = Predictions.from_logits(z, y)
    (model,) = audit(predictions, replicates=20).document["models"]
    gains = {(fix["repair"], fix["name"]): fix for fix in model["fixes"]}
    predictions.save(tmp_path / "test.npz")
    plan = {"data": {"layout": "digits"}, "model": {"name": "mlp", "input_size": [3, 8, 8]}}
    (tmp_path / "recipe.json").write_text(check_recipe(plan, "test").model_dump_json())
    (tmp_path / "result.json").write_text(json.dumps({"sets": {"test": {}}, "steps": 1, "history": []}))
    found = {(one.posthoc, one.metric): one.value for one in numbers(tmp_path)}
    _, correct, before, after, _ = by_hand(z, y)
    gain = gains["Logit normalisation", "aurc"]
    assert gain["difference"] == pytest.approx(aurc(after, correct) - aurc(before, correct), abs=1e-12)
    assert found["logit-norm", "aurc"] == pytest.approx(gain["after"], abs=1e-6)
    gain = gains["Temperature scaling", "nll"]
    assert found["temperature", "nll"] == pytest.approx(gain["after"], abs=1e-6)
    policy = Policy.fit(predictions, target_risk=0.2, calibrator="temperature", seed=1)
    assert policy.evidence["calibrators"][1]["name"] == "temperature"
