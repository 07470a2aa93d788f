import dataclasses
import json

import numpy as np
import pytest

from calibrant.experiments.papers import Workbench, als, find_item, items
from calibrant.experiments.papers.als import CONVOLUTIONS
from calibrant.predictions import Predictions
from calibrant.training import load


def test_items_are_of_this_paper():
    assert all(item.make.__module__.endswith(".als") for item in items().values() if item.name.startswith("als."))


def test_confidence_by_object_size_is_that_of_the_predictions(bench, recipe, monkeypatch):
    monkeypatch.setattr(als, "_RECIPE", recipe)
    made = find_item("als.fig3").make(bench)
    axis = made.figures["fig3"].axes[0]
    lines = {line.get_label(): line for line in axis.get_lines()}
    assert set(lines) == {"Hard Label", "A. L. S.", "confidence = object size"}
    runs = bench.run(recipe, ("hard", "als"))
    sure, sizes = [], []
    for folder in runs.folders["als"].values():
        predictions = Predictions.open(folder / "test.npz")
        p = np.exp(predictions.logits - predictions.logits.max(1, keepdims=True))
        sure.append((p / p.sum(1, keepdims=True)).max(1))
        sizes.append(np.asarray(predictions.objectness))
    both, size = np.concatenate(sure), np.concatenate(sizes)
    bins = np.minimum((10 * size).astype(int), 9)
    means = [both[bins == k].mean() for k in range(10) if (bins == k).any()]
    np.testing.assert_allclose(lines["A. L. S."].get_ydata(), means, rtol=1e-6)
    table = made.tables["fig3-numbers"]
    (line,) = [line for line in table.rows if line.method == "A. L. S."]
    expected = np.mean([np.abs(c - o).mean() for c, o in zip(sure, sizes, strict=True)])
    assert line.cells[0].mean == pytest.approx(expected, rel=1e-6)
    assert len(made.figures["fig3-images"].axes) == 3 * (1 + 2)


def test_a_table_of_images_without_objects(bench):
    table = find_item("als.table1").make(bench).tables["table1"]
    runs = bench.run("als_imagenet", load("als_imagenet").tables["1"].rows)
    at = [column.metric for column in table.columns].index("mean_confidence")
    least = min(line.cells[at].mean for line in table.rows)
    assert [line.cells[at].best for line in table.rows] == [line.cells[at].mean == least for line in table.rows]
    assert [column.better for column in table.columns] == ["low", "low", "high", "low"]
    for line, method in zip(table.rows, load("als_imagenet").tables["1"].rows, strict=True):
        assert line.method == runs.label(method)
        values = runs.results.by_seed(method=method, set="context", posthoc="none", metric="mean_confidence")
        assert line.cells[at].mean == pytest.approx(np.mean(list(values.values())))


PRINTED = {
    ("hard", "ap"): 0.290, ("hard", "ap50"): 0.482, ("hard", "ar100"): 0.415, ("als, beta=1", "ap75"): 0.333,
    ("als, beta=1", "ap_large"): 0.477, ("ricap, full", "ap_medium"): 0.376, ("als + context", "ar100"): 0.421,
    ("als, boxes", "ap_small"): 0.119,
}  # fmt: skip


def test_the_recipe_has_the_printed_numbers():
    entries = {entry.method: entry.values for entry in load(als._DETECTION).expected}
    assert len(entries) == 12
    for (method, metric), value in PRINTED.items():
        assert entries[method][metric] == value


def test_in_small_each_detector_has_the_classifier_of_its_seed(bench, monkeypatch):
    tiny = als.DETECTOR | {
        "data": als.DETECTOR["data"] | {"split_options": {"train": {"samples": 16}, "test": {"samples": 12}}},
        "training": {"max_steps": 1, "batch_size": 8},
    }
    monkeypatch.setattr(als, "DETECTOR", tiny)
    plan = load(als._DETECTION)
    rows = plan.tables["4"].model_copy(update={"rows": ("hard", "als, beta=1")})
    short = plan.model_copy(update={"tables": {"4": rows}})
    monkeypatch.setattr(als, "load", lambda name: short)
    made = find_item("als.table4").make(bench)
    assert list(made.tables) == ["table4", "table4-beside"]
    assert [line.method for line in made.tables["table4"].rows] == ["Hard Label (mask)", "A. L. S. (mask)"]
    folders = list((bench.folder / "runs" / "small-detectors" / "runs").iterdir())
    recipes = [json.loads((folder / "recipe.json").read_text()) for folder in folders]
    assert sorted((r["seed"], r["detection"]["backbone"]) for r in recipes) == [
        (0, "als, beta=1"), (0, "hard"), (1, "als, beta=1"), (1, "hard"),
    ]  # fmt: skip
    assert len({r["detection"]["weights"] for r in recipes}) == 4
    hard = [f for f, r in zip(folders, recipes, strict=True) if r["detection"]["backbone"] == "hard"]
    values = [json.loads((f / "result.json").read_text())["sets"]["test"]["ap"] for f in hard]
    assert made.tables["table4"].rows[0].cells[0].mean == pytest.approx(sum(values) / 2)


def test_on_the_papers_data_runs_and_a_folder_are_needed(tmp_path):
    with pytest.raises(ValueError, match="given with --runs, and the folder of COCO, given with --data"):
        find_item("als.table7").make(Workbench(tmp_path, data="coco"))


def test_maps_of_methods_over_seeds(bench, recipe, monkeypatch):
    monkeypatch.setattr(als, "_RECIPE", recipe)
    monkeypatch.setattr(als, "METHODS", ("hard", "als"))
    monkeypatch.setattr(als, "_MEASURED", 25)
    studies, study = [], als._study_maps
    monkeypatch.setattr(als, "_study_maps", lambda *words: studies.append(study(*words)) or studies[-1])
    made = find_item("als.fig7").make(bench)
    assert len(made.figures["fig7"].axes) == 4 * 3
    (hard, adaptive) = made.tables["fig7-numbers"].rows
    assert (hard.method, adaptive.method, hard.cells[0].runs) == ("Hard Label", "A. L. S.", 2)
    assert len(studies) == 2
    means = [study.shares["A. L. S."].mean() for study in studies]
    assert adaptive.cells[0].mean == pytest.approx(np.mean(means))
    change = np.mean([study.shares["A. L. S."] - study.shares["Hard Label"] for study in studies])
    assert adaptive.cells[1].mean <= change <= adaptive.cells[1].high
    assert hard.cells[1] is None
    assert "over 25 test images" in made.tables["fig7-numbers"].note
    runs = bench.run(recipe, ("hard", "als"), changes=CONVOLUTIONS)
    facts = runs.folder("als", 0).recipe()
    assert facts.model.name == "small_cnn"
    assert Predictions.open(runs.folder("als", 0) / "test.npz").objectness is not None


def test_runs_without_a_common_seed_are_refused(bench, recipe, monkeypatch):
    monkeypatch.setattr(als, "METHODS", ("hard",))
    runs = bench.run(recipe, ("hard",), changes=CONVOLUTIONS)
    apart = dataclasses.replace(runs, folders={"hard": {0: runs.folder("hard", 0)}, "als": {1: runs.folder("hard", 1)}})
    monkeypatch.setattr(type(bench), "run", lambda *_, **__: apart)
    with pytest.raises(ValueError, match="the runs have none in common"):
        find_item("als.fig6").make(bench)
