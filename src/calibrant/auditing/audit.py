"""`audit`: the truth about a model's confidence, from a set of predictions."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from calibrant.base.files import written_aside
from calibrant.base.numbers import count
from calibrant.base.progress import Progress, silent, track
from calibrant.predictions import (
    LOCAL,
    REPEAT_REMEDIES,
    UNITS,
    PassEngine,
    Predictions,
    count_shared,
    refuse_weights,
    repeat_words,
    resolve_repeats,
)

if TYPE_CHECKING:
    from calibrant.auditing.collect import Collected
    from calibrant.auditing.headline import CommandWords
    from calibrant.policy import Policy

T = TypeVar("T")

TITLE = "Can this model's confidence be trusted?"


@dataclass(frozen=True, eq=False)
class Audit:
    """The result of an audit. Everything is in `document`, from which the other attributes read.

    Attributes:
        document: the whole audit as a plain dictionary, as `to_json` writes it.
    """

    document: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Audit({self.verdict!r})"

    @property
    def models(self) -> list[dict[str, Any]]:
        """The audited models' parts of the document."""
        return list(self.document["models"])

    @property
    def metrics(self) -> dict[str, float]:
        """The first model's metrics by name."""
        return self._by_name(lambda metric: _number(metric["value"]))

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The first model's confidence intervals by name."""
        return self._by_name(lambda metric: (_number(metric["low"]), _number(metric["high"])))

    @property
    def bounds(self) -> dict[str, float]:
        """The largest possible distance of each of the first model's metrics from its exact value."""
        return self._by_name(lambda metric: float(metric["bound"]))

    def _by_name(self, value_of: Callable[[dict[str, Any]], T]) -> dict[str, T]:
        """A value of every metric by name; ``ece`` has 15 bins, as everywhere."""
        values = {metric["name"]: value_of(metric) for metric in self.models[0]["metrics"]}
        return values | {"ece": values["ece_15"]}

    @property
    def verdict(self) -> str:
        """The answer in one sentence: about the model, which of several is better, or about the policy."""
        return str(self.document["verdict"]["headline"])

    @property
    def advice(self) -> list[str]:
        """The first model's findings, a few sentences each."""
        findings = self.models[0]["findings"]
        return [f"{finding['title']}. {finding['text']} {finding['evidence']}" for finding in findings]

    def to_json(self, path: str | Path | None = None) -> str:
        """The document as JSON text, also written to ``path`` if given."""
        text = json.dumps(self.document, indent=2, allow_nan=False)
        if path is not None:
            with written_aside(path) as aside:
                aside.write_text(text, encoding="utf-8")
        return text

    def to_html(self, path: str | Path) -> None:
        """Write the report: one HTML file that opens anywhere, offline."""
        from calibrant.report import write_audit  # here, because an audit without a page does not need it

        write_audit(path, self.document)


