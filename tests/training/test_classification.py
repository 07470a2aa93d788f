"""Classification as a task: weights of micro-batches and validation. Oracles: counts by hand; NumPy on the logits."""

import numpy as np
import pytest

from calibrant.predictions import Predictions
from calibrant.training import RunFolder, load, load_sets, make_fabric, prepare_run
from calibrant.training.classification import Classification


@pytest.fixture
def run(recipe):
    plan = load(recipe, ["training.accumulate=3", "training.batch_size=50", "training.keep=last"])
    return prepare_run(plan, make_fabric(plan, "cpu", 1, 1), load_sets(plan), Classification())


def test_parts_are_weighted_by_their_samples(run):
    parts = run.task.parts(run, next(iter(run.loader)))
    assert [len(part.inputs) for part in parts] == [17, 17, 16]
    assert [part.weight for part in parts] == [17 / 50, 17 / 50, 16 / 50]


def test_validation_is_that_of_the_predictions(runs):
    """The run's last validation of the model that it keeps, against accuracy and NLL of what it wrote."""
    folder = RunFolder(runs / "finished")
    predictions = Predictions.open(folder / "val.npz")
    logits, labels = np.asarray(predictions.logits, float), np.asarray(predictions.labels)
    accuracy = (logits.argmax(1) == labels).mean()
    best = max(entry["val_accuracy"] for entry in folder.result()["history"])
    assert best == pytest.approx(accuracy)
