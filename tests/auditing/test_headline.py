"""The headline answers what was asked: which model is better, whether a promise is kept, what a policy does."""

import json
import re
import shlex
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from calibrant import Policy, Predictions, audit
from calibrant.auditing.headline import CommandWords, PythonWords, next_step
from calibrant.metrics import nll
from tests.helpers.audits import drawn
from tests.helpers.errors import facts
from tests.helpers.policies import write

QUICK = ("--replicates", 20, "-o", "none")


@pytest.mark.slow
@pytest.mark.parametrize("order", [("over", "honest"), ("honest", "over")])
def test_of_two_files_the_better_is_named(order):
    z, y = drawn(3000, 5, 1.0, 3)
    models = {"honest": Predictions.from_logits(z, y), "over": Predictions.from_logits(3 * z, y)}
    result = audit({name: models[name] for name in order}, replicates=100)
    assert result.verdict.startswith("honest ")
    assert result.document["verdict"]["level"] == "good"


@pytest.mark.slow
def test_two_files_that_cannot_be_told_apart_or_compared():
    z, y = drawn(2000, 5, 1.0, 4)
    rng = np.random.default_rng(0)
    alike = z + 0.01 * rng.standard_normal(z.shape)
    result = audit({"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(alike, y)}, replicates=100)
    assert {model["verdict"]["level"] for model in result.models} == {"good"}
    result = audit({"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(z[:900], y[:900])}, replicates=50)
    assert not result.document["comparisons"]


def test_more_accurate_but_worse_calibrated_is_not_better():
    z, y = drawn(3000, 5, 1.0, 5)
    rng = np.random.default_rng(1)
    guess = np.where(rng.random(3000) < 0.3, y, z.argmax(1))  # right more often, and much too sure
    sure = 9.0 * np.eye(5)[guess]
    result = audit({"a": Predictions.from_logits(z, y), "b": Predictions.from_logits(sure, y)}, replicates=100)
    rows = {row["name"]: row for row in result.document["comparisons"][0]["rows"]}
    assert rows["ece_15"]["low"] > 0 < rows["accuracy"]["low"], "b has a larger error, and is right more often"
    values = rows["ece_15"]["first"], rows["ece_15"]["second"], rows["accuracy"]["first"], rows["accuracy"]["second"]
    assert re.search(facts(*(f"{100 * value:.2f}%" for value in values)), result.verdict)


@pytest.mark.slow
def test_a_policy_is_the_headline_and_the_repaired_model_with_it():
    z, y = drawn(9000, 5, 3.0, 6)
    policy = Policy.fit(Predictions.from_logits(z, y), 0.3)
    result = audit(Predictions.from_logits(*drawn(4000, 5, 3.0, 7)), policy=policy, replicates=100)
    assert result.verdict.startswith(result.document["policy"]["title"])
    assert "30%" in result.verdict
    assert "ECE" in result.verdict


@pytest.mark.slow
def test_the_headline_tells_what_is_promised_where_that_is_no_share_of_wrong_answers():
    val, test = (Predictions.from_logits(*drawn(4000, 5, 3.0, seed)) for seed in (6, 7))
    policy = Policy.fit(val, promise="recall=2:0.8")
    labels, _, accept = policy.decide(test.logits)
    assert (labels[accept] == 2).all()
    own = test.labels == 2
    verdict = audit(test, policy=policy, replicates=100).verdict
    assert f"{(own & accept).sum()} of {own.sum()}" in verdict


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    z, y = drawn(600, 3, 2.0, 0)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    lines = ["a,b,c,my truth", *(",".join(map(repr, [*row.tolist(), int(k)])) for row, k in zip(p, y, strict=True))]
    (tmp_path / "my predictions.csv").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.slow
def test_the_next_command_has_the_options_of_the_audit_and_runs(table, run):
    reading = ["--column", "labels=my truth", "--column", "probabilities=a,b,c"]
    code, out, err = run("audit", "my predictions.csv", *reading, "--json", "--replicates", 50)
    assert code == 0, err
    command = json.loads(out)["next"]["command"]
    parts = ["my_predictions_fit.npz", "my_predictions_judge.npz"]
    first, second, third = (shlex.split(line) for line in command.split(" && "))
    assert first == ["calibrant", "holdout", "my predictions.csv", *reading, "-o", *parts]
    assert command in (table / "report.html").read_text(encoding="utf-8").replace("&#x27;", "'").replace("&amp;", "&")
    code, printed, _ = run("audit", "my predictions.csv", *reading, "--replicates", 50, "-o", "none")
    assert printed.rstrip().endswith(command)
    for words in (first, second, [*third, "--replicates", 20]):
        code, out, err = run(*words[1:])
        assert code == 0, err


FACTS = {"holds": "logits", "kind": "classification", "split": None, "level": "poor", "has_val": False}
WORDS = CommandWords({"m": "m.npz"}, policy="p.json", reading=["--segmentation"])


def step_of(words=WORDS, policy=None, **facts):
    if policy is not None:
        policy = {"menu": [], "fitted_on_these": False} | policy
    return next_step(words, "m", **FACTS | facts, policy=policy)


def test_nothing_is_fitted_on_the_audited_file():
    words = replace(WORDS, val="v.npz")
    policies = [None, *({"kept": kept} for kept in ("yes", "no", "no sign", "unclear", "nothing", "unknown"))]
    policies += [{"kept": "nothing", "menu": [{"risk": 0.15, "coverage": 0.1, "options": ["--target-risk", "0.15"]}]}]
    for policy in (*policies, *(part | {"fitted_on_these": True} for part in policies if part)):
        for split in (None, "train", "val", "test"):
            for has_val in (False, True):
                step = step_of(words, policy, split=split, has_val=has_val)
                assert "fit m.npz" not in step["text"] + step["command"]


DIVIDED = (
    "calibrant holdout m.npz --segmentation -o m_fit.npz m_judge.npz && calibrant fit m_fit.npz"
    " && calibrant audit m_judge.npz --policy policy.json"
)
SILENT = {"menu": [{"risk": 0.15, "coverage": 0.1, "options": ["--target-risk", "0.15"]}], "kept": "nothing"}
WITH_VAL = {"words": CommandWords({"m": "m.npz"}, val="v.npz"), "has_val": True}


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ({}, DIVIDED),
        ({"policy": {"kept": "yes"}}, "calibrant apply p.json m.npz --segmentation"),
        ({"policy": {"kept": "no"}}, DIVIDED),
        ({"policy": SILENT}, DIVIDED.replace("m_fit.npz &&", "m_fit.npz --target-risk 0.15 &&")),
        ({"policy": {"kept": "yes", "fitted_on_these": True}}, "calibrant audit TEST --segmentation --policy p.json"),
        ({"holds": "confidence"}, None),
        ({"kind": "tokens"}, None),
        ({"split": "test"}, "calibrant fit VALIDATION --segmentation"),
        (WITH_VAL, "calibrant fit v.npz && calibrant audit m.npz --policy policy.json"),
        (
            WITH_VAL | {"policy": SILENT},
            "calibrant fit v.npz --target-risk 0.15 && calibrant audit m.npz --policy policy.json",
        ),
    ],
)
def test_what_comes_next_depends_on_what_there_is(given, command):
    assert step_of(**given)["command"] == command


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("", "target_risk=0.05"),
        ("--target-risk 0.1", "target_risk=0.1"),
        ("--costs COSTS --target-cost 0.4", "costs=costs, target_cost=0.4"),
        ("--by-class --target-risk 0.1", "by_class=True, target_risk=0.1"),
        ("--promise precision=a:0.9 --promise precision=b:0.8", "promise=['precision=a:0.9', 'precision=b:0.8']"),
        ("--promise recall=1:0.7 --group x", "promise='recall=1:0.7', group='x'"),
    ],
)
def test_options_are_arguments_in_python(options, arguments):
    assert PythonWords().fit("val", *options.split()) == f"Policy.fit(val, {arguments})"


