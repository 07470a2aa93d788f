"""Tests of ./dev bench evidence on small numbers: intervals, counts, rules, and the comparison with the page."""

import numpy as np
import pytest

from benchmarks._evidence_claims import over_files
from benchmarks._evidence_files import Split, interval_over_splits, random_splits, verdict
from benchmarks._evidence_networks import PAIRED, _drawn_metrics
from benchmarks._evidence_policies import ALLOWED, RISKS, fit_policies, summarise
from benchmarks._evidence_repairs import former_rule, least_rule, one_error_rule, regret
from benchmarks._evidence_rows import is_close, policy_rows
from calibrant import Policy, Predictions
from calibrant.metrics import Interval, aurc, coverage_at_risk, e_aurc
from tests.helpers.policies import drawn


def test_interval_over_splits_by_hand():
    """Of 1, 2, 3: mean 2, standard deviation 1, times sqrt(1/3 + 1), times t(0.975, 2) = 4.302653."""
    interval = interval_over_splits([1.0, 2.0, 3.0])
    assert interval.value == 2.0
    assert interval.high - 2.0 == pytest.approx(4.302653 * (4 / 3) ** 0.5, rel=1e-6)
    assert over_files([1.0, 2.0, 3.0]).high - 2.0 == pytest.approx(4.302653 / 3**0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("limits", "sign", "word"),
    [((0.1, 0.3), 1, "holds"), ((0.1, 0.3), -1, "does not hold"), ((-0.1, 0.3), 1, "within noise")],
)
def test_verdicts(limits, sign, word):
    assert verdict(Interval(sum(limits) / 2, *limits), sign) == word


def test_splits_are_halves_and_do_not_depend_on_their_number():
    logits, labels = np.arange(22.0).reshape(11, 2), np.arange(11)
    few, many = (list(random_splits(logits, labels, count, 3)) for count in (2, 5))
    assert (few[1].fit_labels == many[1].fit_labels).all()
    assert sorted([*few[0].fit_labels, *few[0].test_labels]) == list(range(11))
    assert (few[0].fit_logits[:, 0] == 2 * few[0].fit_labels).all()


def test_replicates_agree_with_the_metrics():
    """Images drawn twice count twice, so they are those of data in which every image stands twice."""
    rng = np.random.default_rng(0)
    sure = np.sort(rng.uniform(0.2, 1.0, 400))[::-1]
    correct = rng.random(400) < sure
    for weight in (1, 2):
        metrics = _drawn_metrics(np.full(400, weight), ~correct)
        assert set(metrics) == set(PAIRED)
        assert metrics["aurc"] == pytest.approx(aurc(sure, correct), abs=1e-12)
        assert metrics["e_aurc"] == pytest.approx(e_aurc(sure, correct, optimum="asymptotic"), abs=1e-12)
        assert metrics["coverage_5"] == coverage_at_risk(sure, correct, 0.05)


def test_rules_by_hand():
    """Temperature wins by 1.5 standard errors; vector wins by half a standard error more."""
    none = np.ones(100)
    swing = np.where(np.arange(100) % 2, 1.0, -1.0)  # mean 0, standard error 0.1
    losses = {"none": none, "temperature": none - 0.15 + swing, "vector": none - 0.2 + swing[::-1] * 2}
    assert former_rule(losses) == "none"
    assert one_error_rule(losses) == "temperature"
    assert least_rule(losses) == "vector"


def test_regret_is_against_the_best_fixed_repair():
    names = ("none", "temperature", "ensemble", "isotonic", "vector")
    splits = [
        {"metrics": {name: {"nll": value} for name, value in zip(names, values, strict=True)}, "choices": {"least": c}}
        for values, c in (((5, 1, 2, 3, 4), "ensemble"), ((5, 3, 4, 3, 2), "vector"))
    ]
    assert regret(splits, "temperature") == 0  # mean 2, the least
    assert regret(splits, "vector") == 1
    assert regret(splits, "least") == 0  # (2 + 2) / 2 - 2


def policy_row(accepted, wrong):
    return {"accepted": accepted, "wrong": wrong, "samples": 200, "clairvoyant": 0.5}


def test_broken_promises_are_counted():
    """Of 100 answers, 6 wrong are above 5% by chance; 10 are beyond it: P(X >= 10) = 0.0282, P(X >= 9) = 0.0631."""
    rows = [policy_row(100, 6), policy_row(100, 10), policy_row(100, 9), policy_row(0, 0)]
    summary = summarise(rows, 0.05)
    assert (summary["above"], summary["beyond"], summary["abstained"]) == (0.75, 0.25, 0.25)
    assert summary["coverage"] == 0.375
    assert summary["risk"] == pytest.approx(25 / 300)
    assert summarise([policy_row(100, 0)] * 200, 0.05)["verdict"] == "holds"
    assert summarise([policy_row(100, 20)] * 50, 0.05)["verdict"] == "does not hold"
    assert pytest.approx(0.0975) == ALLOWED


@pytest.mark.parametrize("samples", [120, 900])
def test_policies_are_those_of_policy_fit(samples):
    logits, labels = drawn(samples)
    policies = fit_policies(Split(logits, labels, logits, labels))
    for risk in RISKS:
        policy = Policy.fit(Predictions.from_logits(logits, labels), risk)
        assert policy.threshold.value == policies[risk].threshold.value
        assert str(policy.score) == str(policies[risk].score)


def test_rows_are_compared_to_the_last_digit():
    assert is_close(["a 1", "**+0.0123** [0.01, 0.02]"], ["a 1", "+0.0124 [0.01, 0.02]"])
    assert not is_close(["a", "0.0123"], ["a", "0.0130"])
    assert not is_close(["a", "holds"], ["a", "within noise"])


def test_a_policys_row_names_its_file_and_its_verdict():
    rows = [policy_row(100, 1)] * 3
    part = {"expected_cost/sst2_gpt2": {"splits": 3, "targets": {str(risk): rows for risk in RISKS}}}
    ((name, splits, *_, word),) = policy_rows({"policies": part}, 0.05)
    assert ("SST-2" in name, splits, word) == (True, "3", "within noise")
