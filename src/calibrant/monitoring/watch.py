r"""What the counts of a watch say: the evidence against the promise and against "nothing has changed", over time.

The chance of a false alarm, ever, is at most alpha: half of it is for the promise and half for changes that need no
labels, of which coverage, score, confidence and predicted class have a quarter each. Where groups are watched, half of
the promise's share is for all answers together and half for the groups, the g-th group that came having the share
:math:`w_g` of `start_weight`, as nobody knows in advance how many there will be.

Coverage was measured where the threshold was set, so its limits must hold for every threshold at once: the inequality
of Dvoretzky, Kiefer and Wolfowitz [Massart1990] gives them, at half of the coverage's alpha, and the other half is for
the evidence that the coverage is above the upper limit or below the lower one.

**Acknowledged alarms.** A test whose alarm is acknowledged starts anew: its evidence is 1 again, counts before are not
part of it, and after the (k-1)-th acknowledgement its level is :math:`\alpha_k = 6 \alpha / (\pi k)^2`, from the first
start on. A false alarm after the k-th start is one before anything that the test is about is wrong for the samples that
came since. When a test is started anew depends on earlier samples alone, and the samples of now are independent of
these, so that E has a mean of at most 1 from there on too, and Ville's inequality bounds the chance by
:math:`\alpha_k`. Labels that come later, of batches from before the start, are therefore no part of the test. (For
ranks: given the samples of the fit, those of now are as likely to raise an alarm whenever the test starts, so that the
chance of a start and then an alarm is at most that of an alarm after a start at a fixed time.) The sum over all
starts is :math:`\sum_k \alpha_k = \alpha`, so the chance of any false alarm ever stays at most alpha, whatever is
acknowledged.

**What a look costs.** Evidence is carried on from look to look (`Running`): a look takes in the batches and labels that
are new, and what it costs does not depend on how many came before, but for reading and writing their counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibrant.metrics import Interval
from calibrant.monitoring.batch import SKETCHED
from calibrant.monitoring.evidence import (
    EXCESS,
    LOG_BETS,
    EvidenceProcess,
    confidence_sequence,
    rank_cells,
    rate_ratios,
    restart_share,
    seeded_generator,
    start_weight,
    total_variation,
)
from calibrant.monitoring.state import KnownLabels, Running, RunningRate, RunningTest, WatchedBatch, WatchState
from calibrant.policy import Policy
from calibrant.promises import coverage_interval

LOG10 = math.log(10)
DIGITS = 9  # of evidence and limits that are kept for the time line


@dataclass
class WatchTest:
    """A hypothesis that is watched: of the promise, the coverage, the score, the confidence or the predicted class."""

    name: str
    alpha: float  # its share of the chance of a false alarm, until its alarm is acknowledged
    group: str = ""  # that it is about, or empty
    evidence: list[float] = field(default_factory=list)  # log10 of E after every batch that counted
    batches: list[str] = field(default_factory=list)  # the names of these batches
    at: list[int] = field(default_factory=list)  # their positions, or those of the arrivals of labels
    first: int = 0  # the look with which the test started anew last
    alarm: int | None = None  # the look whose evidence raised the alarm

    @property
    def limit(self) -> float:
        """log10 of E from which on there is an alarm."""
        return -math.log10(self.alpha)

    @property
    def since(self) -> str | None:
        """The batch at which the alarm was raised, or None."""
        return None if self.alarm is None else self.batches[self.alarm]


@dataclass
class RateWatch:
    """The error rate among answers, of all or of a group: its test, if there is a promise, and its estimates."""

    test: WatchTest | None  # of "at most the promised rate"
    promised: float | None = None  # that rate; of a promised cost, the mean over the highest
    by_cost: bool = False  # whether the promise is of the mean cost, and not of the error rate
    cost: float = 0.0  # the sum of the costs over the highest, where it is
    rates: list[tuple[str, int, int]] = field(default_factory=list)  # errors and answers of every arrival of labels
    limits: list[Interval] = field(default_factory=list)  # the confidence sequence after every arrival
    errors: int = 0  # since the test started, as all of these sums
    answers: int = 0


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


class WatchRules:
    """What is tested of a policy, at which levels, by the names of `Running`."""

    def __init__(self, policy: Policy, state: WatchState):
        self.policy, self.alpha = policy, state.alpha
        promised = policy.promised
        self.promised = promised if promised is not None and 0 < promised < 1 else None
        self.by_cost = policy.promise.is_watched_by_loss and not policy.abstains
        self.has_parts = state.by_group is not None or policy.classes is not None
        self.reference = policy.evidence.get("reference")

    def rate_of(self, group: str | None) -> float | None:
        """The promised rate of a group, or of all answers; None without a test."""
        if group is None:
            return self.policy.promise.mean_loss if self.by_cost else self.promised
        if self.promised is None or self.policy.classes is None:
            return self.promised
        return self.policy.parts[group].target_risk if group in self.policy.parts else self.promised

    def rate_alpha(self, number: int) -> float:
        """The share of alpha of all answers together, number 0, or of the group that came as this one, from 1 on."""
        if not number:
            return self.alpha / (4 if self.has_parts else 2)
        return self.alpha / 4 * start_weight(number)

    def coverage_sides(self, level: float) -> list[tuple[float, bool]]:
        """The limits of the coverage: the highest share of samples answered, True, and of those not answered, False.

        They hold with probability 1 - level; a limit of 1 is left out.
        """
        fitted, thresholds = self.policy.threshold, len(self.policy.limits)
        # A threshold for every group: each of their shares of all samples has its own limits.
        reach = thresholds * math.sqrt(math.log(2 * thresholds / level) / (2 * fitted.samples))
        share = fitted.accepted / fitted.samples
        return [(rate, is_high) for rate, is_high in ((share + reach, True), (1 - share + reach, False)) if rate < 1]

    def untested_coverage(self) -> str | None:
        """Why the coverage cannot be tested, in a sentence."""
        if not self.policy.threshold.samples or self.policy.abstains:
            reason = "the policy never answers, or does not say on how many samples it was set"
            return f"The coverage cannot be tested: {reason}."
        if not self.coverage_sides(self.alpha / 16 * restart_share(1)):
            return "The coverage cannot be tested: the policy was fitted on too few samples to tell what it was."
        return None

    @property
    def changes(self) -> dict[str, float]:
        """The tests that need no labels, and their shares of alpha; the coverage spends as much again on its limits."""
        shares = {} if self.untested_coverage() else {"coverage": self.alpha / 16}
        return shares if self.reference is None else shares | dict.fromkeys(SKETCHED, self.alpha / 8)


def advance(policy: Policy, state: WatchState) -> None:
    """Take in what has come since the last look: batches, labels and acknowledgements, in their order."""
    rules, running = WatchRules(policy, state), state.running
    changes = rules.changes
    for name in changes:
        running.changes.setdefault(name, RunningTest())
    positions = {batch.fingerprint: k for k, batch in enumerate(state.batches)}
    pending = [*state.acknowledgements[running.acknowledgements :], None]
    for acknowledgement in pending:
        until_batch = len(state.batches) if acknowledgement is None else acknowledgement.batches
        until_labels = len(state.labels) if acknowledgement is None else acknowledgement.labels
        for number in range(running.batches, until_batch):
            if not state.batches[number].labels_only and state.batches[number].samples:
                _look_at_batch(rules, running, number, state.batches[number], changes)
        for number in range(running.labels, until_labels):
            arrival = state.labels[number]
            position = positions[arrival.batch]
            _look_at_labels(rules, running, None, number, position, arrival, arrival.cost)
            for group, labels in arrival.groups.items():
                _look_at_labels(rules, running, group, number, position, labels)
        running.batches, running.labels = max(running.batches, until_batch), max(running.labels, until_labels)
        if acknowledgement is not None:
            for test in acknowledgement.tests:
                rate = running.groups.get(test.group) if test.group else running.overall
                begun = rate if test.name == "promise" else running.changes.get(test.name)
                if begun is not None:
                    begun.restart(acknowledgement.batches)
            running.acknowledgements += 1


def _look_at_labels(
    rules: WatchRules, running: Running, group: str | None, number: int, position: int, labels: KnownLabels,
    cost: float = 0.0,
) -> None:  # fmt: skip
    """Take labels that became known, of the batch at a position, into the rate of a group, or of all answers."""
    if not labels.answers:
        return
    rate = running.overall if group is None else running.groups.setdefault(group, RunningRate())
    if position < rate.first_batch:
        return
    rate.cost, rate.errors, rate.answers = rate.cost + cost, rate.errors + labels.errors, rate.answers + labels.answers
    limits = confidence_sequence(rate.errors, rate.answers, rules.alpha)
    rate.at.append(number)
    rate.value.append(round(limits.value, DIGITS))
    rate.low.append(round(limits.low, DIGITS))
    rate.high.append(round(limits.high, DIGITS))
    promised = rules.rate_of(group)
    if promised is not None:
        # With costs in [0, 1] for errors each factor is convex in the cost, so that its mean is 1 at most too.
        is_cost = rules.by_cost and group is None
        ratios = rate_ratios(cost if is_cost else labels.errors, labels.answers, promised)
        alpha = rules.rate_alpha(0 if group is None else list(running.groups).index(group) + 1)
        _update(rate, [ratios], alpha)


def _look_at_batch(
    rules: WatchRules, running: Running, number: int, batch: WatchedBatch, changes: dict[str, float]
) -> None:
    """Take a batch into the tests that need no labels."""
    for name, alpha in changes.items():
        test = running.changes[name]
        if name == "coverage":
            sides = rules.coverage_sides(alpha * restart_share(test.restarts + 1))
            events = {True: batch.accepted, False: batch.samples - batch.accepted}
            ratios = [rate_ratios(events[is_high], batch.samples, rate) for rate, is_high in sides]
        elif batch.sketch is not None:
            pool = np.array(test.pool or rules.reference[name]["counts"], np.int64)  # type: ignore[index]
            counts = batch.sketch.counts(name)
            if counts.sum() != batch.samples or (counts < 0).any():
                raise ValueError(f"the sketch of {batch.name} must count all its samples")
            cells, pool = rank_cells(pool, counts, seeded_generator(batch.fingerprint, name))
            test.pool, ratios = pool.tolist(), [LOG_BETS @ cells]
        else:
            continue
        if ratios:
            test.at.append(number)
            _update(test, ratios, alpha)


def _update(test: RunningTest, log_ratios: list[Any], alpha: float) -> None:
    """Multiply the processes of a test by likelihood ratios; the evidence is their mean."""
    processes = [EvidenceProcess.restore(sums, test.looks) for sums in test.log_sums] or [
        EvidenceProcess(len(ratios)) for ratios in log_ratios
    ]
    for process, ratios in zip(processes, log_ratios, strict=True):
        process.update(ratios)
    test.looks, test.log_sums = test.looks + 1, [process.log_sums for process in processes]
    logs = [float(process.log_value) for process in processes]
    value = (float(np.logaddexp.reduce(logs)) - math.log(len(logs))) / LOG10
    test.evidence.append(round(value, DIGITS))
    if test.since is None and value >= -math.log10(alpha * restart_share(test.restarts + 1)):
        test.since = len(test.evidence) - 1


def check_running(policy: Policy, state: WatchState) -> None:
    """Refuse running evidence that is not of this policy's tests."""
    rules, running = WatchRules(policy, state), state.running
    shapes = {name: {(1, len(LOG_BETS))} for name in SKETCHED} | {"coverage": {(k, len(EXCESS)) for k in (1, 2)}}
    tests = [(shapes.get(name), test) for name, test in running.changes.items()]
    tests += [({(1, len(EXCESS))}, rate) for rate in (running.overall, *running.groups.values())]
    for name, test in running.changes.items():
        bins = None if rules.reference is None or name not in SKETCHED else len(rules.reference[name]["counts"])
        if name not in rules.changes or (test.pool and len(test.pool) != bins):
            raise ValueError("the running evidence is not of the policy's tests")
    for expected, test in tests:
        shape = (len(test.log_sums), *{len(sums) for sums in test.log_sums})
        if test.log_sums and shape not in (expected or ()):
            raise ValueError("the running evidence is not of the policy's tests")


