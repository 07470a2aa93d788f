"""The demonstration from training to page, in small, and what it says of the papers' claims: intervals by SciPy."""

import json

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant import Policy, Predictions
from calibrant.experiments import demo
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
    with_check,
)
from calibrant.experiments.results import ResultRow, Results
from tests.helpers.errors import facts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory):
    """A demonstration on few pictures, whose stages are kept."""
    folder, stages = tmp_path_factory.mktemp("demo"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "_QUICK", {"epochs": 4, "train": 400, "validation": 1000, "test": 300})
        patch.setattr(demo, "RISK", 0.5)
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            result = demo.run_demo(folder, seed=3, quick=True, progress=lambda *stage: stages.append(stage))
            assert torch.get_num_threads() == 2, "the demonstration leaves the threads as they were"
        finally:
            torch.set_num_threads(threads)
        yield folder, result, stages


def test_the_story_is_that_of_the_files(small_demo):
    """Every number once more, from the predictions, the policy and NumPy."""
    folder, result, _ = small_demo
    test, policy = Predictions.open(folder / demo.TEST), Policy.load(folder / demo.POLICY)
    exps = np.exp(test.logits - test.logits.max(1, keepdims=True))
    right = test.logits.argmax(1) == test.labels
    accept = policy.decide(test.logits).accept
    story = result.document["story"]
    assert story["claims"] == pytest.approx((exps / exps.sum(1, keepdims=True)).max(1).mean(), abs=1e-6)
    assert story["right"] == pytest.approx(right.mean())
    assert story["answered"] == pytest.approx(accept.mean())
    assert story["wrong"] == pytest.approx((~right[accept]).mean())
    assert story["all_wrong"] == pytest.approx((~right).mean())
    assert story["exported"] == 1
    assert all(f"{story[name]:.2%}" in result.document["headline"] for name in ("claims", "right"))
    assert json.loads((folder / "run" / "environment.json").read_text())["threads"] == 1  # whatever the cores


def test_pictures_are_the_first_of_the_test_set(small_demo):
    folder, result, _ = small_demo
    test, policy = Predictions.open(folder / demo.TEST), Policy.load(folder / demo.POLICY)
    decisions = policy.decide(test.logits)
    for name, chosen in (("answered", decisions.accept), ("declined", ~decisions.accept)):
        first = np.flatnonzero(chosen)[: demo.PICTURES]
        pictures = result.document[name]
        assert [picture["truth"] for picture in pictures] == [test.class_names[k] for k in test.labels[first]]
        assert [picture["right"] for picture in pictures] == (decisions.labels == test.labels)[first].tolist()


def test_the_page_stands_alone(small_demo):
    folder, result, _ = small_demo
    page = result.page.read_text(encoding="utf-8")
    assert result.document["headline"] in page
    assert "calibrant demo --seed 3 --quick" in page
    assert all(command in page for command in demo.COMMANDS)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert all((folder / file).exists() for _, file in result.document["files"])


def test_progress_goes_from_nothing_to_all(small_demo):
    *_, stages = small_demo
    shares = [done for _, done, _ in stages]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, pytest.approx(10))
    assert {total for *_, total in stages} == {10}


def test_a_second_call_trains_nothing(small_demo, monkeypatch):
    folder, result, _ = small_demo
    weights = (folder / "run" / "model.safetensors").stat().st_mtime_ns
    again = demo.run_demo(folder, seed=3, quick=True)
    assert again.document["story"] == result.document["story"]
    assert (folder / "run" / "model.safetensors").stat().st_mtime_ns == weights
    assert json.loads((folder / demo.POLICY).read_text())


def test_other_arguments_take_another_folder(small_demo):
    folder, *_ = small_demo
    with pytest.raises(ValueError, match=facts("--seed 3 --quick")):
        demo.run_demo(folder, seed=4, quick=True)


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
    assert effect["why"]


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


def test_a_check_of_another_study_counts_as_none(monkeypatch, tmp_path):
    monkeypatch.setattr("calibrant.experiments.demo_claims.resources.files", lambda package: tmp_path)
    for key, sets in ((study_key(), 20), ("another", 0)):
        (tmp_path / CHECK).write_text(json.dumps({"study": key, "sets": 20, "claims": {}}))
        assert read_check()["sets"] == sets


def test_a_claim_that_held_by_luck_does_not_hold(monkeypatch):
    check = {"sets": 20, "seeds": 4, "claims": {"norm-test": {"held": 3}}}
    monkeypatch.setattr("calibrant.experiments.demo_claims.read_check", lambda: check)
    lucky = numbers("ls", "aurc", (0.02, 0.021, 0.023)) + numbers("ls", "aurc", (0.01, 0.012, 0.013), "logit-norm")
    (effect,) = effects(Results(lucky))
    assert effect["verdict"] == "holds"
    assert with_check(effect)["verdict"] == "does not hold"
    assert "3 of 20" in with_check(effect)["note"]
