"""CSV as text: what separates fields and decimals, the lines of errors, and bytes that are no text."""

import pytest

from calibrant import Predictions
from tests.helpers.predictions import Q, refusal_of, write_table


def test_errors_in_text_give_the_line_an_editor_shows(tmp_path):
    """Empty lines and line breaks inside quotes count as an editor counts them."""
    path = tmp_path / "a.csv"
    start = '\ufeff\nlogits_0,logits_1,labels,note\n1,2,0,"two\nlines"\n\n'
    for row, end in (
        ("nan,1,0,x", "logits must be finite, got nan in line 6, class 0"),
        ("1,2,5,x", "labels must lie in 0..1, got 5 in line 6"),
        ("1,2", "line 6 has 2 fields, expected 4"),
        ("1,z,0,x", "column 'logits_1' must be a number, got 'z' in line 6"),
    ):
        path.write_text(start + row + "\n1,2,1,x\n")
        assert refusal_of(Predictions.open, path) == f"{path}: {end}"


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_a_header_without_commas_says_what_separates_columns(tmp_path, mark):
    body = write_table(tmp_path / "a.csv", "logits_0,logits_1,logits_2,labels", [0, 1, 2, 0]).read_text()
    (tmp_path / "b.csv").write_text(body.replace(",", mark))
    predictions = Predictions.open(tmp_path / "b.csv")
    assert (predictions.logits.tolist(), predictions.labels.tolist()) == (Q.tolist(), [0, 1, 2, 0])


def test_decimal_commas_beside_semicolons(tmp_path):
    rows = "labels;logits_0;logits_1\n0;1,5;-0,25\n1;2;1,5e-1\n"
    (tmp_path / "a.csv").write_text(rows)
    assert Predictions.open(tmp_path / "a.csv").logits.tolist() == [[1.5, -0.25], [2.0, 0.15]]
    (tmp_path / "a.csv").write_text(rows + "1;2;x\n")
    assert "column 'logits_1' must be a number, got 'x' in line 4" in refusal_of(Predictions.open, tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text('labels,logits_0,logits_1\n0,"1,5","0,5"\n')
    assert "a decimal comma? write 0.5" in refusal_of(Predictions.open, tmp_path / "a.csv")


def test_text_that_is_not_utf8(tmp_path):
    body = "label,logits.für,logits.wider\nfür,1,2\nwider,2,1\n"
    (tmp_path / "a.csv").write_bytes(body.encode("latin-1"))
    assert "save the file as UTF-8" in refusal_of(lambda path: Predictions.open(path).load(), tmp_path / "a.csv")
    (tmp_path / "a.csv").write_bytes(body.encode("utf-16"))
    assert "save the file as UTF-8" in refusal_of(Predictions.open, tmp_path / "a.csv")
