"""A run stands in a paper's table only with the table's data set, network and method; small runs are trained once."""

from dataclasses import replace

import numpy as np
import pytest

from calibrant.data import FASHION
from calibrant.experiments.demo_claims import study_recipe
from calibrant.experiments.papers import Workbench, find_item
from calibrant.experiments.papers.finished import match_runs, method_of, purposes_of, read_runs
from calibrant.experiments.papers.workbench import EXPERIMENT, small_recipe
from calibrant.experiments.study import contenders_of
from calibrant.predictions import Predictions
from calibrant.training import RunFolder, check_recipe, load, replace_settings
from tests.helpers.errors import facts
from tests.helpers.paper_runs import CIFAR, MNIST, NAMES, TINY, fake_comparison, fake_run, planned

pytestmark = pytest.mark.slow

CIFAR_50, TINY_50 = "acls_cifar10_resnet50", "acls_tiny_imagenet_resnet50"


def make(name, runs, folder, **settings):
    return find_item(name).make(Workbench(folder / "out", runs=runs, **settings))


def ours(table):
    """The cells that have runs, by row and column head."""
    return {
        (line.method, line.tuned_for, column.name): cell.mean
        for line in table.rows
        for column, cell in zip(table.columns, line.cells, strict=True)
        if cell is not None and cell.runs
    }


def number(folder, metric, name="test"):
    return RunFolder(folder).result()["sets"][name][metric]


def test_numbers_stand_in_the_columns_of_their_own_data_set(tmp_path):
    cifar = fake_run(tmp_path / "cifar", planned(CIFAR_50, "ls"), 10, CIFAR, accuracy=0.9)
    tiny = fake_run(tmp_path / "tiny", planned(TINY_50, "ls"), 200, TINY, accuracy=0.5)
    tables = make("acls.table3", [cifar, tiny], tmp_path).tables
    assert {name for name in tables if not name.endswith("beside")} == {
        "table3-acls_cifar10_resnet50", "table3-acls_tiny_imagenet_resnet50",
    }  # fmt: skip
    for recipe, folder in ((CIFAR_50, cifar), (TINY_50, tiny)):
        cells = ours(tables[f"table3-{recipe}"])
        assert cells["LS", "", "Accuracy"] == pytest.approx(number(folder, "accuracy"))
        assert {key[0] for key in cells} == {"LS"}
    alone = make("acls.table3", [tiny], tmp_path).tables
    assert "CIFAR" not in alone["table3"].title


def test_both_halves_of_a_table_have_their_own_numbers(tmp_path):
    runs = [
        fake_run(tmp_path / name, planned(f"lr_{name.replace('-', '_')}_mlp", "ce"), NAMES[name], MNIST, accuracy=share)
        for name, share in (("mnist", 0.95), ("fashion-mnist", 0.75))
    ]
    cells = ours(make("lr.table1", runs, tmp_path).tables["table1"])
    assert cells["CE (alpha = 0)", "", "MNIST, MLP: Accuracy"] == pytest.approx(number(runs[0], "accuracy"))
    assert cells["CE (alpha = 0)", "", "Fashion-MNIST, MLP: Accuracy"] == pytest.approx(number(runs[1], "accuracy"))
    cells = ours(make("lr.table1", runs[:1], tmp_path).tables["table1"])
    assert not any("Fashion" in key[2] for key in cells)


def test_a_conclusion_names_its_data_set_and_needs_numbers_that_differ(tmp_path):
    runs = [
        fake_run(tmp_path / recipe, planned(recipe, "ce"), classes, samples)
        for recipe, classes, samples in ((CIFAR_50, 10, CIFAR), (TINY_50, 200, TINY))
    ]
    notes = make("acls.table3", runs, tmp_path).notes
    assert {note.partition(",")[0] for note in notes} == {"CIFAR-10", "Tiny-ImageNet"}
    assert not any("Accuracy" in note for note in notes)  # a temperature changes no prediction
    mnist = fake_run(tmp_path / "mnist", planned("lr_mnist_mlp", "ce"), NAMES["mnist"], MNIST)
    assert "table1-ranks" not in make("lr.table1", [mnist], tmp_path).tables  # one loss has no rank
    alone = planned("sc_imagenet_resnet50", "ce")
    sizes = {"train": 1_231_167, "val": 50_000, "test": 50_000}
    pooled = make("sc.fig8", [fake_run(tmp_path / "sc", alone, 1000, sizes, sets=["sketch"])], tmp_path)
    assert not any("same seed" in note for note in pooled.notes)  # nothing to compare


DIGITS = {"data": {"layout": "digits"}, "model": {"name": "mlp", "hidden": [16]}}


