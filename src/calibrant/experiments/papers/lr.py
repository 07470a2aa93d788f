"""Tables and figures of LR."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from calibrant.experiments import tables
from calibrant.experiments.papers.data_sets import data_of
from calibrant.experiments.papers.registry import Output, PaperItem, beside_of, item
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.results import Results
from calibrant.experiments.spaces import short_title
from calibrant.experiments.tables.cells import Column, Line, Table, TableCell, mark_best
from calibrant.experiments.tables.labels import enumerate_words
from calibrant.losses import get
from calibrant.report import Mark, draw_simplex, new_figure
from calibrant.training import load

_ALPHAS = (0.1, 0.25, 0.4)
#: Smoothing and relaxation in Fig. 1.
_ALPHA = 0.3
_TABLE1 = ("lr_mnist_mlp", "lr_fashion_mnist_mlp")
_TABLE2 = tuple(
    f"lr_{data}_{model}" for model in ("vgg16", "resnet56v2", "densenet") for data in ("cifar10", "cifar100")
)
_NETWORKS = {"mlp": "MLP", "vgg16": "VGG16", "resnet56v2": "ResNet56 (V2)", "densenet": "DenseNet-BC"}
_TARGETS = ("accuracy", "ece")
_METHODS = ("ce", "ls", "ecp", "focal", "lr")
#: In small: no separate validation data, so that a method holds out part of its training data.
_ALONE: dict[str, Any] = {"data": {"val": None}}
#: In small, a third of the images stands in for a second data set in Table 3.
_FEWER: dict[str, Any] = {
    "data": {"val": None, "split_options": {"train": {"samples": 500}, "test": {"samples": 3000}}}
}
#: Table 3 as printed: by loss, the ranks by accuracy and by ECE, tuned for accuracy, for ECE, and overall.
PRINTED_RANKS = {
    "ce": (1.88, 3.63, 4.13, 2.5, 3.0, 3.06),
    "ls": (2.75, 3.38, 1.25, 3.25, 2.0, 3.31),
    "ecp": (2.75, 4.25, 1.88, 4.75, 2.31, 4.5),
    "focal": (3.5, 2.25, 4.5, 2.25, 4.0, 2.25),
    "lr": (2.5, 1.5, 2.63, 1.63, 2.56, 1.56),
}


@item("lr.fig1")
def simplex(bench: Workbench) -> Output:
    """The triangle of distributions over three classes: a shifted target, and a set of targets with its nearest."""
    predicted = np.array([0.45, 0.2, 0.35])  # the label is the third class, in the lower right corner
    label, uniform = np.array([0.0, 0.0, 1.0]), np.full(3, 1 / 3)
    smoothed = (1 - _ALPHA) * label + _ALPHA * uniform
    other_classes = np.where(label > 0, 0.0, predicted)
    nearest = (1 - _ALPHA) * label + _ALPHA * other_classes / other_classes.sum()  # Eq. 6
    inside = ([0.05, 0.05, 0.9], [0.15, 0.02, 0.83], [0.04, 0.16, 0.8])
    region = np.array([label, (_ALPHA, 0.0, 1 - _ALPHA), (0.0, _ALPHA, 1 - _ALPHA)])
    figure = new_figure((6.6, 2.9))
    left, right = figure.subplots(1, 2)
    point = Mark(predicted.tolist(), "$\\hat p$", colour="#c0392b")
    draw_simplex(
        left,
        [Mark(label.tolist(), "$p$"), Mark(uniform.tolist(), "$u$"),
         Mark(smoothed.tolist(), "$p^s$", beside=(-20, -6)), point],
        arrows=[(label.tolist(), smoothed.tolist()), (predicted.tolist(), smoothed.tolist())],
        title="label smoothing",
    )  # fmt: skip
    draw_simplex(
        right,
        [Mark(label.tolist(), "$p$"), point,
         Mark(nearest.tolist(), "nearest in $Q$", colour="#c0392b", beside=(-68, -3)),
         *(Mark(p, "", filled=False) for p in inside)],
        region=region,
        arrows=[(predicted.tolist(), nearest.tolist())],
        title="label relaxation",
    )  # fmt: skip
    logits = torch.tensor(np.log(predicted))[None]
    target = torch.tensor([2])
    losses = {name: float(get(name, alpha=_ALPHA)(logits, target)) for name in ("ls", "lr")}
    words = (
        f"alpha = {_ALPHA:g}. The prediction is {_row(predicted)}; the nearest distribution in Q (Eq. 6) is "
        f"{_row(nearest)}, and the loss is their Kullback-Leibler divergence, {losses['lr']:.3f}.",
        f"The loss of label smoothing is the cross-entropy to {_row(smoothed)}, {losses['ls']:.3f}; it is smallest "
        "there and grows again towards the label.",
        "Open circles: distributions in Q, for which the loss is 0 as it is for the label itself.",
    )
    return Output(figures={"fig1": figure}, notes=words)


def _row(values: Any) -> str:
    return f"({', '.join(f'{value:.2f}' for value in values)})"


@item("lr.fig2")
def loss_curves(bench: Workbench) -> Output:
    """Left: cross-entropy with and without label smoothing; right: label relaxation."""
    probability = np.linspace(0.005, 0.9999, 400)
    figure = new_figure((6.6, 2.8))
    words = []
    axes = figure.subplots(1, 2, sharey=True)
    for axis, name, title in zip(axes, ("ls", "lr"), ("cross-entropy", "label relaxation"), strict=True):
        axis.plot(probability, _loss("ce", probability), color="#1f2933", label="alpha = 0")
        for alpha, dash in zip(_ALPHAS, ("--", "-.", ":"), strict=True):
            axis.plot(probability, _loss(name, probability, alpha=alpha), dash, label=f"alpha = {alpha:g}")
        axis.set_xlabel("probability of the label")
        axis.set_ylim(0, 4)
        axis.set_title(title, fontsize=9, loc="left")
        axis.legend(fontsize=7, frameon=False)
    figure.axes[0].set_ylabel("loss")
    for alpha in _ALPHAS:
        smoothed, relaxed = (_loss(name, probability, alpha=alpha) for name in ("ls", "lr"))
        words.append(
            f"alpha = {alpha:g}: with smoothing the loss is smallest at {probability[smoothed.argmin()]:.2f} and rises "
            f"again beyond it; with relaxation it is 0 from {probability[np.flatnonzero(relaxed == 0)[0]]:.2f} on."
        )
    return Output(figures={"fig2": figure}, notes=tuple(words))


def _loss(name: str, probability: Any, **settings: float) -> Any:
    logits = torch.tensor(np.log(np.stack([probability, 1 - probability], 1)))
    labels = torch.zeros(len(probability), dtype=torch.int64)
    return get(name, reduction="none", **settings)(logits, labels).numpy()


def _tuned_runs(bench: Workbench, recipe: str, number: str, changes: dict[str, Any] | None = None) -> RunSet:
    return bench.run(recipe, load(recipe).tables[number].rows, tune=_TARGETS, changes=changes or _ALONE)


@item("lr.table1")
@item("lr.table2")
def paper_table(bench: Workbench, item: PaperItem) -> Output:
    """Data sets and networks side by side, with the ranks of the losses averaged over them.

    Cross-entropy with a temperature is trained on 85% of the data.
    """
    sets = {recipe: _tuned_runs(bench, recipe, item.number) for recipe in bench.recipes(item.recipes)}
    output = beside_of(sets, item.number, layout=partial(_side_by_side, title=f"LR, Table {item.number}"))
    prices = _held_out_cost({"drawn scenes" if bench.small else _title(name): runs for name, runs in sets.items()})
    ranks = _ranks(sets)
    ranked = {f"{item.stem}-ranks": ranks} if len(ranks.rows) > 1 else {}
    return Output({**output.tables, **ranked}, notes=(*output.notes, *prices))


def _side_by_side(parts: Mapping[str, Table], title: str) -> Table:
    """Tables of recipes with the same rows side by side, with data and network in the heads of the columns."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    keys = list(dict.fromkeys((line.method, line.tuned_for) for table in parts.values() for line in table.rows))
    cells: dict[tuple[str, str], list[TableCell | None]] = {key: [] for key in keys}
    columns: list[Column] = []
    for name, table in parts.items():
        columns += [column._replace(title=f"{_title(name)}: {column.name}") for column in table.columns]
        rows = {(line.method, line.tuned_for): line.cells for line in table.rows}
        for key in keys:
            cells[key] += rows.get(key, (None,) * len(table.columns))
    lines = [Line(*key, tuple(cells[key])) for key in keys]
    first = next(iter(parts.values()))
    return Table(title, first.note, tuple(columns), mark_best(columns, lines))


