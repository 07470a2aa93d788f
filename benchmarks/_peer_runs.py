"""The peers: their environment, made once, and a process of their own for each, with a limit on every call."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from benchmarks import _peers
from benchmarks._harness import say
from benchmarks._metric_rows import Data
from benchmarks._peers import METRICS

FOLDER = Path("build/peers")
CONSTRAINTS = Path("constraints.txt")
#: What is installed, in this order, one step after the other. Torch comes first, at the version that is pinned, and
#: torchvision without what it asks for: a looser request may bring another build of torch, of gigabytes.
STEPS: dict[str, list[str]] = {
    "torch": ["torch"],
    "torchvision": ["--no-deps", "torchvision"],
    "torchmetrics": ["torchmetrics"],
    "scikit-learn": ["scikit-learn"],
    "netcal": ["netcal"],
    "MAPIE": ["MAPIE"],
    "crepes": ["crepes"],
    # What it asks for besides is for losses and graphs, and partly built from source.
    "torchcp": ["--no-deps", "torchcp", "tqdm"],
    "relplot": ["relplot"],
    # It names what it imports only in extras, and those ask for versions of rich that are older than ours.
    "torch-uncertainty": ["torch-uncertainty>=0.13", "lightning>=2.4", "rich", "timm", "pillow"],
    # Its calibrators import numba, which it names only in an extra.
    "probmetrics": ["probmetrics", "numba"],
}
#: Those that have metrics.
PEERS = tuple(step for step in STEPS if step in _peers.PEERS)
INSTALL_SECONDS = 1800
TOGETHER = ("ece", "aece", "aurc")


def environment() -> tuple[Path, dict[str, str]]:
    """The peers' interpreter, and for each peer that could not be installed the reason. Made where it is missing.

    Where what is wanted has changed, the steps are run again in the environment that is there: pip installs no more
    than what is missing or of another version. An environment without a stamp is half made, and made anew.
    """
    python, stamp = FOLDER / "bin" / "python", FOLDER / "installed.json"
    wanted = {"steps": STEPS, "constraints": CONSTRAINTS.read_text()}
    if stamp.exists():
        known = json.loads(stamp.read_text())
        if known["wanted"] == wanted and python.exists():
            return python, known["problems"]
    say(f"installing the peers into {FOLDER} (once; minutes)")
    if not stamp.exists() or not python.exists():
        shutil.rmtree(FOLDER, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
    stamp.unlink(missing_ok=True)
    problems = {}
    for name, arguments in STEPS.items():
        say(f"installing {' '.join(arguments)}")
        if reason := _install(python, arguments):
            say(f"{name}: {reason}")
            problems[name] = reason
    stamp.write_text(json.dumps({"wanted": wanted, "problems": problems}))
    return python, problems


def _install(python: Path, arguments: list[str]) -> str | None:
    """Run pip; None, or why it failed."""
    pinned = dict(line.split("==") for line in CONSTRAINTS.read_text().splitlines() if "==" in line and line[0] != "#")
    exact = [f"{name}=={pinned[name]}" if name in ("torch", "torchvision") else name for name in arguments]
    command = [str(python), "-m", "pip", "install", "-qq", "-c", str(CONSTRAINTS), *exact]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"does not install: not done after {INSTALL_SECONDS} s"
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()[-1:]
    return None if done.returncode == 0 else f"does not install: {' '.join(errors)[:200]}"


def run_all(data: Data, reference: dict[str, float], *, threads: int, limit: float) -> list[dict[str, Any]]:
    """What every peer gives on the data, and at what cost."""
    python, problems = environment()
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="calibrant-bench-") as name:
        for array, values in data.arrays.items():
            np.save(Path(name) / f"{array}.npy", values)
        for peer in PEERS:
            if peer in problems:
                records.append({"peer": peer, "failure": problems[peer]})
                continue
            say(f"{data.title}: {peer}")
            command = [str(python), "-m", "benchmarks._peers", peer, name, "--threads", str(threads), "--metrics"]
            records += run_peer(command, peer, METRICS, threads=threads, limit=limit)
    done = [record for record in records if "value" in record]
    for record in done:
        record["error"] = abs(record["value"] - reference[record["against"]])
        # Each process has measured the same preparation: the best counts for all.
        record["preparing"] = min(other["preparing"] for other in done if other["takes"] == record["takes"])
    return records


def run_peer(
    command: list[str], peer: str, metrics: Sequence[str], *, threads: int, limit: float
) -> list[dict[str, Any]]:
    """Start the peer's process, and start it again for what is left when a call had to be ended.

    Args:
        command: to which the metrics that are left are added.
        peer: its name in the records.
        metrics: what it is asked for; it answers with those it has.
        threads: of the process.
        limit: seconds that one call may take.
    """
    records: list[dict[str, Any]] = []
    left = list(metrics)
    while left:
        worker = _Worker([*command, *left], threads, limit)
        found = worker.read()
        records += [{"peer": peer, "version": worker.version, **record} for record in found]
        if not worker.interrupted:
            break
        left = left[left.index(worker.interrupted) + 1 :]
    return records


class _Worker:
    """A process that writes a line of JSON for each finding; it is ended when none comes for too long."""

    def __init__(self, command: list[str], threads: int, limit: float) -> None:
        self.limit, self.version, self.interrupted = limit, "", ""
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MPLBACKEND": "agg"}
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment)
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def read(self) -> list[dict[str, Any]]:
        """Every finding; after it ``interrupted`` names the metric whose call was not waited for, or that crashed."""
        records: list[dict[str, Any]] = []
        begun, killed = "", False
        try:
            while (line := self.lines.get(timeout=self.limit)) is not None:
                found = json.loads(line)
                self.version = found.get("version", self.version)
                begun = found.get("begins", begun)
                if "broken" in found:
                    records.append({"failure": found["broken"]})
                elif "metric" in found:
                    records.append(found)
                    begun = ""
        except queue.Empty:
            self.process.kill()
            self.interrupted, killed = begun, True
            records.append({"metric": begun or None, "failure": f"took longer than {self.limit:g} s"})
        if self.process.wait() != 0 and not killed:
            self.interrupted = begun
            self.errors.seek(0)
            reason = self.errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            status = f"ended with status {self.process.returncode}: {reason[0][:200]}"
            records.append({"metric": begun or None, "failure": status})
        self.errors.close()
        return records


# ---------------------------------------------------------------------- against them


def total(record: dict[str, Any]) -> float:
    """Seconds from the data to the value, preparation included."""
    return float(record["preparing"] + record["seconds"])


def speed_ups(ours: dict[str, float], peers: list[dict[str, Any]], is_pairs: bool) -> list[dict[str, Any]]:
    """For each metric the fastest peer, and how many times faster the exact function and the sketch are.

    All from the data: where that is logits, preparing what a function takes is counted, for several metrics once.
    """
    done = [record for record in peers if "seconds" in record]
    before = 0.0 if is_pairs else ours["top_label"]
    records = []
    for metric in METRICS:
        rivals = [record for record in done if record["metric"] == metric]
        if rivals:
            best = min(rivals, key=total)
            exact = ours[metric] + (0.0 if metric in ("nll", "brier") else before)
            records.append(_compared(metric, best["peer"], total(best), exact, ours["sketch"], best["error"]))
    chosen = _fastest_together(done)
    if chosen:
        exact = before + sum(ours[metric] for metric in TOGETHER)
        names, worst = " + ".join(record["peer"] for record in chosen), max(record["error"] for record in chosen)
        theirs = _together(chosen)
        records.append(_compared(" + ".join(TOGETHER), names, theirs, exact, ours["sketch"], worst))
    return records


def _together(chosen: list[dict[str, Any]]) -> float:
    """Seconds of several metrics; making pairs goes through probabilities, so the longest preparation is all of it."""
    return float(max(record["preparing"] for record in chosen) + sum(record["seconds"] for record in chosen))


def _fastest_together(done: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The peers that give all of `TOGETHER` in the least time, one for each; none if one is not to be had."""
    ways = []
    for forms in (("probabilities",), ("probabilities", "pairs")):
        rivals = [[r for r in done if r["metric"] == metric and r["takes"] in forms] for metric in TOGETHER]
        if all(rivals):
            ways.append([min(some, key=lambda record: record["seconds"]) for some in rivals])
    return min(ways, key=_together, default=[])


def _compared(metric: str, peer: str, theirs: float, exact: float, sketch: float, error: float) -> dict[str, Any]:
    return {
        "metric": metric,
        "peer": peer,
        "seconds": theirs,
        "error": error,
        "exact_seconds": exact,
        "exact_speed_up": theirs / exact,
        "sketch_seconds": sketch,
        "sketch_speed_up": theirs / sketch,
    }