@pytest.mark.parametrize(
    ("recipe", "classes", "samples", "words"),
    [
        (check_recipe(DIGITS, "digits"), 10, {"train": 1047, "test": 450}, ("mlp (hidden=[16])", "digits", "1,047")),
        (planned(CIFAR_50, "ce"), 10, {"train": 450, "val": 50, "test": 100}, ("CIFAR-10", "450 train", "50,000")),
        (planned(CIFAR_50, "ce"), 9, CIFAR, ("9 classes", "10 classes")),
        (planned(CIFAR_50, "ce", model={"name": "resnet20"}), 10, CIFAR, ("resnet20", "resnet50")),
        (planned(CIFAR_50, "ce", model={"name": "resnet50", "stem": "64"}), 10, CIFAR, ("stem=64", "stem=32")),
    ],
    ids=["another data set", "a part of it", "other classes", "another network", "another stem"],
)
def test_what_fits_no_column_is_named_with_what_it_is_and_what_the_columns_are(
    recipe, classes, samples, words, tmp_path
):
    run = fake_run(tmp_path / "run", recipe, classes, samples)
    fitting = fake_run(tmp_path / "tiny", planned(TINY_50, "ce"), 200, TINY)
    with pytest.raises(ValueError, match=facts("ACLS, Table 3", str(run), *words)):
        make("acls.table3", [fitting, run], tmp_path)


def test_a_run_of_another_method_is_refused_and_named(tmp_path):
    run = fake_run(tmp_path / "run", planned(CIFAR_50, "ce", loss={"name": "ls", "alpha": 0.4}), 10, CIFAR)
    with pytest.raises(ValueError, match=facts("alpha=0.4", "'mbls'", str(run))):
        make("acls.table3", [run], tmp_path)


def test_fashion_mnist_is_not_mnist_though_its_layout_is(tmp_path):
    run = fake_run(tmp_path / "run", planned("lr_mnist_mlp", "ce"), FASHION, MNIST)
    found = read_runs(run)
    assert "Fashion-MNIST" in found[0].words
    tables = make("lr.table1", [run], tmp_path).tables
    assert "Fashion-MNIST" in tables["table1"].title


def test_tuned_runs_are_taken_from_a_comparison_and_lone_ones_are_not_tuned(tmp_path):
    plan = load("lr_mnist_mlp")
    runs = []
    for name, contender in contenders_of(plan, ["ce", "ls"]).items():
        chosen = {"alpha": 0.25} if name == "ls" else {}
        loss = {"name": "ls", "alpha": 0.25} if name == "ls" else {"name": "ce"}
        recipe = planned(plan, name, loss=loss)
        runs.append((name, contender.settings | chosen, recipe, NAMES["mnist"], MNIST))
    folder = fake_comparison(tmp_path / "comparison", runs, tuned=("accuracy", "ece"))
    cells = ours(make("lr.table1", [folder], tmp_path).tables["table1"])
    assert ("LS", "accuracy", "Accuracy") in cells
    lone = fake_run(tmp_path / "lone", planned("lr_mnist_mlp", "ls"), NAMES["mnist"], MNIST)
    with pytest.raises(ValueError, match="Table 1"):
        make("lr.table1", [lone], tmp_path)


def test_a_name_in_a_comparison_does_not_make_a_method(tmp_path):
    plan = load(CIFAR_50)
    run = planned(CIFAR_50, "ce", loss={"name": "focal", "gamma": 9.0})
    (found,) = read_runs(fake_comparison(tmp_path / "c", [("ls", {}, run, NAMES["mnist"], CIFAR)]))
    assert purposes_of(found, plan) == []
    (found,) = read_runs(fake_comparison(tmp_path / "d", [("mine", {}, planned(CIFAR_50, "ls"), 10, CIFAR)]))
    assert [purpose.method for purpose in purposes_of(found, plan)] == ["ls"]


def test_what_is_left_out_and_what_was_trained_otherwise_is_said(tmp_path):
    short = replace_settings(planned(CIFAR_50, "ls"), {"training.epochs": 1.0})
    runs = [
        fake_run(tmp_path / "a", planned(CIFAR_50, "ce"), 10, CIFAR),
        fake_run(tmp_path / "b", planned(CIFAR_50, "ce"), 10, CIFAR),
        fake_run(tmp_path / "c", short, 10, CIFAR),
    ]
    found = [run for path in runs for run in read_runs(path)]
    plan = load(CIFAR_50)
    from calibrant.experiments.papers import data_of

    matched = match_runs(plan, found, data_of(CIFAR_50), contenders_of(plan))
    assert {method: list(seeds) for method, seeds in matched.folders.items()} == {"ce": [0], "ls": [0]}
    words = " ".join(matched.notes)
    assert str(runs[1]) in words
    assert "training.epochs" in words


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


def test_the_margin_of_another_recipe_is_another_method(tmp_path):
    recipe = load(CIFAR_50)
    run = planned(TINY_50, "acls")  # margin 10, and 6 on CIFAR-10
    assert method_of(load(TINY_50), run) == "acls"
    assert method_of(recipe, replace_settings(run, {"model.stem": "32"})) is None
