"""The part of ./dev bench evidence about policies: is the promise kept on samples that no part of the policy has seen?

A policy is fitted on one half of a file and judged on the other, for many random halves. Its true risk is unknown: the
other half only estimates it, with an error of its own. So two shares are counted: that of the splits whose observed
risk is above the target, which includes this error, and that of the splits where it is above beyond chance (an exact
one-sided binomial test at 5%). If the promise is kept, the latter is at most 5% for broken promises and 5% of the
others for chance, together `ALLOWED`.

`Policy.fit` spends most of its time on intervals that it reports and that decide nothing; they are left out here. The
first split of every file is fitted by `Policy.fit` too, and the two must decide alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks._evidence_files import LogitFile, Split, random_splits, read_logits
from calibrant import Policy, Predictions
from calibrant.base.arrays import Array, Doubles
from calibrant.base.checks import Bools, Ints
from calibrant.metrics import coverage_at_risk, wilson
from calibrant.policy import decision_formula, select
from calibrant.policy.fit import score_choice
from calibrant.policy.selection import collect_choice
from calibrant.posthoc import NumpyOps
from calibrant.predictions import Digits
from calibrant.promises import FEWEST_FOR_SCORE
from calibrant.promises.parts import ScoredSamples, plan_search
from calibrant.promises.split import draw_uniform, share_for_choice
from calibrant.promises.thresholds import abstaining_threshold

CONFIDENCE = 0.95
RISKS = (0.05, 0.01)
SPLITS = 200
LEVEL = 0.05  # of the test whether an observed risk is above the target
ALLOWED = (1 - CONFIDENCE) + CONFIDENCE * LEVEL


def measure_policies(data: Path, file: LogitFile, seed: int) -> dict[str, Any]:
    """What the policies of every split and target did on the other half."""
    logits, labels = read_logits(data, file.file)
    targets: dict[str, list[dict[str, Any]]] = {str(risk): [] for risk in RISKS}
    for number, split in enumerate(random_splits(logits, labels, SPLITS, seed)):
        policies = fit_policies(split)
        if number == 0:
            _check_same(policies[RISKS[0]], split)
        for risk, policy in policies.items():
            targets[str(risk)].append(_judge(policy, split, risk))
    return {"samples": len(labels), "splits": SPLITS, "seed": seed, "targets": targets}


def fit_policies(split: Split) -> dict[float, Policy]:
    """The policy of each target on the half to fit, as `Policy.fit` with its defaults makes it."""
    predictions = Predictions.from_logits(split.fit_logits, split.fit_labels)
    if len(predictions) < FEWEST_FOR_SCORE:
        return {risk: Policy.fit(predictions, risk, CONFIDENCE) for risk in RISKS}
    share = share_for_choice(len(predictions))
    digits = Digits(int(predictions.num_classes))
    chosen_on = collect_choice(predictions, 0, share, None, digits)
    selection = select(chosen_on, "logits", quick=True, floor=digits.floor)
    policy = Policy.model_construct(
        num_classes=int(predictions.num_classes),
        class_names=None,
        takes="logits",
        kind="classification",
        calibrator=selection.calibrator,
        score=selection.score,
        threshold=abstaining_threshold("best", RISKS[0], CONFIDENCE),
    )
    rest = draw_uniform(0, 0, len(predictions)) >= share
    score, correct = _score(policy, split.fit_logits[rest], split.fit_labels[rest])
    search_at = plan_search(ScoredSamples(score, correct), score_choice(policy, chosen_on), CONFIDENCE)
    return {risk: policy.model_copy(update={"threshold": search_at(risk)}) for risk in RISKS}


def _check_same(quick: Policy, split: Split) -> None:
    policy = Policy.fit(Predictions.from_logits(split.fit_logits, split.fit_labels), RISKS[0], CONFIDENCE)
    if (policy.threshold.value, str(policy.score)) != (quick.threshold.value, str(quick.score)):
        raise RuntimeError(f"Policy.fit has the threshold {policy.threshold.value}, here {quick.threshold.value}")


def _score(policy: Policy, logits: Array, labels: Ints) -> tuple[Doubles, Bools]:
    """The score of each row, and whether its answer is right."""
    answer = decision_formula(policy, NumpyOps(), logits.astype(np.float64))
    return np.asarray(answer.score)[:, 0], np.asarray(answer.label)[:, 0] == labels


def _judge(policy: Policy, split: Split, risk: float) -> dict[str, Any]:
    """Answers and errors on the other half, and the coverage of a clairvoyant with the same score."""
    score, correct = _score(policy, split.test_logits, split.test_labels)
    accept = score >= policy.threshold.value
    return {
        "samples": len(correct),
        "accepted": int(accept.sum()),
        "wrong": int((accept & ~correct).sum()),
        "clairvoyant": coverage_at_risk(score, correct, risk),
        "calibrator": "none" if policy.calibrator is None else policy.calibrator.name,
        "score": str(policy.score),
    }


def summarise(rows: list[dict[str, Any]], risk: float) -> dict[str, Any]:
    """Over all splits of a file: coverage, how often the promise was broken, and whether that is allowed."""
    keys = ("accepted", "wrong", "samples", "clairvoyant")
    accepted, wrong, samples, best = (np.array([row[key] for row in rows], dtype=np.float64) for key in keys)
    above = wrong > risk * accepted
    tail = stats.binom.sf(wrong - 1, accepted, risk)  # P(at least as many errors, if the risk were the target)
    beyond = (accepted > 0) & (tail < LEVEL)
    low, high = (float(limit) for limit in wilson(int(beyond.sum()), len(rows)))
    return {
        "coverage": float((accepted / samples).mean()),
        "clairvoyant": float(best.mean()),
        "risk": float(wrong.sum() / max(1.0, accepted.sum())),
        "abstained": float((accepted == 0).mean()),
        "above": float(above.mean()),
        "beyond": float(beyond.mean()),
        "low": low,
        "high": high,
        "verdict": "holds" if high <= ALLOWED else "does not hold" if low > ALLOWED else "within noise",
    }
