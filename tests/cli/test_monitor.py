"""``calibrant monitor``: exit codes, what is printed, the state over several runs."""

import json
import re

import numpy as np
import pytest

from calibrant import Policy, Predictions
from tests.helpers.errors import facts
from tests.helpers.watches import draw


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    Policy.fit(draw(2000, 0), 0.1).save(folder / "policy.json")
    for k in (1, 2):
        draw(500, k).save(folder / f"week{k}.parquet")
    draw(900, 3, noise=0.2).save(folder / "bad.parquet")
    return folder


@pytest.fixture
def state(tmp_path):
    return tmp_path / "watch.json"


def test_json_and_page(folder, tmp_path, run):
    page = tmp_path / "page.html"
    words = ("monitor", folder / "policy.json", folder / "week1.parquet", "--by-group", "site", "-o", page, "--json")
    code, out, _ = run(*words)
    document = json.loads(out)
    assert code == 0
    assert document["format"] == "calibrant.monitor"
    assert {part["group"] for part in document["groups"]} == {"north", "south"}
    assert "week1" in page.read_text()


def test_states_of_two_machines_are_merged(folder, tmp_path, run):
    states = [tmp_path / f"{k}.json" for k in (1, 2)]
    for k, path in enumerate(states, 1):
        run("monitor", folder / "policy.json", folder / f"week{k}.parquet", "--state", path, "-q")
    run("monitor", folder / "policy.json", "--merge", states[1], "--state", states[0], "-q")
    together = tmp_path / "all.json"
    files = [folder / f"week{k}.parquet" for k in (1, 2)]
    run("monitor", folder / "policy.json", *files, "--state", together, "-q")
    assert json.loads(states[0].read_text()) == json.loads(together.read_text())


def test_corrected_probabilities_are_written(folder, tmp_path, run):
    path = tmp_path / "corrected.parquet"
    assert run("monitor", folder / "policy.json", folder / "week1.parquet", "--corrected", path, "-q")[0] == 0
    corrected = Predictions.open(path)
    assert corrected.holds == "probabilities"
    assert len(corrected) == 500


def test_an_alarm_of_another_kind_may_be_passed_over(folder, tmp_path, run):
    draw(900, 50, shift=3.0, known=0.0).save(tmp_path / "moved.parquet")
    words = ("monitor", folder / "policy.json", tmp_path / "moved.parquet", "-q")
    assert [run(*words, "--alarm-on", kind)[0] for kind in ("any", "promise")] == [1, 0]


def test_labels_alone_are_joined_to_what_the_state_has_seen(folder, tmp_path, state, run):
    batch = draw(300, 8)
    names = [f"{number:05d}" for number in range(300)]  # which look like numbers
    columns = {"ids": names, "class_names": batch.class_names, "groups": batch.groups}
    Predictions.from_logits(batch.logits, np.full(300, -100), **columns).save(tmp_path / "new.parquet")
    words = ("monitor", folder / "policy.json", "--state", state)
    assert run(*words, tmp_path / "new.parquet", "-q")[0] == 0
    rows = [f"{name},{'abcd'[label]}\n" for name, label in zip(names, batch.labels, strict=True)]
    (tmp_path / "labels.csv").write_text("".join(["id,label\n", *rows, "5,a\n", "6,a\n"]))
    words = (*words, "--labels", tmp_path / "labels.csv")
    document = json.loads(run(*words, "--json")[1])
    assert document["late_labels"] == {"labels": 302, "matched": 300, "unmatched": 2}
    assert document["risk"]["answers"] == document["batches"][0]["accepted"] > 0
    (tmp_path / "labels.csv").write_text("id,label\n12,a\n")
    code, _, err = run(*words)
    assert (code, "'12'" in err) == (2, True)


def test_an_alarm_is_acknowledged(folder, state, run):
    words = ("monitor", folder / "policy.json", "--state", state)
    code, out, err = run(*words, folder / "week2.parquet", folder / "bad.parquet", folder / "week2.parquet")
    assert (code, "bad.parquet" in out, str(state) in err) == (1, True, True)
    assert re.search(facts("week2.parquet", "500"), err), "the second time it is no news"
    assert run(*words)[0] == run(*words, "--alarm-on", "promise")[0] == 1
    code, out, _ = run(*words, "--acknowledge", "the camera was cleaned", folder / "week1.parquet")
    assert code == 0
    assert "the camera was cleaned" in out
    code, _, err = run(*words, "--acknowledge", "again")
    assert code == 2
    assert "alarm" in err


def test_names_tell_batches_without_ids_apart(folder, tmp_path, state, run):
    draw(200, 1, ids=False).save(tmp_path / "calls.npz")
    words = ("monitor", folder / "policy.json", tmp_path / "calls.npz", "--state", state)
    assert run(*words)[0] == 0
    assert "--name" in run(*words)[2]
    document = json.loads(run(*words, "--name", "tuesday", "--json")[1])
    assert [batch["samples"] for batch in document["batches"]] == [200, 200]
    draw(200, 2, ids=False).save(tmp_path / "calls.npz")
    code, _, err = run(*words)
    assert code == 2
    assert "--name" in err
    assert run(*words, "--name", "a", "--name", "b")[0] == 2
