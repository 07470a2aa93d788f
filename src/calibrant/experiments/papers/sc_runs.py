"""The data behind SC's figures: runs with several levels of label smoothing, and their rankings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant._arrays import Array, Doubles
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.tables.cells import BEST, Column, Line, Table, cell_of, mark_best, number_text, usual_count
from calibrant.metrics import top_label
from calibrant.posthoc import LogitNorm, fit_best_norm
from calibrant.selective import normalised_max_logit
from calibrant.training import load

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
        powers: p by reading: the one with the lowest AURC, even if that of the MSP is lower.
        areas: That AURC, on the validation data.
        scores: ``[N]`` by reading.
        winner: The choice among both readings and the MSP.
    """

    plain: JudgedSet
    powers: Mapping[bool, int]
    areas: Mapping[bool, float]
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
    powers: dict[bool, int] = {}
    areas: dict[bool, float] = {}
    for centre in READINGS:
        by_power = LogitNorm(centre=centre).fit(held_out.logits, held_out.labels).aurc_
        areas[centre], powers[centre] = min((area, p) for p, area in by_power.items() if p is not None)
    scores = {centre: normalised_max_logit(plain.logits, p, centre=centre) for centre, p in powers.items()}
    return NormalisedSet(plain, powers, areas, scores, fit_best_norm(held_out.logits, held_out.labels))


def reading_words(sets: Sequence[NormalisedSet]) -> str:
    """Which reading of the normalisation ranks the validation data better, and in how many runs."""
    counts = {centre: sum(part.areas[centre] < part.areas[not centre] for part in sets) for centre in READINGS}
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
