"""CSV: separators and decimals, compression, bombs, fields that are no numbers, and the lines of errors."""

import csv
import gzip
import re

import numpy as np
import pytest

from calibrant import Predictions
from calibrant.predictions import files
from calibrant.predictions.formats import text
from tests.helpers.errors import facts
from tests.helpers.predictions import Q, refusal, write_table


def test_tabs_and_compression_are_read(tmp_path):
    body = write_table(tmp_path / "a.csv", "logits_0,logits_1,logits_2,labels", [0, 1, 2, 0]).read_text()
    (tmp_path / "a.tsv").write_text(body.replace(",", "\t"))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(body.encode()))
    (tmp_path / "a.TSV.gz").write_bytes(gzip.compress(body.replace(",", "\t").encode()))
    for mark in ";\t|":
        (tmp_path / f"{ord(mark)}.csv").write_text(body.replace(",", mark))
    for name in ("a.csv", "a.tsv", "a.csv.gz", "a.TSV.gz", "59.csv", "9.csv", "124.csv"):
        opened = Predictions.open(tmp_path / name)
        assert (opened.logits.tolist(), opened.labels.tolist()) == (Q.tolist(), [0, 1, 2, 0])
    broken = gzip.compress(body.replace("0.375", "x").encode())
    (tmp_path / "a.csv.gz").write_bytes(broken)
    assert re.search(facts("'logits_1'", "'x'", "line 4"), refusal(tmp_path / "a.csv.gz"))
    for cut in (broken[:-20], broken[:5], b"", b"hello"):
        (tmp_path / "a.csv.gz").write_bytes(cut)
        refusal(tmp_path / "a.csv.gz")


HEADER = b"logits_0,logits_1,labels\n"
START = '\ufeff\nlogits_0,logits_1,labels,note\n1,2,0,"two\nlines"\n\n'
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
    assert "100 times" in refusal(path)


@pytest.mark.slow
def test_a_bomb_of_full_size(tmp_path):
    """Some 4.5 GB in 4.5 MB."""
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(HEADER) + gzip.compress(bytes(1 << 24), 9) * 280)
    assert "100 times" in refusal(path)


@pytest.mark.slow
@pytest.mark.parametrize("fill", ["line", "quote", "rows"])
def test_a_bomb_behind_an_honest_start_is_refused_on_the_way(fill, monkeypatch, tmp_path):
    monkeypatch.setattr(text, "SAMPLE", 1 << 10)
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
    ("body", "told"),
    [
        ("logits_0,logits_1,labels\n1,{digits}x,0\n", "line 2"),
        ("logits_0,logits_1,labels\n1,2,{digits}\n", "labels"),
        ("logits_0,logits_1,labels\n1,2,{digits}x\n", "labels"),
        ("confidence,predicted,labels\n0.5,{digits}x,{digits}\n", "text numbers"),
        ("confidence,correct\n0.5,{digits}\n", "line 2"),
        ("logits_0,logits_1,labels,note\n1,x,0,{digits}{digits}\n", "131,072"),
        ("logits_0,logits_1,labels,note\n1,nan,0,{digits}{digits}\n", "nan row 0 class 1"),
        ("logits_0,logits_1,labels,{digits}{digits}\n1,2,0,1\n", "131,072"),
        ("logits_{digits},logits_1,labels\n1,2,2\n", "list"),
    ],
)
def test_fields_of_very_many_digits(body, told, tmp_path):
    (tmp_path / "a.csv").write_text(body.format(digits="9" * 131_000))
    assert re.search(facts(*told.split()), refusal(tmp_path / "a.csv"))


MISTAKES = [
    ("label,prob\n1,0.5\n,0.5\n", "'label'|no value|line 3"),
    ("label,logits_0,logits_1\n1,1,2\n,1,2\n", "label|no value|line 3"),
    ("id,label,logits_0,logits_1\nx,1,1,2\n,1,1,2\n", "'id'|no value|line 3"),
    ("label,logits.a,logits.b\na,1,2\n,1,2\n", "label|no value|line 3"),
    ("label,logits_0,logits_1,logits_2\n2.5,1,2,3\n0.0,1,2,3\n", "2.5|line 2"),
    ("logits_0,logits_1,labels\n,2,0\n1,3,0\n", "'logits_0'|no value|line 2"),
    ("logits_0,logits_1,labels\n1,2,0\n2,3,1.0\n", "labels|'1.0'|line 3"),
    ("logits_0,logits_1,labels\n" + "1,2,0\n" * 300_000 + "1,2,cat\n", "'labels'|'cat'|line 300002"),
    ("label,prob\n1,50%\n", "'50%'|line 2|100"),
    ("label,prob\n1,0.5,\n", "line 2|3|2|','"),
    ("label,prob\n1,0.5,7\n", "line 2|3|2"),
    ('labels,logits_0,logits_1\n0,"1,5","0,5"\n', "decimal comma"),
    ("labels;logits_0;logits_1\n0;1,5;-0,25\n1;2;1,5e-1\n1;2;x\n", "'logits_1'|'x'|line 4"),
    ("confidence,correct\n1,true\n0.5,2\n", "correct|'2'|line 3"),
    ("", "empty"),
    ("confidence,correct\n", "no rows"),
    ("labels,probabilities\n", "no rows"),
    # Empty lines and line breaks inside quotes count as an editor counts them.
    (START + "nan,1,0,x\n1,2,1,x\n", "logits|nan|line 6|class 0"),
    (START + "1,2,5,x\n1,2,1,x\n", "labels|0..1|5|line 6"),
    (START + "1,2\n1,2,1,x\n", "line 6|2|4"),
    (START + "1,z,0,x\n1,2,1,x\n", "'logits_1'|'z'|line 6"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("body", "told"), MISTAKES, ids=lambda value: value[-30:])
def test_mistakes_of_people_are_said_with_their_line_and_remedy(tmp_path, body, told):
    (tmp_path / "a.csv").write_text(body)
    assert re.search(facts(*told.split("|")), refusal(tmp_path / "a.csv"))


def test_labels_that_are_whole_numbers_with_a_point(tmp_path):
    (tmp_path / "a.csv").write_text("label,prob\n1.0,0.75\n0.0,0.25\n")
    predictions = Predictions.open(tmp_path / "a.csv")
    assert (predictions.labels.tolist(), predictions.probabilities[:, 1].tolist()) == ([1, 0], [0.75, 0.25])
    (tmp_path / "a.csv").write_text("label,logits_0,logits_1,logits_2\n2.0,1,2,3\n0.0,1,2,3\n")
    assert Predictions.open(tmp_path / "a.csv").labels.tolist() == [2, 0]


def test_decimal_commas_beside_semicolons(tmp_path):
    (tmp_path / "a.csv").write_text("labels;logits_0;logits_1\n0;1,5;-0,25\n1;2;1,5e-1\n")
    assert Predictions.open(tmp_path / "a.csv").logits.tolist() == [[1.5, -0.25], [2.0, 0.15]]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_that_is_not_utf8(encoding, tmp_path):
    (tmp_path / "a.csv").write_bytes("label,logits.für,logits.wider\nfür,1,2\nwider,2,1\n".encode(encoding))
    assert "UTF-8" in refusal(tmp_path / "a.csv")


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
