"""What is accepted, and what errors about values tell; decimal places against text that was printed with so many."""

import re
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.base import arrays
from calibrant.predictions import FLOOR, Digits, log_probabilities
from tests.helpers.errors import facts
from tests.helpers.predictions import IMAGES, PIXELS, P, Q, Y, Z, refusal, refusal_of, write_columns

ROUGH = Q + np.array([0, 0, 0.01])


def test_the_advice_in_errors_works():
    Predictions.from_probabilities(ROUGH / ROUGH.sum(1, keepdims=True), [0] * 4)


logits, probabilities, confidence = (
    Predictions.from_logits,
    Predictions.from_probabilities,
    Predictions.from_confidence,
)


MASKED = np.ma.masked_greater(Z, 4)
# A call, and what its user must be told: the argument, the value and its row, and how to mend it.
REFUSED = [
    (lambda: logits(Z[:, 0], Y), "column two 3 0,1,2"),
    (lambda: logits(Z[:, :1], Y), "column two 3"),
    (lambda: logits([1, 2], [0, 1]), "logits floating [N,C]"),
    (lambda: logits(Z.astype(int), Y), "logits floating int64 [5,3]"),
    (lambda: logits(Z[:0], Y[:0]), "N>=1 C>=2 [0,3]"),
    (lambda: logits(IMAGES, PIXELS), 'kind="segmentation"'),
    (lambda: logits(Z, None), "labels None"),
    (lambda: logits([[1.0, 2.0], [1.0]], [0, 1]), "logits list"),
    (lambda: logits(np.where(Z == 5, np.nan, Z), Y), "finite nan row3 class2"),
    (lambda: logits(np.where(Z == 5, -np.inf, Z).astype("f2"), Y), "-inf row3 class2"),
    (lambda: logits(np.where(IMAGES == 87, np.inf, IMAGES), PIXELS, kind="segmentation"), "inf row1 class1 pixel[1,2]"),
    (lambda: logits(MASKED, Y), "masked"),
    (lambda: logits(Z, Y[:3]), "labels [5] [3]"),
    (lambda: logits(Z, Y + 0.5), "labels 0.5 row0"),
    (lambda: logits(Z, [0.0, 1.0, np.nan, 0.0, 0.0]), "labels novalue row2"),
    (lambda: logits(Z, Y > 0), "labels whole bool"),
    (lambda: logits(Q, [[1, 0, 0]] * 4), "[4,3] .argmax(1)"),
    (lambda: logits(Q, np.eye(3)[[0, 1, 2, 0]] / 2 + 0.5 / 3), "shares"),
    (lambda: logits(Q, [1, 2, 3, 1]), "3 row2 from0"),
    (lambda: logits(Q, [1, 9, 3, 1], ignore_index=9), "3 row2 from0"),
    (lambda: logits(Z, Y - 1), "labels 0..2 -1 row0 ignore_index=-1"),
    (lambda: logits(Z, [0, 255, 1, 2, 0]), "255 row1 --ignore-index255 ignore_index=255"),
    (lambda: logits(Z, Y.astype(np.uint64) + np.uint64(2**63)), "9223372036854775808 row0"),
    (lambda: logits(Z, [0, 255, 254, 2, 0], ignore_index=255), "255 254 row2"),
    (lambda: logits(Z, list("abcab")), "'a' row0 --class-names class_names=[...]"),
    (lambda: logits(Z, list("abcxa"), class_names=list("abc")), "a,b,c 'x' row3"),
    (lambda: logits(np.eye(9), ["x"] * 9, class_names=list("abcdefghi")), "a,b,c,d,e 4 'x'"),
    (lambda: logits(Z, Y, class_names=["a", "b"]), "class_names 3 2"),
    (lambda: logits(Z, Y, class_names=["a", "b", "a"]), "class_names 'a' twice"),
    (lambda: logits(Z, Y, class_names=["a", "b", 1]), "class_names text 1"),
    (lambda: logits(Z, Y, class_names=["a", "b", "a\0"]), "class_names text"),
    (lambda: logits(Z, Y, class_names=["a", "b", "x" * 1001]), "class_names 1000 1001"),
    (lambda: logits(Z, Y, ids=["\ud800", *"bcde"]), "ids 0xd800"),
    (lambda: logits(Z, Y, kind="images"), "kind 'images'"),
    (lambda: logits(Z, Y, split="dev"), "split 'dev'"),
    (lambda: logits(Z, Y, ignore_index=True), "ignore_index True"),
    (lambda: logits(Z, Y, ids=Y * 0.5), "ids [5] float64"),
    (lambda: logits(Z, Y, ids=np.array([1, "a", 2, 3, 4], object)), "object int"),
    (lambda: logits(Z, Y, groups={"g": [1, 2]}), "group.g [5] [2]"),
    (lambda: logits(Z, Y, groups=[1, 2]), "groups dict list"),
    (lambda: logits(Z, Y, objectness=Z[:, 0]), "objectness 0..1 2.0 row0"),
    (lambda: probabilities(P + 1e-5, Y), "probabilities 0..1 1.00001 row1"),
    (lambda: probabilities(P - 1e-9, Y), "0..1 -1e-09 row1 class1"),
    (lambda: probabilities(4 * Q - 1, [0] * 4), "logits"),
    (lambda: probabilities(100 * Q, [0] * 4), "100"),
    (lambda: probabilities(ROUGH, [0] * 4), "digits p/p.sum(1,keepdims=True)"),
    (lambda: probabilities(np.where(P == 0.375, 0.3771234, P), Y), "0.001 1.00212 row2 p/p.sum(1,keepdims=True)"),
    (lambda: probabilities(Q * [[0.99], [1], [1], [0.9]], [0] * 4), "0.9 row3"),
    (lambda: probabilities(np.where(P == 0.375, 0.5, P).astype("f2"), Y), "0.01 1.125 row2"),
    (lambda: confidence([50.0, 99.5], [0, 1]), "100"),
    (lambda: confidence([0.5, 1.25], [0, 1]), "1.25 row1"),
    (lambda: confidence([0.5, 1.0 + 1e-9], [1, 1]), "confidence 0..1 1.0 row1"),
    (lambda: confidence([0.5, np.nan], [1, 1]), "nan row1"),
    (lambda: confidence([0.5, 0.5], [1, 2]), "correct 2 row1"),
    (lambda: confidence([0.5, 0.5], ["yes", "maybe"]), "correct 'maybe' row1"),
    (lambda: confidence([0.5, 0.5], ["yes", " "]), "correct novalue row1"),
    (lambda: confidence(P, Y > 0), "confidence floating [N]"),
]


