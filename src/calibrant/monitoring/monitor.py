"""`Monitor`: a watch on a policy's promise, batch by batch, over days and machines."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrant._progress import Progress, silent
from calibrant._validation import check_number
from calibrant.monitoring.batch import BatchCounts, LabelShift, count_batch
from calibrant.monitoring.document import watch_document
from calibrant.monitoring.state import (
    KnownLabels,
    LabelArrival,
    ShiftEntry,
    SketchEntry,
    WatchedBatch,
    WatchState,
    find_new_labels,
    policy_fingerprint,
    read_state,
    write_state,
)
from calibrant.monitoring.watch import Watch, watch
from calibrant.predictions import Predictions
from calibrant.selective import Policy

ALPHA = 0.05


class Monitor:
    """A watch on a policy: is its promise kept, and are new samples like those that it was fitted on?

    Look as often as you like: the chance that a watch ever raises an alarm although nothing is wrong is at most
    ``alpha``. What is counted is `state`, which is saved, loaded and merged; what follows from it is `document`.

    Attributes:
        policy: what is watched.
        state: the counts of all batches.

    Args:
        policy: a policy for classification.
        by_group: a column whose groups are watched apart; that of the policy if it has thresholds by group.
        alpha: the chance of a false alarm, ever.

    Example:
        >>> import numpy as np
        >>> from calibrant import Monitor, Policy, Predictions
        >>> rng = np.random.default_rng(0)
        >>> def draw(n, noise=0.0):
        ...     logits = 3 * rng.standard_normal((n, 5))
        ...     labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
        ...     return Predictions.from_logits(logits, np.where(rng.random(n) < noise, (labels + 1) % 5, labels))
        >>> monitor = Monitor(Policy.fit(draw(3000), target_risk=0.1))
        >>> monitor.update(draw(1000)).alarm
        False
        >>> monitor.update(draw(1000, noise=0.2)).alarm
        True
    """

    def __init__(self, policy: Policy, *, by_group: str | None = None, alpha: float = ALPHA) -> None:
        if not isinstance(policy, Policy):
            raise ValueError(f"a monitor watches a Policy, got {type(policy).__name__}")
        if policy.kind != "classification":
            raise ValueError(f"a watch is for classification, whose samples are independent, got {policy.kind}")
        check_number("alpha", alpha, 1e-9, 0.5)
        if policy.classes is not None and by_group not in (None, policy.group):
            raise ValueError(f"the policy has thresholds by class, which are watched; leave out by_group {by_group!r}")
        column = by_group if by_group is not None else policy.group
        self.policy = policy
        self.state = WatchState(policy=policy_fingerprint(policy), by_group=column, alpha=float(alpha))
        self.remarks: list[str] = []

    @classmethod
    def load(
        cls, policy: Policy, path: str | Path, *, by_group: str | None = None, alpha: float | None = None
    ) -> Monitor:
        """Continue a watch; group column and alpha are those of the file, and must be the same if they are given."""
        state = read_state(path)
        monitor = cls(policy, by_group=state.by_group, alpha=state.alpha)
        monitor._check_same(state, str(path))
        if by_group is not None and by_group != state.by_group:
            raise ValueError(f"{path}: the watch is by group {state.by_group!r}, got {by_group!r}: begin another one")
        if alpha is not None and alpha != state.alpha:
            raise ValueError(f"{path}: the watch has alpha {state.alpha:g}, which cannot change, got {alpha:g}")
        monitor.state = state
        return monitor

    def save(self, path: str | Path) -> None:
        """Write the state as JSON, aside and then renamed."""
        write_state(self.state, path)

    def count(
        self, predictions: Predictions, *, labels: Mapping[str, int] | None = None, progress: Progress = silent
    ) -> BatchCounts:
        """Count a batch without adding it."""
        return count_batch(self.policy, predictions, by_group=self.state.by_group, labels=labels, progress=progress)

    def update(
        self,
        predictions: Predictions,
        name: str | None = None,
        *,
        labels: Mapping[str, int] | None = None,
        labels_only: bool = False,
    ) -> Monitor:
        """Take in a batch; `remarks` says what became of it.

        A batch that was seen before is not counted again. Labels of it that were not known then are.

        Args:
            predictions: with labels, without, or with some (``ignore_index`` for the others).
            name: what to call the batch; else the name of its file, or its number.
            labels: class by id, of samples whose labels came later.
            labels_only: whether these are a labelled sample of rows that were seen before: their labels count, and not
                how they look.
        """
        if name is None:
            name = Path(predictions.files[0]).name if predictions.files else f"batch {len(self.state.batches) + 1}"
        self.add(self.count(predictions, labels=labels), name, labels_only=labels_only)
        return self

    def add(self, counts: BatchCounts, name: str, *, labels_only: bool = False) -> None:
        """Add a counted batch, unless it is in the state; then its new labels alone."""
        groups = {group: KnownLabels(**vars(labelled)) for group, labelled in counts.groups.items()}
        arrival = LabelArrival(batch=counts.fingerprint, groups=groups, cost=counts.cost, **vars(counts.labelled))
        sketch = SketchEntry(**{key: value.tolist() for key, value in counts.sketch.items()}) if counts.sketch else None
        batch = WatchedBatch(
            name=name,
            fingerprint=counts.fingerprint,
            added=datetime.date.today().isoformat(),
            samples=counts.samples,
            accepted=counts.accepted,
            implied_errors=counts.implied_errors,
            sketch=sketch,
            shift=None if counts.shift is None else _shift_entry(counts.shift),
            labels_only=labels_only,
        )
        earlier = self.state.of_batch(batch.fingerprint)
        new_labels = find_new_labels(self.state.known_labels(batch.fingerprint), arrival)
        if earlier is None:
            self.state.batches.append(batch)
        elif new_labels is not None and new_labels.answers:
            number = new_labels.answers
            self.remarks.append(f"{batch.name}: seen as {earlier.name}; {number} labels of answers are new")
        else:
            reason = "with more labels or other ones" if new_labels is None else "and no label of an answer is new"
            self.remarks.append(f"{batch.name}: skipped, it was seen as {earlier.name}, {reason}")
        if new_labels is not None and new_labels.answers:
            self.state.labels.append(new_labels)

    def merge(self, other: Monitor | str | Path) -> Monitor:
        """Add the batches of another watch of the same policy, in their order after one's own.

        Batches that both have count once. The rows of the two must be different samples, as their evidence is
        multiplied; watches of the same samples are kept apart, each with its part of alpha.
        """
        source = "the other watch" if isinstance(other, Monitor) else str(other)
        state = other.state if isinstance(other, Monitor) else read_state(other)
        self._check_same(state, source)
        if state.by_group != self.state.by_group or state.alpha != self.state.alpha:
            raise ValueError(f"{source}: watches that are merged must have the same alpha and the same group column")
        self.state.batches += [batch for batch in state.batches if self.state.of_batch(batch.fingerprint) is None]
        known_labels = {arrival.batch: self.state.known_labels(arrival.batch) for arrival in state.labels}
        for arrival in state.labels:
            if not known_labels[arrival.batch].answers:
                self.state.labels.append(arrival)
        for fingerprint, before in known_labels.items():
            if before.answers:
                new_labels = find_new_labels(before, state.known_labels(fingerprint))
                if new_labels is not None and new_labels.answers:
                    self.state.labels.append(new_labels)
        return self

    def _check_same(self, state: WatchState, source: str) -> None:
        if state.policy != policy_fingerprint(self.policy):
            raise ValueError(f"{source}: the watch is for another policy")
        reference = self.policy.evidence.get("reference")
        for batch in state.batches:
            sizes = None if batch.sketch is None else {name: len(counts) for name, counts in batch.sketch}
            if sizes and (reference is None or any(len(reference[name]["counts"]) != n for name, n in sizes.items())):
                raise ValueError(f"{source}: the sketch of a batch does not fit the policy")
            if batch.shift is not None and len(batch.shift.priors) != self.policy.num_classes:
                raise ValueError(f"{source}: the priors of a batch are not those of {self.policy.num_classes} classes")

    @property
    def watch(self) -> Watch:
        """What the counts say."""
        return watch(self.policy, self.state)

    @property
    def alarm(self) -> bool:
        """Whether any alarm was raised."""
        return bool(self.watch.alarms)

    @property
    def document(self) -> dict[str, Any]:
        """All of it as plain values, as ``--json`` prints it and the page draws it."""
        return watch_document(self.policy, self.state, self.watch)

    def to_html(self, path: str | Path) -> None:
        """Write a page with the time line."""
        from calibrant.report import write_watch

        write_watch(path, self.document)


def _shift_entry(shift: LabelShift) -> ShiftEntry:
    before, after = (None if math.isnan(value) else value for value in (shift.nll_before, shift.nll_after))
    return ShiftEntry(
        priors=[min(1.0, float(prior)) for prior in shift.priors],
        samples=shift.samples,
        gain=shift.gain,
        p_value=shift.p_value,
        nll_before=before,
        nll_after=after,
    )


def monitor(policy: Policy, *batches: Predictions, by_group: str | None = None, alpha: float = ALPHA) -> Monitor:
    """A watch on a policy that has seen these batches; see `Monitor`."""
    result = Monitor(policy, by_group=by_group, alpha=alpha)
    for batch in batches:
        result.update(batch)
    return result
