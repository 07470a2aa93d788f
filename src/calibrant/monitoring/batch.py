r"""A batch of predictions as a watch counts it: what the policy answers, how it looks, and which answers are wrong.

**Label shift.** New priors of the classes by EM, and probabilities corrected for them [Saerens2002, Eq. 2.4 and 2.9].
If only the shares of the classes have changed, from :math:`\pi` to :math:`\pi'`, and the probabilities p(k|x) were
calibrated, those of now are proportional to :math:`p(k|x) \pi'_k / \pi_k`. EM finds the :math:`\pi'` that maximise the
likelihood of the inputs, relative to the old priors :math:`\sum_x \log \sum_k p(k|x) \pi'_k / \pi_k`:

.. math:: p'(k|x) = \frac{p(k|x) \pi'_k/\pi_k}{\sum_l p(l|x) \pi'_l/\pi_l}, \qquad
          \pi'_k \leftarrow \frac1n \sum_x p'(k|x)

EM maximises the same likelihood whatever has happened to the samples: with noise at the sensor, or with a score that
knows nothing of the classes, it finds other priors too. So a test of its own asks two questions that need no calibrated
probabilities, of the counts in the bins of the policy's sketch (`shift_p_values`): are the classes that the batch is
predicted to have distributed as at the fit, and if not, is the batch what the samples *of each class* at the fit give
when they are mixed in the new shares? Only with no to the first and yes to the second are corrected probabilities
advised, and nothing is corrected by itself: where the samples of a class look different, a correction makes
probabilities worse.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincc

from calibrant.base.arrays import join_rows
from calibrant.base.checks import Ints
from calibrant.base.progress import Progress, silent, track
from calibrant.metrics import Doubles
from calibrant.monitoring.state import NOT_WAITING, Hashes, SeenIds, hash_ids, id_text
from calibrant.policy import Policy, bin_counts, class_counts, decision_chunks
from calibrant.predictions import (
    IGNORED,
    LOCAL,
    PassEngine,
    Piece,
    Predictions,
    check_group,
    refuse_weights,
    resolve_repeats,
)

#: Samples that new priors are estimated on, and numbers of them.
MOST_ROWS, MOST_NUMBERS = 20_000, 2**22
UNKNOWN = -1  # the label of a sample whose label is not known
SKETCHED = ("score", "confidence", "predicted")
MOST_STEPS, TOLERANCE = 1000, 1e-9  # of EM; of the log-likelihood per sample
FLOOR = 1e-12  # of probabilities
#: P-value below which predicted classes are not as at the fit: so clearly that a test of the same size can tell whether
#: other shares of the classes explain it.
LARGEST_UNCHANGED = 0.001
REPLICATES = 1999  # of the bootstrap of how well a mixture fits


@dataclass(frozen=True)
class LabelShift:
    """New priors, and how much better they explain the samples.

    Attributes:
        priors: ``[C]``.
        before: ``[C]`` the priors at the fit.
        samples: how many they were estimated on.
        gain: of the log-likelihood per sample, in nats.
        p_value: of the likelihood-ratio test of "the priors are the same", for one look; compare it with a level
            once, not at every batch.
        nll_before: mean negative log-likelihood of the labels that are known, NaN without any.
        nll_after: the same with corrected probabilities.
        p_unchanged: of the test that the classes are predicted as often as at the fit; NaN where it cannot be made.
        p_explained: of the test that the batch is a mixture, in these priors, of what each class gave at the fit.
    """

    priors: Doubles
    before: Doubles
    samples: int
    gain: float
    p_value: float
    nll_before: float = math.nan
    nll_after: float = math.nan
    p_unchanged: float = math.nan
    p_explained: float = math.nan


def reference_priors(labels: Ints) -> Doubles:
    """The shares of the classes at the fit, none of them 0."""
    counts = np.asarray(labels, dtype=np.float64) + 0.5
    return counts / counts.sum()


def correct(probabilities: Doubles, before: Doubles, priors: Doubles) -> Doubles:
    """Probabilities ``[N, C]`` as they would be with other priors."""
    weighted = np.maximum(probabilities, FLOOR) * (priors / before)
    return weighted / weighted.sum(1, keepdims=True)


def estimate_label_shift(probabilities: Doubles, before: Doubles, labels: Ints | None = None) -> LabelShift:
    """The priors that explain the samples best.

    Args:
        probabilities: ``[N, C]``, calibrated.
        before: ``[C]`` the priors at the fit.
        labels: ``[N]``, -1 where unknown; they judge the correction, and do not enter it.

    Example:
        >>> sure = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> estimate_label_shift(sure, np.array([0.5, 0.5])).priors.round(3).tolist()
        [0.75, 0.25]
    """
    p = np.maximum(probabilities, FLOOR)
    priors, previous = before.copy(), 0.0
    for step in range(MOST_STEPS):
        weighted = p * (priors / before)
        sums = weighted.sum(1, keepdims=True)
        value = float(np.log(sums).mean())
        if step and value - previous < TOLERANCE:
            break
        priors, previous = (weighted / sums).mean(0), value
    # That none of n samples seems to be of a class does not show that there is none: its share is 0 no more than at
    # the fit. With 0, a sample of that class would be impossible, and its likelihood infinite.
    priors = np.maximum(priors, np.minimum(before, 0.5 / (len(p) + 0.5 * len(before))))
    priors /= priors.sum()
    gain = max(0.0, float(np.log((p * (priors / before)).sum(1)).mean()))
    degrees = len(before) - 1
    p_value = float(gammaincc(degrees / 2, gain * len(p)))  # of chi squared, twice the gain of all samples
    shift = LabelShift(priors, before, len(p), gain, p_value)
    if labels is None or not (labels >= 0).any():
        return shift
    rows = np.flatnonzero(labels >= 0)
    nll = [-float(np.log(q[rows, labels[rows]]).mean()) for q in (p, correct(p, before, priors))]
    return replace(shift, nll_before=nll[0], nll_after=nll[1])


def shift_p_values(reference: Mapping[str, Any], sketch: Mapping[str, Ints], priors: Doubles) -> tuple[float, float]:
    """P-values of "predicted classes are as at the fit" and of "label shift explains the batch", NaN without a sketch.

    The second is the smallest of score, confidence and predicted class, times three; it is asked where the first is
    below `LARGEST_UNCHANGED`.

    Args:
        reference: the policy's sketch, with ``by_class``.
        sketch: the counts of the batch in the same bins.
        priors: ``[C]`` the shares in which the classes are mixed.
    """
    if not reference.get("by_class") or not sketch or not sketch["predicted"].sum():
        return math.nan, math.nan
    at_fit = np.array(reference["predicted"]["counts"])[None]
    unchanged = mixture_p_value(at_fit, np.ones(1), sketch["predicted"])
    if unchanged >= LARGEST_UNCHANGED:
        return unchanged, math.nan
    parts = [mixture_p_value(np.array(reference["by_class"][name]), priors, sketch[name]) for name in SKETCHED]
    return unchanged, min(1.0, len(parts) * min(parts))


def mixture_p_value(parts: Ints, weights: Doubles, counts: Ints) -> float:
    """P-value of "counts are drawn from the mixture of the distributions that these parts were drawn from".

    The statistic is a sum of squares over bins, each over its variance, in which the parts are as uncertain as they are
    small; its distribution is that of a parametric bootstrap.

    Args:
        parts: ``[K, bins]`` counts.
        weights: ``[K]`` that sum to 1.
        counts: ``[bins]``.
    """
    random = np.random.default_rng(0)
    # One sample more for each part, drawn from all of them: no bin is impossible, and a part may have no sample at all.
    more = parts + (parts.sum(0) + 0.5) / (parts.sum() + 0.5 * parts.shape[1])
    sizes = parts.sum(1) + 1
    shares = more / more.sum(1, keepdims=True)
    samples, expected = int(counts.sum()), weights @ shares
    variance = expected * (1 - expected) / samples + weights**2 @ (shares * (1 - shares) / sizes[:, None])
    variance = np.maximum(variance, 1 / samples**2)

    def statistic(observed: Doubles, mixed: Doubles) -> Doubles:
        result: Doubles = ((observed - mixed) ** 2 / variance).sum(-1)
        return result

    mixed = np.zeros((REPLICATES, parts.shape[1]))
    for weight, share, size in zip(weights, shares, sizes, strict=True):
        mixed += weight * random.multinomial(size, share / share.sum(), REPLICATES) / size
    drawn = random.multinomial(samples, expected / expected.sum(), REPLICATES) / samples
    as_large = statistic(drawn, mixed) >= statistic(counts / samples, expected)
    return float((1 + as_large.sum()) / (1 + REPLICATES))


@dataclass
class Labelled:
    """Answers whose labels are known, and how many of them are wrong."""

    answers: int = 0
    errors: int = 0

    def add(self, answers: int, errors: int) -> None:
        """Count more of them."""
        self.answers += answers
        self.errors += errors


@dataclass
class BatchCounts:
    """All that a watch keeps of a batch: of the samples that it has not seen before, and the labels of the others."""

    looks: str = ""  # a checksum of its values and ids, whatever its labels are
    ids: SeenIds | None = None  # of the samples that are counted
    seen: int = 0  # samples of the batch that were counted before
    late: tuple[Hashes, Ints] | None = None  # ids and labels of those, where they are known
    samples: int = 0
    accepted: int = 0
    implied_errors: float = 0.0  # the sum of 1 - confidence over answers
    labelled: Labelled = field(default_factory=Labelled)
    cost: float = 0.0  # of labelled answers, the sum over the highest, where the policy promises a cost
    groups: dict[str, Labelled] = field(default_factory=dict)  # labelled answers by group
    sketch: dict[str, Ints] = field(default_factory=dict)  # counts in the policy's bins; empty if it has none
    shift: LabelShift | None = None  # the estimated priors, if they could be estimated

    def absorb(self, other: BatchCounts) -> None:
        """Add the counts of samples that come after these; checksum, ids and shift are of all together."""
        self.looks = ""
        self.seen += other.seen
        if self.late is not None and other.late is not None:
            self.late = np.concatenate([self.late[0], other.late[0]]), np.concatenate([self.late[1], other.late[1]])
        self.samples += other.samples
        self.accepted += other.accepted
        self.implied_errors += other.implied_errors
        self.labelled.add(other.labelled.answers, other.labelled.errors)
        self.cost += other.cost
        for name, labelled in other.groups.items():
            self.groups.setdefault(name, Labelled()).add(labelled.answers, labelled.errors)
        for name, counts in other.sketch.items():
            self.sketch[name] = self.sketch.get(name, 0) + counts


@dataclass(frozen=True, eq=False)
class DecidedRows:
    """Some samples: what the policy says of each, its label or `UNKNOWN`, its group, the hash of its id."""

    predicted: Ints
    confidence: Doubles
    score: Doubles
    accept: npt.NDArray[np.bool_]
    probabilities: Doubles
    labels: Ints
    groups: npt.NDArray[np.str_] | None
    hashes: Hashes | None = None

    def where(self, mask: npt.NDArray[np.bool_]) -> DecidedRows:
        """Some of them."""
        columns: Any = {name: None if column is None else column[mask] for name, column in vars(self).items()}
        return DecidedRows(**columns)


def decide_rows(
    policy: Policy, parts: Iterable[Predictions], by_group: str | None = None, labels: Mapping[str, int] | None = None
) -> Iterator[DecidedRows]:
    """The samples of a batch, some at a time, and what the policy says of them."""
    for batch in parts:
        truth = _labels(batch, labels)
        names = None if by_group is None else np.asarray(batch.groups[by_group]).astype(str)
        group_names = None if policy.group is None else np.asarray(batch.groups[policy.group]).astype(str)
        numbers = None if group_names is None else policy.group_numbers(group_names)
        hashes = None if batch.ids is None else hash_ids(batch.ids.tolist())
        for rows, answer in decision_chunks(policy, batch.data.values, numbers):
            inside = None if names is None else names[rows]
            if policy.classes is not None:
                inside = class_parts(policy, None if group_names is None else group_names[rows], answer.label[:, 0])
            yield DecidedRows(
                answer.label[:, 0].astype(np.int64), np.clip(answer.confidence[:, 0], 0.0, 1.0), answer.score[:, 0],
                answer.accept[:, 0].astype(bool), answer.probabilities, truth[rows], inside,
                None if hashes is None else hashes[rows],
            )  # fmt: skip


def class_parts(policy: Policy, groups: npt.NDArray[np.str_] | None, predicted: Ints) -> npt.NDArray[np.str_]:
    """The name of the part, with a threshold of its own, that each sample belongs to; others are never answered."""
    names = np.array([*policy.parts, "none"])
    return names[policy.part_numbers(groups, predicted)]


def _labels(batch: Predictions, late: Mapping[str, int] | None) -> Ints:
    """Each sample's label; those that came later, by id, win."""
    labels = np.full(len(batch), UNKNOWN, np.int64)
    if batch.labels is not None:
        labels = np.where(batch.labels == batch.ignore_index, UNKNOWN, batch.labels).astype(np.int64)
    if late is not None:
        arrived = np.array([late.get(id_text(name), UNKNOWN) for name in batch.ids.tolist()], np.int64)
        labels = np.where(arrived == UNKNOWN, labels, arrived)
    return labels


