"""``calibrant lens`` and ``calibrant methods``: the table, the figure, predictions files, and errors in one line."""

import json

import numpy as np
import pytest

from calibrant import Predictions


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_lens_prints_the_table_and_draws_the_figure_that_is_asked_for(run, tmp_path):
    words = ("lens", "--losses", "ls,mbls,mdca,cpc,acls", "--logits", "8,4,1,0", "--label", 0)
    assert run(*words, "-o", "none")[0] == 0
    assert not list(tmp_path.iterdir())
    for suffix, magic in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        figure = tmp_path / f"lens.{suffix}"
        more = () if suffix == "png" else ("-o", figure)  # the default
        code, out, err = run(*words, *more)
        assert (code, "ls:" in out, figure.name in err) == (0, True, True)
        assert figure.read_bytes().startswith(magic)
    assert len(list(tmp_path.iterdir())) == 3


def test_lens_over_a_predictions_file_in_batches(run, tmp_path):
    z = np.array([[9.0, 0.0, 1.0], [2.0, 1.0, 0.0], [0.0, 8.0, 7.0], [0.5, 0.0, 0.0]])
    Predictions.from_logits(z, np.array([0, 0, 1, 2])).save(tmp_path / "p.npz")
    words = ("lens", "--losses", "mbls:margin=6", "--predictions", tmp_path / "p.npz")
    assert "50.00%" in run(*words, "--batch-size", 3)[1]
    assert run(*words, "--quiet") == (0, "", "")


@pytest.mark.slow
def test_flags_are_written_as_in_python_or_in_json(run):
    small, same = (run("lens", "--losses", f"mmce:weighted={flag}", "--json")[1] for flag in ("False", "false"))
    assert small.replace("False", "false") == same


def test_methods_are_listed_and_one_is_told_with_its_parameters(run):
    code, out, _ = run("methods")
    assert code == 0
    assert "ACLS" in out
    (method,) = json.loads(run("methods", "acls", "--json")[1])
    assert method["parameters"]["margin"]["default"] == 10.0
    assert "lambda2" in run("methods", "acls")[1]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, run):
    target = tmp_path / "lens.png"
    target.write_text("old")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    code, _, err = run("lens", "-o", target)
    assert code == 2
    assert "No space left on device" in err
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
