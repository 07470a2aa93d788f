import pytest

from calibrant.experiments.papers import find_item, items, registry, write_item


def test_every_item_says_what_it_is():
    for name, item in items().items():
        assert name == item.name == name.lower()
        assert item.paper in registry.PAPERS
        assert item.section or item.name.partition(".")[2].startswith(("fig", "table"))
        assert item.title[0].isupper()
        assert not item.title.endswith(".")
        assert item.minutes > 0
        assert item.make.__doc__


def test_items_stand_in_the_order_of_the_papers():
    papers = [item.paper for item in items().values()]
    assert papers == sorted(papers, key=registry.PAPERS.index)


def test_a_name_is_found_whatever_its_case_and_a_wrong_one_gets_the_nearest():
    assert find_item("ACLS.table3").place == "ACLS, Table 3"
    with pytest.raises(ValueError, match=r"no table or figure is called 'acls.tabel3'.*did you mean 'acls.table3'"):
        find_item("acls.tabel3")


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match=r"'lr.fig2' is registered twice"):
        registry.item("lr.fig2", "Again", minutes=1)(lambda bench: None)


def test_every_format_and_a_page_are_written(bench, tmp_path):
    item = find_item("lr.fig2")
    files = write_item(item, item.make(bench), tmp_path / "out", command="calibrant paper lr.fig2", lead="Made here.")
    assert {file.name for file in files} == {"fig2.svg", "fig2.pdf", "fig2.png", "index.html"}
    assert all(file.stat().st_size > 500 for file in files)
    page = files[-1].read_text(encoding="utf-8")
    assert "calibrant paper lr.fig2" in page
    assert "Made here." in page
    assert "LR, Fig. 2" in page
