import json
import re

import pytest

from calibrant.base import extras
from tests.helpers.errors import facts
from tests.helpers.scene_runs import train_scenes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    train_scenes(folder / "a" / "run")
    train_scenes(folder / "b" / "run", loss={"name": "ls"})
    train_scenes(folder / "mlp", model={"name": "mlp", "input_size": [3, 24, 24], "hidden": [4]})
    return folder


def test_a_page_with_named_images_and_the_numbers_as_json(run, runs, tmp_path):
    ids = ["test-0-000003", "test-0-000001"]
    page = tmp_path / "cam.html"
    paths = runs / "a" / "run", runs / "b" / "run"
    code, out, err = run("cam", *paths, "--images", *ids, "-o", page, "--measure", 15, "--json")
    document = json.loads(out)
    assert (code, str(page) in err) == (0, True)
    assert [row["id"] for row in document["rows"]] == [ids[0], ids[0], ids[1], ids[1]]
    assert [method["name"] for method in document["methods"]] == [str(path) for path in paths]
    assert document["methods"][0]["images"] <= document["measured"] == 15
    assert document["rows"][1]["methods"][0]["inside"] is None, "no object in sight"
    assert page.read_text(encoding="utf-8").count("data:image/png") == 4 * 3


def test_a_run_has_the_name_that_it_is_given(run, runs, tmp_path):
    words = (f"CE={runs / 'a' / 'run'}", runs / "b" / "run", "--count", 1, "--measure", 0, "-o", tmp_path / "cam.html")
    code, out, _ = run("cam", *words, "--json")
    assert code == 0
    assert [method["name"] for method in json.loads(out)["methods"]] == ["CE", "run"]


def test_a_figure_and_the_numbers_in_the_terminal(run, runs, tmp_path):
    figure = tmp_path / "cam.svg"
    words = ("cam", runs / "a" / "run", "--count", 1, "-o", figure, "--measure", 12, "--explain", "label")
    code, out, _ = run(*words)
    assert code == 0
    assert "12 images" in out
    assert figure.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--images", "1"), "runs"),
        (("mlp",), "'mlp' convolutions"),
        (("a/run", "--explain", "both"), "--explain predicted label 'both'"),
        (("a/run", "--images", "nowhere"), "'nowhere'"),
        (("a/run", "--layer", "12"), "'12'"),
        (("a/run", "--count", "201"), "200 201"),
        (("a/run", "-o", "cam.txt"), ".png .svg .pdf .txt"),
        (("nothing",), "nothing"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(refuse, runs, monkeypatch, words, told):
    monkeypatch.chdir(runs)
    assert re.search(facts(*told.split()), refuse("cam", *words))


def test_a_missing_package_is_one_sentence_with_its_extra(refuse, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # other tests write into the project's folder meanwhile
    monkeypatch.setattr(extras, "_is_installed", lambda package: package != "pytorch_grad_cam")
    assert re.search(facts("grad-cam", "calibrant[cam]"), refuse("cam", runs / "a" / "run"))
