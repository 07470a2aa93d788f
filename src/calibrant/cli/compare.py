"""``calibrant compare``: methods over seeds, tuned and tested as the papers do, in one command that can be repeated."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from calibrant.cli.console import label, print_json, print_line, print_table, progress_bar, remark, say
from calibrant.cli.options import (
    Accelerator,
    Address,
    Data,
    Engine,
    Json,
    Quiet,
    RecipeFile,
    TrustCode,
    parse_methods,
    trusts_models,
)

REFERENCE = "ce"
MOST_SEEDS = 1000
ALL = "all"


def compare_command(
    recipe: RecipeFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for runs, results, tables and the page.")],
    losses: Annotated[
        str, typer.Option(help="Methods, with settings if need be: ls,mbls:margin=6,als. all: every loss.")
    ] = ALL,
    seeds: Annotated[str, typer.Option(help="How many, 5 for 0 to 4; or which, 0,1,7.")] = "5",
    tune: Annotated[
        list[str] | None, typer.Option(help="Search settings for accuracy, ece, nll or aurc (repeat for more).")
    ] = None,
    search: Annotated[str, typer.Option(help="grid, random or halving.")] = "grid",
    trials: Annotated[
        int | None, typer.Option(help="Combinations of each method, for random and halving.", min=1, max=1000)
    ] = None,
    data: Data = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Another value of the recipe, as for train.")
    ] = None,
    reference: Annotated[str, typer.Option(help="The method that others are tested against.")] = REFERENCE,
    expected: Annotated[bool, typer.Option("--expected", help="Lay the paper's numbers beside ours.")] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time; as many as fit if left out.", min=1, max=4096)
    ] = None,
    engine: Engine = "local",
    address: Address = None,
    retry: Annotated[bool, typer.Option("--retry-failed", help="Try again what failed and would fail again.")] = False,
    keep_held_out: Annotated[
        bool, typer.Option("--keep-held-out", help="Do not train again on the data held out for the search.")
    ] = False,
    accelerator: Accelerator = "auto",
    trust_code: TrustCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train every method with every seed, and compare them; run it again to go on. Exits with 1 if a run failed.

    A run is named by its recipe: what is finished is never computed again, and what failed is recorded and does not
    stop the rest.
    """
    from calibrant.experiments import (
        Method,
        Study,
        check_reference,
        compare,
        engine_of,
        losses_to_compare,
        tables,
        write,
    )
    from calibrant.training import load

    specifications = parse_methods(",".join(losses_to_compare()) if losses == ALL else losses)
    study = Study(
        load(recipe, settings or ()),
        {label: Method(name, values) for label, (name, values) in specifications.items()},
        _seeds(seeds), tuple(tune or ()), _search(search), trials, keep_held_out,
    )  # fmt: skip
    against = None if reference == REFERENCE and REFERENCE not in study.methods else reference
    if against is not None:
        check_reference(against, study.methods, study.tune)
    if expected and not study.recipe.expected:
        raise ValueError(f"{recipe}: the recipe has no numbers of a paper to lay beside ours.")
    trusted = trusts_models(study.models, trust_code)
    with Shown(quiet) as shown, announced(quiet):
        try:
            found = compare(
                study, output, data=data, engine=engine_of(engine, study.recipe, jobs, address, accelerator),
                retry=retry, trust_code=trusted, told=shown, stage=shown.stage,
            )  # fmt: skip
        except KeyboardInterrupt:
            remark("interrupted; the same command goes on from here", quiet)
            raise
    made = write(found, reference=against, expected=expected)
    for failure in found.failures:
        remark(f"{failure.method}, seed {failure.seed}, failed: {failure.error}", quiet)
    for one, other in found.twins:
        remark(
            f"{one} gave the very numbers of {other}: what makes it differ never acted; calibrant lens --predictions "
            "shows which settings would",
            quiet,
        )
    if not made:
        raise ValueError(f"no run has any numbers; {output / 'runs.csv'} says why.")
    if as_json:
        print_json({"folder": str(output), "runs": len(found.results.column("run")), "failed": len(found.failures)})
    elif not quiet:
        for table in made.values():
            print_table(table.title, tables.heads(table), tables.text(table))
            for note in tables.notes(table):
                say(note)
            print_line()
    remark(f"open {output / 'index.html'}; every number is in {output / 'results.csv'}", quiet)
    if found.failures:
        many = "a run" if len(found.failures) == 1 else f"{len(found.failures)} runs"
        remark(f"{many} failed; --retry-failed tries again what the same command would leave", quiet)
        raise typer.Exit(1)


@contextlib.contextmanager
def announced(quiet: bool) -> Iterator[None]:
    """Say at once that Ctrl-C was heard: runs that save what they have may take a moment."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def heard(number: int, frame: Any) -> None:
        remark("stopping: runs save what they have", quiet)
        signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _seeds(text: str) -> tuple[int, ...]:
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers:
        raise ValueError(f"--seeds takes a number of seeds, or seeds separated by commas, got {text[:80]!r}")
    if "," in text:
        return tuple(numbers)
    if not 1 <= numbers[0] <= MOST_SEEDS:
        raise ValueError(f"--seeds takes from 1 to {MOST_SEEDS} seeds, got {text[:80]}")
    return tuple(range(numbers[0]))


def _search(text: str) -> Any:
    if text not in ("grid", "random", "halving"):
        raise ValueError(f"--search takes grid, random or halving, got {text!r}")
    return text


class Shown:
    """Progress over all runs of a stage, on standard error: a bar with time left, and what is running."""

    def __init__(self, quiet: bool):
        self.quiet = quiet
        columns = (
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[runs]}"), TimeElapsedColumn(),
            TimeRemainingColumn(),
        )  # fmt: skip
        self.bar = progress_bar(*columns, quiet=quiet, speed_estimate_period=600.0)
        self.task: Any = None
        self.total = self.ended = self.failed = 0
        self.later = 0
        self.running: dict[str, tuple[str, float]] = {}

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def stage(self, name: str, runs: int, missing: int, later: int) -> None:
        """A stage begins."""
        words = {"short": "searching, short runs", "search": "searching", "final": "testing"}[name]
        done = f", {runs - missing} of them on disk" if runs > missing else ""
        remark(f"{words}: {runs} run{'s' * (runs != 1)}{done}", self.quiet)
        self.total, self.later = self.ended + self.failed + missing, later
        if missing and self.task is None:
            self.bar.start()
            self.task = self.bar.add_task(words, total=None, runs="")
        if self.task is not None:
            self.bar.update(self.task, description=words)

    def __call__(self, event: str, job: Any, steps: tuple[int, int]) -> None:
        """A run starts, goes on or ends."""
        if event in ("start", "progress"):
            self.running[job.key] = job.title, steps[0] / steps[1] if steps[1] else 0.0
        else:
            self.running.pop(job.key, None)
            if event == "failed":
                self.failed += 1  # it says nothing about how long the others take
            else:
                self.ended += 1
            if self.bar.disable:
                remark(f"{self.ended + self.failed} of {self.total}: {job.title} {event}", self.quiet)
        if self.task is not None:
            share = self.ended + sum(part for _, part in self.running.values())
            now = ", ".join(f"{label(title)} {part:.0%}" for title, part in list(self.running.values())[:4])
            more = f", up to {self.later} to follow" if self.later else ""
            self.bar.update(
                self.task, completed=share, total=self.total - self.failed + self.later,
                runs=f"{self.ended + self.failed} of {self.total} runs{more}; {now}",
            )  # fmt: skip
