"""Small results of comparisons, for tests."""

import json
import math

import numpy as np

from calibrant.experiments.results import ResultRow, Results

NAN = math.nan


def row(method="ls", seed=0, metric="ece", value=0.02, **other):
    settings = json.dumps(other.pop("settings", {}), sort_keys=True)
    known = {"run": "0" * 16, "tuned_for": "", "stage": "final", "set": "test", "posthoc": "none", "parameter": NAN}
    known |= other
    return ResultRow(method=method, settings=settings, seed=seed, metric=metric, value=value, **known)


def of(values, metric="ece", **other):
    """Results of ``{method: values of seeds 0, 1, ...}``."""
    return Results(row(m, n, metric, v, **other) for m, vs in values.items() for n, v in enumerate(vs))


SMALL = of({"ce": (0.04, 0.05, 0.06), "ls": (0.02, 0.02, 0.04), "acls": (0.01, 0.03)})

RNG = np.random.default_rng(5)
CE = RNG.normal(0.05, 0.004, 5)
LS = {"ece": CE - 0.02 + RNG.normal(0, 0.001, 5), "accuracy": CE + 0.03 + RNG.normal(0, 0.001, 5)}
LR = {"ece": LS["ece"] + (-1.0) ** np.arange(5) / 100, "accuracy": CE + 0.005 + RNG.normal(0, 0.001, 5)}


def two_targets():
    """ce has nothing to tune; ls and lr have other settings for each target; mbls the same for both."""
    results = Results()
    for k, target in enumerate(("ece", "accuracy")):
        results += of({"ce": CE}, tuned_for=target)
        results += of({"ls": LS[target]}, tuned_for=target, settings={"alpha": 0.1 + k})
        results += of({"lr": LR[target]}, tuned_for=target, settings={"alpha": 0.1 + k})
        results += of({"mbls": CE + 0.01 + 0.001 * np.arange(5)}, tuned_for=target, settings={"margin": 6})
    for method in ("ls", "lr", "mbls"):
        results += of({method: [0.1]}, stage="search", set="val", settings={"alpha": 0.1})
    return results
