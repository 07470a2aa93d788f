"""What runs inside the peers' environment: one peer's temperature for the logits of a folder, as lines of JSON.

    python -m benchmarks._posthoc_peers PEER FOLDER --threads 2 --takes logits

Each peer is called as its documentation has it, with its defaults, and given as little work as its interface allows.
What it takes are the logits, or probabilities made of them by torch's softmax, which is timed beside. Every peer's own
parameter is turned into T, by which logits are divided. The folder holds ``logits.npy`` and ``labels.npy``.

A pass is one evaluation of the loss (or of its derivative) over all logits, in training with its gradient; the calls
are counted on the function that does it, in the first fit alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks._peers import ENOUGH_SECONDS, REPEATS, supply_torchvision

SCRIPT = "LBFGS, lr 0.01, 50 steps"
#: What a peer may take.
TAKES = ("logits", "probabilities", "float64 probabilities")


class Fit(NamedTuple):
    """A fit that returns T, and the function whose calls are its passes: its owner and its name there."""

    call: Callable[[], float]
    counted: tuple[Any, str]


class Given:
    """The logits and labels, and what is made of them; ``seconds`` tells how long the last making took."""

    def __init__(self, folder: Path) -> None:
        self.logits, self.labels = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("logits", "labels"))
        self.seconds = 0.0

    def probabilities(self, dtype: torch.dtype) -> Tensor:
        """Their softmax; of three runs the median counts."""
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            made = torch.softmax(self.logits, 1, dtype=dtype)
            seconds.append(time.perf_counter() - start)
        self.seconds = statistics.median(seconds)
        return made


# ---------------------------------------------------------------------- the peers: what each takes, and its call

CROSS_ENTROPY = (nn.CrossEntropyLoss, "forward")


def of_script(given: Given) -> dict[str, Callable[[], Fit]]:
    """The script that most repositories have a copy of: T itself from 1.5 on, by LBFGS without a line search."""

    def call() -> float:
        temperature = nn.Parameter(torch.tensor([1.5]))
        optimiser = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)
        criterion = nn.CrossEntropyLoss()

        def closure() -> Tensor:
            optimiser.zero_grad()
            loss: Tensor = criterion(given.logits / temperature, given.labels)
            loss.backward()
            return loss

        optimiser.step(closure)
        return temperature.item()

    return {"logits": lambda: Fit(call, CROSS_ENTROPY)}


def of_torch_uncertainty(given: Given) -> dict[str, Callable[[], Fit]]:
    from torch.utils.data import DataLoader
    from torch_uncertainty.post_processing import TemperatureScaler

    def call() -> float:
        scaler = TemperatureScaler()
        # One batch of everything: with the usual loader most of the time would go into collecting rows.
        loader: Any = DataLoader([(given.logits, given.labels)], batch_size=None)  # type: ignore[arg-type]
        scaler.fit(loader, progress=False)
        return float(scaler.temperature[0].item())

    return {"logits": lambda: Fit(call, CROSS_ENTROPY)}


def of_netcal(given: Given) -> dict[str, Callable[[], Fit]]:
    from netcal.scaling import TemperatureScaling

    # Its weight is rounded to the probabilities' type. In float32 the step of SciPy's numerical derivative is lost so,
    # and the weight stays where it began: it is given float64 too.
    def fit(dtype: torch.dtype) -> Fit:
        probabilities, labels = given.probabilities(dtype).numpy(), given.labels.numpy()
        # What it calls temperature multiplies the logarithms of the probabilities, which it clips at their type's eps.
        return Fit(lambda: 1 / float(TemperatureScaling().fit(probabilities, labels).temperature[0]), CROSS_ENTROPY)

    return {"probabilities": lambda: fit(torch.float32), "float64 probabilities": lambda: fit(torch.float64)}


def of_probmetrics(given: Given) -> dict[str, Callable[[], Fit]]:
    from probmetrics.calibrators import TemperatureScalingCalibrator
    from probmetrics.distributions import CategoricalLogits

    def call() -> float:
        scaling = TemperatureScalingCalibrator().fit_torch(CategoricalLogits(given.logits), given.labels)
        return 1 / float(scaling.invtemp_)

    return {"logits": lambda: Fit(call, (TemperatureScalingCalibrator, "_get_loss_grad"))}


def of_scikit_learn(given: Given) -> dict[str, Callable[[], Fit]]:
    from sklearn._loss import HalfMultinomialLoss
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class Same(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """A fitted classifier whose decision function is its input."""

        classes_ = np.arange(given.logits.shape[1])

        def fit(self, x: Any, y: Any) -> Any:
            return self

        def decision_function(self, x: Any) -> Any:
            return x

        def predict(self, x: Any) -> Any:
            return x.argmax(1)

        def __sklearn_is_fitted__(self) -> bool:
            return True

    def call() -> float:
        scaling = CalibratedClassifierCV(FrozenEstimator(Same()), method="temperature")
        scaling.fit(given.logits.numpy(), given.labels.numpy())
        return 1 / float(scaling.calibrated_classifiers_[0].calibrators[0].beta_)

    return {"logits": lambda: Fit(call, (HalfMultinomialLoss, "__call__"))}


PEERS: Mapping[str, Callable[[Given], dict[str, Callable[[], Fit]]]] = {
    SCRIPT: of_script,
    "torch-uncertainty": of_torch_uncertainty,
    "netcal": of_netcal,
    "probmetrics": of_probmetrics,
    "scikit-learn": of_scikit_learn,
}


def package(peer: str) -> str:
    """The package that a peer comes with."""
    return "torch" if peer == SCRIPT else peer


# ---------------------------------------------------------------------- running them


@contextlib.contextmanager
def counting(owner: Any, name: str) -> Iterator[list[None]]:
    """A list that grows by one with each call of a function."""
    calls: list[None] = []
    there, function = name in vars(owner), getattr(owner, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        return function(*args, **kwargs)

    setattr(owner, name, counted)
    try:
        yield calls
    finally:
        if there:
            setattr(owner, name, function)
        else:
            delattr(owner, name)  # it is a parent's


def measure(fit: Fit, tick: Callable[[], None]) -> dict[str, Any]:
    """Temperature, passes and seconds; a fit that is slow at first is not repeated."""
    with counting(*fit.counted) as calls:
        start = time.perf_counter()
        temperature = fit.call()
        first = time.perf_counter() - start
    tick()
    if not math.isfinite(temperature) or temperature <= 0:
        raise ValueError(f"gives a temperature of {temperature}")
    seconds: list[float] = []
    while len(seconds) < REPEATS and first + sum(seconds) < ENOUGH_SECONDS:
        start = time.perf_counter()
        fit.call()
        seconds.append(time.perf_counter() - start)
        tick()
    fitting = statistics.median(seconds or [first])
    # A count of none means that the function is not the one that is used.
    passes = len(calls) or None
    return {"temperature": temperature, "passes": passes, "fitting": fitting, "calls": len(seconds) or 1}


def run(peer: str, folder: Path, wanted: list[str], out: TextIO) -> None:
    """Every fit that the peer has, out of those that are asked for."""

    def say(**found: Any) -> None:
        print(json.dumps(found), file=out, flush=True)

    number = importlib.metadata.version(package(peer))
    say(version=f"(torch {number})" if peer == SCRIPT else number)
    given = Given(folder)
    say(prepared=True)
    try:
        supply_torchvision()
        fits = PEERS[peer](given)
    except Exception as error:  # whatever an import raises is this peer's result
        say(broken=f"does not import: {type(error).__name__}: {str(error).strip()[:200]}")
        return
    for takes in (takes for takes in wanted if takes in fits):
        say(begins=takes)
        given.seconds = 0.0
        try:
            found = measure(fits[takes](), lambda: say(called=True))
        except Exception as error:  # so is whatever a call raises
            say(metric=takes, failure=f"{type(error).__name__}: {str(error).strip()[:200]}")
            continue
        say(metric=takes, preparing=given.seconds, **found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks._posthoc_peers")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--takes", nargs="+", default=list(TAKES))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")
    out, sys.stdout = sys.stdout, sys.stderr  # what peers print must not come between the lines
    run(args.peer, args.folder, args.takes, out)


if __name__ == "__main__":
    main()
