"""The figures of docs/evidence.md, drawn from the results with Calibrant's own style."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from benchmarks._evidence_files import NETWORKS, Smoothing
from benchmarks._evidence_policies import ALLOWED, summarise
from benchmarks._evidence_repairs import mean_over_splits
from benchmarks._evidence_rows import present_files
from calibrant.report.figures import BASE, INK, MUTED, SERIES, new_axes, save_figure, shares
from calibrant.report.figures.selective import draw_risk_coverage_by_method

COLOURS: dict[Smoothing, str] = {"with": SERIES[0], "likely": SERIES[5], "without": SERIES[1], "unknown": MUTED}
MARKERS: dict[Smoothing, str] = {"with": "s", "likely": "D", "without": "o", "unknown": "x"}
CURVES = ("torchvision__resnet101", "torchvision__densenet161", "torchvision__inception_v3", "tf_inception_v3")
SHOWN_REPAIRS = ("none", "temperature", "isotonic", "vector", "auto")


class Curve(NamedTuple):
    """A curve of the results, as it is drawn."""

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    aurc: float


def write_figures(results: Mapping[str, Any], folder: Path) -> None:
    """Write every figure; text stays text, which keeps the files small."""
    folder.mkdir(exist_ok=True)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        _draw_networks(results["networks"]["rows"], folder / "networks.svg")
        _draw_repairs(results["repairs"], folder / "repairs.svg")
        if results.get("policies"):
            _draw_policies(results["policies"], folder / "policies.svg")


def _draw_networks(rows: Mapping[str, Any], path: Path) -> None:
    """Risk against coverage of four networks of equal accuracy, and the excess AURC of all against their accuracy."""
    figure, (left, right) = new_axes((7.4, 3.4), columns=2)
    curves, families = {}, {}
    for network in NETWORKS:
        if network.file.endswith(CURVES):
            row = rows[network.file]
            shares_of = {name: np.array(values) for name, values in row["curve"].items()}
            curves[network.title] = Curve(**shares_of, aurc=row["values"]["aurc"])
            families[network.title] = network.smoothing
    draw_risk_coverage_by_method(left, curves, target_risk=0.05, families=families)
    for kind, colour in COLOURS.items():
        own = [rows[network.file] for network in NETWORKS if network.smoothing == kind]
        x = [row["values"]["accuracy"] for row in own]
        y = np.array([row["values"]["e_aurc"] for row in own])
        limits = np.array([[row["intervals"]["e_aurc"][end] for row in own] for end in ("low", "high")])
        reach = np.abs(limits - y)
        right.errorbar(x, y, reach, fmt=MARKERS[kind], color=colour, markersize=5, linewidth=0.8, label=kind)
    right.set_ylim(0, None)
    right.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    right.set_xlabel("accuracy")
    right.set_ylabel("E-AURC")
    right.legend(title="label smoothing", frameon=False, fontsize=7, title_fontsize=7, loc="lower right", ncols=2)
    save_figure(figure, path)


def _name_files(axis: Axes, titles: list[str]) -> None:
    axis.set_yticks(np.arange(len(titles)), titles)
    axis.tick_params(axis="y", length=0, labelcolor=INK, labelsize=7)
    axis.set_ylim(len(titles) - 0.5, -0.5)


def _draw_repairs(part: Mapping[str, Any], path: Path) -> None:
    """The ECE of every file as it is and with each repair, on samples that were not fitted on."""
    files = present_files(part)
    figure, (axis,) = new_axes((7.0, 0.6 + 0.24 * len(files)))
    for number, file in enumerate(files):
        splits = part[file.file]["sizes"]["half"]
        values = [mean_over_splits(splits, repair, "ece") for repair in SHOWN_REPAIRS]
        axis.plot([min(values), max(values)], [number, number], color=BASE, linewidth=0.8, zorder=1)
        for repair, value, marker, colour in zip(SHOWN_REPAIRS, values, "ovs^x", (MUTED, *SERIES[:4]), strict=True):
            label = ("as it is" if repair == "none" else repair) if number == 0 else None
            axis.plot([value], [number], marker, color=colour, markersize=5, label=label, linestyle="")
    _name_files(axis, [file.title for file in files])
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlabel("ECE (15 bins), mean over splits")
    figure.legend(loc="outside upper center", ncols=5, frameon=False, fontsize=7)
    save_figure(figure, path)


def _draw_policies(part: Mapping[str, Any], path: Path) -> None:
    """At a target risk of 5%: how often the risk is above it beyond chance, and the coverage that is reached."""
    files = present_files(part)
    figure, (left, right) = new_axes((7.4, 0.6 + 0.24 * len(files)), columns=2)
    for number, file in enumerate(files):
        summary = summarise(part[file.file]["targets"]["0.05"], 0.05)
        left.plot([summary["low"], summary["high"]], [number, number], color=SERIES[0], linewidth=1.0)
        left.plot([summary["beyond"]], [number], "o", color=SERIES[0], markersize=4)
        right.plot([summary["coverage"]], [number], "o", color=SERIES[0], markersize=4)
        right.plot([summary["clairvoyant"]], [number], "|", color=INK, markersize=8)
    left.axvline(ALLOWED, color=SERIES[1], linewidth=0.9, linestyle="--")
    _name_files(left, [file.title for file in files])
    right.set_yticks([])
    right.set_ylim(len(files) - 0.5, -0.5)
    shares(left, x=(0, 0.2))
    shares(right, x=(0, 1.02))
    left.set_xlabel("splits above 5% risk beyond chance (dashed: most allowed)")
    right.set_xlabel("coverage (bar: a clairvoyant's)")
    for axis in (left, right):
        axis.xaxis.label.set_fontsize(7)
    save_figure(figure, path)
