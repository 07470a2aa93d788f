"""What hard and adaptive labels are worth beyond classification, on photographs: detectors, and where networks look.

    ./dev bench trained tiny_imagenet_50 --data DIR      the networks, if they are not on disk
    ./dev bench transfer --data DIR                      detectors on them, and their class activation maps
    ./dev bench transfer cam --data DIR                  one of the parts: odsr, tiny-coco, cam

DIR holds tiny-imagenet, odsr and tiny-coco, each as `calibrant data inspect` reads it. Every seed of a classifier has a
detector with the same seed. What is finished is not computed again. The commands are printed; tables and pages lie in
build/transfer.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks._trained_studies import TINY_IMAGENET
from benchmarks.trained import FOLDER as TRAINED
from calibrant.experiments.comparison import RUNS
from calibrant.experiments.tables.pairs import pair_values

FOLDER = Path("build/transfer")
#: The methods of the study by the names that detectors have.
BACKBONES = {"hard": "hard", "als": "als, beta=1"}
#: Recipes of detection by the folders of their data.
DETECTION = {"odsr": "small/odsr_detection", "tiny-coco": "small/tiny_coco_detection"}
PARTS = (*DETECTION, "cam")


def run_folders(method: str, runs: Path) -> list[Path]:
    """The finished runs of a method of the study, by seed."""
    plan = TINY_IMAGENET.plan(TINY_IMAGENET.seeds, (method,))
    folders = [runs / TINY_IMAGENET.name / RUNS / run.key for run in plan.finals({})]
    if missing := [folder for folder in folders if not (folder / "result.json").exists()]:
        sys.exit(f"there is no finished run in {missing[0]}: ./dev bench trained {TINY_IMAGENET.name} makes it")
    return folders


def call(*arguments: str | Path, shown: bool = True) -> str:
    """What a command of Calibrant prints; one thread, since several run at a time."""
    command = [str(Path(sys.executable).parent / "calibrant"), *map(str, arguments)]
    print(f"$ {shlex.join(['calibrant', *command[1:]])}", flush=True)
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if ended.returncode:
        sys.exit(ended.returncode)
    if shown:
        print(ended.stdout, flush=True)
    return ended.stdout


def detect(part: str, data: Path, runs: Path, jobs: int) -> None:
    """A detector for every classifier, and the tables."""
    backbones = {name: run_folders(method, runs) for name, method in BACKBONES.items()}
    common = [DETECTION[part], "--data", data / part, "--output", FOLDER / part]
    with ThreadPoolExecutor(jobs) as pool:
        single = [
            pool.submit(call, "detect", *common, "--backbone", f"{name}={folder}", "--seeds", f"{seed},", "--quiet")
            for seed in range(TINY_IMAGENET.seeds)
            for name, folder in ((name, folders[seed]) for name, folders in backbones.items())
        ]
        for task in single:
            task.result()
    every = [f"{name}={folder}" for name, folders in backbones.items() for folder in folders]
    options = [word for backbone in every for word in ("--backbone", backbone)]
    call("detect", *common, *options, "--seeds", str(TINY_IMAGENET.seeds))


def look(data: Path, runs: Path, measured: int = 2500) -> None:
    """The share of the maps inside the boxes: by run, and the difference to hard labels over seeds."""
    named = {
        name: [f"{name}-{seed}={folder}" for seed, folder in enumerate(run_folders(method, runs))]
        for name, method in BACKBONES.items()
    }
    every = [run for several in named.values() for run in several]
    common = ["--data", data / "tiny-imagenet", "--measure", str(measured)]
    answer = json.loads(call("cam", *every, *common, "-o", FOLDER / "cam.html", "--json", shown=False))
    inside = {method["name"]: method["inside"]["value"] for method in answer["methods"]}
    shares = {name: [inside[run.partition("=")[0]] for run in several] for name, several in named.items()}
    print(f"The boxes fill {100 * answer['area']:.2f}% of {answer['measured']} images. Inside the boxes:")
    reference = dict(enumerate(shares["hard"]))
    for method, values in shares.items():
        line = f"{method}: {100 * np.mean(values):.2f}% ± {100 * np.std(values, ddof=1):.2f}"
        if method != "hard":
            pair = pair_values(dict(enumerate(values)), reference, better="none")
            assert pair is not None
            line += f", {100 * pair.mean:+.2f} points [{100 * pair.low:+.2f}, {100 * pair.high:+.2f}] against hard"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./dev bench transfer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if left out")
    parser.add_argument("--data", type=Path, required=True, help="the folder with a folder for each data set")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="detectors at a time; one per core by default")
    parser.add_argument("--runs", type=Path, default=TRAINED, help=f"of ./dev bench trained; {TRAINED} if left out")
    args = parser.parse_args()
    if unknown := [part for part in args.parts if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for part in args.parts or PARTS:
        if part == "cam":
            look(args.data, args.runs)
        else:
            detect(part, args.data, args.runs, args.jobs)


if __name__ == "__main__":
    main()
