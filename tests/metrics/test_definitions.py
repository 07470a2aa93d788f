"""Every metric on arrays is its slow definition in tests/reference, in all of its conventions and on any data."""

import inspect
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrant import metrics as M
from calibrant.metrics import calibration, kernel
from tests.helpers.errors import facts
from tests.helpers.metric_data import CASES, LOGITS, close, images, scores
from tests.reference import metrics as R

BINS = (1, 2, 4, 15, 40)
TIES = ("expected", "optimistic", "pessimistic", "together", "order")
AREAS = ("mean", "trapezoid", "trapezoid-first")
RISKS = (0, 0.05, 0.1, 0.2, 0.25, 0.3, 1 / 3, 0.5, 0.8, 1)
COVERAGES = (1e-9, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.9, 0.95, 1)


def every(**values):
    """The keywords of all combinations."""
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


PYCALIB = every(bins=(1, 15, 100), convention=["pycalib"], classes=(2, 10, 1000))
#: Of metrics of scores, how they are called.
OF_SCORES = {
    "accuracy": [{}],
    "mean_confidence": [{}],
    "overconfidence": [{}],
    "underconfidence": [{}],
    "objectness_deviation": [{}],
    "ece": every(bins=BINS) + PYCALIB,
    "mce": every(bins=BINS) + PYCALIB,
    "aece": every(bins=BINS, convention=("standard", "released")),
    "reliability": every(bins=BINS),
    "aurc": every(convention=AREAS, ties=TIES),
    "augrc": every(convention=AREAS, ties=TIES),
    "e_aurc": every(convention=AREAS, ties=TIES, optimum=("exact", "asymptotic")),
    "coverage_at_risk": every(risk=RISKS, ties=TIES),
    "risk_at_coverage": every(coverage=COVERAGES, ties=TIES),
    "risk_coverage_curve": [{}],
    "auroc": [{}],
    "fpr_at_tpr": every(tpr=(0.05, 0.5, 0.9, 0.95, 1)),
    "aupr_errors": [{}],
}
OF_LOGITS = {
    "nll": [{}],
    "brier": every(scale=("sum", "half", "mean")),
    "classwise_ece": every(bins=(1, 7, 15), average=(None, "mean")),
    "top_label": [{}],
}
#: Metrics of whole segmentations and one that chooses its own bandwidth: tested apart.
APART = {"mean_iou", "smooth_ece"}


def test_every_metric_is_here():
    assert (set(OF_SCORES) | set(OF_LOGITS) | APART) >= set(M.METRICS)


def agree(ours, theirs):
    """Numbers, arrays, or several of them."""
    if isinstance(ours, float):
        assert ours == close(theirs, abs=4e-15)
    elif isinstance(ours, np.ndarray):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=2e-15, strict=False)
        assert ours.shape == np.shape(theirs)
    else:
        names = getattr(ours, "__dataclass_fields__", range(len(theirs) if isinstance(ours, tuple) else 0))
        assert names
        for name in names:
            pair = (
                (ours[name], theirs[name]) if isinstance(ours, tuple) else (getattr(ours, name), getattr(theirs, name))
            )
            agree(*pair)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", OF_SCORES)
def test_metrics_of_scores(name, case):
    confidence, correct = CASES[case]
    parameters = list(inspect.signature(getattr(M, name)).parameters)
    columns = {"score": confidence, "confidence": confidence, "correct": correct}
    columns["objectness"] = np.linspace(0, 1, np.size(confidence)).reshape(np.shape(confidence))
    for settings in OF_SCORES[name]:
        if "classes" in settings:
            columns["confidence"] = np.maximum(confidence, 1 / settings["classes"])
        data = [columns[p] for p in parameters if p in columns]
        agree(getattr(M, name)(*data, **settings), getattr(R, name)(*data, **settings))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ties", TIES)
def test_every_risk_on_the_curve_is_met_exactly(case, ties):
    """At a risk that some coverage has, that coverage counts: no rounding on the way."""
    for risk in {float(r) for r in R.risks(*CASES[case], ties)}:
        assert M.coverage_at_risk(*CASES[case], risk, ties=ties) == R.coverage_at_risk(*CASES[case], risk, ties=ties)


