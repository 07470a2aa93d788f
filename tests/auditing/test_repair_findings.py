"""Sentences about repairs: the one that a fit would choose, and what it changes."""

import math

import pytest

from calibrant.auditing.repair_findings import repair_findings
from calibrant.auditing.repairs import Repair
from calibrant.metrics import Interval
from calibrant.posthoc import TemperatureScaling, VectorScaling
from calibrant.selective import Selection
from calibrant.selective.policy.selection import Candidate
from calibrant.selective.scores import Score


def repairs(*changes):
    names = ("Temperature scaling", "Vector scaling")[: len(changes)]
    pairs = zip(names, changes, strict=True)
    return {(name, "ece_15"): Repair(name, "how", "ece_15", 0.2, change) for name, change in pairs}


def chosen(calibrator, score=None):
    tried = (Candidate("none", 1.0), Candidate("temperature", 0.8), Candidate("vector", 0.7))
    ranked = (Candidate("msp", 0.3), Candidate("margin", 0.2))
    return Selection(calibrator, score or Score(), tried, ranked)


@pytest.mark.parametrize(
    ("change", "title"),
    [
        (Interval(-0.1, -0.12, -0.08), "Temperature scaling helps"),
        (Interval(0.0, -0.01, 0.01), "Temperature scaling changes little"),
        (Interval(0.1, 0.05, 0.15), "Temperature scaling does not help"),
        (Interval(-0.1, math.nan, math.nan), "Temperature scaling, by images or sequences"),
    ],
)
def test_the_title_is_what_the_interval_says(change, title):
    ((_, name, text, evidence),) = repair_findings(repairs(change), None)
    assert name == title
    assert "calibrant fit" not in text
    assert evidence.startswith("ECE 20.00% to ")


def test_the_repair_that_a_fit_chooses_is_the_one_that_is_told():
    changes = Interval(-0.1, -0.12, -0.08), Interval(-0.15, -0.2, -0.1)
    ((_, title, text, evidence),) = repair_findings(repairs(*changes), chosen(VectorScaling()))
    assert title == "Vector scaling helps"
    assert "calibrant fit chooses it" in text
    assert "(temperature scaling)" in text
    assert "20.00% to 5.00%" in evidence
    ((_, title, text, _),) = repair_findings(repairs(*changes), chosen(None))
    assert title == "Temperature scaling helps"
    assert "calibrant fit keeps the confidence as it is" in text


def test_another_score_is_told_with_its_area():
    findings = list(repair_findings({}, chosen(TemperatureScaling(), Score("margin"))))
    ((_, title, _, evidence),) = findings
    assert title == "Ranking by margin finds errors better"
    assert "AURC 0.3000 to 0.2000" in evidence
