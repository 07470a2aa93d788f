"""The verdict of a comparison: the best method by each measure, and whether the difference is beyond chance.

The sentences use the tests that the tables mark (`calibrant.experiments.tables.pairs`), and print numbers as the tables
do. A loss takes another training where the reference takes a temperature: for the ECE, methods are compared with the
reference after temperature scaling first, and what a better ECE costs in ranking is said beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from calibrant.base.checks import listing
from calibrant.experiments.results import Results
from calibrant.experiments.spaces import short_title
from calibrant.experiments.tables.cells import Column, TableCell, cell_of, number_text, usual_count
from calibrant.experiments.tables.labels import RowSource, counterparts, enumerate_words, references, sources
from calibrant.experiments.tables.pairs import FEWEST, LEVEL, marks, same_target_words
from calibrant.metrics import describe

#: The measures of a verdict, in order.
MEASURES = ("ece", "accuracy", "aurc")
_LISTED = 5


class Verdict(NamedTuple):
    """The first sentences of a comparison's page: the verdict, and the other measures.

    The level is ``"good"`` if a method is better than the reference beyond chance in some measure, ``"info"`` if none
    is, ``"unknown"`` if nothing was tested.
    """

    level: str
    headline: str
    text: str


class _Repaired(NamedTuple):
    """The reference after temperature scaling: its ECE, and the marks of the rows against it."""

    cell: TableCell
    marks: Mapping[int, str]
    tests: int


class _Measure(NamedTuple):
    """One measure: the numbers of the rows, the marks of the tests, and how many tests there are."""

    column: Column
    cells: Mapping[int, TableCell]
    marks: Mapping[int, str]
    tests: int

    @property
    def label(self) -> str:
        """The name of the measure within a sentence."""
        label = describe(self.column.metric).label
        return label.lower() if label[1:].islower() else label

    @property
    def best(self) -> list[int]:
        """The rows with the best mean, at the precision of print."""
        sign = 1 if self.column.better == "low" else -1
        best_cell = min(self.cells.values(), key=lambda cell: sign * cell.mean)
        return [k for k, cell in self.cells.items() if self.number(k) == number_text(best_cell.mean, self.column)]

    def number(self, row: int) -> str:
        return number_text(self.cells[row].mean, self.column)

    def quantity(self, row: int) -> str:
        """The mean of a row with its unit."""
        return self.number(row) + "%" * self.column.is_share

    def marked(self, change: str) -> list[int]:
        return [k for k, mark in self.marks.items() if mark == change]


def judge_methods(results: Results, reference: str | None, measures: Sequence[str] = MEASURES) -> Verdict | None:
    """Judge every method against the reference, by the final runs; None if there are no numbers.

    Measures are metrics on the test set; those without numbers are left out.
    """
    rows = list(sources(results))
    base = {} if reference is None else references(results, reference)
    numbers = [measure for metric in measures if (measure := _measure(rows, base, Column(metric))).cells]
    if not numbers:
        return None
    names, reference = _names(rows), None if reference is None else short_title(reference)
    repaired = _repair(rows, base) if numbers[0].column.metric == "ece" else None
    seeds = usual_count(cell.runs for measure in numbers for cell in measure.cells.values())
    over = "1 seed" if seeds == 1 else f"{seeds} seeds"
    if not any(measure.tests for measure in numbers):
        return Verdict(
            "unknown",
            _explain_untested(numbers[0], names, reference, base, seeds),
            _best_words(numbers, names, reference, repaired),
        )
    sentences = [_sentence(measure, rows, names, base, str(reference)) for measure in numbers]
    test_words = (
        f"Tested against {reference}{same_target_words(base)} over {over}: paired t-test, p < {LEVEL} after Holm's "
        "correction, as marked in the first table."
    )
    if repaired is not None and repaired.tests:
        test_words += f" The ECE is tested against {reference} with temperature scaling in the same way."
        of_base = [k for k in numbers[0].cells if rows[k].key in {source.key for source in base.values()}]
        headline, better = _repaired_headline(numbers[0], repaired, names, str(reference), of_base)
        ranking = next((measure for measure in numbers if measure.column.metric == "aurc"), None)
        if ranking is not None:
            named = better or _lowest(numbers[0], of_base)
            headline += _ranking_words(ranking, rows, names, base, named, str(reference))
        is_better = bool(better) or any(measure.marked("better") for measure in numbers[1:])
        text = " ".join([f"Without a repair: {sentences[0]}", *sentences[1:], test_words])
        return Verdict("good" if is_better else "info", headline, text)
    if not any(mark for measure in numbers for mark in measure.marks.values()):
        headline = f"Nothing differs from {reference} beyond chance over {over}."
        return Verdict("info", headline, f"{_best_words(numbers, names, reference, repaired)} {test_words}")
    headline_of = next((k for k, measure in enumerate(numbers) if any(measure.marks.values())), 0)
    level = "good" if any(measure.marked("better") for measure in numbers) else "info"
    further = [sentence for k, sentence in enumerate(sentences) if k != headline_of]
    return Verdict(level, sentences[headline_of], " ".join([*further, test_words]))


def _measure(rows: Sequence[RowSource], base: Mapping[str, RowSource], column: Column) -> _Measure:
    cells = {k: cell for k, row in enumerate(rows) if (cell := cell_of(row.values(column).values())) is not None}
    changes, tests = marks(rows, base, column)
    return _Measure(column, cells, {k: changes.get(k, "") for k in cells}, tests)


def _repair(rows: Sequence[RowSource], base: Mapping[str, RowSource]) -> _Repaired | None:
    """The reference after temperature scaling; None without such numbers, with several, or if it is repaired itself."""
    column = Column("ece")
    repaired = {
        target: replace(source, label=source.label._replace(posthoc="temperature"))
        for target, source in base.items()
        if source.label.posthoc is None
    }
    if len({source.key for source in repaired.values()}) != 1:
        return None
    cell = cell_of(next(iter(repaired.values())).values(column).values())
    return None if cell is None else _Repaired(cell, *marks(rows, repaired, column))


def _lowest(measure: _Measure, of_base: Sequence[int]) -> list[int]:
    """The row with the lowest mean, without the reference's; none if there is no other."""
    others = [k for k in measure.cells if k not in of_base]
    return sorted(others, key=lambda k: measure.cells[k].mean)[:1]