def _title(recipe: str) -> str:
    """Data set and network, as the paper has them."""
    data = data_of(recipe)
    assert data is not None
    return f"{data.title}, {_NETWORKS[recipe.rpartition('_')[2]]}"


@item("lr.table3")
def table3(bench: Workbench) -> Output:
    """Ranks as tuned for accuracy, for ECE, and overall; if finished runs are given, over those."""
    if bench.small:
        sets = {"scenes": _tuned_runs(bench, _TABLE1[0], "1")}
        if not bench.runs:
            sets["a third of the scenes"] = _tuned_runs(bench, _TABLE1[0], "1", _FEWER)
    else:
        names = bench.recipes((*_TABLE1, *_TABLE2))
        sets = {_title(name): _tuned_runs(bench, name, "1" if name in _TABLE1 else "2") for name in names}
    table = _ranks(sets)
    if len(table.rows) < 2:
        raise ValueError(
            "LR, Table 3 ranks the losses that every data set has runs of: expected two or more, got {len(table.rows)}"
        )
    return Output({"table3": table, "table3-beside": _beside_printed(table)}, notes=_describe_ranks(table, sets))


def _ranks(sets: Mapping[str, RunSet]) -> Table:
    results_by_name = {name: _tabled_results(runs) for name, runs in sets.items()}
    methods = [m for m in _METHODS if all(m in results.column("method") for results in results_by_name.values())]
    stand_ins = {"ece": {"ce": "ce + temperature"}}
    has_both = all("ce + temperature" in results.column("method") for results in results_by_name.values())
    return tables.average_ranks(
        results_by_name, _TARGETS, methods=methods, ties="min", decimals=3, stand_ins=stand_ins if has_both else None,
        title="Average ranks of the losses",
    )  # fmt: skip


