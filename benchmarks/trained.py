"""The papers' effects on networks that we train: real data, several seeds, each claim judged by a t-interval.

    ./dev bench trained --data DIR                       every study whose data lie in DIR
    ./dev bench trained digits pacs --data DIR           some of them
    ./dev bench trained digits --seeds 10                more seeds of a study that needs no files
    ./dev bench trained digits --again                   train again what benchmarks/trained has numbers of
    ./dev bench trained digits --again --methods ce      the same for one method
    ./dev bench trained --page                           write docs/trained.md and docs/recipes.md, and train nothing

DIR holds fashion-mnist, cifar-10, cifar10h, tiny-imagenet, 20news and pacs, each as `calibrant data inspect` reads it.
A run that is finished is not computed again, and one that was stopped goes on. Runs have one thread each; --jobs runs
go on at a time. Studies are in benchmarks/_trained_studies.py; the numbers that the page is written from are in
benchmarks/trained, one file for each study, which every run adds to.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import _harness as harness
from benchmarks import _trained_curves as curves
from benchmarks import _trained_people as people
from benchmarks import _trained_record as record
from benchmarks._harness import say
from benchmarks._trained_page import PAGE_NAME, figure_of, has_curves, page, recipes_page
from benchmarks._trained_studies import SEARCH_SEED, STUDIES, Numbers, TrainedStudy
from calibrant.base.files import written_aside
from calibrant.experiments import Engine, Local, Results, Study, compare
from calibrant.experiments.comparison import RUNS, collect
from calibrant.experiments.engines import Job
from calibrant.experiments.evaluation import Number
from calibrant.experiments.results import ResultRow
from calibrant.experiments.study import PlannedRun, Scores, search
from calibrant.metrics import ece_by_chance, reliability, top_label
from calibrant.predictions import Predictions

FOLDER = Path("build/trained")
DOCS = Path("docs")


class UnfinishedSearchError(Exception):
    """Candidates of a search have no numbers yet, so that nothing can be chosen."""


def write_breast_cancer(path: Path) -> None:
    """scikit-learn's table as the layout "arrays" reads it; 171 of 569 rows are the test data."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    x = (bunch.data - bunch.data.mean(axis=0)) / bunch.data.std(axis=0)
    split = np.where(np.random.default_rng(0).permutation(len(x)) < 171, "test", "train")
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside, aside.open("wb") as file:
        np.savez(file, x=x.astype(np.float32), y=bunch.target, classes=bunch.target_names, split=split)


def data_of(study: TrainedStudy, data: Path | None, runs: Path) -> str | None:
    """Where the data of a study lie, "" if they need no files; None if they are not at hand."""
    if not study.folder:
        return ""
    if study.folder == "breast_cancer.npz":
        path = runs / study.folder
        if not path.exists():
            write_breast_cancer(path)
        return str(path)
    if data is None or not all((data / name).is_dir() for name in study.folders):
        return None
    return str(data / study.folder)


def run(
    study: TrainedStudy, where: str, folder: Path, seeds: int, engine: Engine, records: Path = record.FOLDER,
    *, methods: Sequence[str] = (), again: bool = False,
) -> None:  # fmt: skip
    """Do what is missing of a study, or of some of its methods: those that most claims need first.

    Methods with a record of every seed are trained only ``again``.
    """
    votes = people.read_votes(Path(where).parent) if study.asks_people else None
    missing = list(study.plan(1).methods) if again else record.unfinished(study, record.read(study, records), seeds)
    missing = [label for label in missing if not methods or label in methods]
    first = tuple(label for label in study.first if label in missing)
    for labels in filter(None, (first, tuple(missing))):
        plan = study.plan(seeds, labels)
        try:
            comparison = compare(plan, folder, data=where or None, engine=engine, progress=_tell)
        finally:  # also what was done before an interruption
            record.write(
                study, record.joined(record.read(study, records), stored(study, folder, seeds, votes)), records
            )
        for failure in comparison.failures:
            say(f"{study.name}: {failure.method}, seed {failure.seed} failed: {failure.error}")
        say(f"{study.name}: {', '.join(plan.methods)} with {seeds} seeds are on disk")
    if not missing:
        say(f"{study.name}: benchmarks/trained has all of it; --again trains it again")


def _tell(what: str, done: float, total: float | None) -> None:
    say(f"{what}: {done:.2f} of {total or 0:g}", passing=True)


