"""Tables and figures of ACLS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from calibrant._lens import lens
from calibrant.base.numbers import count
from calibrant.experiments.papers.registry import Output, PaperItem, beside_of, item, share_table, tables_beside
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.tables.cells import NOTHING, Column, Line, Table, TableCell, cell_of
from calibrant.losses import FLSD
from calibrant.report import draw_regulariser, draw_sweep, new_figure
from calibrant.training import LastEpoch, last_epoch, load

_TINY = "acls_tiny_imagenet_resnet50"
#: The values of Table A, and those of the paper's other tables, which are the method "acls".
_LAMBDA1, _LAMBDA2 = (0.0, 0.05, 0.1, 0.15), (0.0, 0.005, 0.01, 0.015)
_DEFAULTS = (0.1, 0.01)
#: Margins of Fig. A, which does not print its values.
_MARGINS = (0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0)
#: Where Fig. 3 cuts the regulariser off, and its number of bins.
_CUT, _BINS = 0.1, 20
#: Sizes of a gradient step on the logits.
_STEPS = (0.1, 1.0)
_LEFT_OUT = "The paper's rows CaPE-bin, MCdrop and those from Patra et al. are not computed here."


@item("acls.table3")
@item("acls.table4", masks=True)
@item("acls.table5")
@item("acls.table6")
@item("acls.tableb", notes=[_LEFT_OUT])
def paper_table(bench: Workbench, item: PaperItem, **options: Any) -> Output:
    """A table for each data set and network; in small, only the first."""
    return tables_beside(bench, item.recipes, item.number, **options)


@item("acls.fig3")
def regulariser(bench: Workbench) -> Output:
    """Histograms of L_REG over the training samples at the end of training, with and without the ranking condition."""
    runs = bench.run(_TINY, ("acls, ranking", "acls"))
    runs.common_seeds(("acls, ranking", "acls"))
    figure = new_figure((6.4, 2.7))
    axes = figure.subplots(1, 2, sharey=True)
    rows, notes = {}, []
    for axis, method, printed in zip(axes, ("acls, ranking", "acls"), (0.85, 0.05), strict=True):
        by_seed = [_regulariser(epoch) for epoch in _last_epochs(bench, runs, method)]
        values = np.concatenate(by_seed)
        zeros = [float(np.mean(part == 0)) for part in by_seed]
        counts, edges = np.histogram(values.clip(0, _CUT), bins=_BINS, range=(0, _CUT))
        title = "ACLS with ranking condition" if method != "acls" else "ACLS"
        draw_regulariser(axis, counts, edges, float(np.mean(values == 0)), title=title)
        rows[title] = (TableCell(printed, np.nan, 0), cell_of(zeros))
        notes.append(
            f"{title}: the regulariser is 0 for {100 * np.mean(zeros):.1f}% of the training samples (paper: "
            f"{100 * printed:.0f}%)."
        )
    heads = ("Regulariser is 0, paper", "Regulariser is 0, ours")
    table = share_table("Samples on which the regulariser is not active", heads, rows)
    notes.append(
        "The logits are those of the last epoch's network for the training samples, without augmentation; the pairs "
        "of the ranking condition are neighbours in the batches of that epoch."
    )
    return Output({"fig3-numbers": table}, {"fig3": figure}, tuple(notes))


def _last_epochs(bench: Workbench, runs: RunSet, method: str) -> Iterator[LastEpoch]:
    for folder in runs.folders[method].values():
        yield last_epoch(folder.path, data=bench.data_path(_TINY))


def _regulariser(epoch: LastEpoch) -> Any:
    epoch.loss.reduction = "none"
    with torch.no_grad():
        parts = [epoch.loss.terms(z, labels, ids=ids)["regulariser"] for z, labels, ids in epoch.batches()]
    return torch.cat(parts).double().numpy()


@item("acls.altered")
def altered(bench: Workbench) -> Output:
    """How many right predictions a gradient step on the logits would change at the end of training."""
    runs = bench.run(_TINY, ("acls",))
    epochs = list(_last_epochs(bench, runs, "acls"))
    sizes = [sum(map(len, epoch.order)) for epoch in epochs]
    rows = {}
    for step in _STEPS:
        counts = np.array([_count_altered(epoch, step) for epoch in epochs])
        rows[f"step {step:g}"] = cells = [_counted_cell(column, sizes) for column in counts.T]
    heads = ("Altered by the whole loss", "Altered by the regulariser alone")
    note = (
        "The share of training samples that are right before the step and wrong after it; in brackets, the number of "
        "samples over all seeds."
    )
    words = (
        f"With a step of {_STEPS[-1]:g} the loss alters {cells[0].remark} predictions; the paper counts 0.29% in the "
        "last epoch on Tiny-ImageNet, after a step of the weights.",
        "Here the step changes the logits of each sample, z - step dL/dz, for the network of the last epoch without "
        "augmentation: the change that the loss asks for, before shared weights mix the samples.",
    )
    return Output({"altered": share_table("Right predictions that a step alters", heads, rows, note)}, {}, words)


def _counted_cell(counts: Sequence[int], sizes: Sequence[int]) -> TableCell:
    """The share of samples over seeds, and their number, because a small share may round to 0."""
    cell = cell_of(number / size for number, size in zip(counts, sizes, strict=True)) or NOTHING
    return cell._replace(remark=f"{count(int(sum(counts)))} of {count(sum(sizes))}")


def _count_altered(epoch: LastEpoch, step: float) -> tuple[int, int]:
    """The number of samples that a step turns from right to wrong: of the whole loss, and of its regulariser."""
    counts = [0, 0]
    for z, labels, ids in epoch.batches():
        view = lens(epoch.loss, z, labels, ids=ids)
        now = z.argmax(1)
        for k, slope in enumerate((view.probs - view.effective, view.target - view.effective)):
            counts[k] += int(((now == labels) & ((z.double() - step * slope).argmax(1) != now)).sum())
    return counts[0], counts[1]


@item("acls.flsd")
def flsd_gamma(bench: Workbench) -> Output:
    """Shares of training and test samples by FLSD's exponent, under both of its rules."""
    runs = bench.run(_TINY, ("flsd",))
    rules = {"by the largest probability (Eq. 1)": FLSD(variant="paper"), "by the label's (released)": FLSD()}
    rows, notes = {}, []
    for name in ("training samples", "test samples"):
        for words, loss in rules.items():
            shares = [_share_at_five(loss, *part) for part in _samples(bench, runs, name)]
            rows[f"{name}, {words}"] = (cell_of(shares), cell_of(1 - share for share in shares))
            notes.append(f"gamma is 3 for {100 * (1 - np.mean(shares)):.1f}% of the {name}, {words}.")
    notes.append("The paper finds gamma = 3 for 95% of samples on Tiny-ImageNet, and does not say of which samples.")
    table = share_table("Samples by FLSD's gamma", ("gamma = 5", "gamma = 3"), rows)
    return Output({"flsd": table}, {}, tuple(notes))


