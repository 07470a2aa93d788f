"""The numbers of a finished run: every set without a repair, with temperature scaling, and with logit normalisation.

Where the loss has an output for abstaining, the selective metrics are also those of ranking by it ("abstention").

A repair is fitted on the run's validation predictions. If there are none (the run was trained again on all data),
repairs are cross-fitted on the test set in five folds, and other sets are repaired by a fit on the whole test set.
Pixels of one image stay in one fold. A pooled set, which the validation data represent only in part, has its repairs
cross-fitted on itself.

A paper's table may need more: other bins, other conventions, other temperatures. The name of a metric says how it is
computed (``ece_100``, ``pycalib_mce_100``), that of a repair by which rule (``temperature-mbls``): the same name is the
same number in every table. Such numbers are computed from the predictions once, and stored beside them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import RootModel, model_validator

from calibrant import metrics, posthoc
from calibrant.base.arrays import Array
from calibrant.base.files import json_value, nulls_as_nan, written_aside
from calibrant.experiments.tables.cells import Column
from calibrant.metrics import ConfidenceSketch
from calibrant.posthoc import LogitNorm, TemperatureScaling
from calibrant.predictions import Predictions
from calibrant.training import (
    ABSTENTION,
    RESULT,
    DamagedError,
    Repair,
    RunFolder,
    SetName,
    Value,
    check_metric,
    read_record,
)

NUMBERS = "numbers.json"
#: The file of numbers, by the reading of logit normalisation.
_FILES = {None: NUMBERS, True: "numbers_centred.json", False: "numbers_not_centred.json"}
_ADVICE = "delete it, and the same command computes it again"
MORE_NUMBERS = "more_numbers.json"

#: The temperature scaling of a paper's repair.
RULES: dict[str, Callable[[], TemperatureScaling]] = {
    "temperature-mbls": lambda: TemperatureScaling(objective="ece", grid="mbls"),
    "temperature-lr": lambda: TemperatureScaling(objective="ece", grid="lr"),
}


class Number(NamedTuple):
    """One number of a run."""

    set: str
    posthoc: str  # "none", a repair, or "abstention"
    parameter: float  # the temperature, or p, negative if logits are not centred; NaN if there is none
    metric: str
    value: float

    @property
    def key(self) -> tuple[str, str, str]:
        """Set, repair and metric."""
        return self.set, self.posthoc, self.metric


class Flat(NamedTuple):
    """Logits [N, C] and labels [N] of a set of any shape, and the sample of each row."""

    logits: Array
    labels: Array
    sample: NDArray[np.int64]
    objectness: Array | None = None


def numbers(folder: str | Path, centre: bool | None = None) -> list[Number]:
    """The numbers of a finished run, read from its folder or computed from its predictions.

    ``centre`` chooses one reading of logit normalisation; both are tried if left out.
    """
    run_folder = RunFolder(folder)
    try:
        return read_numbers(run_folder, centre)
    except FileNotFoundError:
        pass
    values = list(_evaluate(run_folder, centre))
    _write(run_folder / _FILES[centre], values)
    return values


def _read(file: Path) -> list[Number]:
    return [Number._make(nulls_as_nan(list(row))) for row in read_record(file, NumberRows, _ADVICE).root]


def _write(file: Path, values: Sequence[Number]) -> None:
    with written_aside(file) as aside:
        aside.write_text(json.dumps(json_value(values)), encoding="utf-8")


class NumberRows(RootModel[list[tuple[SetName, Literal["none", "abstention"] | Repair, Value, str, Value]]]):
    """The contents of `NUMBERS`: rows with the fields of `Number`."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for _, repair, _, metric, value in self.root:
            check_metric(metric, None if repair == "logit-norm" else value)  # an estimate, which may be out of bounds
        if not self.root:
            raise ValueError("it has no numbers")
        return self


def read_numbers(folder: RunFolder, centre: bool | None = None) -> list[Number]:
    """The numbers in a run folder; FileNotFoundError if there are none."""
    file = folder / _FILES[centre]
    values = _read(file)
    if (folder / RESULT).exists():
        plain = {(n.set, n.metric): repr(n.value) for n in values if n.posthoc == "none"}
        sets = folder.result()["sets"].items()
        if plain != {(name, metric): repr(value) for name, metrics in sets for metric, value in metrics.items()}:
            raise DamagedError(f"{file} is damaged (its numbers are not those of {RESULT}); {_ADVICE}")
    return values


