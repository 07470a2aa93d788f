"""``calibrant holdout``: two files of one, which the next command takes as they are."""

import json
import shlex

import numpy as np
import pytest

from calibrant import Predictions
from tests.helpers.policies import write


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "all.npz", n=900)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".csv", ".jsonl", ".safetensors"])
def test_the_next_command_runs(here, run, suffix):
    code, out, err = run("holdout", "all.npz", "-o", f"fit{suffix}", f"judge{suffix}", "--share", "40%", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert [document[part]["samples"] for part in ("fit", "judge")] == [360, 540]
    for command in document["next"]["command"].split(" && "):
        quick = ["--replicates", 20] if "audit" in command else []
        code, out, err = run(*shlex.split(command)[1:], "--json", *quick)
        assert code == 0, err
    assert not json.loads(out)["policy"]["fitted_on_these"]


def test_the_next_command_runs_where_ids_repeat(here, run):
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal((600, 4))
    np.savez("twice.npz", logits=z, labels=(z + rng.gumbel(size=z.shape)).argmax(1), ids=np.arange(600) % 400)
    _, out, _ = run("holdout", "twice.npz", "-o", "fit.npz", "judge.npz", "--json")
    for command in json.loads(out)["next"]["command"].split(" && "):
        code, _, err = run(*shlex.split(command)[1:])
        assert code == 0, err


def test_options_for_reading_and_columns_to_keep(here, run):
    rng = np.random.default_rng(0)
    lines = ["truth,p_yes,patient,site"]
    for k in range(300):
        p = rng.random()
        lines.append(f"{'yes' if rng.random() < p else 'no'},{p:.3f},{k // 3},{'ab'[k % 2]}")
    (here / "mine.csv").write_text("\n".join(lines))
    reading = ["--column", "labels=truth", "--column", "probabilities=p_yes"]
    words = ["holdout", "mine.csv", *reading, "--by", "patient", "--group", "site", "-o", "a.npz", "b.csv"]
    code, _, err = run(*words)
    assert code == 0, err
    a, b = Predictions.open("a.npz"), Predictions.open("b.csv", groups=["patient", "site"])
    assert not set(map(str, a.groups["patient"])) & set(map(str, b.groups["patient"]))
    assert (len(a), len(b)) == (150, 150)
    assert set(a.group_names) == {"patient", "site"}
    assert a.class_names == ("no", "yes")
