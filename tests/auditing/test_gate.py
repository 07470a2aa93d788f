"""Requirements as people write them; statuses against intervals worked out by hand; error rates on drawn data."""

from functools import partial

import numpy as np
import pytest

import calibrant
from calibrant import Policy, Predictions, audit
from calibrant.auditing.gate import parse_requirement
from calibrant.metrics import wilson
from tests.helpers.errors import facts

check = partial(calibrant.check, replicates=60)


def drawn(n, seed=0, sharpness=1.0, classes=4, groups=None):
    """Predictions that are calibrated where the sharpness is 1."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((n, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    columns = None if groups is None else {"site": rng.choice(groups, n)}
    return Predictions.from_logits(sharpness * logits, labels, groups=columns)


def test_an_accuracy_is_judged_by_wilsons_interval():
    predictions = Predictions.from_confidence(np.full(400, 0.9), np.arange(400) < 360)
    low, high = (float(limit) for limit in wilson(360, 400))
    gate = check(predictions, f"accuracy >= {low - 1e-9}", f"accuracy >= {low + 1e-6}", f"accuracy >= {high + 1e-6}")
    assert [judgement.status for judgement in gate.requirements] == ["pass", "unknown", "fail"]
    assert gate.passed is False
    for judgement in gate.requirements:
        assert (judgement.value, judgement.samples) == (0.9, 400)
        assert judgement.low == pytest.approx(low)
        assert judgement.high == pytest.approx(high)


def test_repeated_ids_are_no_new_evidence():
    p = drawn(1000)
    ids = np.arange(1000)
    once = Predictions.from_logits(p.logits, p.labels, ids=ids)
    twice = Predictions.from_logits(np.r_[p.logits, p.logits], np.r_[p.labels, p.labels], ids=np.r_[ids, ids])
    for options in ({}, {"baseline": once}):
        with pytest.raises(ValueError, match=facts("1,000 of 2,000", "repeats")):
            check(twice, "accuracy >= 0.5", **options)
    with pytest.raises(ValueError, match=facts("1,000 of 2,000")):
        check(once, "accuracy no worse", baseline=twice)
    first = check(twice, "accuracy >= 0.5", "accuracy no worse", baseline=twice, repeats="first")
    assert first == check(once, "accuracy >= 0.5", "accuracy no worse", baseline=once)


def test_numbers_are_those_of_the_audit():
    predictions = drawn(3000, sharpness=1.5)
    result = audit(predictions, replicates=60)
    gate = check(predictions, "ece <= 0.5", "aurc <= 0.9", "nll <= 9", "risk@0.9 <= 99%", "coverage@0.05 >= 0.1%")
    names = ("ece", "aurc", "nll", "risk_at_coverage_0.9", "coverage_at_risk_0.05")
    for name, judgement in zip(names, gate.requirements, strict=True):
        assert judgement.value == pytest.approx(result.metrics[name], abs=1e-12)
        assert (judgement.low, judgement.high) == pytest.approx(result.intervals[name], abs=1e-12)
    assert gate.passed is True


@pytest.mark.slow
def test_so_many_samples_as_were_advised_decide():
    first = check(drawn(2000, seed=1), "accuracy >= 0.7").requirements[0]
    assert first.status == "unknown"
    assert first.needed is not None
    value, far = first.value, first.high if first.value <= 0.7 else first.low
    exact = 2000 * ((far - value) / (0.7 - value)) ** 2  # limits narrow with the square root of the number
    unit = 10 ** (len(str(int(exact))) - 2)
    assert first.needed % unit == 0, "two significant digits"
    assert exact <= first.needed < exact + unit, "rounded up"
    decided = [check(drawn(4 * first.needed, seed=s), "accuracy >= 0.7").passed for s in (2, 3)]
    assert all(passed is not None for passed in decided)


@pytest.mark.slow
def test_a_calibrated_model_rarely_fails_and_an_overconfident_one_never_passes():
    limits = ("ece <= 0.02",)
    statuses = [check(drawn(1000, seed=s), *limits).requirements[0].status for s in range(40)]
    assert statuses.count("fail") <= 3  # at most 2.5% are expected
    assert all(check(drawn(1000, seed=s, sharpness=3), *limits).passed is False for s in range(5))


def test_every_group_is_judged_at_a_shared_level():
    predictions = drawn(3000, groups=["north", "south"])
    gate = check(predictions, "accuracy >= 0.1", groups="site")
    assert [judgement.group for judgement in gate.requirements] == ["", "site=north", "site=south"]
    north = predictions.samples(np.flatnonzero(predictions.groups["site"] == "north"))
    right = int((np.asarray(north.logits).argmax(1) == north.labels).sum())
    low, high = (float(limit) for limit in wilson(right, len(north), 0.975))
    assert (gate.requirements[1].low, gate.requirements[1].high) == pytest.approx((low, high))
    with pytest.raises(ValueError, match=facts("town", "site")):
        check(predictions, "accuracy >= 0.1", groups="town")


@pytest.mark.slow
def test_the_data_that_a_policy_was_fitted_on_are_said():
    val = drawn(3000, seed=1, classes=3)
    policy = Policy.fit(val, target_risk=0.2, confidence=0.9)
    (note,) = check(val, "policy.risk <= 25%", policy=policy).notes
    assert "fitted" in note
    assert check(val, "policy.risk <= 25%", policy=policy).document["notes"] == [note]
    order = np.random.default_rng(0).permutation(3000)  # the same rows, however they are stored
    again = Predictions.from_logits(val.logits[order].astype(np.float32), val.labels[order].astype(np.int16))
    assert check(again, "policy.risk <= 25%", policy=policy).notes == (note,)
    others = Predictions.from_logits(val.logits, np.roll(val.labels, 1))
    for other in (drawn(3000, seed=2, classes=3), val.samples(slice(0, 2999)), others):
        assert check(other, "policy.risk <= 25%", policy=policy).notes == ()
    assert check(val, "ece <= 5%").notes == ()


def test_a_baseline_is_compared_on_the_same_samples():
    better, worse = drawn(2000), drawn(2000, sharpness=3)
    assert check(better, "ece no worse", "accuracy no worse", baseline=worse).passed is True
    assert check(worse, "ece no worse", baseline=better).passed is False
    assert check(worse, "ece no worse by 90%", baseline=better).passed is True
    with pytest.raises(ValueError, match=facts("ece no worse", "baseline")):
        check(better, "ece no worse")
    with pytest.raises(ValueError, match=facts("baseline", "samples")):
        check(better, "ece no worse", baseline=drawn(100))


def test_what_is_not_asked_rightly_is_refused():
    with pytest.raises(ValueError, match=facts("requirement")):
        check(drawn(50))
    confidences = Predictions.from_confidence([0.9, 0.8], [1, 0])
    with pytest.raises(ValueError, match=facts("nll", "logits")):
        check(confidences, "nll <= 1")
    with pytest.raises(TypeError, match=facts(".passed")):
        bool(check(drawn(50), "ece <= 0.5"))


@pytest.mark.parametrize(
    ("text", "metric", "at_most", "limit"),
    [
        ("ece <= 0.03", "ece", True, 0.03),
        ("ece<3%", "ece", True, 0.03),
        (" accuracy >= 0.9 ", "accuracy", False, 0.9),
        ("risk@0.8 <= 0.05", "risk_at_coverage_0.8", True, 0.05),
        ("risk@85% <= 5 %", "risk_at_coverage_0.85", True, 0.05),
        ("coverage@0.03 > .5", "coverage_at_risk_0.03", False, 0.5),
        ("policy.risk <= 0.05", "policy.risk", True, 0.05),
        ("nll <= 3", "nll", True, 3.0),
        ("accuracy >= 1", "accuracy", False, 1.0),
        ("risk@80% <= 0.5%", "risk_at_coverage_0.8", True, 0.005),
    ],
)
def test_limits(text, metric, at_most, limit):
    requirement = parse_requirement(text)
    assert (requirement.metric, requirement.at_most) == (metric, at_most)
    assert requirement.limit == pytest.approx(limit, abs=1e-15)
    assert not requirement.is_relative


def test_a_margin_lies_on_the_worse_side():
    worse = {
        text: parse_requirement(text) for text in ("ece no worse", "accuracy no  worse by 1%", "nll no worse by 0.1")
    }
    assert [(r.at_most, r.limit) for r in worse.values()] == [(True, 0.0), (False, -0.01), (True, 0.1)]
    assert all(r.is_relative for r in worse.values())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *((text, "ece <= 0.03") for text in ("", "ece", "ece == 0.1", "ece <= nan", "risk@0.8 no worse")),
        ("eec <= 0.1", "'eec' 'ece'"),
        ("ece <= 1e999", "1e999"),
        ("ece <= 1.2.3", "1.2.3"),
        ("ece@0.5 <= 0.1", "risk@COVERAGE coverage@RISK"),
        ("risk@1.5 <= 0.1", "0 1"),
        ("mce no worse", "baseline"),
        ("mean_confidence no worse", "mean_confidence"),
        ("ece no worse by -1", "margin 0"),
        ("x" * 5000 + " <= 1", "metric"),
        # Shares without their sign of percent: both spellings are said.
        ("ece <= 3", "3% 0.03"),
        ("risk@0.8 <= 5", "5% 0.05"),
        ("risk@80 <= 5%", "80% 0.8"),
        ("policy.risk <= 5", "5% 0.05"),
        ("accuracy no worse by 2.5", "2.5% 0.025"),
        ("ece <= 1", "1% 0.01"),
        # A limit on the better side fails good models and passes bad ones.
        ("ece >= 3%", "'ece <= 3%'"),
        ("accuracy <= 0.9", "'accuracy >= 0.9'"),
        ("nll > 0.2", "'nll <= 0.2'"),
        ("risk@0.8 >= 2%", "'risk@0.8 <= 2%'"),
        ("policy.coverage <= 5%", "'policy.coverage >= 5%'"),
        ("policy.wrong >= 5%", "'policy.wrong <= 5%'"),
        ("risk <= 5%", "policy.risk risk@0.8"),
        ("coverage >= 50%", "policy.coverage coverage@0.05"),
        # Limits that every model keeps or none, and units that the metric has not.
        *((text, text.split()[0]) for text in (
            "policy.coverage > 0", "ece <= 300%", "accuracy >= 0", "brier <= 2", "accuracy no worse by 100%",
            "ece <= -0.01", "accuracy >= 101%", "brier >= 2.5", "nll <= 5%", "policy.cost <= 5%",
        )),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(text, told):
    with pytest.raises(ValueError, match=facts(*told.split())) as error:
        parse_requirement(text)
    assert len(str(error.value)) < 700


def test_repeated_ids_of_the_baseline_are_said_to_be_its_own():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(40, 3)), rng.integers(0, 3, 40)
    good = Predictions.from_logits(logits, labels, ids=np.arange(40))
    twice = Predictions.from_logits(logits, labels, ids=np.arange(40) // 2)
    with pytest.raises(ValueError, match=facts("baseline", "20 of 40")):
        check(good, "ece no worse", baseline=twice)
