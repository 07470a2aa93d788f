"""Plans: what is searched, bounds that are said, and methods that are compared on the same samples and labels."""

import time

import numpy as np
import pytest
from PIL import Image

from calibrant import Predictions
from calibrant.experiments import Contender, Study, compare
from calibrant.experiments.comparison import record_data
from calibrant.experiments.spaces import MOST_COMBINATIONS, changes, draw, grid, methods, space, title_of
from calibrant.experiments.study import MOST_CANDIDATES, MOST_SEEDS, search, shorten
from calibrant.losses import describe
from calibrant.training import load_sets, replace_settings
from calibrant.training.recipe import check_recipe
from tests.experiments.conftest import PLAIN, Here, Nobody, study
from tests.helpers.digit_studies import recipe
from tests.helpers.digit_studies import study as plan_of
from tests.helpers.errors import facts


def searched(values, **settings):
    return Study(
        check_recipe(PLAIN | {"search": {"ls": values}}, "here"),
        {"ls": Contender("ls", {})},
        (0,),
        ("ece",),
        **settings,
    )


def test_searches_have_bounds():
    start = time.process_time()
    wide = {f"data.options.o{i}": list(range(9)) for i in range(9)}
    with pytest.raises(ValueError, match=facts(str(MOST_COMBINATIONS), "387420489")):
        searched(wide)
    with pytest.raises(ValueError, match=facts(str(MOST_CANDIDATES), "2000")):
        searched({"alpha": [i / 2001 for i in range(1000)], "spread": ["all", "others"]})
    with pytest.raises(ValueError, match=facts("search.ls.alpha", "1001")):
        searched({"alpha": [i / 2001 for i in range(1001)]})
    assert time.process_time() - start < 2
    for combine in (grid, lambda values: draw(values, 3, 0)):
        with pytest.raises(ValueError, match=facts(str(MOST_COMBINATIONS))):
            combine(wide)


