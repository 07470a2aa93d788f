"""Columns are found by name, chosen, and missed with advice; a mapping that contradicts itself is refused."""

import contextlib
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant._validation import find_closest, listing
from calibrant.predictions.columns import check_options, match_columns
from tests.helpers.predictions import CLASSES, SOON, Q, refusal, refusal_of, refused, write_table


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
    holds = "it holds p_cat, p_dog, p_bird, true_label, hospital"
    for groups in ({"groups": ["hosptial"]}, {"columns": columns | {"group.h": "hosptial"}}):
        text = refusal_of(Predictions.open, path, **({"columns": columns} | groups))
        assert text == f"{path}: no column 'hosptial' (given as group); did you mean 'hospital'? {holds}"
    text = refusal_of(Predictions.open, path, columns=columns | {"label": "truelabel"})
    assert text == f"{path}: no column 'truelabel' (given as labels); did you mean 'true_label'? {holds}"
    text = refusal_of(Predictions.open, path, columns=columns | {"probabilities": ["p_cat", "p_dgo", "p_bird"]})
    assert "no column 'p_dgo' (given as probabilities); did you mean 'p_dog'?" in text
    assert Predictions.open(path, columns={"probabilities": "p_*"}).labels.tolist() == (
        Predictions.open(path, columns=columns).labels.tolist()
    )
    path = write_table(tmp_path / "b.csv", "logits_0,logits_1,logits_2,y", [0, 1, 2, 0])
    text = refusal_of(Predictions.open, path)
    assert text.endswith('--column labels=y (in Python columns={"labels": "y"})')
    assert "got 'labls'; did you mean 'labels'?" in refusal_of(Predictions.open, path, columns={"labls": "y"})
    assert "labels once, got labels and label" in refusal_of(
        Predictions.open, path, columns={"labels": "y", "label": "y"}
    )
    assert Predictions.open(path, columns={"label": "y", "id": "y"}).ids.tolist() == [0, 1, 2, 0]


MANY = 150_000
TWICE = [f"c{i}" for i in range(MANY - 1)] + ["c0"]


def test_very_many_names_take_no_time(tmp_path):
    start = time.process_time()
    with pytest.raises(ValueError, match="class_names must differ, got 'c0' twice"):
        Predictions.from_logits(np.zeros((1, MANY)), [0], class_names=TWICE)
    with pytest.raises(ValueError, match="class_names must differ, got 'c1' 3 times"):
        Predictions.from_logits(np.zeros((1, MANY)), [0], class_names=[*TWICE[:-2], "c1", "c1"])
    assert time.process_time() - start < SOON
    np.savez(tmp_path / "a.npz", logits=np.zeros((1, MANY), np.float16), labels=[0], class_names=TWICE)
    assert "must differ, got 'c0' twice" in refusal(tmp_path / "a.npz")
    (tmp_path / "a.csv").write_text(",".join(f"logits.{name}" for name in TWICE) + ",labels\n")
    assert "must differ, got 'logits.c0' 2 times" in refusal(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text(",".join(f"logitx.{i}" for i in range(MANY)) + ",labls\n")
    assert "it holds logitx.0, logitx.1" in refusal(tmp_path / "b.csv")
    assert "no column 'logitx_7'" in refusal(tmp_path / "b.csv", columns={"logits": ["logitx.1", "logitx_7"]})
    (tmp_path / "c.csv").write_text(",".join(f"group.{i}" for i in range(MANY)) + ",confidence,correct\n")
    assert "at most 1,000 groups" in refusal(tmp_path / "c.csv")
    names = [f"logits.{i}" for i in range(20_000)]
    (tmp_path / "d.csv").write_text(",".join([*names, "labels"]) + "\n" + "0," * 19_999 + "x,0\n")
    assert "column 'logits.19999' must be a number, got 'x' in line 2" in refusal(tmp_path / "d.csv")
    assert find_closest("lables", (f"label{i}" for i in range(10**9))) is not None  # the first are looked at
    assert listing(["x" * 500] * 50).endswith("... and 44 more")


def test_missing_and_ambiguous_columns_say_what_there_is(tmp_path):
    z, y = np.eye(3) - 0.5, np.arange(3)
    np.savez(tmp_path / "a.npz", scores=z, truth=y)
    refused(
        tmp_path / "a.npz",
        r"no logits, .*; it holds scores, truth: .* --column labels=truth --column logits=scores \(in Python",
    )
    assert Predictions.open(tmp_path / "a.npz", columns={"logits": "scores"}).labels.tolist() == [0, 1, 2]
    refused(
        tmp_path / "a.npz",
        r"no column 'y' \(given as labels\); it holds scores, truth$",
        columns={"logits": "scores", "labels": "y"},
    )
    refused(
        tmp_path / "a.npz",
        "no column 'site' .given as group.; it holds scores, truth$",
        columns={"logits": "scores", "labels": "truth"},
        groups=["site"],
    )
    np.savez(tmp_path / "b.npz", logits=z, probabilities=z, labels=y)
    refused(
        tmp_path / "b.npz",
        r"holds logits and probabilities: .* --column logits=logits .* --column probabilities=probabilities ",
    )
    assert Predictions.open(tmp_path / "b.npz", columns={"probabilities": "probabilities"}).holds == "probabilities"
    (tmp_path / "a.csv").write_text("logits_0,logits_1,logits.a,logits.b,labels\n1,2,1,2,0\n")
    refused(tmp_path / "a.csv", r"holds logits_\* and logits\.\*: choose")
    (tmp_path / "b.csv").write_text("logits_1,logits_2,labels\n1,2,0\n")
    refused(
        tmp_path / "b.csv", r"labels must be among the numbers of the classes, 1, 2, got 0 in line 2 \(the labels are 0"
    )
    (tmp_path / "d.csv").write_text("confidence,correct,correct\n0.5,1,1\n")
    refused(tmp_path / "d.csv", r"column names must differ, got 'correct' 2 times$")
    (tmp_path / "e.csv").write_text("label,score\nyes,0.75\nno,0.25\n")
    refused(tmp_path / "e.csv", r"say which is which, probably --column probabilities=score --positive yes ")
    (tmp_path / "e.csv").write_text("label,predicted,probability\nyes,no,0.5\n")
    refused(tmp_path / "e.csv", r"'probability' may be of the positive class or of the predicted one; .*: say which")


def test_mappings_that_cannot_be(tmp_path):
    for bad, message in (
        ({"truth": "labels"}, "expected logits, .* group.NAME, got 'truth'"),
        ({"labels": ["a", "b"]}, r"one name for labels, got \['a', 'b'\]"),
        ({"logits": "a", "confidence": "b"}, "choose one of .* got logits, confidence"),
    ):
        with pytest.raises(ValueError, match=message):
            Predictions.open(tmp_path / "a.npz", columns=bad)


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