def _samples(bench: Workbench, runs: RunSet, name: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits and labels, of every seed."""
    if name == "training samples":
        for epoch in _last_epochs(bench, runs, "flsd"):
            yield epoch.logits, epoch.labels
        return
    for seed in runs.folders["flsd"]:
        data = runs.outputs("flsd", seed)
        yield torch.tensor(data.logits), torch.tensor(data.labels)


def _share_at_five(loss: FLSD, logits: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of samples whose exponent is 5."""
    probabilities = logits.double().softmax(1)
    gamma = loss.gamma_of(probabilities.gather(1, labels[:, None])[:, 0], probabilities.amax(1))
    return float((gamma == 5).double().mean())


@item("acls.tablea")
def table_a(bench: Workbench) -> Output:
    """A row for each lambda1, columns for each lambda2, on the held-out data."""
    runs = bench.run(_TINY, load(_TINY).tables["A"].rows)
    output = beside_of({_TINY: runs}, "A")
    columns = tuple(
        Column(metric, "val", title=f"{word}, lambda2 = {second:g}")
        for second in _LAMBDA2
        for word, metric in (("Acc", "accuracy"), ("ECE", "ece"))
    )
    cells = {(a, b): [_grid_cell(runs, a, b, c.metric) for c in columns[:2]] for a in _LAMBDA1 for b in _LAMBDA2}
    lines = [Line(f"lambda1 = {a:g}", "", tuple(cell for b in _LAMBDA2 for cell in cells[a, b])) for a in _LAMBDA1]
    first = output.tables["tablea"]
    grid = Table(first.title, f"On the held-out data. {first.note}", columns, tuple(lines))
    ece = {pair: cell.mean for pair, (_, cell) in cells.items() if cell is not None}
    if not ece:
        raise ValueError("the finished runs have no held-out data, on which ACLS, Table A is computed")
    best = min(ece, key=lambda pair: ece[pair])
    words = (
        f"The smallest ECE on the held-out data is {100 * ece[best]:.2f}%, at lambda1 = {best[0]:g} and lambda2 = "
        f"{best[1]:g} (paper: 1.31% at 0.1 and 0.01).",
    )
    beside = {name: table for name, table in output.tables.items() if name.endswith("-beside")}
    return Output({"tablea": grid, **beside}, {}, (*words, *runs.notes))


def _grid_cell(runs: RunSet, lambda1: float, lambda2: float, metric: str) -> TableCell | None:
    name = "acls" if (lambda1, lambda2) == _DEFAULTS else f"acls, lambda1={lambda1:g}, lambda2={lambda2:g}"
    cell = runs.mean(name, metric, "val")
    return cell if cell.runs else None


@item("acls.figa")
def margins(bench: Workbench) -> Output:
    """ECE of ACLS on the held-out data for margins from 0 on."""
    methods = {f"acls, margin={m:g}": {"loss": {"name": "acls", "margin": m}} for m in _MARGINS}
    runs = bench.run(_TINY, methods=methods)
    cells = [runs.mean(method, "ece", "val") for method in methods]
    figure = new_figure((3.8, 2.8))
    curve = (_MARGINS, [cell.mean for cell in cells], [cell.std for cell in cells])
    draw_sweep(figure.subplots(), {"ACLS": curve}, label="margin", metric="ECE, held-out data")
    columns = (Column("accuracy", "val"), Column("ece", "val"))
    lines = [
        Line(f"margin = {m:g}", "", (runs.mean(method, "accuracy", "val"), cell))
        for m, method, cell in zip(_MARGINS, methods, cells, strict=True)
    ]
    means = {margin: cell.mean for margin, cell in zip(_MARGINS, cells, strict=True) if cell.runs}
    if not means:
        raise ValueError("the finished runs have no held-out data, on which ACLS, Fig. A is drawn")
    best, *_ = sorted(means, key=lambda margin: means[margin])
    ends = " and ".join(f"{100 * means[margin]:.2f}% at {margin:g}" for margin in {min(means): 0, max(means): 0})
    words = (
        f"ECE on the held-out data is smallest at margin {best:g} ({100 * means[best]:.2f}%); it is {ends}.",
        "The paper's figure prints no numbers.",
        *runs.notes,
    )
    return Output({"figa-numbers": Table("ACLS over the margin", "", columns, tuple(lines))}, {"figa": figure}, words)
