"""``calibrant demo --study`` from end to end, and once more from what is on disk."""

import pytest


@pytest.mark.slow
def test_the_study_ends_with_claims_tables_and_a_page(run, tmp_path):
    folder = tmp_path / "study"
    words = ("demo", "--study", "--quick", "-o", folder)
    code, out, err = run(*words)
    assert code == 0
    assert out.index("Cross-entropy is overconfident") < out.index("On the test data")  # claims first
    assert err.strip().endswith("index.html")
    page = (folder / "index.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "calibrant demo --study --seed 0 --quick" in page
    assert page.index('id="effects"') < page.index('id="results"')
    for name in ("results.csv", "lens.svg", "tables/methods.tex", "tables/set-mixed.md", "tables/set-context.md"):
        assert (folder / name).stat().st_size > 100
    _, again, err = run(*words)  # everything is on disk, and says the same
    assert again == out
    assert "12 " in err
