"""A workbench on which every run takes a second: few scenes, one epoch."""

import pytest

from calibrant.experiments.papers import Workbench, workbench
from calibrant.experiments.papers.workbench import EXPERIMENT
from tests.experiments.conftest import Here

TINY = {"train": {"samples": 60}, "val": {"samples": 80}, "test": {"samples": 120}}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """The folder of the runs, which all tests of a session share."""
    return tmp_path_factory.mktemp("papers")


@pytest.fixture
def bench(runs, monkeypatch):
    """In small, with two seeds."""
    tiny = {"data": EXPERIMENT["data"] | {"split_options": TINY}, "training": {"epochs": 1, "batch_size": 20}}
    monkeypatch.setattr(workbench, "EXPERIMENT", EXPERIMENT | tiny)
    return Workbench(runs, small=True, seeds=(0, 1), engine=Here())


#: Methods that items ask for by name; a recipe of a paper has them with the paper's values.
RECIPE = """
paper = "Tests"
[data]
layout = "scenes"
[model]
name = "mlp"
[methods]
hard = { label = "Hard Label" }
ce = { label = "CE, R-1" }
ls = { label = "LS, R-1", loss = { name = "ls", alpha = 0.1 } }
ecp = { label = "CP", loss = { name = "ecp" } }
focal = { label = "FL, R-1", loss = { name = "focal" } }
flsd = { label = "FLSD, R-1", loss = { name = "flsd" } }
mbls = { label = "Ours, R-1", loss = { name = "mbls", margin = 1.0 } }
lr = { label = "LR", loss = { name = "lr" } }
als = { label = "A. L. S.", targets = { name = "adaptive" } }
acls = { label = "ACLS", loss = { name = "acls", margin = 0.5 } }
"acls, ranking" = { loss = { name = "acls", margin = 0.5, indicator = "ranking" } }
"acls, lambda1=0, lambda2=0.01" = { loss = { name = "acls", lambda1 = 0.0, lambda2 = 0.01 } }
"ce on 85%" = { data = { hold_out = { fraction = 0.15 } } }
"ce + temperature" = { label = "CE, T opt.", of = "ce on 85%", repair = "temperature-lr" }
[search]
ls = { alpha = [0.1, 0.4] }
ecp = { strength = [0.1] }
focal = { gamma = [1.0] }
lr = { alpha = [0.2] }
[tables.1]
rows = ["hard", "als"]
columns = ["accuracy@context", "mean_confidence@context"]
[tables.A]
rows = ["acls, lambda1=0, lambda2=0.01", "acls"]
columns = ["accuracy@val", "ece@val"]
[tables.T]
rows = ["ce", "ls"]
columns = ["ece", "ece + temperature-mbls"]
[tables.R]
rows = [
  "ce", "ls, tuned for accuracy", "ecp, tuned for accuracy", "focal, tuned for accuracy", "lr, tuned for accuracy",
  "ce + temperature", "ls, tuned for ece", "ecp, tuned for ece", "focal, tuned for ece", "lr, tuned for ece",
]
columns = ["accuracy", "ece"]
[[expected]]
method = "acls"
where = "val"
values = { accuracy = 0.5, ece = 0.0131 }
"""


@pytest.fixture(scope="session")
def recipe(tmp_path_factory):
    """The name of a recipe with every method that items ask for."""
    file = tmp_path_factory.mktemp("recipe") / "paper.toml"
    file.write_text(RECIPE)
    return str(file)
