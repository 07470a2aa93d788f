"""`./dev fuzz MINUTES`: mutate valid files of every format, and report what is neither read nor refused."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.engine import search
from tests.fuzz.targets import TARGETS

ROUND = 30.0  # seconds of a target before the next one has its turn


def main() -> int:
    """Search target after target until the time is up; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("minutes", type=float, help="how long to search")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first case; the clock's if left out")
    parser.add_argument(
        "--target", choices=sorted(TARGETS), action="append", help="search only this one (repeat for more)"
    )
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for cases that are findings")
    arguments = parser.parse_args()
    names = arguments.target or list(TARGETS)
    end, seed, findings = time.monotonic() + 60 * arguments.minutes, 1000 * arguments.seed, 0
    print(f"seed {arguments.seed}: {', '.join(names)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="calibrant-fuzz-") as scratch:
        while (left := end - time.monotonic()) > 0:
            seconds = max(3.0, min(ROUND, left / len(names)))
            for name in names:
                report = search(name, seconds, seed, arguments.keep, Path(scratch) / name)
                counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(report.outcomes.items()))
                print(f"{name}: {counts or 'nothing'}", flush=True)
                for folder, reason in report.findings:
                    print(f"  {folder}: {reason}", flush=True)
                findings += len(report.findings)
            seed += 10**6
    print(f"{findings} findings" + (f", kept in {arguments.keep}" if findings else ""))
    return int(findings > 0)


if __name__ == "__main__":
    sys.exit(main())
