"""What is accepted, and what errors about values say; decimal places against text that was printed with so many."""

import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.predictions import FLOOR, Digits, log_probabilities
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
    "logits": (lambda: Predictions.from_probabilities(4 * Q - 1, [0] * 4), "probabilities, name them logits)"),
    "rounding": (lambda: Predictions.from_probabilities(Q - 1e-9, [0] * 4), "row 1 (counted from 0), class 0"),
    "half": (lambda: Predictions.from_logits(Q, [1.5, 0.0, 2.0, 1.0]), "got 1.5 in row 0 (counted from 0)"),
    "one-hot": (lambda: Predictions.from_logits(Q, [[1, 0, 0]] * 4), "got int64 [4, 3] (use .argmax(1))"),
    "digits": (
        lambda: Predictions.from_probabilities(ROUGH, [0] * 4),
        "(saved with too few digits? renormalise them: p / p.sum(1, keepdims=True))",
    ),
    "sums": (
        lambda: Predictions.from_probabilities(Q * [[0.99], [1], [1], [0.9]], [0] * 4),
        "0.9 in row 3 (counted from 0)",
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
    "float labels": (lambda: logits(Z, Y + 0.5), r"labels must be whole numbers, got 0.5 in row 0"),
    "bool labels": (lambda: logits(Z, Y > 0), r"labels must be whole numbers \[5\], got bool"),
    "label 3": (lambda: logits(Z, [0, 1, 3, 2, 0]), r"^labels must lie in 0..2, got 3 in row 2 .counted from 0.$"),
    "label -1": (
        lambda: logits(Z, Y - 1),
        r"labels must lie in 0..2, got -1 in row 0 .counted from 0.: .*ignore_index=-1.$",
    ),
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
        r"class names given, got 'a' in row 0 .counted from 0.: .*--class-names.* class_names=\[...\]\)$",
    ),
    "unknown name": (
        lambda: logits(Z, list("abcxa"), class_names=list("abc")),
        "labels must be among the class names a, b, c, got 'x' in row 3 .*; leave out labels of other",
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
        lambda: probabilities(np.where(P == 0.375, 0.3771234, P), Y),
        r"probabilities must sum to 1 within 0.001, got 1.00212.* in row 2 .*digits.*p / p.sum\(1, keepdims=True\)\)$",
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
    "correct 2": (lambda: confidence([0.5, 0.5], [1, 2]), "must be .*, got 2 in row 1 .counted from 0.$"),
    "correct text": (
        lambda: confidence([0.5, 0.5], ["1", "perhaps"]),
        "correct must be true or false.* got .perhaps. in row 1",
    ),
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


def test_labels_that_are_whole_floats_or_a_column():
    logits = np.zeros((3, 4))
    assert Predictions.from_logits(logits, np.array([[3.0], [0.0], [2.0]])).labels.tolist() == [3, 0, 2]
    assert Predictions.from_probabilities(np.full((3, 1), 0.5), np.array([1.0, 0.0, 1.0])).labels.tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match=r"labels must be whole numbers, got 0.5 in row 1 "):
        Predictions.from_logits(logits, [0.0, 0.5, 1.0])
    with pytest.raises(ValueError, match=r"labels has no value in row 2 .*: fill it in, or leave such rows out$"):
        Predictions.from_logits(logits, [0.0, 1.0, np.nan])


def test_soft_labels_are_not_taken_for_several():
    soft = np.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])
    with pytest.raises(ValueError, match=r"shares of several classes are not supported; give the class that happened"):
        Predictions.from_logits(np.zeros((3, 2)), soft)


@pytest.mark.parametrize("void", [255, -1])
def test_a_label_that_marks_what_does_not_count(void):
    with pytest.raises(
        ValueError, match=rf"got {void} in row 1 .*: if that marks .* --ignore-index {void} \(in Python"
    ):
        Predictions.from_logits(np.zeros((3, 4)), [0, void, 2])


def test_sums_that_few_digits_explain():
    written = np.round(np.random.default_rng(0).dirichlet(np.ones(7), 200), 2)
    off = np.abs(written.sum(1) - 1)
    near = written[off < 0.0101]
    assert (off[off < 0.0101] > 0.005).any()  # beyond what is allowed without an explanation
    Predictions.from_probabilities(near, np.zeros(len(near), int))
    far = written[off > 0.0101]  # rounding explains these too, and so would a column that is missing
    with pytest.raises(
        ValueError, match=r"must sum to 1 within 0.001, got .* \(saved with too few digits\? renormalise"
    ):
        Predictions.from_probabilities(far, np.zeros(len(far), int))
    with pytest.raises(ValueError, match=r"must sum to 1 within 0.001, got 0.98\d* in row"):
        Predictions.from_probabilities(near * 0.99, np.zeros(len(near), int))  # of many digits
    with pytest.raises(ValueError, match=r"must sum to 1 within 0.001, got 0.8\d* in row 0"):
        Predictions.from_probabilities(np.array([[0.4, 0.4], [0.5, 0.5]]), [0, 1])


