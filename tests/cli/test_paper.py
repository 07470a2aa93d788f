import json
import re

import pytest

from tests.experiments.papers.test_registry import write_idx
from tests.helpers.errors import facts
from tests.helpers.scene_runs import train_scenes


def listed(run, *words):
    code, out, _ = run("paper", "list", "--json", *words)
    assert code == 0
    return {row["name"]: row for row in json.loads(out)}


@pytest.mark.slow
def test_an_item_is_listed_made_and_then_listed_as_made(tmp_path, run):
    rows = listed(run)
    assert (rows["lr.fig2"]["here"], rows["lr.fig2"]["data"]) == ("ready", "none")
    assert rows["acls.table3"]["data"].startswith("cifar-10")
    assert run("paper", "lr.fig2", "-o", tmp_path)[0] == 0
    assert (tmp_path / "lr.fig2" / "index.html").exists()
    assert listed(run, "-o", tmp_path)["lr.fig2"]["here"] == "made"


def test_the_list_fits_a_hundred_columns(run):
    lines = run("paper", "list")[1].splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("als.fig3 ") and "imagenet" in line for line in lines)


@pytest.mark.parametrize("name", ["als.table1", "als.fig7", "acls.table3", "sc.fig1", "lr.table1"])
def test_runs_on_drawn_scenes_are_refused_for_the_papers_data(name, scenes, tmp_path, monkeypatch, refuse):
    monkeypatch.chdir(tmp_path)
    assert re.search(facts(str(scenes), "small_cnn"), refuse("paper", name, "--runs", scenes, "-o", "out"))


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return train_scenes(tmp_path_factory.mktemp("runs") / "ce")


def test_data_are_checked_before_anything_is_trained(tmp_path, refuse, monkeypatch):
    monkeypatch.setattr("calibrant.experiments.engines.train", pytest.fail)
    monkeypatch.chdir(tmp_path)
    write_idx(tmp_path / "MNIST" / "raw", "mnist")
    for data in (tmp_path, f"mnist={tmp_path}"):
        text = refuse("paper", "lr.table1", "--data", data, "-o", "out")
        assert re.search(facts("60,000", " 12 "), text), "of MNIST, and what there is"