@pytest.mark.parametrize(
    ("file", "stem"), [("a/shards/*.parquet", "predictions"), ("s3://bucket/x.parquet", "x"), ("m.csv.gz", "m")]
)
def test_the_parts_of_a_divided_file_are_files_of_this_folder(file, stem):
    words = shlex.split(CommandWords({}).divide(file))
    assert words[words.index("-o") + 1] == f"{stem}_fit.npz"


@pytest.mark.slow
def test_the_held_out_file_of_one_model_is_not_that_of_another(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    z, y = drawn(2000, 5, 1.0, 4)
    Predictions.from_logits(z, y).save("better.npz")
    Predictions.from_logits(3 * z, y).save("worse.npz")
    Predictions.from_logits(*drawn(1000, 5, 3.0, 5)).save("val_of_worse.npz")
    words = ("worse.npz", "better.npz", "--val", "val_of_worse.npz", "--replicates", 50, "-o", "none", "--json")
    step = json.loads(run("audit", *words)[1])["next"]
    assert "better.npz" in step["command"]
    assert "val_of_worse" not in step["command"]


def test_samples_that_are_held_out_and_audited_are_said():
    z, y = drawn(900, 4, 2.0, 1)
    test = Predictions.from_logits(z[:500], y[:500], ids=np.arange(500))
    overlapping = Predictions.from_logits(z[400:], y[400:], ids=np.arange(400, 900))
    (warning,) = audit(test, val=overlapping, replicates=20).document["warnings"]
    assert "100 of 500" in warning
    apart = Predictions.from_logits(z[500:], y[500:], ids=np.arange(400))  # row numbers, of other samples
    assert audit(test, val=apart, replicates=20).document["warnings"] == []
    unnamed = Predictions.from_logits(z[400:], y[400:])
    assert audit(test, val=unnamed, replicates=20).document["warnings"] == []


@pytest.mark.slow
def test_in_python_it_is_lines_of_python_that_run():
    predictions, val = (Predictions.from_logits(*drawn(600, 4, 2.0, seed)) for seed in (1, 2))
    twice = Predictions.from_logits(*drawn(600, 4, 2.0, 1), ids=np.arange(600) % 500)  # which a fit refuses as it is
    for given, options in ((twice, {}), (predictions, {}), (predictions, {"val": val})):
        step = audit(given, replicates=20, **options).document["next"]
        names = {"predictions": given, "val": val, "Policy": Policy, "audit": partial(audit, replicates=20)}
        exec(step["command"], names)
        assert isinstance(names["policy"], Policy)
    assert "Policy.fit(predictions" not in step["command"]


@pytest.mark.slow
def test_probabilities_are_repaired_by_the_policys_calibrator():
    z, labels = drawn(1500, 3, 2.5, 8)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    data = Predictions.from_probabilities(p, labels)
    policy = Policy.fit(data, 0.2, calibrator="temperature")
    found = audit(data, policy=policy, replicates=20)
    assert [model["holds"] for model in found.models] == ["probabilities", "probabilities"]
    (value,) = (row["value"] for row in found.models[1]["metrics"] if row["name"] == "nll")
    assert value == pytest.approx(nll(np.log(p) / policy.calibrator.temperature_, labels))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "val.npz")
    return tmp_path


@pytest.mark.slow
def test_the_headline_says_that_the_policy_was_fitted_on_these_samples(here):
    val = Predictions.open("val.npz")
    policy = Policy.fit(val, 0.2, sets=0.9)
    result = audit(val, policy=policy, replicates=50)
    assert result.document["verdict"]["level"] == "unknown"
    part = result.document["policy"]
    assert (part["fitted_on_these"], part["level"], part["sets"]["level"]) == (True, "info", "info")
    silent = audit(val, policy=Policy.fit(val, 0.0001), replicates=50)
    assert silent.document["policy"]["fitted_on_these"]
    assert silent.document["verdict"]["level"] == "poor"
    ids = np.arange(len(val)) % 2000
    twice = Predictions.from_logits(val.logits, val.labels, ids=ids, class_names=val.class_names)
    of_first = Policy.fit(twice, 0.2, repeats="first")
    assert audit(twice, policy=of_first, replicates=50).document["policy"]["fitted_on_these"]
    other = audit(write(here, "test.npz", seed=6), policy=policy, replicates=50)
    assert not other.document["policy"]["fitted_on_these"]