def random_probabilities(rows=40, classes=3, scale=2.0, seed=0):
    exps = np.exp(scale * np.random.default_rng(seed).standard_normal((rows, classes)))
    return exps / exps.sum(1, keepdims=True)


def digits_of(*parts):
    digits = Digits(parts[0].shape[1])
    for part in parts:
        digits.add(part)
    return digits


@pytest.mark.parametrize("places", [1, 2, 4, 6])
def test_places_are_those_of_the_text(places):
    printed = np.array([[float(f"{p:.{places}f}") for p in row] for row in random_probabilities()])
    assert digits_of(printed).places == places
    first, second = printed[:1], printed[1:]
    assert digits_of(first, second).places == places
    assert digits_of(printed, random_probabilities()).places is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_places_of_every_type(dtype):
    assert digits_of(np.round(random_probabilities(), 2).astype(dtype)).places == 2
    assert digits_of(random_probabilities().astype(dtype)).places is None


def test_one_minus_a_rounded_number_is_rounded_too():
    p = np.round(random_probabilities(classes=2)[:, 0], 4)
    assert digits_of(np.stack([1 - p, p], 1)).places == 4


def test_a_sure_model_was_not_rounded():
    p = 10.0 ** -np.linspace(8, 20, 30)
    digits = digits_of(np.stack([1 - p, p], 1))
    assert digits.places is None
    assert digits.ones > 0
    assert digits.floor == FLOOR


def test_floors():
    # Four decimal places, three classes: half of the last place, 0.00005, for two other classes.
    assert digits_of(np.array([[0.0, 0.1234, 0.8766]])).floor == pytest.approx(2.5e-5)
    # A forest of 3 trees and 2 samples: the smaller of 1/3 and 1/4, for two other classes.
    forest = digits_of(np.array([[1 / 3, 2 / 3, 0.0], [0.0, 1.0, 0.0]]))
    assert (forest.places, forest.zeros, forest.ones, forest.least) == (None, 3, 1, 1 / 3)
    assert forest.floor == pytest.approx(1 / 8)
    # Underflow: the least number above 0 is what a zero is below, however many samples there are.
    assert digits_of(np.array([[1.0, 1e-20], [1.0, 0.0], [0.7, 0.3]])).floor == pytest.approx(1e-20)
    assert digits_of(np.array([[1.0, 0.0], [0.0, 1.0]])).places == 0
    assert digits_of(random_probabilities()).floor == FLOOR
    assert Digits(3).floor == FLOOR  # nothing was seen


def test_parts_add_up():
    whole, parts = np.round(random_probabilities(), 3), digits_of(np.round(random_probabilities(), 3)[:7])
    parts.absorb(digits_of(whole[7:]))
    assert vars(parts) == vars(digits_of(whole))
    parts.absorb(digits_of(random_probabilities()))
    assert parts.places is None


def test_logarithms_begin_at_the_floor():
    z = log_probabilities(np.array([[0.0, 0.5, 1.0]], np.float32), 1e-4)
    np.testing.assert_allclose(z, [[np.log(1e-4), np.log(0.5), 0.0]])


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".npz"])
@pytest.mark.parametrize(
    "verdicts", [["1.0", "0.0", "1"], ["Yes", "no", "YES"], ["true", "False", "TRUE"], [1.0, 0.0, 1.0], [1, 0, 1]]
)
def test_whether_a_prediction_was_correct_in_words_and_numbers(verdicts, suffix, tmp_path):
    path = tmp_path / f"x{suffix}"
    confidence = [0.5, 0.25, 1.0]
    if suffix == ".csv":
        rows = zip(confidence, verdicts, strict=True)
        path.write_text("confidence,correct\n" + "".join(f"{number},{verdict}\n" for number, verdict in rows))
    elif suffix == ".jsonl":
        rows = zip(confidence, verdicts, strict=True)
        path.write_text("".join(json.dumps({"confidence": c, "correct": v}) + "\n" for c, v in rows))
    elif suffix == ".parquet":
        pq.write_table(pa.table({"confidence": confidence, "correct": verdicts}), path)
    else:
        np.savez(path, confidence=confidence, correct=verdicts)
    assert Predictions.open(path).correct.tolist() == [True, False, True]
    assert Predictions.from_confidence(confidence, verdicts).correct.tolist() == [True, False, True]


@pytest.mark.parametrize(("odd", "expected"), [("maybe", "got 'maybe' in row 1"), (" ", "no value in row 1")])
def test_words_that_are_no_verdict(odd, expected):
    assert expected in refusal_of(Predictions.from_confidence, [0.5, 0.5], ["yes", odd])
