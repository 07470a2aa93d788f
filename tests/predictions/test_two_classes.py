"""One column for two classes: the same predictions from every source, and what is refused."""

import re

import numpy as np
import pyarrow as pa
import pytest

from calibrant import Predictions
from tests.helpers.errors import facts
from tests.helpers.predictions import FORMATS, refusal_of, write_columns

P = np.array([0.75, 0.25, 0.5, 0.125, 1.0])
WORDS = ["yes", "no", "yes", "no", "no"]
NUMBERS = [1, 0, 1, 0, 0]
TRUTHS = [True, False, True, False, False]
#: Labels of each kind: as they are, the positive class, and the names of the classes that follow.
LABELS = {
    "text": (WORDS, "yes", ("no", "yes")),
    "numbers": (NUMBERS, None, None),
    "truths": (TRUTHS, None, ("False", "True")),
    "codes": ([2, 1, 2, 1, 1], 2, ("1", "2")),
    "signs": ([1, -1, 1, -1, -1], None, ("-1", "1")),
}


def write(path, values, labels, column="probabilities"):
    """A file of one column in the format of the suffix; safetensors, which has no text, only with numbers."""
    flat = {column: np.reshape(values, -1), "label": labels}
    return write_columns(path, flat if path.suffix == ".csv" else {column: values, "labels": labels})


def assert_read(predictions, names, positive=1):
    both = np.stack([1 - P, P] if positive == 1 else [P, 1 - P], 1)
    assert predictions.class_names == names
    assert predictions.positive == positive
    assert predictions.labels.tolist() == NUMBERS
    assert np.array_equal(predictions.probabilities, both)


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("values", [P, P[:, None]], ids=["flat", "column"])
def test_the_same_from_arrays_frames_and_files_of_every_format(kind, values, tmp_path):
    labels, positive, names = LABELS[kind]
    assert_read(Predictions.from_probabilities(values, labels, positive=positive), names)
    frame = pa.table({"probabilities": values.tolist(), "label": labels})
    assert_read(Predictions.from_frame(frame, positive=positive), names)
    for suffix in FORMATS:
        if suffix == ".safetensors" and kind == "text":
            continue
        path = write(tmp_path / f"x{suffix}", values, labels)
        assert_read(Predictions.open(path, positive=positive).load(), names)
        assert_read(Predictions.open([path], positive=positive), names)  # column by column


def test_a_folder_of_shards_decides_by_all_labels(tmp_path):
    write(tmp_path / "1.parquet", P[:2], ["no", "no"])
    write(tmp_path / "2.parquet", P[2:], ["yes", "no", "no"])
    predictions = Predictions.open(tmp_path, positive="yes")
    assert predictions.class_names == ("no", "yes")
    assert predictions.labels.tolist() == [0, 0, 1, 0, 0]
    write(tmp_path / "3.parquet", P[2:], ["maybe", "no", "no"])
    assert "3, maybe, no, yes" in refusal_of(Predictions.open, tmp_path, positive="yes")


def test_logits_are_the_input_of_a_sigmoid():
    z = np.array([2.0, -1.0, 0.5], np.float32)
    predictions = Predictions.from_logits(z, ["a", "b", "a"], positive="a")
    softmax = np.exp(predictions.logits) / np.exp(predictions.logits).sum(1, keepdims=True)
    np.testing.assert_allclose(softmax[:, 1], 1 / (1 + np.exp(-z)), rtol=1e-6)
    assert predictions.logits.dtype == np.float32
    assert predictions.class_names == ("b", "a")
    assert predictions.remarks == ()
    assert len(Predictions.from_logits(np.array([0.5, 0.25]), [0, 1]).remarks) == 1


def test_the_negative_class_may_be_said_to_be_positive(tmp_path):
    assert_read(Predictions.from_probabilities(P, NUMBERS, positive=0), None, positive=0)
    reversed_names = Predictions.from_probabilities(P, WORDS, positive="no")
    assert reversed_names.class_names == ("yes", "no")
    assert reversed_names.labels.tolist() == [0, 1, 0, 1, 1]
    kept_order = Predictions.from_probabilities(P, WORDS, class_names=["no", "yes"], positive="no")
    assert_read(kept_order, ("no", "yes"), positive=0)


def test_masks_of_one_channel():
    values = np.full((2, 1, 3, 4), 0.25)
    masks = np.zeros((2, 3, 4), int)
    masks[0, 0, 0], masks[1, 2, 3] = 1, 255
    predictions = Predictions.from_probabilities(values, masks, kind="segmentation", ignore_index=255)
    assert predictions.probabilities.shape == (2, 2, 3, 4)
    assert (predictions.probabilities[:, 1] == 0.25).all()
    assert (predictions.labels == masks).all()


@pytest.mark.parametrize("column", ["p_yes", "P(yes)", "yes", "probabilities.yes", "score_yes"])
def test_a_column_names_its_class(column, tmp_path):
    path = write(tmp_path / "x.csv", P, WORDS, column)
    columns = None if column.startswith("probabilities") else {"probabilities": column}
    assert_read(Predictions.open(path, columns=columns), ("no", "yes"))
    text = refusal_of(Predictions.open, path, columns=columns, positive="no")
    assert re.search(facts(f"'{column}'", "'yes'", "positive", "'no'"), text)


