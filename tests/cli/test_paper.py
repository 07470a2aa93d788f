import json

import pytest

from calibrant.cli import main


def run(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return stop.value.code


def test_the_list_has_every_item(capsys):
    assert run("paper", "list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["lr.fig2"]["here"] == "ready"
    assert rows["lr.fig2"]["data"] == "none"
    assert rows["acls.table3"]["data"].startswith("cifar-10")


def test_an_item_is_made_and_then_listed_as_made(tmp_path, capsys):
    assert run("paper", "lr.fig2", "-o", tmp_path) == 0
    assert (tmp_path / "lr.fig2" / "index.html").exists()
    capsys.readouterr()
    assert run("paper", "list", "--json", "-o", tmp_path) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["lr.fig2"]["here"] == "made"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("acls.tabel3",), "did you mean 'acls.table3'"),
        (("acls.table3",), "give their folder with --data, finished runs with --runs, or --small"),
        (("acls.table3", "somewhere"), "finished runs are given with --runs"),
        (("lr.fig2", "--seeds", "x"), "--seeds takes a number of seeds"),
    ],
)
def test_what_cannot_be_made_is_one_sentence(words, sentence, tmp_path, capsys):
    assert run("paper", *words, "-o", tmp_path) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_the_list_fits_a_hundred_columns(capsys):
    assert run("paper", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("name ") for line in lines) == 1  # in one table
    assert any(line.startswith("als.fig3 ") and "imagenet" in line for line in lines)


def test_finished_runs_are_taken_instead_of_training(tmp_path, capsys):
    paths = tmp_path / "nothing", tmp_path / "more"
    assert run("paper", "acls.table3", "--runs", *paths, "-o", tmp_path / "out") == 2
    assert "neither the folder of a finished run nor that of a comparison" in capsys.readouterr().err
