"""What runs inside the peers' environment: one peer's metrics on the data of a folder, a line of JSON for each finding.

    python -m benchmarks._peers PEER FOLDER --metrics ece aece --threads 2

Each call starts from what the peer takes: probabilities (float32, torch's softmax) or confidence and correctness. How
long these take to make from logits is measured beside. A line follows every single call, so that whoever reads knows
when one takes too long. The folder holds ``logits.npy`` and ``labels.npy``, or ``confidence.npy`` and ``correct.npy``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from benchmarks._memory import peak_extra

BINS = 15
#: How often a call is timed, and after how many seconds of timing no more is begun.
REPEATS, ENOUGH_SECONDS = 5, 30.0
METRICS = ("ece", "aece", "aurc", "smooth_ece", "brier", "nll")
#: Peers whose AURC is the trapezoid rule from the first sample on; their error is taken against that.
TRAPEZOID = ("torch-uncertainty",)

Call = Callable[["Given"], object]


class Given:
    """The data in every form that a peer may take, each made on first use and timed.

    Pairs become "probabilities" of two classes, of which the first is predicted and the second has none, so that peers
    that take nothing else can be asked too; making that is not counted.
    """

    def __init__(self, folder: Path) -> None:
        self.arrays = {file.stem: np.load(file) for file in folder.glob("*.npy")}
        self.is_pairs = "confidence" in self.arrays
        self.seconds = {"probabilities": 0.0, "pairs": 0.0}
        self.bytes = {"probabilities": 0, "pairs": 0}
        if self.is_pairs:
            self.confidence, self.correct = (torch.from_numpy(self.arrays[name]) for name in ("confidence", "correct"))
            self.probabilities = torch.stack([self.confidence, torch.zeros_like(self.confidence)], 1)
            self.labels = (~self.correct).long()
        else:
            logits, self.labels = (torch.from_numpy(self.arrays[name]) for name in ("logits", "labels"))
            self.probabilities, softmax = _timed(lambda: torch.softmax(logits, 1))
            (self.confidence, self.correct), top = _timed(self._top)
            self.seconds = {"probabilities": softmax, "pairs": softmax + top}
            self.bytes = dict.fromkeys(self.seconds, self.probabilities.nbytes)
        self.classes = self.probabilities.shape[1]

    def _top(self) -> tuple[Tensor, Tensor]:
        confidence, predicted = self.probabilities.max(1)
        return confidence, predicted == self.labels


def _timed(make: Callable[[], Any]) -> tuple[Any, float]:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        made = make()
        seconds.append(time.perf_counter() - start)
    return made, statistics.median(seconds)


def updated(metric: Any, values: Tensor, truth: Tensor) -> object:
    metric.update(values, truth)
    return metric.compute()


# ---------------------------------------------------------------------- the peers: metric to what it takes and the call


def of_torchmetrics(given: Given) -> dict[str, tuple[str, Call]]:
    from torchmetrics.classification import BinaryCalibrationError, MulticlassCalibrationError

    if given.is_pairs:
        return {"ece": ("pairs", lambda g: updated(BinaryCalibrationError(n_bins=BINS), g.confidence, g.correct.int()))}
    made = MulticlassCalibrationError
    return {"ece": ("probabilities", lambda g: updated(made(g.classes, n_bins=BINS), g.probabilities, g.labels))}


def of_torch_uncertainty(given: Given) -> dict[str, tuple[str, Call]]:
    from torch_uncertainty.metrics import classification as theirs

    def adaptive(g: Given) -> Any:
        return theirs.AdaptiveCalibrationError(task="multiclass", num_classes=g.classes, num_bins=BINS)

    makers: dict[str, Callable[[Given], Any]] = {
        "aece": adaptive,
        "aurc": lambda g: theirs.AURC(),
        "smooth_ece": lambda g: theirs.SmoothCalibrationError(kernel_type="reflected"),
    }
    if not given.is_pairs:
        makers["brier"] = lambda g: theirs.BrierScore(num_classes=g.classes)
        makers["nll"] = lambda g: theirs.CategoricalNLL()

    def call(make: Callable[[Given], Any]) -> Call:
        return lambda g: updated(make(g), g.probabilities, g.labels)

    return {metric: ("probabilities", call(make)) for metric, make in makers.items()}


def of_netcal(given: Given) -> dict[str, tuple[str, Call]]:
    from netcal.metrics import ECE

    def call(equal_width: bool) -> Call:
        def measure(g: Given) -> object:
            values, truth = (g.confidence, g.correct.long()) if g.is_pairs else (g.probabilities, g.labels)
            return ECE(BINS, equal_intervals=equal_width).measure(values.numpy(), truth.numpy())

        return measure

    takes = "pairs" if given.is_pairs else "probabilities"
    return {"ece": (takes, call(True)), "aece": (takes, call(False))}


def of_mapie(given: Given) -> dict[str, tuple[str, Call]]:
    from mapie.metrics.calibration import expected_calibration_error

    def call(strategy: str) -> Call:
        # It takes the number of edges for the number of bins: 16 give 15.
        return lambda g: expected_calibration_error(
            g.correct.long().numpy(), g.confidence.numpy(), num_bins=BINS + 1, split_strategy=strategy
        )

    return {"ece": ("pairs", call("uniform")), "aece": ("pairs", call("quantile"))}


def of_relplot(given: Given) -> dict[str, tuple[str, Call]]:
    import relplot

    return {
        "ece": ("pairs", lambda g: relplot.metrics.binnedECE(g.confidence.numpy(), g.correct.numpy() * 1.0, BINS)),
        "smooth_ece": ("pairs", lambda g: relplot.smECE(g.confidence.numpy(), g.correct.numpy() * 1.0)),
    }


def of_scikit_learn(given: Given) -> dict[str, tuple[str, Call]]:
    from sklearn.metrics import brier_score_loss, log_loss

    if given.is_pairs:
        return {}

    def brier(g: Given) -> object:
        labels = np.arange(g.classes)
        return brier_score_loss(g.labels.numpy(), g.probabilities.numpy(), labels=labels, scale_by_half=False)

    def nll(g: Given) -> object:
        return log_loss(g.labels.numpy(), g.probabilities.numpy(), labels=np.arange(g.classes))

    return {"brier": ("probabilities", brier), "nll": ("probabilities", nll)}


PEERS: Mapping[str, Callable[[Given], dict[str, tuple[str, Call]]]] = {
    "torchmetrics": of_torchmetrics,
    "torch-uncertainty": of_torch_uncertainty,
    "netcal": of_netcal,
    "MAPIE": of_mapie,
    "relplot": of_relplot,
    "scikit-learn": of_scikit_learn,
}


# ---------------------------------------------------------------------- running them


def supply_torchvision() -> None:
    """Torchvision's operators where the compiled ones do not load; by file, because Calibrant is not installed here."""
    path = Path(__file__).parents[1] / "src" / "calibrant" / "base" / "torchvision_operators.py"
    spec = importlib.util.spec_from_file_location("calibrant_torchvision", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ensure()


def measure(call: Call, given: Given, tick: Callable[[], None]) -> dict[str, Any]:
    """Value, seconds and memory of a call; one that is slow at first is not repeated."""
    seconds: list[float] = []
    start = time.perf_counter()
    value = float(call(given))  # type: ignore[arg-type]
    first = time.perf_counter() - start
    tick()
    while len(seconds) < REPEATS and first + sum(seconds) < ENOUGH_SECONDS:
        start = time.perf_counter()
        call(given)
        seconds.append(time.perf_counter() - start)
        tick()
    peak = peak_extra(lambda: call(given), warm=False)
    return {"value": value, "seconds": statistics.median(seconds or [first]), "calls": len(seconds) or 1, "peak": peak}


def run(peer: str, folder: Path, metrics: list[str], out: TextIO) -> None:
    """Every metric that the peer has, out of those that are asked for."""

    def say(**found: Any) -> None:
        print(json.dumps(found), file=out, flush=True)

    say(version=importlib.metadata.version(peer))
    given = Given(folder)
    say(prepared=True)
    try:
        supply_torchvision()
        calls = PEERS[peer](given)
    except Exception as error:  # whatever an import raises is this peer's result
        say(broken=f"does not import: {type(error).__name__}: {str(error).strip()[:200]}")
        return
    for metric in (metric for metric in metrics if metric in calls):
        takes, call = calls[metric]
        say(begins=metric)
        try:
            found = measure(call, given, lambda: say(called=True))
        except Exception as error:  # so is whatever a call raises
            say(metric=metric, failure=f"{type(error).__name__}: {str(error).strip()[:200]}")
            continue
        against = "aurc_trapezoid" if metric == "aurc" and peer in TRAPEZOID else metric
        before = {"takes": takes, "preparing": given.seconds[takes], "prepared_bytes": given.bytes[takes]}
        say(metric=metric, against=against, **before, **found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._peers")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--metrics", nargs="+", default=list(METRICS))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")
    out, sys.stdout = sys.stdout, sys.stderr  # what peers print must not come between the lines
    run(args.peer, args.folder, args.metrics, out)


if __name__ == "__main__":
    main()
