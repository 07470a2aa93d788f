"""``calibrant audit``: the page beside what is printed."""

import pytest

from calibrant import Predictions
from tests.helpers.audits import drawn


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_report_is_written_where_it_is_asked_for(here, run):
    z, y = drawn(800, 3, 2.5, 15)
    Predictions.from_logits(z, y).save("test.npz")
    Predictions.from_logits(z / 2.5, y).save("fixed.npz")
    Predictions.from_logits(*drawn(500, 3, 2.5, 18)).save("val.npz")
    words = "audit test.npz fixed.npz --val val.npz --replicates 50 -o out/r.html"
    code, out, err = run(*words.split())
    assert (code, "Overconfident" in out, "out/r.html" in err) == (0, True, True)
    assert f"calibrant {words}" in (here / "out" / "r.html").read_text()
    assert not (here / "report.html").exists()


def test_a_report_that_is_replaced_unasked_is_said(here, run):
    for name in ("a", "b"):
        Predictions.from_logits(*drawn(120, 3, 2.0, 1)).save(f"{name}.npz")
    calls = (["a.npz"], ["b.npz"], ["b.npz", "-o", "report.html"])
    remarks = [run("audit", *words, "--replicates", "20")[2] for words in calls]
    assert ["-o" in remark for remark in remarks] == [False, True, False]
