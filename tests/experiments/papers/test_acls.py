import numpy as np
import pytest
import torch

from calibrant.experiments.papers import acls, find_item, items
from calibrant.training import last_epoch


@pytest.fixture(autouse=True)
def _tiny(recipe, monkeypatch):
    monkeypatch.setattr(acls, "_TINY", recipe)


def test_items_are_of_this_paper():
    assert all(item.make.__module__.endswith(".acls") for item in items().values() if item.name.startswith("acls."))
    assert find_item("acls.altered").place == "ACLS, Sec. 4.3, limitation"


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
    assert f"alters {counted} of {seen} predictions" in made.notes[0]


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
