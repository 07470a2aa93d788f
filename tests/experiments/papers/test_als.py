import numpy as np
import pytest

from calibrant.experiments.papers import als, find_item, items
from calibrant.predictions import Predictions


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


def test_a_table_of_images_without_objects(bench, recipe, monkeypatch):
    monkeypatch.setattr(als, "_RECIPE", recipe)
    table = find_item("als.table1").make(bench).tables["table1"]
    runs = bench.run(recipe, ("hard", "als"))
    for line, method in zip(table.rows, ("hard", "als"), strict=True):
        values = runs.results.by_seed(method=method, set="context", posthoc="none", metric="mean_confidence")
        assert line.cells[1].mean == pytest.approx(np.mean(list(values.values())))
