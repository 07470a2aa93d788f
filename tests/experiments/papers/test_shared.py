import numpy as np
import pytest

from calibrant.experiments.papers import Workbench, find_item, items
from calibrant.experiments.papers.shared import DrawnPixels, choose_image, mean_wrong_rank
from calibrant.experiments.papers.small import small_recipe
from calibrant.training import RunFolder, load
from tests.helpers.mask_runs import trained_runs

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
    from calibrant.experiments.papers.shared import tables_beside

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


def test_the_mean_rank_of_wrong_pixels_is_within_their_image():
    random = np.random.default_rng(0)
    image, correct = random.integers(0, 4, 90), random.random(90) < 0.7
    score = np.round(random.random(90), 1)  # with ties
    ranks = [
        np.mean([score[j] > score[i] for j in range(90) if image[j] == image[i]])
        for i in range(90) if not correct[i]
    ]  # fmt: skip
    pixels = DrawnPixels(image, correct, {"confidence": score})
    assert mean_wrong_rank(pixels, "confidence") == pytest.approx(np.mean(ranks))


def test_the_image_shown_is_the_first_with_enough_errors(monkeypatch):
    right = {"a": [1, 1, 1, 0, 0, 1], "b": [1, 1, 0, 1, 0, 0]}  # images 0, 0, 1, 1, 2, 2
    image = np.repeat([0, 1, 2], 2)
    monkeypatch.setattr(
        "calibrant.experiments.papers.shared.read_drawn_pixels",
        lambda runs, method, seed: DrawnPixels(image, np.array(right[method], bool), {}),
    )
    assert choose_image(None, ("a", "b"), 0) == 1
    assert choose_image(None, ("a",), 0) == 1
    right |= {"a": [0, 0, 1, 0, 0, 1], "b": [0, 1, 1, 1, 0, 1]}
    assert choose_image(None, ("a", "b"), 0) == 2  # of the first image one method gets all wrong
    right["a"] = [1, 1, 1, 1, 1, 1]
    assert choose_image(None, ("a",), 0) == 0  # nobody has any: still one is shown


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


def test_table_4_has_the_mean_iou_of_the_runs(tmp_path):
    runs = trained_runs(tmp_path)
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
    assert "drawn scenes" in own.title  # not PASCAL VOC
    assert "by ACLS in its Table 4" in beside.title  # MbLS has no such table


def test_figure_10_has_both_networks_and_both_rankings(tmp_path):
    runs = trained_runs(tmp_path, alpha=0.2)
    made = find_item("sc.fig10").make(Workbench(tmp_path / "bench", small=True, runs=list(runs.values())))
    titles = [axis.get_title(loc="left") for axis in made.figures["fig10"].axes]
    assert [title.partition(":")[0] for title in titles if ":" in title] == ["CE", "LS, alpha = 0.2"] * 2
    (ce, ls) = made.tables["fig10-numbers"].rows
    assert (ce.method, ls.method) == ("CE", "LS, alpha = 0.2")
    assert all(0 < cell.mean < 1 for line in (ce, ls) for cell in line.cells)
