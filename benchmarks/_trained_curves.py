"""Risk against coverage of trained networks: the numbers of a run, and the figure of a study.

A curve is recorded as the risk at forty coverages, by the largest probability and by normalised logits. The
normalisation is chosen as for the AURC of the tables: on the run's validation data, or by cross-fitting on a set that
pools several. The figure shows the mean over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from numpy.typing import NDArray

from calibrant.experiments import Results
from calibrant.experiments.evaluation import Number, flat
from calibrant.metrics import risk_at_coverage, top_label
from calibrant.posthoc import assign_folds, crossfit_ranks, fit_best_norm, scores_by_reading
from calibrant.predictions import Predictions
from calibrant.report.figures import new_axes, save_figure
from calibrant.report.figures.selective import draw_risk_coverage_by_method

COVERAGES = tuple(step / 40 for step in range(1, 41))
#: The metric's name at each of them.
METRICS = tuple(f"risk_at_coverage_{coverage:g}" for coverage in COVERAGES)
#: What a panel ranks by, and its title.
PANELS = {"none": "largest probability", "logit-norm": "normalised logits"}


class Curve(NamedTuple):
    """A curve as it is drawn."""

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    aurc: float


def numbers_of(folder: Path, name: str, *, is_pooled: bool = False) -> Iterator[Number]:
    """The curves of a finished run on its predictions of one set, which may pool several."""
    val, data = (flat(Predictions.open(folder / f"{part}.npz")) for part in ("val", name))
    plain, _, correct = top_label(data.logits, data.labels)
    before, after = plain, fit_best_norm(val.logits, val.labels).score(data.logits)
    if is_pooled:
        ranked = crossfit_ranks(plain, scores_by_reading(data.logits), correct, assign_folds(data.sample))
        before, after = ranked.plain, ranked.normalised
    for metric, coverage in zip(METRICS, COVERAGES, strict=True):
        risks = [float(risk_at_coverage(score, correct, coverage)) for score in (plain, before, after)]
        yield Number(name, "none", math.nan, metric, risks[0])
        yield Number(name, "logit-norm", math.nan, metric, risks[0] + risks[2] - risks[1])


def draw(results: Results, name: str, path: Path) -> None:
    """Both rankings of every method that has curves on a set, side by side."""
    recorded = results.where(stage="final", set=name)
    figure, axes = new_axes((7.4, 3.2), columns=len(PANELS))
    for axis, (posthoc, title) in zip(axes, PANELS.items(), strict=True):
        rows = recorded.where(posthoc=posthoc)
        curves = {
            method: Curve(
                np.array(COVERAGES),
                np.array([_mean(rows, method, metric) for metric in METRICS]),
                _mean(rows, method, "aurc"),
            )
            for method in rows.where(metric=METRICS).column("method")
        }
        draw_risk_coverage_by_method(axis, curves, title=f"by {title}")
    top = max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set_ylim(0, top)
    path.parent.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        save_figure(figure, path)


def _mean(rows: Results, method: str, metric: str) -> float:
    return float(np.mean(list(rows.by_seed(method=method, metric=metric).values())))
