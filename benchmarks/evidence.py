"""What Calibrant shows on networks that others trained: published numbers, label smoothing, repairs, policies.

    ./dev bench evidence --data DIR             all parts; what is finished is not computed again
    ./dev bench evidence --data DIR --again policies     one part anew
    ./dev bench evidence --page                 write docs/evidence.md and its figures from the last results
    ./dev bench evidence --data DIR --check     recompute the fast parts; exit 1 if the page has other numbers

DIR holds the outputs of the networks; benchmarks/_evidence_files.py says which and where they come from. Everything is
drawn from `--seed`. A claim holds when its 95% interval lies on the expected side of 0, does not hold when it lies on
the other side, and is within noise otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import _harness as harness
from benchmarks._evidence_figures import write_figures
from benchmarks._evidence_files import LOGIT_FILES, LogitFile
from benchmarks._evidence_networks import REPLICATES, measure_networks, measure_published
from benchmarks._evidence_page import page
from benchmarks._evidence_policies import measure_policies
from benchmarks._evidence_repairs import measure_repairs
from benchmarks._evidence_rows import CHECKED_FILES, differing_rows
from benchmarks._harness import say
from calibrant.base.files import written_aside

RESULTS = Path("benchmarks/evidence.json")
PAGE = Path("docs/evidence.md")
FIGURES = Path("docs/evidence")
WHOLE: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "published": lambda data, seed: measure_published(data),
    "networks": lambda data, seed: measure_networks(data, REPLICATES, seed),
}
BY_FILE: dict[str, Callable[[Path, LogitFile, int], dict[str, Any]]] = {
    "repairs": measure_repairs,
    "policies": measure_policies,
}


def compute(
    data: Path, seed: int, results: dict[str, Any], save: Callable[[], None], files: tuple[LogitFile, ...] = LOGIT_FILES
) -> None:
    """Fill in what is missing of the results, saved after each part and each file."""
    for name, measure in WHOLE.items():
        if name not in results:
            results[name] = _timed(name, measure, data, seed)
            save()
    for name, measure_file in BY_FILE.items():
        own = results.setdefault(name, {})
        for file in files:
            if file.file not in own:
                own[file.file] = _timed(f"{name}, {file.title}", measure_file, data, file, seed)
                save()


def _timed(title: str, measure: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    start = time.process_time()
    result = measure(*arguments)
    seconds = time.process_time() - start
    say(f"{title}: {seconds:.0f} s of CPU time")
    return result | {"seconds": round(seconds, 1)}


def check(data: Path, seed: int) -> int:
    """Recompute the fast parts, and say which of their rows the page has otherwise."""
    results: dict[str, Any] = {}
    compute(data, seed, results, lambda: None, tuple(file for file in LOGIT_FILES if file.file in CHECKED_FILES))
    differing = differing_rows(results, PAGE.read_text(encoding="utf-8"))
    for row in differing:
        print(row)
    checked = f"{len(CHECKED_FILES)} of {len(LOGIT_FILES)} files of logits, and all networks on ImageNet"
    print(f"{PAGE}: {len(differing)} rows differ from what was recomputed ({checked})")
    return 1 if differing else 0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./dev bench evidence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder with the outputs of the networks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", nargs="+", choices=[*WHOLE, *BY_FILE], default=[], help="parts to compute anew")
    parser.add_argument("--page", action="store_true", help="write the page from the last results")
    parser.add_argument("--check", action="store_true", help="compare the page with what is recomputed")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.data is None and (args.check or not args.page):
        parser.error("--data DIR is needed: the folder with the outputs of the networks")
    if args.data is not None and not (args.data / "imagenet_confidence").is_dir():
        parser.error(f"{args.data} has no folder imagenet_confidence: it is not the folder with the outputs")
    if args.check:
        sys.exit(check(args.data, args.seed))
    results: dict[str, Any] = json.loads(args.output.read_text(encoding="utf-8")) if args.output.exists() else {}
    if args.data is not None:
        results = {name: part for name, part in results.items() if name not in args.again}
        if results.get("seed", args.seed) != args.seed:
            parser.error(f"{args.output} has results of seed {results['seed']}: choose another --output")
        results["seed"] = args.seed

        def save() -> None:
            harness.write_json(args.output, results | {"environment": harness.environment()}, indent=None)

        compute(args.data, args.seed, results, save)
    if args.page:
        write_figures(results, FIGURES)
        with written_aside(PAGE) as aside:
            aside.write_text(page(results), encoding="utf-8")
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
