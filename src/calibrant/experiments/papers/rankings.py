"""Predictions of runs, ranked by confidence and by normalised logits: what SC's figures and maps of one image show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant._arrays import Array, Doubles
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.pixel_maps import Normalisation, image_maps
from calibrant.experiments.tables.cells import BEST, Column, Line, Table, cell_of, mark_best, number_text, usual_count
from calibrant.metrics import top_label
from calibrant.posthoc import LogitNorm, fit_best_norm, rank_shares
from calibrant.report import ImageMaps
from calibrant.training import load, load_sets

#: SC's recipes.
RESNET, VIT, DENSENET, DEEPLAB = (
    "sc_imagenet_resnet50", "sc_imagenet_vit_s16", "sc_cifar100_densenet", "sc_cityscapes_deeplabv3plus",
)  # fmt: skip
#: Rows of SC's recipes that its figures compare.
CE, LS = "ce", "ls, alpha=0.2"
#: Shifted test sets: ImageNet-Sketch in the paper, and the set that stands in for it in small.
SHIFTED = ("sketch", "texture")
#: The two readings of logit normalisation, by whether logits are centred; SC prints the first.
READINGS = {False: "not centred", True: "centred"}
#: Limits of every method's share of wrong pixels in an image that is shown.
_LEAST_WRONG, _MOST_WRONG = 0.05, 0.5
#: The same in words, for the figures' notes.
SHOWN_RULE = "the first of the test set in which each method gets between 5% and 50% of the sampled pixels wrong"


class JudgedSet(NamedTuple):
    """The predictions of a run on a set.

    Attributes:
        logits: ``[N, K]``.
        msp: ``[N]`` the largest softmax probability.
        predicted: ``[N]`` the class of the largest logit.
        correct: ``[N]`` whether that is right.
    """

    logits: Array
    msp: Doubles
    predicted: NDArray[np.int64]
    correct: NDArray[np.bool_]


class NormalisedSet(NamedTuple):
    """The normalised largest logit of a test set, p chosen on the validation data.

    Attributes:
        plain: The test set.
        norms: By reading: the one with the lowest AURC, even if that of the MSP is lower.
        scores: ``[N]`` by reading.
        winner: The choice among both readings and the MSP.
    """

    plain: JudgedSet
    norms: Mapping[bool, Normalisation]
    scores: Mapping[bool, Doubles]
    winner: LogitNorm


def smoothing_runs(bench: Workbench, recipe: str, *, methods: Sequence[str], masks: bool = False) -> RunSet:
    """The runs of a recipe with cross-entropy and with label smoothing; an error if one of ``methods`` has none.

    ``masks`` takes these methods alone, in small on scenes with a label for every pixel.
    """
    runs = bench.run(recipe, methods if masks else None, masks=masks)
    for method in methods:
        if method not in runs.folders:
            names = ", ".join(runs.folders) or "none"
            raise ValueError(f"the figure is drawn from runs of {CE!r} and {LS!r}, and the runs given are of {names}")
    return runs


def judge(runs: RunSet, method: str, seed: int, name: str = "test") -> JudgedSet:
    """The predictions of a method's run on a set."""
    data = runs.outputs(method, seed, name)
    confidence, predicted, correct = top_label(data.logits, data.labels)
    return JudgedSet(data.logits, confidence, predicted, correct)


def shifted_name(runs: RunSet) -> str:
    """The name of the shifted test set of the runs."""
    folder = next(folder for seeds in runs.folders.values() for folder in seeds.values())
    for name in SHIFTED:
        if (folder / f"{name}.npz").exists():
            return name
    raise ValueError(f"the figure pools the test set with a shifted one, and the runs have neither of {SHIFTED}")


def check_shifted(bench: Workbench, recipe: str) -> None:
    """Check, before anything is trained, that the recipe's runs will have a shifted test set."""
    also = load(recipe).data.also.get(SHIFTED[0])
    if not (bench.small or bench.runs or getattr(also, "path", None)):
        raise ValueError(
            f"the figure pools the test set with ImageNet-Sketch, a folder of its own: run calibrant compare {recipe} "
            "--set data.also.sketch.path=DIR and give its folder with --runs, or take --small"
        )


