"""What a watch says, as plain values and sentences: what ``--json`` prints and the page draws."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np

from calibrant.base.files import json_value
from calibrant.base.numbers import allowed, count, fixed, number, percent, round_percent, significant, span_words
from calibrant.monitoring.batch import LARGEST_UNCHANGED, reference_priors
from calibrant.monitoring.state import KnownLabels, ShiftEntry, WatchState
from calibrant.monitoring.watch import RateWatch, Watch, WatchTest, breaking_looks, changed_looks
from calibrant.policy import Policy

#: A change of priors below this is not worth a correction.
SMALLEST_SHIFT = 0.02
LEAST_EXPLAINED = 0.1  # p-value from which on label shift explains a batch
FEWEST_JUDGED = 1000  # samples of a batch; fewer do not tell label shift from noise at the sensor
#: Classes that are listed, those that change most.
MOST_CLASSES = 12

ASSUMPTIONS = (
    "Samples are independent of each other, and those of different machines are different samples.",
    "Answers whose labels are known are a random sample of all answers: labels that come for doubtful cases first "
    "would raise false alarms.",
    "The risk that confidence implies is right only if confidence is still calibrated (no concept drift); a loss of "
    "accuracy at the same confidence is seen in labels alone.",
)
WITHOUT_IDS = "Batches without ids are told apart by their names: a sample that is in two of them counts twice."

#: What to do about an alarm of the promise, and about one of a change.
NEXT_PROMISE = (
    "Do not rely on the answers until the cause is known. If the model has to live with samples like these, fit the "
    "policy again on labelled ones, and watch the new policy in a state of its own; if the cause is repaired, record "
    "that with --acknowledge 'what was done', and the test starts anew."
)
NEXT_CHANGE = (
    "A change may or may not break the promise: label a random sample of the answers to find out. If the cause is "
    "known and repaired, record that with --acknowledge 'what was done', and the test starts anew."
)


def watch_document(
    policy: Policy, state: WatchState, watch: Watch, matches: dict[str, int] | None = None
) -> dict[str, Any]:
    """The whole watch; ``matches`` is how many labels were given at this look, and how many of them matched an id."""
    from calibrant import __version__

    alarms = [
        {
            "name": test.name,
            "group": test.group,
            "since": test.since,
            "text": _alarm_text(test, watch, state, policy),
            "breaking": _breaking(test, watch),
            "next": NEXT_PROMISE if test.name == "promise" else NEXT_CHANGE,
        }
        for test in watch.alarms
    ]
    reference = policy.evidence.get("reference")
    shift = _describe_shift(policy, state, watch)
    document = {
        "format": "calibrant.monitor",
        "version": 1,
        "calibrant": __version__,
        "created": datetime.date.today().isoformat(),
        "status": "alarm" if alarms else "quiet",
        "headline": _headline(watch, state),
        "policy": policy.summary,
        "promised_risk": watch.promised,
        "cost": _mean_cost(policy, watch),
        "alpha": state.alpha,
        "by_group": state.by_group if policy.classes is None else policy.part_column,
        "alarms": alarms,
        "acknowledged": [
            {
                "text": item.text,
                "date": item.date,
                "batches": item.batches,
                "tests": [vars(test) for test in item.tests],
            }
            for item in state.acknowledgements
        ],
        "late_labels": None if matches is None else matches | {"unmatched": matches["labels"] - matches["matched"]},
        "sentences": _sentences(policy, state, watch, matches),
        "risk": _rate_entries(watch.overall, ""),
        "groups": [_rate_entries(part, name) for name, part in watch.groups.items()],
        "tests": [_test_entries(test) for test in watch.tests],
        "coverage": vars(watch.coverage),
        "reference_coverage": vars(watch.reference_coverage),
        "implied_risk": watch.implied,
        "reference_implied_risk": None if reference is None else reference["implied_risk"],
        "total_variation": {name: vars(size) for name, size in watch.sizes.items()},
        "label_shift": shift,
        "batches": _batch_entries(state),
        "untested": watch.untested,
        "assumptions": [*ASSUMPTIONS, *[WITHOUT_IDS] * any(batch.ids is None for batch in state.batches)],
    }
    return json_value(document)


def _rate_entries(rate: RateWatch, group: str) -> dict[str, Any]:
    limits = rate.limits[-1] if rate.answers else None
    return {
        "group": group,
        "answers": rate.answers,
        "errors": rate.errors,
        "value": None if limits is None else limits.value,
        "low": None if limits is None else limits.low,
        "high": None if limits is None else limits.high,
        "test": None if rate.test is None else _test_entries(rate.test),
        "arrivals": [
            {"batch": batch, "errors": errors, "answers": answers, "low": limit.low, "high": limit.high,
             "value": limit.value}
            for (batch, errors, answers), limit in zip(rate.rates, rate.limits, strict=True)
        ],
    }  # fmt: skip


def _test_entries(test: WatchTest) -> dict[str, Any]:
    return {
        "name": test.name, "group": test.group, "alpha": test.alpha, "log10_limit": test.limit,
        "log10_evidence": test.evidence, "batches": test.batches if test.evidence else [], "alarm_since": test.since,
    }  # fmt: skip


def _batch_entries(state: WatchState) -> list[dict[str, Any]]:
    rows, labels = [], state.labels_by_batch()
    for batch in state.batches:
        labelled = labels.get(batch.fingerprint) or KnownLabels(answers=0, errors=0)
        rows.append({
            "name": batch.name, "added": batch.added, "samples": batch.samples, "accepted": batch.accepted,
            "coverage": batch.accepted / batch.samples if batch.samples else None,
            "implied_risk": batch.implied_errors / batch.accepted if batch.accepted else None,
            "answers_labelled": labelled.answers, "errors": labelled.errors,
            "risk": labelled.errors / labelled.answers if labelled.answers else None, "labels_only": batch.labels_only,
        })  # fmt: skip
    return rows


def _headline(watch: Watch, state: WatchState) -> str:
    if any(test.name == "promise" for test in watch.alarms):
        return "The promise is broken"
    if watch.alarms:
        return "The samples have changed since the policy was fitted"
    return "No alarm" if state.batches else "Nothing has been watched yet"


def _mean_cost(policy: Policy, watch: Watch) -> dict[str, float] | None:
    """What answers cost and may cost, on average; None where no cost is promised, or none is known."""
    rate, promise = watch.overall, policy.promise
    if not rate.by_cost or not rate.answers or promise.mean_loss is None:
        return None
    return {"mean": promise.scale * rate.cost / rate.answers, "promised": promise.promised_mean}


def _breaking(test: WatchTest, watch: Watch) -> dict[str, Any] | None:
    """The answers that broke the promise: of which batches, how many, and how many of them wrong."""
    if test.name != "promise":
        return None
    rate = watch.groups[test.group] if test.group else watch.overall
    parts = [rate.rates[look] for look in breaking_looks(rate)]
    names = list(dict.fromkeys(name for name, _, _ in parts))
    errors, answers = sum(part[1] for part in parts), sum(part[2] for part in parts)
    return {"batches": names, "errors": errors, "answers": answers, "value": errors / answers}


def _batch_words(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _alarm_text(test: WatchTest, watch: Watch, state: WatchState, policy: Policy) -> str:
    odds = f"The evidence has reached {_power(max(test.evidence[test.first :]))} to 1; the alarm begins at "
    odds += f"{_power(test.limit)} to 1."
    if test.name != "promise":
        return f"{_change_text(test, watch, state, policy)} {odds}"
    rate, cost = watch.groups[test.group] if test.group else watch.overall, _mean_cost(policy, watch)
    if rate.by_cost and cost is not None:
        return (
            f"An answer costs more than {cost['promised']:g} on average: {number(cost['mean'])} for "
            f"{count(rate.answers)} answers; seen at {test.since}. {odds}"
        )
    scope = f" in {test.group}" if test.group else ""
    if test.group and not watch.by_class:
        scope = f" in {state.by_group} {test.group}"
    breaking = _breaking(test, watch) or {}
    text = (
        f"{percent(breaking['value'])} of the answers of {_batch_words(breaking['batches'])}{scope} are wrong "
        f"({count(breaking['errors'])} of {count(breaking['answers'])}), and at most {allowed(rate.promised)} is "
        "promised."
    )
    if breaking["answers"] < rate.answers:
        text += f" Of all {count(rate.answers)} answers with labels{scope}, {percent(rate.errors / rate.answers)} are."
    return f"{text} {odds}"


def _change_text(test: WatchTest, watch: Watch, state: WatchState, policy: Policy) -> str:
    """What has changed in the batches that raised the alarm: in which direction, from what to what."""
    batches = [state.batches[test.at[look]] for look in changed_looks(test)]
    samples, words = sum(batch.samples for batch in batches), _batch_words([batch.name for batch in batches])
    if test.name == "coverage":
        share, fitted = sum(batch.accepted for batch in batches) / samples, watch.reference_coverage.value
        verb = "fewer" if share < fitted else "more"
        shares = f"{percent(share)} of {words}, against {percent(fitted)} at the fit"
        return f"The policy answers {verb} samples than before: {shares}."
    reference = (policy.evidence.get("reference") or {})[test.name]
    then = np.array(reference["counts"]) / sum(reference["counts"])
    sketches = [batch.sketch.counts(test.name) for batch in batches if batch.sketch is not None]
    now = np.sum(sketches, axis=0) / samples if sketches else then
    if test.name == "predicted":
        cell = int(np.argmax(np.abs(now - then)))
        # The last cell is of all other classes together.
        cells = [[k] for k in reference["classes"]]
        cells.append(sorted({*range(policy.num_classes)} - {*reference["classes"]}))
        k, number = cells[cell][0], len(cells[cell])
        name = policy.class_names[k] if policy.class_names else k
        what = f"The class {name} is" if number == 1 else f"The {count(number)} rarest classes together are"
        verb = "less often" if now[cell] < then[cell] else "more often"
        return (
            f"{what} predicted {verb} than at the fit: for {percent(now[cell])} of the samples of {words}, "
            f"against {percent(then[cell])} then."
        )
    below_now, below_then = np.cumsum(now)[:-1], np.cumsum(then)[:-1]
    if not len(below_now):
        return f"The {test.name} is not distributed as at the fit, seen at {words}."
    edge = int(np.argmax(np.abs(below_now - below_then)))
    verb = "lower" if below_now[edge] > below_then[edge] else "higher"
    value = percent(reference["edges"][edge]) if test.name == "confidence" else significant(reference["edges"][edge], 3)
    return (
        f"The {test.name} is {verb} than at the fit: it is below {value} for {percent(below_now[edge])} of the samples "
        f"of {words}, against {percent(below_then[edge])} then."
    )


def _power(log10: float) -> str:
    return count(round(10**log10)) if log10 < 6 else f"10^{math.floor(log10)}"


def _sentences(policy: Policy, state: WatchState, watch: Watch, matches: dict[str, int] | None = None) -> list[str]:
    samples = sum(batch.samples for batch in state.batches if not batch.labels_only)
    lines = [
        f"{count(len(state.batches))} batch{'es' * (len(state.batches) != 1)}, {count(samples)} samples; at most "
        f"{round_percent(state.alpha)} of such watches ever raise a false alarm, however often one looks."
    ]
    if matches is not None:
        unmatched = matches["labels"] - matches["matched"]
        share = (
            f"{count(matches['matched'])} of {count(matches['labels'])}" if unmatched else f"All {matches['labels']:,}"
        )
        others = f"; {count(unmatched)} match{'es' * (unmatched == 1)} none of its ids" if unmatched else ""
        lines.append(f"{share} labels that came later belong to samples of this watch{others}.")
    for item in [item for item in state.acknowledgements if item.tests][-1:]:
        lines.append(f"Alarms were acknowledged on {item.date} ({item.text}); their tests have started anew since.")
    rate = watch.overall
    if rate.answers:
        limits = rate.limits[-1]
        promise = "" if watch.promised is None else f"; at most {allowed(watch.promised)} is promised"
        lines.append(
            f"{percent(limits.value)} of all {count(rate.answers)} answers with labels are wrong "
            f"({span_words(limits.low, limits.high, 'share', limits.value)}, at all times){promise}."
        )
        if (cost := _mean_cost(policy, watch)) is not None:
            mean, promised = number(cost["mean"]), f"{cost['promised']:g}"
            lines.append(f"An answer costs {mean} on average; at most {promised} is promised.")
    else:
        since = " since then" if rate.limits else " yet"
        lines.append(f"No answer has a label{since}, so the promise itself cannot be tested.")
    if samples:
        fitted = watch.reference_coverage
        before = "" if math.isnan(fitted.value) else f", {percent(fitted.value)} at the fit"
        lines.append(f"{percent(watch.coverage.value)} of samples are answered{before}.")
    if not math.isnan(watch.implied):
        reference = (policy.evidence.get("reference") or {}).get("implied_risk")
        before = "" if reference is None else f" ({percent(reference)} at the fit)"
        lines.append(f"If confidence is still calibrated, {percent(watch.implied)} of answers are wrong{before}.")
    return lines


def _describe_shift(policy: Policy, state: WatchState, watch: Watch) -> dict[str, Any] | None:
    """The priors of the last batch that EM was run on, and whether a correction is advised."""
    reference = policy.evidence.get("reference")
    batch = next((b for b in reversed(state.batches) if b.shift is not None and not b.labels_only), None)
    if batch is None or batch.shift is None or reference is None or reference["labels"] is None:
        return None
    shift = batch.shift
    before, after = reference_priors(np.array(reference["labels"])), np.array(shift.priors)
    size = 0.5 * float(np.abs(after - before).sum())
    names = policy.class_names or [str(k) for k in range(policy.num_classes)]
    order = np.argsort(-np.abs(after - before), kind="stable")[:MOST_CLASSES]
    has_alarm = any(test.name == "predicted" for test in watch.alarms)
    offered, text = _judge_shift(shift, size, has_alarm, batch.name, batch.samples)
    return {
        "batch": batch.name, "samples": shift.samples, "gain": shift.gain, "p_value": shift.p_value,
        "p_unchanged": shift.p_unchanged, "p_explained": shift.p_explained,
        "total_variation": size, "nll_before": shift.nll_before, "nll_after": shift.nll_after,
        "offered": offered, "text": text,
        "classes": [{"name": names[k], "before": float(before[k]), "after": float(after[k])} for k in order],
    }  # fmt: skip


def _judge_shift(shift: ShiftEntry, size: float, has_alarm: bool, batch: str, samples: int) -> tuple[bool, str]:
    """Whether label shift, and nothing else, explains a batch, and a sentence that says so.

    The alarm of the predicted classes is valid at every look; without it, nothing is said to have changed, so that the
    chance of ever advising a correction where nothing has changed is that test's share of alpha.
    """
    effect = ""
    if shift.nll_before is not None and shift.nll_after is not None:
        verdict = "better" if shift.nll_after < shift.nll_before else "worse"
        nll = f"NLL {fixed(shift.nll_before, 4)} before, {fixed(shift.nll_after, 4)} after"
        effect = f" On the labels that are known, corrected probabilities are {verdict}: {nll}."
    if shift.p_unchanged is None:
        return False, (
            "Whether the shares of the classes have changed cannot be tested: the policy does not record how the "
            "samples of each class look; one that is fitted now, for at most 100 classes, does."
        )
    if not has_alarm or shift.p_unchanged >= LARGEST_UNCHANGED or size < SMALLEST_SHIFT:
        return False, "There is no sign that the shares of the classes have changed."
    if samples < FEWEST_JUDGED:
        return False, (
            f"The predicted classes have changed; a batch of {count(samples)} samples cannot tell whether different "
            f"shares of the classes are all that has changed; one of {count(FEWEST_JUDGED)} may."
        )
    if (shift.p_explained or 0.0) < LEAST_EXPLAINED:
        return False, (
            f"The predicted classes have changed, but different shares of the classes do not explain {batch}: the "
            "samples of a class look different from those at the fit. No correction is advised."
        )
    if effect and not (shift.nll_after or 0.0) < (shift.nll_before or 0.0):
        return False, f"Different shares of the classes would explain {batch}, but no correction is advised.{effect}"
    return True, (
        f"The shares of the classes have changed by {percent(size)}, which explains {batch}: the samples of each class "
        f"look as they did at the fit. Probabilities can be corrected for that with --corrected FILE.{effect}"
    )
