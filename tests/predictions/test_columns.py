"""Columns are found by their usual names, chosen, and missed with advice; contradicting mappings are refused."""

import contextlib
import re
import shlex
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.base.checks import find_closest, listing
from calibrant.predictions.hints import MOST_COLUMNS
from calibrant.predictions.schema import check_options, column_options, customary, match_columns, one_column_kind
from tests.helpers.errors import facts
from tests.helpers.predictions import CLASSES, SOON, Q, refusal, refusal_of, write_table


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("columns", "labels", "names", "numbers"),
    [
        (["p_cat", "p_dog", "p_bird"], ["dog", "cat", "bird", "dog"], CLASSES, [1, 0, 2, 1]),
        (["p_cat", "p_dog", "p_bird"], [1, 0, 2, 1], CLASSES, [1, 0, 2, 1]),
        (["p_cat", "p_dog", "p_cow"], ["p_dog", "p_cat", "p_cow", "p_cow"], ("p_cat", "p_dog", "p_cow"), [1, 0, 2, 2]),
        (["p_cat", "p_car", "p_cow"], ["car", "cat", "cow", "car"], ("cat", "car", "cow"), [1, 0, 2, 1]),
        (["cat", "car", "cow"], [1, 0, 2, 1], ("cat", "car", "cow"), [1, 0, 2, 1]),
        (["P(cat)", "P(dog)", "P(bird)"], ["dog", "cat", "bird", "dog"], CLASSES, [1, 0, 2, 1]),
        (["cat_prob", "dog_prob", "bird_prob"], [1, 0, 2, 1], CLASSES, [1, 0, 2, 1]),
        (["pcat", "pdog", "pbird"], ["dog", "cat", "bird", "dog"], CLASSES, [1, 0, 2, 1]),
        (["p_0", "p_1", "p_2"], [1, 0, 2, 1], ("p_0", "p_1", "p_2"), [1, 0, 2, 1]),
        (["p_", "p_a", "p_b"], [1, 0, 2, 1], ("p_", "p_a", "p_b"), [1, 0, 2, 1]),
        ("p_*", ["p_dog", "p_cat", "p_bird", "p_dog"], ("p_cat", "p_dog", "p_bird"), [1, 0, 2, 1]),
        ("p*", ["dog", "cat", "bird", "dog"], CLASSES, [1, 0, 2, 1]),
    ],
)  # fmt: skip
def test_chosen_columns_name_the_classes(suffix, columns, labels, names, numbers, tmp_path):
    held = ["p_cat", "p_dog", "p_bird"] if isinstance(columns, str) else columns
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        write_table(path, ",".join([*held, "truth"]), labels)
    else:
        pq.write_table(pa.table({**{name: Q[:, j] for j, name in enumerate(held)}, "truth": labels}), path)
    opened = Predictions.open(path, columns={"probabilities": columns, "label": "truth"})
    assert opened.class_names == names
    assert opened.labels.tolist() == numbers
    assert opened.probabilities.tolist() == Q.tolist()


def test_missing_names_are_met_with_the_nearest(tmp_path):
    path = write_table(
        tmp_path / "a.csv", "p_cat,p_dog,p_bird,true_label, hospital ", [f"{i},x" for i in range(3)] + ["0,y"]
    )
    columns = {"probabilities": "p_*", "label": "true_label"}
    assert Predictions.open(path, columns=columns, groups=["hospital"]).groups["hospital"].tolist() == list("xxxy")
    assert Predictions.open(path, columns={"probabilities": "p_*"}).labels.tolist() == [0, 1, 2, 0]
    for options, told in (
        ({"columns": columns, "groups": ["hosptial"]}, ("'hosptial'", "group", "'hospital'?", "p_cat, p_dog")),
        ({"columns": columns | {"group.h": "hosptial"}}, ("'hosptial'", "group", "'hospital'?", "p_cat, p_dog")),
        ({"columns": columns | {"label": "truelabel"}}, ("'truelabel'", "labels", "'true_label'?", "p_cat, p_dog")),
        ({"columns": columns | {"probabilities": ["p_cat", "p_bird", "p_dgo"]}}, ("'p_dgo'", "'p_dog'?")),
    ):
        assert re.search(facts(str(path), *told), refusal_of(Predictions.open, path, **options))


MAPPINGS = [
    ({"truth": "labels"}, "group.NAME 'truth'"),
    ({"labls": "y"}, "'labls' 'labels'?"),
    ({"labels": ["a", "b"]}, "labels ['a',"),
    ({"logits": "a", "confidence": "b"}, "logits, confidence"),
    ({"labels": "y", "label": "y"}, "labels label"),
    ({"probabilities": ["p_1"] * 2}, "probabilities 'p_1' 2"),
    ({"probabilities": "*"}, "'labels' probabilities"),
    ({"labels": None}, "labels"),
    ({"probabilities": "p_*", "split": "fold"}, "'fold'"),
    ({"id": None, "ids": None}, "once"),
]


@pytest.mark.parametrize(("columns", "told"), MAPPINGS, ids=str)
def test_mappings_that_cannot_be(columns, told, tmp_path):
    path = write_table(tmp_path / "a.csv", "p_1,p_2,p_3,labels", [1, 2, 1, 2])
    assert re.search(facts(*told.split()), refusal_of(Predictions.open, path, columns=columns))


MANY = 150_000
TWICE = [f"c{i}" for i in range(MANY - 1)] + ["c0"]