def count_batch(
    policy: Policy,
    predictions: Predictions,
    *,
    by_group: str | None = None,
    labels: Mapping[str, int] | None = None,
    seen: Hashes | None = None,
    repeats: str | None = None,
    progress: Progress = silent,
    engine: PassEngine = LOCAL,
) -> BatchCounts:
    """Count a batch; the arguments are those of `Monitor` and `Monitor.update`.

    ``seen`` are the hashes of the ids that were counted before, in rising order: these samples count no more, and their
    labels are handed on.
    """
    policy.check(predictions)
    refuse_weights(predictions, "a watch")
    predictions = resolve_repeats(predictions, repeats, engine)
    if by_group is not None:
        check_group(predictions, by_group)
    if labels is not None and "ids" not in predictions._store.names:
        raise ValueError("labels that come later are matched by id, and the predictions have no ids")
    labels = None if labels is None else {id_text(name): label for name, label in labels.items()}
    work = partial(count_piece, policy=policy, by_group=by_group, labels=labels, seen=seen)
    parts = list(engine.run(work, predictions, "reading", progress))
    counts = merge_counts(parts)
    if not counts.looks:  # which several pieces cannot make, each for itself
        (counts.looks,) = engine.run(fingerprint_of, predictions, "recognising", progress, is_whole=True)
    reference = policy.evidence.get("reference")
    if reference is not None and reference["labels"] is not None and counts.samples:
        samples, most = [rows for part in parts for rows in part.for_shift], _most_for_shift(policy)
        probabilities = np.concatenate([part.probabilities for part in samples])[:most]
        truth = np.concatenate([part.labels for part in samples])[:most]
        priors = reference_priors(np.asarray(reference["labels"]))
        shift = estimate_label_shift(probabilities, priors, truth)
        unchanged, explained = shift_p_values(reference, counts.sketch, shift.priors)
        counts.shift = replace(shift, p_unchanged=unchanged, p_explained=explained)
    return counts


