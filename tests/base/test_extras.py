"""Names that are imported when they are used, and the sentence about an extra that is missing."""

import importlib
import sys

import pytest

from calibrant.base.extras import MissingExtraError, need
from tests.helpers.errors import facts

INIT = """
from typing import TYPE_CHECKING
from calibrant.base.extras import lazy_names
if TYPE_CHECKING:
    from lazy_sample import part
    from lazy_sample.part import ANSWER
    from lazy_sample.wanting import THING
__getattr__, __dir__ = lazy_names(__name__, extras={"lazy_sample.wanting": ("moon", "no_such_package")})
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "lazy_sample"
    folder.mkdir()
    for name, text in {"__init__": INIT, "part": "ANSWER = 42", "wanting": "THING = 1"}.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lazy_sample")
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy_sample"]:
        del sys.modules[name]


def test_a_name_is_imported_when_it_is_used(package):
    assert "lazy_sample.part" not in sys.modules
    assert package.ANSWER == 42
    assert package.part.ANSWER == 42
    assert vars(package)["ANSWER"] == 42
    assert {"ANSWER", "THING", "part"} <= set(dir(package))


def test_a_name_that_is_not_there(package):
    with pytest.raises(AttributeError, match=facts("lazy_sample", "nothing")):
        package.nothing  # noqa: B018


def test_a_name_that_needs_an_extra(package):
    with pytest.raises(MissingExtraError, match=facts("lazy_sample.THING", "no_such_package")):
        package.THING  # noqa: B018
    assert "lazy_sample.wanting" not in sys.modules


def test_all_that_is_missing_is_named():
    need("this", "train", "json")
    with pytest.raises(MissingExtraError, match=facts("no_such_a", "no_such_b")):
        need("this", "cluster", "no_such_a", "json", "no_such_b")


def test_needing_pytorch():
    imports = importlib.import_module("calibrant.base.extras")
    assert imports.needs_torch
    with pytest.raises(AttributeError, match=facts("nothing")):
        imports.nothing  # noqa: B018


def test_needing_scikit_learn(monkeypatch):
    imports = importlib.import_module("calibrant.base.extras")
    assert imports.needs_sklearn
    monkeypatch.setattr(imports, "_is_installed", lambda package: False)
    with pytest.raises(MissingExtraError, match=facts("calibrant[train]")):
        imports.needs_sklearn  # noqa: B018
