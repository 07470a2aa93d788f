"""``calibrant fit``, ``apply`` and ``audit --policy``: files in, files out, true sentences, one-line errors."""

import json
import re

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from calibrant import Policy, Predictions
from tests.helpers.errors import facts
from tests.helpers.policies import run, write


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "val.npz")
    return tmp_path


def test_from_a_file_to_decisions(here, capsys):
    code, out, err = run(capsys, "fit", "val.npz", "--target-risk", 0.1)
    assert code == 0
    assert "10%" in out
    assert "policy.json" in err
    test = write(here, "test.parquet", seed=1)
    code, out, _ = run(capsys, "apply", "policy.json", "test.parquet")
    assert code == 0
    table = pyarrow.parquet.read_table("decisions.parquet")
    assert table.column_names == ["id", "label", "class_name", "confidence", "accept"]
    labels, confidence, accept = Policy.load("policy.json").decide(test.logits)
    assert table["label"].to_numpy().tolist() == labels.tolist()
    assert np.allclose(table["confidence"].to_numpy(), confidence)
    assert table["accept"].to_numpy(zero_copy_only=False).tolist() == accept.tolist()
    assert table["class_name"].to_pylist()[:3] == ["abcd"[label] for label in labels[:3]]
    wrong = (labels != test.labels)[accept]
    assert f"{wrong.mean():.2%}" in out


def test_a_share_is_a_number_or_in_percent(here, capsys):
    plain = ("--target-risk", 0.1, "--confidence", 0.9, "--sets", 0.95)
    percent = ("--target-risk", "10%", "--confidence", "90%", "--sets", "95%")
    policies = [run(capsys, "fit", "val.npz", *words, "--json")[1] for words in (plain, percent)]
    assert policies[0] == policies[1]
    assert json.loads(policies[0])["target_risk"] == 0.1


def test_a_promise_that_comes_with_a_coverage_is_checked_too(here, capsys):
    run(capsys, "fit", "val.npz", "--target-coverage", 0.5)
    write(here, "shifted.npz", seed=3, noise=0.4)
    _, out, _ = run(capsys, "apply", "policy.json", "shifted.npz", "--json")
    found = json.loads(out)
    assert found["promise_kept"] == "no"
    assert found["promised_risk"] == Policy.load("policy.json").threshold.risk.high


def test_the_group_that_breaks_the_promise_is_named(here, capsys):
    run(capsys, "fit", "val.npz", "--target-risk", 0.15, "--group", "site")
    rng = np.random.default_rng(0)
    z, y = honest(3000)
    site = rng.choice(["north", "south", "mars"], 3000)
    y = np.where((site == "south") & (rng.random(3000) < 0.4), (y + 1) % 4, y)
    Predictions.from_logits(2 * z, y, groups={"site": site}).save("moved.npz")
    _, out, _ = run(capsys, "apply", "policy.json", "moved.npz")
    words = " ".join(out.split())
    assert "south" in words
    assert "mars" in words
    _, out, _ = run(capsys, "audit", "moved.npz", "--policy", "policy.json", "-o", "none", "--replicates", 20)
    assert "mars" in out


def honest(n):
    rng = np.random.default_rng(1)
    z = 3 * rng.standard_normal((n, 4))
    return z, (z + rng.gumbel(size=z.shape)).argmax(1)


def test_labels_may_be_missing(here, capsys):
    run(capsys, "fit", "val.npz", "--target-risk", 0.1)
    np.savez("new.npz", logits=np.random.default_rng(5).standard_normal((50, 4)))
    code, out, _ = run(capsys, "apply", "policy.json", "new.npz")
    assert code == 0
    assert "labels" in out
    assert pyarrow.parquet.read_table("decisions.parquet").num_rows == 50


def test_masks(here, capsys):
    rng = np.random.default_rng(9)
    honest = 3 * rng.standard_normal((500, 3, 4, 5))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(1)
    labels[:, 0] = 255
    Predictions.from_logits(2 * honest, labels, kind="segmentation", ignore_index=255).save("masks.npz")
    code, out, _ = run(capsys, "fit", "masks.npz", "--target-risk", 0.12)
    assert code == 0
    assert "pixels" in out
    code, _, err = run(capsys, "apply", "policy.json", "masks.npz", "-o", "d.parquet")
    assert (code, ".npz" in err) == (2, True)
    assert not (here / "d.parquet").exists()
    code, told, _ = run(capsys, "apply", "policy.json", "masks.npz", "--json")
    with np.load("decisions.npz") as found:
        assert found["accept"].shape == (500, 4, 5)
        answered = (found["accept"] & (labels != 255)).sum((1, 2))
    whole, nothing = int((answered == 15).sum()), int((answered == 0).sum())
    images = {"whole": whole, "in_part": 500 - whole - nothing, "unanswered": nothing}
    outcome = json.loads(told)
    assert (outcome["images"], outcome["accepted"]) == (images, int(answered.sum()))
    assert 0 < images["in_part"] < 500
    code, out, _ = run(capsys, "audit", "masks.npz", "--policy", "policy.json", "-o", "none", "--replicates", 20)
    assert "Policy:" in out
    assert all(f"{number} " in " ".join(out.split()) for number in images.values())
    assert f"{answered.sum():,}" in out


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


