"""``calibrant compare``: methods over seeds, tuned and tested as the papers do, in one command that can be repeated."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrant.cli.console import (
    acknowledge_interrupts,
    continuable,
    print_json,
    print_line,
    print_results,
    remark,
    say,
    show_progress,
)
from calibrant.cli.options import (
    REFERENCES,
    Accelerator,
    Address,
    Centre,
    Data,
    Engine,
    Json,
    Quiet,
    RecipeFile,
    TrustCode,
    command_line,
    parse_methods,
    parse_seeds,
    trusts_models,
)
from calibrant.cli.schema import versioned

ALL = "all"


def compare_command(
    recipe: RecipeFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for runs, results, tables and the page.")],
    losses: Annotated[
        str | None,
        typer.Option(
            help="Methods of the recipe, or others with settings: ls,mbls:margin=6,als; all is every loss. "
            "Without it, the methods of the recipe; if it has none, every loss."
        ),
    ] = None,
    table: Annotated[str | None, typer.Option(help="Run only the rows of one of the recipe's tables: 3.")] = None,
    seeds: Annotated[str, typer.Option(help="Number of seeds (5 means 0 to 4), or a list: 0,1,7.")] = "5",
    tune: Annotated[
        list[str] | None, typer.Option(help="Search settings for accuracy, ece, nll or aurc (repeat for more).")
    ] = None,
    search: Annotated[str, typer.Option(help="grid, random or halving.")] = "grid",
    trials: Annotated[
        int | None, typer.Option(help="Combinations to try per method, for random and halving.", min=1, max=1000)
    ] = None,
    data: Data = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a value of the recipe, as in train.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="The method that others are tested against; ce or hard if left out.")
    ] = None,
    centre: Centre = None,
    expected: Annotated[bool, typer.Option("--expected", help="Show the paper's numbers next to ours.")] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Number of parallel runs; as many as fit if left out.", min=1, max=4096)
    ] = None,
    engine: Engine = "local",
    address: Address = None,
    retry: Annotated[
        bool, typer.Option("--retry-failed", help="Also retry runs that failed deterministically.")
    ] = False,
    keep_held_out: Annotated[
        bool, typer.Option("--keep-held-out", help="Do not retrain on all data, with those held out for the search.")
    ] = False,
    accelerator: Accelerator = "auto",
    trust_code: TrustCode = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train every method with every seed, and compare them; run it again to continue. Exits with 1 if a run failed.

    Finished runs are never repeated; a run that fails is recorded and does not stop the others.
    """
    from calibrant.experiments import Study, check_reference, compare, engine_of, judge_methods, short_title, write
    from calibrant.training import load

    plan = load(recipe, settings or ())
    study = Study(
        plan,
        _methods(plan, losses, table),
        parse_seeds(seeds),
        tuple(tune or ()),
        _parse_search(search),
        trials,
        keep_held_out,
    )
    against = reference or next((name for name in REFERENCES if name in study.methods), None)
    if against is not None:
        check_reference(against, study.methods, study.tune)
    if expected and not study.recipe.expected:
        raise ValueError(f"{recipe}: the recipe has no expected numbers of a paper")
    trusted = trusts_models(study.models, trust_code)
    with show_progress(quiet, lines=True) as progress, continuable(quiet), acknowledge_interrupts(quiet):
        comparison = compare(
            study, output, data=data, engine=engine_of(engine, study.recipe, jobs, address, accelerator),
            retry=retry, trust_code=trusted, centre=centre, progress=progress,
        )  # fmt: skip
    tables_by_name = write(comparison, reference=against, expected=expected, commands=[command_line()])
    for failure in comparison.failures:
        remark(f"{short_title(failure.method)}, seed {failure.seed}, failed: {failure.error}", quiet)
    for method, twin in comparison.twins:
        remark(
            f"{short_title(method)} matches {short_title(twin)} exactly: its regulariser was never active; "
            "calibrant lens --predictions shows which settings would make it so",
            quiet,
        )
    if not tables_by_name:
        raise ValueError(f"no run has any results; {output / 'runs.csv'} says why")
    if as_json:
        runs = len(comparison.results.column("run"))
        print_json(versioned("compare", {"folder": str(output), "runs": runs, "failed": len(comparison.failures)}))
    elif not quiet:
        verdict = judge_methods(comparison.results, against)
        if verdict is not None:
            say(verdict.headline)
            say(verdict.text)
            print_line()
        print_results(tables_by_name.values())
    remark(f"open {output / 'index.html'}; every number is in {output / 'results.csv'}", quiet)
    if comparison.failures:
        runs_failed = "a run" if len(comparison.failures) == 1 else f"{len(comparison.failures)} runs"
        remark(f"{runs_failed} failed; --retry-failed also retries runs that failed deterministically", quiet)
        raise typer.Exit(1)


def _methods(recipe: Any, losses: str | None, table: str | None) -> Any:
    """The methods to compare: the rows of a table, those of ``--losses``, or all of the recipe."""
    from calibrant.experiments import Contender, contenders_of, losses_to_compare
    from calibrant.training import TUNED_FOR

    if table is not None:
        if table not in recipe.tables:
            names = ", ".join(recipe.tables) or "none"
            raise ValueError(f"the recipe has no table {table!r}; it has {names}")
        return contenders_of(recipe, [row.partition(TUNED_FOR)[0] for row in recipe.tables[table].rows])
    if losses is None and recipe.methods:
        return contenders_of(recipe)
    if losses is None or losses == ALL:
        return {name: Contender(name, {}) for name in losses_to_compare()}
    rows, further = split_rows(losses, recipe.methods)
    contenders = contenders_of(recipe, rows)
    for label, (name, values) in (parse_methods(further) if further else {}).items():
        contenders[label] = Contender(name, values)
    return contenders


def split_rows(losses: str, methods: Iterable[str]) -> tuple[list[str], str]:
    """The names in ``--losses`` that are methods of the recipe, which may have commas, and the other names.

    Example:
        >>> split_rows("ce,als, beta=0.75,ls:alpha=0.2", ["ce", "als, beta=0.75"])
        (['ce', 'als, beta=0.75'], 'ls:alpha=0.2')
    """
    names = {" ".join(name.replace(",", " , ").split()): name for name in methods}
    parts, rows, further = [part.strip() for part in losses.split(",")], [], []
    while parts:
        for length in range(len(parts), 0, -1):
            name = names.get(" , ".join(" ".join(part.split()) for part in parts[:length]))
            if name is not None:
                rows.append(name)
                break
        else:
            length = 1
            further.append(parts[0])
        parts = parts[length:]
    return rows, ",".join(further)


def _parse_search(text: str) -> Any:
    if text not in ("grid", "random", "halving"):
        raise ValueError(f"--search takes grid, random or halving, got {text!r}")
    return text
