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


def attempt(
    target: Target, folder: Path, rng: random.Random, valid: Any, *, single_bit: bool | None = None
) -> tuple[str, str]:
    """Damage one file of a valid case, load it, and give the outcome with the reason if it is a finding.

    The file is mended again, unless there is a finding.

    Args:
        target: what to load.
        folder: its valid files.
        rng: decides which damage is done.
        valid: what the undamaged case gives.
        single_bit: whether the damage is a flipped bit; by chance if left out.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and target.damages(path))
    file = rng.choice(files)
    single_bit = rng.random() < 0.3 if single_bit is None else single_bit
    data = file.read_bytes()
    file.write_bytes(flip_bit(data, rng) if single_bit else mutate(data, rng))
    start, outcome, reason = time.process_time(), "read", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = target.load(folder)
    except (ValueError, OSError, MemoryError) as error:
        outcome, reason = "refused", flaw_of(error)
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"[:600]
    else:
        if single_bit and target.checksummed and value != valid:
            reason = "a flipped bit was read as something else"
    seconds = time.process_time() - start
    reason = reason or (f"took {seconds:.1f} s" if seconds > SLOW else "")
    if reason:
        return "finding", reason
    file.write_bytes(data)
    return outcome, ""


def flaw_of(error: BaseException) -> str:
    """Why the message of an error is not one sentence; empty if it is."""
    sentence = str(error)
    if "\n" in sentence.strip():
        return f"the sentence has several lines: {sentence[:200]!r}"
    return "" if 0 < len(sentence) <= 1500 else f"the sentence has {len(sentence)} characters"


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
        if not case.exists():
            shutil.copytree(valid_folder, case)
        pipe.send(("start", "", number))
        outcome, reason = attempt(target, case, random.Random(number), valid)
        if outcome == "finding":
            shutil.move(case, _cleared(keep / f"{name}-{number}"))
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
        if (scratch / "case").exists():
            shutil.move(scratch / "case", _cleared(keep / f"{name}-{number}"))
        report.findings.append((str(keep / f"{name}-{number}"), reason))
        seed = number + 1
    return report


def _cleared(target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
