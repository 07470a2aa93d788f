"""The parts of docs/speed.md about the metrics: from the numbers of ./dev bench metrics and ./dev bench streaming."""

from __future__ import annotations

from typing import Any

from benchmarks._markdown import table

#: As in the benchmarks: from this many cores of other processes' work on, times are doubted.
BUSY = 0.1

METRICS = """\
## Metrics

Each row is measured alone, on synthetic data: float32 logits `[N, C]` whose labels were drawn from flatter ones
(overconfident){also}; or pairs of a confidence and whether the prediction is right.
**Floor** is the least work that a metric needs: for logits one chunked pass of `max` and `logsumexp`, for pairs one
read of both arrays. Times by the floor are medians over {rounds} interleaved rounds. **MB** is the most memory that the
process held beyond the data. **Error** is the distance from a plain float64 reference that shares no code with the
package.

- sketch: a `ConfidenceSketch` is made, updated with all data and computed, which gives every metric of the tables
  except class-wise ECE. Audit collect: the audit's one pass, which adds classes, class-wise ECE, groups, the worst
  errors and a sample. Numbers in bold exceed a target (in floors: {limits}).
- The exact functions take confidence and correctness; top_label computes these from logits. Intervals rest on
  {replicates} bootstrap replicates, for every metric at once.
- "Its bound" is what the sketch states about its cells alone; confidences from float32 logits carry a rounding error of
  about 1e-8 besides. The last line allows for both, and counts the same logits in float64 as well.
- Peers run in an environment of their own, on the same data and with as many threads; where none was run, their columns
  are empty. Their times include preparing their input (torch's softmax and its maximum), once where several metrics are
  computed together. "Times faster" is the peer's time by that of the exact function, top_label included, and by that of
  the sketch, which gives all metrics at once.

Run on: {machine}.
Repeat with `./dev bench metrics`; other machines give other ratios.
"""

STREAMING = """\
## Streaming

The audit's pass over folders of Parquet shards, in a process of its own, beside a scan: Arrow reading the same columns
and doing nothing with them; and beside torchmetrics' ECE alone, updated with the batches that Arrow reads, of which it
keeps every confidence. Files are in the page cache as far as they fit. Memory is the most that the whole process held,
PyTorch included; the audit's target is below {limit:.0f} MB. Repeat with `./dev bench streaming`.

Run on: {machine}.
"""


def metrics_part(results: dict[str, Any]) -> str:
    """Everything about the metrics."""
    settings = results["settings"]
    trained = any(data["setting"]["name"] == "trained" for data in results["data"])
    head = METRICS.format(
        also=', and "trained", where most confidences are near 1' if trained else "",
        rounds=settings["rounds"],
        replicates=settings["replicates"],
        limits=", ".join(f"{name} {limit:g}" for name, limit in results["targets"]["time by the floor"].items()),
        machine=machine(results["environment"]),
    )
    parts = [head, *(_section(data) for data in results["data"])]
    if any(data.get("peers") for data in results["data"]):
        parts.append(_peers(results["data"]))
    counts = "; ".join(f"{what}: {count}" for what, count in results["summary"].items())
    return "\n".join([*parts, f"In all: {counts}.\n"])


def streaming_part(results: dict[str, Any]) -> str:
    """Everything about streaming."""
    limit = results["targets"]["peak of the audit"] / 1e6
    lines, doubts = [], []
    for folder in results["folders"]:
        audit, scan, peer = folder["audit"], folder["scan"], folder["torchmetrics"]
        peak = _bold(f"{audit['peak'] / 1e6:.0f}", folder["verdict"] != "ok")
        speeds = [f"{found['rows_per_second']:.3g}" for found in (audit, scan)]
        times = [f"{audit['seconds']:.3g}", f"{folder['by_scan']:.3g}"]
        doubts += busy(folder)
        theirs = [f"{peer['seconds']:.3g}", f"{peer['peak'] / 1e6:.0f}"]
        lines.append([folder["title"], f"{folder['bytes'] / 1e9:.3g}", *times, *speeds, peak, *theirs])
    columns = ["folder", "GB", "audit, s", "by the scan", "audit, rows/s", "scan, rows/s", "audit, peak MB"]
    columns += ["torchmetrics' ECE, s", "peak MB"]
    head = STREAMING.format(limit=limit, machine=machine(results["environment"]))
    return "\n".join([head, *(f"{doubt}\n" for doubt in doubts[:1]), table(columns, lines)])