@pytest.mark.parametrize("case", LOGITS)
@pytest.mark.parametrize("entries", [1 << 20, 24, 1])
def test_metrics_of_logits(case, entries, monkeypatch):
    """In blocks of many rows, of parts of an image, and of one position."""
    monkeypatch.setattr(kernel, "BLOCK_NUMBERS", entries)
    monkeypatch.setattr(kernel, "CHUNK", entries)
    for name, settings in OF_LOGITS.items():
        for setting in settings:
            agree(getattr(M, name)(*LOGITS[case], **setting), getattr(R, name)(*LOGITS[case], **setting))
    assert len(M.top_label(LOGITS[case][0])) == 2


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_probabilities_are_taken_as_they_are(dtype):
    z, y = scores(8, (29, 4))
    powers = np.exp(z - z.max(1, keepdims=True))
    p = (powers / powers.sum(1, keepdims=True)).astype(dtype)
    for name in ("nll", "brier", "classwise_ece"):
        assert getattr(M, name)(p, y, kind="probabilities") == close(getattr(R, name)(p, y, kind="probabilities"))
    confidence, *rest = M.top_label(p, y, kind="probabilities")
    expected, *others = R.top_label(p, y, kind="probabilities")
    agree(tuple(rest), others)
    np.testing.assert_array_equal(confidence, np.minimum(expected, 1))


@pytest.mark.parametrize("entries", [1 << 20, 16])
def test_ignored_positions_are_left_out(entries, monkeypatch):
    monkeypatch.setattr(kernel, "BLOCK_NUMBERS", entries)
    monkeypatch.setattr(kernel, "CHUNK", entries)
    z, y = scores(9, (2, 3, 4, 5))
    y[0, 1] = 255
    y[1, :, 2] = 255
    rows, held = map(np.array, R.rows_of(z, y, 255))
    assert len(held) == 40 - 5 - 4
    for metric in (M.nll, M.brier, M.classwise_ece):
        assert metric(z, y, ignore_index=255) == close(metric(rows, held))


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=25), st.sampled_from(AREAS), st.data()
)
def test_properties_of_the_areas(rows, convention, data):
    score, correct = map(np.array, zip(*rows, strict=True))
    values = {ties: M.aurc(score, correct, convention=convention, ties=ties) for ties in TIES}
    assert values["expected"] == close(R.aurc(score, correct, convention=convention))
    slack = 1e-15
    assert values["optimistic"] <= min(values["expected"], values["order"]) + slack
    assert max(values["expected"], values["order"]) <= values["pessimistic"] + slack
    assert M.e_aurc(score, correct, convention=convention) >= 0
    shuffle = np.array(data.draw(st.permutations(range(len(score)))))
    for ties in ("expected", "optimistic", "pessimistic", "together"):
        again = M.aurc(score[shuffle], correct[shuffle], convention=convention, ties=ties)
        assert again == values[ties]
        assert M.aurc(3 * score + 5, correct, convention=convention, ties=ties) == values[ties]


# ---------------------------------------------------------------------- types, edges and sizes


@pytest.mark.parametrize("name", ["ece", "mce", "aece", "smooth_ece", "overconfidence", "underconfidence", *OF_SCORES])
def test_any_kind_of_array_in_any_order_gives_the_same_float(name):
    confidence, correct = CASES["ties"]
    function = getattr(M, name)
    if list(inspect.signature(function).parameters)[1:2] != ["correct"]:
        return
    required = {"coverage_at_risk": (0.2,), "risk_at_coverage": (0.7,)}.get(name, ())
    frozen = confidence.copy()
    frozen.setflags(write=False)
    value = function(confidence, correct, *required)
    if not isinstance(value, float):
        return
    tracked = torch.from_numpy(confidence).requires_grad_()
    for each in (confidence.tolist(), frozen, np.repeat(confidence, 2)[::2], confidence.astype(">f8"), tracked):
        for right in (correct, correct.astype(np.int8), correct.astype(np.float32), torch.from_numpy(correct)):
            assert type(function(each, right, *required)) is float
            assert function(each, right, *required) == value
    assert function(confidence.reshape(-1, 1), correct.reshape(-1, 1), *required) == value
    order = np.random.default_rng(0).permutation(len(confidence))
    again = function(confidence[order], correct[order], *required)
    assert again == pytest.approx(value, rel=1e-14, abs=1e-16)


