"""Predictions of runs, ranked by confidence and by normalised logits: what SC's figures and maps of one image show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.base.arrays import Array, Doubles
from calibrant.experiments.papers.registry import share_table
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.pixel_maps import Normalisation, image_maps
from calibrant.experiments.tables.cells import BEST, Column, Line, Table, cell_of, mark_best, number_text, usual_count
from calibrant.metrics import top_label
from calibrant.posthoc import LogitNorm, fit_best_norm, rank_shares
from calibrant.report import ImageMaps
from calibrant.training import load_sets

#: SC's recipes.
RESNET, VIT, DENSENET, DEEPLAB = (
    "sc_imagenet_resnet50", "sc_imagenet_vit_s16", "sc_cifar100_densenet", "sc_cityscapes_deeplabv3plus",
)  # fmt: skip
#: Rows of SC's recipes that its figures compare.
CE, LS = "ce", "ls, alpha=0.2"
#: The two readings of logit normalisation, by whether logits are centred; SC prints the first.
READINGS = {False: "not centred", True: "centred"}
#: Limits of every method's share of wrong pixels in an image that is shown.
_LEAST_WRONG, _MOST_WRONG = 0.05, 0.5
#: The same in words, for the figures' notes.
SHOWN_RULE = "the first of the test set in which each method gets between 5% and 50% of the sampled pixels wrong"


class JudgedSet(NamedTuple):
    """The predictions of a run on a set."""

    logits: Array  # [N, K]
    msp: Doubles  # [N] the largest softmax probability
    predicted: NDArray[np.int64]  # [N]
    correct: NDArray[np.bool_]  # [N]


class NormalisedSet(NamedTuple):
    """The normalised largest logit of a test set, by reading, p chosen on the validation data."""

    plain: JudgedSet
    norms: Mapping[bool, Normalisation]
    scores: Mapping[bool, Doubles]  # [N]
    winner: LogitNorm  # the choice among both readings and the MSP


def smoothing_runs(bench: Workbench, recipe: str, *, methods: Sequence[str], masks: bool = False) -> RunSet:
    """The runs of a recipe with cross-entropy and with label smoothing; an error if one of ``methods`` has none.

    ``masks`` takes these methods alone, in small on scenes with a label for every pixel.
    """
    runs = bench.run(recipe, methods if masks else None, masks=masks)
    for method in methods:
        if method not in runs.folders:
            names = ", ".join(runs.folders) or "none"
            raise ValueError(f"the figure needs runs of {method!r}, and the runs given are of {names}")
    return runs


def judge(runs: RunSet, method: str, seed: int, name: str = "test") -> JudgedSet:
    """The predictions of a method's run on a set."""
    data = runs.outputs(method, seed, name)
    confidence, predicted, correct = top_label(data.logits, data.labels)
    return JudgedSet(data.logits, confidence, predicted, correct)


def normalise(runs: RunSet, method: str, seed: int) -> NormalisedSet:
    """A method's test set ranked by normalised logits in both readings, p chosen on the run's validation data."""
    held_out, plain = runs.outputs(method, seed, "val"), judge(runs, method, seed)
    norms = {centre: Normalisation.fit(held_out.logits, held_out.labels, centre) for centre in READINGS}
    scores = {centre: norm.score(plain.logits) for centre, norm in norms.items()}
    return NormalisedSet(plain, norms, scores, fit_best_norm(held_out.logits, held_out.labels))


