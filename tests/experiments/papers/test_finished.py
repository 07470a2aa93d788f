"""A run stands in a paper's table only with the table's data set, network and method."""

from dataclasses import replace

import pytest

from calibrant.data import FASHION
from calibrant.experiments.papers import Workbench, find_item
from calibrant.experiments.papers.finished import match_runs, method_of, purposes_of, read_runs
from calibrant.experiments.study import contenders_of
from calibrant.training import RunFolder, check_recipe, load, replace_settings
from tests.helpers.errors import facts
from tests.helpers.paper_runs import CIFAR, MNIST, NAMES, TINY, fake_comparison, fake_run, planned

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


def test_the_margin_of_another_recipe_is_another_method(tmp_path):
    recipe = load(CIFAR_50)
    run = planned(TINY_50, "acls")  # margin 10, and 6 on CIFAR-10
    assert method_of(load(TINY_50), run) == "acls"
    assert method_of(recipe, replace_settings(run, {"model.stem": "32"})) is None


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


def test_runs_in_small_do_not_stand_for_the_papers_data(bench, tmp_path, recipe):
    small = replace(bench, seeds=(0,)).run(recipe, ("ce", "ls"))
    runs = [small.folder("ce").path, small.folder("ls").path]
    with pytest.raises(ValueError, match="scenes"):
        make("acls.table3", runs, tmp_path)
    again = Workbench(tmp_path / "out", small=True, runs=runs).run(recipe, ("ce", "ls"))
    assert set(again.folders) == {"ce", "ls"}
