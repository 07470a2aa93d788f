"""The rows of the metrics benchmark: on what data, against what floor, and the targets they are held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks import _reference
from benchmarks._harness import Ratio, Step
from calibrant import Predictions, metrics
from calibrant.auditing.collect import Collected, collect
from calibrant.metrics import ConfidenceSketch

#: The most a row may take by the floor, where the data are logits.
TIME_LIMITS = {
    "sketch": 1.2, "audit collect": 2.0, "ece of top_label": 1.5, "nll": 2.0, "brier": 2.0, "classwise_ece": 4.0,
}  # fmt: skip
#: The most a value may lie from the reference.
ERROR_LIMIT = 1e-5
#: What rounding may add to the bound that a sketch states.
BOUND_SLACK = 1e-9
#: Numbers per chunk of the floor: a chunk stays in the cache.
CHUNK = 2**20
REPLICATES = 1000
#: From this many cores of other processes' work on, a warning stands above the table.
BUSY = 0.1
#: Ends the names of what was found from the same logits in float64.
OF_DOUBLES = " of float64"
#: Exact functions of confidences and correctness, and of logits.
OF_PAIRS = ("ece", "aece", "mce", "smooth_ece", "aurc", "augrc", "e_aurc", "coverage_at_risk")
OF_LOGITS = ("nll", "brier", "classwise_ece")


class Setting(NamedTuple):
    """How the data are drawn: labels from logits of this spread, which are then sharpened by a factor."""

    name: str
    spread: float
    factor: float


SETTINGS = (Setting("overconfident", 4.0, 1.75), Setting("trained", 8.0, 1.5))


@dataclass(frozen=True, eq=False)
class Data:
    """Logits ``[N, C]`` and labels, or confidences ``[N]`` and whether each prediction is right; float32."""

    setting: Setting
    shape: tuple[int, ...]
    arrays: dict[str, npt.NDArray[Any]]

    @classmethod
    def draw(cls, shape: tuple[int, ...], setting: Setting) -> Data:
        """Data of a shape: ``(N, C)`` for logits, ``(N,)`` for pairs."""
        random = torch.Generator().manual_seed(0)
        if len(shape) == 1:
            values, truth = draw_pairs(shape[0], setting, random)
            return cls(setting, shape, {"confidence": values.numpy(), "correct": truth.numpy()})
        values, truth = draw_logits(shape[0], shape[1], setting, random)
        return cls(setting, shape, {"logits": values.numpy(), "labels": truth.numpy()})

    @property
    def title(self) -> str:
        what = "pairs" if self.is_pairs else "logits"
        return f"{what} {list(self.shape)}, {self.setting.name}"

    @property
    def is_pairs(self) -> bool:
        return "confidence" in self.arrays

    def tensors(self) -> list[Tensor]:
        return [torch.from_numpy(array) for array in self.arrays.values()]

    def reference(self) -> dict[str, float]:
        """What every metric is."""
        return (_reference.of_pairs if self.is_pairs else _reference.of_logits)(*self.arrays.values())

    def facts(self) -> dict[str, float]:
        """What the times may depend on."""
        confidence, correct = self.pairs()
        return {
            "accuracy": round(float(correct.mean()), 3),
            "mean confidence": round(float(confidence.mean(dtype=np.float64)), 3),
            "share above 0.99": round(float((confidence > 0.99).mean()), 3),
        }

    def pairs(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Confidence and correctness, as the exact functions are given them."""
        if self.is_pairs:
            return self.arrays["confidence"], self.arrays["correct"]
        confidence, _, correct = metrics.top_label(self.arrays["logits"], self.arrays["labels"])
        return confidence, correct

    def predictions(self) -> Predictions:
        make = Predictions.from_confidence if self.is_pairs else Predictions.from_logits
        return make(*self.arrays.values())


