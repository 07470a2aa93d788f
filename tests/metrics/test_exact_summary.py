"""Audits of few samples: every number is that of its definition, whatever ties there are; beyond, with a bound."""

import numpy as np
import pytest

from calibrant import Predictions, audit
from calibrant.auditing.collect import collect
from calibrant.auditing.shards import Offsets, collect_part, merge
from calibrant.metrics import exact_summary
from tests.reference import metrics as reference

RISKS, COVERAGES = (0.01, 0.02, 0.05, 0.1), (0.8, 0.9, 0.95)


def definitions(confidence, correct):
    """Every metric of a confidence, in exact fractions."""
    values = {
        name: getattr(reference, name)(confidence, correct) for name in ("aece", "mce", "aurc", "e_aurc", "augrc")
    }
    values |= {f"ece_{bins}": reference.ece(confidence, correct, bins=bins) for bins in (10, 15, 100)}
    values |= {name: getattr(reference, name)(confidence, correct) for name in ("overconfidence", "underconfidence")}
    values |= {f"coverage_at_risk_{r:g}": reference.coverage_at_risk(confidence, correct, r) for r in RISKS}
    values |= {f"risk_at_coverage_{c:g}": reference.risk_at_coverage(confidence, correct, c) for c in COVERAGES}
    return values


def clipped(dtype, size=1500):
    """Probabilities of a sure model, clipped as people clip them: hundreds share the largest value."""
    rng = np.random.default_rng(5)
    z = 6 * rng.standard_normal((size, 4))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    labels = (0.3 * z + rng.gumbel(size=z.shape)).argmax(1)
    p = np.clip(p, 1e-5, 1 - 1e-5)
    return (p / p.sum(1, keepdims=True)).astype(dtype), labels


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_audit_of_probabilities_is_exact(dtype):
    p, labels = clipped(dtype)
    found = audit(Predictions.from_probabilities(p, labels), replicates=20)
    expected = definitions(p.max(1), p.argmax(1) == labels)
    for name, value in expected.items():
        assert found.metrics[name] == pytest.approx(value, abs=1e-12), name
    assert set(found.bounds.values()) == {0.0}


def test_an_audit_of_confidences_rounded_to_two_digits_is_exact():
    rng = np.random.default_rng(1)
    sure = np.round(rng.beta(6, 1, 900), 2)
    right = rng.random(900) < sure**2
    found = audit(Predictions.from_confidence(sure, right), replicates=20)
    for name, value in definitions(sure, right).items():
        assert found.metrics[name] == pytest.approx(value, abs=1e-12), name
    assert set(found.bounds.values()) == {0.0}


def test_logits_are_ranked_in_float64():
    z = np.round(np.random.default_rng(2).normal(size=(700, 3)) * 8, 1).astype(np.float32)
    labels = np.random.default_rng(3).integers(0, 3, 700)
    found = audit(Predictions.from_logits(z, labels), replicates=20)
    wide = z.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    for name, value in definitions(1 / e.sum(1), z.argmax(1) == labels).items():
        assert found.metrics[name] == pytest.approx(value, abs=2e-6), name


def test_other_numbers_of_bins_are_exact_too():
    p, labels = clipped(np.float32)
    summary = collect(Predictions.from_probabilities(p, labels)).summary()
    for bins in (7, 11, 64):
        assert summary.ece(bins) == pytest.approx(reference.ece(p.max(1), p.argmax(1) == labels, bins=bins), abs=1e-12)
        assert summary.mce(bins) == pytest.approx(reference.mce(p.max(1), p.argmax(1) == labels, bins=bins), abs=1e-12)
        assert summary.ece(bins).bound == summary.mce(bins).bound == 0


def test_the_curve_steps_at_every_confidence():
    p, labels = clipped(np.float64, 200)
    curve = collect(Predictions.from_probabilities(p, labels)).summary().risk_coverage_curve()
    expected = reference.risk_coverage_curve(p.max(1), p.argmax(1) == labels)
    for name in ("coverage", "risk", "threshold"):
        np.testing.assert_allclose(getattr(curve, name), getattr(expected, name), rtol=1e-12)


def test_what_is_kept_is_no_more_than_it_says():
    """Nine bytes a sample: no column keeps the memory of its whole block."""
    p, labels = clipped(np.float64)
    for made in (Predictions.from_probabilities(p, labels), Predictions.from_logits(np.log(p), labels)):
        kept = collect(made).confidences
        assert all(part.base is None for part in [*kept.confidence, *kept.correct])
        assert sum(part.nbytes for part in [*kept.confidence, *kept.correct]) == 9 * 1500


def test_more_samples_than_are_kept_are_sketched(monkeypatch):
    p, labels = clipped(np.float64)
    whole = collect(Predictions.from_probabilities(p, labels)).summary()
    monkeypatch.setattr(exact_summary.Confidences.__init__, "__defaults__", (1000,))
    found = collect(Predictions.from_probabilities(p, labels))
    assert found.confidences.confidence == []
    for name, value in found.summary().metrics().items():
        assert abs(value - whole.metrics()[name]) <= value.bound + 1e-12, name
    assert found.summary().aurc().bound > 0


@pytest.mark.parametrize("most", [2**22, 1000])
def test_parts_together_are_as_exact_as_the_whole(monkeypatch, most):
    monkeypatch.setattr(exact_summary.Confidences.__init__, "__defaults__", (most,))
    p, labels = clipped(np.float64)
    whole = collect(Predictions.from_probabilities(p, labels)).summary().metrics()
    halves = [slice(0, 700), slice(700, 1500)]
    parts = [
        collect_part(Predictions.from_probabilities(p[rows], labels[rows]), (), Offsets(rows.start, rows.start, 1500))
        for rows in halves
    ]
    together = merge(parts).summary().metrics()
    for name, value in together.items():
        assert value.bound == pytest.approx(whole[name].bound, rel=1e-9)
        assert value == pytest.approx(whole[name], abs=1e-12)