def _most_for_shift(policy: Policy) -> int:
    return min(MOST_ROWS, MOST_NUMBERS // policy.num_classes)


class IdentifiedRows(NamedTuple):
    """Samples with ids that count: their hashes, what was answered where the label is not known, their groups."""

    hashes: Hashes
    waiting: Ints
    groups: npt.NDArray[np.str_]  # empty texts where there are no groups

    @classmethod
    def of(cls, rows: DecidedRows, hashes: Hashes) -> IdentifiedRows:
        """What is kept of some samples."""
        waiting = np.where(rows.accept & (rows.labels == UNKNOWN), rows.predicted, NOT_WAITING)
        return cls(hashes, waiting, np.zeros(len(hashes), np.str_) if rows.groups is None else rows.groups)


@dataclass
class PieceCounts:
    """What is counted of consecutive samples of a batch; ``counts`` has neither ids nor shift, which are of all."""

    counts: BatchCounts
    identified: list[IdentifiedRows]  # where there are ids
    for_shift: list[DecidedRows]  # as many of the first as may be among those that new priors are estimated on
    has_groups: bool


def count_piece(
    piece: Piece, policy: Policy, by_group: str | None, labels: Mapping[str, int] | None, seen: Hashes | None
) -> Iterator[PieceCounts]:
    """Count a piece of a batch; the arguments are those of `count_batch`."""
    counts, reference = BatchCounts(), policy.evidence.get("reference")
    part = PieceCounts(counts, [], [], has_groups=False)
    most = _most_for_shift(policy)
    if piece.start - (0 if seen is None else len(seen)) >= most:
        most = 0  # the samples before are enough, whichever of them were seen
    late = [(np.empty(0, np.uint64), np.empty(0, np.int64))]
    fingerprint, batches = BatchFingerprint(), (batch for _, batch in piece.batches())
    for rows in decide_rows(policy, fingerprint.of(batches) if piece.is_whole else batches, by_group, labels):
        if rows.hashes is not None:
            is_seen = is_in(rows.hashes, seen)
            is_late = is_seen & (rows.labels != UNKNOWN)
            late.append((rows.hashes[is_late], rows.labels[is_late]))
            counts.seen += int(is_seen.sum())
            rows = rows.where(~is_seen)  # what follows is about the others
            assert rows.hashes is not None
            part.identified.append(IdentifiedRows.of(rows, rows.hashes))
            part.has_groups = rows.groups is not None
        _count(counts, rows, reference)
        counts.cost += sum_costs(policy, rows.labels, rows.predicted, rows.accept & (rows.labels != UNKNOWN))
        if sum(len(kept.labels) for kept in part.for_shift) < most:
            part.for_shift.append(rows)
    counts.looks = str(fingerprint) if piece.is_whole else ""
    if "ids" in piece.predictions._store.names:
        counts.late = np.concatenate([part for part, _ in late]), np.concatenate([part for _, part in late])
    yield part


def merge_counts(parts: Sequence[PieceCounts]) -> BatchCounts:
    """The counts of all pieces together, in their order."""
    total = parts[0].counts
    for part in parts[1:]:
        total.absorb(part.counts)
    rows = [rows for part in parts for rows in part.identified]
    if total.late is not None:
        identified = join_rows(rows)
        has_groups = any(part.has_groups for part in parts)
        total.ids = SeenIds.of(identified.hashes, identified.waiting, identified.groups if has_groups else None)
    return total


def fingerprint_of(piece: Piece) -> Iterator[str]:
    """The checksum of a whole batch."""
    fingerprint = BatchFingerprint()
    for _ in fingerprint.of(batch for _, batch in piece.batches()):
        pass
    yield str(fingerprint)


def is_in(hashes: Hashes, seen: Hashes | None) -> npt.NDArray[np.bool_]:
    """Which hashes are among some that rise."""
    if seen is None or not len(seen):
        return np.zeros(len(hashes), np.bool_)
    positions = np.minimum(np.searchsorted(seen, hashes), len(seen) - 1)
    found: npt.NDArray[np.bool_] = seen[positions] == hashes
    return found


def sum_costs(policy: Policy, labels: Ints, predicted: Ints, paid: npt.NDArray[np.bool_]) -> float:
    """What answers cost together, over the highest cost; 0 where no cost is promised."""
    if not policy.promise.is_watched_by_loss:
        return 0.0
    _, losses = policy.promise.losses(labels[paid], predicted[paid], np.ones(int(paid.sum()), np.bool_))
    return float(losses.sum())


def _count(counts: BatchCounts, rows: DecidedRows, reference: Mapping[str, Any] | None) -> None:
    answers = rows.accept & (rows.labels != UNKNOWN)
    is_wrong = answers & (rows.labels != rows.predicted)
    counts.samples += len(rows.labels)
    counts.accepted += int(rows.accept.sum())
    counts.implied_errors += float((1 - rows.confidence[rows.accept]).sum())
    counts.labelled.add(int(answers.sum()), int(is_wrong.sum()))
    if rows.groups is not None:
        for name in np.unique(rows.groups).tolist():
            inside = rows.groups == name
            counts.groups.setdefault(name, Labelled()).add(int(answers[inside].sum()), int(is_wrong[inside].sum()))
    if reference is not None:
        added = {name: bin_counts(getattr(rows, name), reference[name]["edges"]) for name in ("score", "confidence")}
        added["predicted"] = class_counts(rows.predicted, reference["predicted"]["classes"])
        counts.sketch = {name: counts.sketch.get(name, 0) + added[name] for name in SKETCHED}


class BatchFingerprint:
    """A checksum of values and ids, by which a batch is known again when its labels have come."""

    def __init__(self) -> None:
        self._values, self._ids, self._rows = hashlib.sha256(), hashlib.sha256(), 0

    def of(self, parts: Iterable[Predictions]) -> Iterator[Predictions]:
        """The same parts of a batch, each taken in as it passes."""
        for part in parts:
            self._values.update(np.ascontiguousarray(part.data.values, dtype=np.float64).tobytes())
            if part.ids is not None:
                names = "".join(f"{name}\0" for name in part.ids.tolist())
                self._ids.update(names.encode("utf-8", "surrogatepass"))
            self._rows += len(part)
            yield part

    def __str__(self) -> str:
        parts = f"{self._rows}:{self._values.hexdigest()}:{self._ids.hexdigest()}"
        return hashlib.sha256(parts.encode()).hexdigest()[:32]


def correct_predictions(
    policy: Policy, predictions: Predictions, shift: LabelShift, *, progress: Progress = silent
) -> Predictions:
    """The policy's calibrated probabilities, corrected for the priors of a shift; unknown labels are ignored ones."""
    parts = track(predictions.batches(), "correcting", len(predictions), progress, size=len)
    rows = list(decide_rows(policy, parts))
    probabilities = np.concatenate([correct(part.probabilities, shift.before, shift.priors) for part in rows])
    labels = np.concatenate([part.labels for part in rows])
    return Predictions.from_probabilities(
        probabilities,
        np.where(labels == UNKNOWN, IGNORED, labels),
        ids=predictions.ids,
        groups=predictions.groups or None,
        class_names=policy.class_names,
        ignore_index=IGNORED,
    )
