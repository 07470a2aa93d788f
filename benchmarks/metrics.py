"""Time, memory and error of every metric against the least possible work, and against the peers.

    ./dev bench metrics                  everything; the first time it installs the peers into build/peers
    ./dev bench metrics --no-peers       Calibrant alone
    ./dev bench metrics --data 1000000x10 20000000 --settings trained
    ./dev bench metrics --quick          a smoke run: small data, 3 rounds

Data: logits NxC, or N pairs of confidence and correctness, drawn overconfident, and "trained": most confidences near 1.
Per row: milliseconds; time by the floor's (one chunked max + logsumexp pass, for pairs one read of both arrays), the
median over interleaved rounds with quartiles; the most memory held beyond the data; the value; its distance from a
plain float64 reference; the verdict on the targets of _metric_rows.py. Exact functions of confidence and correctness
start from these, and top_label is what it takes to make them from logits.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from typing import Any

import torch

from benchmarks import _harness as harness
from benchmarks import _peer_runs as peer_runs
from benchmarks._harness import say
from benchmarks._memory import check_peak_extra, peak_extra
from benchmarks._metric_rows import (
    BOUND_SLACK,
    BUSY,
    ERROR_LIMIT,
    OF_DOUBLES,
    REPLICATES,
    SETTINGS,
    TIME_LIMITS,
    Data,
    Row,
    one_pass_values,
    rows_of,
)

SHAPES = ((1_000_000, 10), (100_000, 1000), (20_000_000,))
QUICK = ((20_000, 10), (2_000, 1000), (200_000,))


def measure(data: Data, reference: dict[str, float], rounds: int) -> tuple[list[Row], dict[str, Any]]:
    """The rows filled with what is found on the data, and the raw numbers."""
    rows = rows_of(data)
    for row in rows:
        if row.metric is not None:
            row.value = float(row.step())  # type: ignore[arg-type]
            row.error = abs(row.value - reference[row.metric])
    say(f"{data.title}: timing {len(rows)} rows")
    neighbours = harness.Neighbours()
    steps = {row.name: row.step for row in rows}
    timings = harness.interleave(
        steps, rounds=rounds, references=["floor", *(TIME_LIMITS.keys() & steps)], title=data.title
    )
    cores_of_others = neighbours.cores()
    for row in rows:
        row.ratio = harness.ratio(timings[row.name], timings["floor"])
        row.seconds = statistics.median(s for s in timings[row.name].seconds if s is not None)
        row.peak = peak_extra(row.step)
    return rows, {
        "facts": data.facts(),
        "cores_of_others": cores_of_others,
        "seconds": {name: timing.seconds for name, timing in timings.items()},
    }


def bench(data: Data, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one set of data, printed and as a record."""
    say(f"{data.title}: reference")
    reference = data.reference()
    rows, found = measure(data, reference, args.rounds)
    one_pass = one_pass_values(data, reference)
    facts = {"shape": data.shape, "setting": data.setting._asdict(), "title": data.title, "reference": reference}
    record: dict[str, Any] = facts | {"rows": [row.record() for row in rows], "one_pass": one_pass, **found}
    show_rows(data, rows, found)
    show_one_pass(one_pass)
    if args.peers:
        peers = peer_runs.run_all(data, reference, threads=args.threads, limit=args.limit)
        ours = {row.name: row.seconds for row in rows}
        record |= {"peers": peers, "speed_ups": peer_runs.speed_ups(ours, peers, data.is_pairs)}
        show_peers(peers)
        show_speed_ups(record["speed_ups"])
    return record


def number(value: float | None, form: str = ".3g") -> str:
    return "" if value is None else format(value, form)


def megabytes(size: int | None) -> str:
    return number(None if size is None else size / 1e6, ".0f")


def show_rows(data: Data, rows: list[Row], found: dict[str, Any]) -> None:
    """Calibrant's own."""
    print(f"\n{data.title}: {', '.join(f'{name}: {value:g}' for name, value in found['facts'].items())}\n")
    if (others := found["cores_of_others"]) is not None and others > BUSY:
        print(f"OTHERS WERE BUSY ON {others:g} CORES MEANWHILE: the times below are not to be trusted\n")
    lines = [
        [row.name, number(1e3 * row.seconds), str(row.ratio), megabytes(row.peak), number(row.value, ".6f"),
         number(row.error, ".1e"), row.verdict()]
        for row in rows
    ]  # fmt: skip
    harness.print_table(("", "ms", "by the floor", "MB", "value", "error", "verdict"), lines)


