"""Tests of repairs."""

import numpy as np
import pytest

from calibrant import Policy, Predictions, audit
from tests.helpers.audits import drawn


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
    assert "of logits that are not centred" in fixes[False]["fitted"]
    assert fixes[None] == fixes[False]  # the better of both
    assert "not centred" not in fixes[True]["fitted"]
    assert fixes[False]["high"] < fixes[True]["low"]


def test_held_out_data_must_fit():
    z, y = drawn(200, 5, 2.0, 14)
    with pytest.raises(ValueError, match="same classes"):
        audit(Predictions.from_logits(z, y), val=Predictions.from_logits(z[:, :4], y % 4))
    with pytest.raises(ValueError, match="no group column 'town'"):
        audit(Predictions.from_logits(z, y), groups=["town"])
    with pytest.raises(ValueError, match="are the audited ones"):
        audit(Predictions.from_logits(z, y), val=Predictions.from_logits(z, y))
    with pytest.raises(ValueError, match="not fitted on test data"):
        audit(Predictions.from_logits(z, y), val=Predictions.from_logits(z + 1, y, split="test"))
    with pytest.raises(ValueError, match=r"audit takes Predictions.*Predictions\.open"):
        audit("test.npz")


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
