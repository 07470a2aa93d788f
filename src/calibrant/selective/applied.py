"""A policy on a set of predictions: its decisions as a file, and, where labels are known, was its promise kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._files import written_aside
from calibrant.metrics import Interval, wilson
from calibrant.predictions import Predictions
from calibrant.selective.bounds import binomial_tail, lower_limit, upper_limit
from calibrant.selective.policy import Decisions, Policy, Progress
from calibrant.selective.split import Fingerprint
from calibrant.selective.words import some_names

FORMATS = (".parquet", ".csv", ".npz")


@dataclass
class Outcome:
    """What a policy did: counts, and what they say about its promise.

    Attributes:
        policy: the policy.
        samples: how many there were; for segmentation, pixels.
        accepted: how many were answered.
        labelled: whether the true labels are known.
        errors: wrong answers, if labels are known.
        all_errors: what would be wrong if every sample was answered.
        groups: the same by group: samples, accepted, errors.
        fingerprint: of the predictions.
    """

    policy: Policy
    samples: int = 0
    accepted: int = 0
    labelled: bool = True
    errors: int = 0
    all_errors: int = 0
    groups: dict[str, list[int]] = field(default_factory=dict)
    fingerprint: Fingerprint = field(default_factory=Fingerprint)

    @property
    def coverage(self) -> Interval:
        """Share answered, with limits."""
        if not self.samples:
            return Interval(math.nan, math.nan, math.nan)
        low, high = wilson(self.accepted, self.samples, 0.95)
        return Interval(self.accepted / self.samples, float(low), float(high))

    @property
    def risk(self) -> Interval:
        """Share of answers that are wrong, with exact limits at 95%; NaN where nothing is known or was answered."""
        if not self.labelled or not self.accepted:
            return Interval(math.nan, math.nan, math.nan)
        limits = lower_limit(self.errors, self.accepted, 0.025), upper_limit(self.errors, self.accepted, 0.025)
        return Interval(self.errors / self.accepted, *limits)

    @property
    def parts(self) -> dict[str, tuple[int, int]]:
        """Answered and wrong, by group where the policy has thresholds for each."""
        if self.policy.groups is None:
            return {"": (self.accepted, self.errors)}
        return {name: (accepted, errors) for name, (_, accepted, errors) in self.groups.items()}

    @property
    def broken(self) -> dict[str, tuple[int, int]]:
        """The parts in which more answers are wrong than promised, beyond chance."""
        risk = self.policy.promised
        if risk is None or not self.labelled or self.policy.kind == "segmentation":
            return {}
        answered = {name: counts for name, counts in self.parts.items() if counts[0]}
        # The chance of so many errors, or more, at the promised risk; shared by all parts that were answered.
        return {
            name: (n, k) for name, (n, k) in answered.items()
            if float(binomial_tail(n - k, n, 1 - risk)) * len(answered) < 0.05
        }  # fmt: skip

    @property
    def kept(self) -> str:
        """Whether the promise was kept.

        ``"yes"``: shown on these samples; ``"no"``: broken beyond chance; ``"no sign"`` that it is broken;
        ``"unclear"``: more are wrong than promised, perhaps by chance; ``"nothing"`` was answered; ``"unknown"``: there
        is no promise, or there are no labels.
        """
        risk = self.policy.promised
        if self.labelled and not self.accepted:
            return "nothing"
        if risk is None or not self.labelled:
            return "unknown"
        if self.broken:
            return "no"
        answered = [(n, k) for n, k in self.parts.values() if n]
        if any(k > risk * n for n, k in answered):
            return "unclear"
        shown = all(upper_limit(k, n, 0.05 / len(answered)) <= risk for n, k in answered)
        return "yes" if shown and self.policy.kind == "classification" else "no sign"

    @property
    def unknown_groups(self) -> dict[str, int]:
        """Samples of groups that the policy has no threshold for."""
        known = self.policy.group_names or ()
        return {name: counts[0] for name, counts in self.groups.items() if name not in known}

    def sentences(self) -> list[str]:
        """What happened, in plain sentences."""
        unit = "pixels" if self.policy.kind == "segmentation" else "samples"
        if not self.samples:
            return [f"There are no {unit} that count."]
        share = self.accepted / self.samples
        said = [f"Answers {self.accepted:,} of {self.samples:,} {unit} ({share:.1%}), abstains on the rest."]
        if self.unknown_groups:
            number = sum(self.unknown_groups.values())
            names = some_names(list(self.unknown_groups))
            said.append(f"{number:,} {unit} are of groups that the policy does not know ({names}): never answered.")
        if not self.labelled:
            return [*said, "There are no labels, so the share of wrong answers is not known."]
        if self.accepted:
            risk = self.risk
            limits = "" if unit == "pixels" else f" (95% interval {risk.low:.2%} to {risk.high:.2%})"
            said.append(
                f"{self.errors:,} answers are wrong, {risk.value:.2%}{limits}; "
                f"answering everything would be wrong in {self.all_errors / self.samples:.2%}."
            )
        if str(self.fingerprint) == self.policy.evidence.get("fingerprint"):
            said.append("These are the very predictions that the policy was fitted on: they cannot tell what it does.")
        return [*said, *self._verdict(unit)]

    def _verdict(self, unit: str) -> list[str]:
        promised = f"The promise of at most {self.policy.promised or 0:.2%} wrong answers"
        where = ""
        if self.policy.groups is not None and self.broken:
            where = " in " + some_names([f"{name} ({k / n:.1%} of {n:,})" for name, (n, k) in self.broken.items()])
        words = {
            "yes": f"{promised} is kept here.",
            "no sign": f"{promised}: no sign that it is broken.",
            "no": f"{promised} is broken beyond chance{where}: these {unit} are not like those it was fitted on.",
            "unclear": f"{promised} is missed here, which may be chance.",
        }
        return [words[self.kept]] if self.kept in words else []

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        known = self.labelled
        return {
            "samples": self.samples,
            "accepted": self.accepted,
            "coverage": {k: None if math.isnan(v) else v for k, v in vars(self.coverage).items()},
            "errors": self.errors if known else None,
            "risk": {k: None if math.isnan(v) else v for k, v in vars(self.risk).items()},
            "risk_of_all": self.all_errors / self.samples if known and self.samples else None,
            "target_risk": self.policy.target_risk,
            "promised_risk": self.policy.promised,
            "promise_kept": self.kept,
            "groups": {
                name: {"samples": n, "accepted": a, "errors": e if known else None}
                for name, (n, a, e) in self.groups.items()
            },
        }


def observe_batch(outcome: Outcome, batch: Predictions, decided: Decisions[npt.NDArray[Any]]) -> None:
    """Count a batch."""
    outcome.fingerprint.add(batch)
    labels, accept = batch.labels, decided.accept
    counted = np.ones(accept.shape, dtype=bool)
    outcome.labelled = labels is not None
    if labels is not None and batch.ignore_index is not None:
        counted = labels != batch.ignore_index
    wrong = np.zeros_like(counted) if labels is None else (decided.labels != labels) & counted
    accept = accept & counted
    outcome.samples += int(counted.sum())
    outcome.accepted += int(accept.sum())
    outcome.errors += int((accept & wrong).sum())
    outcome.all_errors += int(wrong.sum())
    column = outcome.policy.group
    if column is not None:
        names = np.asarray(batch.groups[column]).astype(str)
        for name in np.unique(names).tolist():
            held = names == name
            count = outcome.groups.setdefault(name, [0, 0, 0])
            for i, part in enumerate((counted, accept, accept & wrong)):
                count[i] += int(part[held].sum())


def apply_policy(policy: Policy, predictions: Predictions, path: Path, *, progress: Progress) -> Outcome:
    """Decide about every sample, a batch at a time, and write the decisions aside, then rename."""
    policy.check(predictions)
    outcome = Outcome(policy)
    with written_aside(path) as aside:
        batches = _decided(policy, iter(progress(predictions.batches(), "deciding")), outcome)
        if path.suffix.lower() == ".npz":
            _write_arrays(aside, batches)
        elif policy.kind == "segmentation":
            raise ValueError(f"{path}: decisions about pixels are arrays, written as .npz")
        else:
            _write_table(aside, path.suffix.lower(), policy, batches)
    return outcome


def _decided(
    policy: Policy, batches: Iterator[Predictions], outcome: Outcome
) -> Iterator[tuple[int, Predictions, Decisions[npt.NDArray[Any]]]]:
    start = 0
    for batch in batches:
        values = batch.logits if policy.takes == "logits" else batch.probabilities
        decided = policy.decide(np.asarray(values), None if policy.group is None else batch.groups[policy.group])
        observe_batch(outcome, batch, decided)
        yield start, batch, decided
        start += len(batch)


def _write_arrays(path: Path, batches: Iterable[tuple[int, Predictions, Decisions[npt.NDArray[Any]]]]) -> None:
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in ("id", "label", "confidence", "accept")}
    for start, batch, decided in batches:
        columns["id"].append(_ids(start, batch))
        for name, values in zip(("label", "confidence", "accept"), decided, strict=True):
            columns[name].append(values.astype(np.float32) if name == "confidence" else values)
    arrays: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
    np.savez(path, **arrays)


def _write_table(
    path: Path, suffix: str, policy: Policy, batches: Iterable[tuple[int, Predictions, Decisions[npt.NDArray[Any]]]]
) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    writer: Any = None
    try:
        for start, batch, decided in batches:
            names = policy.class_names or batch.class_names
            columns = {"id": _ids(start, batch), "label": decided.labels}
            if names is not None:
                columns["class_name"] = np.asarray(names)[decided.labels]
            table = pa.table(columns | {"confidence": decided.confidence, "accept": decided.accept})
            if writer is None:
                make = pa.parquet.ParquetWriter if suffix == ".parquet" else pa.csv.CSVWriter
                writer = make(str(path), table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _ids(start: int, batch: Predictions) -> npt.NDArray[Any]:
    """The ids, or row numbers."""
    return np.arange(start, start + len(batch)) if batch.ids is None else np.asarray(batch.ids)
