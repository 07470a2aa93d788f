"""Backbones compared by their detectors: one run for each seed, resumed, and tables. Oracles: SciPy; hand counts."""

import math
from types import SimpleNamespace

import pytest
from scipy import stats

from calibrant.experiments import detectors
from calibrant.experiments.detectors import check_detectors, compare_detectors, default_reference, detector_tables
from calibrant.experiments.results import ResultRow, Results
from calibrant.training import load
from tests.helpers.drawn_objects import RECIPE
from tests.helpers.errors import facts

VALUES = {"hard": (0.290, 0.300, 0.285), "als": (0.311, 0.309, 0.312)}


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return load(tmp_path / "recipe.toml")


def backbones(**names):
    return {name: [SimpleNamespace(name=name, key=f"{name}{k}") for k in range(count)] for name, count in names.items()}


@pytest.fixture
def trained(monkeypatch):
    """Training and planning replaced: the runs that were asked for."""
    asked = []

    def train(plan, folder, *, data, resume, task, **options):
        assert resume
        asked.append(plan.key)
        value = VALUES[plan.name][plan.seed]
        return {"sets": {"test": {"ap": value, "ap50": 1.5 * value, "ar100": math.nan}}}

    def plan_run(recipe, backbone, seed):
        return SimpleNamespace(key=f"{backbone.key}-{seed}", name=backbone.name, seed=seed)

    monkeypatch.setattr(detectors, "train", train)
    monkeypatch.setattr(detectors, "plan_run", plan_run)
    return asked


def test_seeds_take_the_runs_of_a_backbone_in_turn(trained, recipe, tmp_path):
    results = compare_detectors(recipe, backbones(hard=2, als=1), (0, 1, 2), tmp_path / "out")
    assert trained == ["hard0-0", "als0-0", "hard1-1", "als0-1", "hard0-2", "als0-2"]
    assert results.by_seed(method="als", metric="ap", set="test") == dict(enumerate(VALUES["als"]))
    assert len(Results.load(tmp_path / "out")) == len(results) == 18
    check_detectors(tmp_path / "out")


def test_differences_are_paired_over_seeds(trained, recipe, tmp_path):
    results = compare_detectors(recipe, backbones(hard=1, als=1), (0, 1, 2), tmp_path / "out")
    pages = detector_tables(results, recipe, "hard")
    assert list(pages) == ["precision", "recall", "paired"]
    line = next(line for line in pages["paired"].rows if line.metric == "ap")
    test = stats.ttest_rel(VALUES["als"], VALUES["hard"])
    interval = test.confidence_interval(0.95)
    assert line.cells[0].mean == pytest.approx(sum(VALUES["als"]) / 3 - sum(VALUES["hard"]) / 3)
    assert (line.cells[1].mean, line.cells[1].high) == pytest.approx((interval.low, interval.high))
    assert line.cells[2].mean == pytest.approx(test.pvalue)


def test_what_a_paper_prints_stands_beside(recipe):
    rows = [
        ResultRow("0" * 16, name, "{}", "", "final", seed, "test", "none", math.nan, "ap", value)
        for name, values in VALUES.items()
        for seed, value in enumerate(values)
    ]
    printed = recipe.model_validate(
        recipe.model_dump(mode="json") | {"expected": [{"method": "als", "values": {"ap": 0.3}}]}
    )
    table = detector_tables(Results(rows), printed, None)["expected"]
    (line,) = table.rows
    assert line.cells[0].mean == 0.3
    assert line.cells[2].mean == pytest.approx(sum(VALUES["als"]) / 3 - 0.3)


def test_a_folder_of_something_else_is_refused(tmp_path):
    check_detectors(tmp_path / "new")
    (tmp_path / "runs").mkdir()
    check_detectors(tmp_path)
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ValueError, match=facts(str(tmp_path))):
        check_detectors(tmp_path)


def test_the_reference_is_what_papers_call_hard_labels():
    assert default_reference(["als", "hard, mask"], ("ce", "hard")) == "hard, mask"
    assert default_reference(["als"], ("ce", "hard")) is None
