"""Does the watch keep its word? False alarms over 10,000 looks, and how soon a break is found, beside MAPIE's monitor.

    ./dev bench monitor                       500 streams of 10,000 looks, 300 streams with a break, 5 x 50 of batches
    ./dev bench monitor --streams 4000 --seed 7
    ./dev bench monitor --page                write docs/monitor_evidence.md from the last results

MAPIE is asked where it is installed: in the peers' environment that `./dev bench metrics` makes, or in this one.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._harness import say
from benchmarks._markdown import table
from calibrant import Monitor, Policy, Predictions
from calibrant.base.files import write_json, written_aside
from calibrant.monitoring.evidence import EXCESS, LOG_BETS, EvidenceProcess, rank_cells, rate_ratios, restart_share

RESULTS = Path("benchmarks/results/monitor.json")
PAGE = Path("docs/monitor_evidence.md")
PEERS = Path("build/peers/bin/python")
ALPHA = 0.05
#: The share of alpha that a watch has for its promise until an alarm is acknowledged, and the level of MAPIE's limits
#: at its default.
SHARE = ALPHA / 2 * restart_share(1)
RATE, BATCH, AFTER = 0.1, 50, 60  # promised rate, answers of a batch, batches after the break

#: Promised rate and true rate, answers of a batch.
NULLS = ((0.05, 0.05, 10), (0.05, 0.05, 100), (0.2, 0.2, 1), (0.01, 0.01, 200), (0.05, 0.04, 100))
#: Batches before the break, the rate in them, the rate after it; as multiples of the promised rate.
BREAKS = ((0, 0.8, 1.5), (40, 0.8, 1.5), (40, 1.0, 1.5), (40, 0.8, 2.0), (400, 0.8, 1.5))
#: Streams that MAPIE is asked about, and batches before the break up to which it is: its limits take a millisecond
#: a sample.
PEER_STREAMS, PEER_BEFORE = 20, 40

#: Streams for the words about label shift, batches of each and samples of a batch.
SHIFT_STREAMS, SHIFT_BATCHES, SHIFT_SIZE = 50, 6, 1000
SHIFT_PRIORS = np.array([0.4, 0.25, 0.15, 0.12, 0.08])
SHIFT_KINDS = {
    "nothing has changed": "iid",
    "nothing has changed, and the score knows nothing of the classes": "blind",
    "noise at the sensor": "noise",
    "a third of the samples are of a class that was not there": "new class",
    "the shares of the classes are reversed": "shift",
}

Bools = npt.NDArray[np.bool_]


def false_alarms(rate: float, true: float, batch: int, streams: int, looks: int, seed: int) -> dict[str, Any]:
    """The share of streams whose evidence ever reaches 1/alpha though the promise is kept."""
    random = np.random.default_rng([seed, 1, batch, round(1000 * rate)])
    evidence, highest = EvidenceProcess(len(EXCESS), (streams,)), np.full(streams, -np.inf)
    for _ in range(looks):
        evidence.update(rate_ratios(random.binomial(batch, true, streams), batch, rate))
        highest = np.maximum(highest, evidence.log_value)
    share = float((highest >= math.log(1 / ALPHA)).mean())
    return {"rate": rate, "true": true, "batch": batch, "streams": streams, "looks": looks, "share": share}


def changes_seen(reference: int, shift: float, streams: int, seed: int, looks: int = 100) -> dict[str, Any]:
    """The share of streams with an alarm of the ranks; after half of the looks a share of values moves."""
    random = np.random.default_rng([seed, 2, reference, round(1000 * shift)])
    shares = np.full(16, 1 / 16)
    moved = shares + shift * np.where(np.arange(16) < 8, -1 / 8, 1 / 8)
    early, late = 0, []
    for _ in range(streams):
        pool, evidence, first = random.multinomial(reference, shares), EvidenceProcess(len(LOG_BETS)), None
        for look in range(looks):
            law = moved if look >= looks // 2 else shares
            cells, pool = rank_cells(pool, random.multinomial(100, law), random)
            evidence.update(LOG_BETS @ cells)
            if first is None and evidence.log_value >= math.log(1 / ALPHA):
                first = look
        early += first is not None and (first < looks // 2 or shift == 0)
        late += [math.inf if first is None else first - looks // 2 + 1] if shift else []
    found = [look for look in late if look > 0]
    return {
        "reference": reference, "shift": shift, "streams": streams, "looks": looks, "early": early / streams,
        "median": float(np.median(found)) if found else None,
        "found": float(np.isfinite(found).mean()) if found else None,
    }  # fmt: skip


def draw_samples(kind: str, changed: bool, size: int, random: np.random.Generator) -> Predictions:
    """Samples of five Gaussian classes, with the logits of a model that is right about them as they were at the fit.

    The kind says what is changed: nothing (``iid``; ``blind``: and the logits are of other samples), the noise of the
    inputs, a third of the samples, which are of a further class (``new class``), or the shares of the classes.
    """
    classes = len(SHIFT_PRIORS)
    priors = SHIFT_PRIORS[::-1] if changed and kind == "shift" else SHIFT_PRIORS
    labels = random.choice(classes, size, p=priors)
    seen = labels.copy()
    if kind == "blind":
        seen = random.permutation(seen)
    spread = 1.6 if changed and kind == "noise" else 1.0
    means = 2.0 * np.eye(classes)[seen]
    if changed and kind == "new class":
        means[random.random(size) < 1 / 3] = [2.0, 2.0, *[0.0] * (classes - 2)]
    inputs = means + spread * random.standard_normal((size, classes))
    return Predictions.from_logits(2.0 * inputs + np.log(SHIFT_PRIORS), labels)


def shift_words(kind: str, streams: int, seed: int) -> dict[str, Any]:
    """The share of streams, without a label, in which label shift is ever said to explain a batch."""
    advised = alarms = 0
    for stream in range(streams):
        random = np.random.default_rng([seed, 4, sum(map(ord, kind)), stream])
        if stream % 10 == 0:
            risk = 0.9 if kind == "blind" else 0.1
            policy = Policy.fit(draw_samples(kind, False, 2000, random), risk)
        monitor, offers = Monitor(policy), []
        for number in range(SHIFT_BATCHES):
            batch = draw_samples(kind, number >= SHIFT_BATCHES // 2, SHIFT_SIZE, random)
            values = Predictions.from_logits(batch.logits, np.full(SHIFT_SIZE, -100))
            shift = monitor.update(values, f"batch {number}").document["label_shift"]
            offers.append(shift is not None and shift["offered"])
        advised += any(offers)
        alarms += any(test.name == "predicted" for test in monitor.watch.alarms)
    return {"kind": kind, "streams": streams, "advised": advised / streams, "alarms": alarms / streams}


def break_streams(before: int, good: float, bad: float, streams: int, seed: int) -> Bools:
    """Wrong answers ``[streams, batches * BATCH]``."""
    random = np.random.default_rng([seed, 3, before, round(100 * good), round(100 * bad)])
    rates = np.repeat([good * RATE, bad * RATE], [before * BATCH, AFTER * BATCH])
    wrong: Bools = random.random((streams, len(rates))) < rates
    return wrong


def our_alarms(wrong: Bools) -> list[int | None]:
    """The first batch, from 1 on, after which there is an alarm."""
    errors = wrong.reshape(len(wrong), -1, BATCH).sum(2)
    evidence, first = EvidenceProcess(len(EXCESS), (len(wrong),)), np.zeros(len(wrong), np.int64)
    for look in range(errors.shape[1]):
        evidence.update(rate_ratios(errors[:, look], BATCH, RATE))
        first = np.where((evidence.log_value >= math.log(1 / SHARE)) & (first == 0), look + 1, first)
    return [int(look) or None for look in first]


def peer_alarms(wrong: Bools) -> dict[str, Any] | str:
    """MAPIE's version and alarms; or why there are none."""
    for python in (str(PEERS), sys.executable):
        with tempfile.NamedTemporaryFile(suffix=".npy") as file:
            np.save(file.name, wrong)
            command = [python, "-m", "benchmarks._monitor_peer", file.name, "--threshold", str(RATE)]
            try:
                done = subprocess.run(
                    [*command, "--batch", str(BATCH), "--level", str(ALPHA)], capture_output=True, text=True, check=True
                )
            except (OSError, subprocess.CalledProcessError):
                continue
            found: dict[str, Any] = json.loads(done.stdout)
            return found
    return "MAPIE is not installed: ./dev bench metrics makes an environment with it"


