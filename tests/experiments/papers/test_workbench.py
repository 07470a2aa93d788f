from dataclasses import replace

import numpy as np
import pytest

from calibrant.experiments.demo_claims import study_recipe
from calibrant.experiments.papers import Workbench
from calibrant.experiments.papers.finished import match_runs, method_of, read_runs
from calibrant.experiments.papers.workbench import EXPERIMENT, small_recipe
from calibrant.predictions import Predictions
from calibrant.training import check_recipe, load, replace_settings
from tests.helpers.errors import facts

METHODS = {"ce": {}, "ls, alpha=0.3": {"loss": {"name": "ls", "alpha": 0.3}}}


def test_runs_are_trained_once_and_found_again(bench, monkeypatch):
    first = bench.run("sc_cifar10_resnet20", methods=METHODS)
    assert {method: list(seeds) for method, seeds in first.folders.items()} == {"ce": [0, 1], "ls, alpha=0.3": [0, 1]}
    monkeypatch.setattr("calibrant.experiments.engines.train", pytest.fail)
    again = bench.run("sc_cifar10_resnet20", methods=METHODS)
    assert set(again.results) == set(first.results)
    data = first.outputs("ce", 1)
    stored = Predictions.open(first.folders["ce"][1] / "test.npz")
    np.testing.assert_array_equal(data.logits, stored.logits)


def test_finished_runs_are_taken_by_the_method_that_they_are(bench):
    made = bench.run("sc_cifar10_resnet20", methods=METHODS)
    one = made.folders["ls, alpha=0.3"][1]
    for path, expected in ((one.path, {"ls, alpha=0.3": [1]}), (one.path.parents[1], None)):
        taken = Workbench(bench.folder, small=True, runs=[path]).run("sc_cifar10_resnet20", methods=METHODS)
        if expected is not None:
            assert {method: list(seeds) for method, seeds in taken.folders.items()} == expected
        value = taken.results.by_seed(method="ls, alpha=0.3", set="test", posthoc="none", metric="ece")
        assert value[1] == made.results.by_seed(method="ls, alpha=0.3", set="test", posthoc="none", metric="ece")[1]


def test_a_folder_that_is_no_run_is_refused(bench, tmp_path):
    with pytest.raises(ValueError, match=facts(str(tmp_path))):
        Workbench(tmp_path, small=True, runs=[tmp_path]).run("sc_cifar10_resnet20", methods=METHODS)


def test_of_methods_with_the_same_loss_it_is_the_one_that_agrees_in_the_rest():
    plain = {
        "data": {"layout": "scenes"},
        "model": {"name": "mlp"},
        "methods": {
            "ce": {"loss": {"name": "ce"}},
            "ce, large": {"loss": {"name": "ce"}, "model": {"name": "resnet20"}},
            "ce on 85%": {"loss": {"name": "ce"}, "data": {"hold_out": {"fraction": 0.15}}},
            "ls": {"loss": {"name": "ls", "alpha": 0.05}},
        },
    }
    recipe = check_recipe(plain, "here")
    run = replace_settings(recipe, {"loss": {"name": "ce"}, "training.epochs": 3, "methods": {}})
    assert method_of(recipe, run) == "ce"
    assert method_of(recipe, replace_settings(run, {"model.name": "resnet20"})) == "ce, large"
    assert method_of(recipe, replace_settings(run, {"data.hold_out": {"fraction": 0.15}})) == "ce on 85%"
    assert method_of(recipe, replace_settings(run, {"loss": {"name": "ls"}})) == "ls"  # 0.05 is its default
    assert method_of(recipe, replace_settings(run, {"loss": {"name": "ls", "alpha": 0.4}})) is None
    assert method_of(recipe, replace_settings(run, {"targets.name": "adaptive"})) is None


def test_runs_of_a_search_are_not_taken_for_tested_ones(bench):
    recipe = load("sc_cifar10_resnet20")
    made = replace(bench, seeds=(0,)).run("sc_cifar10_resnet20", methods=METHODS, tune=("ece",))
    folder = made.folder("ce").path.parents[1]
    planned = check_recipe(recipe.model_dump(mode="json") | {"methods": METHODS, "tables": {}, "expected": []}, "here")
    planned = planned.model_copy(update={"data": made.recipe.data, "model": made.recipe.model})
    matched = match_runs(planned, read_runs(folder), None, METHODS)
    results, folders = matched.results, matched.folders
    assert set(results.column("stage")) == {"final"}
    assert set(results.column("tuned_for")) == {"ece"}
    assert {name: run[0].path.name for name, run in folders.items()} == {
        name: run[0].path.name for name, run in made.folders.items()
    }
    for name in METHODS:
        chosen = {"method": name, "set": "test", "posthoc": "none", "metric": "nll"}
        assert results.by_seed(**chosen) == made.results.by_seed(stage="final", **chosen)


FULL = {
    "title": "Full",
    "paper": "ALS",
    "data": {"layout": "imagenet", "also": {"imagenet-v2": {"layout": "image-folder"}}},
    "model": {"name": "resnet50"},
    "methods": {
        "hard": {"label": "Hard Label"},
        "hard, ResNet-101": {"model": {"name": "resnet101"}},
        "ls": {"loss": {"name": "ls", "alpha": 0.1, "spread": "others"}},
        "als + context": {"targets": {"name": "adaptive", "beta": 0.75}, "data": {"context_rate": 0.15, "layout": "x"}},
        "hard + T": {"of": "hard", "repair": "temperature-mbls"},
    },
    "tables": {
        "2": {
            "rows": ["hard", "hard, ResNet-101", "ls"],
            "columns": ["accuracy@imagenet-v2", "mean_iou", "ece + temperature-mbls"],
        }
    },
    "expected": [
        {"method": "ls", "where": "imagenet-v2", "values": {"accuracy": 0.5}},
        {"method": "hard, ResNet-101", "values": {"accuracy": 0.6}},
    ],
}


def test_methods_keep_what_makes_them_these_methods():
    recipe = small_recipe(check_recipe(FULL, "full"))
    assert list(recipe.methods) == ["hard", "ls", "als + context", "hard + T"]  # the network is another
    assert recipe.methods["ls"].changes == {"loss": {"name": "ls", "alpha": 0.1, "spread": "others"}}
    adaptive = {"targets.name": "adaptive", "targets.beta": 0.75, "data.context_rate": 0.15}
    assert recipe.methods["als + context"].changes == adaptive
    assert recipe.data.layout == "scenes"
    assert recipe.model.name == "mlp"


def test_tables_and_printed_numbers_name_the_sets_that_stand_for_the_papers():
    recipe = small_recipe(check_recipe(FULL, "full"))
    assert recipe.tables["2"].rows == ("hard", "ls")
    assert recipe.tables["2"].columns == ("accuracy@texture", "ece + temperature-mbls")
    assert [(entry.method, entry.where) for entry in recipe.expected] == [("ls", "texture")]


def test_a_repaired_row_brings_the_method_that_it_repairs():
    recipe = small_recipe(check_recipe(FULL, "full"), ["hard + T"])
    assert set(recipe.methods) == {"hard + T", "hard"}


def test_the_study_and_the_papers_items_train_the_same():
    own = check_recipe(EXPERIMENT, "here")
    assert study_recipe(False).key == small_recipe(load("sc_cifar10_resnet20")).key == own.key
    assert set(own.data.also) == {"context", "texture", "mixed"}
