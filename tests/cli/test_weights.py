"""Importance weights on the command line: left out by an option, or said not to be used."""

import numpy as np
import pytest

from calibrant import Predictions


def test_weights_are_never_ignored_in_silence(tmp_path, run):
    rng = np.random.default_rng(0)
    z = 3 * rng.standard_normal((400, 3))
    path, policy = tmp_path / "val.npz", tmp_path / "policy.json"
    Predictions.from_logits(z, (z + rng.gumbel(size=z.shape)).argmax(1), weight=rng.random(400)).save(path)
    code, _, err = run("fit", path, "-o", policy)
    assert (code, "importance weights" in err, "--column weight=" in err) == (2, True, True)
    assert run("fit", path, "-o", policy, "--column", "weight=")[0] == 0
    code, _, err = run("monitor", policy, path)
    assert (code, "importance weights" in err) == (2, True)
    assert run("monitor", policy, path, "--column", "weight=")[0] == 0
    for words in (("apply", policy, path, "-o", tmp_path / "d.csv"), ("lens", "--losses", "ls", "--predictions", path)):
        code, _, err = run(*words)
        assert (code, "weights are not used" in err) == (0, True), err


def test_both_parts_of_a_holdout_keep_their_weights(tmp_path, run):
    rng = np.random.default_rng(1)
    weight = rng.random(50)
    path = tmp_path / "all.npz"
    Predictions.from_logits(rng.standard_normal((50, 3)), rng.integers(0, 3, 50), weight=weight).save(path)
    assert run("holdout", path, "-o", tmp_path / "a.csv", tmp_path / "b.parquet")[0] == 0
    parts = [Predictions.open(tmp_path / name).weight for name in ("a.csv", "b.parquet")]
    assert sorted(np.concatenate(parts)) == sorted(weight)


@pytest.mark.parametrize("options", [(), ("--column", "weight=weight"), ("--column", "labels=labels")])
def test_an_audit_of_weights_says_how_to_fit_without_them(tmp_path, run, options):
    rng = np.random.default_rng(2)
    z = 3 * rng.standard_normal((400, 3))
    path = tmp_path / "val.npz"
    Predictions.from_logits(z, (z + rng.gumbel(size=z.shape)).argmax(1), weight=rng.random(400)).save(path)
    code, out, err = run("audit", path, *options, "-o", tmp_path / "a.html")
    assert (code, "--column weight=" in " ".join(out.split())) == (0, True), err
    assert "weight=weight" not in out