def delays(alarms: list[int | None], before: int) -> dict[str, Any]:
    """Of alarms: how many came before the break, and how many answers after it the others came."""
    early = [look for look in alarms if look is not None and look <= before]
    late = [math.inf if look is None else (look - before) * BATCH for look in alarms if look is None or look > before]
    low, median, high = (float(np.quantile(late, q, method="inverted_cdf")) for q in (0.1, 0.5, 0.9))
    found = float(np.isfinite(late).mean())
    return {"streams": len(alarms), "early": len(early) / len(alarms), "found": found,
            "low": low, "median": median, "high": high}  # fmt: skip


def run(streams: int, looks: int, seed: int) -> dict[str, Any]:
    nulls = []
    for rate, true, batch in NULLS:
        nulls.append(false_alarms(rate, true, batch, streams, looks, seed))
        say(f"promised {rate:.0%}, true {true:.0%}, {batch} answers a look: {nulls[-1]['share']:.2%} of streams")
    ranks = []
    for reference, shift in ((100, 0.0), (1000, 0.0), (1000, 0.1), (1000, 0.2)):
        ranks.append(changes_seen(reference, shift, 60, seed))
        say(f"ranks, fit of {reference}, {shift:.0%} moved: {ranks[-1]}")
    shifts = []
    for words, kind in SHIFT_KINDS.items():
        shifts.append({"words": words, **shift_words(kind, SHIFT_STREAMS, seed)})
        say(f"{words}: {shifts[-1]}")
    breaks, version = [], ""
    for before, good, bad in BREAKS:
        wrong = break_streams(before, good, bad, 300, seed)
        row: dict[str, Any] = {"before": before, "good": good, "bad": bad, "ours": delays(our_alarms(wrong), before)}
        if before <= PEER_BEFORE:
            answer = peer_alarms(wrong[:PEER_STREAMS])
            if isinstance(answer, str):
                say(answer)
            else:
                version = answer["version"]
                row["mapie"] = delays(answer["alarms"], before)
                row["ours_same"] = delays(our_alarms(wrong[:PEER_STREAMS]), before)
        breaks.append(row)
        say(f"break after {before} batches, {good:g} to {bad:g} times the promise: {row}")
    return {"seed": seed, "nulls": nulls, "ranks": ranks, "breaks": breaks, "shifts": shifts, "mapie": version}