def _repaired_headline(
    measure: _Measure, repaired: _Repaired, names: Sequence[str], reference: str, of_base: Sequence[int]
) -> tuple[str, list[int]]:
    """The ECE of the methods against the repaired reference; and the best row that is better beyond chance, if any."""
    scaled = f"{reference} with temperature scaling"
    value = f"{number_text(repaired.cell.mean, measure.column)}%"
    alone = measure.quantity(of_base[0]) if of_base else ""
    better = [k for k in measure.cells if k not in of_base and repaired.marks.get(k) == "better"]
    better.sort(key=lambda k: measure.cells[k].mean)
    if better:
        sentence = (
            f"{names[better[0]]} has a lower ECE than {scaled}: {measure.quantity(better[0])} against {value}, which "
            "is beyond chance"
        )
        sentence += f" ({reference} alone: {alone})" if alone else ""
        others = listing([names[k] for k in better[1:]], _LISTED) if better[1:] else ""
        return sentence + (f"; also better beyond chance: {others}." if others else "."), better[:1]
    sentence = f"{scaled} has an ECE of {value}, which no method beats beyond chance"
    lowest = _lowest(measure, of_base)
    if lowest:
        sentence += f": the lowest of the others is {names[lowest[0]]} with {measure.quantity(lowest[0])}"
    return f"{sentence}; {reference} alone has {alone}." if alone else f"{sentence}.", []


def _ranking_words(
    measure: _Measure,
    rows: Sequence[RowSource],
    names: Sequence[str],
    base: Mapping[str, RowSource],
    named: Sequence[int],
    reference: str,
) -> str:
    """What a method's ECE costs in ranking: its AURC against the reference's."""
    if not named or named[0] not in measure.cells:
        return ""
    row = named[0]
    keys = {source.key for source in base.values()}
    theirs = _value_of_reference(measure, rows, base, row, [k for k in measure.cells if rows[k].key in keys])
    if not theirs:
        return ""
    if theirs == measure.quantity(row):
        return f" {names[row]} ranks errors as {reference} does: AURC {theirs}."
    word = "better" if measure.cells[row].mean < float(theirs) else "worse"
    chance = "which is beyond chance" if measure.marks.get(row) == word else "which may be chance"
    return f" {names[row]} ranks errors {word}: AURC {measure.quantity(row)} against {theirs} of {reference}, {chance}."


