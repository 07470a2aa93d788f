"""Errors about columns: the options of a proposal can be pasted, and a file that cannot be looked at is listed."""

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.predictions.column_errors import column_options
from calibrant.predictions.samples import MOST_COLUMNS
from tests.helpers.predictions import refusal


def test_options_are_those_of_both_ways():
    assert (
        column_options({"labels": "P(yes)"}) == """--column 'labels=P(yes)' (in Python columns={"labels": "P(yes)"})"""
    )
    text = column_options({"labels": "y"}, "a b")
    assert text == """--column labels=y --positive 'a b' (in Python columns={"labels": "y"}, positive="a b")"""


def test_names_that_no_one_would_type_are_not_repeated():
    assert (
        column_options({"labels": "y", "logits": ["a" * 300, "b" * 300]}) == "--column labels=NAME --column logits=NAME"
    )
    assert column_options({"labels": "two\nlines"}) == "--column labels=NAME"


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