def _evaluate(folder: RunFolder, centre: bool | None) -> Iterator[Number]:
    """Every number of a finished run."""
    result = folder.result()
    sets = {name: flat(Predictions.open(folder / f"{name}.npz")) for name in result["sets"]}
    for name, values in result["sets"].items():  # of all pixels, even if only some were written
        yield from (Number(name, "none", math.nan, metric, float(value)) for metric, value in values.items())
    for name in sets:
        if (file := folder / f"{name}{ABSTENTION}").exists():
            trust = Predictions.open(file)
            for metric, value in _selective(np.asarray(trust.confidence), np.asarray(trust.correct)).items():
                yield Number(name, "abstention", math.nan, metric, value)
    fitted_on = sets.get("val", sets["test"])
    temperature = TemperatureScaling().fit(fitted_on.logits, fitted_on.labels)
    norm = posthoc.fit_best_norm(fitted_on.logits, fitted_on.labels, centre=centre)
    pooled = {name for name, also in folder.recipe().data.also.items() if getattr(also, "pool", False)}
    for name, data in sets.items():
        if data is fitted_on and name != "test":
            continue
        if data is fitted_on or name in pooled:
            yield from _crossfit_numbers(name, data, centre)
        else:
            scaled = temperature.transform(data.logits)
            yield from _temperature_numbers(name, scaled, data.labels, temperature.temperature_)
            correct = data.logits.argmax(1) == data.labels
            for metric, value in _selective(norm.score(data.logits), correct).items():
                yield Number(name, "logit-norm", _power([norm]), metric, value)


def flat(predictions: Predictions) -> Flat:
    """Logits and labels as rows, without ignored pixels."""
    logits, labels = np.asarray(predictions.logits), np.asarray(predictions.labels)
    sample = np.arange(len(labels))
    if logits.ndim == 4:
        sample = np.broadcast_to(sample[:, None, None], labels.shape).reshape(-1)
        logits, labels = np.moveaxis(logits, 1, 3).reshape(-1, logits.shape[1]), labels.reshape(-1)
    elif predictions.ids is not None and predictions.ids.dtype.kind == "i" and int(predictions.ids.max()) >= 2**32:
        sample = np.asarray(predictions.ids) >> 32  # pixels drawn from images
    if predictions.ignore_index is not None:
        counted = labels != predictions.ignore_index
        logits, labels, sample = logits[counted], labels[counted], sample[counted]
    objectness = None if predictions.objectness is None else np.asarray(predictions.objectness)
    return Flat(logits, labels, sample, objectness)


def _crossfit_numbers(name: str, data: Flat, centre: bool | None) -> Iterator[Number]:
    folds = posthoc.assign_folds(data.sample)
    logits, temperature = _crossfit_temperature(TemperatureScaling, data, folds)
    yield from _temperature_numbers(name, logits, data.labels, temperature)
    plain, _, correct = metrics.top_label(data.logits, data.labels)
    ranked = posthoc.crossfit_ranks(plain, posthoc.scores_by_reading(data.logits, centre), correct, folds)
    power = _power(ranked.norms)
    # The change by ranking within the folds is added to the value of the confidence on the whole set.
    on_all, before, after = (_selective(score, correct) for score in (plain, ranked.plain, ranked.normalised))
    for metric, value in on_all.items():
        yield Number(name, "logit-norm", power, metric, value + after[metric] - before[metric])


def _power(norms: Sequence[LogitNorm]) -> float:
    """The mean p of the reading chosen most often, negative if it does not centre logits; NaN if none was."""
    powers = {centre: [norm.p_ for norm in norms if norm.p_ is not None and norm.centre == centre] for centre in (1, 0)}
    centre = max(powers, key=lambda reading: len(powers[reading]))
    return float(np.mean(powers[centre])) * (1 if centre else -1) if powers[centre] else math.nan


def _sketched(logits: Array, labels: Array) -> dict[str, float]:
    sketch = ConfidenceSketch()
    sketch.update(logits, labels)
    return {metric: float(value) for metric, value in sketch.compute().items()}