def test_any_kind_of_logits_gives_the_same_float():
    z, y = LOGITS["plain"]
    locked = z.copy()
    locked.setflags(write=False)
    for function in (M.nll, M.brier, M.classwise_ece):
        for each in (z.tolist(), locked, z.astype(">f8"), np.asfortranarray(z), torch.from_numpy(z).requires_grad_()):
            for labels in (y, y.tolist(), y.astype(np.uint8), torch.from_numpy(y)):
                assert type(function(each, labels)) is float
                assert function(each, labels) == function(z, y)
    assert z.tolist() == scores(0, (37, 5))[0].tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [5, 15, 100])
def test_a_confidence_on_an_edge_is_in_the_bin_below_in_every_precision(dtype, size):
    rng = np.random.default_rng(size)
    edges = torch.arange(size + 1, dtype=torch.float64) / size
    confidence = torch.cat([edges, torch.from_numpy(rng.random(50))]).to(dtype)
    correct = torch.from_numpy(rng.random(size + 51) < 0.5)
    seen = M.reliability(confidence, correct, bins=size)
    assert seen.count.dtype == np.int64
    assert seen.count.tolist() == R.reliability(confidence, correct, bins=size).count.tolist()
    assert M.reliability(confidence[1 : size + 1], correct[1 : size + 1], bins=size).count.tolist() == [1] * size
    assert M.ece(confidence, correct, bins=size) == close(R.ece(confidence, correct, bins=size))
    if dtype != torch.bfloat16:
        assert M.mce(confidence.numpy(), correct, bins=size) == M.mce(confidence, correct, bins=size)
    p, y = torch.tensor([[0.2, 0.8], [0.6, 0.4], [1.0, 0.0], [0.4, 0.6]]).to(dtype), [0, 1, 0, 1]
    settings = {"bins": 5, "kind": "probabilities", "average": None}
    np.testing.assert_allclose(M.classwise_ece(p, y, **settings), R.classwise_ece(p, y, **settings), rtol=1e-14)


def test_pycalib_counts_what_rounding_put_below_the_first_edge():
    settings = {"bins": 4, "convention": "pycalib", "classes": 7}
    lowered = torch.tensor([1 / 7, 0.9]).bfloat16()
    assert float(lowered[0]) < 1 / 7
    for confidence in (lowered, [1 / 7 - 1e-9, 0.9]):
        assert M.ece(confidence, [1, 0], **settings) == M.ece([1 / 7, 0.9], [1, 0], **settings)


def test_parts_of_a_large_array_add_up(monkeypatch):
    confidence, correct = CASES["ties"]
    expected = [f(confidence, correct) for f in (M.ece, M.mce, M.smooth_ece)]
    monkeypatch.setattr(calibration, "ROWS", 7)
    monkeypatch.setattr(calibration, "RESIDUALS", 7)  # so few that the data count as large, and the first grid is finer
    assert [f(confidence, correct) for f in (M.ece, M.mce)] == close(expected[:2])
    assert M.smooth_ece(confidence, correct) == pytest.approx(expected[2], abs=1e-7)


def test_two_million_single_precision_confidences_lose_nothing():
    """torchmetrics sums in float32 and drifts; every confidence is one of two, so the value is known."""
    low, high, half = np.float32(0.6), np.float32(0.9), 1_000_000
    confidence = np.repeat([low, high], half)
    correct = np.arange(2 * half) % 2 == 0
    expected = (float(low) - 0.5) / 2 + (float(high) - 0.5) / 2
    for value in (M.ece(confidence, correct), M.aece(confidence, correct), M.mean_confidence(confidence) - 0.5):
        assert value == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("ties", TIES)