@pytest.mark.parametrize(("call", "told"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_input_is_refused_in_one_sentence(call, told):
    assert re.search(facts(*told.split()), refusal_of(call).replace(" ", ""))


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
    column = np.array([[3.0], [0.0], [2.0]])
    assert Predictions.from_logits(np.zeros((3, 4)), column).labels.tolist() == [3, 0, 2]
    assert Predictions.from_probabilities(np.full((3, 1), 0.5), np.array([1.0, 0.0, 1.0])).labels.tolist() == [1, 0, 1]


def test_sums_that_few_digits_explain():
    written = np.round(np.random.default_rng(0).dirichlet(np.ones(7), 200), 2)
    off = np.abs(written.sum(1) - 1)
    near = written[off < 0.0101]
    assert (off[off < 0.0101] > 0.005).any()  # beyond what is allowed without an explanation
    Predictions.from_probabilities(near, np.zeros(len(near), int))
    far = written[off > 0.0101]  # rounding explains these too, and so would a column that is missing
    assert "digits" in refusal_of(probabilities, far, np.zeros(len(far), int))
    assert "got 0.98" in refusal_of(probabilities, near * 0.99, np.zeros(len(near), int))  # of many digits
    assert "got 0.8" in refusal_of(probabilities, [[0.4, 0.4], [0.5, 0.5]], [0, 1])


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
    p = np.round(random_probabilities(classes=2)[:, 0], 4)  # one minus a rounded number is rounded too
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
    columns = {"confidence": [0.5, 0.25, 1.0], "correct": verdicts}
    assert Predictions.open(write_columns(tmp_path / f"x{suffix}", columns)).correct.tolist() == [True, False, True]
    assert Predictions.from_confidence(*columns.values()).correct.tolist() == [True, False, True]


@pytest.mark.parametrize("point", [0x110000, 0xD800, 0xDFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("role", ["ids", "labels", "class_names", "kind", "split", "group.g", "predicted"])
def test_characters_that_do_not_exist(role, point, tmp_path):
    odd = np.array([point, 65, 66], np.uint32).view("<U1")
    arrays = {"logits": np.eye(3), "labels": np.arange(3)}
    if role == "predicted":
        arrays = {"confidence": np.full(3, 0.5), "labels": odd}
    if role == "labels":
        arrays["class_names"] = np.array(["A", "B", "C"])
    arrays[role] = odd[:1] if role in ("kind", "split") else odd
    np.savez(tmp_path / "a.npz", **arrays)
    assert re.search(facts("character", "labels" if role == "predicted" else role), refusal(tmp_path / "a.npz"))
    np.savez(tmp_path / "b.npz", **arrays | {role: arrays[role].byteswap().view(">U1")})
    assert re.search(facts("character", "labels" if role == "predicted" else role), refusal(tmp_path / "b.npz"))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_one_long_text_does_not_blow_up_all_others(suffix, monkeypatch, tmp_path):
    """Each value takes as much memory as the longest: a megabyte of file would be gigabytes."""
    path, rows = tmp_path / f"a{suffix}", 200_000
    ids = ["a"] * (rows - 1) + ["b" * 20_000]
    if suffix == ".csv":
        path.write_text("confidence,correct,ids\n" + "".join(f"0.5,1,{name}\n" for name in ids))
    else:
        pq.write_table(pa.table({"confidence": np.full(rows, 0.5), "correct": np.ones(rows, bool), "ids": ids}), path)
    assert re.search(facts("ids", "20,000"), refusal(path))
    assert Predictions.open(path).confidence.sum() == rows / 2
    ids = ["a"] * 1000 + ["b" * 100]
    columns = {"confidence": np.full(1001, 0.5), "correct": np.ones(1001, bool), "ids": ids}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    pq.write_table(pa.table(columns).slice(1000), tmp_path / "c.parquet")
    monkeypatch.setattr(arrays, "TEXT_BYTES", 400 * 1001)
    parts = Predictions.open([tmp_path / "b.parquet", tmp_path / "c.parquet"])
    assert sum(len(batch) for batch in parts.batches(500)) == 1002
    with pytest.raises(ValueError, match=facts("b.parquet", "ids")):
        parts.load()
