"""Promises on the command line beyond what the golden runs hold: verdicts of every command, prices, sets in files."""

import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from calibrant import Policy, Predictions
from tests.helpers.policies import write

FITS = {
    "class": "--target-risk 0.15 --by-class",
    "recall": "--promise recall=b:0.9",
    "cost": "--costs costs.csv --target-cost 0.3 --abstain-cost 0.5",
    "expected": "--promise expected-risk:0.1",
    "sets": "--target-risk 0.1 --sets 0.95",
    "silent": "--promise precision=b:0.9999",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a policy of every promise, samples that keep it and samples that break it."""
    folder = tmp_path_factory.mktemp("promises")
    write(folder, "val.npz")
    write(folder, "new.npz", n=1500, seed=1)
    write(folder, "broken.npz", seed=2, noise=0.5)
    (folder / "costs.csv").write_text("0,1,1,1\n5,0,1,1\n1,1,0,1\n1,1,1,0\n")
    return folder


@pytest.fixture
def call(made, monkeypatch, run):
    """Run a command line in that folder, on policies that are fitted when they are first asked for."""
    monkeypatch.chdir(made)

    def call(line, *more):
        for name, words in FITS.items():
            if f"{name}.json" in line and not (made / f"{name}.json").exists():
                assert run("fit", "val.npz", *words.split(), "-o", f"{name}.json", "-q")[0] == 0
        return run(*line.split(), *more)

    return call


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"),
    [
        *((f"apply {name}.json new.npz -o d.csv --fail-on broken", 0) for name in FITS),
        *((f"apply {name}.json broken.npz -o d.csv --fail-on broken", 1) for name in FITS if name != "silent"),
        ("monitor class.json new.npz", 0),
        ("monitor class.json broken.npz", 1),
        ("check new.npz --policy recall.json --require policy.recall>=0.8", 0),
        ("check new.npz --policy cost.json --require policy.cost<=0.35", 0),
        ("check broken.npz --policy class.json --require policy.risk<=0.15", 1),
        ("audit broken.npz --policy sets.json -o none --replicates 20 --fail-on broken", 1),
    ],
)
def test_a_broken_promise_is_an_exit_code_of_every_command(call, line, code):
    assert call(line)[0] == code


@pytest.mark.parametrize("name", ["recall", "expected"])
def test_a_watch_says_which_promise_it_does_not_test(call, name):
    assert json.loads(call(f"monitor {name}.json new.npz --json")[1])["untested"]


def test_requirements_are_judged_in_the_terms_of_the_promise(call, made):
    _, out, _ = call("check broken.npz --policy class.json --require policy.risk<=0.15 --json")
    assert {row["group"]: row["status"] for row in json.loads(out)["requirements"]}["class=d"] == "fail"
    _, out, _ = call("check new.npz --policy cost.json --require policy.cost<=0.35 --json")
    new = Predictions.open(made / "new.npz")
    labels, _, accept = Policy.load("cost.json").decide(new)
    paid = np.loadtxt("costs.csv", delimiter=",")[new.labels, labels][accept]
    assert json.loads(out)["requirements"][0]["value"] == pytest.approx(paid.mean())


def test_every_fit_prints_its_price(call):
    _, out, _ = call("fit val.npz --promise recall=b:0.9 -o price.json")
    precision, coverage = Policy.load("price.json").price.measures
    assert (precision.name, coverage.name) == ("precision", "coverage")
    assert f"{precision.part:,} of {precision.total:,}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("asked", "former"),
    [
        (["recall[b] >= 90%"], "--promise recall=b:0.9"),
        (
            ["precision[b] >= 0.9", "--promise", "precision[c] >= 0.8"],
            "--promise precision=b:0.9 --promise precision=c:0.8",
        ),
        (["expected-risk <= 0.1"], "--promise expected-risk:0.1"),
        (["risk <= 10%", "--by-class"], "--target-risk 0.1 --by-class"),
        (["cost <= 0.3", "--costs", "costs.csv"], "--costs costs.csv --target-cost 0.3"),
    ],
)
def test_a_promise_is_written_as_a_requirement(call, asked, former):
    """As of `calibrant check`; the spelling of before asks for the same."""
    assert call("fit val.npz -o asked.json -q --promise", *asked)[0] == 0
    assert call(f"fit val.npz -o former.json -q {former}")[0] == 0
    assert Policy.load("asked.json").document == Policy.load("former.json").document


def test_what_could_be_promised_is_the_next_command_of_an_audit(call):
    document = json.loads(call("audit new.npz --policy silent.json --replicates 20 -o none --json")[1])
    menu = Policy.load("silent.json").threshold.menu
    assert [offer["risk"] for offer in document["policy"]["menu"]] == [offer.risk for offer in menu]
    assert document["policy"]["menu"][0]["options"] == ["--promise", f"precision=b:{1 - menu[0].risk:g}"]
    assert f"precision=b:{1 - menu[0].risk:g}" in document["next"]["command"]


def test_prediction_sets_are_written_with_their_members_by_name(call, made):
    for suffix in (".csv", ".parquet", ".npz"):
        assert call(f"apply sets.json new.npz -o sets{suffix} -q") == (0, "", "")
    members = Policy.load("sets.json").predict_sets(Predictions.open("new.npz"))
    expected = [[name for name, inside in zip("abcd", row, strict=True) if inside] for row in members.tolist()]
    with open("sets.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [json.loads(row["set"]) for row in rows] == expected
    assert [int(row["set_size"]) for row in rows] == members.sum(1).tolist()
    assert pq.read_table("sets.parquet")["set"].to_pylist() == expected
    with np.load("sets.npz") as arrays:
        np.testing.assert_array_equal(arrays["set"], members)
