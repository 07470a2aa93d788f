"""A run that is killed with SIGKILL at random moments, again and again, against the one that was left alone.

    ./dev bench killing                     ten kills, on the embedded scenes
    ./dev bench killing --times 20 --recipe small/fashion_mnist --data DIR --set training.epochs=1

Every process goes on with `calibrant train --resume` and is killed after a random time. The last one is left to finish.
All tensors of the last checkpoint (model, optimiser, loss) and the logits of every set must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks._harness import say
from calibrant import Predictions
from calibrant.training import checkpoints

FOLDER = Path("build/killing")
SETTINGS = ["training.epochs=20", "training.checkpoint_seconds=0.2", "data.options={samples=1500}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench killing", description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--recipe", default="small/scenes")
    parser.add_argument("--data")
    parser.add_argument("--set", action="append", dest="settings")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    words = [sys.executable, "-m", "calibrant", "train", args.recipe, "-q"]
    words += ["--data", args.data] if args.data else []
    for setting in args.settings or SETTINGS:
        words += ["--set", setting]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    start = time.monotonic()
    subprocess.run([*words, "-o", str(FOLDER / "alone")], check=True, env=environment)
    whole = time.monotonic() - start
    say(f"left alone: {whole:.1f} s")
    chance = random.Random(args.seed)
    kills = 0
    while not (FOLDER / "killed" / "result.json").exists():
        resume = ["--resume"] if (FOLDER / "killed" / "recipe.json").exists() else []
        process = subprocess.Popen([*words, "-o", str(FOLDER / "killed"), *resume], env=environment)
        if kills < args.times:
            try:
                process.wait(chance.uniform(0.2, 0.45) * whole)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                say(f"kill {kills} at step {_step()}")
        elif process.wait():
            raise SystemExit("the run failed")
    same = _same(FOLDER / "alone", FOLDER / "killed")
    print(f"killed {kills} times: {'equal bit for bit' if same else 'DIFFERENT'}")
    return 0 if same else 1


def _step() -> int:
    file = FOLDER / "killed" / "last.safetensors"
    return checkpoints.load(file)[1]["step"] if file.exists() else 0


def _same(one: Path, two: Path) -> bool:
    (a, _), (b, _) = checkpoints.load(one / "last.safetensors"), checkpoints.load(two / "last.safetensors")
    tensors = all(torch.equal(a[part][name], b[part][name]) for part in a for name in a[part])
    files = sorted(path.name for path in one.glob("*.npz"))
    logits = all(np.array_equal(Predictions.open(one / f).logits, Predictions.open(two / f).logits) for f in files)
    return tensors and logits and bool(files)


if __name__ == "__main__":
    sys.exit(main())