def watch(policy: Policy, state: WatchState) -> Watch:
    """What a state says, all of which `advance` has taken in."""
    rules, running, untested = WatchRules(policy, state), state.running, list[str]()
    if rules.promised is None and not rules.by_cost:
        untested.append(policy.promise.untested)
    overall = _rate_watch(rules, state, running.overall)
    groups = {
        name: _rate_watch(rules, state, rate, name, k + 1) for k, (name, rate) in enumerate(running.groups.items())
    }
    reason = rules.untested_coverage()
    untested += [] if reason is None else [reason]
    changes = [_watch_test(state, name, alpha, running.changes.get(name)) for name, alpha in rules.changes.items()]
    sizes = {}
    if rules.reference is None:
        untested.append(
            "The policy has no sketch of scores, confidences and classes, so a change of these cannot be tested: fit "
            "it again on 50 samples or more."
        )
    else:
        last = next((b for b in reversed(state.batches) if b.sketch is not None and not b.labels_only), None)
        for name in SKETCHED if last is not None and last.samples else ():
            counts = last.sketch.counts(name)  # type: ignore[union-attr]
            sizes[name] = total_variation(np.array(rules.reference[name]["counts"], np.int64), counts)
    batches = [batch for batch in state.batches if not batch.labels_only]
    accepted, samples = sum(batch.accepted for batch in batches), sum(batch.samples for batch in batches)
    fitted = policy.threshold
    return Watch(
        rules.promised, overall, groups, changes, sizes, coverage_interval(accepted, samples, 0.95),
        coverage_interval(fitted.accepted, fitted.samples, 0.95),
        sum(batch.implied_errors for batch in batches) / accepted if accepted else math.nan, untested,
        policy.classes is not None,
    )  # fmt: skip


