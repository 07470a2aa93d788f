"""One column for two classes: the same predictions from every source, and what is refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.predictions.schema import customary_positive
from tests.helpers.predictions import FORMATS, refusal_of

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
    held = {column: values, "labels": np.array(labels)}
    if path.suffix == ".csv":
        rows = zip(np.asarray(values).reshape(-1).tolist(), labels, strict=True)
        path.write_text("\n".join([f"{column},label", *(f"{value},{label}" for value, label in rows), ""]))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({column: np.asarray(values).tolist(), "labels": labels}), path)
    elif path.suffix == ".npz":
        np.savez(path, **held)
    elif path.suffix == ".safetensors":
        numpy = pytest.importorskip("safetensors.numpy")
        numpy.save_file(held, path)
    else:
        np.save(path.with_name("x_labels.npy"), held["labels"])
        path = path.with_name(f"x_{column}.npy")
        np.save(path, values)
    return path


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
    assert "the labels are of 3, maybe, no, yes" in refusal_of(Predictions.open, tmp_path, positive="yes")


def test_logits_are_the_input_of_a_sigmoid():
    z = np.array([2.0, -1.0, 0.5], np.float32)
    predictions = Predictions.from_logits(z, ["a", "b", "a"], positive="a")
    softmax = np.exp(predictions.logits) / np.exp(predictions.logits).sum(1, keepdims=True)
    np.testing.assert_allclose(softmax[:, 1], 1 / (1 + np.exp(-z)), rtol=1e-6)
    assert predictions.logits.dtype == np.float32
    assert predictions.class_names == ("b", "a")
    assert predictions.remarks == ()
    odd = Predictions.from_logits(np.array([0.5, 0.25]), [0, 1])
    assert odd.remarks == ("The logits lie in 0..1 in every row: if they are probabilities, name them probabilities.",)


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
    message = refusal_of(Predictions.open, path, columns=columns, positive="no")
    assert message.endswith(
        f"column '{column}' names the class 'yes', and positive is given as 'no': they must be the same"
    )


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


REFUSED = {
    "unsaid": ({}, "the classes are no, yes; add --positive no or --positive yes (in Python positive=...)"),
    "other": ({"positive": "Yes"}, "positive must be one of the labels no, yes, got 'Yes'; did you mean 'yes'?"),
    "names alone": ({"class_names": ["no", "yes"]}, "add --positive no or --positive yes"),
    "names": ({"class_names": ["a", "b"], "positive": "a"}, "must be among the class names a, b, got 'yes'"),
    "three": ({"class_names": ["no", "yes", "so"], "positive": "so"}, "class_names must be 2, one per class, got 3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_known_is_refused_in_one_sentence(case, tmp_path):
    how, message = REFUSED[case]
    assert message in refusal_of(Predictions.from_probabilities, P, WORDS, **how)
    for suffix in (".csv", ".npz", ".parquet"):
        assert message in refusal_of(Predictions.open, write(tmp_path / f"x{suffix}", P, WORDS), **how)


def test_bad_values_are_named_as_they_are(tmp_path):
    path = write(tmp_path / "x.csv", [0.5, 1.5], [0, 1])
    assert refusal_of(Predictions.open, path).endswith("probabilities must lie in 0..1, got 1.5 in line 3")
    message = refusal_of(Predictions.from_probabilities, np.array([[0.5], [-2.5]]), [0, 1])
    assert message.endswith(
        "got -2.5 in row 1 (counted from 0) (if these are logits or logarithms of probabilities, name them logits)"
    )
    assert refusal_of(Predictions.from_logits, [0.5, np.inf], [0, 1]).endswith("got inf in row 1 (counted from 0)")
    assert Predictions.from_probabilities([1 + 1e-7, 0.0], [1, 0]).probabilities.tolist() == [[0, 1 + 1e-7], [1, 0]]


def test_labels_of_a_single_value():
    only = Predictions.from_probabilities(P, ["no"] * 5, positive="yes")
    assert (only.class_names, only.labels.tolist()) == (("no", "yes"), [0] * 5)
    assert Predictions.from_probabilities(P, ["yes"] * 5, positive="yes").class_names == ("not yes", "yes")
    assert "all labels are yes; add --positive" in refusal_of(Predictions.from_probabilities, P, ["yes"] * 5)
    assert Predictions.from_probabilities(P, [1] * 5).class_names is None


def test_labels_that_have_names_and_no_labels_at_all(tmp_path):
    assert_read(Predictions.from_probabilities(P, NUMBERS, class_names=["no", "yes"]), ("no", "yes"))
    assert_read(Predictions.from_probabilities(P, TRUTHS, class_names=["no", "yes"]), ("no", "yes"))
    (tmp_path / "x.csv").write_text("p\n0.5\n0.25\n")
    how = {"columns": {"probabilities": "p"}, "unlabelled": True}
    assert Predictions.open(tmp_path / "x.csv", **how).probabilities.tolist() == [[0.5, 0.5], [0.75, 0.25]]
    named = Predictions.open(tmp_path / "x.csv", **how, class_names=["no", "yes"], positive="no")
    assert named.probabilities.tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert refusal_of(Predictions.open, tmp_path / "x.csv", **how, positive="yes").endswith("give the two class_names")


def test_two_columns_may_say_which_class_is_positive(tmp_path):
    both = np.stack([1 - P, P], 1)
    named = Predictions.from_probabilities(both, NUMBERS, class_names=["no", "yes"], positive="yes")
    assert (named.positive, Predictions.from_probabilities(both, NUMBERS).positive) == (1, 1)
    assert Predictions.from_probabilities(both, NUMBERS, class_names=["no", "yes"]).positive is None
    for suffix in (".npz", ".parquet", ".safetensors"):
        named.save(tmp_path / f"x{suffix}")
        assert Predictions.open(tmp_path / f"x{suffix}").positive == 1
        assert Predictions.open(tmp_path / f"x{suffix}", positive="no").positive == 0
    three = np.full((2, 3), 1 / 3)
    assert "positive is for two classes, got 'a' with 3" in refusal_of(
        Predictions.from_probabilities, three, [0, 1], positive="a"
    )


def test_what_custom_says():
    assert customary_positive(None) == 1
    assert [customary_positive(names) for names in (("0", "1"), ("True", "False"), ("1", "-1"))] == [1, 0, 0]
    assert [customary_positive(names) for names in (("no", "yes"), ("1", "2"), ("0", "1", "2"))] == [None] * 3


@pytest.mark.parametrize("other", ["logits_-100", "logits_cat", "logits_1e3"])
def test_one_numbered_column_beside_others_of_its_name_is_not_taken_for_two_classes(other, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(f"labels,logits_0,{other}\n0,1.5,2\n1,0.5,1\n")
    with pytest.raises(ValueError, match=rf"holds logits_0 and {other}, expected one column per class"):
        Predictions.open(path)
    assert Predictions.open(path, columns={"logits": ["logits_0", other]}).num_classes == 2
