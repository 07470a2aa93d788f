"""``calibrant fit``, ``apply`` and ``audit --policy``: files in, files out, true sentences, one-line errors."""

import json
import re

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from calibrant import Policy, Predictions
from tests.helpers.errors import facts
from tests.helpers.policies import write


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "val.npz")
    return tmp_path


@pytest.mark.slow
def test_a_share_is_a_number_or_in_percent(here, run):
    plain = ("--target-risk", 0.1, "--confidence", 0.9, "--sets", 0.95)
    percent = ("--target-risk", "10%", "--confidence", "90%", "--sets", "95%")
    policies = [run("fit", "val.npz", *words, "--json")[1] for words in (plain, percent)]
    assert policies[0] == policies[1]
    assert json.loads(policies[0])["target_risk"] == 0.1


SPLIT_COLUMNS = ("--column", "labels=truth", "--column", "probabilities=p_*")


def write_splits(path, *splits, n=900):
    """A table of probabilities with a column ``split``, whose parts repeat no sample but its column ``id``."""
    rng = np.random.default_rng(4)
    names = np.repeat(splits, n)
    honest = 3 * rng.standard_normal((len(names), 3))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    p = np.exp(honest) / np.exp(honest).sum(1, keepdims=True)
    columns = {f"p_{name}": p[:, k] for k, name in enumerate("abc")} | {"truth": np.array(list("abc"))[labels]}
    ids = np.tile(np.arange(n), len(splits))
    pyarrow.csv.write_csv(pyarrow.table(columns | {"split": names, "id": ids}), path)


@pytest.mark.slow
def test_one_file_of_several_splits(here, run):
    """Fitted, judged, applied and watched by split, without a file of its own for each."""
    write_splits("all.csv", "val", "test")
    for words in (("audit", "-o", "none"), ("check", "--require", "ece <= 9%"), ("fit",)):
        code, out, err = run(words[0], "all.csv", *SPLIT_COLUMNS, *words[1:])
        assert (code, out) == (2, "")
        assert re.search(facts("val", "900", "--split"), err)
        assert "--split" in err
    assert run("fit", "all.csv", *SPLIT_COLUMNS, "--split", "test")[0] == 2
    code, out, _ = run("fit", "all.csv", *SPLIT_COLUMNS, "--split", "val", "--json")
    assert (code, json.loads(out)["evidence"]["samples"]) == (0, 900)
    test = ("all.csv", *SPLIT_COLUMNS, "--split", "test")
    code, out, _ = run("apply", "policy.json", *test, "--json")
    assert (code, json.loads(out)["samples"]) == (0, 900)
    assert run("apply", "policy.json", "all.csv", *SPLIT_COLUMNS)[0] == 2
    options = ("--val", "all.csv", "--val-split", "val", "--replicates", 50, "-o", "none", "--json")
    code, out, _ = run("audit", *test, *options)
    document = json.loads(out)
    assert (code, document["models"][0]["samples"], document["warnings"]) == (0, 900, [])
    fit, _, audit = document["next"]["command"].partition(" && ")
    assert "--split val" in fit
    assert "--split test" in audit
    assert run("audit", *test, "--val", "all.csv", "-o", "none")[0] == 2
    assert run("check", *test, "--require", "ece <= 9%")[0] == 0
    code, out, _ = run("monitor", "policy.json", *test, "--json")
    assert (code, json.loads(out)["batches"][0]["samples"]) == (0, 900)


@pytest.mark.slow
def test_repeated_ids_on_the_command_line(here, run):
    write_splits("all.csv", "val", "test")
    pooled = ("all.csv", *SPLIT_COLUMNS, "--column", "split=")
    for words in (("fit", *pooled), ("check", *pooled, "--require", "ece <= 9%")):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert re.search(facts("900", "1,800"), err)
        assert run(*words, "--repeats", "last")[0] == 2
        assert run(*words, "--repeats", "first")[0] == 0
        assert run(*words, "--column", "ids=")[0] == 0
    _, _, err = run("fit", *pooled, "--repeats", "first")
    assert re.search(facts("900", "1,800"), err)
    code, out, err = run("apply", "policy.json", *pooled, "-o", "d.csv")
    assert (code, pyarrow.csv.read_csv("d.csv").num_rows) == (0, 1800)
    assert re.search(facts("900", "1,800"), err)
    code, out, _ = run("audit", *pooled, "--replicates", 50, "-o", "none")
    assert code == 0
    assert re.search(facts("900", "1,800"), out.partition("\n\n")[0])


@pytest.mark.parametrize(("option", "centre"), [("--centre", True), ("--no-centre", False)])
def test_the_reading_of_logit_normalisation_is_chosen(here, run, option, centre):
    code, _, _ = run("fit", "val.npz", "--score", "normalised_max_logit", option)
    assert code == 0
    assert Policy.load("policy.json").score.centre is centre


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.csv", "0,1,2,1\n3,0,4,1\n\n5, 6,0,1\n1,1,1,0\n"),
        ("named.csv", "\ufeff,b,c,a,d\nc,6,0,5,1\na,1,2,0,1\nd,1,1,1,0\nb,0,4,3,1\n"),
        ("rows.json", "[[0, 1, 2, 1], [3, 0.0, 4, 1], [5, 6, 0, 1], [1, 1, 1, 0]]"),
    ],
)
def test_every_form_of_costs_is_the_same_matrix(here, run, name, text):
    (here / name).write_text(text, encoding="utf-8")
    assert run("fit", "val.npz", "--costs", name, "--target-cost", 1, "-q")[0] == 0
    costs = Policy.load("policy.json").promise.costs
    assert costs == ((0, 1, 2, 1), (3, 0, 4, 1), (5, 6, 0, 1), (1, 1, 1, 0))


@pytest.mark.slow
def test_decisions_for_a_spreadsheet(here, run):
    run("fit", "val.npz", "--target-risk", 0.1)
    test = write(here, "test.npz", n=50)
    ids = [f"={j}" for j in range(50)]
    Predictions.from_logits(test.logits, test.labels, ids=ids, class_names=test.class_names).save("named.npz")
    for option, quote in (((), ""), (("--spreadsheet-safe",), "'")):
        assert run("apply", "policy.json", "named.npz", "-o", "d.csv", *option)[0] == 0
        assert pyarrow.csv.read_csv("d.csv")["id"].to_pylist() == [quote + name for name in ids]


@pytest.mark.slow
def test_softmax_values_called_logits_are_said_before_a_policy_is_made_of_them(here, run):
    val = Predictions.open("val.npz")
    softmax = np.exp(val.logits) / np.exp(val.logits).sum(1, keepdims=True)
    np.savez("softmax.npz", logits=softmax, labels=val.labels)
    code, _, err = run("fit", "softmax.npz", "--target-risk", 0.2, "-o", "odd.json")
    assert code == 0
    assert "softmax" in err
    assert "softmax" not in run("fit", "softmax.npz", "--target-risk", 0.2, "-o", "odd.json", "--quiet")[2]
