"""Tests of audit."""

import json

import pytest

from calibrant import Predictions
from calibrant.cli import main
from tests.helpers.audits import drawn


def test_command_writes_report_and_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    z, y = drawn(800, 3, 2.5, 15)
    Predictions.from_logits(z, y, class_names=["cat", "dog", "<b>fox"]).save("test.npz")
    Predictions.from_logits(z / 2.5, y).save("fixed.npz")
    Predictions.from_logits(*drawn(500, 3, 2.5, 18)).save("val.npz")
    with pytest.raises(SystemExit) as stop:
        main(["audit", "test.npz", "fixed.npz", "--val", "val.npz", "--replicates", "50", "-o", "out/r.html"])
    assert stop.value.code == 0
    out = capsys.readouterr()
    assert "Overconfident" in out.out
    assert "out/r.html" in out.err
    page = (tmp_path / "out" / "r.html").read_text()
    assert "&lt;b&gt;fox" in page
    assert "<b>fox" not in page
    assert "calibrant audit test.npz fixed.npz --val val.npz --replicates 50 -o out/r.html" in page
    with pytest.raises(SystemExit):
        main(["audit", "test.npz", "--json", "--replicates", "50", "-o", "none"])
    document = json.loads(capsys.readouterr().out)
    assert document["models"][0]["samples"] == 800
    assert not (tmp_path / "report.html").exists()


def test_a_report_that_is_replaced_unasked_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Predictions.from_logits(*drawn(120, 3, 2.0, 1)).save(f"{name}.npz")
    remarks = []
    for words in (["a.npz"], ["b.npz"], ["b.npz", "-o", "report.html"]):
        with pytest.raises(SystemExit):
            main(["audit", *words, "--replicates", "20"])
        remarks.append(capsys.readouterr().err)
    assert ["earlier" in remark for remark in remarks] == [False, True, False]
