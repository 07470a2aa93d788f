"""Searches of a study: the protocol of label relaxation, halving, resampled splits."""

import pytest

from calibrant.experiments import Contender, Study
from calibrant.experiments.study import search, shorten
from calibrant.losses import describe
from calibrant.training.datasets import load_sets
from tests.helpers.digit_studies import recipe, study


def walked(plan, judge):
    """The stages of a study, each judged by a function of the run, and all of its runs."""
    stages = []

    def execute(runs):
        stages.append(list(runs))
        return {run.key: judge(run) for run in runs if judge(run) is not None}

    trials, choice = search(plan, execute)
    stages.append(plan.finals(choice))
    return stages, [*trials, *stages[-1]]


def test_without_tuning_every_method_runs_once_per_seed():
    (stage,), every = walked(study(["ce", "ls", "als"]), lambda run: {})
    assert [(run.method, run.seed, run.stage) for run in stage] == [
        (method, seed, "final") for method in ("ce", "ls", "als") for seed in (0, 1)
    ]
    assert stage == every
    assert len({run.key for run in stage}) == 6


def test_the_protocol_of_label_relaxation():
    """Searched on a sixth of the training data, per target; trained again on all of it."""
    plan = study(["ce", "lr"], tune=("ece", "accuracy"))

    def judge(run):
        alpha = run.settings.get("alpha", 0)
        return {"ece": abs(alpha - 0.2), "accuracy": 1 - alpha}

    (search, final), every = walked(plan, judge)
    assert {run.method for run in search} == {"lr"}  # nothing to search for ce
    assert [run.settings["alpha"] for run in search] == list(describe("lr").search["alpha"])
    assert all(run.recipe.data.hold_out.fraction == pytest.approx(1 / 6) for run in search)
    assert all(run.recipe.data.hold_out is None for run in final)
    chosen = {(run.method, run.tuned_for): run.settings for run in final}
    assert chosen["lr", "ece"] == {"alpha": 0.2}
    assert chosen["lr", "accuracy"] == {"alpha": 0.01}
    assert chosen["ce", "ece"] == chosen["ce", "accuracy"] == {}
    assert len([run for run in final if run.method == "ce"]) == 4  # two seeds for two targets,
    assert len({run.key for run in final if run.method == "ce"}) == 2  # and two runs
    assert len(every) == len(search) + len(final)


def test_resampled_splits_have_a_search_each():
    plan = study(["lr"], tune=("nll",), recipe=recipe(data={"layout": "digits", "resample": True}))
    (search, final), _ = walked(plan, lambda run: {"nll": abs(run.settings["alpha"] - (0.1, 0.4)[run.seed])})
    assert {run.seed for run in search} == {0, 1}
    assert all(run.recipe.data.hold_out.seed == run.seed == run.recipe.seed for run in search)
    assert {run.seed: run.settings["alpha"] for run in final} == {0: 0.1, 1: 0.4}


def test_failed_candidates_are_passed_over():
    plan = study(["lr", "focal"], tune=("ece",))
    (_, final), _ = walked(
        plan, lambda run: {"ece": run.settings["alpha"]} if run.settings.get("alpha", 0) > 0.06 else None
    )
    assert {run.method for run in final} == {"lr"}  # every focal candidate failed
    assert {run.settings["alpha"] for run in final} == {0.1}


def test_successive_halving():
    plan = study(["acls"], tune=("ece",), search="halving", recipe=recipe())
    stages, _ = walked(plan, lambda run: {"ece": run.settings["lambda1"] + run.settings["lambda2"]})
    assert [len(stage) for stage in stages] == [18, 6, 2, 2]
    assert [stage[0].stage for stage in stages] == ["short", "short", "search", "final"]
    assert [stage[0].recipe.training.epochs for stage in stages] == [1, 3, 9, 9]
    assert [stage[0].recipe.schedule.milestones for stage in stages[:2]] == [(6 / 9,), (2,)]
    assert {(run.settings["lambda1"], run.settings["lambda2"]) for run in stages[-1]} == {(0.05, 0.005)}


def test_a_shorter_run_keeps_the_shape_of_its_schedule():
    whole, part = recipe(), shorten(recipe(), 1 / 3)
    for done in (0.05, 0.4, 0.7, 0.99):
        assert part.schedule.factor(done * 3, 3) == pytest.approx(whole.schedule.factor(done * 9, 9))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tune": ("f1",)}, "tuned for one of accuracy, ece, nll, aurc, got 'f1'"),
        ({"search": "random", "tune": ("ece",)}, "takes a number of trials"),
        ({"seeds": ()}, "at least one method and one seed"),
        ({"seeds": (0, 0)}, "each given once"),
        ({"seeds": (-1, 2)}, "whole numbers from 0 to"),
        ({"tune": ("ece", "ece")}, "got 'ece' twice"),
        ({"tune": ("ece",), "trials": 3}, "a grid is searched whole"),
        ({"search": "halving"}, "takes a metric to tune for"),
        ({"recipe": recipe(search={"foo": {"alpha": [0.1]}})}, "unknown method 'foo'"),
        ({"recipe": recipe(search={"ls": {"alpha": [0.1, 0.1]}})}, "the same value of 'alpha' twice"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_mistakes_are_found_before_anything_runs(settings, message):
    with pytest.raises(ValueError, match=message):
        study(["ce"], **settings)


def test_one_method_under_two_names_is_refused():
    named = {"ls:alpha=0.05": Contender("ls", {"alpha": 0.05}), "ls": Contender("ls", {})}
    with pytest.raises(ValueError, match=r"'ls:alpha=0\.05' and 'ls' are the same method"):
        Study(recipe(), named, (0,))


def test_a_candidate_without_a_number_is_never_chosen():
    values = dict(zip(describe("ls").search["alpha"], (0.3, float("nan"), 0.1, 0.2, 0.4, 0.5, 0.6), strict=True))
    plan = study(["ls"], tune=("ece",), seeds=(0,), recipe=recipe())
    _, every = walked(plan, lambda run: {"ece": values[run.settings["alpha"]]})
    assert every[-1].stage == "final"
    assert every[-1].settings == {"alpha": 0.05}  # 0.1, the smallest


def test_what_a_search_looked_at_is_no_test_data():
    """The hold-out of the test split, searched with the first seed alone: the tests of all seeds leave it out."""
    given = recipe(data={"layout": "digits", "hold_out": {"fraction": 0.3, "of": "test"}})
    plan = study(["ls"], tune=("ece",), seeds=(0, 1, 2), recipe=given)
    looked_at = set(load_sets(plan.trial("ls", 0, {"alpha": 0.1}).recipe).val.ids)
    assert looked_at
    for seed in (0, 1, 2):
        assert not looked_at & set(load_sets(plan.final("ls", {"alpha": 0.1}, seed, "ece").recipe).test.ids)
