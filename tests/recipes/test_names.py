"""Names of recipes: files first, then those in the package, and the same list in the wheel."""

import tomllib
from pathlib import Path

import pathspec
import pytest

from calibrant.recipes import FOLDER, find, names
from tests.helpers.errors import facts

ROOT = Path(__file__).parents[2]


def test_a_name_is_a_file_of_the_package():
    assert find("small/scenes") == FOLDER / "small/scenes.toml"
    assert find("small/scenes.toml") == find(Path("small/scenes"))
    assert find("acls_cifar10_resnet50").parent == FOLDER


def test_a_file_wins_over_a_name_and_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small/scenes").mkdir(parents=True)  # the output of an earlier run, say
    assert find("small/scenes") == FOLDER / "small/scenes.toml"
    Path("small/scenes.toml").write_text("title = 'mine'")
    assert find("small/scenes.toml").read_text() == "title = 'mine'"
    with pytest.raises(ValueError, match=facts("a folder")):
        find("small")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("scenes", "small/scenes"),
        ("recipes/small/scenes.toml", "small/scenes"),
        ("acls_cifar10_resnet5", "acls_cifar10_resnet50"),
        ("ACLS_CIFAR10_RESNET50", "acls_cifar10_resnet50"),
    ],
)
def test_a_wrong_name_gets_the_nearest_ones(name, nearest):
    with pytest.raises(ValueError, match=facts(name, nearest)):
        find(name)


@pytest.mark.parametrize("name", ["", "..", "nothing-like-it", "x" * 100_000, "a\0b"])
def test_other_names_are_one_sentence(name):
    with pytest.raises((ValueError, OSError)) as error:
        find(name)
    assert "\n" not in str(error.value)


def test_the_wheel_has_every_recipe():
    """The build backend packs what lies in the package and git does not ignore."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert build == {"targets": {"wheel": {"packages": ["src/calibrant"]}}}  # nothing excluded
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "src/calibrant").rglob("*.toml")]
    ignored = pathspec.GitIgnoreSpec.from_lines((ROOT / ".gitignore").read_text().splitlines())
    shipped = {file for file in files if not ignored.match_file(file)}
    assert shipped == {f"src/calibrant/recipes/{name}.toml" for name in names()}
    assert len(shipped) >= 35