def _answers(value: float | None) -> str:
    return "-" if value is None else f"over {AFTER * BATCH:,}" if math.isinf(value) else f"{value:,.0f}"


def _break_row(row: dict[str, Any]) -> list[str]:
    ours = row["ours"]
    cells = [f"{row['before'] * BATCH:,}", f"{row['good']:g} r", f"{row['bad']:g} r", f"{ours['early']:.1%}",
             _answers(ours["median"]), _answers(ours["high"])]  # fmt: skip
    if "mapie" not in row:
        return [*cells, "", "", ""]
    same, peer = row["ours_same"], row["mapie"]
    return [*cells, _answers(same["median"]), _answers(peer["median"]), f"{peer['early']:.1%}"]


def page(results: dict[str, Any]) -> str:
    nulls = [
        [f"{row['rate']:.0%}", f"{row['true']:.0%}", str(row["batch"]), f"{row['looks']:,}", f"{row['streams']:,}",
         f"{row['share']:.1%}"]
        for row in results["nulls"]
    ]  # fmt: skip
    ranks = [
        [f"{row['reference']:,}", f"{row['shift']:.0%}", f"{row['early']:.1%}",
         "-" if row["median"] is None else "not found" if math.isinf(row["median"]) else f"{100 * row['median']:,.0f}",
         "-" if row["found"] is None else f"{row['found']:.0%}"]
        for row in results["ranks"]
    ]  # fmt: skip
    shifts = [
        [row["words"], f"{row['streams']:,}", f"{row['alarms']:.1%}", f"{row['advised']:.1%}"]
        for row in results["shifts"]
    ]
    peer = f"MAPIE {results['mapie']}" if results["mapie"] else "MAPIE (not installed)"
    heads = ("answers before", "rate before", "rate after", "false alarms", "median delay", "90% within",
             f"ours on {PEER_STREAMS}", peer, "its false alarms")  # fmt: skip
    return PAGE_TEXT.format(
        seed=results["seed"],
        batch=BATCH,
        rate=f"{RATE:.0%}",
        share=f"{SHARE:.1%}",
        alpha=f"{ALPHA:.0%}",
        streams=PEER_STREAMS,
        after=AFTER * BATCH,
        nulls=table(("promised", "true", "answers a look", "looks", "streams", "false alarms"), nulls),
        ranks=table(("samples at the fit", "moved", "false alarms", "median delay", "found"), ranks),
        shift_batches=SHIFT_BATCHES,
        shift_size=SHIFT_SIZE,
        shifts=table(("what changes", "streams", "alarm of the predicted classes", "correction advised"), shifts),
        breaks=table(heads, [_break_row(row) for row in results["breaks"]]),
    )


