"""Numbers that a paper's table asks for beyond those of every run: other bins, other conventions, other temperatures.

A metric's name says how it is computed (``ece_100``, ``pycalib_mce_100``), a repair's name by which rule
(``temperature-mbls``): the same name is the same number in every table. They are computed from the predictions of a
finished run, once, and kept beside them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibrant._arrays import Array
from calibrant._files import json_value, nulls_as_nan, written_aside
from calibrant.experiments.results.evaluation import Number, NumberRows, flat, numbers
from calibrant.experiments.tables.cells import Column
from calibrant.metrics import (
    BINS,
    PYCALIB,
    ConfidenceSketch,
    aece,
    describe,
    ece,
    mce,
    objectness_deviation,
    split_name,
    top_label,
)
from calibrant.posthoc import TemperatureScaling, crossfit, folds_of
from calibrant.predictions import Predictions
from calibrant.training import RunFolder, read_record

MORE_NUMBERS = "more_numbers.json"

#: How a repair that a paper names finds its temperature.
RULES: dict[str, Callable[[], TemperatureScaling]] = {
    "temperature-mbls": lambda: TemperatureScaling(objective="ece", grid="mbls"),
    "temperature-lr": lambda: TemperatureScaling(objective="ece", grid="lr"),
}


class SetOutputs(NamedTuple):
    """What a metric is computed from."""

    logits: Array
    labels: Array
    objectness: Array | None = None


def measure(name: str, data: SetOutputs) -> float:
    """A metric by its name, with the bins and the convention in it, from logits and labels.

    Example:
        >>> outputs = SetOutputs(np.log([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]]), np.array([0, 0, 0]))
        >>> round(measure("ece_2", outputs), 4), round(measure("ece_10", outputs), 4)  # |2.3 - 2| / 3; 0.1, 0.6, 0.2
        (0.1, 0.3)
    """
    describe(name)
    confidence, _, correct = top_label(data.logits, data.labels)
    base, setting = split_name(name.removeprefix(PYCALIB))
    if base == "objectness_deviation":
        return math.nan if data.objectness is None else objectness_deviation(confidence, data.objectness)
    bins = int(setting) if setting is not None else BINS
    if name.startswith(PYCALIB):
        function, classes = (ece if base == "ece" else mce), data.logits.shape[1]
        return function(confidence, correct, bins=bins, convention="pycalib", classes=classes)
    if base == "aece":
        return aece(confidence, correct, bins=bins)
    if base in ("ece", "mce") and setting is not None:
        return (ece if base == "ece" else mce)(confidence, correct, bins=bins)
    sketch = ConfidenceSketch()
    sketch.update(data.logits, data.labels)
    values = sketch.compute()
    return float(values.get(name, math.nan))


def more_numbers(folder: str | Path, columns: Iterable[Column]) -> list[Number]:
    """What columns of a table ask for and the numbers of a run do not have; nothing for sets that it does not have."""
    run = RunFolder(folder)
    plain = {(number.set, number.posthoc, number.metric) for number in numbers(folder)}
    sets = {name for name, _, _ in plain}
    wanted = {(c.set, c.posthoc, c.metric) for c in columns if c.set in sets and c.metric != "mean_iou"} - plain
    if not wanted:
        return []
    stored = _stored(run)
    if missing := wanted - {(number.set, number.posthoc, number.metric) for number in stored}:
        stored += list(_computed(run, sorted(missing)))
        with written_aside(run / MORE_NUMBERS) as aside:
            aside.write_text(json.dumps(json_value(stored)), encoding="utf-8")
    return [number for number in stored if (number.set, number.posthoc, number.metric) in wanted]


def _stored(folder: RunFolder) -> list[Number]:
    again = "delete it, and the same command computes it again"
    try:
        rows = read_record(folder / MORE_NUMBERS, NumberRows, again).root
    except FileNotFoundError:
        return []
    return [Number._make(nulls_as_nan(list(row))) for row in rows]


def _computed(folder: RunFolder, wanted: Iterable[tuple[str, str, str]]) -> Iterator[Number]:
    outputs: dict[tuple[str, str], tuple[SetOutputs, float]] = {}
    for name, repair, metric in wanted:
        if (name, repair) not in outputs:
            outputs[name, repair] = repaired(folder, name, repair)
        data, parameter = outputs[name, repair]
        yield Number(name, repair, parameter, metric, measure(metric, data))


def repaired(folder: RunFolder, name: str, repair: str) -> tuple[SetOutputs, float]:
    """The predictions of a set after a repair, and its temperature: fitted on the validation data where they are.

    Without validation predictions it is cross-fitted on the set itself, as every repair of a comparison is.
    """
    predictions = Predictions.open(folder / f"{name}.npz")
    data = flat(predictions)
    objectness = predictions.objectness if predictions.objectness is None else np.asarray(predictions.objectness)
    if repair == "none":
        return SetOutputs(data.logits, data.labels, objectness), math.nan
    rule = RULES.get(repair, TemperatureScaling)
    if (folder / "val.npz").exists():
        held_out = flat(Predictions.open(folder / "val.npz"))
        scaling = rule().fit(held_out.logits, held_out.labels)
        return SetOutputs(scaling.transform(data.logits), data.labels, objectness), scaling.temperature_
    fitted = crossfit(rule, data.logits, data.labels, folds_of(data.sample))
    temperature = float(np.mean([scaling.temperature_ for scaling in fitted.fitted]))
    return SetOutputs(fitted.logits, data.labels, objectness), temperature
