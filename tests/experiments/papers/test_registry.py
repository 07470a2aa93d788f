"""Items of the papers: the list, what writes them, and tables beside the printed numbers."""

import pytest

from calibrant.experiments.papers import Workbench, find_item, items, registry, workbench, write_item
from calibrant.experiments.papers.catalogue import MAKERS, PAPERS
from calibrant.experiments.papers.registry import tables_beside
from calibrant.experiments.papers.workbench import small_recipe
from calibrant.recipes import names
from calibrant.training import RunFolder, load
from tests.helpers.errors import facts
from tests.helpers.mask_runs import PLAIN as MASKS


def test_every_item_says_what_it_is_and_has_a_maker():
    for name, item in items().items():
        assert name == item.name == name.lower()
        assert item.paper in PAPERS
        assert item.section or item.stem.startswith(("fig", "table"))
        assert item.title[0].isupper()
        assert not item.title.endswith(".")
        assert item.minutes > 0
        assert item.make.__doc__
        assert set(item.recipes) <= set(names())
    assert set(MAKERS) == set(items())  # and nothing is made that the list does not have


def test_items_stand_in_the_order_of_the_papers():
    papers = [item.paper for item in items().values()]
    assert papers == sorted(papers, key=PAPERS.index)


def test_a_name_is_found_whatever_its_case_and_a_wrong_one_gets_the_nearest():
    assert find_item("ACLS.table3").place == "ACLS, Table 3"
    with pytest.raises(ValueError, match=facts("acls.tabel3", "acls.table3")):
        find_item("acls.tabel3")


def test_a_name_is_registered_once():
    assert find_item("lr.fig2").make
    with pytest.raises(ValueError, match=facts("lr.fig2")):
        registry.item("lr.fig2")(lambda bench: None)


def test_every_format_and_a_page_are_written(bench, tmp_path):
    item = find_item("lr.fig2")
    files = write_item(item, item.make(bench), tmp_path / "out", command="calibrant paper lr.fig2", lead="Made here.")
    assert {file.name for file in files} == {"fig2.svg", "fig2.pdf", "fig2.png", "index.html"}
    assert all(file.stat().st_size > 500 for file in files)
    page = files[-1].read_text(encoding="utf-8")
    assert [words for words in ("calibrant paper lr.fig2", "Made here.", "LR, Fig. 2") if words not in page] == []


RECIPE = """
paper = "ACLS"
[data]
layout = "cifar-10"
[model]
name = "resnet50"
[methods.ce]
label = "CE"
[methods.ls]
label = "LS"
loss = { name = "ls", alpha = 0.3 }
[tables.3]
rows = ["ce", "ls"]
columns = ["accuracy", "ece_20"]
[[expected]]
method = "ls"
values = { accuracy = 0.5 }
"""


def test_a_table_stands_beside_the_printed_numbers(bench, tmp_path):
    recipe = tmp_path / "paper.toml"
    recipe.write_text(RECIPE)
    made = tables_beside(bench, [str(recipe), "never read in small"], "3").tables
    assert list(made) == ["table3", "table3-beside"]
    assert [line.method for line in made["table3"].rows] == ["CE", "LS"]
    (line,) = made["table3-beside"].rows
    paper, ours, difference = line.cells
    assert paper.mean == 0.5
    assert ours.runs == 2
    assert difference.mean == pytest.approx(ours.mean - 0.5)
    assert items()["acls.table3"].recipes


NAMES = ("acls.table4", "mbls.voc", "mbls.fig3", "sc.fig6", "sc.fig10")


def test_items_are_listed_and_planned_as_printed():
    assert set(NAMES) <= set(items())
    assert find_item("acls.table4").place == "ACLS, Table 4"
    recipe = load("acls_voc_deeplabv3")
    printed = {
        "CE": (70.92, 8.26, 8.23), "ECP": (71.16, 8.31, 8.26), "LS": (71.00, 9.35, 9.95), "FL": (69.99, 11.44, 11.43),
        "MbLS": (71.20, 7.94, 7.99), "ACLS": (70.63, 7.29, 7.28),
    }  # fmt: skip
    rows = [recipe.methods[row].label for row in recipe.tables["4"].rows]
    assert rows == list(printed)
    for entry in recipe.expected:
        label = recipe.methods[entry.method].label
        values = tuple(round(100 * entry.values[key], 2) for key in ("mean_iou", "ece", "aece"))
        assert values == printed[label]
    small = small_recipe(recipe, masks=True)
    assert (small.data.layout, small.data.exclude) == ("scene-masks", "background")
    assert small.tables["4"].columns == ("mean_iou", "ece", "aece")
    assert not small_recipe(load("sc_cityscapes_deeplabv3plus"), masks=True).data.interpolate


def test_table_4_has_the_mean_iou_of_the_runs(mask_runs, tmp_path, monkeypatch):
    monkeypatch.setattr(workbench, "MASKS", MASKS)
    runs = {name: mask_runs[name] for name in ("ce", "ls")}
    made = find_item("acls.table4").make(Workbench(tmp_path / "bench", small=True, runs=list(runs.values())))
    cells = {line.method: line.cells for line in made.tables["table4"].rows}
    for label, folder in (("CE", runs["ce"]), ("LS", runs["ls"])):
        numbers = RunFolder(folder).result()["sets"]["test"]
        shown = [cell.mean for cell in cells[label]]
        assert shown == pytest.approx([numbers[key] for key in ("mean_iou", "ece", "aece")])
    own, beside = (
        find_item("mbls.voc").make(Workbench(tmp_path / "bench", small=True, runs=list(runs.values()))).tables.values()
    )
    assert {line.method: line.cells for line in own.rows}["LS"] == cells["LS"]
    assert "VOC" not in own.title
    assert "ACLS" in beside.title  # MbLS has no such table
