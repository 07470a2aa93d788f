"""``calibrant schema``: a schema, a list of them, or one sentence."""

import json

import numpy as np
import pytest

from calibrant import Policy
from calibrant.cli.schema import SCHEMAS, versioned
from tests.helpers.policies import write

jsonschema = pytest.importorskip("jsonschema")


def test_a_schema_is_printed(run):
    code, out, _ = run("schema", "apply")
    assert code == 0
    assert json.loads(out) == SCHEMAS["apply"]


def test_the_list_names_format_and_version(run):
    _, out, _ = run("schema")
    assert ["fit", "calibrant.policy", "1"] in [line.split()[:3] for line in out.splitlines()]
    _, out, _ = run("schema", "--json")
    assert json.loads(out)["audit"] == "urn:calibrant:audit:1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    data = write(folder, "fit.npz", n=900)
    write(folder, "new.npz", n=400, seed=1)
    Policy.fit(data, 0.2, sets=0.9).save(folder / "sets.json")
    Policy.fit(data, 0.2, group="site").save(folder / "group.json")
    Policy.fit(data, 0.001).save(folder / "silent.json")
    Policy.fit(data, 0.3, group="site", by_class=True).save(folder / "class.json")
    Policy.fit(data, promise="recall=a:0.8").save(folder / "recall.json")
    Policy.fit(data, costs=1 - np.eye(4), target_cost=0.4).save(folder / "cost.json")
    np.savez(folder / "unlabelled.npz", logits=data.logits[:50])
    return folder


# What the golden runs, whose documents follow the schemas too, do not have: no labels, no answers, no interval.
CASES = {
    "fit": [
        ["fit.npz", "-o", "out.json", "--group", "site", "--sets", 0.999],
        ["fit.npz", "-o", "out.json", "--promise", "precision=a:0.7", "--promise", "precision=b:80%"],
    ],
    "apply": [
        ["silent.json", "new.npz", "-o", "d.csv"],
        ["recall.json", "unlabelled.npz", "-o", "d.csv"],
        ["sets.json", "unlabelled.npz", "-o", "d.csv"],
    ],
    "monitor": [
        ["silent.json", "unlabelled.npz"],
        *([f"{policy}.json", "new.npz"] for policy in ("sets", "group", "class", "cost")),
    ],
    "holdout": [["new.npz", "-o", "a.npz", "b.csv", "--by", "site"], ["new.npz", "-o", "a.npz", "b.npz"]],
}


@pytest.mark.parametrize(
    ("command", "words"),
    [pytest.param(command, words, id=f"{command} {words}") for command, cases in CASES.items() for words in cases],
)
def test_documents_are_valid(command, words, folder, monkeypatch, run):
    monkeypatch.chdir(folder)
    code, out, err = run(command, *words, "--json")
    assert code in (0, 1, 3), err
    document = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMAS[command]).validate(document)


@pytest.mark.parametrize("command", SCHEMAS)
def test_schemas_are_valid_and_demand_format_and_version(command):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[command])
    validator = jsonschema.Draft202012Validator(SCHEMAS[command])
    assert not validator.is_valid({})
    errors = [error.message for error in validator.iter_errors(versioned(command, {}) | {"version": 2})]
    assert "1 was expected" in errors


def test_documents_without_cases_say_what_they_are():
    for command, entries in (
        ("compare", {"folder": "runs", "runs": 4, "failed": 0}),
        ("predict", {"samples": 3, "file": "p.npz"}),
    ):
        document = versioned(command, entries)
        jsonschema.Draft202012Validator(SCHEMAS[command]).validate(document)
        assert document["format"] == f"calibrant.{command}"


def test_a_wrong_value_is_noticed(folder, monkeypatch, run):
    monkeypatch.chdir(folder)
    _, out, _ = run("apply", "sets.json", "new.npz", "-o", "d.csv", "--json")
    document, validator = json.loads(out), jsonschema.Draft202012Validator(SCHEMAS["apply"])
    for entry, value in (("promise_kept", "perhaps"), ("accepted", -1), ("sets", {}), ("risk", 0.1)):
        assert not validator.is_valid(document | {entry: value}), entry
