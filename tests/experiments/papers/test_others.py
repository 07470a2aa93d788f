"""Figures and tables of ACLS, ALS, MbLS and LR in small, against NumPy on the files of their runs."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from calibrant.experiments.papers import Workbench, acls, als, find_item, lr, mbls
from calibrant.experiments.papers.als import CONVOLUTIONS
from calibrant.experiments.papers.registry import tables_beside
from calibrant.predictions import Predictions
from calibrant.training import last_epoch, load
from tests.helpers.errors import facts
from tests.reference import metrics as reference

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _tiny(recipe, monkeypatch):
    monkeypatch.setattr(acls, "_TINY", recipe)


def test_the_histogram_counts_the_regulariser_of_every_training_sample(bench, recipe):
    made = find_item("acls.fig3").make(bench)
    runs = bench.run(recipe, ("acls, ranking", "acls"))
    values = []
    for folder in runs.folders["acls"].values():
        epoch = last_epoch(folder.path)
        for ids in epoch.order:
            z = epoch.logits[ids].double().numpy()
            top = z.max(1, keepdims=True)
            others = np.where(z == top, 0, np.maximum(top - z - 0.5, 0) ** 2).sum(1) / (z.shape[1] - 1)
            values.append(0.1 * np.maximum(top[:, 0] - 0.5, 0) ** 2 + 0.01 * others)
    values = np.concatenate(values)
    ranking, margin = made.tables["fig3-numbers"].rows
    assert margin.cells[1].mean == pytest.approx(np.mean(values == 0), abs=1e-9)
    bars = made.figures["fig3"].axes[1].patches
    counts, _ = np.histogram(values.clip(0, 0.1), bins=20, range=(0, 0.1))
    heights = [bar.get_height() for bar in bars]
    np.testing.assert_allclose(heights, counts / counts.sum(), atol=2 / len(values))
    assert 0 <= ranking.cells[1].mean <= 1
    assert [line.cells[0].mean for line in (ranking, margin)] == [0.85, 0.05]


def test_altered_predictions_are_counted_after_a_step_on_the_logits(bench, recipe):
    made = find_item("acls.altered").make(bench)
    runs = bench.run(recipe, ("acls",))
    shares = []
    for folder in runs.folders["acls"].values():
        epoch = last_epoch(folder.path)
        z = epoch.logits.double().requires_grad_()
        labels = epoch.labels
        epoch.loss(z, labels).backward()
        stepped = z.detach() - len(z) * z.grad
        now = z.argmax(1)
        seen = torch.cat(epoch.order)
        altered = (now == labels) & (stepped.argmax(1) != now)
        shares.append(float(altered[seen].double().mean()))
    step1 = made.tables["altered"].rows[1]
    assert step1.cells[0].mean == pytest.approx(np.mean(shares), abs=1e-9)
    seen = sum(len(torch.cat(last_epoch(folder.path).order)) for folder in runs.folders["acls"].values())
    counted = round(sum(shares) * seen / len(shares))
    assert step1.cells[0].remark == f"{counted} of {seen}"
    assert f"{counted} of {seen}" in made.notes[0]


def test_gamma_of_flsd_is_counted_by_both_rules(bench, recipe):
    made = find_item("acls.flsd").make(bench)
    runs = bench.run(recipe, ("flsd",))
    by_top, by_label = [], []
    for seed in runs.folders["flsd"]:
        data = runs.outputs("flsd", seed)
        p = np.exp(data.logits - data.logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        by_top.append(np.mean(p.max(1) < 0.2))
        by_label.append(np.mean(p[np.arange(len(p)), data.labels] < 0.2))
    rows = {line.method: line.cells for line in made.tables["flsd"].rows}
    assert rows["test samples, by the largest probability (Eq. 1)"][0].mean == pytest.approx(np.mean(by_top))
    assert rows["test samples, by the label's (released)"][1].mean == pytest.approx(1 - np.mean(by_label))


def test_table_a_is_a_grid_with_gaps_where_nothing_was_run(bench, recipe):
    made = find_item("acls.tablea").make(bench)
    table = made.tables["tablea"]
    runs = bench.run(recipe, ("acls", "acls, lambda1=0, lambda2=0.01"))
    value = runs.results.by_seed(
        method="acls, lambda1=0, lambda2=0.01", set="val", posthoc="none", metric="ece", stage="final"
    )
    first = table.rows[0]
    assert first.method == "lambda1 = 0"
    assert first.cells[5].mean == pytest.approx(np.mean(list(value.values())))
    assert first.cells[0] is None or first.cells[0].runs == 0
    assert {line.metric for line in made.tables["tablea-beside"].rows} == {"accuracy", "ece"}


def test_the_sweep_over_the_margin_shows_the_validation_error(bench, recipe, monkeypatch):
    monkeypatch.setattr(acls, "_MARGINS", (0.0, 3.0))
    made = find_item("acls.figa").make(bench)
    methods = {f"acls, margin={m:g}": {"loss": {"name": "acls", "margin": m}} for m in (0.0, 3.0)}
    runs = bench.run(recipe, methods=methods)
    means = [
        np.mean(list(runs.results.by_seed(method=m, set="val", posthoc="none", metric="ece").values())) for m in methods
    ]
    drawn = made.figures["figa"].axes[0].lines[0]
    np.testing.assert_allclose(drawn.get_ydata(), 100 * np.array(means), rtol=1e-9)
    assert f"{100 * min(means):.2f}%" in made.notes[0]


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


@pytest.mark.slow
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
    with pytest.raises(ValueError, match=facts("--runs", "--data")):
        find_item("als.table7").make(Workbench(tmp_path, data="coco"))


@pytest.mark.slow
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
    assert "25" in made.tables["fig7-numbers"].note
    runs = bench.run(recipe, ("hard", "als"), changes=CONVOLUTIONS)
    facts = runs.folder("als", 0).recipe()
    assert facts.model.name == "small_cnn"
    assert Predictions.open(runs.folder("als", 0) / "test.npz").objectness is not None


def test_runs_without_a_common_seed_are_refused(bench, recipe, monkeypatch):
    monkeypatch.setattr(als, "METHODS", ("hard",))
    runs = bench.run(recipe, ("hard",), changes=CONVOLUTIONS)
    apart = dataclasses.replace(runs, folders={"hard": {0: runs.folder("hard", 0)}, "als": {1: runs.folder("hard", 1)}})
    monkeypatch.setattr(type(bench), "run", lambda *_, **__: apart)
    with pytest.raises(ValueError, match=facts("hard", "als")):
        find_item("als.fig6").make(bench)


def test_methods_stand_across_with_the_temperature_in_brackets(bench, recipe):
    def layout(parts):
        return mbls._across(parts, title="Across", small=True)

    made = tables_beside(bench, (recipe,), "T", layout=layout).tables
    table = made["tablet"]
    assert [column.title for column in table.columns] == ["CE, PreT", "CE, PosT", "LS, PreT", "LS, PosT"]
    (line,) = table.rows
    assert line.method == "Scenes"  # in small every network is the same
    assert line.cells[1].remark.startswith("T ")
    runs = bench.run(recipe, ("ce", "ls"))
    for cell, method in ((line.cells[0], "ce"), (line.cells[2], "ls")):
        values = []
        for seed in runs.folders[method]:
            data = runs.outputs(method, seed)
            p = np.exp(data.logits - data.logits.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            values.append(reference.ece(p.max(1), p.argmax(1) == data.labels, bins=15))
        assert cell.mean == pytest.approx(np.mean(values), abs=1e-5)


@pytest.mark.slow
def test_the_sweep_over_the_weight_has_validation_and_test(bench, recipe, monkeypatch):
    monkeypatch.setattr(mbls, "_TINY", recipe)
    monkeypatch.setattr(mbls, "_WEIGHTS", (0.05, 0.2))
    made = find_item("mbls.fig1").make(bench)
    titles = [axis.get_title(loc="left") for axis in made.figures["fig1"].axes]
    assert titles == ["validation", "test", "validation", "test"]
    rows = {line.method: line.cells for line in made.tables["fig1-numbers"].rows}
    assert len(rows) == 6
    drawn = made.figures["fig1"].axes[1].lines[0].get_ydata()  # ECE of LS on the test data
    np.testing.assert_allclose(drawn, [100 * rows[f"LS, {w:g}"][3].mean for w in (0.05, 0.2)])


def test_reliability_has_25_bins_and_a_zoom(bench, recipe, monkeypatch):
    monkeypatch.setattr(mbls, "_TINY", recipe)
    made = find_item("mbls.fig2").make(bench)
    axes = made.figures["fig2"].axes
    assert len(axes) == 10
    runs = bench.run(recipe, ("ce",))
    confidence, correct = [], []
    for seed in runs.folders["ce"]:
        data = runs.outputs("ce", seed)
        p = np.exp(data.logits - data.logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        confidence.append(p.max(1))
        correct.append(p.argmax(1) == data.labels)
    confidence, correct = np.concatenate(confidence), np.concatenate(correct)
    at = np.ceil(confidence * 25).astype(int) - 1
    expected = [correct[at == k].mean() for k in range(25) if (at == k).any()]
    np.testing.assert_allclose([bar.get_height() for bar in axes[0].patches][: len(expected)], expected, atol=1e-9)
    assert axes[5].get_xlim() == pytest.approx(mbls._ZOOM)


def test_loss_curves_are_those_of_the_formulas(bench):
    left, right = find_item("lr.fig2").make(bench).figures["fig2"].axes
    curves = {line.get_label(): (np.array(line.get_xdata()), np.array(line.get_ydata())) for line in left.get_lines()}
    p, ce = curves["alpha = 0"]
    np.testing.assert_allclose(ce, -np.log(p), rtol=1e-6)
    np.testing.assert_allclose(curves["alpha = 0.1"][1], -0.95 * np.log(p) - 0.05 * np.log(1 - p), rtol=1e-6)
    relaxed = np.where(p >= 0.6, 0, 0.6 * np.log(0.6 / p) + 0.4 * np.log(0.4 / (1 - p)))
    (drawn,) = [line.get_ydata() for line in right.get_lines() if line.get_label() == "alpha = 0.4"]
    np.testing.assert_allclose(drawn, relaxed, atol=1e-9)


def test_the_nearest_distribution_of_the_set_is_the_one_of_the_smallest_divergence(bench):
    made = find_item("lr.fig1").make(bench)
    predicted, alpha = np.array([0.45, 0.2, 0.35]), 0.3
    share = np.linspace(0, 1, 20001)[1:-1]
    candidates = np.stack([alpha * share, alpha * (1 - share), np.full_like(share, 1 - alpha)], 1)
    divergence = (candidates * np.log(candidates / predicted)).sum(1)
    best = candidates[divergence.argmin()]
    assert f"({best[0]:.2f}, {best[1]:.2f}, {best[2]:.2f})" in made.notes[0]
    assert f"{divergence.min():.3f}" in made.notes[0]


@pytest.fixture
def tables(bench, recipe, monkeypatch):
    monkeypatch.setattr(lr, "_TABLE1", (recipe,))
    monkeypatch.setattr(lr, "_TABLE2", ())
    monkeypatch.setattr(lr, "load", lambda name: _table_one(recipe))
    alone = {"val": None, "also": {}}
    monkeypatch.setattr(lr, "_ALONE", {"data": alone})
    monkeypatch.setattr(
        lr, "_FEWER", {"data": alone | {"split_options": {"train": {"samples": 40}, "test": {"samples": 90}}}}
    )
    monkeypatch.setattr("calibrant.experiments.papers.workbench.load", lambda name: _table_one(recipe))
    return replace(bench, seeds=(0,))


def _table_one(recipe):
    from calibrant.training import check_recipe, load

    plain = load(recipe).model_dump(mode="json")
    return check_recipe(plain | {"tables": {"1": plain["tables"]["R"]}}, "here")


def test_losses_are_tuned_for_accuracy_and_for_ece_and_the_temperature_costs_data(tables, recipe):
    made = find_item("lr.table1").make(tables)
    rows = {(line.method, line.tuned_for): line.cells for line in made.tables["table1"].rows}
    assert ("LS, R-1", "accuracy") in rows
    assert ("LS, R-1", "ece") in rows
    runs = lr._tuned_runs(tables, recipe, "1")
    scaled = runs.results.by_seed(
        method="ce on 85%", tuned_for="ece", set="test", posthoc="temperature-lr", metric="ece"
    )
    (line,) = [cells for (method, _), cells in rows.items() if method == "CE, T opt."]
    assert line[1].mean == pytest.approx(np.mean(list(scaled.values())))
    assert line[1].remark.startswith("T ")
    assert runs.folder("ce on 85%").recipe().data.hold_out.fraction == 0.15
    assert runs.folder("ce").recipe().data.hold_out is None


def test_ranks_are_averaged_over_data_sets_as_the_paper_does(tables, recipe):
    made = find_item("lr.table3").make(tables)
    table = made.tables["table3"]
    assert [line.method for line in table.rows] == ["ce", "ls", "ecp", "focal", "lr"]
    sets = [lr._tuned_runs(tables, recipe, "1"), lr._tuned_runs(tables, recipe, "1", lr._FEWER)]
    ranks = []
    for runs in sets:
        means = []
        for method in ("ce on 85%", "ls", "ecp", "focal", "lr"):
            posthoc = "temperature-lr" if "%" in method else "none"
            values = runs.results.by_seed(
                method=method, tuned_for="ece", stage="final", set="test", posthoc=posthoc, metric="accuracy"
            )
            means.append(round(float(np.mean(list(values.values()))), 3))
        ranks.append([1 + sum(other > own for other in means) for own in means])
    at = [column.name for column in table.columns].index("Accuracy, tuned for ece")
    assert [line.cells[at].mean for line in table.rows] == pytest.approx(np.mean(ranks, axis=0).tolist())
    assert made.tables["table3-beside"].rows[0].cells[0].mean == 1.88


def test_ranks_of_finished_comparisons_are_over_those(tables, recipe, tmp_path):
    first = lr._tuned_runs(tables, recipe, "1")
    folder = first.folder("ce").path.parents[1]
    again = find_item("lr.table3").make(Workbench(tmp_path, small=True, runs=[folder]))
    alone = lr._ranks({"scenes": first})
    for ours, expected in zip(again.tables["table3"].rows, alone.rows, strict=True):
        assert [cell.mean for cell in ours.cells] == [cell.mean for cell in expected.cells]