def draw_logits(size: int, classes: int, setting: Setting, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Overconfident logits ``[size, classes]``, and labels drawn from the softmax of the honest ones."""
    logits, labels = torch.empty(size, classes), torch.empty(size, dtype=torch.int64)
    step = max(1, CHUNK // classes)
    for start in range(0, size, step):
        part = logits[start : start + step]
        part.normal_(std=setting.spread, generator=random)
        # The argmax after Gumbel noise is a draw from the softmax; minus the logarithm of exponentials is such noise.
        noise = torch.empty_like(part).exponential_(generator=random).log_()
        labels[start : start + step] = (part - noise).argmax(1)
        part *= setting.factor
    return logits, labels


def draw_pairs(size: int, setting: Setting, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Overconfident confidences ``[size]`` and correctness: the top one of five classes, the other four alike."""
    confidence, correct = torch.empty(size), torch.empty(size, dtype=torch.bool)
    for start in range(0, size, CHUNK):
        part = confidence[start : start + CHUNK]
        margin = part.normal_(std=setting.spread, generator=random).abs_().clone()
        honest = 1 / (1 + 4 * torch.exp(-margin))
        correct[start : start + CHUNK] = torch.rand(len(part), generator=random) < honest
        part.copy_(1 / (1 + 4 * torch.exp(-setting.factor * margin)))
    return confidence, correct


@dataclass
class Row:
    """One thing that is timed; ``metric`` names the value it returns, if it returns one."""

    name: str
    step: Step
    metric: str | None = None
    value: float | None = None
    error: float | None = None
    ratio: Ratio | None = None
    seconds: float = 0.0
    peak: int | None = None
    limits: dict[str, float] = field(default_factory=dict)

    def verdict(self) -> str:
        """Its measures against its limits."""
        found = {"time": self.ratio and self.ratio.median, "error": self.error}
        over = [
            f"{name} {value:.3g} > {limit:g}"
            for name, limit in self.limits.items()
            if (value := found[name]) is not None and not value <= limit
        ]
        return f"over: {', '.join(over)}" if over else "ok" if self.limits else "-"

    def record(self) -> dict[str, Any]:
        """The row for the JSON file."""
        kept = ("name", "metric", "value", "error", "seconds", "peak", "limits")
        ratio = self.ratio and self.ratio._asdict()
        return {name: getattr(self, name) for name in kept} | {"ratio": ratio, "verdict": self.verdict()}


def floor(data: Data) -> Step:
    """The least that any metric must do: one chunked maximum and logsumexp, or for pairs one read of both arrays."""
    if data.is_pairs:
        confidence, correct = torch.from_numpy(data.arrays["confidence"]), data.arrays["correct"]
        return lambda: (float(confidence.sum()), np.count_nonzero(correct))
    logits = torch.from_numpy(data.arrays["logits"])
    rows = max(1, CHUNK // logits.shape[1])

    def step() -> None:
        for part in logits.split(rows):
            part.max(1)
            part.logsumexp(1)

    return step


def rows_of(data: Data) -> list[Row]:
    """The floor first, then the one-pass road, then each exact function alone."""
    growing, filled = filled_sketch(data), filled_sketch(data)
    update = growing.update_confidence if data.is_pairs else growing.update
    tensors, predictions = data.tensors(), data.predictions()

    def compute() -> dict[str, float]:
        filled._computed = None  # torchmetrics keeps the answer otherwise
        return filled.compute()

    rows = [
        Row("floor", floor(data)),
        Row("sketch", lambda: filled_sketch(data).compute()),
        Row("sketch update", lambda: update(*tensors)),
        Row("sketch compute", compute),
        Row("make Predictions", data.predictions),
        Row("audit collect", lambda: collect(predictions)),
        Row("intervals", lambda: metrics.intervals(filled.summary(), replicates=REPLICATES)),
    ]
    if not data.is_pairs:
        rows.append(Row("top_label", lambda: metrics.top_label(*data.arrays.values())))
        rows.append(Row("ece of top_label", lambda: metrics.ece(*metrics.top_label(*data.arrays.values())[::2])))
    rows += exact_rows(data)
    for row in rows:
        row.limits = {} if data.is_pairs or row.name not in TIME_LIMITS else {"time": TIME_LIMITS[row.name]}
        row.limits |= {"error": ERROR_LIMIT} if row.metric else {}
    return rows


def exact_rows(data: Data) -> list[Row]:
    """Each exact function alone: of confidence and correctness those that take them, of logits the others."""
    arrays, pairs = tuple(data.arrays.values()), data.pairs()

    def row(name: str, given: tuple[npt.NDArray[Any], ...]) -> Row:
        function: Callable[..., float] = getattr(metrics, name)
        more = (_reference.RISK,) if name == "coverage_at_risk" else ()
        return Row(name, lambda: function(*given, *more), name)

    return [row(name, pairs) for name in OF_PAIRS] + [row(name, arrays) for name in OF_LOGITS if not data.is_pairs]


def filled_sketch(data: Data) -> ConfidenceSketch:
    """A new sketch that has seen all of the data."""
    sketch = ConfidenceSketch()
    (sketch.update_confidence if data.is_pairs else sketch.update)(*data.tensors())
    return sketch


def one_pass_values(data: Data, reference: dict[str, float]) -> list[dict[str, Any]]:
    """The values of one pass, their errors, and whether they keep to the bounds that the sketch states.

    The bounds speak of the cells alone. From float32 logits the confidences themselves carry a rounding of about 1e-8,
    so the same logits are given in float64 too: there nothing but the cells is left.
    """
    found: Collected = collect(data.predictions())
    sketches = {"": found.sketch} | ({} if data.is_pairs else {OF_DOUBLES: _of_doubles(data)})
    records = []
    for metric, exact in reference.items():
        key = f"{metric}_{_reference.RISK:g}" if metric == "coverage_at_risk" else metric
        record: dict[str, Any] = {"metric": metric, "reference": exact}
        for suffix, sketch in sketches.items():
            values, bounds = sketch.compute(), sketch.bounds()
            if key in values:
                error = abs(values[key] - exact)
                kept = error <= bounds[key] + BOUND_SLACK
                found_here = {"value": values[key], "error": error, "bound": bounds[key], "within bound": kept}
                record |= {name + suffix: value for name, value in found_here.items()}
        if metric == "classwise_ece" and found.classwise is not None:
            value = float(found.classwise.by_class().mean())
            record |= {"value": value, "error": abs(value - exact)}
        if "value" in record:
            records.append(record)
    return records


def _of_doubles(data: Data) -> ConfidenceSketch:
    sketch = ConfidenceSketch()
    logits, labels = data.tensors()
    rows = max(1, 32 * CHUNK // logits.shape[1])
    for part, truth in zip(logits.split(rows), labels.split(rows), strict=True):
        sketch.update(part.double(), truth)
    return sketch