def audit(
    predictions: Predictions | Mapping[str, Predictions],
    *more: Predictions,
    val: Predictions | None = None,
    groups: str | Iterable[str] | None = None,
    repeats: Literal["first"] | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    policy: Policy | None = None,
    centre: bool | None = None,
    reproduce: str | None = None,
    commands: CommandWords | None = None,
    progress: Progress = silent,
    engine: PassEngine = LOCAL,
) -> Audit:
    """Audit a model's confidence: every metric with an interval, and what they mean.

    Goes through the predictions once, a batch at a time, so that they may be far larger than memory.

    Args:
        predictions: of one model, or of several by name; several are compared on the same samples. Frames of pandas
            or polars are taken as `Predictions.from_frame` does.
        more: of further models, without names: ``audit(a, b)``.
        val: held-out predictions of the (first) model, to fit repairs on; without them repairs are judged by
            cross-validation.
        groups: group columns to break the numbers down by; all of them if None.
        repeats: ``"first"`` keeps the first row of each id; without it all rows count, and a warning says how many of
            them repeat an id.
        level: confidence level of the intervals.
        replicates: number of bootstrap replicates.
        seed: of the bootstrap.
        policy: a fitted policy: the audit reports what it decides about the (first) model's predictions, whether it
            keeps its promise, and how the confidence fares with and without its calibrator.
        centre: whether logit normalisation centres the logits; both readings are tried if left out.
        reproduce: the command that makes this audit, for the report.
        commands: the words of that command, from which the next one is made; without them it is a line of Python.
        progress: called as each stage advances.
        engine: what goes through the predictions, if not this process alone: ``calibrant.predictions.OnRay()`` for
            a cluster.

    Returns:
        The audit, with ``metrics``, ``intervals``, ``advice``, ``to_html`` and ``to_json``.

    Example:
        >>> import numpy as np
        >>> from calibrant import Predictions, audit
        >>> rng = np.random.default_rng(0)
        >>> honest = 2 * rng.standard_normal((3000, 5))
        >>> labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
        >>> result = audit(Predictions.from_logits(3 * honest, labels))
        >>> print(result.verdict)
        Overconfident: it claims 86.92% and is right 63.97% of the time.
        >>> low, high = result.intervals["ece_15"]
        >>> bool(low < result.metrics["ece_15"] < high)
        True
    """
    # Here, not above: opening a file, or refusing an invalid one, needs none of these.
    from calibrant import __version__
    from calibrant.auditing.collect import collect
    from calibrant.auditing.document import CONVENTIONS, describe_model
    from calibrant.auditing.headline import PythonWords, better_model, describe_policy, next_step, overall_verdict
    from calibrant.base.files import json_value
    from calibrant.metrics import check_level
    from calibrant.policy import FITTED_ON_THESE, Outcome

    check_level(level, replicates, seed)
    models = _models_by_name(predictions, more)
    if val is not None and val.split == "test":
        raise ValueError("repairs are not fitted on test data: val is marked split='test'")

    left_out: dict[str, int] = {}
    if repeats is not None:
        firsts = {name: resolve_repeats(model, repeats) for name, model in models.items()}
        left_out = {name: len(model) - len(firsts[name]) for name, model in models.items()}
        models, val = firsts, None if val is None else resolve_repeats(val, repeats)
    columns = [groups] if isinstance(groups, str) else groups
    collect_from = partial(collect, progress=progress, engine=engine)
    (main, main_predictions), *further = models.items()
    outcome: Outcome | None = None
    options: dict[str, Any] = {}
    if policy is not None:
        policy.check(main_predictions)
        refuse_weights(main_predictions, "the judgement of a policy")
        outcome = options["outcome"] = Outcome(policy)
    collected = {main: collect_from(main_predictions, groups=columns, stage=f"reading {main}", **options)}
    if policy is not None and policy.calibrator is not None:
        options = {"stage": f"calibrating {main}", "calibrated_by": policy}
        collected[f"{main}, calibrated"] = collect_from(main_predictions, groups=columns, **options)
    for name, further_predictions in further:
        collected[name] = collect_from(further_predictions, groups=columns, stage=f"reading {name}")
    held_out = None if val is None else collect_from(val, groups=(), stage="reading validation")
    if held_out is not None:
        _check_val(collected[main], held_out)

    overlap = []
    if val is not None and (shared := count_shared(main_predictions, val)):
        overlap = [
            f"{count(shared)} of {count(len(main_predictions))} audited {UNITS[val.kind][0]} are among the held-out "
            "predictions, too (by their ids): repairs are judged there by samples that they were fitted on."
        ]

    sampling: dict[str, Any] = {"level": level, "replicates": replicates, "seed": seed}
    if outcome is not None and collected[main].repeats.repeats:
        outcome.recognise_first_rows(main_predictions, engine)
    described = [
        describe_model(name, model, held_out if name == main else None, centre=centre, **sampling)
        for name, model in track(collected.items(), "intervals and repairs", len(collected), progress)
    ]
    documents = [document for document, _ in described]
    for part in documents:
        if number := left_out.get(part["name"], 0):
            rows, unit = number + collected[part["name"]].rows, UNITS[part["kind"]][0]
            part["notes"].insert(0, f"{count(number)} of {count(rows)} {unit} repeat an id and are left out.")
    comparisons = _comparisons(collected, described, sampling)
    promise = None if outcome is None else describe_policy(outcome, main)
    if outcome is not None and outcome.fitted_on_these and outcome.policy.calibrator is not None:
        documents[1]["notes"].insert(0, FITTED_ON_THESE)
    best = main if promise is not None else better_model(documents, comparisons) or main
    level_of_best = next(str(part["verdict"]["level"]) for part in documents if part["name"] == best)
    facts = {name: getattr(models[best], name) for name in ("holds", "kind", "split")}
    has_val = val is not None and best == main
    words = commands or PythonWords()
    if repeats or any(part.repeats.repeats for part in (collected[best], held_out) if part is not None):
        words = replace(words, repeats=("--repeats", "first"))  # without which a fit is refused
    if models[best].weighted:
        words = words.without_weights()
    step = next_step(words, best, level=level_of_best, policy=promise, has_val=has_val, **facts)
    document = {
        "format": "calibrant.audit",
        "version": 1,
        "calibrant": __version__,
        "created": datetime.date.today().isoformat(),
        "title": TITLE,
        **sampling,
        "reproduce": reproduce,
        "warnings": [*_warnings({name: collected[name] for name in models}, held_out), *overlap],
        "verdict": overall_verdict(documents, comparisons, promise),
        "next": step,
        "conventions": CONVENTIONS,
        "models": documents,
        "comparisons": comparisons,
        "policy": promise,
    }
    return Audit(json_value(document))


