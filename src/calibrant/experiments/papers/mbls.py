"""Tables and figures of MbLS's appendix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from calibrant.experiments.papers.rankings import SHOWN_RULE, maps_of
from calibrant.experiments.papers.registry import Output, PaperItem, amount, item, tables_beside
from calibrant.experiments.papers.workbench import SMALL_NOTE, RunSet, Workbench
from calibrant.experiments.tables.cells import Column, Line, Table, TableCell, cell_of
from calibrant.metrics import ConfidenceSketch
from calibrant.report import draw_maps, draw_reliability_zoom, draw_sweep, new_figure

_TINY = "mbls_tiny_imagenet_resnet50"
_TABLE1 = (_TINY, "mbls_cifar10_resnet50", "mbls_cub_resnet101", "mbls_20news_gpcn")
_TABLE2 = ("mbls_cifar10_vit", "mbls_tiny_imagenet_vit")
_VOC = "mbls_voc_deeplabv3"
_NAMES = {
    _TINY: "Tiny-ImageNet", "mbls_cifar10_resnet50": "CIFAR-10", "mbls_cub_resnet101": "CUB-200-2011",
    "mbls_20news_gpcn": "20 News", "mbls_cifar10_vit": "CIFAR-10", "mbls_tiny_imagenet_vit": "Tiny-ImageNet",
}  # fmt: skip
#: Balancing weights of Fig. 1, which does not print its values.
_WEIGHTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
_BINS = 25
_ZOOM = (0.5, 1.0)


def _across(parts: Mapping[str, Table], *, title: str, small: bool) -> Table:
    """As MbLS prints it: a row for each data set and network, columns for each method.

    In the tables of recipes a row's name is the method, and after a comma the network: ``"CE, R-50"``.
    """
    rows: dict[str, dict[str, tuple[TableCell | None, ...]]] = {}
    for recipe, table in parts.items():
        for line in table.rows:
            method, _, network = line.method.partition(", ")
            # In small every network is the same small one.
            name = "Scenes" if small else ", ".join(filter(None, (_NAMES[recipe], network)))
            # A cell that was best in its column need not be best in its row.
            cells = (None if cell is None else cell._replace(best=False, second=False) for cell in line.cells)
            rows.setdefault(name, {})[method] = tuple(cells)
    first_table = next(iter(parts.values()))
    has_repair = any(column.posthoc != "none" for column in first_table.columns)
    heads = {"ece": "PreT" if has_repair else "ECE", "accuracy": "Acc"}
    names = ["PosT" if c.posthoc != "none" else heads.get(c.metric, c.name) for c in first_table.columns]
    methods = list(dict.fromkeys(method for row in rows.values() for method in row))
    columns = tuple(
        column._replace(title=f"{method}, {name}")
        for method in methods
        for column, name in zip(first_table.columns, names, strict=True)
    )
    no_cells = (None,) * len(first_table.columns)
    lines = [
        Line(name, "", tuple(cell for method in methods for cell in row.get(method, no_cells)))
        for name, row in rows.items()
    ]
    return Table(title, first_table.note, columns, tuple(lines))


@item("mbls.table1", heading="ECE before and after temperature scaling")
@item("mbls.table2", heading="results with a vision transformer")
def paper_table(bench: Workbench, item: PaperItem, heading: str) -> Output:
    """A row for each data set and network; T, by the smallest ECE on the held-out data, in brackets."""
    title = f"MbLS, appendix, Table {item.number}: {heading}"
    return tables_beside(bench, item.recipes, item.number, layout=partial(_across, title=title, small=bench.small))


@item("mbls.fig1")
def balancing_weight(bench: Workbench) -> Output:
    """Label smoothing over alpha, MbLS with margin 0 and 10 over lambda; validation left, test right."""
    kinds: dict[str, Any] = {
        "LS": lambda w: {"name": "ls", "alpha": w},
        "MbLS, m = 0": lambda w: {"name": "mbls", "margin": 0.0, "strength": w},
        "MbLS, m = 10": lambda w: {"name": "mbls", "margin": 10.0, "strength": w},
    }
    methods = {f"{kind}, {w:g}": {"loss": loss(w)} for kind, loss in kinds.items() for w in _WEIGHTS}
    runs = bench.run(_TINY, methods=methods)
    figure = new_figure((6.8, 4.8))
    axes = figure.subplots(2, 2, sharex=True)
    for row, (metric, word) in zip(axes, (("ece", "ECE"), ("accuracy", "accuracy")), strict=True):
        for axis, (name, title) in zip(row, (("val", "validation"), ("test", "test")), strict=True):
            curves = {kind: _curve(runs, kind, metric, name) for kind in kinds}
            draw_sweep(axis, curves, label="lambda or alpha", metric=word, title=title, log=True)
    columns = tuple(Column(metric, name) for name in ("val", "test") for metric in ("accuracy", "ece"))
    lines = [Line(m, "", tuple(runs.mean(m, c.metric, c.set) for c in columns)) for m in methods]
    words = []
    for kind in kinds:
        _, means, _ = _curve(runs, kind, "ece", "test")
        if np.isnan(means).all():  # no run of it was given
            continue
        low, high = (float(f(means)) for f in (np.nanmin, np.nanmax))
        words.append(
            f"{kind}: ECE on the test data lies between {100 * low:.2f}% and {100 * high:.2f}% over these weights."
        )
    words.append("The paper's figure does not print the values on its axis.")
    table = Table("Accuracy and ECE over the balancing weight", "", columns, tuple(lines))
    return Output({"fig1-numbers": table}, {"fig1": figure}, (*words, *runs.notes))


def _curve(runs: RunSet, kind: str, metric: str, name: str) -> tuple[Any, Any, Any]:
    cells = [runs.mean(f"{kind}, {w:g}", metric, name) for w in _WEIGHTS]
    return _WEIGHTS, [cell.mean for cell in cells], [cell.std for cell in cells]


@item("mbls.fig2")
def reliability(bench: Workbench) -> Output:
    """CE, LS, FL, FLSD and MbLS, with all seeds pooled; below, the part where they differ."""
    methods: tuple[str, ...] = ("ce", "ls", "focal", "flsd", "mbls")
    runs = bench.run(_TINY, methods)
    methods = tuple(method for method in methods if method in runs.folders)
    figure = new_figure((2.1 * len(methods), 4.4))
    axes = figure.subplots(2, len(methods), squeeze=False)
    words, column = [], Column("ece")
    for k, method in enumerate(methods):
        sketch = ConfidenceSketch()
        for seed in runs.folders[method]:
            data = runs.outputs(method, seed)
            sketch.update(data.logits, data.labels)
        bins = sketch.summary().reliability(_BINS)
        part = {name: getattr(bins, name) for name in ("low", "high", "count", "confidence", "accuracy")}
        label = runs.label(method).partition(", ")[0]  # without the network
        draw_reliability_zoom((axes[0, k], axes[1, k]), part, zoom=_ZOOM, title=label)
        gap = np.nansum(bins.count * (bins.confidence - bins.accuracy)) / bins.count.sum()
        side = "more" if gap > 0 else "less"
        ece = runs.mean(method, "ece").mean
        words.append(
            f"{label}: {100 * abs(gap):.2f} percentage points {side} confident than right; ECE "
            f"{amount(ece, column)} (15 bins)."
        )
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("accuracy")
    return Output(figures={"fig2": figure}, notes=tuple(words))


@item("mbls.voc")
def voc(bench: Workbench) -> Output:
    """The appendix has the settings but no table; the printed numbers are those of ACLS."""
    note = "The printed numbers are from ACLS, Table 4, which follows MbLS's protocol; the appendix prints none."
    output = tables_beside(bench, (_VOC,), "4", masks=True, notes=[note])
    data = "drawn scenes" if bench.small else "PASCAL VOC"
    titles = {
        "table4": f"MbLS on {data}, with the columns of ACLS's Table 4",
        "table4-beside": f"Printed numbers (PASCAL VOC, by ACLS in its Table 4) and ours ({data})",
    }
    tables = {name: replace(table, title=titles[name]) for name, table in output.tables.items()}
    return replace(output, tables=tables)


@item("mbls.fig3")
def confidence_maps(bench: Workbench) -> Output:
    """Picture and truth, then a confidence map and a reliability diagram with its ECE for each method."""
    methods = ("ce", "ls", "focal", "mbls")
    runs = bench.run(_VOC, methods, masks=True)
    maps = maps_of(bench, _VOC, runs, [method for method in methods if method in runs.folders])
    rows = {m.name: m.numbers for m in maps.methods}
    columns = (Column("accuracy"), Column("mean_iou"), Column("ece"))
    lines = [Line(label, "", tuple(cell_of([v[c.metric]]) for c in columns)) for label, v in rows.items()]
    table = Table(f"Of the image {maps.image}", "All pixels that count.", columns, tuple(lines))
    words = (
        f"The image is {maps.image}, {SHOWN_RULE}; {maps.pixels:,} pixels count. The paper does not say which images "
        "it shows.",
        *([SMALL_NOTE] if bench.small else []),
    )
    return Output({"fig3-numbers": table}, {"fig3": draw_maps(maps, ("confidence", "reliability"))}, words)