def test_a_number_in_a_column_names_a_class_after_a_word_for_probability(tmp_path):
    for column, positive in (("p_0", 0), ("p_1", 1), ("prob_0", 0), ("fold_0", 1), ("model_1", 1)):
        path = write(tmp_path / "x.csv", P, NUMBERS, column)
        assert_read(Predictions.open(path, columns={"probabilities": column}), None, positive=positive)
    assert_read(Predictions.open(write(tmp_path / "x.csv", P, NUMBERS, "probabilities_0")), None, positive=0)


@pytest.mark.parametrize("column", ["probability", "proba", "prob"])
def test_the_singular_is_one_column(column, tmp_path):
    assert_read(Predictions.open(write(tmp_path / "x.csv", P, NUMBERS, column)), None)
    path = write(tmp_path / "x.parquet", P, WORDS, column)
    assert_read(Predictions.open(path, positive="yes"), ("no", "yes"))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, "no, yes|--positive no|--positive yes"),
        ({"positive": "Yes"}, "no, yes|'Yes'|'yes'?"),
        ({"class_names": ["no", "yes"]}, "--positive no|--positive yes"),
        ({"class_names": ["a", "b"], "positive": "a"}, "a, b|'yes'"),
        ({"class_names": ["no", "yes", "so"], "positive": "so"}, "class_names|2|3"),
    ],
)
def test_what_is_not_known_is_refused_in_one_sentence(how, told, tmp_path):
    message = facts(*told.split("|"))
    assert re.search(message, refusal_of(Predictions.from_probabilities, P, WORDS, **how))
    for suffix in (".csv", ".npz", ".parquet"):
        assert re.search(message, refusal_of(Predictions.open, write(tmp_path / f"x{suffix}", P, WORDS), **how))


def test_bad_values_are_named_as_they_are(tmp_path):
    path = write(tmp_path / "x.csv", [0.5, 1.5], [0, 1])
    assert re.search(facts("probabilities", "0..1", "1.5", "line 3"), refusal_of(Predictions.open, path))
    text = refusal_of(Predictions.from_probabilities, np.array([[0.5], [-2.5]]), [0, 1])
    assert re.search(facts("-2.5", "row 1", "logits"), text)
    assert "class" not in text
    assert re.search(facts("inf", "row 1"), refusal_of(Predictions.from_logits, [0.5, np.inf], [0, 1]))
    assert Predictions.from_probabilities([1 + 1e-7, 0.0], [1, 0]).probabilities.tolist() == [[0, 1 + 1e-7], [1, 0]]


def test_labels_of_a_single_value():
    only = Predictions.from_probabilities(P, ["no"] * 5, positive="yes")
    assert (only.class_names, only.labels.tolist()) == (("no", "yes"), [0] * 5)
    assert Predictions.from_probabilities(P, ["yes"] * 5, positive="yes").class_names == ("not yes", "yes")
    assert "--positive" in refusal_of(Predictions.from_probabilities, P, ["yes"] * 5)
    assert Predictions.from_probabilities(P, [1] * 5).class_names is None


def test_labels_that_have_names_and_no_labels_at_all(tmp_path):
    assert_read(Predictions.from_probabilities(P, NUMBERS, class_names=["no", "yes"]), ("no", "yes"))
    assert_read(Predictions.from_probabilities(P, TRUTHS, class_names=["no", "yes"]), ("no", "yes"))
    (tmp_path / "x.csv").write_text("p\n0.5\n0.25\n")
    how = {"columns": {"probabilities": "p"}, "unlabelled": True}
    assert Predictions.open(tmp_path / "x.csv", **how).probabilities.tolist() == [[0.5, 0.5], [0.75, 0.25]]
    named = Predictions.open(tmp_path / "x.csv", **how, class_names=["no", "yes"], positive="no")
    assert named.probabilities.tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert "class_names" in refusal_of(Predictions.open, tmp_path / "x.csv", **how, positive="yes")


def test_two_columns_may_say_which_class_is_positive(tmp_path):
    both = np.stack([1 - P, P], 1)
    named = Predictions.from_probabilities(both, NUMBERS, class_names=["no", "yes"], positive="yes")
    assert (named.positive, Predictions.from_probabilities(both, NUMBERS).positive) == (1, 1)
    for suffix in (".npz", ".parquet", ".safetensors"):
        named.save(tmp_path / f"x{suffix}")
        assert Predictions.open(tmp_path / f"x{suffix}").positive == 1
        assert Predictions.open(tmp_path / f"x{suffix}", positive="no").positive == 0
    text = refusal_of(Predictions.from_probabilities, np.full((2, 3), 1 / 3), [0, 1], positive="a")
    assert re.search(facts("positive", "'a'", "3"), text)


def test_what_custom_says():
    both = np.stack([1 - P, P], 1)
    for names, positive in (
        (["0", "1"], 1), (["True", "False"], 0), (["1", "-1"], 0), (["no", "yes"], None), (["1", "2"], None)
    ):  # fmt: skip
        assert Predictions.from_probabilities(both, NUMBERS, class_names=names).positive == positive


@pytest.mark.parametrize("other", ["logits_-100", "logits_cat", "logits_1e3"])
def test_one_numbered_column_beside_others_of_its_name_is_not_taken_for_two_classes(other, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(f"labels,logits_0,{other}\n0,1.5,2\n1,0.5,1\n")
    assert re.search(facts("logits_0", other), refusal_of(Predictions.open, path))
    assert Predictions.open(path, columns={"logits": ["logits_0", other]}).num_classes == 2
