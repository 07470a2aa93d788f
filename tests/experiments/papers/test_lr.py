from dataclasses import replace

import numpy as np
import pytest

from calibrant.experiments.papers import Workbench, find_item, lr


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