def seeds_table(title: str, columns: Sequence[Column], rows: Mapping[str, Sequence[Iterable[float]]]) -> Table:
    """A table with a row for each name: mean and standard deviation over the seeds of the values of each column."""
    lines = [Line(name, "", tuple(cell_of(values) for values in cells)) for name, cells in rows.items()]
    seeds = usual_count(cell.runs for line in lines for cell in line.cells if cell is not None)
    words = [f"Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "Of one run."]
    words += [BEST] * any(column.better != "none" for column in columns)
    return Table(title, " ".join(words), tuple(columns), mark_best(columns, lines))


def spread_words(values: Iterable[float], column: Column) -> str:
    """Mean and standard deviation, with the digits of a table, in percent where they are shares."""
    cell = cell_of(values)
    if cell is None:
        return "no number"
    words = number_text(cell.mean, column)
    if cell.std == cell.std:
        words += f" ± {number_text(cell.std, column)}"
    return f"{words}%" if column.is_share else words


class DrawnPixels(NamedTuple):
    """The pixels of test images that a run has stored."""

    image: NDArray[np.int64]  # [N] number of the image of each
    correct: NDArray[np.bool_]  # [N]
    scores: dict[str, Doubles]  # [N] by name: confidence, and normalised logits with p chosen on the validation data


def read_drawn_pixels(runs: RunSet, method: str, seed: int) -> DrawnPixels:
    """The pixels of a run's test set with both scores."""
    chosen_on = "val" if (runs.folder(method) / "val.npz").exists() else "test"
    data, held_out = runs.outputs(method, seed), runs.outputs(method, seed, chosen_on)
    confidence, _, correct = top_label(data.logits, data.labels)
    normalised = Normalisation.fit_best(held_out.logits, held_out.labels).score(data.logits)
    return DrawnPixels(data.sample, correct, {"confidence": confidence, "normalised": normalised})


def choose_image(runs: RunSet, methods: Sequence[str], seed: int) -> int:
    """The first test image in which every method gets some, but not most, of the sampled pixels wrong.

    If there is none, the image with the largest share of wrong pixels by the method that does best on it.
    """
    shares = []
    for method in methods:
        pixels = read_drawn_pixels(runs, method, seed)
        total = np.maximum(np.bincount(pixels.image), 1)
        shares.append(np.bincount(pixels.image, ~pixels.correct, minlength=len(total)) / total)
    number = max(map(len, shares))
    error_shares = np.array([np.pad(share, (0, number - len(share))) for share in shares])
    fewest, most = error_shares.min(axis=0), error_shares.max(axis=0)
    suitable = np.flatnonzero((fewest >= _LEAST_WRONG) & (most <= _MOST_WRONG))
    return int(suitable[0]) if len(suitable) else int(fewest.argmax())


def maps_of(bench: Workbench, recipe: str, runs: RunSet, methods: Sequence[str]) -> ImageMaps:
    """Maps of the shown image by the runs of some methods of a recipe with their first common seed."""
    seed, data = runs.common_seeds(methods)[0], bench.data_path(recipe)
    folder = runs.folders[methods[0]][seed]
    ids = load_sets(folder.recipe(), data).test.ids
    image = ids[choose_image(runs, methods, seed)]
    folders = {runs.label(method): runs.folders[method][seed].path for method in methods}
    return image_maps(folders, image, data=data)


def rank_table(runs: RunSet, methods: Sequence[str]) -> Table:
    """The mean rank of wrong pixels among the sampled pixels of their image, over all test images and seeds."""
    rows = {}
    for method in methods:
        by_seed = [read_drawn_pixels(runs, method, seed) for seed in runs.folders[method]]
        rows[runs.label(method)] = [
            cell_of([mean_wrong_rank(part, score) for part in by_seed]) for score in ("confidence", "normalised")
        ]
    heads = ("Rank by confidence", "Rank by normalised logits")
    note = (
        "The share of the sampled pixels of the same image of which the model is more confident, averaged over all "
        "wrong pixels. 50% is chance; the higher, the better errors are told from correct pixels."
    )
    return share_table("Ranks of wrong pixels, all test images", heads, rows, note, better="high")


def mean_wrong_rank(pixels: DrawnPixels, score: str) -> float:
    """The mean over wrong pixels of the share of their image's pixels of which the model is more confident."""
    ranks = np.empty(len(pixels.image))
    for number in np.unique(pixels.image):
        here = pixels.image == number
        ranks[here] = 1 - rank_shares(pixels.scores[score][here])
    return float(ranks[~pixels.correct].mean()) if not pixels.correct.all() else float("nan")
