"""Prediction sets against MAPIE, crepes and TorchCP on the same probabilities, and their coverage over many fits.

    ./dev bench sets                     the first time it installs the peers into build/peers
    ./dev bench sets --no-peers          the simulation alone
    ./dev bench sets --python PATH       peers that another interpreter has

Data: probabilities drawn from a Dirichlet distribution, labels drawn by them; 1,237 samples set the quantile, so that
(n + 1)(1 - level) is not a whole number and conventions for ties do not matter. Per peer and method: the difference of
quantiles, and how many of the members of new sets differ. MAPIE's APS is randomised in its fit: ours is given the same
random numbers, and quantiles are compared alone.

The simulation draws fits and new samples anew: the mean coverage over fits is to be the rank of the quantile by n + 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks._harness import say
from benchmarks._peer_runs import environment
from calibrant.posthoc import NumpyOps
from calibrant.promises.sets import METHODS, PredictionSets, conformal_quantile, conformal_rank, set_scores

Array = npt.NDArray[Any]

SAMPLES, NEW, CLASSES = 1237, 4000, 12
PENALTY, FREE_RANKS = 0.02, 2
FITS, FIT_SAMPLES = 20_000, 60


class SetData(NamedTuple):
    """Probabilities of the samples of the quantile with their labels, and of new samples."""

    calibration: Array
    labels: Array
    new: Array


def draw(rng: np.random.Generator, samples: int, classes: int) -> tuple[Array, Array]:
    """Probabilities, and labels that they are right about."""
    p = rng.dirichlet(np.full(classes, 0.3), samples)
    return p, (p.cumsum(1) < rng.random((samples, 1))).sum(1).clip(max=classes - 1)


def fitted(data: SetData, method: str, level: float, uniform: Array | None = None) -> PredictionSets:
    """Our sets; ``uniform`` are the random numbers of MAPIE, which takes that part of the class away."""
    penalty, free = (PENALTY, FREE_RANKS) if method == "raps" else (0.0, 0)
    kept = None if uniform is None else 1 - uniform
    scores = set_scores(NumpyOps(), method, data.calibration, penalty, free, kept)
    scores = scores[np.arange(len(data.labels)), data.labels]
    groups = [scores]
    if method == "class-conditional":
        groups = [scores[data.labels == k] for k in range(data.new.shape[1])]
    quantiles = tuple(conformal_quantile(group, level) for group in groups)
    return PredictionSets(level, method, quantiles, tuple(map(len, groups)), penalty, free)


def ask_peers(python: str, folder: Path, level: float, seed: int) -> list[dict[str, Any]]:
    """What the peers give, one record for each method of each."""
    settings = {"level": level, "penalty": PENALTY, "free-ranks": FREE_RANKS, "seed": seed}
    options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    command = [python, "-m", "benchmarks._set_peers", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"MPLBACKEND": "agg"})
    if done.returncode:
        raise SystemExit(f"the peers' process failed: {done.stderr.strip().splitlines()[-1:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def compare(record: dict[str, Any], data: SetData, folder: Path, level: float, seed: int) -> dict[str, Any]:
    """A peer's record, with how far its quantile and its members are from ours."""
    method, mask = record["method"], folder / f"{record['peer']}-{record['method']}.npy"
    uniform = None
    if (record["peer"], method) == ("MAPIE", "aps"):
        uniform = np.random.RandomState(seed).uniform(size=len(data.labels)).reshape(-1, 1)
    sets = fitted(data, method, level, uniform)
    if record.get("quantile") is not None:
        record["quantile_difference"] = float(np.abs(np.ravel(record["quantile"]) - sets.quantiles).max())
    if mask.exists():
        members = sets.members(NumpyOps(), data.new)
        record |= {"members": int(members.sum()), "differing": int((np.load(mask) != members).sum())}
    return record


def simulate(method: str, level: float, seed: int) -> dict[str, Any]:
    """The mean coverage of many fits, a new sample for each; scores are randomised so that they do not tie."""
    rng = np.random.default_rng([seed, METHODS.index(method)])
    p, labels = draw(rng, FITS * (FIT_SAMPLES + 1), CLASSES)
    uniform = rng.random((len(p), 1)) if method in ("aps", "raps") else None
    scores = set_scores(NumpyOps(), method, p, PENALTY, FREE_RANKS, uniform)[np.arange(len(p)), labels]
    scores = scores.reshape(FITS, -1)
    rank = conformal_rank(FIT_SAMPLES, level)
    covered = scores[:, -1] <= np.sort(scores[:, :-1], axis=1)[:, rank - 1]
    expected = rank / (FIT_SAMPLES + 1)
    error = math.sqrt(expected * (1 - expected) / FITS)
    return {"method": method, "coverage": float(covered.mean()), "expected": expected, "standard_error": error}


def main() -> None:
    """Compare and simulate, and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--level", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--python", help="an interpreter that has the peers")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    data = SetData(*draw(rng, SAMPLES, CLASSES), draw(rng, NEW, CLASSES)[0])
    records: list[dict[str, Any]] = []
    if not options.no_peers:
        python = options.python or str(environment()[0])
        with tempfile.TemporaryDirectory(prefix="calibrant-bench-") as name:
            for array, values in data._asdict().items():
                np.save(Path(name) / f"{array}.npy", values)
            say("asking the peers")
            asked = ask_peers(python, Path(name), options.level, options.seed)
            records = [compare(record, data, Path(name), options.level, options.seed) for record in asked]
    simulated = [simulate(method, options.level, options.seed) for method in ("lac", "aps", "raps")]
    if options.json:
        print(json.dumps({"level": options.level, "peers": records, "simulation": simulated}, indent=2))
        return
    for record in records:
        title = f"{record['peer']:8} {record.get('version', ''):8} {record['method']:18}"
        difference, differing = record.get("quantile_difference"), record.get("differing")
        told = "no quantile" if difference is None else f"quantile off by {difference:.1e}"
        sets = "sets not compared" if differing is None else f"{differing} of {record['members']} members differ"
        print(f"{title} {record.get('failure') or f'{told:24} {sets}'}")
    for row in simulated:
        print(
            f"{row['method']:5} coverage over {FITS:,} fits of {FIT_SAMPLES} samples: {row['coverage']:.4f}, "
            f"expected {row['expected']:.4f} (standard error {row['standard_error']:.4f})"
        )


if __name__ == "__main__":
    main()
