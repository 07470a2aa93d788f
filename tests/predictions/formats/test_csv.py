"""CSV: separators and decimals, compression, bombs, fields that are no numbers, and the lines of errors."""

import csv
import gzip

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.predictions import files
from calibrant.predictions.formats import csv as csv_format
from tests.helpers.predictions import Q, refusal, refusal_of, write_table


def test_tabs_and_compression_are_read_and_pickles_are_not(tmp_path):
    body = write_table(tmp_path / "a.csv", "logits_0,logits_1,logits_2,labels", [0, 1, 2, 0]).read_text()
    (tmp_path / "a.tsv").write_text(body.replace(",", "\t"))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(body.encode()))
    (tmp_path / "a.TSV.gz").write_bytes(gzip.compress(body.replace(",", "\t").encode()))
    for name in ("a.csv", "a.tsv", "a.csv.gz", "a.TSV.gz"):
        opened = Predictions.open(tmp_path / name)
        assert opened.logits.tolist() == Q.tolist()
        assert len(opened) == 4
    assert len(Predictions.open(str(tmp_path / "*.tsv"))) == 4
    broken = gzip.compress(body.replace("0.375", "x").encode())
    (tmp_path / "a.csv.gz").write_bytes(broken)
    assert refusal_of(Predictions.open, tmp_path / "a.csv.gz").endswith(
        "'logits_1' must be a number, got 'x' in line 4"
    )
    for cut in (broken[:-20], broken[:5], b"", b"hello"):
        (tmp_path / "a.csv.gz").write_bytes(cut)
        assert refusal_of(Predictions.open, tmp_path / "a.csv.gz").startswith(f"{tmp_path / 'a.csv.gz'}: ")
    for name in ("x.pt", "x.pth", "x.pkl"):
        text = refusal_of(Predictions.open, tmp_path / name)
        end = "(save arrays instead: np.savez('x.npz', logits=..., labels=...); pickles are never read)"
        assert text.endswith(end)
    with pytest.raises(ValueError, match=r"predictions are written as .*, got '\.tsv'$"):
        Predictions.from_logits(Q, [0] * 4).save(tmp_path / "b.tsv")


HEADER = b"logits_0,logits_1,labels\n"
FILL = {
    "line": (b"0.", b"0" * (1 << 20)),
    "quote": (b'"', b"0" * (1 << 20)),
    "rows": (b"", b"0,1,0\n" * 170_000),
    "long rows": (b"", (b"0." + b"0" * 100_000 + b",1,0\n") * 10),
    "empty lines": (b"", b"\n" * (1 << 20)),
}


@pytest.mark.parametrize("fill", FILL)
@pytest.mark.parametrize("header", [HEADER, b"logits_"])
def test_a_bomb_is_refused_by_its_start(fill, header, monkeypatch, tmp_path):
    """Hundreds of megabytes in less than one, one part after the other."""
    monkeypatch.setattr(files, "LEAST", 1 << 24)
    start, repeated = FILL[fill]
    part = gzip.compress(repeated * 4, 9)
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(header + start) + part * 80)
    assert "must become at most 100 times as large as its" in refusal(path)


def test_a_bomb_of_full_size(tmp_path):
    """Some 4.5 GB in 4.5 MB."""
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(HEADER) + gzip.compress(bytes(1 << 24), 9) * 280)
    assert "must become at most 100 times as large as its 4," in refusal(path)


@pytest.mark.parametrize("fill", ["line", "quote", "rows"])
def test_a_bomb_behind_an_honest_start_is_refused_on_the_way(fill, monkeypatch, tmp_path):
    monkeypatch.setattr(csv_format, "SAMPLE", 1 << 10)
    monkeypatch.setattr(files, "LEAST", 1 << 22)
    rows = np.random.default_rng(0).random((20_000, 2))
    honest = b"".join(b"%.6f,%.6f,1\n" % tuple(row) for row in rows)
    start, repeated = FILL[fill]
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(HEADER + honest + start + repeated * 64))
    assert "at most" in refusal(path)


