from calibrant.experiments.papers import find_item, write_item


def test_every_format_and_a_page_are_written(bench, tmp_path):
    item = find_item("lr.fig2")
    files = write_item(item, item.make(bench), tmp_path / "out", command="calibrant paper lr.fig2", lead="Made here.")
    assert {file.name for file in files} == {"fig2.svg", "fig2.pdf", "fig2.png", "index.html"}
    assert all(file.stat().st_size > 500 for file in files)
    page = files[-1].read_text(encoding="utf-8")
    assert "calibrant paper lr.fig2" in page
    assert "Made here." in page
    assert "LR, Fig. 2" in page