def test_one_file_of_several_splits(here, capsys):
    """Fitted, judged, applied and watched by split, without a file of its own for each."""
    write_splits("all.csv", "val", "test")
    for words in (("audit", "-o", "none"), ("check", "--require", "ece <= 9%"), ("fit",)):
        code, out, err = run(capsys, words[0], "all.csv", *SPLIT_COLUMNS, *words[1:])
        assert (code, out) == (2, "")
        assert re.search(facts("val", "900", "--split"), err)
        assert "--split" in err
    assert run(capsys, "fit", "all.csv", *SPLIT_COLUMNS, "--split", "test")[0] == 2
    code, out, _ = run(capsys, "fit", "all.csv", *SPLIT_COLUMNS, "--split", "val", "--json")
    assert (code, json.loads(out)["evidence"]["samples"]) == (0, 900)
    test = ("all.csv", *SPLIT_COLUMNS, "--split", "test")
    code, out, _ = run(capsys, "apply", "policy.json", *test, "--json")
    assert (code, json.loads(out)["samples"]) == (0, 900)
    assert run(capsys, "apply", "policy.json", "all.csv", *SPLIT_COLUMNS)[0] == 2
    options = ("--val", "all.csv", "--val-split", "val", "--replicates", 50, "-o", "none", "--json")
    code, out, _ = run(capsys, "audit", *test, *options)
    document = json.loads(out)
    assert (code, document["models"][0]["samples"], document["warnings"]) == (0, 900, [])
    fit, _, audit = document["next"]["command"].partition(" && ")
    assert "--split val" in fit
    assert "--split test" in audit
    assert run(capsys, "audit", *test, "--val", "all.csv", "-o", "none")[0] == 2
    assert run(capsys, "check", *test, "--require", "ece <= 9%")[0] == 0
    code, out, _ = run(capsys, "monitor", "policy.json", *test, "--json")
    assert (code, json.loads(out)["batches"][0]["samples"]) == (0, 900)


def test_repeated_ids_on_the_command_line(here, capsys):
    write_splits("all.csv", "val", "test")
    pooled = ("all.csv", *SPLIT_COLUMNS, "--column", "split=")
    for words in (("fit", *pooled), ("check", *pooled, "--require", "ece <= 9%")):
        code, out, err = run(capsys, *words)
        assert (code, out) == (2, "")
        assert re.search(facts("900", "1,800"), err)
        assert run(capsys, *words, "--repeats", "last")[0] == 2
        assert run(capsys, *words, "--repeats", "first")[0] == 0
        assert run(capsys, *words, "--column", "ids=")[0] == 0
    _, _, err = run(capsys, "fit", *pooled, "--repeats", "first")
    assert re.search(facts("900", "1,800"), err)
    code, out, err = run(capsys, "apply", "policy.json", *pooled, "-o", "d.csv")
    assert (code, pyarrow.csv.read_csv("d.csv").num_rows) == (0, 1800)
    assert re.search(facts("900", "1,800"), err)
    code, out, _ = run(capsys, "audit", *pooled, "--replicates", 50, "-o", "none")
    assert code == 0
    assert re.search(facts("900", "1,800"), out.partition("\n\n")[0])


@pytest.mark.parametrize(("option", "centre"), [("--centre", True), ("--no-centre", False)])
def test_the_reading_of_logit_normalisation_is_chosen(here, capsys, option, centre):
    code, _, _ = run(capsys, "fit", "val.npz", "--score", "normalised_max_logit", option)
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
def test_every_form_of_costs_is_the_same_matrix(here, capsys, name, text):
    (here / name).write_text(text, encoding="utf-8")
    assert run(capsys, "fit", "val.npz", "--costs", name, "--target-cost", 1, "-q")[0] == 0
    costs = Policy.load("policy.json").promise.costs
    assert costs == ((0, 1, 2, 1), (3, 0, 4, 1), (5, 6, 0, 1), (1, 1, 1, 0))


def test_decisions_for_a_spreadsheet(here, capsys):
    run(capsys, "fit", "val.npz", "--target-risk", 0.1)
    test = write(here, "test.npz", n=50)
    ids = [f"={j}" for j in range(50)]
    Predictions.from_logits(test.logits, test.labels, ids=ids, class_names=test.class_names).save("named.npz")
    for option, quote in (((), ""), (("--spreadsheet-safe",), "'")):
        assert run(capsys, "apply", "policy.json", "named.npz", "-o", "d.csv", *option)[0] == 0
        assert pyarrow.csv.read_csv("d.csv")["id"].to_pylist() == [quote + name for name in ids]


def test_softmax_values_called_logits_are_said_before_a_policy_is_made_of_them(here, capsys):
    val = Predictions.open("val.npz")
    softmax = np.exp(val.logits) / np.exp(val.logits).sum(1, keepdims=True)
    np.savez("softmax.npz", logits=softmax, labels=val.labels)
    code, _, err = run(capsys, "fit", "softmax.npz", "--target-risk", 0.2, "-o", "odd.json")
    assert code == 0
    assert "softmax" in err
    assert "softmax" not in run(capsys, "fit", "softmax.npz", "--target-risk", 0.2, "-o", "odd.json", "--quiet")[2]
