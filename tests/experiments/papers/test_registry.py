"""Items of the papers: the list, what writes them, tables beside the printed numbers, and the data sets they need."""

import gzip
import struct

import numpy as np
import pytest

from calibrant.data import find_mnist, read
from calibrant.data.readers.mnist import FIRST_LABELS
from calibrant.experiments.papers import Workbench, find_item, items, registry, workbench, write_item
from calibrant.experiments.papers.catalogue import MAKERS, PAPERS
from calibrant.experiments.papers.data_sets import PUBLISHED, data_of, find_data, parse_folders
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


@pytest.mark.slow
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


MNIST, FASHION = "lr_mnist_mlp", "lr_fashion_mnist_mlp"


def write_idx(home, first=None, packed=False, samples=12):
    """Files of MNIST's layout whose labels begin as those of a data set, or with zeros."""
    home.mkdir(parents=True)
    for split, part in (("train", "train"), ("test", "t10k")):
        labels = np.resize(np.array(FIRST_LABELS[first][split] if first else [0]), samples).astype(np.uint8)
        images = np.zeros((samples, 28, 28), np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            data = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()
            name = f"{part}-{kind}-ubyte"
            (home / f"{name}.gz").write_bytes(gzip.compress(data)) if packed else (home / name).write_bytes(data)
    return home


def test_every_recipe_of_a_paper_has_a_data_set():
    for name in names():
        if not name.startswith("small/") and name.partition("_")[0] in ("acls", "als", "lr", "mbls", "sc"):
            data = data_of(name)
            assert data is not None, name
            assert data.classes > 1
    assert data_of("small/scenes") is None
    assert len({data.name for data in PUBLISHED.values()}) == len(PUBLISHED)


@pytest.mark.parametrize(
    ("samples", "val_of", "fits"),
    [
        ({"train": 45_000, "val": 5_000, "test": 10_000}, "train", True),
        ({"train": 50_000, "test": 10_000}, "train", True),
        ({"train": 50_000, "val": 5_000, "test": 5_000}, "test", True),
        ({"train": 450, "val": 50, "test": 100}, "train", False),
        ({"train": 1_000, "test": 10_000}, "train", False),  # trained on a part
        ({"train": 50_000, "test": 1_000}, "train", False),
        ({"test": 10_000}, "train", True),  # of before sizes were recorded
        ({"test": 9_999}, "train", False),
    ],
)
def test_the_samples_of_a_run_are_all_of_the_data_set(samples, val_of, fits):
    assert data_of("acls_cifar10_resnet50").has_sizes(samples, val_of=val_of, redrawn=False) is fits
    for scale, redrawn in ((1, True), (10, False)):  # merged and drawn again, data count together
        assert (
            data_of(MNIST).has_sizes({"train": 60_000 // scale, "test": 10_000 // scale}, val_of="train", redrawn=True)
            is redrawn
        )


@pytest.mark.parametrize("packed", [False, True])
def test_labels_tell_mnist_and_fashion_mnist_apart_whatever_the_folder_is_called(tmp_path, packed):
    plain = write_idx(tmp_path / "fashion" / "a", "mnist", packed)
    fashion = write_idx(tmp_path / "mnist" / "b", "fashion-mnist", packed)
    assert find_mnist(tmp_path) == {plain: "mnist", fashion: "fashion-mnist"}
    assert read(fashion, "train").classes[0] == "T-shirt/top"
    assert read(plain, "train").classes[0] == "0"
    assert find_data(MNIST, str(tmp_path), {}) == str(plain)
    assert find_data(FASHION, str(tmp_path), {}) == str(fashion)


def test_a_folder_with_both_gives_each_recipe_its_own(tmp_path):
    for name in ("MNIST", "FashionMNIST"):
        write_idx(tmp_path / name / "raw")
    assert find_data(MNIST, str(tmp_path), {}).endswith("/MNIST/raw")
    assert find_data(FASHION, str(tmp_path), {}).endswith("/FashionMNIST/raw")


def test_mnist_alone_is_not_taken_for_fashion_mnist(tmp_path):
    write_idx(tmp_path / "MNIST" / "raw", "mnist")
    with pytest.raises(ValueError, match=facts("Fashion-MNIST", "mnist", "--data fashion-mnist=DIR")):
        find_data(FASHION, str(tmp_path), {})
    with pytest.raises(ValueError, match=facts("mnist")):  # a name does not change what the files are
        find_data(FASHION, None, {"fashion-mnist": str(tmp_path)})


def test_files_that_do_not_say_are_asked_for_by_name(tmp_path):
    home = write_idx(tmp_path / "a")
    with pytest.raises(ValueError, match=facts("--data mnist=DIR")):
        find_data(MNIST, str(home), {})
    assert find_data(FASHION, None, {"fashion-mnist": str(home)}) == str(home)
    with pytest.raises(ValueError, match=facts("mnist", "fashion-mnist")):
        find_data(FASHION, None, {"fashion-mnist": str(home), "mnist": str(tmp_path / "." / "a")})


def test_folders_are_given_plain_or_by_name(tmp_path):
    recipes = [MNIST, FASHION]
    odd = tmp_path / "mnist=x"
    odd.mkdir()
    assert parse_folders([str(tmp_path), "fashion-mnist=b"], recipes) == (str(tmp_path), {"fashion-mnist": "b"})
    assert parse_folders([str(odd)], recipes) == (str(odd), {})
    with pytest.raises(ValueError, match=facts("fashion-mnist")):
        parse_folders(["fashon-mnist=b"], recipes)
    with pytest.raises(ValueError, match=facts("mnist")):
        parse_folders(["mnist=a", "mnist=b"], recipes)
    with pytest.raises(ValueError, match=facts("mnist=")):
        parse_folders(["mnist="], recipes)
    with pytest.raises(ValueError, match=facts("NAME=DIR")):
        parse_folders([str(tmp_path), str(odd)], recipes)
