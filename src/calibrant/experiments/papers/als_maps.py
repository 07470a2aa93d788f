"""ALS, Fig. 6-8: class activation maps of hard labels, label smoothing and adaptive label smoothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant._arrays import Doubles
from calibrant._numbers import difference, difference_span, percent, span
from calibrant.experiments.maps.activation_study import LEVEL, ActivationStudy, ChosenImages, study_activation_maps
from calibrant.experiments.papers.registry import Output
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.tables.cells import Column, Line, Table, TableCell, cell_of
from calibrant.metrics import mean_interval
from calibrant.report import draw_activation_maps

#: The columns: two baselines, and three of the paper's own; its text does not say which three.
METHODS = ("hard", "ls", "als, beta=0.75", "als, beta=1", "als + context")
#: In small: a network with convolutions, whose last block has 4 x 4 positions.
CONVOLUTIONS: dict[str, Any] = {
    "model": {"name": "small_cnn", "width": 16},
    "data": {"options": {"context": 0.7, "ambiguous": 0.0, "size": 32}},
}
_SHOWN = 4
_MEASURED = 500


def draw_maps(bench: Workbench, recipe: str, name: str, *, with_context: bool) -> Output:
    """The figure, and how much of the maps lies inside the boxes, over all seeds.

    Args:
        bench: Where the runs are from.
        recipe: The recipe of the methods.
        name: Name of the figure; its number is the seed of the images.
        with_context: Also show the images with their objects covered.
    """
    runs = bench.run(recipe, METHODS, changes=CONVOLUTIONS)
    seed = int(name.removeprefix("fig"))
    seeds = sorted(set.intersection(*(set(folders) for folders in runs.folders.values())))
    if not seeds:
        raise ValueError("the figure compares methods on the same seeds, and the runs have none in common")
    images = ChosenImages((), _SHOWN, seed, _MEASURED, with_context)
    first = _study(bench, runs, seeds[0], images)
    unseen = ChosenImages((), 0, seed, _MEASURED, with_context=False)
    studies = [first, *(_study(bench, runs, number, unseen) for number in seeds[1:])]
    table, notes = _numbers(studies)
    drawn = (
        f"Maps are of seed {seeds[0]}, and images are drawn with seed {seed}. The text of the paper does not say which "
        "three of its own methods it shows; here they are beta = 0.75, beta = 1 and + context."
    )
    tables = {f"{name}-numbers": table} if table is not None else {}
    return Output(tables, {name: draw_activation_maps(first.document, first.pictures)}, (*notes, drawn, *runs.notes))


def _study(bench: Workbench, runs: RunSet, seed: int, images: ChosenImages) -> ActivationStudy:
    folders = {runs.label(method): runs.folder(method, seed).path for method in runs.folders}
    data = None if bench.small else bench.data
    return study_activation_maps(folders, images, data=data)


def _numbers(studies: list[ActivationStudy]) -> tuple[Table | None, list[str]]:
    """The share of the maps inside the boxes: spread over seeds, and intervals over images of their mean."""
    first = studies[0].document
    if not first["measured"]:
        return None, ["The test images have no boxes, so how much of the maps lies on the objects is not known."]
    by_image = {name: _mean_over(studies, name) for name in studies[0].shares}
    reference = next(iter(by_image))
    lines, notes = [], []
    for name, shares in by_image.items():
        interval = _interval(shares)
        change = _interval(shares - by_image[reference])
        cells = (
            cell_of(float(np.nanmean(study.shares[name])) for study in studies),
            TableCell(change.low, float("nan"), len(studies), high=change.high) if name != reference else None,
        )
        lines.append(Line(name, "", cells))
        words = f"{name}: {percent(interval.value)} {span(interval.low, interval.high, 'share', interval.value)}"
        if name != reference:
            both = [interval.value, _interval(by_image[reference]).value]
            words += (
                f", {difference(change.value, 'share', both)} "
                f"{difference_span(change.low, change.high, 'share', both)} against {reference}"
            )
        notes.append(f"Map inside the boxes, {words}.")
    columns = (
        Column("", title="Map inside the boxes", unit="share", direction="high"),
        Column("", title=f"Change against {reference}, {LEVEL:.0%} interval", kind="interval", unit="share"),
    )
    note = (
        f"Mean of {len(studies)} seeds over {first['measured']} test images; intervals by the bootstrap over images, "
        "changes paired; an interval knows nothing of other seeds. The boxes fill "
        f"{percent(first['area'])} of the images: an even map would have as much inside."
    )
    return Table("How much of the maps lies inside the boxes", note, columns, tuple(lines)), notes


def _mean_over(studies: list[ActivationStudy], name: str) -> Doubles:
    """The mean of each image's shares over the seeds; NaN where a seed has no map."""
    mean: Doubles = np.mean([study.shares[name] for study in studies], axis=0)
    return mean


def _interval(values: Doubles) -> Any:
    return mean_interval(values[np.isfinite(values)], level=LEVEL)
