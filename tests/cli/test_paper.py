import json

import pytest

from calibrant.cli import main
from tests.experiments.papers.test_data_sets import write_idx
from tests.helpers.scene_runs import train_scenes


def run(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def listed(capsys, *words):
    assert run("paper", "list", "--json", *words) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)}


def test_an_item_is_listed_made_and_then_listed_as_made(tmp_path, capsys):
    rows = listed(capsys)
    assert (rows["lr.fig2"]["here"], rows["lr.fig2"]["data"]) == ("ready", "none")
    assert rows["acls.table3"]["data"].startswith("cifar-10")
    assert run("paper", "lr.fig2", "-o", tmp_path) == 0
    assert (tmp_path / "lr.fig2" / "index.html").exists()
    capsys.readouterr()
    assert listed(capsys, "-o", tmp_path)["lr.fig2"]["here"] == "made"


def test_the_list_fits_a_hundred_columns(capsys):
    assert run("paper", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("als.fig3 ") and "imagenet" in line for line in lines)


@pytest.mark.parametrize("name", ["als.table1", "als.fig7", "acls.table3", "sc.fig1", "lr.table1"])
def test_runs_on_drawn_scenes_are_refused_for_the_papers_data(name, scenes, tmp_path, capsys):
    assert run("paper", name, "--runs", scenes, "-o", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(scenes) in said
    assert "small_cnn" in said
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return train_scenes(tmp_path_factory.mktemp("runs") / "ce")


def test_data_are_checked_before_anything_is_trained(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("calibrant.experiments.engines.train", pytest.fail)
    write_idx(tmp_path / "MNIST" / "raw", "mnist")
    assert run("paper", "lr.table1", "--data", tmp_path, "-o", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "60,000" in said  # of MNIST, and there are 12
    assert " 12 " in said
    assert run("paper", "lr.table1", "--data", f"mnist={tmp_path}", "-o", tmp_path / "out") == 2
    assert not (tmp_path / "out").exists()