def machine(environment: dict[str, Any]) -> str:
    """What the numbers were found on."""
    threads = "1 thread" if environment["threads"] == 1 else f"{environment['threads']} threads"
    return f"{environment['cpu']}, {threads}, torch {environment['torch']}"


def busy(record: dict[str, Any]) -> list[str]:
    """A warning where others used the machine meanwhile."""
    others = record["cores_of_others"]
    warning = f"Other processes used {others or 0:g} cores meanwhile: these times cannot be trusted."
    return [warning] if others and others > BUSY else []


def _section(data: dict[str, Any]) -> str:
    facts = "; ".join(f"{name}: {value:g}" for name, value in data["facts"].items())
    rows = {row["name"]: row for row in data["rows"]}
    ours = [
        [row["name"], _ms(row["seconds"]), _bold(f"{row['ratio']['median']:.3g}", "time" in row["verdict"]),
         _megabytes(row["peak"])]
        for row in data["rows"] if row["metric"] is None
    ]  # fmt: skip
    title, facts = (text[0].upper() + text[1:] for text in (data["title"], facts))
    parts = [f"### {title}", "", f"{facts}.", *busy(data), "", table(("", "ms", "by the floor", "MB"), ours)]
    one_pass = {record["metric"]: record for record in data["one_pass"]}
    rivals = {record["metric"]: record for record in data.get("speed_ups", ())}
    lines = []
    for metric in [*(name for name, row in rows.items() if row["metric"]), "ece + aece + aurc"]:
        row, found, rival = rows.get(metric), one_pass.get(metric, {}), rivals.get(metric)
        cells = [""] * 4
        if row is not None:
            by_floor = _bold(f"{row['ratio']['median']:.3g}", "time" in row["verdict"])
            cells = [_ms(row["seconds"]), by_floor, _megabytes(row["peak"]), _small(row["error"])]
        elif rival is None:
            continue
        cells += [_small(found.get("error")), _small(found.get("bound"))]
        cells += ["", "", "", "", ""] if rival is None else [
            rival["peer"], _ms(rival["seconds"]), _small(rival["error"]), f"{rival['exact_speed_up']:.3g}",
            f"{rival['sketch_speed_up']:.3g}",
        ]  # fmt: skip
        lines.append([metric, *cells])
    columns = ["metric", "exact, ms", "by the floor", "MB", "error", "one pass, error", "its bound"]
    columns += ["fastest peer", "ms", "error", "exact, times faster", "sketch, times faster"]
    return "\n".join([*parts, table(columns, lines)])


def _peers(everything: list[dict[str, Any]]) -> str:
    """One line per peer and metric, a column per set of data: milliseconds, megabytes and error."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for data in everything:
        for record in data.get("peers", ()):
            name = f"{record['peer']} {record.get('version') or ''}".strip()
            text = record.get("failure") or (
                f"{_ms(record['preparing'] + record['seconds'])} ms, {_held(record)}{_small(record['error'])}"
            )
            cells.setdefault((name, record.get("metric") or ""), {})[data["title"]] = text.replace("|", "/")
    titles = [data["title"] for data in everything if "peers" in data]
    lines = [[name, metric, *(found.get(title, "") for title in titles)] for (name, metric), found in cells.items()]
    head = "### All peers\n\nTime from the data to the value, memory beyond the data, error; or what became of it.\n\n"
    return head + table(["peer", "metric", *titles], lines)


def _held(record: dict[str, Any]) -> str:
    return "" if record["peak"] is None else f"{_megabytes(record['peak'] + record['prepared_bytes'])} MB, "


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.0f}"


def _small(value: float | None) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.0e}"


def _bold(text: str, over: bool) -> str:
    return f"**{text}**" if over else text
