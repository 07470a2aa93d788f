"""SC's analyses against slow loops, exact fractions and values worked by hand; its Result 1; and their figures."""

import math
from fractions import Fraction
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from calibrant.metrics import RiskCoverage
from calibrant.posthoc import LogitNorm
from calibrant.report import draw_errors_by_source, draw_max_logit_given_msp, draw_risk_coverage_by_method
from calibrant.selective import errors_by_source, max_logit_given_msp, risk_coverage_by_method
from tests.helpers.metric_data import CASES, close
from tests.reference import metrics as R

case = pytest.mark.parametrize("data", CASES.values(), ids=CASES.keys())


# ---------------------------------------------------------------------- risk and coverage


@case
def test_curves_and_their_numbers(data):
    score, correct = data
    curve = risk_coverage_by_method({"a": score, "b": -np.asarray(score)}, correct, risks=[0.05, 0.3])["a"]
    expected = R.risk_coverage_curve(score, correct)
    for name in ("coverage", "risk", "threshold"):
        np.testing.assert_array_equal(getattr(curve, name), getattr(expected, name))
    assert curve.aurc == close(R.aurc(score, correct))
    assert curve.e_aurc == close(R.e_aurc(score, correct), abs=1e-15)
    assert curve.coverage_at_risk == {r: R.coverage_at_risk(score, correct, r) for r in (0.05, 0.3)}
    assert curve.error_rate == close(1 - R.accuracy(correct))


def test_models_with_their_own_errors():
    correct = {"a": [1, 1, 0], "b": torch.tensor([False, True, True, True])}
    curves = risk_coverage_by_method({"b": torch.tensor([0.1, 0.2, 0.3, 0.4]), "a": [3, 2, 1]}, correct, risks=0.25)
    assert list(curves) == ["b", "a"]
    assert [curve.error_rate for curve in curves.values()] == [0.25, 1 / 3]
    assert curves["b"].coverage_at_risk == {0.25: 1.0}
    assert curves["a"].coverage_at_risk == {0.25: 2 / 3}
    assert risk_coverage_by_method({"a": [3, 2, 1]}, [1, 1, 0], risks=[])["a"].coverage_at_risk == {}


def plain_curve(score, correct):
    """The whole curve of scores without ties; the reference's fractions take too long for this many."""
    order = sorted(range(len(score)), key=lambda i: -score[i])
    assert len(set(score.tolist())) == len(score)
    n = np.arange(1, len(score) + 1)
    return RiskCoverage(n / len(score), np.cumsum(~correct[order]) / n, score[order])


@pytest.mark.parametrize("points", [4, 5, 50, 2000])
def test_a_thinned_curve_looks_the_same(points):
    rng = np.random.default_rng(1)
    score = rng.random(30011)
    correct = rng.random(30011) < score
    whole = plain_curve(score, correct)
    curve = risk_coverage_by_method({"x": score}, correct, points=points)["x"]
    assert len(curve.coverage) <= points
    at = np.searchsorted(whole.coverage, curve.coverage)
    for name in ("coverage", "risk", "threshold"):
        np.testing.assert_array_equal(getattr(curve, name), getattr(whole, name)[at])
    assert at[0] == 0
    assert at[-1] == 30010
    assert curve.aurc == close(whole.risk.mean(), rel=1e-12)
    # Every slice of the picture shows the same extremes.
    slices = (points - 2) // 2
    for k in range(slices):
        shown, all_of_it = (
            c.risk[(c.coverage >= k / slices) & ((c.coverage < (k + 1) / slices) | (k == slices - 1))]
            for c in (curve, whole)
        )
        assert (shown.min(), shown.max()) == (all_of_it.min(), all_of_it.max())


def test_a_thinned_line_stays_within_a_pixel():
    rng = np.random.default_rng(2)
    score = rng.random(50021)
    correct = rng.random(50021) < score
    whole = plain_curve(score, correct)
    curve = risk_coverage_by_method({"x": score}, correct)["x"]
    settled = whole.coverage > 0.02
    drawn = np.interp(whole.coverage, curve.coverage, curve.risk)
    # The line is never further from the curve than the curve itself goes within two slices.
    assert np.abs(drawn - whole.risk)[settled].max() < 1.5e-3


