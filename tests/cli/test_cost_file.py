"""Cost matrices in files: by name or in order, and one sentence where something is wrong."""

import pytest

from calibrant.cli.cost_file import read_costs

NAMES = ("cat", "dog", "cow")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.csv", "0,1,2\n3,0,4\n\n5, 6,0\n"),
        ("named.csv", "\ufeff,dog,cow,cat\ncow,6,0,5\ncat,1,2,0\ndog,0,4,3\n"),
        ("rows.json", "[[0, 1, 2], [3, 0.0, 4], [5, 6, 0]]"),
    ],
)
def test_every_form_is_the_same_matrix(name, text, tmp_path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert read_costs(path, NAMES) == [[0, 1, 2], [3, 0, 4], [5, 6, 0]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("costs.txt", "0,1\n1,0\n", "read from .csv or .json"),
        ("costs.csv", "", "must be a list of rows"),
        ("costs.csv", "0,1\n1\n", "same length"),
        ("costs.csv", "0,one\n1,0\n", "must be the classes cat, dog, cow, each once"),
        ("costs.csv", ",cat,dog,cat\ncat,0,1,1\ndog,1,0,1\ncow,1,1,0\n", "the answers in the first row must be"),
        ("costs.csv", ",cat,dog,cow\ncat,0,1,1\ndog,1,0,1\ndog,1,1,0\n", "the labels in the first column must be"),
        ("costs.csv", ",cat,dog,cow\ncat,0,1\ndog,1,0,1\ncow,1,1,0\n", "a cost must be a number, got ''"),
        ("costs.json", "{}", "must be a list of rows"),
        ("costs.json", "[[0, true], [1, 0]]", "a cost must be a number, got 'True'"),
        ("costs.json", "[" * 100_000, "costs.json"),
        ("costs.json", "[[0", "costs.json"),
    ],
)
def test_what_is_refused(name, text, message, tmp_path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as error:
        read_costs(path, NAMES)
    assert "\n" not in str(error.value)


def test_what_is_no_text(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_bytes(b"\xff\xfe0,1")
    with pytest.raises(ValueError, match="not text in UTF-8"):
        read_costs(path, NAMES)
