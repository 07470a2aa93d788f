"""A hostile recipe, a hostile run folder: nothing of theirs runs and nothing changes, unless somebody says yes."""

import json
import sys
from pathlib import Path

import pytest

from calibrant.models.foreign import UntrustedCodeError
from calibrant.training import estimate, load, load_model, predict_run, train
from calibrant.training.run_folder import RunFolder
from tests.training.conftest import RECIPE, state_of

#: Leaves a file wherever it is imported or called, and is a network for the digits besides.
PAYLOAD = """
from pathlib import Path
Path({mark!r}).touch()
from torch import nn
def make(num_classes=10, **options):
    Path({mark!r}).touch()
    return nn.Sequential(nn.Flatten(), nn.Linear(192, num_classes))
def evil(*arguments, **options):
    return make()
dependencies = []
"""

MODELS = {
    "module": {"name": "hostile_payload:make"},
    "attribute": {"name": "hostile_payload:Path.touch"},
    "hub": {"name": "torch.hub:load", "repo_or_dir": ".", "model": "evil", "source": "local", "trust_repo": True},
    "builtin": {"name": "builtins:exec"},
    "shell": {"name": "os:system", "command": "touch executed"},
    "timm folder": {"name": "timm/local-dir:."},
    "timm hub": {"name": "timm/hf-hub:someone/evil"},
    "timm file": {"name": "timm/test_resnet", "checkpoint_path": "hubconf.py"},
    "timm name": {"name": "timm/test_resnet", "model_name": "local-dir:."},
}


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "mark" / "executed"


@pytest.fixture
def hostile(request, finished, mark, monkeypatch):
    """A run folder that names code, which lies in the folder, in the current folder and on the path."""
    mark.parent.mkdir()
    for name in ("hostile_payload.py", "hubconf.py"):
        (finished / name).write_text(PAYLOAD.format(mark=str(mark)))
    plain = json.loads((finished / "recipe.json").read_text())
    plain["model"] = MODELS[request.param]
    (finished / "recipe.json").write_text(json.dumps(plain))
    toml = "\n".join(f"{name} = {json.dumps(value)}" for name, value in plain["model"].items())
    old = RECIPE[RECIPE.index("[model]") + len("[model]") : RECIPE.index("[optimiser]")]
    (finished / "digits.toml").write_text(RECIPE.replace(old, f"\n{toml}\n"))
    monkeypatch.chdir(finished)
    monkeypatch.syspath_prepend(str(finished))
    yield finished
    sys.modules.pop("hostile_payload", None)


WORDS = [
    "train digits.toml --dry-run --json",
    "train digits.toml -o new",
    "train digits.toml -o . --resume",
    "predict . -o out.npz",
    "predict . -o out.npz --checkpoint last",
    "compare digits.toml --losses ce --seeds 1 -o new",
]
CALLS = {
    "load_model": load_model,
    "predict_run": predict_run,
    "estimate": lambda folder: estimate(load(folder / "digits.toml")),
    "train": lambda folder: train(load(folder / "digits.toml"), folder / "new"),
}


@pytest.mark.parametrize(
    ("hostile", "words"),
    [*((name, "train digits.toml --dry-run") for name in MODELS), *(("module", words) for words in WORDS)],
    indirect=["hostile"],
)
def test_commands_run_nothing_of_a_strangers(words, hostile, mark, refused):
    before = state_of(hostile)
    assert "--trust-code" in refused(*words.split())
    assert list(mark.parent.iterdir()) == []
    assert state_of(hostile) == before


@pytest.mark.parametrize(
    ("hostile", "call"),
    [*((name, "load_model") for name in MODELS), *(("hub", call) for call in CALLS)],
    indirect=["hostile"],
)
def test_functions_run_nothing_of_a_strangers(call, hostile, mark):
    before = state_of(hostile)
    with pytest.raises(UntrustedCodeError):
        CALLS[call](hostile)
    assert list(mark.parent.iterdir()) == []
    assert state_of(hostile) == before
    assert "hostile_payload" not in sys.modules


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A network of one's own in the current folder, and a recipe for it."""
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "called"
    (tmp_path / "hostile_payload.py").write_text(PAYLOAD.format(mark=str(mark)))
    (tmp_path / "own.toml").write_text(
        RECIPE.replace('"mlp"\ninput_size = [3, 8, 8]\nhidden = [8]', '"hostile_payload:make"')
    )
    yield mark
    sys.modules.pop("hostile_payload", None)


def test_with_a_yes_it_is_trained_predicted_and_loaded(own, command):
    assert command("train", "own.toml", "-o", "run", "-q", "--trust-code")[0] == 0
    assert own.exists()
    assert command("predict", "run", "-o", "out.npz", "-q")[0] == 2
    assert command("predict", "run", "-o", "out.npz", "-q", "--trust-code")[0] == 0
    assert Path("out.npz").exists()
    _, shape, _ = load_model("run", trust_code=True)
    assert shape == [3, 8, 8]
    assert command("train", "own.toml", "--dry-run", "--trust-code")[0] == 0


@pytest.fixture
def terminal(monkeypatch):
    """Somebody who answers."""

    def answer(text):
        lines = iter(text.splitlines(keepends=True))
        stream = type("Terminal", (), {"isatty": lambda self: True, "readline": lambda self: next(lines, "")})()
        monkeypatch.setattr(sys, "stdin", stream)
        monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: True, raising=False)

    return answer


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("YES\n", 0), ("\n", 2), ("", 2), ("yeah\n", 2)])
def test_on_a_terminal_it_is_asked(said, code, own, command, terminal):
    terminal(said)
    found, errors = command("train", "own.toml", "--dry-run", "--json")
    assert found == code
    assert "hostile_payload" in errors
    assert "[y/N]" in errors
    assert own.exists() == (code == 0)


def test_processes_of_the_same_command_are_not_asked_again(own, terminal, monkeypatch):
    """Lightning starts the others with this process's words."""
    from calibrant.cli.options import invocation, trusts_models

    words = ["train", "own.toml", "--devices", "2"]
    monkeypatch.setattr(sys, "argv", ["calibrant", *words])
    monkeypatch.setattr(sys.modules["calibrant.cli.options"], "invocation", invocation)
    invocation[:] = words
    terminal("y\n")
    assert trusts_models([load("own.toml").model], False) is True
    assert sys.argv == ["calibrant", *words, "--trust-code"]


def test_weights_that_a_checkpoint_replaces_are_not_looked_for(finished, tmp_path, command):
    """A run folder that names weights does not make anybody read or download them."""
    plain = json.loads((finished / "recipe.json").read_text())
    plain["model"]["weights"] = "/no/such/file.pt"
    (finished / "recipe.json").write_text(json.dumps(plain))
    assert RunFolder(finished).recipe().model.weights == "/no/such/file.pt"
    assert command("predict", finished, "-o", tmp_path / "out.npz", "-q")[0] == 0
    load_model(finished)


def test_a_damaged_folder_is_refused_before_its_code_is_asked_about(finished, command, tmp_path):
    (finished / "recipe.json").write_text('{"model": {"name": "hostile_payload:make"}}')
    code, said = command("predict", finished, "-o", tmp_path / "out.npz")
    assert code == 2
    assert "recipe.json" in said