@pytest.mark.parametrize(
    ("scores", "correct", "settings", "message"),
    [
        ({}, [1], {}, "at least one name to scores, got none"),
        ([0.5], [1], {}, "at least one name to scores, got list"),
        ({"a": [0.5, 0.6]}, [1], {}, r"correct must have the shape of scores\['a'\] \[2\], got \[1\]"),
        ({"a": [0.5, np.nan]}, [1, 0], {}, r"scores\['a'\] must be finite, got nan in row 1"),
        ({"a": [0.5]}, {"b": [1]}, {}, "correct must have the names of scores 'a', got 'b'"),
        ({"a": [0.5]}, [1], {"risks": [0.1, 2]}, "risks must be a number between 0 and 1, got 2"),
        ({"a": [0.5]}, [1], {"risks": "x"}, "risks must be a number between 0 and 1, got 'x'"),
        ({"a": [0.5]}, [1], {"points": 3}, "points must be a whole number of at least 4, got 3"),
    ],
)
def test_curves_that_cannot_be(scores, correct, settings, message):
    with pytest.raises(ValueError, match=message):
        risk_coverage_by_method(scores, correct, **settings)


# ---------------------------------------------------------------------- the errors' origin


def over_all_orders(score, correct, shifted, accepted):
    """Mean errors and shifted errors of the first so many, over every order that the scores allow."""
    totals, orders = [Fraction(0), Fraction(0)], 0
    for order in permutations(range(len(score))):
        if any(score[a] < score[b] for a, b in pairwise(order)):
            continue
        orders += 1
        first = [i for i in order[:accepted] if not correct[i]]
        totals[0] += len(first)
        totals[1] += sum(shifted[i] for i in first)
    return [float(total / orders) for total in totals]


@pytest.mark.parametrize("seed", range(6))
def test_errors_over_all_orders(seed):
    rng = np.random.default_rng(seed)
    score, correct, shifted = rng.integers(0, 3, 7) - 1.0, rng.random(7) < 0.5, rng.random(7) < 0.5
    coverages = [k / 7 for k in range(1, 8)]
    seen = errors_by_source(score, correct, shifted, coverages)
    assert seen.accepted.tolist() == list(range(1, 8))
    for k in range(7):
        errors, theirs = over_all_orders(score, correct, shifted, k + 1)
        assert seen.errors[k] == close(errors)
        assert seen.shifted_errors[k] == close(theirs)
        assert seen.original_errors[k] == close(errors - theirs)
        assert seen.shifted_share[k] == close(theirs / errors if errors else math.nan)
        assert seen.risk[k] == close(R.risk_at_coverage(score, correct, coverages[k]))


@case
def test_errors_agree_with_the_risk_and_with_no_ties_with_a_loop(data):
    score, correct = (np.asarray(x).reshape(-1) for x in data)
    shifted = np.arange(len(score)) % 3 == 0
    coverages = [0.1, 0.5, 0.77, 1.0]
    seen = errors_by_source(score, correct, shifted, coverages)
    for k, coverage in enumerate(coverages):
        assert seen.risk[k] == close(R.risk_at_coverage(score, correct, coverage))
        assert seen.errors[k] / seen.accepted[k] == close(seen.risk[k])
    if len(set(score.tolist())) == len(score):
        order = sorted(range(len(score)), key=lambda i: -score[i])
        for k, accepted in enumerate(seen.accepted):
            wrong = [i for i in order[:accepted] if not correct[i]]
            assert (seen.errors[k], seen.shifted_errors[k]) == (len(wrong), sum(bool(shifted[i]) for i in wrong))


def test_errors_by_hand():
    # Pooled and sorted: wrong original | a tie of one wrong shifted, one right, one wrong original | right shifted.
    seen = errors_by_source([5, 3, 3, 3, 1], [0, 0, 1, 0, 1], [0, 1, 0, 0, 1], 0.5)
    assert seen.accepted.tolist() == [3]
    assert seen.errors.tolist() == close([1 + 2 * 2 / 3])
    assert seen.shifted_errors.tolist() == close([2 / 3])
    assert seen.shifted_share.tolist() == close([2 / 7])
    assert seen.coverage.tolist() == [0.5]