@pytest.mark.slow
def test_very_many_names_take_no_time(tmp_path):
    start = time.process_time()
    for names, told in ((TWICE, "'c0'"), ([*TWICE[:-2], "c1", "c1"], "'c1'")):
        with pytest.raises(ValueError, match=facts("class_names", told)):
            Predictions.from_logits(np.zeros((1, MANY)), [0], class_names=names)
    assert time.process_time() - start < SOON
    np.savez(tmp_path / "a.npz", logits=np.zeros((1, MANY), np.float16), labels=[0], class_names=TWICE)
    assert re.search(facts("class_names", "'c0'"), refusal(tmp_path / "a.npz"))
    wide = [f"logits.{i}" for i in range(20_000)]
    for header, rows, options, told in (
        ([f"logits.{name}" for name in TWICE] + ["labels"], "", {}, ("'logits.c0'", "2")),
        ([f"logitx.{i}" for i in range(MANY)] + ["labls"], "", {}, ("logitx.0, logitx.1",)),
        ([f"logitx.{i}" for i in range(MANY)], "", {"columns": {"logits": ["logitx.1", "logitx_7"]}}, ("'logitx_7'",)),
        ([f"group.{i}" for i in range(MANY)] + ["confidence,correct"], "", {}, ("1,000", "groups")),
        ([*wide, "labels"], "0," * 19_999 + "x,0\n", {}, ("'logits.19999'", "'x'", "line 2")),
    ):
        (tmp_path / "a.csv").write_text(",".join(header) + "\n" + rows)
        assert re.search(facts(*told), refusal(tmp_path / "a.csv", **options))
    assert find_closest("lables", (f"label{i}" for i in range(10**9))) is not None  # the first are looked at
    assert listing(["x" * 500] * 50).endswith("... and 44 more")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("logits_0,logits_1,logits.a,logits.b,labels\n1,2,1,2,0\n", "logits_*|logits.*"),
        ("logits_1,logits_2,labels\n1,2,0\n", "labels|1, 2|0|line 2"),
        ("confidence,correct,correct\n0.5,1,1\n", "'correct'|2"),
        ("label,score\nyes,0.75\nno,0.25\n", "--column probabilities=score --positive yes "),
        ("label,predicted,probability\nyes,no,0.5\n", "'probability'|positive|predicted"),
        ("0,0.25,0.75\n1,0.5,0.5\n", "first line|0, 0.25, 0.75"),
    ],
)
def test_missing_and_ambiguous_columns_say_what_there_is(text, told, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    assert re.search(facts(*told.split("|")), refusal(tmp_path / "a.csv"))


def test_arrays_without_names_or_with_two_meanings(tmp_path):
    z, path = np.eye(3) - 0.5, tmp_path / "a.npz"
    np.savez(path, scores=z, truth=np.arange(3))
    assert re.search(facts("scores, truth", "--column labels=truth --column logits=scores"), refusal(path))
    assert Predictions.open(path, columns={"logits": "scores"}).labels.tolist() == [0, 1, 2]
    assert re.search(
        facts("'y'", "labels", "scores, truth"), refusal(path, columns={"logits": "scores", "labels": "y"})
    )
    np.savez(path, logits=z, probabilities=z, labels=np.arange(3))
    assert re.search(facts("--column logits=logits", "--column probabilities=probabilities"), refusal(path))
    assert Predictions.open(path, columns={"probabilities": "probabilities"}).holds == "probabilities"
    np.savez(path, np.eye(3), np.arange(3))
    assert "np.savez" in refusal(path)


class Name(str):
    """The name of a column that counts how often it is compared with another."""

    compared = 0

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        ("logits_{}", None),
        ("probabilities.c{}", None),
        ("prob_{}", None),
        ("group.{}", None),
        ("x{}", None),
        ("x{}", {"logits": "x*"}),
        ("x{}", {"logits": "z*"}),
        ("labels_{}", None),
    ],
)
def test_matching_takes_time_linear_in_the_number_of_columns(names, columns):
    counts = []
    for number in (300, 1200):
        Name.compared = 0
        header = [Name("label"), Name("logits_file"), *(Name(names.format(j)) for j in range(number))]
        with contextlib.suppress(ValueError):
            match_columns(header, check_options(columns, None, {}, unlabelled=False), "x.csv", table=True)
        counts.append(Name.compared)
    assert counts[1] < 6 * counts[0] + 100


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


@pytest.mark.parametrize("line", ["[1, 2]", "{", '{"y": "' + "x" * 50 + '"}', "", '{"y": 1e400, "score": 1}'])
def test_values_that_cannot_be_read_do_not_hide_the_error_about_columns(line, tmp_path):
    (tmp_path / "x.jsonl").write_text('{"y": 1, "score": 0.5}\n' + line)
    assert "no logits, probabilities or confidence" in refusal(tmp_path / "x.jsonl")


def test_a_wide_file_is_listed_without_a_look_at_its_values(tmp_path):
    names = [f"x{j}" for j in range(MOST_COLUMNS + 1)]
    (tmp_path / "x.csv").write_text(",".join(names) + "\n" + ",".join("0" for _ in names) + "\n")
    text = refusal(tmp_path / "x.csv")
    assert "x0, x1" in text
    assert len(text) < 1000


def test_what_the_caller_says_is_kept(tmp_path):
    y = np.arange(40) % 2
    np.savez(tmp_path / "x.npz", a=y, b=1 - y, score=0.1 + 0.7 * y + 0.01 * np.arange(40) / 40)
    text = refusal(tmp_path / "x.npz", columns={"labels": "b"})
    assert '{"probabilities": "score"}, positive="0")' in text
    Predictions.open(tmp_path / "x.npz", columns={"labels": "b", "probabilities": "score"}, positive="0").load()


def test_names_that_no_one_would_type_are_not_repeated():
    long = {"labels": "P(yes)", "logits": ["a" * 300, "b" * 300]}
    assert column_options(long) == "--column labels=NAME --column logits=NAME"
    assert column_options({"labels": "two\nlines"}) == "--column labels=NAME"