def test_scores_are_any_finite_numbers(ties):
    rng = np.random.default_rng(10)
    score = np.concatenate([rng.normal(0, 1e3, 20), [0.0, -0.0, -0.0, 1e300, -1e300, 5e-324, -5e-324], [-3.0] * 4])
    correct = rng.random(len(score)) < 0.6
    for hidden in (score, score[score < 0], score[score > 0], score.clip(-1e30, 1e30).astype(np.float32)):
        held = correct[: len(hidden)]
        assert M.aurc(hidden, held, ties=ties) == close(R.aurc(hidden, held, ties=ties))
        assert M.augrc(hidden, held, ties=ties) == close(R.augrc(hidden, held, ties=ties))
    np.testing.assert_array_equal(
        M.risk_coverage_curve(score, correct).threshold, R.risk_coverage_curve(score, correct).threshold
    )


def test_coverage_is_the_whole_number_it_stands_for():
    score = -np.arange(10.0)
    for k in range(1, 11):
        correct = np.arange(10) != k - 1  # the only error is the k-th
        assert M.risk_at_coverage(score, correct, k / 10) == 1 / k
        assert M.risk_at_coverage(score, correct, k / 10 - 1e-12) == 1 / k
        if k < 10:
            assert M.risk_at_coverage(score, correct, k / 10 + 1e-12) == 1 / (k + 1)


def test_extreme_logits():
    assert M.nll([[1e4, 0.0], [0.0, 1e4]], [1, 1]) == 5e3
    assert M.nll(torch.tensor([[6e4, -6e4]], dtype=torch.float16), [1]) == 120_000
    assert M.nll([[40.0, 0.0]], [0]) == pytest.approx(math.log1p(math.exp(-40)), rel=1e-15)
    assert M.brier([[1e4, 0.0]], [1]) == 2
    assert M.nll([[1.0, 0.0], [0.5, 0.5]], [1, 0], kind="probabilities") == math.inf
    assert M.top_label([[1e4, 1e4, -1e4]])[0].tolist() == [0.5]


# ---------------------------------------------------------------------- what is refused

PAIRED = ["ece", "mce", "aece", "smooth_ece", "overconfidence", "underconfidence", "reliability"]
RANKED = ["aurc", "e_aurc", "augrc", "risk_coverage_curve"]
BAD_PAIRS = [
    ([0.5, math.nan], [1, 0], ("{0}", "nan", "1")),
    ([0.5, math.inf], [1, 0], ("{0}", "inf", "1")),
    ([[0.5], [-math.inf]], [[1], [0]], ("{0}", "-inf", "[1, 0]")),
    ([], [], ("{0}", "[0]")),
    ([0.5, 0.6], [1], ("correct", "{0}", "[2]", "[1]")),
    ([0.5, 0.6], [[1, 0]], ("correct", "{0}", "[2]", "[1, 2]")),
    ([0.5, 0.6], [1, 2], ("correct", "2", "row 1")),
    ([0.5, 0.6], [1, math.nan], ("correct", "nan", "row 1")),
    ([0.5, 0.6], ["a", "b"], ("correct", "<U1")),
    (["a", "b"], [1, 0], ("{0}", "<U1")),
    ([1j, 1], [1, 0], ("{0}", "complex128")),
    ([True, False], [1, 0], ("{0}", "bool")),
    ([[0.5], [0.6, 0.7]], [1, 0], ("{0}", "list")),
]


@pytest.mark.parametrize("name", PAIRED + RANKED)
def test_bad_pairs(name):
    argument = "confidence" if name in PAIRED else "score"
    outside = [([0.5, 0.6, value], [1, 0, 1], ("confidence", str(value), "row 2")) for value in (1.5, -0.25)]
    for score, correct, named in BAD_PAIRS + (outside if name in PAIRED else []):
        with pytest.raises(ValueError, match=facts(*(word.format(argument) for word in named))):
            getattr(M, name)(score, correct)


