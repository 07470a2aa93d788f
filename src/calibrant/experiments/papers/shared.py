"""Parts of several papers' items: tables with the printed numbers beside ours, and maps of one image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibrant._arrays import Doubles
from calibrant.experiments import tables
from calibrant.experiments.papers.registry import Output
from calibrant.experiments.papers.workbench import RunSet, Workbench
from calibrant.experiments.pixel_maps import Normalisation, image_maps
from calibrant.experiments.tables.cells import NOTHING, Column, Line, Table, TableCell, cell_of, mark_best, parse_column
from calibrant.experiments.tables.summaries import recipe_table
from calibrant.metrics import top_label
from calibrant.posthoc import rank_shares
from calibrant.report import MINUS, ImageMaps
from calibrant.training import TUNED_FOR, load, load_sets

#: Lays out the tables of several recipes, by their names, as the paper's one table.
Layout = Callable[[Mapping[str, Table]], Table]


def tables_beside(
    bench: Workbench,
    recipes: Sequence[str],
    number: str,
    *,
    masks: bool = False,
    layout: Layout | None = None,
    directions: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Output:
    """A table of recipes as the paper prints it, and its numbers beside ours, for every recipe; in small for the first.

    Args:
        bench: Provides the runs.
        recipes: By name; each has a table of that number.
        number: Number of the table.
        masks: In small: scenes with a label for every pixel.
        layout: Lays out the tables of all recipes; one below the other if left out.
        directions: By metric, which end is better here: ``"low"`` or ``"high"``, if not the metric's own.
        notes: Sentences for the page.
    """
    sets = {
        recipe: bench.run(recipe, load(recipe).tables[number].rows, masks=masks) for recipe in bench.recipes(recipes)
    }
    small_notes = [SMALL_NOTE] if masks and bench.small else []
    return beside_of(sets, number, layout=layout, directions=directions, notes=[*notes, *small_notes])


def beside_of(
    sets: Mapping[str, RunSet],
    number: str,
    *,
    layout: Layout | None = None,
    directions: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Output:
    """As `tables_beside`, for runs that exist already."""
    tables_of = {
        recipe: _set_directions(recipe_table(runs.results, runs.recipe, number), directions or {})
        for recipe, runs in sets.items()
    }
    head = f"table{number.lower()}"
    names = {recipe: head if len(sets) == 1 else f"{head}-{recipe}" for recipe in sets}
    tables_by_name: dict[str, Table] = {}
    if layout is not None:
        tables_by_name[head] = layout(tables_of)
    for recipe, runs in sets.items():
        tables_by_name.setdefault(names[recipe], tables_of[recipe])
        printed = beside(runs, number)
        if printed.rows:
            tables_by_name[f"{names[recipe]}-beside"] = printed
    sentences = [*notes, *(words for table in tables_of.values() for words in _leaders(table))]
    sentences += [words for runs in sets.values() for words in runs.notes]
    return Output(tables=tables_by_name, notes=tuple(sentences))


def _set_directions(table: Table, directions: Mapping[str, str]) -> Table:
    """The table with its best cells marked by other directions of some metrics."""
    columns = tuple(column._replace(direction=directions.get(column.metric)) for column in table.columns)
    return Table(table.title, table.note, columns, mark_best(columns, table.rows)) if directions else table


def beside(runs: RunSet, number: str) -> Table:
    """The numbers that the paper prints for the rows of a table, beside ours, with the difference."""
    recipe, table = runs.recipe, runs.recipe.tables[number]
    columns = [parse_column(text) for text in table.columns]
    rows = {row.partition(TUNED_FOR)[0] for row in table.rows}
    # A column after a repair is printed under the name of the method that is repaired.
    repairs = {column.posthoc for column in columns}
    rows |= {name for name, method in recipe.methods.items() if method.of in rows and method.repair in repairs}
    numbers = {(column.metric, column.set) for column in columns}
    entries = []
    for entry in recipe.expected:
        values = {metric: value for metric, value in entry.values.items() if (metric, entry.where) in numbers}
        if values and entry.method.partition(TUNED_FOR)[0] in rows:
            entries.append(entry.model_copy(update={"values": values}))
    title = f"{recipe.paper}, Table {number}: the paper's numbers and ours"
    return tables.expected(runs.results, recipe.model_copy(update={"expected": tuple(entries)}), title=title)


def _leaders(table: Table) -> list[str]:
    """The best and the second best method of each column, in a sentence each."""
    sentences = []
    for k, column in enumerate(table.columns):
        cells = [(cell.mean, line) for line in table.rows if (cell := line.cells[k]) is not None and cell.runs]
        if column.better == "none" or len(cells) < 2:
            continue
        (best_value, best_line), (second_value, second_line), *_ = sorted(
            cells, key=lambda pair: pair[0] if column.better == "low" else -pair[0]
        )
        sentences.append(
            f"{column.name}: {_row(best_line)} is best with {amount(best_value, column)}, then {_row(second_line)} "
            f"with {amount(second_value, column)}."
        )
    return sentences


def _row(line: Line) -> str:
    return line.method + (f", tuned for {line.tuned_for}" if line.tuned_for else "")


def amount(value: float, column: Column) -> str:
    """A number of a column in a sentence: shares with their unit."""
    return f"{100 * value:.2f}%" if column.is_share else f"{value:.4g}".replace("-", MINUS)


def mean_of(runs: RunSet, method: str, metric: str, *, name: str = "test") -> TableCell:
    """A metric of a method, mean and standard deviation over its seeds."""
    values = runs.results.by_seed(method=method, stage="final", set=name, posthoc="none", metric=metric)
    return cell_of(values.values()) or NOTHING


#: Limits of every method's share of wrong pixels in an image that is shown.
_LEAST_WRONG, _MOST_WRONG = 0.05, 0.5
#: The same in words, for the figures' notes.
SHOWN_RULE = "the first of the test set in which each method gets between 5% and 50% of the sampled pixels wrong"
SMALL_NOTE = "With --small the data are drawn scenes with a label for every pixel, and the network a small DeepLab v3+."


class DrawnPixels(NamedTuple):
    """The pixels of test images that a run has stored.

    Attributes:
        image: [N] number of the image of each.
        correct: [N].
        scores: [N] by name: confidence, and normalised logits with p chosen on the validation data.
    """

    image: npt.NDArray[np.int64]
    correct: npt.NDArray[np.bool_]
    scores: dict[str, Doubles]


def read_drawn_pixels(runs: RunSet, method: str, seed: int) -> DrawnPixels:
    """The pixels of a run's test set with both scores."""
    chosen_on = "val" if (runs.folder(method) / "val.npz").exists() else "test"
    data, held_out = runs.outputs(method, seed), runs.outputs(method, seed, chosen_on)
    confidence, _, correct = top_label(data.logits, data.labels)
    normalised = Normalisation.fit(held_out.logits, held_out.labels).score(data.logits)
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
