import pytest

from calibrant.auditing.requirement import parse_requirement


@pytest.mark.parametrize(
    ("text", "metric", "at_most", "limit"),
    [
        ("ece <= 0.03", "ece", True, 0.03),
        ("ece<3%", "ece", True, 0.03),
        (" accuracy >= 0.9 ", "accuracy", False, 0.9),
        ("risk@0.8 <= 0.05", "risk_at_coverage_0.8", True, 0.05),
        ("risk@85% <= 5 %", "risk_at_coverage_0.85", True, 0.05),
        ("coverage@0.03 > .5", "coverage_at_risk_0.03", False, 0.5),
        ("ece_100 <= 1e-2", "ece_100", True, 0.01),
        ("policy.risk <= 0.05", "policy.risk", True, 0.05),
        ("classwise_ece <= 0.01", "classwise_ece", True, 0.01),
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
    ("text", "words"),
    [
        ("", "a requirement must be like"),
        ("ece", "a requirement must be like"),
        ("ece == 0.1", "a requirement must be like"),
        ("eec <= 0.1", "no metric 'eec'; did you mean 'ece'"),
        ("ece <= nan", "a requirement must be like"),
        ("ece <= 1e999", "is not a number"),
        ("ece <= 1.2.3", "is not a number"),
        ("ece@0.5 <= 0.1", "only risk@COVERAGE and coverage@RISK"),
        ("risk@1.5 <= 0.1", "lies between 0 and 1"),
        ("risk@0.8 no worse", "a requirement must be like"),
        ("mce no worse", "are compared with a baseline"),
        ("mean_confidence no worse", "neither end of mean_confidence is better"),
        ("ece no worse by -1", "a margin is at least 0"),
        ("x" * 5000 + " <= 1", "no metric"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text, words):
    with pytest.raises(ValueError, match=words) as error:
        parse_requirement(text)
    assert len(str(error.value)) < 700
