"""Temperature fits by time and by what they reach, against the peers; and LogitNorm's search against a softmax.

    ./dev bench posthoc                  everything; the first time it installs the peers into build/peers
    ./dev bench posthoc --no-peers       Calibrant alone
    ./dev bench posthoc --settings 20000x100 5000x10 --threads 1 --rounds 3

Data: float32 logits whose labels were drawn from the softmax of honest ones, half as large (overconfident).
Per fit: seconds (what it takes being made included); passes over the logits; the temperature; the NLL there, how far it
lies above the least, and |dNLL/dT|, all three by one plain float64 reference, whose minimiser is bisected.
Calibrant's seconds and ratios are medians over interleaved rounds: by the floor (one chunked max + logsumexp pass), by
torch.softmax of the whole array, and by softmax in chunks whose output is thrown away. Peers run after that, each in a
process of its own.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import _harness as harness
from benchmarks import _peer_runs as peer_runs
from benchmarks import _posthoc_peers as peers
from benchmarks import _posthoc_reference as reference
from benchmarks._harness import Step, say
from benchmarks._metric_rows import BUSY, CHUNK, Data, Setting, floor
from calibrant.posthoc import LogitNorm, TemperatureScaling

SHAPES = ((100_000, 1000), (50_000, 10))
SETTING = Setting("overconfident", 4.0, 2.0)
OURS, NORM = "Calibrant", "LogitNorm, p from 1 to 10"
#: What the rest is compared with.
REFERENCES = ("floor", "softmax", "softmax in chunks")
#: The most softmax passes that LogitNorm's search may take, from so many classes on: below, sorting the scores counts.
NORM_LIMIT, NORM_CLASSES = 6.0, 1000
#: The most that our temperature may lie from the bisected one, relative to it.
AGREEMENT = 1e-9


def steps_of(data: Data) -> dict[str, Step]:
    """What is timed: the references, then ours."""
    logits, labels = data.tensors()
    rows = max(1, CHUNK // logits.shape[1])

    def in_chunks() -> None:
        for part in logits.split(rows):
            torch.softmax(part, 1)

    return {
        "floor": floor(data),
        "softmax": lambda: torch.softmax(logits, 1),
        "softmax in chunks": in_chunks,
        OURS: lambda: TemperatureScaling().fit(logits, labels),
        NORM: lambda: LogitNorm().fit(logits, labels),
    }


def measure(data: Data, rounds: int) -> dict[str, Any]:
    """Seconds of each step, ours by each reference, and LogitNorm's verdict."""
    say(f"{data.title}: timing")
    neighbours = harness.Neighbours()
    timings = harness.interleave(steps_of(data), rounds=rounds, references=REFERENCES, title=data.title)
    others = neighbours.cores()
    rows = []
    for name, timing in timings.items():
        ratios = {other: harness.ratio(timing, timings[other]) for other in REFERENCES}
        limited = name == NORM and data.shape[1] >= NORM_CLASSES
        over = [
            f"{ratios[other].median:.3g} of {other} > {NORM_LIMIT:g}"
            for other in REFERENCES[1:]
            if limited and not ratios[other].median <= NORM_LIMIT
        ]
        verdict = f"over: {', '.join(over)}" if over else "ok" if limited else "-"
        seconds = statistics.median(s for s in timing.seconds if s is not None)
        ratio_records = {other: ratio._asdict() for other, ratio in ratios.items()}
        rows.append({"name": name, "seconds": seconds, "ratios": ratio_records, "verdict": verdict})
    raw = {name: timing.seconds for name, timing in timings.items()}
    return {"rows": rows, "cores_of_others": others, "seconds": raw}


def our_fit(data: Data, seconds: float) -> dict[str, Any]:
    """Calibrant's own temperature, as a record like the peers'."""
    fitted = TemperatureScaling().fit(*data.tensors())
    found = {"temperature": fitted.temperature_, "passes": fitted.passes_, "fitting": seconds, "preparing": 0.0}
    return {"peer": OURS, "version": "", "metric": "logits", **found}


def peer_fits(data: Data, *, threads: int, limit: float) -> list[dict[str, Any]]:
    """What every peer gives on the data, and in what time."""
    python, problems = peer_runs.environment()
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="calibrant-bench-") as folder:
        for array, values in data.arrays.items():
            np.save(Path(folder) / f"{array}.npy", values)
        for peer in peers.PEERS:
            if problem := problems.get(peers.package(peer)):
                records.append({"peer": peer, "failure": problem})
                continue
            say(f"{data.title}: {peer}")
            command = [str(python), "-m", "benchmarks._posthoc_peers", peer, folder]
            command += ["--threads", str(threads), "--takes"]
            records += peer_runs.run_peer(command, peer, peers.TAKES, threads=threads, limit=limit)
    return records


def judge(data: Data, records: list[dict[str, Any]], least: reference.Least) -> list[dict[str, Any]]:
    """The records with what the reference says of their temperatures."""
    logits, labels = data.tensors()
    judged = []
    for record in records:
        more: dict[str, Any] = {"takes": record.get("metric")}
        if "temperature" in record:
            found = reference.at(logits, labels, record["temperature"])
            more |= {"seconds": record["preparing"] + record["fitting"], "nll": found.nll}
            more |= {"excess": found.nll - least.nll, "gradient": abs(found.gradient)}
        judged.append({name: value for name, value in record.items() if name != "metric"} | more)
    return judged