def _warnings(collected: Mapping[str, Collected], val: Collected | None) -> list[str]:
    """What makes the numbers doubtful, to be said first: values of another meaning, and ids that repeat."""
    titles = (
        {"": next(iter(collected.values()))} if len(collected) == 1 else {f"{k}: ": c for k, c in collected.items()}
    )
    if val is not None:
        titles["Held-out predictions: "] = val
    sentences = []
    for title, part in titles.items():
        sentences += [title + warning for warning in part.warnings]
        if number := part.repeats.repeats:
            words = repeat_words(number, part.rows, part.kind, is_exact=part.repeats.is_exact)
            reason = f"Intervals and tests assume independent {UNITS[part.kind][0]}, which these are not"
            sentences.append(f"{title}{words}. {reason}: {REPEAT_REMEDIES}.")
    return sentences


def _models_by_name(predictions: Any, further: Sequence[Any]) -> dict[str, Predictions]:
    """The predictions of every model by name, after checking that there are some and that they have labels."""
    if further and isinstance(predictions, Mapping):
        raise ValueError("audit takes several models as audit(a, b) or by name as audit({...}), got both")
    if isinstance(predictions, Mapping):
        sources = predictions
    elif further:
        sources = {f"model {k}": model for k, model in enumerate((predictions, *further), 1)}
    else:
        sources = {"model": predictions}
    models = {name: _predictions_of(model) for name, model in sources.items()}
    if not all(isinstance(model, Predictions) for model in models.values()):
        kind = type(predictions).__name__
        raise ValueError(
            f"audit takes Predictions, or several by name, got {kind}: Predictions.open reads a file, "
            "Predictions.from_logits takes arrays"
        )
    if not models:
        raise ValueError("audit takes predictions of at least one model, got none")
    unlabelled = [name for name, model in models.items() if not model.labelled]
    if unlabelled:
        raise ValueError(f"an audit needs labels, and the predictions of {unlabelled[0]} have none")
    return models


def _predictions_of(value: Any) -> Any:
    """A data frame as predictions; anything else unchanged."""
    is_frame = hasattr(value, "__dataframe__") or hasattr(value, "__arrow_c_stream__")
    return Predictions.from_frame(value) if is_frame else value


def _comparisons(
    collected: Mapping[str, Collected], described: Sequence[tuple[dict[str, Any], Any]], sampling: dict[str, Any]
) -> list[dict[str, Any]]:
    """Every further model against the first, on the same samples; a note says why where that is impossible."""
    from calibrant.auditing.document import describe_comparison
    from calibrant.metrics import paired_differences

    (base, first), *further = collected.items()
    comparisons = []
    for (document, numbers), (name, second) in zip(described[1:], further, strict=True):
        notes = document["notes"]
        reason = explain_mismatch(first, second)
        if reason is not None:
            notes.append(f"Not compared with {base}: {reason}.")
            continue
        if first.id_crc is None or second.id_crc is None:
            notes.append(f"Compared with {base} row by row: there are no ids to check that the rows match.")
        if first.samples > first.judged.size:
            notes.append(f"Differences from {base} are measured on {count(first.judged.size)} samples drawn at random.")
        if first.kind != "classification":
            notes.append(f"Intervals of differences assume independent {UNITS[first.kind][1]} and are too narrow.")
        change = paired_differences(first.pairs(), second.pairs(), **sampling)
        if (first.impossible or second.impossible) and first.floor != second.floor:
            change.pop("nll", None)
            notes.append(
                f"NLL is not compared with {base}: the two files have different floors for probabilities of 0."
            )
        comparisons.append(describe_comparison(base, name, change, (described[0][1], numbers)))
    return comparisons


def explain_mismatch(first: Collected, second: Collected) -> str | None:
    """Why two sets of predictions do not have the same samples in the same order; None if nothing shows that."""
    if first.kind != second.kind:
        return f"{second.kind} is not the same as {first.kind}"
    if (first.rows, first.samples) != (second.rows, second.samples):
        return f"{count(second.samples)} samples are not the same as {count(first.samples)}"
    identified = first.id_crc is not None and second.id_crc is not None
    if identified and first.id_crc != second.id_crc:
        return "the ids, or their order, are not the same"
    if not first.weighs_like(second):
        return "the weights are not the same"
    if "confidence" in (first.holds, second.holds):
        return None if identified else "without labels or ids in both, nothing shows that their rows are the same"
    if (first.ignored or second.ignored) and first.ignore_index != second.ignore_index:
        return f"the ignored labels are {second.ignore_index} and {first.ignore_index}"
    has_names = first.named_label_crc is not None and second.named_label_crc is not None
    is_same = first.named_label_crc == second.named_label_crc if has_names else first.label_crc == second.label_crc
    return None if is_same else "the labels are not the same"


def _check_val(first: Collected, val: Collected) -> None:
    if first.holds == "confidence" or val.holds == "confidence":
        raise ValueError("a repair is fitted on logits or probabilities; confidences alone cannot be repaired with val")
    if first.num_classes != val.num_classes:
        raise ValueError(
            f"validation and test predictions must have the same classes, got {val.num_classes} and {first.num_classes}"
        )
    if (first.label_crc, first.value_crc, first.rows) == (val.label_crc, val.value_crc, val.rows):
        raise ValueError(
            "the validation predictions are the audited ones: a repair must be judged on data that it was not fitted on"
        )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
