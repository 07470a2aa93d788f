"""What each command imports, and that the measuring half runs where PyTorch is not installed."""

import json
import shutil
import subprocess
import sys

import pytest

from calibrant import Predictions
from calibrant.cli import COMMANDS
from tests.golden.inputs import FOLDER

pytestmark = pytest.mark.slow

HEAVY = ["torch", "torchvision", "torchmetrics", "transformers", "scipy.signal", "matplotlib", "sklearn", "ray",
         "onnxruntime", "pandas"]  # fmt: skip
TRAINING = ["torch", "torchvision", "torchmetrics", "lightning_fabric", "PIL", "defusedxml", "sklearn", "matplotlib"]

RUN = """
import importlib.machinery, json, sys

absent = set(json.loads(sys.argv[1]))

class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Finder
from calibrant.cli import main
try:
    main(sys.argv[2:])
except SystemExit as stop:
    print("modules", json.dumps(list(sys.modules)), file=sys.stderr)
    sys.exit(stop.code)
"""


def imported(*arguments, folder, absent=()):
    """Run a command in a new process; give the heavy modules that it has imported."""
    command = [sys.executable, "-c", RUN, json.dumps(absent), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert result.returncode == 0, result.stderr.partition("modules ")[0]
    line = next(line for line in result.stderr.splitlines() if line.startswith("modules "))
    return set(json.loads(line.removeprefix("modules "))) & set(HEAVY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("files")
    shutil.copytree(FOLDER, path, dirs_exist_ok=True)
    Predictions.open(path / "test.npz").save(path / "test.csv")
    imported("fit", "val.npz", "--target-risk", "0.1", "-o", "policy.json", folder=path)
    return path


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["--help"], set()),
        (["audit", "test.csv", "-o", "report.html"], set()),
        (["audit", "val.npz", "--policy", "policy.json", "--json"], set()),
        (["fit", "val.npz", "-o", "again.json"], set()),
        (["apply", "policy.json", "test.csv", "-o", "answers.csv"], {"pandas"}),  # pyarrow's way to look at an array
        (["apply", "policy.json", "val.npz", "-o", "answers.npz"], set()),
        (["export", "--logits-only", "--policy", "policy.json", "-o", "head.onnx"], {"onnxruntime"}),
        (["export", "--onnx", "model.onnx", "--policy", "policy.json", "-o", "whole.onnx"], {"onnxruntime"}),
        (["recipes", "small/scenes"], set()),
        (["data", "--help"], {"torch"}),
        (["methods"], {"torch"}),
        (["data", "layouts"], {"torch"}),
        (["lens", "--losses", "ls", "--logits", "2,1,0"], {"torch", "matplotlib"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_no_more_than_it_needs(words, allowed, folder):
    """And the measuring half runs where PyTorch is not installed."""
    assert imported(*words, folder=folder, absent=() if "torch" in allowed else TRAINING) <= allowed


def test_the_help_of_a_command_imports_nothing_heavy():
    """One after another in one new process."""
    code = """
import contextlib, io, json, sys
from calibrant.cli import main
modules = {}
for name in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main([name, "--help"])
    assert "Usage: calibrant " + name in text.getvalue(), text.getvalue()
    modules[name] = sorted(set(json.loads(sys.argv[2])) & set(sys.modules))
print(json.dumps(modules))
"""
    names = json.dumps([name for name in COMMANDS if name != "data"])
    result = subprocess.run([sys.executable, "-c", code, names, json.dumps(HEAVY)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert set(map(tuple, json.loads(result.stdout).values())) == {()}


NEEDS_TRAINING = [
    ["compare", "x.toml", "-o", "sweep"],
    ["data", "layouts"],
    ["demo"],
    ["export", "--model", "torch.nn:Identity", "--policy", "policy.json", "-o", "never.onnx"],
    ["lens", "--losses", "ls", "--logits", "2,1,0"],
    ["methods"],
    ["predict", "run", "-o", "predictions.npz"],
    ["train", "x.toml"],
]


def test_the_training_half_says_what_it_needs(folder):
    """The commands one after another in one process without PyTorch: each ends with code 2 and names the extra."""
    each = """
for words in json.loads(sys.argv[2]):
    try:
        main(words)
    except SystemExit as stop:
        print(stop.code)
"""
    code = RUN.partition("try:")[0] + each
    command = [sys.executable, "-c", code, json.dumps(TRAINING), json.dumps(NEEDS_TRAINING)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert result.stdout.split() == ["2"] * len(NEEDS_TRAINING)
    assert ["calibrant[train]" in line for line in result.stderr.splitlines()] == [True] * len(NEEDS_TRAINING)


def test_the_help_imports_no_array_library():
    """Nor does anything else before a command: it limits the threads of NumPy's matrices, which NumPy reads once."""
    code = """
import contextlib, io, sys
from calibrant.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["--help"])
print({"numpy", "torch", "scipy", "pyarrow"} & set(sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