def _tabled_results(runs: RunSet) -> Results:
    """The numbers of the tables' rows: a row that repairs another has the numbers of that one after the repair."""
    final = runs.results.where(stage="final")
    rows = list(final.where(posthoc="none"))
    for name, method in runs.recipe.methods.items():
        if method.of is not None:
            repaired = final.where(method=method.of, posthoc=method.repair)
            rows += [row._replace(method=name, posthoc="none") for row in repaired]
    return Results(rows)


def _beside_printed(table: Table) -> Table:
    """The printed ranks beside ours."""
    columns, lines = [], []
    for column in table.columns:
        name = column.name
        columns += [column._replace(title=f"{name}, paper"), column, Column("", title="Difference", kind="difference")]
    for line in table.rows:
        cells: list[TableCell | None] = []
        for value, cell in zip(PRINTED_RANKS[line.method], line.cells, strict=False):
            gap = None if cell is None or not cell.runs else TableCell(cell.mean - value, np.nan, cell.runs)
            cells += [TableCell(value, np.nan, 0), cell, gap]
        lines.append(line._replace(cells=tuple(cells)))
    return Table("The paper's ranks and ours", "Difference: ours minus the paper's.", tuple(columns), tuple(lines))


def _describe_ranks(table: Table, sets: Mapping[str, RunSet]) -> tuple[str, ...]:
    words = [f"Ranks over {len(sets)} data set{'s' * (len(sets) != 1)}: {'; '.join(sets)}."]
    for k, column in enumerate(table.columns):
        means = {line.method: cell.mean for line in table.rows if (cell := line.cells[k]) is not None and cell.runs}
        least = min(means.values(), default=0.0)
        best = [short_title(name) for name, mean in means.items() if mean == least]
        if len(best) < len(means):  # else there is nothing to choose between
            have = "has" if len(best) == 1 else "have"
            words.append(f"By {column.name}, {enumerate_words(best)} {have} the smallest average rank, {least:.2f}.")
    return tuple(words)


def _held_out_cost(sets: Mapping[str, RunSet]) -> list[str]:
    """The cost in accuracy of holding data out for a temperature."""
    words = []
    for name, runs in sets.items():
        results = _tabled_results(runs).where(set="test", metric="accuracy")
        pair = [results.where(method=m).by_seed(tuned_for="accuracy") for m in ("ce", "ce + temperature")]
        if all(pair):
            on_all, on_part = (float(np.mean(list(values.values()))) for values in pair)
            words.append(
                f"{name}: cross-entropy is right {100 * on_all:.2f}% of the time when trained on all data, and "
                f"{100 * on_part:.2f}% when trained without the part that fits the temperature."
            )
    return words
