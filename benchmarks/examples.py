"""Whether the examples show the same for other seeds: cross-entropy is overconfident, the other loss is better.

    ./dev bench examples                      seeds 0 to 9 of every example; what is finished is not computed again
    ./dev bench examples --seeds 7 8          other seeds
    ./dev bench examples --only own_loop      one example

The settings of the examples were chosen on seeds from 100 on.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks._harness import environment, print_table, say, write_json
from calibrant import Audit

EXAMPLES = ("own_loop", "lightning_module", "hf_trainer", "causal_lm")
RESULTS = Path("benchmarks/results/examples.json")
Numbers = Mapping[str, float]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--only", nargs="+", choices=EXAMPLES, default=EXAMPLES)
    options = parser.parse_args(arguments)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"runs": {}}
    for name in options.only:
        runs = results["runs"].setdefault(name, {})
        for seed in options.seeds:
            if str(seed) not in runs:
                say(f"{name}, seed {seed}")
                runs[str(seed)] = run(name, seed)
                write_json(RESULTS, results | {"environment": environment()})
    chosen = {name: {seed: results["runs"][name][str(seed)] for seed in options.seeds} for name in options.only}
    print_table(("example, seed", "CE accuracy", "CE ECE", "accuracy", "ECE", "as claimed"), seed_rows(chosen))
    print()
    print_table(("example", "CE accuracy", "CE ECE", "accuracy", "ECE", "as claimed for"), range_rows(chosen))


def run(name: str, seed: int) -> dict[str, float]:
    """The numbers of one example for one seed. It writes its files where it is run, so it is given a folder."""
    examples = str(Path(__file__).parents[1] / "examples")
    if examples not in sys.path:
        sys.path.insert(0, examples)  # as when an example is run by itself
    module = importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        audits = module.main(seed=seed)
    return numbers(*audits.values())


def numbers(cross_entropy: Audit, other: Audit) -> dict[str, float]:
    """What the tables need of two audits."""
    return {
        "ce_accuracy": cross_entropy.metrics["accuracy"],
        "ce_ece": cross_entropy.metrics["ece"],
        "ce_ece_low": cross_entropy.intervals["ece"][0],
        "ce_gap": cross_entropy.metrics["mean_confidence"] - cross_entropy.metrics["accuracy"],
        "accuracy": other.metrics["accuracy"],
        "ece": other.metrics["ece"],
    }


def is_as_claimed(run: Numbers) -> bool:
    """Cross-entropy is overconfident, by 5 points or more beyond chance; the other loss has at most half its ECE."""
    return run["ce_gap"] >= 0.05 and run["ce_ece_low"] >= 0.05 and run["ece"] <= run["ce_ece"] / 2


SHOWN = ("ce_accuracy", "ce_ece", "accuracy", "ece")


def seed_rows(runs: Mapping[str, Mapping[int, Numbers]]) -> list[list[str]]:
    """The numbers of every run."""
    return [
        [f"{name} {seed}", *(f"{run[key]:.1%}" for key in SHOWN), "yes" if is_as_claimed(run) else "no"]
        for name, by_seed in runs.items()
        for seed, run in by_seed.items()
    ]


def range_rows(runs: Mapping[str, Mapping[int, Numbers]]) -> list[list[str]]:
    """The smallest and the largest of every number, and for how many seeds the claim is true."""
    rows = []
    for name, by_seed in runs.items():
        columns = [[run[key] for run in by_seed.values()] for key in SHOWN]
        count = sum(map(is_as_claimed, by_seed.values()))
        rows.append([name, *(f"{min(c):.1%} to {max(c):.1%}" for c in columns), f"{count} of {len(by_seed)}"])
    return rows


if __name__ == "__main__":
    main()
