"""JSON lines: what other programs write, and every kind of damage in one sentence with its line."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant import Predictions
from calibrant.predictions.schema import MOST_CLASSES, MOST_COLUMNS
from tests.helpers.errors import facts

GOOD = '{"logits": [1.5, -0.5, 0], "label": "b", "site": "x"}'


def opened(tmp_path, *lines, name="x.jsonl", **options):
    path = tmp_path / name
    data = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return Predictions.open(path, **options)


@pytest.mark.parametrize("name", ["x.jsonl", "x.ndjson", "x.jsonl.gz", "x.ndjson.gz"])
def test_lines_are_rows(tmp_path, name):
    lines = [{"logits": [1.5, -2, 0], "label": 2, "id": "a"}, "", {"id": "b", "label": 0.0, "logits": [0, 1, 2.25]}]
    p = opened(tmp_path, *lines, name=name)
    assert len(p) == 2
    np.testing.assert_array_equal(p.logits, [[1.5, -2, 0], [0, 1, 2.25]])
    assert (p.labels.tolist(), p.ids.tolist()) == ([2, 0], ["a", "b"])


def test_names_columns_and_groups(tmp_path):
    lines = [
        {"truth": "dog", "p_cat": 0.25, "p_dog": 0.75, "site": 1},
        {"truth": "cat", "p_cat": 1, "p_dog": 0, "site": 2},
    ]
    p = opened(tmp_path, *lines, columns={"labels": "truth", "probabilities": "p_*"}, groups=["site"])
    assert (p.class_names, p.labels.tolist(), p.groups["site"].tolist()) == (("cat", "dog"), [1, 0], [1, 2])
    p = opened(tmp_path, GOOD, GOOD, class_names=["a", "b", "c"])
    assert p.labels.tolist() == [1, 1]
    p = opened(tmp_path, {"confidence": 0.5, "correct": True}, {"confidence": 1, "correct": 0})
    assert p.correct.tolist() == [True, False]
    p = opened(tmp_path, {"probability": 0.25, "label": 1}, {"probability": 0.75, "label": 0})
    np.testing.assert_array_equal(p.probabilities, [[0.75, 0.25], [0.25, 0.75]])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"logits": [1, 2, 3], "label": "b"', "JSON"),
        ('{"logits": [1, 2], "label": "b"}', "'logits'|3|2"),
        ('{"logits": [1, NaN, 2], "label": "b"}', "NaN"),
        ('{"logits": [1, [2], 2], "label": "b"}', "'logits'|list"),
        ('{"logits": [1, null, 2], "label": "b"}', "'logits'|list"),
        ('{"logits": "1 2 3", "label": "b"}', "'logits'|list"),
        ('{"logits": [1, 2, 3]}', "'label'|no value"),
        ('{"logits": [1, 2, 3], "label": 1}', "'label'|text|1"),
        ("[1, 2, 3]", "object|[1, 2, 3]"),
        ("[" * 100_000, "deep"),
        ('{"logits": [1, 2, 1e999], "label": "b"}', "JSON"),
        ('{"label": "b", "label": "b"}', "'label'|twice"),
    ],
    ids=lambda value: value[:40],
)
def test_damage_is_one_sentence_with_its_line(tmp_path, line, told):
    with pytest.raises(ValueError, match=facts("line 2", *told.split("|"))) as caught:
        opened(tmp_path, GOOD, line, class_names=["a", "b", "c"]).load()
    assert "\n" not in str(caught.value)


def test_files_without_objects_and_truncated_ones(tmp_path):
    with pytest.raises(ValueError, match=facts("object")):
        opened(tmp_path, "", " ")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress("\n".join([GOOD] * 1000).encode())[:-20])
    with pytest.raises(ValueError, match=r"cut.jsonl.gz: "):
        Predictions.open(tmp_path / "cut.jsonl.gz", class_names=["a", "b", "c"]).load()


def test_objects_and_rankings_of_pipelines_are_columns(tmp_path):
    lines = [
        {"scores": [{"label": "dog", "score": 0.75}, {"label": "cat", "score": 0.25}], "label": "cat"},
        {"scores": [{"label": "cat", "score": 0.5}, {"label": "dog", "score": 0.5}], "label": "dog"},
    ]
    p = opened(tmp_path, *lines, columns={"probabilities": "scores"})
    assert (p.class_names, p.probabilities.tolist()) == (("cat", "dog"), [[0.25, 0.75], [0.5, 0.5]])
    assert p.labels.tolist() == [0, 1]
    lines = [{"logits": {"dog": 2, "cat": 1.5}, "label": "cat"}, {"label": "dog", "logits": {"cat": 0, "dog": 1}}]
    p = opened(tmp_path, *lines)
    assert (p.class_names, p.logits.tolist(), p.labels.tolist()) == (("dog", "cat"), [[2, 1.5], [1, 0]], [1, 0])


SHARES = {"label": "a", "score": 0.5}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            [{"truth": "a", "prediction": SHARES}],
            "--column labels=truth --column predicted=prediction.label --column confidence=prediction.score",
        ),
        ([[SHARES]], 'line 1|{"scores": [...], "label": ...}'),
        ([{"probabilities": [SHARES, SHARES], "label": "a"}], "line 1|'probabilities'|several"),
        (
            [{"probabilities": {"a": 0.5, "b": 0.5}, "label": "a"}, {"probabilities": {"a": 1}, "label": "a"}],
            "'probabilities.b'|line 2",
        ),
    ],
)
def test_rankings_that_cannot_be_read(tmp_path, lines, told):
    with pytest.raises(ValueError, match=facts(*told.split("|"))):
        opened(tmp_path, *lines).load()


@pytest.mark.parametrize(
    "fields",
    [
        {"logits": [1.5, -0.5, 0], "label": True},
        {"probabilities_0": 0.5, "probabilities_1": 0.25, "probabilities_2": 0.25, "label": False},
        {"prob_0": 0.5, "prob_1": 0.5, "label": True},
        {"confidence": True, "correct": True},
    ],
)
def test_true_and_false_are_no_numbers(fields, tmp_path):
    """Oracle: Parquet with the same values is refused, too."""
    with pytest.raises(ValueError, match=r"x.jsonl: .*(bool|true)"):
        opened(tmp_path, fields, fields).load()
    pq.write_table(pa.Table.from_pylist([fields] * 2), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x.parquet: .*bool"):
        Predictions.open(tmp_path / "x.parquet").load()


@pytest.mark.parametrize("column", ["prob_1", "probabilities", "label"])
def test_a_number_of_hundreds_of_digits_is_named_by_column_and_line(column, tmp_path):
    fields = {"probabilities": [0.5, 0.5]} if column == "probabilities" else {"prob_0": 0.5, "prob_1": 0.5}
    fields["label"] = 1
    huge = fields | {column: [0.5, 10**400] if column == "probabilities" else 10**400}
    with pytest.raises(ValueError, match=rf"'{column}'.*line 2"):
        opened(tmp_path, fields, huge).load()


def test_true_and_false_are_two_classes(tmp_path):
    lines = [{"probability": 0.25, "label": True}, {"probability": 0.75, "label": False}]
    p = opened(tmp_path, *lines)
    assert (p.class_names, p.labels.tolist()) == (("False", "True"), [1, 0])
    with pytest.raises(ValueError, match=facts("'label'", "true", "1", "line 2")):
        opened(tmp_path, lines[0], {"probability": 0.75, "label": 1}).load()


@pytest.mark.slow
def test_too_many_classes_are_refused(tmp_path):
    for logits, most in (
        ([0] * (MOST_CLASSES + 1), MOST_CLASSES),
        (dict.fromkeys(map(str, range(MOST_COLUMNS)), 0), MOST_COLUMNS),
    ):
        with pytest.raises(ValueError, match=facts(f"{most:,}", f"{most + 1:,}")):
            opened(tmp_path, {"logits": logits, "label": "0" if isinstance(logits, dict) else 0})
