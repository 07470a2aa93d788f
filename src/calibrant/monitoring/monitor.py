"""`Monitor`: a watch on a policy's promise, batch by batch, over days and machines."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.base.checks import Ints, check_number, shorten
from calibrant.base.progress import Progress, silent
from calibrant.monitoring.batch import BatchCounts, LabelShift, count_batch, is_in, sum_costs
from calibrant.monitoring.document import watch_document
from calibrant.monitoring.state import (
    LONGEST_TEXT,
    NOT_WAITING,
    Acknowledgement,
    Hashes,
    KnownLabels,
    LabelArrival,
    ShiftEntry,
    SketchEntry,
    TestName,
    WatchedBatch,
    WatchState,
    find_new_labels,
    hash_ids,
    policy_fingerprint,
    read_state,
    write_state,
)
from calibrant.monitoring.watch import Watch, advance, check_running, watch
from calibrant.policy import Policy
from calibrant.predictions import LOCAL, PassEngine, Predictions

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
        self.skipped: list[str] = []  # those remarks that are about batches without ids that did not count
        self.matches: dict[str, int] | None = None  # of labels that came later, at this look

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
        advance(policy, state)  # of an earlier version
        return monitor

    def save(self, path: str | Path) -> None:
        """Write the state as JSON, aside and then renamed."""
        write_state(self.state, path)

    def count(
        self,
        predictions: Predictions,
        *,
        labels: Mapping[str, int] | None = None,
        repeats: str | None = None,
        progress: Progress = silent,
        engine: PassEngine = LOCAL,
    ) -> BatchCounts:
        """Count a batch without adding it: the samples whose ids this watch has not seen yet."""
        return count_batch(
            self.policy,
            predictions,
            by_group=self.state.by_group,
            labels=labels,
            seen=self.state.seen_hashes(),
            repeats=repeats,
            progress=progress,
            engine=engine,
        )

    def update(
        self,
        predictions: Predictions,
        name: str | None = None,
        *,
        labels: Mapping[str, int] | None = None,
        labels_only: bool = False,
        repeats: str | None = None,
    ) -> Monitor:
        """Take in a batch; `remarks` says what became of it.

        A sample counts once, whatever batch its id comes in again; if its label was not known then, and is now, the
        label counts. A batch without ids is known by its name.

        Args:
            predictions: with labels, without, or with some (``ignore_index`` for the others).
            name: what to call the batch; else the name of its file, or its number.
            labels: class by id, of samples whose labels came later; also of those of other batches of this watch.
            labels_only: whether these are a labelled sample of rows that were seen before: their labels count, and not
                how they look.
            repeats: ``"first"`` keeps the first row of each id; without it, repeated ids within a batch are refused.
        """
        if name is None:
            name = Path(predictions.files[0]).name if predictions.files else f"batch {len(self.state.batches) + 1}"
        self.add(self.count(predictions, labels=labels, repeats=repeats), name, labels_only=labels_only)
        if labels is not None:
            self.add_labels(labels)
        return self

    def add(self, counts: BatchCounts, name: str, *, labels_only: bool = False) -> None:
        """Add what `count` returned: new samples, and new labels of samples that were seen before."""
        batch = _batch_entry(counts, name, labels_only)
        arrival = _arrival(counts, batch.fingerprint)
        known = self._find(counts, name)
        if known is not None:
            self._add_labels_of(known, counts, arrival, name)
        elif counts.ids is not None and is_in(counts.ids.hash_array(), self.state.seen_hashes()).any():
            raise ValueError("the batch was counted before others came that have its samples: count it again")
        elif counts.samples:
            self._append(batch)
            if arrival.answers:
                self.state.labels.append(arrival)
        if known is None and counts.seen:
            new = 0 if counts.late is None else self._settle(*counts.late)
            self.remarks.append(_seen_remark(name, counts, new))
        advance(self.policy, self.state)

    def add_labels(self, labels: Mapping[str, int]) -> int:
        """Take in labels by id, whichever batch the samples came in; returns how many ids are of this watch.

        A label counts where the sample was answered and its label was not known; the first one counts.
        """
        seen = self.state.seen_hashes()
        if not len(seen):
            raise ValueError("labels are matched by id, and this watch has no batch with ids")
        hashes = hash_ids(labels)
        matched = int(is_in(hashes, seen).sum())
        self._settle(hashes, np.fromiter(labels.values(), np.int64, len(labels)))
        advance(self.policy, self.state)
        self.matches = {"labels": len(labels), "matched": matched}
        return matched

    def acknowledge(self, text: str) -> None:
        """Note what was done about the alarms there are: their tests start anew, at a level that keeps the promise.

        The chance that the watch ever raises a false alarm stays at most ``alpha``, because a test that starts for the
        k-th time has the share 6 / (pi k)^2 of its alpha.
        """
        if not 0 < len(text.strip()) <= LONGEST_TEXT:
            raise ValueError(
                f"an acknowledgement says in 1 to {LONGEST_TEXT} characters what was done, got {len(text)}"
            )
        tests = [TestName(name=test.name, group=test.group) for test in self.watch.alarms]
        if not tests:
            raise ValueError("there is no alarm to acknowledge")
        self.state.acknowledgements.append(
            Acknowledgement(
                text=text.strip(),
                date=datetime.date.today().isoformat(),
                batches=len(self.state.batches),
                labels=len(self.state.labels),
                tests=tests,
            )
        )
        advance(self.policy, self.state)

    def _find(self, counts: BatchCounts, name: str) -> WatchedBatch | None:
        """The batch that this one is, where ids do not tell: by its name, or by its values in an older state."""
        without_ids = [batch for batch in self.state.batches if batch.ids is None]
        if counts.ids is not None:
            whole = without_ids if not counts.seen else []
            return next((batch for batch in whole if batch.fingerprint == batch.looks == counts.looks), None)
        namesakes = [batch for batch in without_ids if batch.name == name]
        same = next((batch for batch in namesakes if batch.looks == counts.looks), None)
        if namesakes and same is None:
            raise ValueError(
                f"this watch has a batch called {shorten(name)!r} with other values: give this one another name "
                "(--name), or give the samples ids, by which each counts once"
            )
        return same

    def _add_labels_of(self, batch: WatchedBatch, counts: BatchCounts, arrival: LabelArrival, name: str) -> None:
        """Add the labels of a batch without ids that came again, so far as they are new."""
        arrival.batch = batch.fingerprint
        new = find_new_labels(self.state.known_labels(batch.fingerprint), arrival)
        again = f"{name}: counted before" + (f" as {batch.name}" if name != batch.name else "")
        is_skipped = new is None or not new.answers
        if new is not None and new.answers:
            self.state.labels.append(new)
            self.remarks.append(f"{again}; {new.answers:,} labels of answers are new")
        elif new is None:
            self.remarks.append(f"{again}, so it was skipped: some of its labels have changed or are missing now")
        else:
            different = "" if counts.ids is not None else " (if these are other samples, name the batch with --name)"
            self.remarks.append(f"{again}, so it was skipped: no label of an answer is new{different}")
        if is_skipped and counts.ids is None:
            self.skipped.append(self.remarks[-1])
        if counts.ids is not None:  # an older state kept none
            batch.ids = counts.ids
            if new is None:
                batch.ids.set_waiting(np.full(counts.samples, NOT_WAITING))

    def _append(self, batch: WatchedBatch) -> None:
        if batch.shift is not None:  # that of the last batch is what the watch says
            for earlier in self.state.batches:
                earlier.shift = None
        self.state.batches.append(batch)

    def _settle(self, hashes: Hashes, labels: Ints) -> int:
        """Count the labels of answers that wait for them; returns how many there were."""
        order = np.argsort(hashes)
        hashes, labels, settled = hashes[order], labels[order], 0
        for batch in self.state.batches if len(hashes) else ():
            if batch.ids is None or not batch.ids.waiting:
                continue
            own, waiting, groups = batch.ids.hash_array(), batch.ids.waiting_array(), batch.ids.group_array()
            known = np.flatnonzero(is_in(own, hashes) & (waiting != NOT_WAITING))
            if not len(known):
                continue
            truth, predicted = labels[np.searchsorted(hashes, own[known])], waiting[known]
            wrong = truth != predicted
            parts = {}
            for group in () if groups is None else np.unique(groups[known]).tolist():
                inside = groups[known] == group  # type: ignore[index]
                parts[group] = KnownLabels(answers=int(inside.sum()), errors=int(wrong[inside].sum()))
            cost = sum_costs(self.policy, truth, predicted, np.ones(len(known), np.bool_))
            counts = {"answers": len(known), "errors": int(wrong.sum())}
            self.state.labels.append(LabelArrival(batch=batch.fingerprint, groups=parts, cost=cost, **counts))
            waiting[known] = NOT_WAITING
            batch.ids.set_waiting(waiting)
            settled += len(known)
        return settled

    def merge(self, other: Monitor | str | Path) -> Monitor:
        """Add the batches of another watch of the same policy, in their order after one's own.

        Batches that both have count once. The rows of the two must be different samples, as their evidence is
        multiplied; watches of the same samples are kept apart, each with its part of alpha. A batch of the other is
        left out, and `remarks` says so, if some of its ids are in this watch and some are not: its counts cannot be
        taken apart. An acknowledgement of the other says nothing about alarms that are on here: they stay on.
        """
        source = "the other watch" if isinstance(other, Monitor) else str(other)
        state = other.state.model_copy(deep=True) if isinstance(other, Monitor) else read_state(other)
        self._check_same(state, source)
        if state.by_group != self.state.by_group or state.alpha != self.state.alpha:
            raise ValueError(f"{source}: watches that are merged must have the same alpha and the same group column")
        own = {batch.fingerprint: batch for batch in self.state.batches}
        seen = self.state.seen_hashes()
        before, labels_before = len(self.state.batches), len(self.state.labels)
        alarms = {(test.name, test.group) for test in self.watch.alarms}
        kept = []  # of each batch of the other, whether it is new here
        for batch in state.batches:
            overlap = 0 if batch.ids is None else int(is_in(batch.ids.hash_array(), seen).sum())
            kept.append(batch.fingerprint not in own and not overlap)
            if batch.fingerprint in own and batch.ids is None:
                self.remarks.append(
                    f"{batch.name}: in both watches under this name and with the same values, so it counts once (other "
                    "samples need ids or another name)"
                )
            elif batch.fingerprint not in own and overlap:
                self.remarks.append(
                    f"{batch.name}: left out of the merge, as {overlap:,} of its {batch.samples:,} samples are in this "
                    "watch already"
                )
        known = {name: self.state.known_labels(name) for name in own}
        new = {batch.fingerprint for batch, is_new in zip(state.batches, kept, strict=True) if is_new}
        arrivals = [
            arrival.batch in new or (arrival.batch in own and not known[arrival.batch].answers)
            for arrival in state.labels
        ]
        for batch, is_new in zip(state.batches, kept, strict=True):
            if is_new:
                self._append(batch)
        self.state.labels += [arrival for arrival, is_new in zip(state.labels, arrivals, strict=True) if is_new]
        for item in state.acknowledgements:
            batches, labels = sum(kept[: item.batches]), sum(arrivals[: item.labels])
            if batches or labels:  # else it came with an earlier merge, or is about what both have
                item.batches, item.labels = before + batches, labels_before + labels
                item.tests = [test for test in item.tests if (test.name, test.group) not in alarms]
                self.state.acknowledgements.append(item)
        for batch in state.batches:
            if batch.fingerprint in own and batch.fingerprint not in new:
                self._merge_labels(own[batch.fingerprint], batch, known[batch.fingerprint], state)
        advance(self.policy, self.state)
        return self

    def _merge_labels(self, own: WatchedBatch, batch: WatchedBatch, known: LabelArrival, state: WatchState) -> None:
        """Labels that the other watch knows of a batch that both have."""
        if own.ids is not None and batch.ids is not None:
            own_waiting, waiting = own.ids.waiting_array(), batch.ids.waiting_array()
            if ((waiting != NOT_WAITING) & (own_waiting == NOT_WAITING)).any():
                if ((waiting == NOT_WAITING) & (own_waiting != NOT_WAITING)).any():
                    self.remarks.append(f"{batch.name}: each watch has labels that the other has not; those here count")
                return
            own.ids = batch.ids
        if known.answers:
            new = find_new_labels(known, state.known_labels(batch.fingerprint))
            if new is not None and new.answers:
                self.state.labels.append(new)

    def _check_same(self, state: WatchState, source: str) -> None:
        if state.policy != policy_fingerprint(self.policy):
            raise ValueError(
                f"{source}: the watch is for another policy; one that was fitted again is watched in a state of its own"
            )
        try:
            check_running(self.policy, state)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
        reference = self.policy.evidence.get("reference")
        for batch in state.batches:
            sizes = {} if batch.sketch is None else batch.sketch.sizes
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
        return watch_document(self.policy, self.state, self.watch, self.matches) | {"remarks": list(self.remarks)}

    def to_html(self, path: str | Path) -> None:
        """Write a page with the time line."""
        from calibrant.report import write_watch

        write_watch(path, self.document)


def _batch_entry(counts: BatchCounts, name: str, labels_only: bool) -> WatchedBatch:
    """The entry of a batch; its fingerprint is of its ids, or of its values and its name."""
    identity = f"name {name}" if counts.ids is None else counts.ids.hashes
    fingerprint = hashlib.sha256(f"{counts.looks} {identity}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return WatchedBatch(
        name=name,
        fingerprint=fingerprint,
        looks=counts.looks if counts.ids is None else None,
        added=datetime.date.today().isoformat(),
        samples=counts.samples,
        accepted=counts.accepted,
        implied_errors=counts.implied_errors,
        sketch=SketchEntry(**{key: value.tolist() for key, value in counts.sketch.items()}) if counts.sketch else None,
        shift=None if counts.shift is None else _shift_entry(counts.shift),
        labels_only=labels_only,
        ids=counts.ids,
    )


def _arrival(counts: BatchCounts, fingerprint: str) -> LabelArrival:
    groups = {group: KnownLabels(**vars(labelled)) for group, labelled in counts.groups.items()}
    return LabelArrival(batch=fingerprint, groups=groups, cost=counts.cost, **vars(counts.labelled))


def _seen_remark(name: str, counts: BatchCounts, new: int) -> str:
    """What became of the samples of a batch that were seen before."""
    total = counts.seen + counts.samples
    seen = f"all {total:,} samples were" if not counts.samples else f"{counts.seen:,} of {total:,} samples were"
    labels = f"{new:,} labels of answers are new" if new else "no label of an answer is new"
    return f"{name}: {seen} seen before and count once; {labels}"


def _shift_entry(shift: LabelShift) -> ShiftEntry:
    names = ("nll_before", "nll_after", "p_unchanged", "p_explained")
    values = {name: getattr(shift, name) if math.isfinite(getattr(shift, name)) else None for name in names}
    return ShiftEntry(
        priors=[min(1.0, float(prior)) for prior in shift.priors],
        samples=shift.samples,
        gain=shift.gain,
        p_value=shift.p_value,
        **values,
    )


def monitor(policy: Policy, *batches: Predictions, by_group: str | None = None, alpha: float = ALPHA) -> Monitor:
    """A watch on a policy that has seen these batches; see `Monitor`."""
    result = Monitor(policy, by_group=by_group, alpha=alpha)
    for batch in batches:
        result.update(batch)
    return result
