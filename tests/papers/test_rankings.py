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
from calibrant.papers import errors_by_source, max_logit_given_msp, risk_coverage_by_method
from calibrant.posthoc import LogitNorm
from calibrant.report import draw_errors_by_source, draw_max_logit_given_msp, draw_risk_coverage_by_method
from tests.helpers.errors import facts
from tests.helpers.metric_data import CASES, close
from tests.reference import metrics as R

case = pytest.mark.parametrize("data", CASES.values(), ids=CASES.keys())


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


REFUSED = [
    (lambda: risk_coverage_by_method({}, [1]), "scores none"),
    (lambda: risk_coverage_by_method([0.5], [1]), "scores list"),
    (lambda: risk_coverage_by_method({"a": [0.5, 0.6]}, [1]), "scores['a'] [2] [1]"),
    (lambda: risk_coverage_by_method({"a": [0.5, np.nan]}, [1, 0]), "scores['a'] nan row 1"),
    (lambda: risk_coverage_by_method({"a": [0.5]}, {"b": [1]}), "'a' 'b'"),
    (lambda: risk_coverage_by_method({"a": [0.5]}, [1], risks=[0.1, 2]), "risks 2"),
    (lambda: risk_coverage_by_method({"a": [0.5]}, [1], risks="x"), "risks 'x'"),
    (lambda: risk_coverage_by_method({"a": [0.5]}, [1], points=3), "points 4 3"),
    (lambda: errors_by_source([0.5, 0.6], [1, 0], [True], 0.5), "shifted [2] [1]"),
    (lambda: errors_by_source([0.5, 0.6], [1, 0], [0, 2], 0.5), "shifted 2 row 1"),
    (lambda: errors_by_source([0.5, 0.6], [1, 0], ["a", "b"], 0.5), "shifted"),
    (lambda: errors_by_source([0.5, 0.6], [1], [True, False], 0.5), "correct [2] [1]"),
    (lambda: errors_by_source([0.5, 0.6], [1, 0], [True, False], 0.0), "coverage 0.0"),
    (lambda: errors_by_source([0.5, 0.6], [1, 0], [True, False], [0.5, 1.5]), "coverage 1.5"),
    (lambda: errors_by_source([0.5, 0.6], [1, 0], [True, False], []), "coverage none"),
]


@pytest.mark.parametrize(("call", "told"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_refused(call, told):
    with pytest.raises(ValueError, match=facts(*told.split())):
        call()


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


def test_errors_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(7)
    score, correct, shifted = rng.integers(0, 20, 997) / 20, rng.random(997) < 0.7, rng.random(997) < 0.4
    first = errors_by_source(score, correct, shifted, [0.1, 0.33])
    order = rng.permutation(997)
    second = errors_by_source(torch.from_numpy(score[order]), correct[order], shifted[order], (0.1, 0.33))
    for name in ("accepted", "risk", "errors", "original_errors", "shifted_errors", "shifted_share"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@st.composite
def positive_logits(draw):
    """Strictly positive logits, not all equal, within a factor of ten: in float64 the inequality stays strict."""
    scale = draw(st.floats(1e-3, 1e3))
    logits = np.array(draw(st.lists(st.floats(1, 10), min_size=2, max_size=12)))
    logits[draw(st.integers(0, len(logits) - 1))] = logits.max() + draw(st.floats(0.01, 1.0))
    return scale * logits, scale * draw(st.floats(0.1, 10))


@given(positive_logits(), st.integers(1, 10))
def test_result_1_by_logit_norm(drawn, p):
    """SC Eq. 19: a common offset lowers the normalised largest logit, whatever the softmax says."""
    v, eta = drawn
    rows = torch.from_numpy(np.stack([v, v + eta]))
    before, after = LogitNorm(powers=[p], centre=False).scores(rows)[p].tolist()
    assert before == pytest.approx(v.max() / np.sum(v**p) ** (1 / p), rel=1e-12)
    assert after < before


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


def test_figures_of_next_to_nothing_and_the_same_each_time(tmp_path):
    for _ in range(2):
        draw_risk_coverage_by_method(tmp_path / "a.svg", risk_coverage_by_method({"$a_": [0.5]}, [1]), title="$5 & <b>")
        draw_max_logit_given_msp(tmp_path / "b.svg", max_logit_given_msp([0.5], [1.0], [1]))
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    axis = Figure().subplots()
    draw_errors_by_source(axis, {"a": errors_by_source([0.5], [1], [True])})
    assert [t.get_text() for t in axis.texts] == ["no errors"]


def test_figures_that_cannot_be_drawn_say_why(tmp_path):
    curves, bands, errors = results()
    path = tmp_path / "x.png"
    one, other = (errors_by_source([0.5, 0.6], [1, 0], [True, False], c) for c in (0.5, 1.0))
    for draw, given_, settings, told in (
        (draw_risk_coverage_by_method, {}, {}, "none"),
        (draw_errors_by_source, list(errors.values()), {}, "list"),
        (draw_risk_coverage_by_method, {"a": 1}, {}, "'a' coverage"),
        (draw_risk_coverage_by_method, curves, {"target_risk": 5}, "target_risk 5"),
        (draw_max_logit_given_msp, {}, {}, "max_logit_given_msp dict"),
        (draw_errors_by_source, errors, {}, "[0.1, 0.5] coverage="),
        (draw_errors_by_source, errors, {"coverage": 0.2}, "coverage 'a' 0.2"),
        (draw_errors_by_source, {"a": one, "b": other}, {}, "coverage several"),
        (draw_errors_by_source, {"a": one}, {"sources": ["x"]}, "sources"),
    ):
        with pytest.raises(ValueError, match=facts(*told.split())):
            draw(path, given_, **settings)
    with pytest.raises(ValueError, match=facts(".png")):
        draw_max_logit_given_msp(tmp_path / "x.gif", bands)
    assert not list(tmp_path.iterdir())
