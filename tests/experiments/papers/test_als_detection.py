"""ALS's Tables 4 and 7 in small. Oracles: numbers of the runs' own folders; the printed tables, typed here again."""

import json

import pytest

from calibrant.experiments.papers import Workbench, als_detection, find_item
from calibrant.training import load

PRINTED = {
    ("hard", "ap"): 0.290, ("hard", "ap50"): 0.482, ("hard", "ar100"): 0.415, ("als, beta=1", "ap75"): 0.333,
    ("als, beta=1", "ap_large"): 0.477, ("ricap, full", "ap_medium"): 0.376, ("als + context", "ar100"): 0.421,
    ("als, boxes", "ap_small"): 0.119,
}  # fmt: skip


def test_the_recipe_has_the_printed_numbers():
    entries = {entry.method: entry.values for entry in load(als_detection.RECIPE).expected}
    assert len(entries) == 12
    for (method, metric), value in PRINTED.items():
        assert entries[method][metric] == value


def test_in_small_each_detector_has_the_classifier_of_its_seed(bench, monkeypatch):
    tiny = als_detection.DETECTOR | {
        "data": als_detection.DETECTOR["data"] | {"split_options": {"train": {"samples": 16}, "test": {"samples": 12}}},
        "training": {"max_steps": 1, "batch_size": 8},
    }
    monkeypatch.setattr(als_detection, "DETECTOR", tiny)
    plan = load(als_detection.RECIPE)
    rows = plan.tables["4"].model_copy(update={"rows": ("hard", "als, beta=1")})
    short = plan.model_copy(update={"tables": {"4": rows}})
    monkeypatch.setattr(als_detection, "load", lambda name: short)
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
    with pytest.raises(ValueError, match="given with --runs, and from the folder of COCO, given with --data"):
        find_item("als.table7").make(Workbench(tmp_path, data="coco"))
