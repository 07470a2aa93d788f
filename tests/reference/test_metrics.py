"""The slow metrics against values worked by hand (the steps stand in the comments) and against brute force."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.reference import metrics as R

CONFIDENCE, CORRECT = [0.25, 0.75, 0.75, 1.0], [0, 1, 0, 1]
SCORE, HITS = [4, 3, 2, 1], [1, 0, 1, 0]  # E = 0, 1, 1, 2 and r = 0, 1/2, 1/3, 1/2


def exactly(value):
    return pytest.approx(value, rel=1e-15, abs=1e-16)


# ---- calibration -----------------------------------------------------------------------------------------------------
def test_ece_mce_and_reliability_by_hand():
    # Two bins. (0, 1/2]: 0.25 against 0, gap 1/4. (1/2, 1]: mean 2.5/3 = 5/6 against 2/3, gap 1/6.
    # ECE = 1/4 * 1/4 + 3/4 * 1/6 = 1/16 + 1/8 = 3/16.
    assert R.ece(CONFIDENCE, CORRECT, bins=2) == exactly(3 / 16)
    assert R.mce(CONFIDENCE, CORRECT, bins=2) == exactly(1 / 4)
    # Three bins: 0.25 | nothing in (1/3, 2/3] | the other three: the same gaps.
    table = R.reliability(CONFIDENCE, CORRECT, bins=3)
    assert table.count.tolist() == [1, 0, 3]
    np.testing.assert_allclose(table.confidence, [0.25, math.nan, 5 / 6], rtol=1e-15)
    np.testing.assert_allclose(table.accuracy, [0, math.nan, 2 / 3], rtol=1e-15)
    np.testing.assert_array_equal(table.high, [1 / 3, 2 / 3, 1])


def test_edges_are_closed_above_and_zero_is_in_the_first_bin():
    assert R.reliability([0.0, 0.2, 0.4, 1.0], [1, 1, 1, 1], bins=5).count.tolist() == [2, 1, 0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_edges_take_the_type_of_the_confidence(dtype):
    edges = [k / 5 for k in range(1, 6)]  # 0.2 as float32 is above 0.2 as float64, and still ends the first bin
    assert R.reliability(torch.tensor(edges, dtype=dtype), [1] * 5, bins=5).count.tolist() == [1] * 5
    for bins in (7, 15, 100):
        narrowed = torch.tensor([k / bins for k in range(bins + 1)], dtype=torch.float64).to(dtype).double().tolist()
        assert [float(e) for e in R.bin_edges(bins, str(dtype).removeprefix("torch."))] == narrowed


def test_pycalib_by_hand():
    # K = 2, two bins: [0.5, 0.75) and [0.75, 1]; points linspace(0.75, 0.75, 2), not the mid-points 0.625, 0.875.
    # 0.5 wrong: |0.75 - 0|. 0.75, 0.75, 1 with two hits: |0.75 - 2/3| = 1/12. ECE = 1/4 * 3/4 + 3/4 * 1/12 = 1/4.
    arguments = {"bins": 2, "convention": "pycalib", "classes": 2}
    assert R.ece([0.5, 0.75, 0.75, 1.0], CORRECT, **arguments) == exactly(1 / 4)
    assert R.mce([0.5, 0.75, 0.75, 1.0], CORRECT, **arguments) == exactly(3 / 4)
    assert R.ece([0.4999999, 0.75, 0.75, 1.0], CORRECT, **arguments) == exactly(1 / 4)  # below 1/K: the first bin


def test_pycalib_bins_are_those_of_numpy_histogram():
    edges = np.linspace(0.1, 1, 10)
    confidence = np.concatenate([edges, np.random.default_rng(0).uniform(0.1, 1, 83)])
    counts = [len(b.members) for b in R.pycalib_bins(confidence, np.ones(93), 9, 10)]
    assert counts == np.histogram(confidence, bins=9, range=(0.1, 1))[0].tolist()


def test_aece_by_hand():
    # Two runs of two: 0.25 (0), 0.75 (1/2) and 0.75 (1/2), 1 (1), since the tie carries 1/2.
    # |0.5 - 0.25| / 2 + |0.875 - 0.75| / 2 = 1/8 + 1/16 = 3/16; swapping the tied rows changes nothing.
    assert R.aece(CONFIDENCE, CORRECT, bins=2) == exactly(3 / 16)
    assert R.aece(CONFIDENCE, [0, 0, 1, 1], bins=2) == exactly(3 / 16)
    # Three runs of 2, 1, 1: |0.5 - 0.25| / 2 + |0.75 - 0.5| / 4 + 0 = 1/8 + 1/16.
    assert R.aece(CONFIDENCE, CORRECT, bins=3) == exactly(3 / 16)
    # Nine runs, five of them empty: 1/4 * (1/4 + 1/4 + 1/4 + 0).
    assert R.aece(CONFIDENCE, CORRECT, bins=9) == exactly(3 / 16)


def test_released_aece_drops_the_smallest_sample():
    # N = 4, two bins: positions 0, 2, 4 of 0.2, 0.4, 0.6, 0.8 give edges 0.2, 0.6, 0.8 (4 lies beyond the last index).
    # (0.2, 0.6]: 0.4, 0.6 with one hit: 0; (0.6, 0.8]: 0.8 right: 0.2 / 4. The sample at 0.2 is in no bin.
    assert R.aece([0.8, 0.2, 0.6, 0.4], [1, 1, 1, 0], bins=2, convention="released") == exactly(0.05)
    assert R.aece([0.3] * 5, [0] * 5, convention="released") == 0.0  # one tie: everything is dropped


def test_over_and_underconfidence_by_hand():
    assert R.overconfidence(CONFIDENCE, CORRECT) == 0.5  # (0.25 + 0.75) / 2
    assert R.underconfidence(CONFIDENCE, CORRECT) == 0.125  # (0.25 + 0) / 2
    assert math.isnan(R.overconfidence([0.5], [1]))
    assert math.isnan(R.underconfidence([0.5], [0]))
    assert R.accuracy(CORRECT) == 0.5
    assert R.mean_confidence(CONFIDENCE) == 0.6875
    assert R.objectness_deviation([0.5, 1.0], [0.75, 0.25]) == 0.5  # (0.25 + 0.75) / 2


# ---- smooth ECE ------------------------------------------------------------------------------------------------------
def phi(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def test_smooth_ece_of_residuals_with_one_sign_is_their_mean():
    # The kernel integrates to 1, so that nothing cancels: mean residual (0.1 + 0.3 + 0.5) / 3 = 0.3, at every width.
    assert R.smooth_ece([0.9, 0.7, 0.5], [1, 1, 1]) == pytest.approx(0.3, abs=1e-7)
    for width in (0.003, 0.1, 3.0):
        assert R.smooth_ece([0.9, 0.7, 0.5], [1, 1, 1], bandwidth=width) == pytest.approx(0.3, abs=1e-7)
    assert R.smooth_ece([1.0, 0.0], [1, 0]) == 0.0


def test_smooth_ece_of_two_opposite_samples():
    # 0.25 wrong and 0.75 right: residuals -1/4 and 1/4 cancel at t = 1/2 by symmetry. With P the share of the kernel
    # at 0.25 that lies below 1/2, smECE_s = 2 * 1/2 * 1/4 (P - (1 - P)) = (2P - 1) / 4.
    def by_hand(s):
        share = sum(phi((0.5 - m) / s) - phi(-m / s) for k in range(-3, 4) for m in (2 * k + 0.25, 2 * k - 0.25))
        return (2 * share - 1) / 4

    for width in (0.02, 0.15, 0.6):
        assert R.smooth_ece([0.25, 0.75], [0, 1], bandwidth=width) == pytest.approx(by_hand(width), abs=1e-8)
    fixed = R.smooth_ece([0.25, 0.75], [0, 1])
    assert by_hand(fixed) == pytest.approx(fixed, abs=1e-7)


@pytest.mark.slow
def test_smooth_ece_against_differences_of_normal_distributions():
    """Between grid points of one sign the integral is exact by the CDF; where the sign turns the grid is halved."""
    rng = np.random.default_rng(3)
    confidence = rng.random(11)
    correct = rng.random(11) < confidence**2
    for width in (0.01, 0.04, 0.3):
        images = [2 * k + sign * confidence for k in range(-3, 4) for sign in (1, -1)]

        def primitive(t, s=width, images=images):
            terms = [r * phi((t - m) / s) for row in images for m, r in zip(row, correct - confidence, strict=True)]
            return math.fsum(terms) / 11

        def variation(a, b, depth, s=width, primitive=primitive):
            signs = np.sign(R.smoothed_residual(np.array([a, b]), confidence, correct, s))
            if signs[0] == signs[1] or depth == 0:
                return abs(primitive(b) - primitive(a))
            middle = 0.5 * (a + b)
            return variation(a, middle, depth - 1) + variation(middle, b, depth - 1)

        exact = math.fsum(variation(j / 400, (j + 1) / 400, 30) for j in range(400))
        assert R.smooth_ece(confidence, correct, bandwidth=width) == pytest.approx(exact, abs=2e-7)
    fixed = R.smooth_ece(confidence, correct)
    assert R.smooth_ece(confidence, correct, bandwidth=fixed) == pytest.approx(fixed, abs=1e-7)


# ---- selective classification ----------------------------------------------------------------------------------------
def test_areas_by_hand():
    assert R.aurc(SCORE, HITS) == exactly(1 / 3)  # (0 + 1/2 + 1/3 + 1/2) / 4 = (4/3) / 4
    # Trapezoids: 0, 1/4, 5/12, 5/12 sum to 13/12; over 4 with the one from (0, 0), over 3 without it.
    assert R.aurc(SCORE, HITS, convention="trapezoid") == exactly(13 / 48)
    assert R.aurc(SCORE, HITS, convention="trapezoid-first") == exactly(13 / 36)
    assert R.aurc([7], [0], convention="trapezoid-first") == 1.0
    assert R.augrc(SCORE, HITS) == exactly(1 / 4)  # (0 + 1 + 1 + 2) / 16
    # Best ordering of two errors in four: r = 0, 0, 1/3, 1/2, mean 5/24.
    assert R.e_aurc(SCORE, HITS) == exactly(1 / 3 - 5 / 24)
    assert R.e_aurc(SCORE, HITS, optimum="asymptotic") == exactly(1 / 3 - (0.5 + 0.5 * math.log(0.5)))
    assert R.e_aurc(SCORE, [0] * 4, optimum="asymptotic") == 0.0


def test_ties_by_hand():
    # One sure hit, then a tie of right, wrong, right. E inside the tie, i = 2, 3, 4:
    score, correct = [2, 1, 1, 1], [1, 1, 0, 1]
    for ties, expected in {
        "expected": [0, 1 / 6, 2 / 9, 1 / 4],  # 1/3, 2/3, 1 over 2, 3, 4
        "optimistic": [0, 0, 0, 1 / 4],
        "pessimistic": [0, 1 / 2, 1 / 3, 1 / 4],
        "order": [0, 0, 1 / 3, 1 / 4],
        "together": [0, 1 / 4, 1 / 4, 1 / 4],
    }.items():
        assert [float(r) for r in R.risks(score, correct, ties)] == pytest.approx(expected), ties
        assert R.aurc(score, correct, ties=ties) == exactly(sum(expected) / 4), ties
    assert R.aurc([0.0, -0.0], [1, 0], ties="together") == 0.5  # both zeros are one score


def test_expected_errors_literally_and_by_formula():
    for size in range(1, 7):
        for errors in range(size + 1):
            assert R.expected_errors(size, errors, literally=True) == R.expected_errors(size, errors, literally=False)


@pytest.mark.parametrize("convention", ["mean", "trapezoid", "trapezoid-first"])
def test_expected_aurc_is_the_mean_over_all_row_orders(convention):
    score, correct = [3, 1, 1, 2, 2, 1], [0, 1, 0, 1, 0, 1]
    values = []
    for order in itertools.permutations(range(6)):
        rows = [score[i] for i in order], [correct[i] for i in order]
        values.append(R.aurc(*rows, convention=convention, ties="order"))
    assert R.aurc(score, correct, convention=convention) == pytest.approx(math.fsum(values) / 720, rel=1e-13)
    assert R.aurc(score, correct, convention=convention, ties="optimistic") == exactly(min(values))
    assert R.aurc(score, correct, convention=convention, ties="pessimistic") == exactly(max(values))


def test_detection_by_hand():
    score, correct = [0.9, 0.8, 0.8, 0.6], [1, 0, 1, 0]
    assert R.auroc(score, correct) == (1 + 1 + 0.5 + 1) / 4  # 0.9 above both errors; 0.8 beside one, above the other
    assert R.fpr_at_tpr(score, correct, 0.5) == 0  # 0.9 alone is half of the right ones
    assert R.fpr_at_tpr(score, correct) == 0.5  # all right ones down to 0.8, with one of two errors
    assert R.aupr_errors(score, correct) == float(Fraction(5, 6))  # at 0.6 one of one, at 0.8 two of three
    assert all(
        math.isnan(value) for value in (R.auroc([0.5], [1]), R.fpr_at_tpr([0.5], [1]), R.aupr_errors([0.5], [1]))
    )


def test_operating_points_by_hand():
    curve = R.risk_coverage_curve([2, 1, 1, 1], [1, 1, 0, 1])
    assert curve.coverage.tolist() == [0.25, 1.0]
    assert curve.risk.tolist() == [0.0, 0.25]
    assert curve.threshold.tolist() == [2.0, 1.0]
    assert R.coverage_at_risk(SCORE, HITS, 0.4) == 0.75  # r = 0, 1/2, 1/3, 1/2: the third, past a worse second
    assert R.coverage_at_risk(SCORE, [0, 0, 0, 1], 0.5) == 0.0
    assert R.coverage_at_risk([2, 1, 1, 1], [1, 1, 0, 1], 0.2) == 0.25  # a threshold takes the tie whole
    assert R.coverage_at_risk([2, 1, 1, 1], [1, 1, 0, 1], 0.2, ties="expected") == 0.5  # 1/6 at i = 2, 2/9 at 3
    ten = list(range(10, 0, -1))
    assert R.coverage_at_risk(ten, [1] * 7 + [0] * 3, 0.3) == 1.0
    assert R.risk_at_coverage(ten, [1] * 9 + [0], 0.9) == 0.0  # the first nine
    assert R.risk_at_coverage(ten, [1] * 9 + [0], 0.91) == 0.1


# ---- proper scores, classes, pixels ----------------------------------------------------------------------------------
def test_proper_scores_by_hand():
    # Logits 0, log 3: probabilities 1/4, 3/4. Labels 0, 1: -log(1/4), -log(3/4); squares 2 (3/4)^2, 2 (1/4)^2.
    logits, labels = [[0.0, math.log(3)]] * 2, [0, 1]
    assert R.nll(logits, labels) == exactly(0.5 * (math.log(4) + math.log(4 / 3)))
    for scale, divisor in {"sum": 1, "half": 2, "mean": 2}.items():
        assert R.brier(logits, labels, scale=scale) == exactly((18 / 16 + 2 / 16) / 2 / divisor)
    assert R.nll([[0.25, 0.75]] * 2, labels, kind="probabilities") == exactly(R.nll(logits, labels))
    assert R.nll([[0.0, 1.0]], [0], kind="probabilities") == math.inf
    assert R.nll([[0.0, 1e4]], [0]) == 1e4
    assert R.nll([[0.0, 40.0]], [1]) == exactly(math.exp(-40))  # log1p(x) = x for an x that small
    # One image of one row and two columns, the second ignored; the first is the row above with label 0.
    maps = np.array([[[[0.0, 9.0]], [[math.log(3), 9.0]]]])
    assert R.nll(maps, [[[0, 255]]], ignore_index=255) == exactly(math.log(4))


def test_top_label_takes_the_first_maximum():
    confidence, predicted, correct = R.top_label([[1.0, 1.0, -1e4], [0.0, 1e4, 0.0]], [1, 1])
    assert confidence.tolist() == [0.5, 1.0]
    assert predicted.tolist() == [0, 1]
    assert correct.tolist() == [False, True]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_classwise_ece_by_hand(dtype):
    # p = (1/4, 3/4), (3/4, 1/4), labels 1, 1, two bins. Class 0 never occurs: gaps 1/4 and 3/4, mean 1/2.
    # Class 1 always: 3/4 and 1/4 against 1, gaps 1/4 and 3/4, mean 1/2.
    p = torch.tensor([[0.25, 0.75], [0.75, 0.25]], dtype=dtype)
    np.testing.assert_allclose(R.classwise_ece(p, [1, 1], bins=2, kind="probabilities", average=None), [0.5, 0.5])
    # Labels 1, 0: each gap is 1/4.
    assert R.classwise_ece(p, [1, 0], bins=2, kind="probabilities") == 0.25
    assert R.classwise_ece(p.double().log(), [1, 0], bins=2) == exactly(0.25)


def test_mean_iou_and_pixels_by_hand():
    # Labels 0 0 1 / 1 . 1 and predictions 0 1 1 / 1 0 0, the dot ignored. Class 0: both 1, either 3 (first, second,
    # last); class 1: both 2, either 4. Class 2 occurs nowhere. Mean (1/3 + 1/2) / 2 = 5/12.
    labels, predictions = np.array([[[0, 0, 1], [1, 255, 1]]]), np.array([[[0, 1, 1], [1, 0, 0]]])
    assert R.mean_iou(predictions, labels, classes=3) == exactly(5 / 12)
    per_class = R.mean_iou(predictions, labels, classes=3, average=None)
    np.testing.assert_allclose(per_class, [1 / 3, 1 / 2, math.nan])
    logits = np.stack([predictions == k for k in range(3)], axis=1) * 1.0
    assert R.mean_iou(logits, labels, classes=3) == exactly(5 / 12)
    rows, kept = R.pixels(logits, labels, exclude_background=0)
    assert kept.tolist() == [1, 1, 1]
    assert rows.tolist() == [[0, 1, 0], [0, 1, 0], [1, 0, 0]]


# ---- what a sketch may say -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("convention", ["mean", "trapezoid", "trapezoid-first"])
@pytest.mark.parametrize("generalised", [False, True])
def test_aurc_bounds_are_the_extremes_of_all_orders(convention, generalised):
    cells = [(1, 1), (2, 2), (1, 2)]
    orders = [sorted(set(itertools.permutations([1] * r + [0] * w))) for r, w in cells]
    values = []
    for chosen in itertools.product(*orders):
        correct = [bit for cell in chosen for bit in cell]
        heights = R.risks(range(9, 0, -1), correct, "order", generalised=generalised)
        values.append(R.area(heights, convention))
    assert R.aurc_bounds(cells, convention=convention, generalised=generalised) == (min(values), max(values))


def test_aurc_bounds_by_hand():
    # A cell of one right and one wrong: right first r = 0, 1/2; wrong first r = 1, 1/2.
    assert R.aurc_bounds([(1, 1)]) == (0.25, 0.75)


def test_random_placements_stay_inside_and_reach_both_ends():
    low, high = np.array([0.1, 0.3, 0.5]), np.array([0.2, 0.3, 0.9])
    placed = np.array(list(R.random_placements(np.random.default_rng(0), low, high, count=51)))
    assert placed.shape == (51, 3)
    assert (placed >= low).all()
    assert (placed <= high).all()
    np.testing.assert_array_equal(placed.min(axis=0), low)
    np.testing.assert_array_equal(placed.max(axis=0), high)
    # All three are right and share the one bin: ECE = 1 - mean, so between 1 - 1.4/3 and 1 - 0.9/3.
    values = [R.ece(p, [1, 1, 1], bins=1) for p in placed]
    assert (min(values), max(values)) == pytest.approx((1 - 1.4 / 3, 0.7))


def test_fractions_keep_every_float_exact():
    assert R.mean_confidence([0.1] * 10) == 0.1  # summing floats gives 0.09999999999999999
    assert R.round_to(Fraction(1, 3), "bfloat16") == Fraction(171, 512)  # 0.0101010101...b to eight bits
