r"""What the counts of a watch say: the evidence against the promise and against "nothing has changed", over time.

The chance of a false alarm, ever, is at most alpha: half of it is for the promise and half for changes that need no
labels, of which coverage, score, confidence and predicted class have a quarter each. Where groups are watched, half of
the promise's share is for all answers together and half for the groups, the g-th group that came having the share
:math:`w_g` of `start_weight`, as nobody knows in advance how many there will be.

Coverage was measured where the threshold was set, so its limits must hold for every threshold at once: the inequality
of Dvoretzky, Kiefer and Wolfowitz [Massart1990] gives them, at half of the coverage's alpha, and the other half is for
the evidence that the coverage is above the upper limit or below the lower one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrant.metrics import Interval
from calibrant.monitoring.batch import SKETCHED
from calibrant.monitoring.evidence import (
    LOG_BETS,
    EvidenceProcess,
    confidence_sequence,
    rank_cells,
    rate_ratios,
    seeded_generator,
    start_weight,
    total_variation,
)
from calibrant.monitoring.state import KnownLabels, WatchedBatch, WatchState
from calibrant.selective import Policy, coverage_interval

LOG10 = math.log(10)

NO_PROMISE = "The policy promises no error rate: it is estimated, and not tested."
#: Why the promise of a policy is not tested, where it is not about the error rate of answers.
UNTESTED = {
    "recall": "The promised recall needs the labels of samples that were not answered, and a watch has those of "
    "answers: judge it with calibrant apply on labelled samples.",
    "expected-risk": "An expected risk is an average over fits, which one policy may exceed: it is not tested, and the "
    "error rate of answers is estimated.",
}


@dataclass
class WatchTest:
    """A hypothesis that is watched: of the promise, the coverage, the score, the confidence or the predicted class."""

    name: str
    alpha: float  # its share of the chance of a false alarm
    group: str = ""  # that it is about, or empty
    evidence: list[float] = field(default_factory=list)  # log10 of E after every batch that counted
    batches: list[str] = field(default_factory=list)  # the names of these batches

    @property
    def limit(self) -> float:
        """log10 of E from which on there is an alarm."""
        return -math.log10(self.alpha)

    @property
    def since(self) -> str | None:
        """The batch at which the alarm was raised, or None."""
        over = (name for name, value in zip(self.batches, self.evidence, strict=True) if value >= self.limit)
        return next(over, None)

    def add(self, batch: str, log_value: float) -> None:
        """The evidence after a batch."""
        self.batches.append(batch)
        self.evidence.append(log_value / LOG10)


@dataclass
class RateWatch:
    """The error rate among answers, of all or of a group: its test, if there is a promise, and its estimates."""

    test: WatchTest | None  # of "at most the promised rate"
    alpha: float
    promised: float | None = None  # that rate; of a promised cost, the mean over the highest
    by_cost: bool = False  # whether the promise is of the mean cost, and not of the error rate
    cost: float = 0.0  # the sum of the costs over the highest, where it is
    rates: list[tuple[str, int, int]] = field(default_factory=list)  # errors and answers of every arrival of labels
    limits: list[Interval] = field(default_factory=list)  # the confidence sequence after every arrival
    errors: int = 0
    answers: int = 0
    _evidence: EvidenceProcess | None = None

    def add(self, batch: str, labels: KnownLabels, cost: float = 0.0) -> None:
        """Take in labels that became known, and what their answers cost."""
        if not labels.answers:
            return
        self.cost += cost
        self.errors, self.answers = self.errors + labels.errors, self.answers + labels.answers
        self.rates.append((batch, labels.errors, labels.answers))
        self.limits.append(confidence_sequence(self.errors, self.answers, self.alpha))
        if self.test is not None and self.promised is not None:
            # With costs in [0, 1] for errors each factor is convex in the cost, so that its mean is 1 at most too.
            ratios = rate_ratios(cost if self.by_cost else labels.errors, labels.answers, self.promised)
            self._evidence = self._evidence or EvidenceProcess(len(ratios))
            self._evidence.update(ratios)
            self.test.add(batch, float(self._evidence.log_value))


@dataclass
class Watch:
    """All that is watched, as `watch` computes it from a state."""

    promised: float | None
    overall: RateWatch
    groups: dict[str, RateWatch]
    changes: list[WatchTest]  # the tests without labels, those that could be made
    sizes: dict[str, Interval]  # total variation of the last batch from the reference, by what it is of
    coverage: Interval  # share answered, over all batches
    reference_coverage: Interval  # at the fit
    implied: float  # the risk that calibrated confidence implies, over all batches; NaN without answers
    untested: list[str]  # what cannot be tested, and why, in sentences
    by_class: bool = False  # whether groups are those of predicted classes

    @property
    def tests(self) -> list[WatchTest]:
        """Those of the promise first."""
        rates = [self.overall, *self.groups.values()]
        return [rate.test for rate in rates if rate.test is not None] + self.changes

    @property
    def alarms(self) -> list[WatchTest]:
        """The tests that raised an alarm."""
        return [test for test in self.tests if test.since is not None]


def watch(policy: Policy, state: WatchState) -> Watch:
    """Compute the evidence of a state."""
    promised, untested = policy.promised, []
    by_cost = policy.promise.of == "cost" and not policy.abstains
    if promised is None or not 0 < promised < 1:
        promised = None
        untested += [] if by_cost else [UNTESTED.get(policy.promise.of, NO_PROMISE)]
    overall, groups = _watch_rates(policy, state, promised)
    batches = [batch for batch in state.batches if not batch.labels_only]
    changes, sizes = [], {}
    coverage = _test_coverage(policy, state, batches)
    if isinstance(coverage, WatchTest):
        changes.append(coverage)
    else:
        untested.append(coverage)
    reference = policy.evidence.get("reference")
    if reference is None:
        untested.append(
            "The policy has no sketch of scores, confidences and classes, so a change of these cannot be tested: fit "
            "it again on 50 samples or more."
        )
    else:
        for name in SKETCHED:
            counts = [np.array(getattr(batch.sketch, name), np.int64) for batch in batches if batch.sketch is not None]
            pool = np.array(reference[name]["counts"], np.int64)
            changes.append(_test_exchangeability(name, state.alpha / 8, pool, counts, batches))
            if counts:
                sizes[name] = total_variation(pool, counts[-1])
    accepted, samples = sum(batch.accepted for batch in batches), sum(batch.samples for batch in batches)
    fitted = policy.threshold
    return Watch(
        promised, overall, groups, changes, sizes, coverage_interval(accepted, samples, 0.95),
        coverage_interval(fitted.accepted, fitted.samples, 0.95),
        sum(batch.implied_errors for batch in batches) / accepted if accepted else math.nan, untested,
        policy.classes is not None,
    )  # fmt: skip


def _watch_rates(policy: Policy, state: WatchState, promised: float | None) -> tuple[RateWatch, dict[str, RateWatch]]:
    has_parts = state.by_group is not None or policy.classes is not None
    share = state.alpha / 4 if has_parts else state.alpha / 2
    risks = {} if policy.classes is None else {name: part.target_risk for name, part in policy.parts.items()}
    has_test = promised is not None
    overall = RateWatch(WatchTest("promise", share) if has_test else None, state.alpha, promised)
    if policy.promise.of == "cost" and not policy.abstains:
        overall = RateWatch(WatchTest("promise", share), state.alpha, policy.promise.mean_loss, by_cost=True)
    groups: dict[str, RateWatch] = {}
    names = {batch.fingerprint: batch.name for batch in state.batches}
    for arrival in state.labels:
        overall.add(names[arrival.batch], arrival, arrival.cost)
        for name, labels in arrival.groups.items():
            if name not in groups and labels.answers:
                alpha = state.alpha / 4 * start_weight(len(groups) + 1)
                test = WatchTest("promise", alpha, name) if has_test else None
                groups[name] = RateWatch(test, state.alpha, risks.get(name, promised))
            if labels.answers:
                groups[name].add(names[arrival.batch], labels)
    return overall, groups


def _test_coverage(policy: Policy, state: WatchState, batches: Sequence[WatchedBatch]) -> WatchTest | str:
    """The test that the coverage is within its limits at the fit; a sentence where it cannot be made."""
    fitted, alpha = policy.threshold, state.alpha / 8
    thresholds = len(policy.limits)
    if not fitted.samples or policy.abstains:
        reason = "the policy never answers, or does not say on how many samples it was set"
        return f"The coverage cannot be tested: {reason}."
    # A threshold for every group: each of their shares of all samples has its own limits.
    reach = thresholds * math.sqrt(math.log(2 * thresholds / (alpha / 2)) / (2 * fitted.samples))
    share = fitted.accepted / fitted.samples
    high, low = share + reach, 1 - share + reach
    sides = [(rate, is_high) for rate, is_high in ((high, True), (low, False)) if rate < 1]
    if not sides:
        return "The coverage cannot be tested: the policy was fitted on too few samples to tell what it was."
    test, evidences = WatchTest("coverage", alpha / 2), [EvidenceProcess(len(rate_ratios(0, 0, 0.5))) for _ in sides]
    for batch in batches:
        if not batch.samples:
            continue
        for evidence, (rate, is_high) in zip(evidences, sides, strict=True):
            events = batch.accepted if is_high else batch.samples - batch.accepted
            evidence.update(rate_ratios(events, batch.samples, rate))
        logs = [float(evidence.log_value) for evidence in evidences]
        test.add(batch.name, float(np.logaddexp.reduce(logs)) - math.log(len(logs)))
    return test


def _test_exchangeability(
    name: str, alpha: float, pool: Any, counts: Sequence[Any], batches: Sequence[WatchedBatch]
) -> WatchTest:
    test, evidence = WatchTest(name, alpha), EvidenceProcess(len(LOG_BETS))
    counted = [batch for batch in batches if batch.sketch is not None]
    for batch, batch_counts in zip(counted, counts, strict=True):
        if batch_counts.sum():
            cells, pool = rank_cells(pool, batch_counts, seeded_generator(batch.fingerprint, name))
            evidence.update(LOG_BETS @ cells)
            test.add(batch.name, float(evidence.log_value))
    return test
