"""Whose code building a model runs: nobody's without a yes, and what it would be is said without importing it."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from calibrant import _torchvision
from calibrant.models import build, names
from calibrant.models.factories import UntrustedCodeError, foreign_code, require_trust
from tests.helpers.networks import saved

_torchvision.ensure()

PAYLOAD = """
from pathlib import Path
Path("executed").touch()
from torch import nn
def make(**options):
    Path("called").touch()
    return nn.Linear(2, 3)
"""


@pytest.fixture
def payload(tmp_path, monkeypatch):
    """A module in the current folder that leaves a file when it is imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payload_module.py").write_text(PAYLOAD)
    yield tmp_path
    sys.modules.pop("payload_module", None)


def test_a_factory_is_not_imported_without_a_yes(payload):
    with pytest.raises(UntrustedCodeError, match="--trust-code") as caught:
        build("payload_module:make", trust_code=False)
    assert "imports the module payload_module (from " in str(caught.value)
    assert str(payload / "payload_module.py") in str(caught.value)
    assert "calls its make" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path.name for path in payload.iterdir()} == {"payload_module.py"}
    assert "payload_module" not in sys.modules
    assert str(payload) not in sys.path


def test_in_a_program_of_ones_own_a_factory_is_called(payload):
    assert isinstance(build("payload_module:make"), nn.Linear)
    assert (payload / "called").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch.hub:load", "imports the module torch.hub"),
        ("torchvision.models:resnet18", "imports the module torchvision.models"),
        ("os:system", "imports the module os"),
        ("builtins:exec", "imports the module builtins"),
        ("calibrant.models:build", "imports the module calibrant.models"),
        ("no_such_package.module:make", "which is not installed here"),
        ("timm/hf-hub:someone/model", "fetch a model from 'hf-hub:someone/model'"),
        ("timm/HF_HUB:someone/model", "fetch a model"),
        ("timm/local-dir:/tmp/model", "fetch a model"),
        ("timm/someone/model", "fetch a model"),
    ],
)
def test_what_is_not_in_a_registry_is_foreign(name, words):
    assert words in foreign_code(name)
    with pytest.raises(UntrustedCodeError):
        build(name, trust_code=False)


@pytest.mark.parametrize("option", ["checkpoint_path", "model_name", "cache_dir", "pretrained_cfg",
                                    "pretrained_cfg_overlay", "pretrained_strict"])  # fmt: skip
def test_options_that_lead_timm_elsewhere_are_foreign(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UntrustedCodeError, match=f"makes timm read what its option '{option}' names"):
        build("timm/test_resnet", trust_code=False, **{option: "x.pth"})


def test_registries_need_no_trust():
    assert [name for name in names() if foreign_code(name) is not None] == []
    assert foreign_code("timm/resnet18.a1_in1k", {"pretrained": True, "in_chans": 1}) is None
    require_trust("mlp", {}, False)


@pytest.mark.parametrize("name", [":", "module:", ":function"])
def test_a_name_that_can_import_nothing_is_no_name(name):
    assert foreign_code(name) is None
    with pytest.raises(ValueError, match=r"named as package\.module:factory"):
        build(name, trust_code=False)


@pytest.mark.parametrize("ending", ["raise SystemExit(0)", "raise SystemExit", "import sys; sys.exit('bye')",
                                    "raise GeneratorExit", "raise BaseException('odd')"])  # fmt: skip
@pytest.mark.parametrize("where", ["on import", "when called", "on access"])
def test_code_that_ends_the_process_is_an_error(ending, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = {
        "on import": ending,
        "when called": f"def make(): {ending}",
        "on access": f"def __getattr__(name):\n    if not name.startswith('__'): {ending}",
    }[where]
    Path("ending_module.py").write_text(text + "\n")
    try:
        with pytest.raises(ValueError, match=r"^model 'ending_module:make': "):
            build("ending_module:make")
    finally:
        sys.modules.pop("ending_module", None)
    assert str(tmp_path) not in sys.path


def test_a_request_to_end_is_no_error_of_the_model(tmp_path, monkeypatch):
    """SIGTERM becomes a SystemExit with 143 wherever the process is."""
    monkeypatch.chdir(tmp_path)
    Path("asked_module.py").write_text("def make(): raise SystemExit(143)\n")
    with pytest.raises(SystemExit):
        build("asked_module:make")
    sys.modules.pop("asked_module", None)


def test_an_option_that_a_factory_does_not_have_is_named(payload):
    Path("options_module.py").write_text("from torch import nn\ndef make(width): return nn.Linear(width, 2)\n")
    with pytest.raises(ValueError, match="it has no option 'depth'"):
        build("options_module:make", depth=3)
    sys.modules.pop("options_module", None)


class Hostile:
    def __reduce__(self):
        return Path.touch, (Path("executed"),)


def test_weights_in_torchs_cache_are_not_unpickled(tmp_path, monkeypatch):
    """A file in the place of torchvision's download: torch.hub would unpickle it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    cache = tmp_path / "home" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    torch.save({"fc.weight": Hostile()}, cache / "resnet18-f37072fd.pth")
    torch.load(cache / "resnet18-f37072fd.pth", weights_only=False)
    Path("executed").unlink()  # so it is hostile indeed
    with pytest.raises(ValueError, match="torchvision's weights 'IMAGENET1K_V1' could not be loaded"):
        build("resnet18", weights="torchvision:IMAGENET1K_V1")
    assert not Path("executed").exists()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_a_factory_gives_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "from torch import nn\ndef make(num_classes=4, width=3): return nn.Linear(width, num_classes)\n"
    Path("own_factory.py").write_text(text + "ready = nn.ReLU()\nnumber = 3\ndef text(): return 'x'\n")
    assert build("own_factory:make").out_features == 4
    model = build("own_factory:make", num_classes=5, width=2)
    assert build("own_factory:make", num_classes=5, width=2, weights=saved(Path("a.pt"), model)).bias.equal(model.bias)
    assert isinstance(build("own_factory:ready"), nn.ReLU)
    for name, options, words in [
        ("own_factory:", {}, "a model is named as package.module:factory, got 'own_factory:'"),
        ("no_such_module:make", {}, "cannot import no_such_module .ModuleNotFoundError"),
        ("own_factory:nothing", {}, "own_factory has no 'nothing'"),
        ("own_factory:number", {}, "a function or class that gives a module is needed, got int"),
        ("own_factory:text", {}, "must give a torch.nn.Module, got str"),
        ("own_factory:make", {"depth": 3}, "the call failed .TypeError: .*'depth'"),
        ("own_factory:make", {"stem": "32"}, r"stems are for the networks of names\(\), got stem='32'"),
        ("own_factory:ready", {"num_classes": 3}, "is a module already and takes no options, got num_classes"),
    ]:
        with pytest.raises(ValueError, match=words):
            build(name, **options)
    sys.modules.pop("own_factory", None)