def test_an_honest_compressed_table_is_streamed(tmp_path):
    rows = 30_000
    body = HEADER + b"0.25,0.75,1\n" * rows
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(body))
    assert sum(len(b) for b in Predictions.open(tmp_path / "a.csv.gz").batches(1000)) == rows


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("logits_0,logits_1,labels\n1,{digits}x,0\n", "in line 2"),
        ("logits_0,logits_1,labels\n1,2,{digits}\n", "(use .astype(int))"),
        ("logits_0,logits_1,labels\n1,2,{digits}x\n", "class_names=[...])"),
        ("confidence,predicted,labels\n0.5,{digits}x,{digits}\n", "got text and numbers"),
        ("confidence,correct\n0.5,{digits}\n", "in line 2"),
        ("logits_0,logits_1,labels,note\n1,x,0,{digits}{digits}\n", "has more than 131,072 characters"),
        ("logits_0,logits_1,labels,note\n1,nan,0,{digits}{digits}\n", "got nan in row 0 (counted from 0), class 1"),
        ("logits_0,logits_1,labels,{digits}{digits}\n1,2,0,1\n", "has more than 131,072 characters"),
        ("logits_{digits},logits_1,labels\n1,2,2\n", "or list all of them"),
    ],
)
def test_fields_of_very_many_digits(body, end, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(body.format(digits="9" * 131_000))
    assert refusal(path).endswith(end)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("label,prob\n1,0.5\n,0.5\n", "labels (column 'label') has no value in line 3: fill it in, or leave such rows"),
        ("label,logits_0,logits_1\n1,1,2\n,1,2\n", "has no value in line 3: fill it in"),
        ("id,label,logits_0,logits_1\nx,1,1,2\n,1,1,2\n", "(column 'id') has no value in line 3: fill it in"),
        ("label,logits.a,logits.b\na,1,2\n,1,2\n", "has no value in line 3: fill it in"),
        ("label,prob\n1,50%\n", "got '50%' in line 2 (percentages? leave out the % and divide by 100)"),
        ("label,prob\n1,0.5,\n", "line 2 has 3 fields, expected 2 (does every line end in ','?)"),
        ("label,prob\n1,0.5,7\n", "line 2 has 3 fields, expected 2"),
    ],
)
def test_mistakes_of_people_are_said_with_their_remedy(tmp_path, body, message):
    (tmp_path / "a.csv").write_text(body)
    assert message in refusal_of(lambda path: Predictions.open(path).load(), tmp_path / "a.csv")


def test_labels_that_are_whole_numbers_with_a_point(tmp_path):
    (tmp_path / "a.csv").write_text("label,prob\n1.0,0.75\n0.0,0.25\n")
    predictions = Predictions.open(tmp_path / "a.csv")
    assert (predictions.labels.tolist(), predictions.probabilities[:, 1].tolist()) == ([1, 0], [0.75, 0.25])
    (tmp_path / "a.csv").write_text("label,logits_0,logits_1,logits_2\n2.0,1,2,3\n0.0,1,2,3\n")
    assert Predictions.open(tmp_path / "a.csv").labels.tolist() == [2, 0]
    (tmp_path / "a.csv").write_text("label,logits_0,logits_1,logits_2\n2.5,1,2,3\n0.0,1,2,3\n")
    assert "got '2.5' in line 2" in refusal_of(lambda path: Predictions.open(path).load(), tmp_path / "a.csv")


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


@pytest.mark.parametrize("spreadsheet_safe", [False, True])
def test_text_like_formulas_is_quoted_only_where_asked_for(spreadsheet_safe, tmp_path):
    """Oracle: Python's reader of CSV."""
    ids = ["=1+1", "+1", "-1", "@x", "\tx", "a=b", "z"]
    groups = {"site": [f"={j}" for j in range(7)], "number": list(range(-3, 4))}
    p = Predictions.from_logits(-np.eye(7), np.arange(7), ids=ids, groups=groups)
    p.save(tmp_path / "x.csv", spreadsheet_safe=spreadsheet_safe)
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    quote = "'" if spreadsheet_safe else ""
    assert [row["ids"] for row in rows] == [quote + text for text in ids[:5]] + ids[5:]
    assert [row["group.site"] for row in rows] == [quote + text for text in groups["site"]]
    assert [row["group.number"] for row in rows] == [str(number) for number in groups["number"]]
    again = Predictions.open(tmp_path / "x.csv")
    np.testing.assert_array_equal(again.logits, p.logits)
    p.save(tmp_path / "x.npz", spreadsheet_safe=spreadsheet_safe)
    assert Predictions.open(tmp_path / "x.npz").ids.tolist() == ids