def bench(data: Data, args: argparse.Namespace) -> dict[str, Any]:
    """Everything about one set of data, printed and as a record."""
    say(f"{data.title}: reference")
    logits, labels = data.tensors()
    least, before = reference.least(logits, labels), reference.at(logits, labels, 1.0).nll
    record: dict[str, Any] = {"shape": data.shape, "title": data.title, "facts": data.facts()}
    record |= {"least": least._asdict(), "nll at 1": before} | measure(data, args.rounds)
    show_rows(record)
    ours = our_fit(data, next(row["seconds"] for row in record["rows"] if row["name"] == OURS))
    theirs = peer_fits(data, threads=args.threads, limit=args.limit) if args.peers else []
    record["fits"] = judge(data, [ours, *theirs], least)
    record["distance"] = abs(ours["temperature"] / least.temperature - 1)
    show_fits(record)
    return record


def show_rows(record: dict[str, Any]) -> None:
    """Times of ours and of what they are compared with."""
    print(f"\n{record['title']}: {', '.join(f'{name}: {value:g}' for name, value in record['facts'].items())}\n")
    if (others := record["cores_of_others"]) is not None and others > BUSY:
        print(f"OTHERS WERE BUSY ON {others:g} CORES MEANWHILE: the times below are not to be trusted\n")
    lines = []
    for row in record["rows"]:
        ratios = [str(harness.Ratio(**row["ratios"][other])) for other in REFERENCES]
        name = f"{row['name']}, temperature" if row["name"] == OURS else row["name"]
        lines.append([name, f"{1e3 * row['seconds']:.3g}", *ratios, row["verdict"]])
    harness.print_table(("", "ms", *(f"by {other}" for other in REFERENCES), "verdict"), lines)


def show_fits(record: dict[str, Any]) -> None:
    """The temperatures, and what became of the peers that gave none."""
    least, ours = record["least"], record["fits"][0]
    print(
        f"\nTemperature fits; the NLL is {record['nll at 1']:.6f} at T = 1, least at {least['temperature']:.12g}, where"
    )
    print(f"|dNLL/dT| is {abs(least['gradient']):.0e} (bisected); {OURS} is {agreement(record)}\n")
    lines = []
    for fit in record["fits"]:
        name = f"{fit['peer']} {fit.get('version') or ''}".strip()
        if "temperature" not in fit:
            lines.append([name, *[""] * 7, fit["failure"]])
            continue
        passes = "-" if fit["passes"] is None else str(fit["passes"])
        times = [f"{fit['seconds']:.3g}", f"{fit['seconds'] / ours['seconds']:.3g}", passes]
        reached = [f"{fit['temperature']:.8f}", f"{fit['nll']:.8f}", f"{fit['excess']:.1e}", f"{fit['gradient']:.1e}"]
        lines.append([name, *times, *reached, f"from {fit['takes']}"])
    columns = ("", "s", "by ours", "passes", "T", "NLL", "above the least", "|dNLL/dT|", "")
    harness.print_table(columns, lines)


def agreement(record: dict[str, Any]) -> str:
    """Whether our temperature is the bisected one."""
    distance = record["distance"]
    return f"{distance:.0e} from it, relatively" + ("" if distance <= AGREEMENT else f": NOT WITHIN {AGREEMENT:g}")


def summary(records: list[dict[str, Any]]) -> dict[str, str]:
    """How many searches meet their target, and how many of our temperatures are the minimiser."""
    verdicts = [row["verdict"] for record in records for row in record["rows"] if row["verdict"] != "-"]
    near = [record["distance"] <= AGREEMENT for record in records]
    found = {"temperatures": f"{sum(near)} of {len(near)} within {AGREEMENT:g} of the bisected one"}
    if verdicts:
        found["LogitNorm"] = f"{verdicts.count('ok')} of {len(verdicts)} within {NORM_LIMIT:g} softmax passes"
    return found


def shape_from(text: str) -> tuple[int, ...]:
    """Read a shape, NxC: 100000x1000 or 1e5x1000."""
    try:
        size, classes = (int(float(part)) for part in text.split("x"))
    except ValueError:
        size = classes = 0
    # Fewer than 3 classes would be another problem to some peers.
    if size < 100 or classes < 3:
        raise argparse.ArgumentTypeError(f"expected NxC with 100 samples and 3 classes or more, got {text}")
    return size, classes


def positive(text: str) -> float:
    """Read a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench posthoc", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    usual = " ".join("x".join(map(str, shape)) for shape in SHAPES)
    add("--settings", nargs="+", type=shape_from, default=SHAPES, metavar="NxC", help=f"default: {usual}")
    add("--rounds", type=int, default=9, help="default: %(default)s")
    add("--threads", type=int, default=2, help="default: %(default)s")
    add("--no-peers", dest="peers", action="store_false", help="Calibrant alone")
    add("--limit", type=positive, default=600.0, help="seconds that one fit of a peer may take (default: %(default)g)")
    add("--json", default="benchmarks/results/posthoc.json", metavar="PATH", help="default: %(default)s")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")
    if args.peers:
        peer_runs.environment()
    machine = harness.environment()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    targets = {"LogitNorm by softmax": NORM_LIMIT, "from classes": NORM_CLASSES, "distance": AGREEMENT}
    settings = vars(args) | {"data": SETTING._asdict()}
    results: dict[str, Any] = {"environment": machine, "settings": settings, "targets": targets, "data": []}
    for shape in args.settings:
        results["data"].append(bench(Data.draw(shape, SETTING), args))
        results["summary"] = summary(results["data"])
        harness.write_json(args.json, results)
    print("\n" + "; ".join(f"{what}: {count}" for what, count in results["summary"].items()))
    say(f"raw numbers in {args.json}")


if __name__ == "__main__":
    main()
