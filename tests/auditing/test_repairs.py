"""Tests of repairs."""

import math
import re

import numpy as np
import pytest

from calibrant import Policy, Predictions, audit
from calibrant.auditing.repairs import Repair, repair_findings
from calibrant.metrics import Interval
from calibrant.policy import Selection
from calibrant.policy.selection import Candidate
from calibrant.posthoc import TemperatureScaling, VectorScaling
from calibrant.posthoc.scores import Score
from tests.helpers.audits import drawn
from tests.helpers.errors import facts


@pytest.mark.slow
def test_logit_normalisation_is_advised_only_where_it_helps():
    rng = np.random.default_rng(5)
    honest, y = drawn(6000, 6, 1.0, 5)
    wrong = honest.argmax(1) != y
    # The same softmax up to scale noise, with wrong predictions blown up: a larger norm hides behind equal confidence.
    z = honest * np.where(wrong, 1.8, 1.0)[:, None] * rng.uniform(0.95, 1.05, (6000, 1))
    helped = audit(Predictions.from_logits(z, y), replicates=100).models[0]["fixes"][-1]
    plain = audit(Predictions.from_logits(honest, y), replicates=100).models[0]["fixes"][-1]
    assert helped["repair"] == plain["repair"] == "Logit normalisation"
    assert helped["high"] < 0
    assert plain["high"] >= 0


@pytest.mark.slow
def test_a_reading_of_logit_normalisation_can_be_asked_for():
    """The offset of a row says whether it is wrong: centred logits do not have it, SC's Eq. 17 sees it."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal((1500, 6))
    y = np.where(rng.random(1500) < 0.3, (z.argmax(1) + 1) % 6, z.argmax(1))
    z += np.where(y == z.argmax(1), 0.0, 4.0)[:, None]
    fixes = {
        centre: audit(Predictions.from_logits(z, y), replicates=100, centre=centre).models[0]["fixes"][-1]
        for centre in (None, False, True)
    }
    assert fixes[None] == fixes[False]  # the better of both
    assert fixes[True]["fitted"] != fixes[False]["fitted"]
    assert fixes[False]["high"] < fixes[True]["low"]


def test_held_out_data_must_fit():
    z, y = drawn(200, 5, 2.0, 14)
    with pytest.raises(ValueError, match=facts("val", "classes")):
        audit(Predictions.from_logits(z, y), val=Predictions.from_logits(z[:, :4], y % 4))
    with pytest.raises(ValueError, match=facts("town")):
        audit(Predictions.from_logits(z, y), groups=["town"])
    with pytest.raises(ValueError, match=facts("val")):
        audit(Predictions.from_logits(z, y), val=Predictions.from_logits(z, y))
    with pytest.raises(ValueError, match=facts("test")):
        audit(Predictions.from_logits(z, y), val=Predictions.from_logits(z + 1, y, split="test"))
    with pytest.raises(ValueError, match=facts("Predictions.open")):
        audit("test.npz")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["over", "under", "skewed", "honest", "few"])
def test_an_audit_recommends_what_a_fit_chooses(case):
    """The same rows, candidates and numbers, on one file."""
    z, y = drawn(120 if case == "few" else 1500, 4, {"over": 3.0, "under": 0.4}.get(case, 1.0), 8)
    z = z + (np.array([2.0, 0.0, 0.0, -1.0]) if case == "skewed" else 0.0)
    choice = audit(Predictions.from_logits(z, y), replicates=20).models[0]["choice"]
    policy = Policy.fit(Predictions.from_logits(z, y), 0.2)
    if case == "few":
        assert choice is None
        assert policy.calibrator is None
        return
    assert choice["calibrator"] == (policy.calibrator.name if policy.calibrator else "none")
    assert choice["score"] == str(policy.score)
    assert choice["calibrators"] == policy.evidence["calibrators"]
    plain = [{key: row[key] for key in ("name", "value", "chosen")} for row in policy.evidence["scores"]]
    assert [{key: row[key] for key in ("name", "value", "chosen")} for row in choice["scores"]] == plain
    assert choice["calibrator"] == {"over": "temperature", "under": "temperature", "skewed": "vector"}.get(case, "none")


def repairs(*changes):
    names = ("Temperature scaling", "Vector scaling")[: len(changes)]
    pairs = zip(names, changes, strict=True)
    return {(name, "ece_15"): Repair(name, "how", "ece_15", 0.2, change) for name, change in pairs}


def chosen(calibrator, score=None):
    tried = (Candidate("none", 1.0), Candidate("temperature", 0.8), Candidate("vector", 0.7))
    ranked = (Candidate("msp", 0.3), Candidate("margin", 0.2))
    return Selection(calibrator, score or Score(), tried, ranked)


def test_the_title_of_a_repair_depends_on_its_interval():
    changes = [(-0.1, -0.12, -0.08), (0.0, -0.01, 0.01), (0.1, 0.05, 0.15), (-0.1, math.nan, math.nan)]
    told = [next(repair_findings(repairs(Interval(*change)), None)) for change in changes]
    assert len({title for _, title, _, _ in told}) == 4
    assert all("20.00%" in evidence for *_, evidence in told)


def test_the_repair_that_a_fit_chooses_is_the_one_that_is_told():
    changes = Interval(-0.1, -0.12, -0.08), Interval(-0.15, -0.2, -0.1)
    ((_, title, _, evidence),) = repair_findings(repairs(*changes), chosen(VectorScaling()))
    assert title.startswith("Vector scaling")
    assert re.search(facts("20.00%", "5.00%"), evidence)
    ((_, title, _, _),) = repair_findings(repairs(*changes), chosen(None))
    assert title.startswith("Temperature scaling")


def test_another_score_is_told_with_its_area():
    findings = list(repair_findings({}, chosen(TemperatureScaling(), Score("margin"))))
    ((_, title, _, evidence),) = findings
    assert Score("margin").words in title
    assert re.search(facts("AURC", "0.3000", "0.2000"), evidence)
