"""Numbers of a run by other means: scikit-learn and PyTorch's own functions."""

import itertools
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score

from calibrant import Predictions
from calibrant.data import normalised
from calibrant.experiments import Contender, Study, compare
from calibrant.experiments.comparison_page import all_tables
from calibrant.experiments.evaluation import MORE_NUMBERS, Flat, measure, more_numbers, numbers
from calibrant.experiments.tables.cells import Column
from calibrant.metrics import RISKS, aurc
from calibrant.training import checkpoints, load_sets
from calibrant.training.datasets import evaluation_pipeline
from calibrant.training.run import make_model
from tests.experiments.conftest import Here
from tests.helpers import digit_studies
from tests.helpers.errors import facts
from tests.reference import metrics as reference


@pytest.mark.slow
def test_numbers_are_those_of_the_predictions(sweep):
    """By other means: scikit-learn and PyTorch's own functions, folds by hand."""
    _, found, _ = sweep
    run = found.finals[0]
    place = found.run_folder(run)
    data = Predictions.open(place / "test.npz")
    logits, labels = torch.tensor(data.logits).double(), torch.tensor(data.labels)

    def value(metric, posthoc="none"):
        mine = [n for n in numbers(place.path) if (n.set, n.posthoc, n.metric) == ("test", posthoc, metric)]
        assert len(mine) == 1
        return mine[0].value

    assert value("accuracy") == pytest.approx(accuracy_score(data.labels, data.logits.argmax(1)))
    assert value("nll") == pytest.approx(float(F.cross_entropy(logits, labels)), abs=1e-6)
    assert value("aurc") == pytest.approx(
        aurc(logits.softmax(1).amax(1).numpy(), (logits.argmax(1) == labels).numpy()), abs=2e-3
    )
    fold = np.arange(len(labels)) % 5
    losses = torch.empty(len(labels), dtype=torch.float64)
    for k in range(5):  # the temperature of each fold is fitted on the others
        rest, held = torch.from_numpy(fold != k), torch.from_numpy(fold == k)
        grid_ = torch.linspace(0.2, 5.0, 2000, dtype=torch.float64)
        best = min(grid_, key=lambda t: float(F.cross_entropy(logits[rest] / t, labels[rest])))
        losses[held] = F.cross_entropy(logits[held] / best, labels[held], reduction="none")
    assert value("nll", "temperature") == pytest.approx(float(losses.mean()), abs=1e-4)
    assert value("accuracy", "temperature") == value("accuracy")


@pytest.mark.parametrize("centre", [True, False])
def test_one_reading_of_logit_normalisation_can_be_asked_for(sweep, centre):
    _, found, _ = sweep
    folder = found.run_folder(found.finals[0])
    data = Predictions.open(folder / "test.npz")
    z, labels = np.asarray(data.logits, np.float64), np.asarray(data.labels)
    v = z - z.mean(1, keepdims=True) if centre else z
    right, fold, powers = z.argmax(1) == labels, np.arange(len(labels)) % 5, []
    sure = np.asarray(torch.tensor(z).softmax(1).amax(1))
    for k in range(5):  # p of each fold is chosen on the others
        rest = fold != k
        scores = {p: v.max(1) / (np.abs(v) ** p).sum(1) ** (1 / p) for p in range(1, 11)}
        by_power = {p: aurc(score[rest], right[rest]) for p, score in scores.items()}
        best = min(by_power, key=by_power.get)
        powers += [best] if by_power[best] < aurc(sure[rest], right[rest]) else []
    rows = [n for n in numbers(folder.path, centre) if (n.set, n.posthoc, n.metric) == ("test", "logit-norm", "aurc")]
    expected = np.mean(powers) * (1 if centre else -1) if powers else np.nan
    assert rows[0].parameter == pytest.approx(expected, nan_ok=True)
    plain = [[n for n in numbers(folder.path, c) if n.posthoc != "logit-norm"] for c in (centre, None)]
    assert str(plain[0]) == str(plain[1]), "nothing else changes"


