"""``calibrant recipes``: the list, one recipe as text, and recipes by name in the other commands."""

import json
import tomllib

from calibrant.recipes import FOLDER


def test_the_list_has_every_file(run):
    code, out, _ = run("recipes", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert set(rows) == {str(file.relative_to(FOLDER))[: -len(".toml")] for file in FOLDER.rglob("*.toml")}
    assert rows["acls_cifar10_resnet50"]["paper"] == "ACLS"
    assert rows["acls_cifar10_resnet50"]["table"] == "Table 3"
    code, out, _ = run("recipes")
    assert "small/scenes" in out


def test_a_recipe_is_printed_as_it_stands(run):
    text = (FOLDER / "small/scenes.toml").read_text(encoding="utf-8")
    assert run("recipes", "small/scenes")[1] == text
    assert json.loads(run("recipes", "small/scenes", "--json")[1]) == tomllib.loads(text)
    assert run("recipes", "small/scenes", "--quiet")[1] == ""


def test_train_takes_a_name_and_another_loss_trains_on_labels(run):
    settings = ["--set", "data.options={samples=200}", "--set", "training.epochs=1", "--dry-run", "--json"]
    for words, loss, targets in (
        ([], "ce", "adaptive"),
        (["--loss", "acls"], "acls", "hard"),
        (["--loss", "acls", "--set", "targets.name=adaptive"], "acls", "adaptive"),
    ):
        code, out, _ = run("train", "small/scenes", *words, *settings)
        assert code == 0
        recipe = json.loads(out)["recipe"]
        assert (recipe["loss"]["name"], recipe["targets"]["name"]) == (loss, targets)