def _watch_test(state: WatchState, name: str, alpha: float, test: RunningTest | None, group: str = "") -> WatchTest:
    """A test with the names of its batches."""
    test = test or RunningTest()
    if name == "promise":
        names = {batch.fingerprint: batch.name for batch in state.batches}
        batches = [names[state.labels[number].batch] for number in test.at]
    else:
        batches = [state.batches[number].name for number in test.at]
    alpha *= restart_share(test.restarts + 1)
    first = len(test.at) - test.looks
    return WatchTest(name, alpha, group, list(test.evidence), batches, list(test.at), first, test.since)


def _rate_watch(
    rules: WatchRules, state: WatchState, rate: RunningRate, group: str | None = None, number: int = 0
) -> RateWatch:
    """The rate of a group, or of all answers, with the names of the batches of its labels."""
    promised = rules.rate_of(group)
    test = _watch_test(state, "promise", rules.rate_alpha(number), rate, group or "")
    rates = []
    for name, at in zip(test.batches, rate.at, strict=True):
        labels = state.labels[at] if group is None else state.labels[at].groups[group]
        rates.append((name, labels.errors, labels.answers))
    limits = [Interval(*ends) for ends in zip(rate.value, rate.low, rate.high, strict=True)]
    is_cost = rules.by_cost and group is None
    return RateWatch(
        None if promised is None else test, promised, is_cost, rate.cost, rates, limits, rate.errors, rate.answers
    )


def breaking_looks(rate: RateWatch) -> list[int]:
    """The arrivals of labels whose answers raised the alarm: up to it, the strongest evidence together."""
    test = rate.test
    if test is None or test.alarm is None or rate.promised is None:
        return []
    if rate.by_cost:
        return [test.alarm]
    looks = range(test.first, test.alarm + 1)
    counts = np.array([rate.rates[look][1:] for look in looks], np.float64)
    errors, answers = np.cumsum(counts[::-1], axis=0)[::-1].T
    weights = np.log([start_weight(j + 1) for j in range(len(looks))])
    strength = rate_ratios(errors, answers, rate.promised).max(1) + weights
    return list(looks[int(np.argmax(strength)) :])


def changed_looks(test: WatchTest) -> range:
    """The looks whose samples raised the alarm of a change: up to it, from where the evidence was lowest before."""
    alarm = test.alarm or 0
    before = [0.0, *test.evidence[test.first : alarm]]
    return range(test.first + int(np.argmin(before)), alarm + 1)
