"""What was measured of a study, in benchmarks/trained/STUDY.json: docs/trained.md outlives the runs that it tells of.

A record holds the numbers that the page shows or judges, and for every method a hash of the recipes that its runs have.
Where a recipe has changed since, the numbers of that method no longer count.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import _trained_curves as curves
from benchmarks._trained_claims import Claim
from benchmarks._trained_studies import Numbers, TrainedStudy
from calibrant.base.files import json_value, nulls_as_nan, written_aside
from calibrant.experiments import Results
from calibrant.experiments.results import ResultRow
from calibrant.experiments.tables.cells import parse_column

FOLDER = Path(__file__).parent / "trained"
#: What the page says of the candidates of a search.
_OF_TRIALS = ("accuracy", "ece", "aurc")


def read(study: TrainedStudy, folder: Path = FOLDER) -> Numbers:
    """The recorded numbers of the methods whose recipes are still the same."""
    file = folder / f"{study.name}.json"
    if not file.exists():
        return Numbers()
    record = json.loads(file.read_text(encoding="utf-8"))
    hashes = hashes_of(study)
    same = {label for label, recorded in record["methods"].items() if hashes.get(label) == recorded}
    rows = [ResultRow._make(nulls_as_nan(row)) for row in record["rows"]]
    results = Results(row for row in rows if row.method in same)
    is_known = study.reference in same and record["chance"] is not None
    return Numbers(
        results.where(stage="final"),
        results.where(stage="search"),
        record["chance"] if is_known else None,
        tuple(record["machines"]) if len(results) else (),
    )


def write(study: TrainedStudy, numbers: Numbers, folder: Path = FOLDER) -> None:
    """Keep what the page needs of these numbers."""
    hashes = hashes_of(study)
    order = {label: number for number, label in enumerate(hashes)}
    rows = sorted((*_needed(study, numbers.tested), *_of_trials(numbers.trials)), key=lambda row: order[row.method])
    record = {
        "study": study.name,
        "recipe": study.recipe,
        "machines": list(numbers.machines),
        "chance": numbers.chance,
        "methods": {label: hashes[label] for label in hashes if any(row.method == label for row in rows)},
    }
    head = json.dumps(record, indent=1, ensure_ascii=False).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(json_value(list(row)), ensure_ascii=False)}" for row in rows)
    folder.mkdir(exist_ok=True)
    with written_aside(folder / f"{study.name}.json") as aside:
        aside.write_text(f'{head},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def joined(recorded: Numbers, measured: Numbers) -> Numbers:
    """Both, and of a run that both have what was measured last."""
    return Numbers(
        _joined(recorded.tested, measured.tested),
        _joined(recorded.trials, measured.trials),
        recorded.chance if measured.chance is None else measured.chance,
        tuple(dict.fromkeys((*recorded.machines, *measured.machines))),
    )


def _joined(recorded: Results, measured: Results) -> Results:
    again = set(map(_run_of, measured))
    return Results((*(row for row in recorded if _run_of(row) not in again), *measured))


def _run_of(row: ResultRow) -> tuple[Any, ...]:
    return (row.method, row.tuned_for, row.stage, row.seed, row.settings if row.stage == "search" else "")


def unfinished(study: TrainedStudy, recorded: Numbers, seeds: int) -> list[str]:
    """The methods of which a reported seed has no recorded run."""
    targets = len(study.tune) or 1
    return [
        label
        for label in study.plan(1).methods
        if len({_run_of(row) for row in recorded.tested.where(method=label) if row.seed < seeds}) < targets * seeds
    ]


def hashes_of(study: TrainedStudy) -> dict[str, str]:
    """Of every method: a hash of the recipes of its candidates."""
    plan = study.plan(1)
    hashes = {}
    for label in plan.methods:
        keys = [plan.final(label, settings, 0, "").key for settings in plan.candidates(label)]
        hashes[label] = hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16]
    return hashes


def _needed(study: TrainedStudy, tested: Results) -> Iterator[ResultRow]:
    """The rows that a column of the study's table, a term of a claim or a curve reads."""
    terms = {term.column for claim in _with_supposed(study.claims) for term in claim.terms}
    columns = map(parse_column, {"accuracy", *study.columns, *terms})
    needed = {(column.set, column.posthoc, column.metric) for column in columns}
    if study.curves:
        needed |= {(study.curves, posthoc, metric) for posthoc in curves.PANELS for metric in (*curves.METRICS, "aurc")}
    return (row for row in tested if (row.set, row.posthoc, row.metric) in needed and not math.isnan(row.value))


def _with_supposed(claims: Iterable[Claim]) -> Iterator[Claim]:
    for claim in claims:
        yield claim
        if claim.supposes is not None:
            yield claim.supposes


def _of_trials(trials: Results) -> Results:
    return trials.where(set="val", posthoc="none", metric=_OF_TRIALS)
