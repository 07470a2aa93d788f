"""``calibrant demo`` from end to end, and once more from what is on disk."""


def test_the_demonstration_ends_with_a_table_a_page_and_a_model(run, tmp_path):
    words = ("demo", "--data", "digits", "--quick", "-o", tmp_path / "demo")
    code, out, err = run(*words)
    assert code == 0
    assert "On the test data" in out
    assert "Cross-entropy is overconfident" in out
    assert "one ONNX graph; onnxruntime answered as they do on" in " ".join(out.split())
    assert err.strip().endswith("index.html")
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "calibrant demo --data digits --seed 0 --quick" in page
    for name in ("audit.html", "policy.json", "model.onnx", "results.csv", "tables/methods.tex"):
        assert (tmp_path / "demo" / name).stat().st_size > 100
    _, again, err = run(*words)  # everything is on disk, and says the same
    assert again == out
    assert "10 of them on disk" in err
    assert run("demo", "--data", "cats", "-o", tmp_path / "x")[0] == 2
