"""Tables of labels that came later."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from calibrant.monitoring.late_labels import read_labels


def write(path, text):
    path.write_text(text)
    return path


def test_names_numbers_and_gaps(tmp_path):
    named = write(tmp_path / "a.csv", "id,label\nx1,dog\nx2,\n7,cat\n")
    assert read_labels(named, 2, ("cat", "dog")) == {"x1": 1, "7": 0}
    assert read_labels(write(tmp_path / "b.csv", "labels,ids\n2,1\n0,2\n"), 3, None) == {"1": 2, "2": 0}
    pa.parquet.write_table(pa.table({"id": [5], "label": [1]}), tmp_path / "c.parquet")
    assert read_labels(tmp_path / "c.parquet", 2, ("cat", "dog")) == {"5": 1}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,label\n1,cow\n", "the label 'cow' is none of 2 classes"),
        ("id,label\n1,5\n", "the label 5 is none of 2 classes"),
        ("id,label\n1,cat\n1,dog\n", "the id 1 has two labels"),
        ("id,truth\n1,cat\n", "expected a column 'label', got id, truth"),
        ("id,label\n1,\n", "there are no labels"),
        ("", "not a table of labels"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path, text, sentence):
    path = write(tmp_path / "labels.csv", text)
    with pytest.raises(ValueError, match=sentence) as error:
        read_labels(path, 2, ("cat", "dog"))
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_other_formats_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"read from \.csv or \.parquet, got '\.txt'"):
        read_labels(write(tmp_path / "labels.txt", "id,label"), 2, None)
