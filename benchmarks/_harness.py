"""What the benchmarks share: interleaved timing, ratios with their spread, peak memory, the machine, table and JSON.

A benchmark times steps, functions without arguments. All run once per round, in an order shuffled anew each round, so
that caches, clock speed and neighbours on the machine hit all alike; a step is compared with one of the same round.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._C._profiler import _EventType

from calibrant.base.files import written_aside

Step = Callable[[], object]

#: One measurement repeats a step until about this long, so that the clock's own cost does not count.
MEASURE_SECONDS = 2e-3
#: A step slower than this takes part in a fifth of the rounds (at least 3).
SLOW_SECONDS = 0.3
#: Every ratio rests on the references, so they are measured this often per round; their median counts.
REFERENCE_REPEATS = 3


@dataclass
class Timing:
    """Seconds per call of one step: an entry per round, None where it sat the round out."""

    calls: int
    seconds: list[float | None] = field(default_factory=list)


class Ratio(NamedTuple):
    """Median and quartiles over the rounds of a step's time by a reference's."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g}-{self.high:.3g})"


def interleave(
    steps: Mapping[str, Step], *, rounds: int, references: Iterable[str], seed: int = 0, title: str = ""
) -> dict[str, Timing]:
    """Time all steps in shuffled rounds."""
    references = set(references)
    shuffler = random.Random(seed)
    once = {name: _estimate(step) for name, step in steps.items()}
    timings = {name: Timing(max(1, round(MEASURE_SECONDS / seconds))) for name, seconds in once.items()}
    few = set(np.linspace(0, rounds - 1, min(rounds, max(3, rounds // 5))).astype(int).tolist())
    gc.collect()
    gc.disable()  # a collection would fall on whichever step is running
    try:
        for turn in range(rounds):
            say(f"{title}: round {turn + 1} of {rounds}", passing=True)
            taking_part = [name for name in steps if once[name] < SLOW_SECONDS or name in references or turn in few]
            order = [name for name in taking_part for _ in range(REFERENCE_REPEATS if name in references else 1)]
            shuffler.shuffle(order)
            measured: dict[str, list[float]] = {}
            for name in order:
                measured.setdefault(name, []).append(_measure(steps[name], timings[name].calls))
            for name, timing in timings.items():
                timing.seconds.append(statistics.median(measured[name]) if name in measured else None)
            gc.collect()
    finally:
        gc.enable()
    return timings


def _estimate(step: Step) -> float:
    """Seconds of one call, for choosing the length of a measurement."""
    step()
    first = _measure(step, 1, warm=False)
    return first if first > MEASURE_SECONDS else min(first, *(_measure(step, 1) for _ in range(4)))


def _measure(step: Step, calls: int, *, warm: bool = True) -> float:
    if warm:
        step()
    start = time.perf_counter_ns()
    for _ in range(calls):
        step()
    return (time.perf_counter_ns() - start) / calls / 1e9


def ratio(timing: Timing, reference: Timing) -> Ratio:
    """The ratio of two steps, formed within each round in which both took part."""
    pairs = zip(timing.seconds, reference.seconds, strict=True)
    ratios = [a / b for a, b in pairs if a is not None and b is not None]
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75]).tolist()
    return Ratio(median, low, high)


def peak_bytes(step: Step) -> int:
    """The most bytes of tensors alive at once during one call that were not alive before it.

    Read from the profiler's record of torch's CPU allocator, so compiled code counts too; scratch that a kernel takes
    from malloc itself (a few cache lines per thread) does not. A block freed here but allocated before is none of the
    call's, and the profiler may know a wrong size for it, so blocks are followed by address.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces each start and stop on stderr otherwise
    with torch.autograd.profiler.profile(profile_memory=True) as profiler:
        step()
    blocks: list[tuple[int, int, int]] = []
    pending = list(profiler.kineto_results.experimental_event_tree())
    while pending:
        event = pending.pop()
        pending.extend(event.children)
        if event.tag == _EventType.Allocation:
            blocks.append((event.start_time_ns, event.extra_fields.alloc_size, event.extra_fields.ptr))
    alive: dict[int, int] = {}
    now = peak = 0
    for _, size, address in sorted(blocks, key=lambda block: block[0]):
        if size > 0:
            alive[address] = size
            now += size
            peak = max(peak, now)
        else:
            now -= alive.pop(address, 0)
    return peak


def check_peak_bytes() -> None:
    """Hold `peak_bytes` against sums whose memory is known: 1, 2 and 3 arrays of 4000 bytes alive at once."""
    x = torch.ones(1000)
    known: dict[int, Step] = {4000: lambda: x.mul(x), 8000: lambda: x.mul(x).mul(x), 12000: lambda: x.mul(x) + x.mul(x)}
    for expected, step in known.items():
        step()
        if (got := peak_bytes(step)) != expected:
            raise RuntimeError(f"the memory record does not work with torch {torch.__version__}: {got}, not {expected}")


def environment() -> dict[str, Any]:
    """What the numbers depend on. The load says whether others were using the machine when the run began."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "load": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


class Neighbours:
    """How much of the machine other processes used since this was made.

    A thread that waits for its core makes every parallel call of all rows as slow as the scheduler: ratios then come
    out steady, near 1, and wrong.
    """

    def __init__(self) -> None:
        self._start = self._now()

    def cores(self) -> float | None:
        """Cores' worth of work, on average; None where the system does not tell (not Linux)."""
        seconds, busy = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return max(0.0, round(busy / seconds, 2)) if Path("/proc/stat").exists() else None

    @staticmethod
    def _now() -> tuple[float, float]:
        stat = Path("/proc/stat")
        ticks = [int(n) for n in stat.read_text().split("\n", 1)[0].split()[1:9]] if stat.exists() else [0] * 8
        user, nice, system, _idle, _waiting, irq, softirq, steal = ticks
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return time.perf_counter(), busy - time.process_time()


def say(text: str, *, passing: bool = False) -> None:
    """A line of progress on stderr; a passing one is overwritten by the next, and left out where that cannot be."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="" if passing else "\n", file=sys.stderr, flush=True)
    elif not passing:
        print(text, file=sys.stderr, flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout, names and verdicts (the first and last column) to the left, numbers to the right."""
    lines = [tuple(columns), *map(tuple, rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    for name, *numbers, verdict in lines:
        middle = "  ".join(number.rjust(width) for number, width in zip(numbers, widths[1:-1], strict=True))
        print(f"{name.ljust(widths[0])}  {middle}  {verdict}", flush=True)


def write_json(path: str | Path, results: Mapping[str, Any], indent: int | None = 1) -> None:
    """Write the raw numbers, aside first."""
    with written_aside(path) as aside:
        aside.write_text(json.dumps(results, indent=indent) + "\n")
