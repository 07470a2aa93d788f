"""What the demonstration says of the papers' claims: hand-worked differences, intervals by scipy."""

import json

import numpy as np
import pytest
from scipy import stats

from calibrant.experiments.demo_claims import (
    CHECK,
    CLAIMS,
    METHODS,
    SEEDS,
    effects,
    is_reliable,
    plan_demo_study,
    read_check,
    study_key,
    summarise_check,
    with_check,
)
from calibrant.experiments.results import ResultRow, Results


def numbers(method, metric, values, posthoc="none", kind="test"):
    return [
        ResultRow(f"{method}{seed}", method, "{}", "", "final", seed, kind, posthoc, float("nan"), metric, value)
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("ls", "verdict"),
    [
        ((0.02, 0.025, 0.03), "holds"),
        ((0.08, 0.085, 0.09), "does not hold"),
        ((0.02, 0.09, 0.055), "within noise"),
        ((0.02,), "within noise"),  # one seed proves nothing
    ],
)
def test_a_lower_ece(ls, verdict):
    ce = (0.05, 0.052, 0.056)[: len(ls)]
    (effect,) = effects(Results(numbers("ce", "ece", ce) + numbers("ls", "ece", ls)))
    assert effect["claim"] == "Label smoothing lowers the ECE"
    assert effect["verdict"] == verdict
    gaps = np.subtract(ls, ce)
    assert effect["values"] == pytest.approx(gaps.tolist())
    assert effect["mean"] == pytest.approx(gaps.mean())
    if len(ls) > 1:
        interval = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
        assert (effect["low"], effect["high"]) == pytest.approx(tuple(interval))
        assert (interval.high < 0) == (verdict == "holds")
    else:
        assert np.isnan([effect["low"], effect["high"]]).all()


def test_a_higher_aurc():
    """The claim is that it is above: the same signs mean the opposite."""
    ce, ls = (0.010, 0.011, 0.012), (0.020, 0.021, 0.023)
    worse = effects(Results(numbers("ce", "aurc", ce) + numbers("ls", "aurc", ls)))
    better = effects(Results(numbers("ce", "aurc", ls) + numbers("ls", "aurc", ce)))
    assert [(effect["verdict"], effect["unit"]) for effect in worse + better] == [
        ("holds", "number"),
        ("does not hold", "number"),
    ]


def test_what_has_no_numbers_is_not_claimed():
    assert effects(Results(numbers("ce", "ece", (0.1, 0.2)))) == []


def test_a_difference_of_nothing_for_every_seed_does_not_hold():
    """Logit normalisation that falls back to the confidence changes nothing: that is no noise, and has a reason."""
    ls = (0.020, 0.021, 0.023)
    (effect,) = effects(Results(numbers("ls", "aurc", ls) + numbers("ls", "aurc", ls, "logit-norm")))
    assert (effect["name"], effect["mean"], effect["verdict"]) == ("norm-test", 0, "does not hold")
    assert "no norm ranks" in effect["why"]


def test_only_the_seeds_that_are_asked_for_are_judged():
    results = Results(numbers("ce", "ece", (0.05, 0.06, 0.01, 0.02)) + numbers("ls", "ece", (0.01, 0.021, 0.05, 0.061)))
    judged = [effects(results, seeds)[0] for seeds in ((0, 1), (2, 3))]
    assert [effect["values"] for effect in judged] == [pytest.approx([-0.04, -0.039]), pytest.approx([0.04, 0.041])]
    assert [effect["verdict"] for effect in judged] == ["holds", "does not hold"]


def test_every_seed_draws_pictures_of_its_own():
    runs = plan_demo_study(7).finals({})
    assert {(run.method, run.seed) for run in runs} == {(m, s) for m in METHODS for s in range(7, 7 + SEEDS)}
    assert all(run.recipe.data.options["seed"] == run.seed == run.recipe.seed for run in runs)
    assert len({run.key for run in runs}) == len(METHODS) * SEEDS


@pytest.mark.parametrize(("held", "sets", "verdict"), [(20, 20, True), (19, 20, True), (18, 20, False), (0, 0, False)])
def test_a_claim_must_hold_in_nineteen_sets_of_twenty(held, sets, verdict):
    assert is_reliable(held, sets) is verdict


def test_the_check_that_is_shipped_knows_every_claim():
    check = read_check()
    assert check["sets"] == 0 or list(check["claims"]) == [claim.name for claim in CLAIMS]


def test_the_check_in_words(monkeypatch):
    claims = {"temperature": {"held": 20}, "norm-test": {"held": 3}}
    check = {"sets": 20, "seeds": 4, "claims": claims}
    monkeypatch.setattr("calibrant.experiments.demo_claims.read_check", lambda: check)
    assert "20 disjoint sets of 4 seeds: 1 of 2 held in at least 95% of the sets" in summarise_check(check)
    ce = numbers("ce", "ece", (0.2, 0.21, 0.22)) + numbers("ce", "ece", (0.05, 0.06, 0.066), "temperature")
    (effect,) = effects(Results(ce))
    assert with_check(effect)["note"] == "MbLS. Held in 20 of 20 checked sets."
    ls = (0.020, 0.021, 0.023)
    (effect,) = effects(Results(numbers("ls", "aurc", ls) + numbers("ls", "aurc", ls, "logit-norm")))
    note = with_check(effect)["note"]
    assert note.startswith("SC. Held in 3 of 20 checked sets. For most seeds no norm")
    lucky = numbers("ls", "aurc", (0.02, 0.021, 0.023)) + numbers("ls", "aurc", (0.01, 0.012, 0.013), "logit-norm")
    (effect,) = effects(Results(lucky))
    assert effect["verdict"] == "holds"
    assert with_check(effect)["verdict"] == "does not hold"
    assert "for the seeds of this page, which is too little" in with_check(effect)["note"]
    assert "not been checked" in summarise_check({"sets": 0, "claims": {}})


def test_a_check_of_another_study_counts_as_none(monkeypatch, tmp_path):
    monkeypatch.setattr("calibrant.experiments.demo_claims.resources.files", lambda package: tmp_path)
    for key, sets in ((study_key(), 20), ("another", 0)):
        (tmp_path / CHECK).write_text(json.dumps({"study": key, "sets": 20, "claims": {}}))
        assert read_check()["sets"] == sets