def stored(study: TrainedStudy, folder: Path, seeds: int, votes: Mapping[str, people.Floats] | None = None) -> Numbers:
    """What is on disk of a study, its curves and people's votes on its test images included; nothing is trained."""
    if not (folder / RUNS).is_dir():
        return Numbers()
    plan = study.plan(seeds)
    planned = [run for label in plan.methods for run in _planned(plan, label, folder / RUNS)]
    comparison = collect(plan, folder, planned)
    results = comparison.results
    tested = results.where(stage="final", seed=[seed for seed in results.column("seed") if seed != SEARCH_SEED])
    references = [run for run in comparison.finals if run.method == study.reference and run.seed != SEARCH_SEED]
    chances = [_chance(comparison.run_folder(run) / "test.npz") for run in references]
    chance = float(np.mean(chances)) if chances else None
    for run in (run for run in comparison.finals if run.seed != SEARCH_SEED):
        more: list[Number] = []
        if votes is not None:
            more += people.numbers_by(votes, comparison.run_folder(run).path)
        if study.curves:
            more += curves.numbers_of(comparison.run_folder(run).path, study.curves, is_pooled=study.pools_curves)
        tested += Results(
            ResultRow(run.key, run.method, run.label, run.tuned_for, run.stage, run.seed, *number) for number in more
        )
    return Numbers(tested, results.where(stage="search"), chance, (_machine(),) if len(tested) else ())


def _machine() -> str:
    environment = harness.environment()
    return f"{environment['cpu']}, torch {environment['torch']}"


def _chance(file: Path) -> float:
    predictions = Predictions.open(file)
    confidence, _, correct = top_label(predictions.logits, predictions.labels)
    return float(ece_by_chance(reliability(confidence, correct)).mean())


def _planned(plan: Study, label: str, runs: Path) -> list[PlannedRun]:
    """The trials of one method, and its tested runs as far as the search that chooses their settings is finished."""

    def scores(trials: Sequence[PlannedRun]) -> Scores:
        jobs = {trial.key: Job.of(trial.recipe, runs, None, label) for trial in trials}
        if not all(job.is_done or job.failure for job in jobs.values()):
            raise UnfinishedSearchError(label)
        return {key: job.validation() for key, job in jobs.items() if job.is_done}

    planned: list[PlannedRun] = []
    groups = [(seed,) for seed in plan.seeds] if plan.recipe.data.resample else [tuple(plan.seeds)]
    for seeds in groups:
        part = replace(plan, methods={label: plan.methods[label]}, seeds=seeds)
        try:
            trials, choice = search(part, scores)
        except UnfinishedSearchError:
            continue
        planned += [*trials, *part.finals(choice)]
    return planned


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./dev bench trained", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(STUDIES)}; all if left out")
    parser.add_argument("--data", type=Path, help="the folder with a folder for each data set")
    parser.add_argument("--seeds", type=int, help="how many; as planned for each study if left out")
    parser.add_argument("--methods", nargs="+", default=[], metavar="METHOD", help="of one study; all if left out")
    parser.add_argument("--jobs", type=int, help="runs at a time; one per core if left out")
    parser.add_argument("--runs", type=Path, default=FOLDER, help=f"where the runs lie; {FOLDER} if left out")
    parser.add_argument("--again", action="store_true", help="train also what benchmarks/trained has numbers of")
    parser.add_argument("--page", action="store_true", help="write the page from benchmarks/trained, and train nothing")
    args = parser.parse_args()
    if unknown := [name for name in args.studies if name not in STUDIES]:
        parser.error(f"unknown study {unknown[0]!r}; the studies are {', '.join(STUDIES)}")
    if args.seeds is not None and not 1 <= args.seeds <= SEARCH_SEED:
        parser.error(f"--seeds takes 1 to {SEARCH_SEED}, got {args.seeds}")
    if args.methods:
        known = [] if len(args.studies) != 1 else list(STUDIES[args.studies[0]].plan(1).methods)
        if unknown := [name for name in args.methods if name not in known]:
            parser.error(f"--methods takes methods of one study ({', '.join(known)}), got {unknown[0]!r}")
    if args.page:
        write_page(args.seeds)
        return
    for name in args.studies or STUDIES:
        study = STUDIES[name]
        where = data_of(study, args.data, args.runs)
        if where is None:
            if args.studies:
                parser.error(f"{name} needs --data DIR with a folder {' and a folder '.join(study.folders)}")
            say(f"{name} is passed over: {args.data} lacks {' or '.join(study.folders)}")
            continue
        engine = Local(args.jobs, threads=1)
        seeds = args.seeds or study.seeds
        run(study, where, args.runs / name, seeds, engine, methods=args.methods, again=args.again)


def write_page(seeds: int | None) -> None:
    """Both pages from what is recorded; a study without runs is there as not run."""
    numbers = {name: record.read(study) for name, study in STUDIES.items()}
    for name, text in {PAGE_NAME: page(numbers, seeds), "recipes.md": recipes_page(numbers)}.items():
        with written_aside(DOCS / name) as aside:
            aside.write_text(text, encoding="utf-8")
        print(f"wrote {DOCS / name}")
    for name, study in STUDIES.items():
        if has_curves(study, numbers[name].tested):
            curves.draw(numbers[name].tested, study.curves, DOCS / figure_of(study))
            print(f"wrote {DOCS / figure_of(study)}")


if __name__ == "__main__":
    main()
