"""Throwing mutated files at their loaders: each is read, or refused with a ValueError or OSError, soon and in one line.

A child process does the work, so that a crash, a hang or a flood of memory is a finding and not the end of the search.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import resource
import shutil
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import flip_bit, mutate
from tests.fuzz.targets import TARGETS, Target

#: Seconds that a small file may take, and bytes that reading it may add to what the process has.
SLOW, HANGING, MEMORY = 5.0, 30.0, 3 << 30


@dataclass
class Report:
    """What became of the files of one target."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[str, str]] = field(default_factory=list)  # the folder of the case, what is wrong


def attempt(target: Target, folder: Path, rng: random.Random, valid: Any) -> tuple[str, str]:
    """Damage one file of a valid case, load it, and give the outcome with the reason if it is a finding.

    Args:
        target: what to load.
        folder: a copy of its valid files, changed in place.
        rng: decides which damage is done.
        valid: what the undamaged case gives.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and target.damages(path))
    file = rng.choice(files)
    single_bit = rng.random() < 0.3
    data = file.read_bytes()
    file.write_bytes(flip_bit(data, rng) if single_bit else mutate(data, rng))
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = target.load(folder)
    except (ValueError, OSError, MemoryError) as error:
        sentence = str(error)
        if "\n" in sentence.strip():
            return "finding", f"the sentence has several lines: {sentence[:200]!r}"
        if len(sentence) > 1500 or not sentence:
            return "finding", f"the sentence has {len(sentence)} characters"
        outcome = "refused"
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "finding", f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"[:600]
    else:
        outcome = "read"
        if single_bit and target.checksummed and value != valid:
            return "finding", "a flipped bit was read as something else"
    seconds = time.process_time() - start
    return ("finding", f"took {seconds:.1f} s") if seconds > SLOW else (outcome, "")


def work(name: str, seed: int, scratch: str, keep: Path, seconds: float, pipe: Any) -> None:
    """The child process: attempt after attempt, each announced before it starts."""
    target, folder = TARGETS[name], Path(scratch)
    valid_folder, case = folder / "valid", folder / "case"
    try:
        target.make(valid_folder)
        valid = target.load(valid_folder)
    except Exception:
        pipe.send(("invalid", traceback.format_exc(), seed))
        return
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    end, number = time.monotonic() + seconds, seed
    while time.monotonic() < end:
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(valid_folder, case)
        pipe.send(("start", "", number))
        outcome, reason = attempt(target, case, random.Random(number), valid)
        if outcome == "finding":
            _keep(case, keep / f"{name}-{number}")
        pipe.send((outcome, reason, number))
        number += 1
    pipe.send(("done", "", number))


def search(name: str, seconds: float, seed: int, keep: Path, scratch: Path) -> Report:
    """Search one target for some time; cases that are findings are kept in a folder."""
    report, end = Report(), time.monotonic() + seconds
    context = multiprocessing.get_context("fork")
    while (left := end - time.monotonic()) > 0:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=work, args=(name, seed, str(scratch), keep, left, theirs), daemon=True)
        child.start()
        theirs.close()
        number, reason = seed, "the process ended"
        with contextlib.suppress(EOFError):
            while True:
                if not ours.poll(HANGING + (60 if number == seed else 0)):
                    reason = f"no answer for {HANGING:g} s"
                    break
                outcome, detail, current = ours.recv()
                if outcome == "start":
                    number = current
                    continue
                if outcome == "invalid":
                    raise RuntimeError(f"the valid case of {name} is not: {detail}")
                if outcome == "done":
                    return report
                report.outcomes[outcome] += 1
                if outcome == "finding":
                    report.findings.append((str(keep / f"{name}-{current}"), detail))
        child.kill()
        child.join()
        if child.exitcode is not None and child.exitcode not in (0, -9):
            reason = f"the process ended with code {child.exitcode}"
        report.outcomes["finding"] += 1
        _keep(scratch / "case", keep / f"{name}-{number}")
        report.findings.append((str(keep / f"{name}-{number}"), reason))
        seed = number + 1
    return report


def _keep(case: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    if case.exists():
        shutil.copytree(case, target)
