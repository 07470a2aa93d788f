"""What a command costs before and beside its work: processor time by that of the bare imports.

    ./dev bench startup
    ./dev bench startup --rounds 15

Each row is a new process, report included; the reference is `python -c "import numpy, scipy.special, pyarrow.parquet"`.
Processor time, user and system, of all its threads; medians over interleaved rounds, with the quartiles of the ratio.
Python's files are compiled in a first round, as an installation does, whatever PYTHONDONTWRITEBYTECODE says here.
Files are logits of 10 classes in .npz, and in .csv where it is said. The target: an audit of 10,000 rows within 3 times
the reference, whatever the file.

Besides, what ``pip install calibrant`` takes on the disk: the packages of this environment that the core needs, of
Calibrant itself the sources. The target: 460 MB.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from packaging.requirements import Requirement

import calibrant
from benchmarks import _harness as harness
from benchmarks._harness import say
from calibrant import Predictions

REFERENCE = "bare imports"
LIMIT, DISK_LIMIT = 3.0, 460e6
SIZES = (1_000, 10_000)


def commands(folder: Path) -> dict[str, list[str]]:
    """What is run, by its name."""
    python = [sys.executable, "-c"]
    command = [str(Path(sys.executable).parent / "calibrant")]
    found = {
        REFERENCE: [*python, "import numpy, scipy.special, pyarrow.parquet"],
        "import calibrant": [*python, "import calibrant"],
        "calibrant --help": [*command, "--help"],
    }
    for size in SIZES:
        data, policy = f"{size}.npz", f"{size}.json"
        found[f"audit, {size:,} rows"] = [*command, "audit", data, "-o", f"{size}.html", "-q"]
        found[f"audit, {size:,} rows of .csv"] = [*command, "audit", f"{size}.csv", "-o", f"{size}.html", "-q"]
        found[f"fit, {size:,} rows"] = [*command, "fit", data, "--target-risk", "0.1", "-o", policy, "-q"]
        found[f"apply, {size:,} rows"] = [*command, "apply", policy, data, "-o", f"{size}-answers.csv", "-q"]
    return found


def write_data(folder: Path) -> None:
    """Files of predictions, sure and a little overconfident."""
    rng = np.random.default_rng(0)
    for size in SIZES:
        honest = 2 * rng.standard_normal((size, 10))
        labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
        predictions = Predictions.from_logits((1.5 * honest).astype(np.float32), labels)
        for suffix in ("npz", "csv"):
            predictions.save(folder / f"{size}.{suffix}")


def processor_seconds(command: list[str], folder: Path) -> float:
    """User and system time of a process and all its threads."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=silent, stderr=silent)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} failed")
    return used.ru_utime + used.ru_stime


def core_sizes() -> dict[str, int]:
    """Bytes on the disk of what the core installs, by package, the largest first."""
    sizes: dict[str, int] = {}
    left = ["calibrant"]
    while left:
        name = left.pop()
        if name in sizes:
            continue
        package = importlib.metadata.distribution(name)
        files = [Path(str(file.locate())) for file in package.files or ()]
        if name == "calibrant":  # which may be installed as a link to this folder, and be run from another
            files = [file for file in Path(calibrant.__file__).parent.rglob("*") if file.suffix != ".pyc"]
        sizes[name] = sum(512 * file.stat().st_blocks for file in files if file.is_file())
        for requirement in map(Requirement, package.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                left.append(requirement.name.lower())
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench startup", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_data(folder)
        wanted = commands(folder)
        seconds: dict[str, list[float]] = {name: [] for name in wanted}
        for number in range(args.rounds + 1):
            say(f"round {number} of {args.rounds}")
            for name, command in wanted.items():
                spent = processor_seconds(command, folder)
                if number:  # the first one warms the disk's cache, and compiles Python's files
                    seconds[name].append(spent)
    rows, records = [], []
    for name, spent in seconds.items():
        ratios = np.array(spent) / np.array(seconds[REFERENCE])
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        verdict = "" if not name.startswith("audit, 10,000") else "ok" if middle <= LIMIT else f"over {LIMIT:g}"
        rows.append((name, f"{np.median(spent):.2f}", f"{middle:.2f} ({low:.2f} to {high:.2f})", verdict))
        records.append({"name": name, "seconds": float(np.median(spent)), "ratio": [low, middle, high]})
    print()
    harness.print_table(("", "processor seconds", "by the bare imports", ""), rows)
    sizes = core_sizes()
    total, largest = sum(sizes.values()), [f"{name} {size / 1e6:.0f}" for name, size in list(sizes.items())[:10]]
    verdict = "ok" if total <= DISK_LIMIT else f"over {DISK_LIMIT / 1e6:.0f}"
    print(f"\nthe core on the disk: {total / 1e6:.0f} MB ({verdict}); {', '.join(largest)}")
    settings = {"sizes": sizes, "rounds": args.rounds, "environment": harness.environment()}
    harness.write_json(Path("benchmarks/results/startup.json"), {"rows": records, **settings})


if __name__ == "__main__":
    main()
