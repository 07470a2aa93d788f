import numpy as np
import pytest

from calibrant.experiments.papers import Workbench
from calibrant.predictions import Predictions

METHODS = {"ce": {}, "ls, alpha=0.3": {"loss": {"name": "ls", "alpha": 0.3}}}


def test_runs_are_trained_once_and_found_again(bench, monkeypatch):
    first = bench.run("sc_cifar10_resnet20", methods=METHODS)
    assert {method: list(seeds) for method, seeds in first.folders.items()} == {"ce": [0, 1], "ls, alpha=0.3": [0, 1]}
    monkeypatch.setattr("calibrant.experiments.engines.job.train", pytest.fail)
    again = bench.run("sc_cifar10_resnet20", methods=METHODS)
    assert set(again.results) == set(first.results)
    data = first.outputs("ce", 1)
    stored = Predictions.open(first.folders["ce"][1] / "test.npz")
    np.testing.assert_array_equal(data.logits, stored.logits)


def test_finished_runs_are_taken_by_the_method_that_they_are(bench):
    made = bench.run("sc_cifar10_resnet20", methods=METHODS)
    one = made.folders["ls, alpha=0.3"][1]
    for path, expected in ((one.path, {"ls, alpha=0.3": [1]}), (one.path.parents[1], None)):
        taken = Workbench(bench.folder, small=True, runs=[path]).run("sc_cifar10_resnet20", methods=METHODS)
        if expected is not None:
            assert {method: list(seeds) for method, seeds in taken.folders.items()} == expected
        value = taken.results.by_seed(method="ls, alpha=0.3", set="test", posthoc="none", metric="ece")
        assert value[1] == made.results.by_seed(method="ls, alpha=0.3", set="test", posthoc="none", metric="ece")[1]


def test_a_folder_that_is_no_run_is_refused(bench, tmp_path):
    with pytest.raises(ValueError, match="neither the folder of a finished run nor that of a comparison"):
        Workbench(tmp_path, small=True, runs=[tmp_path]).run("sc_cifar10_resnet20", methods=METHODS)
