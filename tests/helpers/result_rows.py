"""Small results of comparisons, for tests."""

import json
import math

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
