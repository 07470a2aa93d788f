"""``calibrant fit --sets`` and ``calibrant apply``: what is printed and written of prediction sets."""

import csv
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from calibrant import Policy
from tests.helpers.errors import facts
from tests.helpers.policies import run, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    write(folder, "fit.npz", n=1500)
    write(folder, "new.npz", n=800, seed=1)
    write(folder, "other.npz", n=800, seed=1, noise=0.3)
    return folder


@pytest.fixture(scope="module")
def policy(folder):
    from calibrant import Predictions

    policy = Policy.fit(Predictions.open(str(folder / "fit.npz")), 0.1, sets=0.95)
    policy.save(folder / "policy.json")
    return policy


def test_fit_says_what_the_sets_promise_and_are(folder, capsys):
    code, out, _ = run(
        capsys, "fit", folder / "fit.npz", "--sets", 0.9, "--set-method", "aps", "-o", folder / "aps.json"
    )
    assert code == 0
    text = " ".join(out.split())
    assert re.search(facts("APS", "90%"), text)
    code, out, _ = run(capsys, "fit", folder / "fit.npz", "--sets", 0.9, "-o", folder / "b.json", "--json")
    document = json.loads(out)["sets"]
    assert document["level"] == 0.9
    assert {row["class"] for row in document["seen"]["classes"]} == {"a", "b", "c", "d"}
    assert document["seen"]["mean_size"]["low"] < document["seen"]["mean_size"]["high"]


def test_apply_writes_the_members_by_name(folder, policy, capsys):
    code, out, _ = run(capsys, "apply", folder / "policy.json", folder / "new.npz", "-o", folder / "d.csv")
    assert code == 0
    assert "95%" in out
    run(capsys, "apply", folder / "policy.json", folder / "new.npz", "-o", folder / "d.parquet")
    run(capsys, "apply", folder / "policy.json", folder / "new.npz", "-o", folder / "d.npz")
    from calibrant import Predictions

    members = policy.predict_sets(Predictions.open(str(folder / "new.npz")))
    expected = [[name for name, inside in zip("abcd", row, strict=True) if inside] for row in members.tolist()]
    with open(folder / "d.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [json.loads(row["set"]) for row in rows] == expected
    assert [int(row["set_size"]) for row in rows] == members.sum(1).tolist()
    assert pq.read_table(folder / "d.parquet")["set"].to_pylist() == expected
    with np.load(folder / "d.npz") as arrays:
        np.testing.assert_array_equal(arrays["set"], members)


def test_apply_as_json_and_its_exit_code(folder, policy, capsys):
    code, out, _ = run(capsys, "apply", folder / "policy.json", folder / "new.npz", "-o", folder / "d.csv", "--json")
    document = json.loads(out)["sets"]
    assert document["hold"] == "no sign"
    assert document["coverage"]["low"] <= 0.95 <= document["coverage"]["high"]
    code, out, _ = run(
        capsys, "apply", folder / "policy.json", folder / "other.npz", "-o", folder / "d.csv", "--json",
        "--fail-on", "broken",
    )  # fmt: skip
    assert code == 1
    assert json.loads(out)["sets"]["hold"] == "no"
