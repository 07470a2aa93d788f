"""The NLL of logits over a temperature, its derivative and its minimiser: plain float64, and nothing of Calibrant.

Every temperature is judged by these, whoever found it. The minimiser is bisected from the derivative's sign alone, from
a bracket that knows nothing of anybody's answer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

#: Numbers at a time.
CHUNK = 2**18
#: Where the minimiser is sought, and how narrow the bracket is at last, relative to T.
COLDEST, HOTTEST, WIDTH = 1e-3, 1e3, 1e-12
#: The most that |dNLL/dT| may be at what the bisection found.
FLAT = 1e-9


class At(NamedTuple):
    """The mean NLL at a temperature, and its derivative by the temperature."""

    nll: float
    gradient: float


def at(logits: Tensor, labels: Tensor, temperature: float) -> At:
    """NLL and dNLL/dT of logits ``[N, C]`` over T, chunk by chunk."""
    nlls, slopes = [], []
    rows = max(1, CHUNK // logits.shape[1])
    for part, truth in zip(logits.split(rows), labels.split(rows), strict=True):
        z = part.double()
        z -= z.amax(1, keepdim=True)  # the NLL does not see it, and no exponential overflows
        at_label = z.gather(1, truth[:, None]).squeeze(1)
        exps = (z / temperature).exp_()
        total = exps.sum(1)
        nlls.append(float((total.log() - at_label / temperature).sum()))
        mean = exps.mul_(z).sum(1) / total
        slopes.append(float((at_label - mean).sum()))
    return At(math.fsum(nlls) / len(labels), math.fsum(slopes) / len(labels) / temperature**2)


class Least(NamedTuple):
    """Where the NLL is least, and the NLL and its derivative there."""

    temperature: float
    nll: float
    gradient: float


def least(logits: Tensor, labels: Tensor) -> Least:
    """The minimiser, by bisection of log T: convex in 1/T, the NLL falls up to the minimiser and rises after it."""
    low, high = math.log(COLDEST), math.log(HOTTEST)
    while high - low > WIDTH:
        middle = (low + high) / 2
        falling = at(logits, labels, math.exp(middle)).gradient < 0
        low, high = (middle, high) if falling else (low, middle)
    temperature = math.exp((low + high) / 2)
    found = at(logits, labels, temperature)
    if abs(found.gradient) > FLAT:
        raise RuntimeError(f"no minimiser between T = {COLDEST:g} and {HOTTEST:g}: dNLL/dT is {found.gradient:g} there")
    return Least(temperature, *found)