def _names(rows: Sequence[RowSource]) -> list[str]:
    """The names of rows, with the tuning target if a method has several."""
    plain = [short_title(row.name) for row in rows]
    return [
        f"{name} tuned for {row.tuned_for}" if row.targets and plain.count(name) > 1 else name
        for name, row in zip(plain, rows, strict=True)
    ]


def _explain_untested(
    measure: _Measure, names: Sequence[str], reference: str | None, base: Mapping[str, RowSource], seeds: int
) -> str:
    """Why nothing was tested."""
    if len(measure.cells) < 2:
        return f"Only {names[next(iter(measure.cells))]} has numbers: there is nothing to compare."
    if reference is None:
        return "Which differences are beyond chance was not tested: no method is the reference."
    if not base:
        return f"Which differences are beyond chance was not tested: the reference {reference} has no numbers."
    if seeds < FEWEST:
        return f"Too few seeds to tell: there {'is 1' if seeds == 1 else f'are {seeds}'}, and a test takes {FEWEST}."
    return (
        f"Which differences are beyond chance cannot be tested: the seeds of {reference} are not those of the others."
    )


def _extreme(measure: _Measure) -> str:
    return "lowest" if measure.column.better == "low" else "highest"


def _best_words(
    numbers: Sequence[_Measure], names: Sequence[str], reference: str | None, repaired: _Repaired | None
) -> str:
    """The best method of every measure by its mean, and the ECE of the repaired reference."""
    parts = [
        f"{_extreme(measure)} {measure.label} {measure.quantity(measure.best[0])} "
        f"({enumerate_words([names[k] for k in measure.best])})"
        for measure in numbers
    ]
    scaled = ""
    if repaired is not None:
        value = number_text(repaired.cell.mean, Column("ece"))
        scaled = f" {reference} with temperature scaling has an ECE of {value}%."
    return f"By the means alone: {', '.join(parts)}.{scaled}"


def _sentence(
    measure: _Measure, rows: Sequence[RowSource], names: Sequence[str], base: Mapping[str, RowSource], reference: str
) -> str:
    """The best method of one measure, whether it is beyond chance, and which others are."""
    keys = {source.key for source in base.values()}
    base_rows = [k for k in measure.cells if rows[k].key in keys]
    best = [k for k in measure.best if k not in base_rows]
    if len(best) < len(measure.best):  # the reference is among the best
        value, adverb = measure.quantity(measure.best[0]), "lower" if measure.column.better == "low" else "higher"
        sentence = f"No method has a {adverb} {measure.label} than {reference} ({value})"
        return f"{sentence}{_further_words(measure, names, ())}."
    has = "has" if len(best) == 1 else "have"
    ours = enumerate_words([names[k] for k in best])
    theirs = _value_of_reference(measure, rows, base, best[0], base_rows)
    against = f" against {theirs} of {reference}" if theirs else ""
    states = {measure.marks[k] for k in best}
    chance = "which may be chance"
    if states == {"better"}:
        chance = "which is beyond chance"
    elif "better" in states:
        surely = enumerate_words([names[k] for k in best if measure.marks[k] == "better"])
        chance = f"which is beyond chance for {surely} alone"
    elif states == {"worse"}:
        chance = f"and yet is worse beyond chance on the seeds that it shares with {reference}"
    sentence = f"{ours} {has} the {_extreme(measure)} {measure.label}: {measure.quantity(best[0])}{against}, {chance}"
    return f"{sentence}{_further_words(measure, names, best)}."


def _value_of_reference(
    measure: _Measure, rows: Sequence[RowSource], base: Mapping[str, RowSource], row: int, base_rows: Sequence[int]
) -> str:
    """The number of the reference that a row was compared with, if it is a single one."""
    keys = {source.key for _, source in counterparts(rows[row], base)}
    values = [measure.quantity(k) for k in base_rows if rows[k].key in keys]
    return values[0] if len(values) == 1 else ""


def _further_words(measure: _Measure, names: Sequence[str], named: Sequence[int]) -> str:
    """Which methods, except those already named, differ from the reference beyond chance."""
    words = ""
    for change, start in (("better", "also better"), ("worse", "worse")):
        names_of_change = [names[k] for k in measure.marked(change) if k not in named]
        start = start if named or change == "worse" else "better"
        words += f"; {start} beyond chance: {listing(names_of_change, _LISTED)}" if names_of_change else ""
    return words
