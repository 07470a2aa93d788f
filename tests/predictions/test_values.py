"""What is accepted, and what errors about values say."""

import tracemalloc

import numpy as np
import pytest

from calibrant import Predictions
from tests.helpers.predictions import IMAGES, PIXELS, P, Q, Y, Z, refusal_of

ROUGH = Q + np.array([0, 0, 0.01])
ENDS = {
    "percent": (lambda: Predictions.from_probabilities(100 * Q, [0] * 4), "(percentages? divide by 100)"),
    "sure percent": (lambda: Predictions.from_confidence([50.0, 99.5], [0, 1]), "(percentages? divide by 100)"),
    "barely": (lambda: Predictions.from_confidence([0.5, 1.25], [0, 1]), "got 1.25 in row 1 (counted from 0)"),
    "from 1": (lambda: Predictions.from_logits(Q, [1, 2, 3, 1]), "3 in row 2 (counted from 0) (labels count from 0)"),
    "not from 1": (lambda: Predictions.from_logits(Q, [0, 2, 3, 1]), "got 3 in row 2 (counted from 0)"),
    "4": (lambda: Predictions.from_logits(Q, [1, 4, 3, 1]), "got 4 in row 1 (counted from 0)"),
    "ignored": (lambda: Predictions.from_logits(Q, [1, 9, 3, 1], ignore_index=9), "(labels count from 0)"),
    "logits": (lambda: Predictions.from_probabilities(4 * Q - 1, [0] * 4), "(if these are logits, name them logits)"),
    "rounding": (lambda: Predictions.from_probabilities(Q - 1e-9, [0] * 4), "row 1 (counted from 0), class 0"),
    "float": (lambda: Predictions.from_logits(Q, [1.0, 0.0, 2.0, 1.0]), "got float64 [4] (use .astype(int))"),
    "half": (lambda: Predictions.from_logits(Q, [1.5, 0.0, 2.0, 1.0]), "got float64 [4]"),
    "one-hot": (lambda: Predictions.from_logits(Q, [[1, 0, 0]] * 4), "got int64 [4, 3] (use .argmax(1))"),
    "column": (lambda: Predictions.from_logits(Q, [[0], [1], [2], [0]]), "got int64 [4, 1] (use .squeeze(1))"),
    "digits": (
        lambda: Predictions.from_probabilities(ROUGH, [0] * 4),
        "(saved with too few digits? renormalise them: p / p.sum(1, keepdims=True))",
    ),
    "sums": (
        lambda: Predictions.from_probabilities(Q * [[0.99], [1], [1], [0.9]], [0] * 4),
        "0.99 in row 0 (counted from 0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_errors_about_values_end_with_what_to_do(case):
    call, end = ENDS[case]
    assert refusal_of(call).endswith(end)


def test_the_advice_in_errors_works():
    Predictions.from_probabilities(ROUGH / ROUGH.sum(1, keepdims=True), [0] * 4)


logits, probabilities, confidence = (
    Predictions.from_logits,
    Predictions.from_probabilities,
    Predictions.from_confidence,
)


REFUSED = {
    "flat": (lambda: logits(Z[:, 0], Y), "^one column is of two classes, and the labels are of 3, 0, 1, 2: give one"),
    "flat whole": (lambda: logits([1, 2], [0, 1]), r"^logits must be floating point \[N, C\]"),
    "whole": (lambda: logits(Z.astype(int), Y), r"logits must be floating point .* got int64 \[5, 3\]"),
    "empty": (lambda: logits(Z[:0], Y[:0]), r"N >= 1 and C >= 2.* got float64 \[0, 3\]"),
    "one class": (lambda: logits(Z[:, :1], Y), "^one column is of two classes, and the labels are of 3"),
    "images": (lambda: logits(IMAGES, PIXELS), r'kind="segmentation"'),
    "no labels": (lambda: logits(Z, None), "^labels must be an array, got None$"),
    "ragged": (lambda: logits([[1.0, 2.0], [1.0]], [0, 1]), "^logits must be an array, got list"),
    "nan": (lambda: logits(np.where(Z == 5, np.nan, Z), Y), "finite, got nan in row 3 .counted from 0., class 2$"),
    "inf": (
        lambda: logits(np.where(Z == 5, -np.inf, Z).astype("f2"), Y),
        "got -inf in row 3 .counted from 0., class 2$",
    ),
    "pixel": (
        lambda: logits(np.where(IMAGES == 87, np.inf, IMAGES), PIXELS, kind="segmentation"),
        r"got inf in row 1 .counted from 0., class 1, pixel \[1, 2\]$",
    ),
    "few labels": (lambda: logits(Z, Y[:3]), r"^labels must be whole numbers \[5\], got int64 \[3\]$"),
    "float labels": (lambda: logits(Z, Y * 1.0), r"labels must be whole numbers \[5\], got float64"),
    "bool labels": (lambda: logits(Z, Y > 0), r"labels must be whole numbers \[5\], got bool"),
    "label 3": (lambda: logits(Z, [0, 1, 3, 2, 0]), r"^labels must lie in 0..2, got 3 in row 2 .counted from 0.$"),
    "label -1": (lambda: logits(Z, Y - 1), r"labels must lie in 0..2, got -1 in row 0 .counted from 0.$"),
    "huge label": (
        lambda: logits(Z, Y.astype(np.uint64) + np.uint64(2**63)),
        "got 9223372036854775808 in row 0 .counted from 0.$",
    ),
    "not the ignored": (
        lambda: logits(Z, [0, 255, 254, 2, 0], ignore_index=255),
        "or be the ignored 255, got 254 in row 2 .counted from 0.$",
    ),
    "names without classes": (
        lambda: logits(Z, list("abcab")),
        "class names given, got 'a' in row 0 .counted from 0. .* class_names=.*--class-names.$",
    ),
    "unknown name": (
        lambda: logits(Z, list("abcxa"), class_names=list("abc")),
        "labels must be among the class names a, b, c, got 'x' in row 3 .* class_names=.*--class-names.$",
    ),
    "few names": (lambda: logits(Z, Y, class_names=["a", "b"]), "class_names must be 3, .* got 2$"),
    "name twice": (lambda: logits(Z, Y, class_names=["a", "b", "a"]), "must differ, got 'a' twice$"),
    "name 1": (lambda: logits(Z, Y, class_names=["a", "b", 1]), "must be a list of text, got 1$"),
    "kind": (lambda: logits(Z, Y, kind="images"), "kind must be one of .*, got 'images'$"),
    "split": (lambda: logits(Z, Y, split="dev"), "split must be one of None, .*, got 'dev'$"),
    "ignore": (lambda: logits(Z, Y, ignore_index=True), "ignore_index must be .* got True$"),
    "ids": (lambda: logits(Z, Y, ids=Y * 0.5), r"ids must be whole numbers or text \[5\], got float64"),
    "odd ids": (lambda: logits(Z, Y, ids=np.array([1, "a", 2, 3, 4], object)), "object array with int"),
    "group": (lambda: logits(Z, Y, groups={"g": [1, 2]}), r"^group.g must be .* \[5\], got int64 \[2\]"),
    "groups": (lambda: logits(Z, Y, groups=[1, 2]), "groups must be a dict .* got list$"),
    "objectness": (lambda: logits(Z, Y, objectness=Z[:, 0]), r"in 0..1, got 2.0 in row 0 "),
    "above 1": (lambda: probabilities(P + 1e-5, Y), r"probabilities must lie in 0..1, got 1.00001 in row 1"),
    "below 0": (lambda: probabilities(P - 1e-9, Y), r"in 0..1, got -1e-09 in row 1 .counted from 0., class 1$"),
    "sum": (
        lambda: probabilities(np.where(P == 0.375, 0.377, P), Y),
        r"probabilities must sum to 1 within 0.001, got 1.002 in row 2 .*digits.*p / p.sum\(1, keepdims=True\)\)$",
    ),
    "half sum": (
        lambda: probabilities(np.where(P == 0.375, 0.5, P).astype("f2"), Y),
        r"within 0.01, got 1.125 in row 2 .counted from 0.$",
    ),
    "sure": (
        lambda: confidence([0.5, 1.0 + 1e-9], [1, 1]),
        r"confidence must lie in 0..1, got 1.0.* row 1 .counted from 0.$",
    ),
    "nan confidence": (lambda: confidence([0.5, np.nan], [1, 1]), "got nan in row 1 .counted from 0.$"),
    "correct 2": (lambda: confidence([0.5, 0.5], [1, 2]), "true or false, or 0 or 1, got 2 in row 1 .counted from 0.$"),
    "correct text": (lambda: confidence([0.5, 0.5], ["1", "0"]), "correct must be true or false"),
    "confidence shape": (lambda: confidence(P, Y > 0), r"confidence must be floating point \[N\]"),
    "masked": (lambda: logits(np.ma.masked_greater(Z, 4), Y), "masked array with masked values$"),
}


if np.dtype(np.longdouble).itemsize > 8:
    REFUSED["long"] = (lambda: logits(Z.astype(np.longdouble), Y), "float16, float32 or float64.* got float128")


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_one_sentence(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_tolerances_are_as_stated():
    Predictions.from_probabilities(np.where(P == 1, 1 + 1e-6, P), Y)
    Predictions.from_probabilities(np.where(P == 0.375, 0.3759, P), Y)
    Predictions.from_probabilities(np.where(P == 0.375, 0.38, P).astype(np.float16), Y)
    Predictions.from_probabilities(-0.0 * P + P, Y)
    Predictions.from_probabilities(np.where(P == 0, -0.0, P), Y)
    Predictions.from_confidence(np.array([0.0, -0.0, 1.0], np.float16), np.array([0.0, 1.0, 1.0]))


def test_names_of_classes_become_numbers_and_ignored_labels_stay():
    p = Predictions.from_logits(Z, ["dog", "cat", "cow", "cow", "dog"], class_names=["dog", "cow", "cat"])
    assert p.labels.tolist() == [0, 2, 1, 1, 0]
    assert Predictions.from_logits(Z, np.array(["b", "a"] * 2 + ["b"], object), class_names=list("abc")).labels[0] == 1
    marked = Predictions.from_logits(
        IMAGES, np.where(PIXELS == 2, 255, PIXELS).astype(np.uint8), kind="segmentation", ignore_index=255
    )
    assert (marked.labels == 255).sum() == (PIXELS == 2).sum()
    assert Predictions.from_logits(Z, Y - 100 * (Y == 2), ignore_index=-98).labels.min() == -98


def test_checking_needs_no_memory_of_the_size_of_the_data():
    p = np.full((1 << 18, 8), 0.125, np.float32)
    y, right = np.zeros(len(p), np.int64), np.ones(len(p), bool)
    tracemalloc.start()
    Predictions.from_probabilities(p, y)
    Predictions.from_logits(p, y)
    Predictions.from_confidence(p[:, 0], right)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < p.nbytes / 8