def test_a_method_with_an_output_for_abstaining_is_ranked_by_it_too(tmp_path):
    """The network's last output by its weights, on all test samples at once."""
    methods = {"dg": Contender("deep_gamblers", {"payoff": 9.0}), "ce": Contender("ce", {})}
    plan = digit_studies.recipe(training={"epochs": 2, "batch_size": 128})
    found = compare(Study(plan, methods, (0,)), tmp_path, engine=Here())
    run = next(run for run in found.finals if run.method == "dg")
    folder = found.run_folder(run)
    recipe = folder.recipe()
    network = make_model(recipe, 10, None, filled=True)
    checkpoints.restore_network(network, folder / "model.safetensors")
    pipeline = evaluation_pipeline(recipe, load_sets(recipe).test)
    images = normalised(pipeline.batch(range(len(pipeline))).inputs, *recipe.data.normalisation, torch.float32)
    with torch.no_grad():
        logits = network.eval()(images).double()
    correct = logits[:, :10].argmax(1) == torch.tensor(pipeline.dataset.labels)
    values = {n.metric: n.value for n in numbers(folder.path) if (n.set, n.posthoc) == ("test", "abstention")}
    assert set(values) == {"aurc", "e_aurc", "augrc", *(f"coverage_at_risk_{risk:g}" for risk in RISKS)}
    trust = 1 - logits.softmax(1)[:, 10].numpy()
    assert values["aurc"] == pytest.approx(aurc(trust, correct.numpy()), rel=1e-4)
    assert [n for n in numbers(folder.path) if (n.set, n.posthoc, n.metric) == ("test", "none", "aurc")]
    table = all_tables(found)["repairs"]
    (column,) = [k for k, column in enumerate(table.columns) if column.posthoc == "abstention"]
    cells = {line.method: line.cells[column] for line in table.rows}
    assert cells["dg"].mean == pytest.approx(values["aurc"])
    assert cells["ce"] is None


@pytest.fixture
def outputs():
    random = np.random.default_rng(3)
    logits = random.normal(0, 2, (301, 7))
    return Flat(logits, random.integers(0, 7, 301), np.arange(301), random.uniform(0, 1, 301))


def test_bins_in_a_name_are_the_bins(outputs):
    probability = np.exp(outputs.logits) / np.exp(outputs.logits).sum(1, keepdims=True)
    confidence, correct = probability.max(1), probability.argmax(1) == outputs.labels
    for bins in (4, 23):
        edges = np.linspace(0, 1, bins + 1)
        gaps = [
            abs(np.sum(confidence[inside] - correct[inside]))
            for low, high in itertools.pairwise(edges)
            if (inside := (confidence > low) & (confidence <= high)).any()
        ]
        assert measure(f"ece_{bins}", outputs) == pytest.approx(sum(gaps) / 301, abs=1e-12)
    assert measure("objectness_deviation", outputs) == pytest.approx(np.abs(confidence - outputs.objectness).mean())


def test_pycalib_and_equal_counts_are_those_of_the_reference(outputs):
    probability = np.exp(outputs.logits) / np.exp(outputs.logits).sum(1, keepdims=True)
    confidence, correct = probability.max(1), probability.argmax(1) == outputs.labels
    for bins in (15, 20):
        expected = reference.ece(confidence, correct, bins=bins, convention="pycalib", classes=7)
        assert measure(f"pycalib_ece_{bins}", outputs) == pytest.approx(expected, abs=1e-9)
        expected = reference.mce(confidence, correct, bins=bins, convention="pycalib", classes=7)
        assert measure(f"pycalib_mce_{bins}", outputs) == pytest.approx(expected, abs=1e-9)
        assert measure(f"aece_{bins}", outputs) == pytest.approx(
            reference.aece(confidence, correct, bins=bins), abs=1e-9
        )


def test_numbers_beyond_those_of_a_run_are_computed_once(compared, monkeypatch):
    folder = min((compared / "runs").iterdir())
    columns = [Column("ece_7"), Column("ece", posthoc="temperature-mbls"), Column("ece"), Column("ece_7", "nowhere")]
    first = more_numbers(folder, columns)
    names = {(number.set, number.posthoc, number.metric) for number in first}
    assert names == {("test", "none", "ece_7"), ("test", "temperature-mbls", "ece")}
    (scaled,) = [n for n in first if n.posthoc != "none"]
    assert 0.1 <= scaled.parameter <= 10  # the mean over the folds of a cross-fit
    monkeypatch.setattr("calibrant.experiments.evaluation.measure", pytest.fail)
    assert more_numbers(folder, columns) == first
    (folder / MORE_NUMBERS).write_text(json.dumps(["nonsense"]))
    with pytest.raises(ValueError, match=facts(MORE_NUMBERS)):
        more_numbers(folder, columns)
