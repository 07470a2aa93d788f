"""A workbench on which every run takes a second: few scenes, one epoch."""

import pytest

from calibrant.experiments.papers import Workbench, small
from tests.experiments.conftest import Here

TINY = {"train": {"samples": 60}, "val": {"samples": 80}, "test": {"samples": 120}}


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    """In small, with two seeds; runs are shared by all tests of a session."""
    patch = pytest.MonkeyPatch()
    patch.setitem(small.EXPERIMENT, "data", small.EXPERIMENT["data"] | {"split_options": TINY})
    patch.setitem(small.EXPERIMENT, "training", {"epochs": 1, "batch_size": 20})
    yield Workbench(tmp_path_factory.mktemp("papers"), small=True, seeds=(0, 1), engine=Here())
    patch.undo()
