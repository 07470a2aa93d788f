"""Tables and figures of ALS: labels as soft as the object is small.

Tables 4 and 7 are about detectors on the classifiers of als_imagenet. On the paper's data the classifiers must be
finished runs, as they are trained on other data than the detectors. In small both are trained on drawn scenes, and a
detector has the classifier of the same seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from calibrant.auditing import confidence_by_objectness
from calibrant.base.numbers import difference, difference_span, percent, span
from calibrant.detection import read_backbones
from calibrant.experiments.activation_maps import (
    LEVEL,
    ActivationStudy,
    ChosenImages,
    mean_of_known,
    study_activation_maps,
)
from calibrant.experiments.detectors import compare_detectors, describe_setting
from calibrant.experiments.papers.registry import Output, PaperItem, beside_of, item, tables_beside
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.tables.cells import Column, Line, Table, TableCell, cell_of
from calibrant.experiments.tables.summaries import describe_runs
from calibrant.metrics import objectness_deviation, top_label
from calibrant.report import draw_activation_maps, draw_confidence_by_objectness, draw_peaks, new_figure
from calibrant.training import Recipe, check_recipe, load, load_sets

_RECIPE, _DETECTION = "als_imagenet", "als_detection_coco"
#: The object sizes of the pictures in Fig. 3, as shares of the image; the nearest test images are shown.
_SIZES = (0.15, 0.4, 0.7)
_BINS = 10
#: The columns of Fig. 6-8: two baselines and three of the paper's own methods; its text does not say which three.
METHODS = ("hard", "ls", "als, beta=0.75", "als, beta=1", "als + context")
_SHOWN = 4
_MEASURED = 500
#: In small: networks with convolutions, and scenes that are large enough for their stages. The last block of the first
#: has 4 x 4 positions; the second is the backbone of a detector.
_SCENES: dict[str, Any] = {"options": {"context": 0.7, "ambiguous": 0.0, "size": 32}}
CONVOLUTIONS: dict[str, Any] = {"model": {"name": "small_cnn", "width": 16}, "data": _SCENES}
CLASSIFIER: dict[str, Any] = {"model": {"name": "small_resnet", "width": 8}, "data": _SCENES}
#: In small: the values that differ from the recipe.
DETECTOR: dict[str, Any] = {
    "title": "drawn scenes (small)",
    "data": {
        "layout": "scenes",
        **_SCENES,
        "split_options": {"train": {"samples": 800}, "test": {"samples": 300}},
        "train_steps": [{"step": "flip"}],
    },
    "model": CLASSIFIER["model"],
    "detection": {
        "anchors": [8, 16, 24], "frozen_stages": 0, "pooled": 4, "candidates": [200, 100], "proposals": [60, 30],
        "regions": 16,
    },
    "optimiser": {"name": "adam", "rate": 2e-3},
    "training": {"epochs": 10, "batch_size": 8},
}  # fmt: skip


@item("als.fig3")
def confidence_and_size(bench: Workbench) -> Output:
    """Mean confidence in bins of objectness for the methods of Table 1, and their predictions for three images."""
    runs = bench.run(_RECIPE, load(_RECIPE).tables["1"].rows)
    parts, lines, notes = {}, [], []
    for method in runs.folders:
        seeds = [_confidence_and_objectness(runs, method, seed) for seed in runs.folders[method]]
        confidence, objectness = (np.concatenate(column) for column in zip(*seeds, strict=True))
        part = parts[runs.label(method)] = confidence_by_objectness(confidence, objectness, bins=_BINS)
        slopes = [np.polyfit(sizes, confidences, 1)[0] for confidences, sizes in seeds]
        deviations = [objectness_deviation(confidences, sizes) for confidences, sizes in seeds]
        lines.append(Line(runs.label(method), "", (cell_of(deviations), cell_of(slopes))))
        first_bin, last_bin = (int(at) for at in np.flatnonzero(part["count"])[[0, -1]])
        notes.append(
            f"{runs.label(method)}: mean confidence is {part['confidence'][first_bin]:.2f} where objects cover "
            f"{100 * part['objectness'][first_bin]:.0f}% of the image, and {part['confidence'][last_bin]:.2f} where "
            f"they cover {100 * part['objectness'][last_bin]:.0f}%; the fitted line changes by {np.mean(slopes):+.2f} "
            "from an image without the object to one that it fills."
        )
    figure = new_figure((4.2, 3.4))
    draw_confidence_by_objectness(figure.subplots(), parts)
    slope = Column("", title="Slope of confidence over object size", direction="none")
    columns = (Column("objectness_deviation"), slope)
    table = Table("Confidence and the size of the object", describe_runs(lines), columns, tuple(lines))
    notes.append("ALS, section 4.2, prints an objectness deviation of 0.24 for adaptive and 0.42 for hard labels.")
    return Output({"fig3-numbers": table}, {"fig3": figure, "fig3-images": _draw_images(bench, runs)}, tuple(notes))


def _confidence_and_objectness(runs: RunSet, method: str, seed: int) -> tuple[Any, Any]:
    """Confidence, and the share of the image that the object covers, for the test images of a run."""
    predictions = runs.predictions(method, seed)
    if predictions.objectness is None:
        raise ValueError(f"{runs.folder(method, seed).path}: its test predictions have no objectness")
    confidence = top_label(np.asarray(predictions.logits), np.asarray(predictions.labels))[0]
    return confidence, np.asarray(predictions.objectness, np.float64)


def _draw_images(bench: Workbench, runs: RunSet) -> Any:
    """Images with a small, a medium and a large object, and the probabilities of each method."""
    methods = list(runs.folders)
    seed = min(runs.folders[methods[0]])
    reference = runs.predictions(methods[0], seed)
    test = load_sets(runs.folder(methods[0], seed).recipe(), bench.data_path(_RECIPE)).test
    numbers = {ident: number for number, ident in enumerate(test.ids)}
    probabilities = {runs.label(m): softmax(np.asarray(runs.predictions(m, seed).logits), axis=1) for m in methods}
    is_correct = np.all([row.argmax(1) == np.asarray(reference.labels) for row in probabilities.values()], axis=0)
    candidates = np.flatnonzero(is_correct) if is_correct.any() else np.arange(len(is_correct))
    sizes = np.asarray(reference.objectness, np.float64)
    figure = new_figure((1.75 * (1 + len(methods)), 1.5 * len(_SIZES)))
    grid = figure.subplots(len(_SIZES), 1 + len(methods), squeeze=False)
    for axes, size in zip(grid, _SIZES, strict=True):
        at = int(candidates[np.abs(sizes[candidates] - size).argmin()])
        image = np.asarray(test.inputs[numbers[reference.ids[at]] if reference.ids is not None else at])
        peaks = {name: row[at].tolist() for name, row in probabilities.items()}
        draw_peaks(axes, image, peaks, f"object: {100 * sizes[at]:.0f}%")
    return figure


@item("als.fig6", with_context=True)
@item("als.fig7")
@item("als.fig8")
def draw_maps(bench: Workbench, item: PaperItem, with_context: bool = False) -> Output:
    """Activation maps of images, and how much of them lies inside the boxes, over all seeds.

    The number of the figure is the seed of its images; with context, each is also shown with its objects covered.
    """
    runs = bench.run(_RECIPE, METHODS, changes=CONVOLUTIONS)
    seed, seeds = int(item.number), runs.common_seeds(list(runs.folders))
    images = ChosenImages((), _SHOWN, seed, _MEASURED, with_context)
    first_study = _study_maps(bench, runs, seeds[0], images)
    unseen = ChosenImages((), 0, seed, _MEASURED, with_context=False)
    studies = [first_study, *(_study_maps(bench, runs, number, unseen) for number in seeds[1:])]
    table, notes = _numbers(studies)
    choice_note = (
        f"The maps are those of seed {seeds[0]}; the images are drawn with seed {seed}. The paper does not say which "
        "three of its own methods it shows; here they are beta = 0.75, beta = 1 and + context."
    )
    tables = {f"{item.stem}-numbers": table} if table is not None else {}
    figure = draw_activation_maps(first_study.document, first_study.pictures)
    return Output(tables, {item.stem: figure}, (*notes, choice_note, *runs.notes))


def _study_maps(bench: Workbench, runs: RunSet, seed: int, images: ChosenImages) -> ActivationStudy:
    folders = {runs.label(method): runs.folder(method, seed).path for method in runs.folders}
    return study_activation_maps(folders, images, data=bench.data_path(_RECIPE))


def _numbers(studies: list[ActivationStudy]) -> tuple[Table | None, list[str]]:
    """The share of the maps inside the boxes: its spread over seeds, and intervals of its mean over images."""
    document = studies[0].document
    if not document["measured"]:
        return None, ["The test images have no boxes, so the share of the maps on the objects is unknown."]
    # NaN where a seed has no map.
    by_image = {name: np.mean([study.shares[name] for study in studies], axis=0) for name in studies[0].shares}
    reference = next(iter(by_image))
    lines, notes = [], []
    for name, shares in by_image.items():
        interval, change = mean_of_known(shares), mean_of_known(shares - by_image[reference])
        cells = (
            cell_of(float(np.nanmean(study.shares[name])) for study in studies),
            TableCell(change.low, float("nan"), len(studies), high=change.high) if name != reference else None,
        )
        lines.append(Line(name, "", cells))
        words = f"{name}: {percent(interval.value)} {span(interval.low, interval.high, 'share', interval.value)}"
        if name != reference:
            values = [interval.value, mean_of_known(by_image[reference]).value]
            words += (
                f", {difference(change.value, 'share', values)} "
                f"{difference_span(change.low, change.high, 'share', values)} against {reference}"
            )
        notes.append(f"Map inside the boxes, {words}.")
    columns = (
        Column("", title="Map inside the boxes", unit="share", direction="high"),
        Column("", title=f"Change against {reference}, {LEVEL:.0%} interval", kind="interval", unit="share"),
    )
    note = (
        f"Mean of {len(studies)} seeds over {document['measured']} test images; intervals by the bootstrap over "
        "images, changes are paired. The intervals do not cover the spread over seeds. The boxes fill "
        f"{percent(document['area'])} of the images, which is the share of an even map."
    )
    return Table("How much of the maps lies inside the boxes", note, columns, tuple(lines)), notes


_NO_OBJECT = (
    "No object is visible in these images: lower accuracy, mean confidence and overconfidence are better here, and "
    "higher underconfidence."
)
_BETTER = {"accuracy": "low", "mean_confidence": "low", "overconfidence": "low", "underconfidence": "high"}
_STAND_IN = "With --small, the set texture stands in for ImageNetV2: the same objects in unseen colours and patterns."


@item("als.table1", directions=_BETTER, notes=[_NO_OBJECT])
@item("als.table2", small_notes=[_STAND_IN])
@item("als.table3", small_notes=[_STAND_IN])
@item("als.table5", small_notes=[_STAND_IN])
@item("als.table6")
def paper_table(bench: Workbench, item: PaperItem, **options: Any) -> Output:
    """In small on scenes, with one small network; methods that differ only in their training set share a row."""
    return tables_beside(bench, item.recipes, item.number, **options)


@item("als.table4")
@item("als.table7")
def detection_table(bench: Workbench, item: PaperItem) -> Output:
    """In small, detectors of drawn shapes, none of them large; the seeds are those of the detectors."""
    plan = load(_DETECTION)
    assert plan.detection is not None
    if not bench.small and not (bench.runs and bench.data_path(_DETECTION)):
        raise ValueError(
            f"ALS, Table {item.number} needs finished runs of {plan.detection.pretraining}, given with --runs, and the "
            "folder of COCO, given with --data; --small takes drawn scenes instead"
        )
    rows = plan.tables[item.number].rows
    classifiers = bench.run(plan.detection.pretraining, rows, changes=CLASSIFIER)
    names = [row for row in rows if row in classifiers.folders]
    if not names:
        raise ValueError(f"none of the runs is a method of ALS's Table {item.number}: {', '.join(rows)}")
    if bench.small:
        plan = small_detection(plan, names)
    texts = [f"{name}={folder.path}" for name in names for _, folder in sorted(classifiers.folders[name].items())]
    backbones = read_backbones(texts, plan)
    folder = bench.folder / "runs" / ("small-detectors" if bench.small else _DETECTION)
    results = compare_detectors(plan, backbones, bench.seeds, folder, data=bench.data_path(_DETECTION))
    runs = RunSet(plan, results, {})
    return beside_of({_DETECTION: runs}, item.number, notes=(*describe_setting(backbones, plan), *classifiers.notes))


def small_detection(recipe: Recipe, names: list[str]) -> Recipe:
    """The recipe over drawn scenes, with some of its methods."""
    tables = {
        number: {"columns": list(table.columns), "rows": [row for row in table.rows if row in names]}
        for number, table in recipe.tables.items()
    }
    words = {"paper": recipe.paper, "table": recipe.table, "tables": tables}
    methods = {name: recipe.methods[name].model_dump(mode="json", exclude_none=True) for name in names}
    expected = [entry.model_dump(mode="json") for entry in recipe.expected if entry.method in names]
    return check_recipe({**DETECTOR, **words, "methods": methods, "expected": expected}, "the small recipe")
