import numpy as np
import pytest

from calibrant.experiments.papers import find_item, items, mbls
from calibrant.experiments.papers.registry import tables_beside
from tests.reference import metrics as reference


def test_items_are_of_this_paper():
    assert all(item.make.__module__.endswith(".mbls") for item in items().values() if item.name.startswith("mbls."))


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
