"""Whether the study of the demonstration tells the same story on other seeds: 20 disjoint sets of them.

    ./dev bench demo_claims                   every run of all sets; what is finished is not computed again
    ./dev bench demo_claims --processes 1     on one core
    ./dev bench demo_claims --page            write docs/demo.md and what the package ships from the last results

Every set has as many seeds as `calibrant demo --study` takes, and each seed its own training, validation and test
pictures and its own network. A claim is judged on each set as the study judges it. Recipe and settings were chosen on
seeds from 1000 on. The runs of a set are finished before those of the next: the page tells of the sets that are whole.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks._harness import environment, print_table, say, write_json
from benchmarks._markdown import table
from benchmarks._speed_metrics import machine
from calibrant.base.files import written_aside
from calibrant.experiments.demo_claims import CHECK, CLAIMS, SEEDS, effects, is_reliable, plan_demo_study, study_key
from calibrant.experiments.evaluation import numbers
from calibrant.experiments.results import ResultRow, Results
from calibrant.experiments.study import PlannedRun
from calibrant.training import train

SETS = 20
RESULTS = Path("benchmarks/results/demo_claims.json")
SHIPPED = Path("src/calibrant/experiments") / CHECK
PAGE = Path("docs/demo.md")
#: What is kept of a run: the numbers that some claim is about.
KEPT = {(v.method, v.set, v.posthoc, v.metric) for claim in CLAIMS for v in (claim.first, claim.second)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, then print in how many sets each claim held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=SETS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args(arguments)
    runs = [run for number in range(options.sets) for run in plan_demo_study(SEEDS * number).finals({})]
    stored = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {"runs": {}}
    if not options.page:
        finish(runs, stored, options.output, options.processes)
    check = count_sets(rows_of(runs, stored), stored)
    print_table(("claim", "held in", "mean difference", "least", "most"), claim_rows(check))
    if options.page:
        write_json(SHIPPED, check)
        with written_aside(PAGE) as aside:
            aside.write_text(page(check), encoding="utf-8")


def finish(runs: Sequence[PlannedRun], stored: dict[str, Any], output: Path, processes: int) -> None:
    """Make every run that is not stored; each is written when it is done."""
    missing = [run for run in runs if run.key not in stored["runs"]]
    say(f"{len(runs) - len(missing)} of {len(runs)} runs are on disk")
    start = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for count, (run, values) in enumerate(zip(missing, pool.imap(perform, missing), strict=True), start=1):
            stored["runs"][run.key] = values
            write_json(output, stored | {"environment": environment()})
            left = (time.monotonic() - start) / count * (len(missing) - count) / 60
            say(f"{run.title}: {len(runs) - len(missing) + count} of {len(runs)}, {left:.0f} minutes left")


def perform(run: PlannedRun) -> list[Any]:
    """Train one network as the study does, on one core, and return its numbers for the claims."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        train(run.recipe, folder)
        return [number for number in numbers(folder) if (run.method, *number[:2], number.metric) in KEPT]


def rows_of(runs: Sequence[PlannedRun], stored: Mapping[str, Any]) -> Results:
    """The numbers of the sets that are whole."""
    sets: dict[int, list[PlannedRun]] = {}
    for run in runs:
        sets.setdefault(run.seed // SEEDS, []).append(run)
    whole = [run for group in sets.values() if all(r.key in stored["runs"] for r in group) for run in group]
    return Results(
        ResultRow(run.key, run.method, run.label, "", "final", run.seed, *values)
        for run in whole
        for values in stored["runs"][run.key]
    )


def count_sets(results: Results, stored: Mapping[str, Any]) -> dict[str, Any]:
    """In how many sets each claim held, and its difference over all seeds."""
    seeds = sorted(results.column("seed"))
    sets = [seeds[start : start + SEEDS] for start in range(0, len(seeds), SEEDS)]
    judged = [{effect["name"]: effect for effect in effects(results, group)} for group in sets]
    claims = {}
    for effect in effects(results):
        verdicts = [group[effect["name"]]["verdict"] for group in judged]
        means = [group[effect["name"]]["mean"] for group in judged]
        claims[effect["name"]] = {
            "claim": effect["claim"], "unit": effect["unit"], "held": verdicts.count("holds"),
            "mean": effect["mean"], "least": min(means), "most": max(means),
        }  # fmt: skip
    return {
        "study": study_key(),
        "sets": len(sets),
        "seeds": SEEDS,
        "environment": stored.get("environment", {}),
        "claims": claims,
    }


def claim_rows(check: Mapping[str, Any]) -> list[list[str]]:
    """Each claim, in how many sets it held, its mean difference and those of the sets' extremes."""
    return [
        [entry["claim"], f"{entry['held']} of {check['sets']}",
         *(_difference(entry[name], entry["unit"]) for name in ("mean", "least", "most"))]
        for entry in check["claims"].values()
    ]  # fmt: skip


def _difference(value: float, unit: str) -> str:
    return f"{100 * value:+.1f} pp" if unit == "share" else f"{value:+.4f}"


def page(check: Mapping[str, Any]) -> str:
    """The page of the documentation."""
    failing = [
        f"- {claim.words}: held in {entry['held']} of {check['sets']}, so the study's page says that it does not hold. "
        f"{claim.why}".rstrip()
        for claim in CLAIMS
        if (entry := check["claims"].get(claim.name)) and not is_reliable(entry["held"], check["sets"])
    ]
    where = machine(check["environment"]) if check["environment"] else "nothing yet"
    return (
        f"""<!-- Written by ./dev bench demo_claims --page; edit benchmarks/demo_claims.py instead. -->

# The study of the demonstration, on other seeds

`calibrant demo --study` trains the same small network six ways on pictures that are drawn from a seed, with {SEEDS}
seeds, and judges what the papers claim: a claim holds when the 95% t-interval of its mean difference over the seeds
lies on the expected side of 0. `./dev bench demo_claims` repeats that on {check["sets"]} disjoint sets of {SEEDS}
seeds, each seed with its own training, validation and test pictures. The recipe and the settings of the methods were
chosen on seeds from 1000 on, which are not counted. Run on: {where}.

The mean difference is that of all seeds; least and most are the means of single sets.

{table(("claim", "held in", "mean difference", "least", "most"), claim_rows(check))}
{"What does not hold:" if failing else "Every claim holds in at least 19 of 20 sets."}

{chr(10).join(failing)}
""".rstrip()
        + "\n"
    )


if __name__ == "__main__":
    main()
