"""`audit`: the truth about a model's confidence, from a set of predictions."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.files import written_aside
from calibrant.predictions import Predictions

if TYPE_CHECKING:
    from calibrant.auditing.collect import Collected
    from calibrant.metrics.intervals import Interval

TITLE = "Can this model's confidence be trusted?"

#: Shows progress: given the batches of a file and its name, passes them through.
Progress = Callable[[Iterable[Predictions], str], Iterable[Predictions]]


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found. Everything is in `document`, the rest are ways to it.

    Attributes:
        document: the whole audit as a plain dictionary, as `to_json` writes it.
    """

    document: Mapping[str, Any]

    @property
    def models(self) -> list[dict[str, Any]]:
        """The audited models' parts of the document."""
        return list(self.document["models"])

    @property
    def metrics(self) -> dict[str, float]:
        """The first model's metrics by name."""
        return {one["name"]: _number(one["value"]) for one in self.models[0]["metrics"]}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The first model's confidence intervals by name."""
        return {one["name"]: (_number(one["low"]), _number(one["high"])) for one in self.models[0]["metrics"]}

    @property
    def bounds(self) -> dict[str, float]:
        """How far at most the first model's metrics can lie from their exact definitions' values."""
        return {one["name"]: one["bound"] for one in self.models[0]["metrics"]}

    @property
    def verdict(self) -> str:
        """The first model's verdict in one sentence."""
        return str(self.document["verdict"]["headline"])

    @property
    def advice(self) -> list[str]:
        """The first model's findings, a sentence or two each."""
        return [f"{one['title']}. {one['text']} {one['evidence']}" for one in self.models[0]["findings"]]

    def to_json(self, path: str | Path | None = None) -> str:
        """The document as JSON text, also written to ``path`` if given."""
        text = json.dumps(self.document, indent=2, allow_nan=False)
        if path is not None:
            with written_aside(path) as aside:
                aside.write_text(text, encoding="utf-8")
        return text

    def to_html(self, path: str | Path) -> None:
        """Write the report: one HTML file that opens anywhere, offline."""
        from calibrant.report import write_audit  # here, because it brings matplotlib along

        write_audit(path, self.document)


def audit(
    predictions: Predictions | Mapping[str, Predictions],
    *,
    val: Predictions | None = None,
    groups: Iterable[str] | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    reproduce: str | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit a model's confidence: every metric with an interval, and what they mean.

    Goes through the predictions once, a batch at a time, so that they may be far larger than memory.

    Args:
        predictions: of one model, or of several by name; several are compared on the same samples.
        val: held-out predictions of the (first) model, to fit repairs on; without them repairs are judged by
            cross-validation.
        groups: group columns to break the numbers down by; all of them if None.
        level: confidence level of the intervals.
        replicates: bootstrap replicates behind them.
        seed: of the bootstrap.
        reproduce: the command that makes this audit, for the report.
        progress: shows progress over the batches.

    Returns:
        The audit, with ``metrics``, ``intervals``, ``advice``, ``to_html`` and ``to_json``.

    Example:
        >>> import numpy as np
        >>> from calibrant import Predictions, audit
        >>> rng = np.random.default_rng(0)
        >>> honest = 2 * rng.standard_normal((3000, 5))
        >>> labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
        >>> found = audit(Predictions.from_logits(3 * honest, labels))
        >>> print(found.verdict)
        Overconfident: it claims 86.9% and is right 64.0% of the time.
        >>> low, high = found.intervals["ece_15"]
        >>> bool(low < found.metrics["ece_15"] < high)
        True
    """
    # Here, not above: the sketch is a torchmetrics.Metric, and importing torchmetrics takes seconds.
    from calibrant import __version__
    from calibrant.auditing.collect import collect
    from calibrant.auditing.document import CONVENTIONS, clean, describe
    from calibrant.metrics.intervals import check_level

    check_level(level, replicates)
    named = {"model": predictions} if isinstance(predictions, Predictions) else dict(predictions)
    if not named:
        raise ValueError("audit takes predictions of at least one model, got none")
    show: Progress = progress or (lambda batches, _: batches)
    collected = {
        name: collect(one, groups=groups, progress=lambda batches, name=name: show(batches, name))  # type: ignore[misc]
        for name, one in named.items()
    }
    held_out = None if val is None else collect(val, groups=(), progress=lambda batches: show(batches, "validation"))
    if held_out is not None:
        _check_val(next(iter(collected.values())), held_out)
    models, verdicts, numbers = [], [], []
    for i, (name, found) in enumerate(collected.items()):
        settings = {"level": level, "replicates": replicates, "seed": seed}
        document, said, intervals = describe(name, found, held_out if i == 0 else None, **settings)  # type: ignore[arg-type]
        models.append(document)
        verdicts.append(said)
        numbers.append(intervals)
    _note_strangers(models, collected)
    document = {
        "format": "calibrant.audit",
        "version": 1,
        "calibrant": __version__,
        "created": datetime.date.today().isoformat(),
        "title": TITLE,
        "level": level,
        "replicates": replicates,
        "seed": seed,
        "reproduce": reproduce,
        "verdict": dict(zip(("level", "headline", "text"), verdicts[0], strict=True)),
        "conventions": CONVENTIONS,
        "models": models,
        "comparisons": _comparisons(collected, numbers, level, replicates, seed),
    }
    return Audit(clean(document))


def _comparisons(
    collected: Mapping[str, Collected], numbers: list[dict[str, Interval]], level: float, replicates: int, seed: int
) -> list[dict[str, Any]]:
    """Every further model against the first, on the same samples."""
    from calibrant.auditing.document import compare
    from calibrant.metrics.paired import paired_differences

    (base, first), *others = collected.items()
    found = []
    for name, second in others:
        if first.samples == second.samples and first.fingerprint == second.fingerprint:
            change = paired_differences(first.pairs(), second.pairs(), level=level, replicates=replicates, seed=seed)
            found.append(compare(base, name, change, numbers[0]))
    return found


def _note_strangers(models: list[dict[str, Any]], collected: Mapping[str, Collected]) -> None:
    """Say of a model that was not compared with the first why not."""
    first, *others = collected.values()
    for model, other in zip(models[1:], others, strict=True):
        if first.samples != other.samples:
            model["notes"].append(
                f"Not compared with {models[0]['name']}: {other.samples} samples are not the same as {first.samples}."
            )
        elif first.fingerprint != other.fingerprint:
            model["notes"].append(f"Not compared with {models[0]['name']}: the labels are not the same.")


def _check_val(first: Collected, val: Collected) -> None:
    if first.holds == "confidence" or val.holds == "confidence":
        raise ValueError("a repair is fitted on logits or probabilities; confidences alone cannot be repaired with val")
    if first.num_classes != val.num_classes:
        raise ValueError(
            f"validation and test predictions must have the same classes, got {val.num_classes} and {first.num_classes}"
        )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