Z, Y = LOGITS["plain"]
IMAGES = images(0)
WRONG = [
    (lambda: M.ece([0.5], [1], bins=0), "bins", "0"),
    (lambda: M.aece([0.5], [1], bins=1.5), "bins", "1.5"),
    (lambda: M.aece([0.5], [1], bins=0, convention="released"), "bins", "0"),
    (lambda: M.mce([0.5], [1], bins=True), "bins", "True"),
    (lambda: M.ece([0.5], [1], convention="x"), "convention", "pycalib", "'x'"),
    (lambda: M.aece([0.5], [1], convention="pycalib"), "convention", "released", "pycalib"),
    (lambda: M.ece([0.5], [1], convention="pycalib"), "classes", "None"),
    (lambda: M.ece([0.5, 0.05], [1, 0], convention="pycalib", classes=10), "1/10", "0.05", "row 1"),
    (lambda: M.smooth_ece([0.5], [1], bandwidth=0), "bandwidth", "0.0001"),
    (lambda: M.smooth_ece([0.5], [1], bandwidth=math.nan), "bandwidth", "nan"),
    (lambda: M.aurc([0.5], [1], convention="x"), "convention", "trapezoid-first", "'x'"),
    (lambda: M.augrc([0.5], [1], ties="x"), "ties", "together", "'x'"),
    (lambda: M.e_aurc([0.5], [1], optimum="x"), "optimum", "asymptotic", "'x'"),
    (lambda: M.coverage_at_risk([0.5], [1], 5), "risk", "5"),
    (lambda: M.coverage_at_risk([0.5], [1], math.nan), "risk", "nan"),
    (lambda: M.risk_at_coverage([0.5], [1], 0), "coverage", "0"),
    (lambda: M.accuracy([0.5]), "correct", "0.5", "row 0"),
    (lambda: M.accuracy([]), "correct", "[0]"),
    (lambda: M.mean_confidence([2.0]), "confidence", "2.0", "row 0"),
    (lambda: M.objectness_deviation([0.5], [1.5]), "objectness", "1.5", "row 0"),
    (lambda: M.objectness_deviation([0.5], [0.5, 0.6]), "objectness", "[1]", "[2]"),
    (lambda: M.nll(Z, Y, kind="x"), "kind", "probabilities", "'x'"),
    (lambda: M.nll(Z, Y[:-1]), "labels", "[37]", "[36]"),
    (lambda: M.nll(Z, Y + 0.5), "labels", "float64"),
    (lambda: M.nll(Z, np.where(np.arange(37) == 4, 5, Y)), "labels", "0..4", "5", "row 4"),
    (lambda: M.nll(*IMAGES, ignore_index=254), "254", "255", str(np.argwhere(IMAGES[1] == 255)[0].tolist())),
    (lambda: M.nll(Z, np.full(37, 9), ignore_index=9), "labels", "9"),
    (lambda: M.nll(Z[:, 0], Y), "logits", "[37]"),
    (lambda: M.brier([[0.0, math.nan]], [0]), "logits", "nan", "row 0"),
    (lambda: M.nll([[0.0, 1.0], [math.inf, 0.0]], [0, 1]), "logits", "inf", "row 1"),
    (lambda: M.nll([[0.5, 0.5], [0.5, 0.4]], [0, 1], kind="probabilities"), "probabilities", "0.9", "row 1"),
    (lambda: M.brier([[1.5, -0.5]], [0], kind="probabilities"), "probabilities", "1.5", "row 0"),
    (lambda: M.nll([[0.6, 0.5, -0.1]], [0], kind="probabilities"), "probabilities", "-0.1", "row 0"),
    (lambda: M.brier(Z, Y, scale="x"), "scale", "half", "'x'"),
    (lambda: M.classwise_ece(Z, Y, average="x"), "average", "mean", "'x'"),
    (lambda: M.mean_iou(*IMAGES, classes=5), "classes", "5", "4"),
    (lambda: M.mean_iou(np.full((1, 2, 2), 3), np.zeros((1, 2, 2), int), classes=3), "predictions", "3", "[0, 0, 0]"),
    (lambda: M.pixels(IMAGES[0], np.full((3, 5, 6), 255)), "labels", "255"),
    (lambda: M.pixels(np.zeros((1, 2, 3, 3)), np.zeros((1, 3, 3), dtype=int), exclude_background=0), "labels", "pixel"),
    (lambda: M.pixels(*IMAGES, per_image=0), "per_image", "0"),
]


@pytest.mark.parametrize(("call", "named"), [(call, named) for call, *named in WRONG], ids=[str(n) for _, *n in WRONG])
def test_wrong_arguments(call, named):
    with pytest.raises(ValueError, match=facts(*named)):
        call()