def show_one_pass(records: list[dict[str, Any]]) -> None:
    """The values of one pass and their bounds."""
    print("\nOne pass (the audit's): error, the bound that the sketch states, and both for float64 logits\n")
    lines = []
    for record in records:
        cells = [record["metric"], number(record["value"], ".6f")]
        for suffix in ("", OF_DOUBLES):
            cells += [number(record.get(name + suffix), ".1e") for name in ("error", "bound")]
        kept = [record[name] for name in ("within bound", "within bound" + OF_DOUBLES) if name in record]
        lines.append([*cells, " / ".join("within" if k else "BEYOND" for k in kept) or "-"])
    harness.print_table(("", "value", "error", "bound", "float64: error", "bound", "the bound"), lines)


def show_peers(records: list[dict[str, Any]]) -> None:
    """The peers, and what became of those that gave nothing."""
    print("\nPeers: milliseconds from what they take, of preparing that, and in all\n")
    lines = []
    for record in records:
        name = f"{record['peer']} {record.get('version') or ''}".strip()
        if "value" not in record:
            lines.append([name, record.get("metric") or "", "", "", "", "", "", "", record["failure"]])
            continue
        times = [number(1e3 * s) for s in (record["seconds"], record["preparing"], peer_runs.total(record))]
        size = None if record["peak"] is None else record["peak"] + record["prepared_bytes"]
        value = [number(record["value"], ".6f"), number(record["error"], ".1e")]
        lines.append([name, record["metric"], *times, megabytes(size), *value, f"from {record['takes']}"])
    harness.print_table(("", "metric", "ms", "preparing", "in all", "MB", "value", "error", ""), lines)


def show_speed_ups(records: list[dict[str, Any]]) -> None:
    """Calibrant against the fastest of them."""
    print("\nTimes faster than the fastest peer, from the data to the value (the sketch gives all metrics at once)\n")
    lines = [
        [record["metric"], number(1e3 * record["seconds"]), number(record["error"], ".1e"),
         number(1e3 * record["exact_seconds"]), number(record["exact_speed_up"]),
         number(1e3 * record["sketch_seconds"]), number(record["sketch_speed_up"]), record["peer"]]
        for record in records
    ]  # fmt: skip
    columns = ("", "peer ms", "its error", "exact ms", "times", "sketch ms", "times", "fastest peer")
    harness.print_table(columns, lines)


def summary(records: list[dict[str, Any]]) -> dict[str, str]:
    """How many rows meet their targets, and how many values their bounds."""
    verdicts = [row["verdict"] for record in records for row in record["rows"] if row["limits"]]
    passes = [value for record in records for value in record["one_pass"]]
    counts = {"rows": f"{verdicts.count('ok')} of {len(verdicts)} within their targets"}
    for suffix in ("", OF_DOUBLES):
        kept = [value["within bound" + suffix] for value in passes if "within bound" + suffix in value]
        counts["values" + suffix] = f"{sum(kept)} of {len(kept)} within the stated bound"
    return counts


def shape_from(text: str) -> tuple[int, ...]:
    """Read a shape: 100000x1000 for logits, 20000000 for pairs."""
    shape = tuple(int(float(size)) for size in text.split("x"))
    if len(shape) > 2 or shape[0] < 100 or shape[-1] < 2:
        raise argparse.ArgumentTypeError(f"expected NxC or N, with 100 samples and 2 classes or more, got {text}")
    return shape


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench metrics", description=(__doc__ or "").partition("\n")[0])
    add, settings = parser.add_argument, [setting.name for setting in SETTINGS]
    usual = " ".join("x".join(map(str, shape)) for shape in SHAPES)
    add("--data", nargs="+", type=shape_from, metavar="NxC|N", help=f"default: {usual}")
    add("--settings", nargs="+", choices=settings, default=settings, help="default: both")
    add("--rounds", type=int, help="default: 9")
    add("--threads", type=int, default=2, help="default: %(default)s")
    add("--no-peers", dest="peers", action="store_false", help="Calibrant alone")
    add("--limit", type=float, default=120.0, help="seconds that one call of a peer may take (default: %(default)g)")
    add("--json", default="benchmarks/results/metrics.json", metavar="PATH", help="default: %(default)s")
    add("--quick", action="store_true", help="smoke run: small data, 3 rounds")
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 9)
    args.data = args.data or (QUICK if args.quick else SHAPES)
    return args


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")
    check_peak_extra()
    if args.peers:
        peer_runs.environment()
    machine = harness.environment()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    targets = {"time by the floor": TIME_LIMITS, "error": ERROR_LIMIT, "slack of the bound": BOUND_SLACK}
    settings = vars(args) | {"replicates": REPLICATES}
    results: dict[str, Any] = {"environment": machine, "settings": settings, "targets": targets, "data": []}
    for shape in args.data:
        for setting in (setting for setting in SETTINGS if setting.name in args.settings):
            results["data"].append(bench(Data.draw(shape, setting), args))
            results["summary"] = summary(results["data"])
            harness.write_json(args.json, results)
    print("\n" + "; ".join(f"{what}: {count}" for what, count in results["summary"].items()))
    say(f"raw numbers in {args.json}")


if __name__ == "__main__":
    main()
