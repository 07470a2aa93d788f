"""Drawn objects and a run that has learned to detect them, once for all tests."""

import pytest

from calibrant.detection import Detection, plan_run, read_backbones
from calibrant.training import load, train
from tests.helpers.digit_runs import one_thread
from tests.helpers.drawn_objects import RECIPE, drawn_voc, weights_file


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """A folder with ``voc``, ``recipe.toml`` and ``weights.safetensors``."""
    folder = tmp_path_factory.mktemp("drawn")
    drawn_voc(folder / "voc")
    (folder / "recipe.toml").write_text(RECIPE)
    weights_file(folder / "weights.safetensors")
    return folder


@pytest.fixture
def plan(drawn):
    """The recipe of a run of ``drawn``, with other settings."""

    def make(*settings, seed=0):
        recipe = load(drawn / "recipe.toml", settings)
        (backbone,) = read_backbones([f"plain={drawn / 'weights.safetensors'}"], recipe)["plain"]
        return plan_run(recipe, backbone, seed)

    return make


@pytest.fixture(scope="session")
def learned(drawn):
    """A run of 80 steps, and its result."""
    recipe = load(drawn / "recipe.toml", ["optimiser.name=adam", "optimiser.rate=0.002", "training.epochs=40",
                                          "schedule.every=30", "data.hold_out={count=4}"])  # fmt: skip
    (backbone,) = read_backbones([f"plain={drawn / 'weights.safetensors'}"], recipe)["plain"]
    with one_thread():
        result = train(plan_run(recipe, backbone, 0), drawn / "run", data=str(drawn / "voc"), task=Detection())
    return drawn / "run", result