@pytest.mark.parametrize(
    "settings",
    [
        {"data.test": "val"},
        {"data.layout": "scenes"},
        {"data.options.seed": 3},
        {"data.split_options.test.seed": 3},
        {"data.test_share": 0.5},
        {"data.resample": True},
        {"data.hold_out": {"count": 100, "of": "test"}},
        {"data.path": "elsewhere"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_methods_on_different_test_data_are_not_compared(settings):
    methods = {"ce": Contender("ce", {}), "other": Contender("ls", settings)}
    with pytest.raises(ValueError, match=facts("'ce'", "'other'")):
        Study(check_recipe(PLAIN, "here"), methods, (0,))
    Study(check_recipe(PLAIN, "here"), {"other": Contender("ls", settings)}, (0,))  # on its own it is a comparison
    Study(
        check_recipe(PLAIN, "here"),
        {"ce": Contender("ce", {}), "views": Contender("ls", {"data.context_rate": 0.1})},
        (0,),
    )


@pytest.mark.parametrize("name", ["nosuch.setting", "optimiser.rate.deeper", "data.hold_out.nosuch", "a" * 10**5])
def test_settings_that_lead_nowhere_are_one_sentence(name):
    with pytest.raises(ValueError, match=facts(name[:6])) as caught:
        replace_settings(check_recipe(PLAIN, "here"), {name: 1})
    assert len(str(caught.value)) < 500


def pictures(folder, names):
    for split in ("train", "test"):
        for shade, name in enumerate(names):
            (folder / split / name).mkdir(parents=True)
            for i in range(6):
                Image.new("RGB", (8, 8), (30 * i, 99 * shade, 0)).save(folder / split / name / f"{i}.png")
    return folder


@pytest.fixture
def images():
    data = {"layout": "image-folder"}
    return lambda *labels: study(*labels, plain=PLAIN | {"data": data, "training": {"epochs": 1, "batch_size": 4}})


def test_data_that_changed_in_their_place_are_noticed(images, tmp_path):
    """The same folder, other labels: runs before and after would be in one table."""
    home = pictures(tmp_path / "data", ["cat", "dog"])
    compare(images("ce"), tmp_path / "out", data=str(home), engine=Here())
    (home / "test" / "cat").rename(home / "test" / "aside")
    (home / "test" / "dog").rename(home / "test" / "cat")
    (home / "test" / "aside").rename(home / "test" / "dog")
    compare(images("ce"), tmp_path / "out", data=str(home), engine=Nobody())  # nothing to compute, nothing to mix
    with pytest.raises(ValueError, match=facts(str(home))):
        compare(images("ce", "ls"), tmp_path / "out", data=str(home), engine=Nobody())


def test_other_seeds_may_draw_other_samples_of_the_same_data(tmp_path):
    """With ``train_count`` every seed trains on samples of its own, which is no reason to refuse a folder."""
    home = pictures(tmp_path / "data", ["cat", "dog"])
    data = {"layout": "image-folder", "hold_out": {"count": 2}, "train_count": 6}
    recipe = check_recipe(PLAIN | {"data": data, "training": {"epochs": 1, "batch_size": 4}}, "here")
    records = [
        record_data(Study(recipe, {"ce": Contender("ce", {})}, (seed,)), tmp_path / "out", str(home)) for seed in (0, 5)
    ]
    assert records[0] == records[1]
    drawn = [load_sets(replace_settings(recipe, {"data.hold_out.seed": seed}), str(home)).train.ids for seed in (0, 5)]
    assert drawn[0] != drawn[1]


def test_runs_with_other_labels_are_not_put_into_one_table(compared):
    """Copied from elsewhere, say: the key of a run does not tell which data lay there."""
    plan = study()
    run = compared / "runs" / plan.final("ls", {}, 0, "").key / "test.npz"
    data = Predictions.open(run)
    logits, labels, ids = np.array(data.logits), np.array(data.labels), list(data.ids)
    for changed in ({"labels": (labels + 1) % 10}, {"ids": ids[::-1]}, {"class_names": [*data.class_names[1:], "x"]}):
        plain = {"labels": labels, "ids": ids, "class_names": data.class_names} | changed
        Predictions.from_logits(logits, plain.pop("labels"), **plain).save(run)
        with pytest.raises(ValueError, match=facts("test.npz")):
            compare(plan, compared, engine=Nobody())
    Predictions.from_logits(logits, labels, ids=ids, class_names=data.class_names).save(run)
    compare(plan, compared, engine=Nobody())


def test_what_a_method_holds_out_stays_held_out_and_is_drawn_for_every_seed():
    """LR: the price of temperature scaling is that its part of the data is never trained on."""
    recipe = check_recipe(PLAIN | {"search": {"ls": {"alpha": [0.1, 0.2]}}}, "here")
    own = {"data.hold_out": {"fraction": 0.15}}
    plan = Study(recipe, {"ls": Contender("ls", {}), "ce on 85%": Contender("ce", own)}, (3, 4), ("ece",))
    assert plan.final("ls", {"alpha": 0.1}, 4, "ece").recipe.data.hold_out is None
    for seed in (3, 4):
        held_out = plan.final("ce on 85%", own, seed, "ece").recipe.data.hold_out
        assert (held_out.fraction, held_out.seed) == (0.15, seed)


def test_a_method_with_a_whole_loss_takes_over_nothing_but_the_ignored_label():
    plain = {**PLAIN, "loss": {"name": "acls", "margin": 3.0, "ignore_index": 7}}
    whole = Contender("acls", {"loss": {"name": "acls", "lambda1": 0.2}})
    plan = Study(check_recipe(plain, "here"), {"own": Contender("acls", {}), "row": whole}, (0,))
    losses = {run.method: run.recipe.loss.parameters for run in plan.finals({})}
    assert losses == {"own": {"margin": 3.0, "ignore_index": 7}, "row": {"lambda1": 0.2, "ignore_index": 7}}


def walked(plan, judge):
    """The stages of a study, each judged by a function of the run, and all of its runs."""
    stages = []

    def execute(runs):
        stages.append(list(runs))
        return {run.key: judge(run) for run in runs if judge(run) is not None}

    trials, choice = search(plan, execute)
    stages.append(plan.finals(choice))
    return stages, [*trials, *stages[-1]]


def test_the_protocol_of_label_relaxation():
    """Searched on a sixth of the training data, per target; trained again on all of it."""
    plan = plan_of(["ce", "lr"], tune=("ece", "accuracy"))

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
    plan = plan_of(["lr"], tune=("nll",), recipe=recipe(data={"layout": "digits", "resample": True}))
    (search, final), _ = walked(plan, lambda run: {"nll": abs(run.settings["alpha"] - (0.1, 0.4)[run.seed])})
    assert {run.seed for run in search} == {0, 1}
    assert all(run.recipe.data.hold_out.seed == run.seed == run.recipe.seed for run in search)
    assert {run.seed: run.settings["alpha"] for run in final} == {0: 0.1, 1: 0.4}


def test_failed_candidates_are_passed_over():
    plan = plan_of(["lr", "focal"], tune=("ece",))
    (_, final), _ = walked(
        plan, lambda run: {"ece": run.settings["alpha"]} if run.settings.get("alpha", 0) > 0.06 else None
    )
    assert {run.method for run in final} == {"lr"}  # every focal candidate failed
    assert {run.settings["alpha"] for run in final} == {0.1}


def test_successive_halving():
    plan = plan_of(["acls"], tune=("ece",), search="halving", recipe=recipe())
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
        ({"tune": ("f1",)}, facts("ece", "f1")),
        ({"search": "random", "tune": ("ece",)}, facts("trials")),
        ({"seeds": ()}, facts("seed")),
        ({"seeds": tuple(range(MOST_SEEDS + 1))}, facts("1000", "1001")),
        ({"seeds": (2**63,)}, facts("seeds")),
        ({"seeds": (-1,)}, facts("seeds", "-1")),
        ({"seeds": (3, 3)}, facts("seed", "3")),
        ({"tune": ("ece", "ece")}, facts("ece")),
        ({"tune": ("ece",), "trials": 3}, facts("grid")),
        ({"search": "halving"}, facts("tune", "ece")),
        ({"recipe": recipe(search={"foo": {"alpha": [0.1]}})}, facts("foo")),
        ({"recipe": recipe(search={"ls": {"alpha": [0.1, 0.1]}})}, facts("alpha")),
    ],
    ids=lambda value: str(value)[:20],
)
def test_mistakes_are_found_before_anything_runs(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        plan_of(["ce"], **settings)
    assert len(str(caught.value)) < 300


def test_one_method_under_two_names_is_refused():
    named = {"ls:alpha=0.05": Contender("ls", {"alpha": 0.05}), "ls": Contender("ls", {})}
    with pytest.raises(ValueError, match=facts("'ls:alpha=0.05'", "'ls'")):
        Study(recipe(), named, (0,))


def test_a_candidate_without_a_number_is_never_chosen():
    values = dict(zip(describe("ls").search["alpha"], (0.3, float("nan"), 0.1, 0.2, 0.4, 0.5, 0.6), strict=True))
    plan = plan_of(["ls"], tune=("ece",), seeds=(0,), recipe=recipe())
    _, every = walked(plan, lambda run: {"ece": values[run.settings["alpha"]]})
    assert every[-1].stage == "final"
    assert every[-1].settings == {"alpha": 0.05}  # 0.1, the smallest


def test_what_a_search_looked_at_is_no_test_data():
    """The hold-out of the test split, searched with the first seed alone: the tests of all seeds leave it out."""
    given = recipe(data={"layout": "digits", "hold_out": {"fraction": 0.3, "of": "test"}})
    plan = plan_of(["ls"], tune=("ece",), seeds=(0, 1, 2), recipe=given)
    looked_at = set(load_sets(plan.trial("ls", 0, {"alpha": 0.1}).recipe).val.ids)
    assert looked_at
    for seed in (0, 1, 2):
        assert not looked_at & set(load_sets(plan.final("ls", {"alpha": 0.1}, seed, "ece").recipe).test.ids)


def test_spaces_are_those_of_the_papers():
    assert len(grid(describe("acls").search)) == 2 * 3 * 3
    for method in methods():
        for settings in grid(space(method, recipe())):
            changes(method, settings, recipe())


def test_a_method_changes_nothing_but_itself():
    given = recipe(loss={"name": "mbls", "margin": 4.0, "ignore_index": 9}, targets={"name": "adaptive"})
    assert changes("mbls", {"strength": 0.2}, given)["loss"] == {
        "name": "mbls", "margin": 4.0, "ignore_index": 9, "strength": 0.2,
    }  # fmt: skip
    assert changes("ls", {}, given) == {"targets.name": "hard", "loss": {"name": "ls", "ignore_index": 9}}
    assert changes("als+context", {}, given)["data.context_rate"] == 0.15
    with pytest.raises(ValueError, match=facts("'ls'", "margin")):
        changes("ls", {"margin": 6}, given)
    with pytest.raises(ValueError, match=facts("lss")):
        changes("lss", {}, given)
    assert {"als", "ce", "lr", "acls"} < set(methods())
    assert len({title_of(method) for method in methods()}) == len(methods())


def test_random_combinations_are_some_of_the_grid():
    some = draw(describe("acls").search, 5, seed=0)
    assert len(some) == 5
    assert all(one in grid(describe("acls").search) for one in some)
    assert some == draw(describe("acls").search, 5, seed=0) != draw(describe("acls").search, 5, seed=1)
    assert draw(describe("acls").search, 100, seed=0) == grid(describe("acls").search)