def test_errors_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(7)
    score, correct, shifted = rng.integers(0, 20, 997) / 20, rng.random(997) < 0.7, rng.random(997) < 0.4
    first = errors_by_source(score, correct, shifted, [0.1, 0.33])
    order = rng.permutation(997)
    second = errors_by_source(torch.from_numpy(score[order]), correct[order], shifted[order], (0.1, 0.33))
    for name in ("accepted", "risk", "errors", "original_errors", "shifted_errors", "shifted_share"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shifted": [True]}, r"shifted must have the shape of scores \[2\], got \[1\]"),
        ({"shifted": [0, 2]}, "shifted must be True and False or 1 and 0, got 2 in row 1"),
        ({"shifted": ["a", "b"]}, "shifted must be True and False or 1 and 0"),
        ({"correct": [1]}, r"correct must have the shape of scores \[2\], got \[1\]"),
        ({"coverage": 0.0}, "coverage must be a number above 0 and at most 1, got 0.0"),
        ({"coverage": [0.5, 1.5]}, "coverage must be a number above 0 and at most 1, got 1.5"),
        ({"coverage": []}, "coverage must be at least one share, got none"),
    ],
)
def test_errors_that_cannot_be(settings, message):
    given_ = {"scores": [0.5, 0.6], "correct": [1, 0], "shifted": [True, False], **settings}
    with pytest.raises(ValueError, match=message):
        errors_by_source(**given_)


# ---------------------------------------------------------------------- SC, Result 1


@st.composite
def positive_logits(draw):
    """Strictly positive logits, not all equal, within a factor of ten: in float64 the inequality stays strict."""
    scale = draw(st.floats(1e-3, 1e3))
    logits = np.array(draw(st.lists(st.floats(1, 10), min_size=2, max_size=12)))
    logits[draw(st.integers(0, len(logits) - 1))] = logits.max() + draw(st.floats(0.01, 1.0))
    return scale * logits, scale * draw(st.floats(0.1, 10))


def ratio(v, p):
    return v.max() / np.sum(v**p) ** (1 / p)


@given(positive_logits(), st.floats(1, 10))
def test_result_1_by_its_formula(drawn, p):
    """SC Eq. 19: a common offset lowers the normalised largest logit, whatever the softmax says."""
    v, eta = drawn
    assert ratio(v + eta, p) < ratio(v, p)


@given(positive_logits(), st.integers(1, 10))
def test_result_1_by_logit_norm(drawn, p):
    v, eta = drawn
    rows = torch.from_numpy(np.stack([v, v + eta]))
    before, after = LogitNorm(powers=[p], centre=False).scores(rows)[p].tolist()
    assert before == pytest.approx(ratio(v, p), rel=1e-12)
    assert after < before


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=9), st.integers(1, 10**6), st.integers(1, 12))
def test_result_1_in_whole_numbers(v, eta, p):
    """Without rounding, over six orders of magnitude; equal entries are the case without a change."""
    before, after = (Fraction(max(w) ** p, sum(x**p for x in w)) for w in (v, [x + eta for x in v]))
    assert (after < before) == (len(set(v)) > 1)
    assert after <= before


# ---------------------------------------------------------------------- figures


def sample(seed, size, decimals=None):
    rng = np.random.default_rng(seed)
    msp = rng.beta(3, 1, size)
    msp = msp if decimals is None else msp.round(decimals)
    correct = rng.random(size) < msp
    return msp, 5 + 9 * msp + rng.normal(size=size) - correct, correct


def results():
    rng = np.random.default_rng(8)
    msp, height, correct = sample(9, 2003)
    shifted = rng.random(2003) < 0.5
    curves = risk_coverage_by_method({"$msp$": msp, "_logit": height, "x" * 90: rng.random(2003)}, correct)
    errors = {name: errors_by_source(x, correct, shifted, [0.1, 0.5]) for name, x in (("a", msp), ("b", height))}
    return curves, max_logit_given_msp(msp, height, correct), errors


