"""``calibrant demo --study`` from end to end, and once more from what is on disk."""

from calibrant.cli.demo_study import run_study


def test_the_study_ends_with_a_table_a_page_and_a_model(capsys, tmp_path):
    folder = tmp_path / "study"
    run_study(folder, "digits", True, 0, False, False)
    out = capsys.readouterr().out
    assert "On the test data" in out
    assert "Cross-entropy is overconfident" in out
    page = (folder / "index.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    for name in ("audit.html", "policy.json", "model.onnx", "results.csv", "tables/methods.tex"):
        assert (folder / name).stat().st_size > 100
    run_study(folder, "digits", True, 0, False, False)  # everything is on disk, and says the same
    captured = capsys.readouterr()
    assert captured.out == out
    assert "10 of them on disk" in captured.err
