"""Forward+backward time and peak memory of every loss and variant, as ratios to F.cross_entropy in the same run.

    ./dev bench losses                        everything; some minutes on two cores
    ./dev bench losses --losses acls mbls --shapes 1024x200 --compile-all
    ./dev bench losses --quick                a smoke run

eager              time by F.cross_entropy's: median over the rounds (quartiles)
compiled           compiled, by compiled F.cross_entropy
compiled/CE eager  compiled, by eager F.cross_entropy
memory             peak extra bytes of one forward and backward pass by F.cross_entropy's, both eager
compiled memory    the same compiled, by eager F.cross_entropy's
verdict            against the targets of _loss_rows.py
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks import _harness as harness
from benchmarks._harness import Step, say
from benchmarks._loss_rows import TARGETS, TRAINING_SET, Batch, Call, Row, Shape, rows_of, torch_rows
from calibrant.losses import names

SHAPES = ((128, 10), (256, 1000), (1024, 200), (8, 21, 128, 128))
COLUMNS = ("eager", "compiled", "compiled/CE eager", "memory", "compiled memory")
#: For each measure of time: the mode that is timed, and what it is divided by.
TIMES = {
    "eager": ("eager", "eager torch CE"),
    "compiled": ("compiled", "compiled torch CE"),
    "compiled/CE eager": ("compiled", "eager torch CE"),
    "torch LS": ("eager", "eager torch LS"),
    "compiled torch LS": ("compiled", "compiled torch LS"),
}
#: From this many cores of other processes' work on, a warning stands above the table.
BUSY = 0.1
SIZES = {"memory": "eager", "compiled memory": "compiled"}


def measure(shape: Shape, rows: list[Row], rounds: int, to_compile: Callable[[Row], bool]) -> dict[str, Any]:
    """Fill the rows with what is found at a shape, and return the raw numbers."""
    batch, rows = Batch.draw(shape), [row for row in rows if not row.skipped]
    title = str(list(shape))
    calls = {row.name: row.call(batch) for row in rows}
    steps = {f"eager {name}": backward(call, batch.z) for name, call in calls.items()}
    compile_seconds = {}
    torch._dynamo.reset()
    for row in filter(to_compile, rows):
        say(f"{title}: compiling {row.name}")
        start = time.perf_counter()
        try:
            steps[f"compiled {row.name}"] = backward(compiled(calls[row.name], batch.z), batch.z)
        except Exception as error:  # whatever the compiler raises is this row's result
            row.failure = f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')[:100]}"
        compile_seconds[row.name] = round(time.perf_counter() - start, 2)
    say(f"{title}: measuring {len(steps)} rows")
    with torch.compiler.set_stance("fail_on_recompile"):
        peaks = {name: peak(step, batch.z) for name, step in steps.items()}
        references = [name for name in ("eager torch CE", "compiled torch CE") if name in steps]
        neighbours = harness.Neighbours()
        timings = harness.interleave(steps, rounds=rounds, references=references, title=title)
        cores_of_others = neighbours.cores()
    for row in rows:
        for measured, (mode, reference) in TIMES.items():
            if (name := f"{mode} {row.name}") in steps and reference in steps:
                row.times[measured] = harness.ratio(timings[name], timings[reference])
        for measured, mode in SIZES.items():
            if (name := f"{mode} {row.name}") in steps:
                row.sizes[measured] = peaks[name] / peaks["eager torch CE"]
        if "growth" in row.limits:
            row.sizes["growth"] = growth(row, peaks[f"eager {row.name}"])
    return {
        "shares": batch.shares(),
        "cores_of_others": cores_of_others,
        "compile_seconds": compile_seconds,
        "calls": {name: timing.calls for name, timing in timings.items()},
        "seconds": {name: timing.seconds for name, timing in timings.items()},
        "peak_bytes": peaks,
    }


def backward(call: Call, z: Tensor) -> Step:
    """One forward and backward pass."""

    def step() -> None:
        z.grad = None
        call(z).backward()

    return step


def compiled(call: Call, z: Tensor) -> Call:
    """The call compiled, run, and held against eager mode; raises where any of that fails.

    torch.compile keeps its results with the code object, and rows share theirs. Each is given its own here, so that all
    stay compiled side by side; torch._dynamo.reset() between rows would undo the earlier ones.
    """
    assert isinstance(call, types.FunctionType)
    own = types.FunctionType(call.__code__.replace(), call.__globals__, call.__name__, None, call.__closure__)
    fast: Call = torch.compile(own, fullgraph=True, dynamic=False)
    outcomes = []
    for function in (fast, call):
        z.grad = None
        value = function(z)
        value.backward()
        outcomes.append((value.detach(), z.grad))
    torch.testing.assert_close(*outcomes, rtol=1e-3, atol=1e-6)
    with torch.compiler.set_stance("fail_on_recompile"):
        backward(fast, z)()
    return fast


def peak(step: Step, z: Tensor) -> int:
    """Peak bytes of a step, the gradient it leaves behind included."""
    step()
    z.grad = None
    return harness.peak_bytes(step)


def growth(row: Row, bytes_here: int) -> float:
    """The factor by which memory grows when samples or classes double, the larger of the two."""
    n, classes, *rest = row.shape
    doubled = [Batch.draw(shape) for shape in ((2 * n, classes, *rest), (n, 2 * classes, *rest))]
    return max(peak(backward(row.call(batch), batch.z), batch.z) for batch in doubled) / bytes_here


def show(shape: Shape, rows: list[Row], found: dict[str, Any]) -> None:
    """The table of a shape."""
    milliseconds = 1e3 * statistics.median(found["seconds"]["eager torch CE"])
    shares = ", ".join(f"{share:.0%} {name}" for name, share in found["shares"].items())
    megabytes = found["peak_bytes"]["eager torch CE"] / 1e6
    print(f"\n{list(shape)}: F.cross_entropy {milliseconds:.3g} ms, {megabytes:.3g} MB; {shares}\n")
    lines = []
    for row in rows:
        cells = {name: str(ratio) for name, ratio in row.times.items()}
        cells |= {name: f"{size:.3g}" for name, size in row.sizes.items()}
        if row.failure:
            cells |= {column: "failed" for column in COLUMNS if column.startswith("compiled")}
        lines.append([row.name, *(cells.get(column, "") for column in COLUMNS), row.verdict()])
    if (others := found["cores_of_others"]) is not None and others > BUSY:
        print(f"OTHERS WERE BUSY ON {others:g} CORES MEANWHILE: the times below are not to be trusted\n")
    harness.print_table(("loss", *COLUMNS, "verdict"), lines)


def summary(rows: list[Row]) -> dict[str, str]:
    """How many rows meet all their targets."""
    counts = {}
    for kind, is_default in (("defaults", True), ("variants", False)):
        verdicts = [row.verdict() for row in rows if row.is_default is is_default and row.limits]
        failures = sum(verdict.startswith("failed") for verdict in verdicts)
        counts[kind] = f"{verdicts.count('ok')} of {len(verdicts)} within all targets, {failures} failed to compile"
    return counts


def shape_from(text: str) -> Shape:
    """Read a shape such as 8x21x128x128."""
    shape = tuple(int(size) for size in text.split("x"))
    if len(shape) < 2 or min(shape) < 1 or shape[1] < 3:
        raise argparse.ArgumentTypeError(f"expected NxC or NxCx... with 3 classes or more, got {text}")
    return shape


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench losses", description=(__doc__ or "").partition("\n")[0])
    add, usual = parser.add_argument, " ".join("x".join(map(str, shape)) for shape in SHAPES)
    add("--shapes", nargs="+", type=shape_from, metavar="NxC", help=f"default: {usual}")
    add("--losses", nargs="+", choices=names(), default=names(), metavar="NAME", help=f"of {', '.join(names())}")
    add("--rounds", type=int, help="default: 15")
    add("--threads", type=int, default=torch.get_num_threads(), help="default: %(default)s")
    add("--no-compile", action="store_true", help="eager mode only")
    add("--compile-all", action="store_true", help="compile the variants too, not only the defaults")
    add("--json", default="benchmarks/results/losses.json", metavar="PATH", help="default: %(default)s")
    add("--quick", action="store_true", help="smoke run: 3 rounds at 128x10, of the losses only ls compiled")
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 15)
    args.shapes = args.shapes or (SHAPES[:1] if args.quick else SHAPES)
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    harness.check_peak_bytes()

    def to_compile(row: Row) -> bool:
        if args.no_compile or (args.quick and row.method not in (None, "ls")):
            return False
        return row.is_default or args.compile_all

    machine = harness.environment()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    settings = vars(args) | {"training_set": TRAINING_SET}
    results: dict[str, Any] = {"environment": machine, "settings": settings, "targets": TARGETS, "shapes": []}
    everything: list[Row] = []
    for shape in args.shapes:
        rows = torch_rows(shape) + [row for name in args.losses for row in rows_of(name, shape)]
        found = measure(shape, rows, args.rounds, to_compile)
        show(shape, rows, found)
        everything += rows
        results["summary"] = summary(everything)
        results["shapes"].append({"shape": shape, "rows": [row.record() for row in rows], **found})
        harness.write_json(args.json, results)
    print("\n" + "; ".join(f"{kind}: {count}" for kind, count in results["summary"].items()))
    say(f"raw numbers in {args.json}")


if __name__ == "__main__":
    main()
