"""Names that others give our columns: read where they can mean one thing only, else refused with the very options."""

import re
import shlex

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.predictions.schema import customary, one_column_kind
from tests.helpers.predictions import refusal_of

TRUTHS = ("y_true", "true_label", "truth", "ground_truth", "target", "targets", "Label", "LABELS")


def write(path, header, rows):
    path.write_text("\n".join([header, *rows, ""]))
    return path


@pytest.mark.parametrize("truth", TRUTHS)
def test_the_truth_by_any_of_its_names(tmp_path, truth):
    path = write(tmp_path / "a.csv", f"{truth},logits_0,logits_1,logits_2", ["2,0,1,2", "0,3,1,2"])
    assert Predictions.open(path).labels.tolist() == [2, 0]
    assert customary("labels", ["x", truth]) == [truth]


@pytest.mark.parametrize("name", ["p", "prob", "Probability", "y_prob", "pred_proba", "proba_1", "P(1)", "prob(1)"])
def test_one_column_that_says_it_is_a_probability(tmp_path, name):
    predictions = Predictions.open(write(tmp_path / "a.csv", f"label,{name}", ["1,0.75", "0,0.5", "0,0.25"]))
    assert predictions.holds == one_column_kind(name) == "probabilities"
    assert predictions.probabilities[:, 1].tolist() == [0.75, 0.5, 0.25]
    assert predictions.labels.tolist() == [1, 0, 0]


def test_a_column_of_a_class_in_brackets_names_the_positive_class(tmp_path):
    predictions = Predictions.open(write(tmp_path / "a.csv", "label,P(yes)", ["yes,0.75", "no,0.5"]))
    assert predictions.class_names == ("no", "yes")
    assert predictions.probabilities[:, 1].tolist() == [0.75, 0.5]


@pytest.mark.parametrize("name", ["score", "y_score", "p_value", "probe", "output"])
def test_names_that_may_mean_several_things_are_not_guessed(tmp_path, name):
    assert one_column_kind(name) == ""
    path = write(tmp_path / "a.csv", f"y_true,{name}", ["1,0.75", "0,0.5"])
    text = refusal_of(Predictions.open, path)
    assert f"--column labels=y_true --column probabilities={name} (in Python" in text
    assert f"--column correct=y_true --column confidence={name} (in Python" in text


def test_numbered_columns_of_probabilities(tmp_path):
    path = write(tmp_path / "a.csv", "target,proba_0,proba_1,proba_2", ["2,0.5,0.25,0.25", "0,0.5,0.25,0.25"])
    assert Predictions.open(path).probabilities.tolist() == [[0.5, 0.25, 0.25]] * 2


def test_a_label_beside_the_truth_may_be_a_prediction(tmp_path):
    path = write(tmp_path / "a.csv", "label,true_label,logits_0,logits_1", ["1,0,0,1", "0,0,1,0"])
    text = refusal_of(Predictions.open, path)
    assert "holds label and true_label" in text
    assert "--column labels=label" in text
    assert "--column labels=true_label" in text
    assert Predictions.open(path, columns={"labels": "true_label"}).labels.tolist() == [0, 0]


def test_a_probability_beside_a_prediction_may_be_of_it(tmp_path):
    path = write(tmp_path / "a.csv", "y_true,y_pred,y_prob", ["1,1,0.75", "0,1,0.6", "0,0,0.9"])
    text = refusal_of(Predictions.open, path)
    assert "--column confidence=y_prob" in text
    assert "--column probabilities=y_prob" in text
    predictions = Predictions.open(path, columns={"confidence": "y_prob"})
    assert predictions.correct.tolist() == [True, False, True]


def test_a_proposal_can_be_pasted(tmp_path):
    path = write(tmp_path / "a.csv", "truth,p of (a),p of (b)", ["0,0.75,0.25", "1,0.25,0.75"])
    text = refusal_of(Predictions.open, path)
    words = shlex.split(re.search(r"probably (.*) \(in Python", text)[1])
    columns = dict(word.split("=", 1) for word in words if word != "--column")
    assert Predictions.open(path, columns=columns).labels.tolist() == [0, 1]


def test_files_without_names(tmp_path):
    np.savez(tmp_path / "a.npz", np.eye(3), np.arange(3))
    assert "save them by name, np.savez" in refusal_of(Predictions.open, tmp_path / "a.npz")
    path = write(tmp_path / "a.csv", "0,0.25,0.75", ["1,0.5,0.5"])
    assert "the first line must name the columns, got 0, 0.25, 0.75" in refusal_of(Predictions.open, path)
