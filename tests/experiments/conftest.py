"""A comparison of a few seconds, for tests that damage copies of it."""

import json
import shutil
from pathlib import Path

import pytest

from calibrant.experiments import Contender, Study, compare
from calibrant.experiments.engines import perform
from calibrant.training.recipe import check_recipe
from tests.helpers import digit_studies
from tests.training.conftest import command, refused  # noqa: F401 (fixtures of the tests here, too)

PLAIN = {
    "data": {"layout": "digits"},
    "model": {"name": "mlp", "input_size": [3, 8, 8], "hidden": [8]},
    "optimiser": {"rate": 0.1},
    "training": {"epochs": 1, "batch_size": 512},
}


def study(*labels, plain=PLAIN, **settings):
    methods = {label: Contender(label, {}) for label in labels or ("ce", "ls")}
    return Study(check_recipe(plain, "digits"), methods, settings.pop("seeds", (0,)), **settings)


class Here:
    """An engine that does the runs in this process."""

    def run(self, jobs, stage):
        for job in jobs:
            stage.update(job)
            perform(job, 0, accelerator="cpu")
            stage.end(job)


class Nobody:
    """An engine that must not be asked for anything."""

    def run(self, jobs, stage):
        raise AssertionError(f"{len(jobs)} runs were started")


@pytest.fixture(scope="session")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comparison") / "digits"
    compare(study(), folder, engine=Here())
    return folder


@pytest.fixture
def compared(comparison, tmp_path):
    return Path(shutil.copytree(comparison, tmp_path / "compared"))


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "digits.toml"
    tables = "".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        for name, table in PLAIN.items()
    )
    file.write_text(tables)
    return file


@pytest.fixture(scope="session")
def sweep(tmp_path_factory):
    """Two methods and two seeds, one that fails, and MbLS with a margin that no logits reach; each once."""
    folder = tmp_path_factory.mktemp("compared")
    plan = digit_studies.study(["ce", "ls"], recipe=digit_studies.recipe(training={"epochs": 1, "batch_size": 128}))
    broken = Contender("ce", {"optimiser.rate": 1e6, "optimiser.weight_decay": 1e6})
    never = Contender("mbls", {"margin": 1e6})
    plan = Study(plan.recipe, {**plan.methods, "broken": broken, "mbls": never}, (0, 1))
    events = []
    found = compare(plan, folder, engine=Here(), progress=lambda *event: events.append(event))
    return plan, found, events