FIGURES = {
    "curves": lambda target, parts, **k: draw_risk_coverage_by_method(target, parts[0], target_risk=0.05, **k),
    "bands": lambda target, parts, **k: draw_max_logit_given_msp(target, parts[1], **k),
    "errors": lambda target, parts, **k: draw_errors_by_source(target, parts[2], coverage=0.1, **k),
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_figures_are_written_and_the_same_each_time(tmp_path, name, suffix, magic):
    contents = set()
    for file in ("a", "b"):
        FIGURES[name](tmp_path / f"{file}{suffix}", results(), title="$5 & <b>")
        contents.add((tmp_path / f"{file}{suffix}").read_bytes())
    assert len(contents) == 1
    assert contents.pop().startswith(magic)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_figures_draw_the_numbers_given(layout):
    curves, bands, errors = results()
    axis = Figure(layout=layout).subplots()
    draw_risk_coverage_by_method(axis, curves, target_risk=0.3, title="t")
    *lines, target = axis.get_lines()
    for line, curve in zip(lines, curves.values(), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.column_stack([curve.coverage, curve.risk]))
    assert set(target.get_ydata()) == {0.3}
    assert axis.get_ylim()[1] > 0.3
    assert [t.get_text() for t in axis.get_legend().get_texts()] == [
        f"\\$msp\\$, AURC {curves['$msp$'].aurc:.4f}",
        f"_logit, AURC {curves['_logit'].aurc:.4f}",
        f"{'x' * 29}..., AURC {curves['x' * 90].aurc:.4f}",
        "target risk 30%",
    ]

    axis = Figure(layout=layout).subplots()
    draw_max_logit_given_msp(axis, bands)
    for line, windows in zip(axis.get_lines(), (bands.right, bands.wrong), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.column_stack([bands.msp, windows.mean]))
    for band, windows in zip(axis.collections, (bands.right, bands.wrong), strict=True):
        heights = np.concatenate([path.vertices[:, 1] for path in band.get_paths()])
        assert heights.max() == np.nanmax(windows.mean + windows.std)
        assert heights.min() == np.nanmin(windows.mean - windows.std)

    axis = Figure(layout=layout).subplots()
    draw_errors_by_source(axis, errors, coverage=0.5, sources=("ImageNet", "Sketch"))
    widths = [bar.get_width() for bar in axis.patches]
    assert widths == [e.original_errors[1] for e in errors.values()] + [e.shifted_errors[1] for e in errors.values()]
    assert [t.get_text() for t in axis.texts] == [f"{100 * e.shifted_share[1]:.2f}%" for e in errors.values()]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["a", "b"]
    assert axis.get_xlabel() == "errors at 50% coverage"


def test_figures_of_next_to_nothing(tmp_path):
    draw_risk_coverage_by_method(tmp_path / "a.png", risk_coverage_by_method({"a": [0.5]}, [1]))
    draw_max_logit_given_msp(tmp_path / "b.png", max_logit_given_msp([0.5], [1.0], [1]))
    axis = Figure().subplots()
    draw_errors_by_source(axis, {"a": errors_by_source([0.5], [1], [True])})
    assert [t.get_text() for t in axis.texts] == ["no errors"]


def test_figures_that_cannot_be_drawn_say_why(tmp_path):
    curves, bands, errors = results()
    path = tmp_path / "x.png"
    with pytest.raises(ValueError, match="at least one name to its numbers, got none"):
        draw_risk_coverage_by_method(path, {})
    with pytest.raises(ValueError, match="at least one name to its numbers, got list"):
        draw_errors_by_source(path, list(errors.values()))
    with pytest.raises(ValueError, match="the curve 'a' needs the series coverage, risk, and 'coverage' is missing"):
        draw_risk_coverage_by_method(path, {"a": 1})
    with pytest.raises(ValueError, match="target_risk must be a number between 0 and 1, got 5"):
        draw_risk_coverage_by_method(path, curves, target_risk=5)
    with pytest.raises(ValueError, match="needs what max_logit_given_msp gives, got dict"):
        draw_max_logit_given_msp(path, {})
    with pytest.raises(ValueError, match=r"has the coverages \[0.1, 0.5\], choose one with coverage="):
        draw_errors_by_source(path, errors)
    with pytest.raises(ValueError, match=r"coverage must be one of the result 'a', \[0.1, 0.5\], got 0.2"):
        draw_errors_by_source(path, errors, coverage=0.2)
    one, other = (errors_by_source([0.5, 0.6], [1, 0], [True, False], c) for c in (0.5, 1.0))
    with pytest.raises(ValueError, match="results at one coverage, got several"):
        draw_errors_by_source(path, {"a": one, "b": other})
    with pytest.raises(ValueError, match="sources must be two words"):
        draw_errors_by_source(path, {"a": one}, sources=["x"])
    with pytest.raises(ValueError, match=r"written as \.png"):
        draw_max_logit_given_msp(tmp_path / "x.gif", bands)
    assert not list(tmp_path.iterdir())