def _temperature_numbers(name: str, logits: Array, labels: Array, temperature: float) -> Iterator[Number]:
    for metric, value in _sketched(logits, labels).items():
        yield Number(name, "temperature", temperature, metric, value)


def _selective(score: Array, correct: Array) -> dict[str, float]:
    """The selective metrics: a score changes what is accepted, not what is predicted."""
    score = score.astype(np.float64)
    values = {name: getattr(metrics, name)(score, correct) for name in ("aurc", "e_aurc", "augrc")}
    values |= {f"coverage_at_risk_{risk:g}": metrics.coverage_at_risk(score, correct, risk) for risk in metrics.RISKS}
    return {metric: float(value) for metric, value in values.items()}


def measure(name: str, data: Flat) -> float:
    """Compute a metric by its name, which includes bins and convention, from logits and labels.

    Example:
        >>> data = Flat(np.log([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]]), np.array([0, 0, 0]), np.arange(3))
        >>> round(measure("ece_2", data), 4), round(measure("ece_10", data), 4)  # |2.3 - 2| / 3; 0.1, 0.6, 0.2
        (0.1, 0.3)
    """
    metrics.describe(name)
    confidence, _, correct = metrics.top_label(data.logits, data.labels)
    base, setting = metrics.split_name(name.removeprefix(metrics.PYCALIB))
    if base == "objectness_deviation":
        return math.nan if data.objectness is None else metrics.objectness_deviation(confidence, data.objectness)
    bins = int(setting) if setting is not None else metrics.BINS
    function = metrics.ece if base == "ece" else metrics.mce
    if name.startswith(metrics.PYCALIB):
        return function(confidence, correct, bins=bins, convention="pycalib", classes=data.logits.shape[1])
    if base == "aece":
        return metrics.aece(confidence, correct, bins=bins)
    if base in ("ece", "mce") and setting is not None:
        return function(confidence, correct, bins=bins)
    return float(_sketched(data.logits, data.labels).get(name, math.nan))


def more_numbers(folder: str | Path, columns: Iterable[Column]) -> list[Number]:
    """The numbers that columns of a table need beyond `numbers`, for the sets that the run has."""
    run = RunFolder(folder)
    usual = {number.key for number in numbers(folder)}
    sets = {name for name, _, _ in usual}
    keys = {(c.set, c.posthoc, c.metric) for c in columns if c.set in sets and c.metric != "mean_iou"} - usual
    if not keys:
        return []
    try:
        stored = _read(run / MORE_NUMBERS)
    except FileNotFoundError:
        stored = []
    if absent := keys - {number.key for number in stored}:
        stored += _compute(run, sorted(absent))
        _write(run / MORE_NUMBERS, stored)
    return [number for number in stored if number.key in keys]


def _compute(folder: RunFolder, keys: Iterable[tuple[str, str, str]]) -> Iterator[Number]:
    repaired: dict[tuple[str, str], tuple[Flat, float]] = {}
    for name, repair, metric in keys:
        if (name, repair) not in repaired:
            repaired[name, repair] = repair_set(folder, name, repair)
        data, parameter = repaired[name, repair]
        yield Number(name, repair, parameter, metric, measure(metric, data))


def repair_set(folder: RunFolder, name: str, repair: str) -> tuple[Flat, float]:
    """The predictions of a set after a repair, and its temperature.

    The repair is fitted on the validation predictions, or else cross-fitted on the set itself.
    """
    data = flat(Predictions.open(folder / f"{name}.npz"))
    if repair == "none":
        return data, math.nan
    rule = RULES.get(repair, TemperatureScaling)
    if (folder / "val.npz").exists():
        held_out = flat(Predictions.open(folder / "val.npz"))
        scaling = rule().fit(held_out.logits, held_out.labels)
        logits, temperature = scaling.transform(data.logits), scaling.temperature_
    else:
        logits, temperature = _crossfit_temperature(rule, data, posthoc.assign_folds(data.sample))
    return data._replace(logits=logits), temperature


def _crossfit_temperature(rule: Callable[[], TemperatureScaling], data: Flat, folds: Array) -> tuple[Array, float]:
    """The scaled logits of every fold, and the mean temperature."""
    scaled = posthoc.crossfit(rule, data.logits, data.labels, folds)
    return scaled.logits, float(np.mean([scaling.temperature_ for scaling in scaled.fitted]))