def normalise(runs: RunSet, method: str, seed: int) -> NormalisedSet:
    """A method's test set ranked by normalised logits in both readings, p chosen on the run's validation data."""
    held_out, plain = runs.outputs(method, seed, "val"), judge(runs, method, seed)
    norms = {centre: Normalisation.fit(held_out.logits, held_out.labels, centre) for centre in READINGS}
    scores = {centre: norm.score(plain.logits) for centre, norm in norms.items()}
    return NormalisedSet(plain, norms, scores, fit_best_norm(held_out.logits, held_out.labels))


def reading_words(sets: Sequence[NormalisedSet]) -> str:
    """Which reading of the normalisation ranks the validation data better, and in how many runs."""
    counts = {
        centre: sum(part.norms[centre].area < part.norms[not centre].area for part in sets) for centre in READINGS
    }
    best = max(counts, key=lambda centre: counts[centre])
    return f"the one of logits {READINGS[best]} ranks the validation data better in {counts[best]} of {len(sets)} runs"


def winner_words(winners: Sequence[LogitNorm]) -> str:
    """Which ranking the validation data chose, and in how many runs."""
    names = Counter(
        "the MSP (no p ranks better)"
        if norm.p_ is None
        else f"the normalised largest logit, {READINGS[norm.centre]}, p = {norm.p_}"
        for norm in winners
    )
    return "; ".join(f"{name} in {count} of {len(winners)} runs" for name, count in names.most_common())


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


def count_words(before: Sequence[float], after: Sequence[float], word: str) -> str:
    """In how many runs a number is higher or lower afterwards: ``"lower in 2 of 3 runs"``."""
    sign = 1 if word == "higher" else -1
    count = sum(sign * (b - a) > 0 for a, b in zip(before, after, strict=True))
    return f"{word} in {count} of {len(before)} runs"


class DrawnPixels(NamedTuple):
    """The pixels of test images that a run has stored.

    Attributes:
        image: [N] number of the image of each.
        correct: [N].
        scores: [N] by name: confidence, and normalised logits with p chosen on the validation data.
    """

    image: NDArray[np.int64]
    correct: NDArray[np.bool_]
    scores: dict[str, Doubles]


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


def maps_of(bench: Workbench, runs: RunSet, methods: Sequence[str]) -> ImageMaps:
    """Maps of the shown image by the runs of some methods with their first common seed."""
    seed = min(set.intersection(*(set(runs.folders[method]) for method in methods)))
    folder = runs.folders[methods[0]][seed]
    ids = load_sets(folder.recipe(), bench.data_path).test.ids
    image = ids[choose_image(runs, methods, seed)]
    folders = {runs.label(method): runs.folders[method][seed].path for method in methods}
    return image_maps(folders, image, data=bench.data_path)


def rank_table(runs: RunSet, methods: Sequence[str]) -> Table:
    """The mean rank of wrong pixels among the sampled pixels of their image, over all test images and seeds."""
    lines = []
    for method in methods:
        by_seed = [read_drawn_pixels(runs, method, seed) for seed in runs.folders[method]]
        cells = [cell_of([mean_wrong_rank(part, score) for part in by_seed]) for score in ("confidence", "normalised")]
        lines.append(Line(runs.label(method), "", tuple(cells)))
    titles = ("Rank by confidence", "Rank by normalised logits")
    columns = tuple(Column("", title=title, direction="high", unit="share") for title in titles)
    note = (
        "The share of the sampled pixels of the same image of which the model is more confident, averaged over all "
        "wrong pixels. 50% is chance; the higher, the better errors are told from correct pixels."
    )
    return Table("Ranks of wrong pixels, all test images", note, columns, tuple(lines))


def mean_wrong_rank(pixels: DrawnPixels, score: str) -> float:
    """The mean over wrong pixels of the share of their image's pixels of which the model is more confident."""
    ranks = np.empty(len(pixels.image))
    for number in np.unique(pixels.image):
        here = pixels.image == number
        ranks[here] = 1 - rank_shares(pixels.scores[score][here])
    return float(ranks[~pixels.correct].mean()) if not pixels.correct.all() else float("nan")