PAGE_TEXT = """\
<!-- Written by ./dev bench monitor --page; edit benchmarks/monitor.py instead. -->

# Does the watch keep its word?

Simulated streams, seed {seed}; repeat with `./dev bench monitor`, with another `--seed` if you like. [Watch a deployed
promise](monitor.md) says what is promised, and why.

## False alarms of the promise

The share of streams whose evidence against a promise that is kept ever reaches 20 to 1; it may be {alpha}.

{nulls}
## How soon a break is found

Answers after the break until the alarm, at the level that a watch has for its promise
({share}: 6/π² of half of {alpha}),
looking every {batch} answers; r is {rate}, and streams end {after:,} answers after the break. Beside it, on the first
{streams} of the same streams, MAPIE's `RiskMonitoring` (Podkopaev and Ramdas 2022), with the threshold r and its
default level of {alpha}, of which half is for the stream. It compares the mean of all answers since the start, so that
good times before a break delay it; its bound is for any risk between 0 and 1, ours for wrong or right alone.

{breaks}
## Changes without labels

100 looks at 100 samples each in 16 bins; from the 51st look on, a share of the values moves from the lower half of the
bins to the upper one. The delay is in samples, of the streams without a false alarm before; level {alpha}.

{ranks}
## Is it label shift?

The share of streams in which the watch ever says that other shares of the classes explain a batch, and so advises
`--corrected`. Five Gaussian classes, a policy fitted on 2,000 samples, {shift_batches} batches of {shift_size} without
labels; from the middle batch on something changes. Only in the last row should it be said.

{shifts}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--looks", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", action="store_true", help="write the page from the last results")
    given = parser.parse_args()
    if not given.page:
        results = run(given.streams, given.looks, given.seed)
        write_json(RESULTS, results)
        say(f"wrote {RESULTS}")
        return
    with written_aside(PAGE) as aside:
        aside.write_text(page(json.loads(RESULTS.read_text())), encoding="utf-8")
    say(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
