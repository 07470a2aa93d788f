"""No output of a command is one of its inputs, under whatever name."""

import os

import numpy as np
import pytest

from calibrant import Policy
from calibrant._files import check_output
from tests.helpers.errors import facts
from tests.helpers.policies import run
from tests.helpers.watches import draw


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    Policy.fit(draw(600, 0), 0.2).save(folder / "policy.json")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "apply policy.json data.npz -o data.npz",
        "apply policy.json shards -o shards/1.parquet",
        "apply policy.json *.npz -o link.npz",
        "audit data.html.npz -o policy.json",
        "fit data.npz --costs costs.json -o costs.json",
        "check data.npz --require 'ece<=1' --policy policy.json --junit policy.json",
        "check data.npz --require 'ece<=1' --baseline data.npz --junit data.npz",
        "export --policy policy.json --onnx model.onnx -o model.onnx",
        "export --policy policy.json --onnx model.onnx --inputs data.npz --expected link.npz.onnx -o link.npz.onnx",
    ],
)
def test_an_input_is_never_overwritten(made, tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.json").write_bytes((made / "policy.json").read_bytes())
    for name in ("data.npz", "data.html.npz"):
        draw(60, 1).save(tmp_path / name)
    (tmp_path / "shards").mkdir()
    draw(60, 1).save(tmp_path / "shards" / "1.parquet")
    os.link("data.npz", "link.npz")
    os.link("data.npz", "link.npz.onnx")
    (tmp_path / "costs.json").write_text("[[0, 1], [1, 0]]")
    (tmp_path / "model.onnx").write_bytes(b"x")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, _, _ = run(capsys, *words.replace("'", "").split())
    assert code == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_set_of_arrays_is_one_output(tmp_path):
    """x_probabilities.npy is written with x_labels.npy, which is read with x_logits.npy."""
    for name in ("logits", "labels"):
        np.save(tmp_path / f"x_{name}.npy", np.zeros(2))
    with pytest.raises(ValueError, match=facts("x_probabilities.npy")):
        check_output(tmp_path / "x_probabilities.npy", inputs=[tmp_path / "x_logits.npy"])
    check_output(tmp_path / "y_probabilities.npy", inputs=[tmp_path / "x_logits.npy"])


def test_weights_of_a_run_and_images_of_a_data_set_are_inputs_however_deep(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for name in ("last.safetensors", "0.png"):
        path = tmp_path / "run" / "checkpoints" / name
        path.write_bytes(b"x")
        with pytest.raises(ValueError, match=name):
            check_output(path, inputs=[tmp_path / "link"])
    check_output(tmp_path / "run" / "checkpoints" / "new.npz", inputs=[tmp_path / "run"])


def test_what_is_not_read_may_be_written_again(tmp_path):
    (tmp_path / "report.html").write_text("an older report")
    (tmp_path / "1.parquet").write_bytes(b"x")
    check_output(tmp_path / "report.html", inputs=[tmp_path, None, "s3://bucket/x.parquet"])
    with pytest.raises(ValueError, match=facts("1.parquet")):
        check_output(tmp_path / "1.parquet", inputs=[f"{tmp_path}/*.parquet"])
