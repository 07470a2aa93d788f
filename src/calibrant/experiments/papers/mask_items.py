"""What the segmentation figures of several papers share: which image is shown, its maps, and ranks over all images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Doubles
from calibrant.experiments.maps.image_maps import Normalisation, image_maps
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.tables.cells import Column, Line, Table, cell_of
from calibrant.metrics import top_label
from calibrant.posthoc import rank_shares
from calibrant.report import ImageMaps
from calibrant.training import load_sets

#: Wrong pixels of an image that is shown, as a share of those drawn: some by every method, and right ones among them.
_LEAST_WRONG, _MOST_WRONG = 0.05, 0.5
#: The same as the figures say it.
SHOWN_RULE = "the first of the test set of which each method gets between 5% and 50% of the drawn pixels wrong"
SMALL_NOTE = "In small the data are drawn scenes with a label for every pixel, and the network is a small DeepLab v3+."


class DrawnPixels(NamedTuple):
    """The pixels that a run wrote of its test images.

    Attributes:
        image: [N] number of the image of each.
        correct: [N].
        scores: [N] by name: confidence, and normalised logits with p chosen on the validation data.
    """

    image: npt.NDArray[np.int64]
    correct: npt.NDArray[np.bool_]
    scores: dict[str, Doubles]


def drawn_pixels(runs: RunSet, method: str, seed: int) -> DrawnPixels:
    """The pixels of a run's test set with both scores."""
    data, held_out = runs.outputs(method, seed), runs.outputs(method, seed, "val" if _has_val(runs, method) else "test")
    confidence, _, correct = top_label(data.logits, data.labels)
    normalised = Normalisation.fit(held_out.logits, held_out.labels).score(data.logits)
    return DrawnPixels(data.sample, correct, {"confidence": confidence, "normalised": normalised})


def _has_val(runs: RunSet, method: str) -> bool:
    return (runs.folder(method) / "val.npz").exists()


def shown_image(runs: RunSet, methods: Sequence[str], seed: int) -> int:
    """The first test image of which every method gets some, and not most, of the drawn pixels wrong.

    Where there is none, the image of which the method that does best on it gets most wrong.
    """
    shares = []
    for method in methods:
        pixels = drawn_pixels(runs, method, seed)
        total = np.maximum(np.bincount(pixels.image), 1)
        shares.append(np.bincount(pixels.image, ~pixels.correct, minlength=len(total)) / total)
    number = max(map(len, shares))
    wrong = np.array([np.pad(share, (0, number - len(share))) for share in shares])
    fewest, most = wrong.min(axis=0), wrong.max(axis=0)
    suitable = np.flatnonzero((fewest >= _LEAST_WRONG) & (most <= _MOST_WRONG))
    return int(suitable[0]) if len(suitable) else int(fewest.argmax())


def maps_of(bench: Workbench, runs: RunSet, methods: Sequence[str]) -> ImageMaps:
    """Maps of the shown image by the runs of some methods with their first common seed."""
    seed = min(set.intersection(*(set(runs.folders[method]) for method in methods)))
    folder = runs.folders[methods[0]][seed]
    data = None if bench.small else bench.data
    ids = load_sets(folder.recipe(), data).test.ids
    image = ids[shown_image(runs, methods, seed)]
    folders = {runs.label(method): runs.folders[method][seed].path for method in methods}
    return image_maps(folders, image, data=data)


def rank_table(runs: RunSet, methods: Sequence[str]) -> Table:
    """The mean rank of wrong pixels among the drawn pixels of their image, over all test images and seeds."""
    lines = []
    for method in methods:
        by_seed = [drawn_pixels(runs, method, seed) for seed in runs.folders[method]]
        cells = [cell_of([mean_wrong_rank(part, score) for part in by_seed]) for score in ("confidence", "normalised")]
        lines.append(Line(runs.label(method), "", tuple(cells)))
    titles = ("Rank by confidence", "Rank by normalised logits")
    columns = tuple(Column("", title=title, direction="high", unit="share") for title in titles)
    note = (
        "The share of the drawn pixels of the same image of which the model is surer, mean over all wrong pixels: 50% "
        "is chance, and the higher the better are errors told from right pixels."
    )
    return Table("Ranks of wrong pixels, all test images", note, columns, tuple(lines))


def mean_wrong_rank(pixels: DrawnPixels, score: str) -> float:
    """The mean over wrong pixels of the share of their image's pixels of which the model is surer."""
    ranks = np.empty(len(pixels.image))
    for number in np.unique(pixels.image):
        here = pixels.image == number
        ranks[here] = 1 - rank_shares(pixels.scores[score][here])
    return float(ranks[~pixels.correct].mean()) if not pixels.correct.all() else float("nan")
