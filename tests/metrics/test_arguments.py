"""What the exact metrics take and refuse, and the papers they cite."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant import metrics as M
from tests.docs_tools.test_build import bibliography, cited
from tests.helpers.errors import facts
from tests.helpers.metric_data import CASES, LOGITS, images, scores

SOURCE = Path(M.__file__).parent


def test_any_kind_of_array_gives_the_same_float():
    confidence, correct = CASES["ties"]
    frozen = confidence.copy()
    frozen.setflags(write=False)
    strided = np.repeat(confidence, 2)[::2]
    kinds = [
        confidence.tolist(),
        frozen,
        strided,
        confidence.astype(">f8"),
        torch.from_numpy(confidence).requires_grad_(),
        confidence.reshape(-1, 1),
    ]
    for function in (
        M.ece,
        M.mce,
        M.aece,
        M.smooth_ece,
        M.overconfidence,
        M.underconfidence,
        M.aurc,
        M.e_aurc,
        M.augrc,
    ):
        for each in kinds:
            told = correct.reshape(-1, 1) if np.ndim(each) == 2 else correct
            for right in (told, told.astype(np.int8), told.astype(np.float32), torch.from_numpy(told)):
                value = function(each, right)
                assert type(value) is float
                assert value == function(confidence, correct)
    z, y = LOGITS["plain"]
    locked = z.copy()
    locked.setflags(write=False)
    for function in (M.nll, M.brier, M.classwise_ece):
        for each in (z.tolist(), locked, z.astype(">f8"), np.asfortranarray(z), torch.from_numpy(z).requires_grad_()):
            for labels in (y, y.tolist(), y.astype(np.uint8), torch.from_numpy(y)):
                assert type(function(each, labels)) is float
                assert function(each, labels) == function(z, y)
    assert z.tolist() == scores(0, (37, 5))[0].tolist()


@pytest.mark.parametrize("name", ["ece", "mce", "aece", "smooth_ece", "overconfidence", "underconfidence"])
def test_the_order_of_rows_does_not_matter(name):
    confidence, correct = CASES["ties"]
    order = np.random.default_rng(0).permutation(len(confidence))
    value = getattr(M, name)(confidence, correct)
    assert getattr(M, name)(confidence[order], correct[order]) == pytest.approx(value, rel=1e-14, abs=1e-16)


PAIRED = ["ece", "mce", "aece", "smooth_ece", "overconfidence", "underconfidence", "reliability"]
RANKED = ["aurc", "e_aurc", "augrc", "risk_coverage_curve"]


@pytest.mark.parametrize("name", PAIRED + RANKED)
@pytest.mark.parametrize(
    ("score", "correct", "message"),
    [
        ([0.5, math.nan], [1, 0], "{0} must be {1}, got nan in row 1"),
        ([0.5, math.inf], [1, 0], "{0} must be {1}, got inf in row 1"),
        ([[0.5], [-math.inf]], [[1], [0]], "{0} must be {1}, got -inf at position [1, 0]"),
        ([], [], "{0} must not be empty, got shape [0]"),
        ([0.5, 0.6], [1], "correct must have the shape of {0} [2], got [1]"),
        ([0.5, 0.6], [[1, 0]], "correct must have the shape of {0} [2], got [1, 2]"),
        ([0.5, 0.6], [1, 2], "correct must be True and False or 1 and 0, got 2 in row 1"),
        ([0.5, 0.6], [1, math.nan], "correct must be True and False or 1 and 0, got nan in row 1"),
        ([0.5, 0.6], ["a", "b"], "correct must be True and False or 1 and 0, got <U1 [2]"),
        (["a", "b"], [1, 0], "{0} must be real numbers, got <U1 [2]"),
        ([1j, 1], [1, 0], "{0} must be real numbers, got complex128 [2]"),
        ([True, False], [1, 0], "{0} must be real numbers, got bool [2]"),
    ],
)
def test_bad_pairs(name, score, correct, message):
    argument, asked = ("confidence", "between 0 and 1") if name in PAIRED else ("score", "finite")
    with pytest.raises(ValueError, match=f"^{re.escape(message.format(argument, asked))}$"):
        getattr(M, name)(score, correct)


@pytest.mark.parametrize("name", PAIRED)
def test_confidence_is_between_0_and_1(name):
    for value in (1.5, -0.25):
        with pytest.raises(ValueError, match=rf"^confidence must be between 0 and 1, got {value} in row 2$"):
            getattr(M, name)([0.5, 0.6, value], [1, 0, 1])
    with pytest.raises(ValueError, match=facts("confidence", "list")):
        getattr(M, name)([[0.5], [0.6, 0.7]], [1, 0])


Z, Y = LOGITS["plain"]
IMAGES = images(0)
WRONG = [
    (lambda: M.ece([0.5], [1], bins=0), "bins must be a whole number of at least 1, got 0"),
    (lambda: M.aece([0.5], [1], bins=1.5), "bins must be a whole number of at least 1, got 1.5"),
    (lambda: M.aece([0.5], [1], bins=0, convention="released"), "bins must be a whole number of at least 1, got 0"),
    (lambda: M.mce([0.5], [1], bins=True), "bins must be a whole number of at least 1, got True"),
    (lambda: M.ece([0.5], [1], convention="x"), "convention must be one of 'standard', 'pycalib', got 'x'"),
    (
        lambda: M.aece([0.5], [1], convention="pycalib"),
        "convention must be one of 'standard', 'released', got 'pycalib'",
    ),
    (
        lambda: M.ece([0.5], [1], convention="pycalib"),
        "classes must be the number of classes when convention is 'pycalib', got None",
    ),
    (
        lambda: M.ece([0.5, 0.05], [1, 0], convention="pycalib", classes=10),
        "confidence must be at least 1/10 for 10 classes, got 0.05 in row 1",
    ),
    (lambda: M.smooth_ece([0.5], [1], bandwidth=0), "bandwidth must be finite and at least 0.0001, got 0"),
    (lambda: M.smooth_ece([0.5], [1], bandwidth=math.nan), "bandwidth must be finite and at least 0.0001, got nan"),
    (
        lambda: M.aurc([0.5], [1], convention="x"),
        "convention must be one of 'mean', 'trapezoid', 'trapezoid-first', got 'x'",
    ),
    (
        lambda: M.augrc([0.5], [1], ties="x"),
        "ties must be one of 'expected', 'optimistic', 'pessimistic', 'together', 'order', got 'x'",
    ),
    (lambda: M.e_aurc([0.5], [1], optimum="x"), "optimum must be one of 'exact', 'asymptotic', got 'x'"),
    (lambda: M.coverage_at_risk([0.5], [1], 5), "risk must be a number between 0 and 1, got 5"),
    (lambda: M.coverage_at_risk([0.5], [1], math.nan), "risk must be a number between 0 and 1, got nan"),
    (lambda: M.risk_at_coverage([0.5], [1], 0), "coverage must be a number above 0 and at most 1, got 0"),
    (lambda: M.accuracy([0.5]), "correct must be True and False or 1 and 0, got 0.5 in row 0"),
    (lambda: M.accuracy([]), "correct must not be empty, got shape [0]"),
    (lambda: M.mean_confidence([2.0]), "confidence must be between 0 and 1, got 2.0 in row 0"),
    (lambda: M.objectness_deviation([0.5], [1.5]), "objectness must be between 0 and 1, got 1.5 in row 0"),
    (lambda: M.objectness_deviation([0.5], [0.5, 0.6]), "objectness must have the shape of confidence [1], got [2]"),
    (lambda: M.nll(Z, Y, kind="x"), "kind must be one of 'logits', 'probabilities', got 'x'"),
    (lambda: M.nll(Z, Y[:-1]), "labels must be whole numbers [37], got int64 [36]"),
    (lambda: M.nll(Z, Y + 0.5), "labels must be whole numbers [37], got float64 [37]"),
    (lambda: M.nll(Z, np.where(np.arange(37) == 4, 5, Y)), "labels must be in 0..4, got 5 in row 4"),
    (
        lambda: M.nll(*IMAGES, ignore_index=254),
        f"labels must be in 0..3 or 254, got 255 at position {np.argwhere(IMAGES[1] == 255)[0].tolist()}",
    ),
    (lambda: M.nll(Z, np.full(37, 9), ignore_index=9), "labels must not all be ignored, got 9 everywhere"),
    (
        lambda: M.nll(Z[:, 0], Y),
        "logits must be real numbers [N, C] or [N, C, ...] with N at least 1 and C at least 2, got float64 [37]",
    ),
    (lambda: M.brier([[0.0, math.nan]], [0]), "logits must be finite, got nan in row 0"),
    (lambda: M.nll([[0.0, 1.0], [math.inf, 0.0]], [0, 1]), "logits must be finite, got inf in row 1"),
    (
        lambda: M.nll([[0.5, 0.5], [0.5, 0.4]], [0, 1], kind="probabilities"),
        "probabilities must be rows that sum to 1 within 0.001, got 0.9 in row 1",
    ),
    (
        lambda: M.brier([[1.5, -0.5]], [0], kind="probabilities"),
        "probabilities must be between 0 and 1, got 1.5 in row 0",
    ),
    (lambda: M.brier(Z, Y, scale="x"), "scale must be one of 'sum', 'half', 'mean', got 'x'"),
    (lambda: M.classwise_ece(Z, Y, average="x"), "average must be one of 'mean', got 'x'"),
    (lambda: M.mean_iou(*IMAGES, classes=5), "logits must have 5 classes as said by classes, got 4"),
    (
        lambda: M.mean_iou(np.full((1, 2, 2), 3), np.zeros((1, 2, 2), dtype=int), classes=3),
        "predictions must be in 0..2, got 3 at position [0, 0, 0]",
    ),
    (lambda: M.pixels(IMAGES[0], np.full((3, 5, 6), 255)), "labels must not all be ignored, got 255 everywhere"),
    (
        lambda: M.pixels(np.zeros((1, 2, 3, 3)), np.zeros((1, 3, 3), dtype=int), exclude_background=0),
        "labels must not all be ignored, got no pixel that counts",
    ),
    (lambda: M.pixels(*IMAGES, per_image=0), "per_image must be a whole number of at least 1, got 0"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[str(m) for _, m in WRONG])
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_cited_papers_are_in_the_bibliography(path):
    assert cited(path) <= set(bibliography())
